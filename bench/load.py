"""Closed-loop clients that append one described file each time, in one process that costs as little as it can.

    ./dev bench load --port 8181 --table bench.t --clients 16 [--seconds 5] [--keys]

The generator shares the machine with the service it measures, so a request is a few bytes joined and one `send`,
an answer one `recv` and three searches: raw sockets behind one epoll (Linux), which took 11 µs of CPU a request
where the same clients as uvloop protocols took 12, and 17 where those took 46 with a single client.

Every client sends its next request when its last is answered. A number in the path makes each file a new one;
the answer to `main` names the numbers that were not acknowledged, so that whoever reads the table back can tell
exactly what must be there. Never repeats a request: what is refused is lost, and counted as that.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import time
import uuid
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.described import describe_file

HOST = "127.0.0.1"
TOKEN_VARIABLE = "HEADGATE_BENCH_TOKEN"  # not an option: a command line is visible to other users

_ROOT = Path(__file__).resolve().parent.parent
_DIGITS = 12
_RECEIVE_BYTES = 1 << 16
_AFTER_FAILURE_NS = 50_000_000  # a client that was refused does not hammer
_DRAIN_S = 90.0  # longer than the service's own limit for a request
_LENGTH = b"content-length: "
_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Target:
    """What is appended to, and by whom."""

    ports: tuple[int, ...]  # of replicas: clients are dealt out in turn
    namespace: str
    table: str
    location: str
    token: str = ""
    keys: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """How many clients, and for how long."""

    clients: int
    seconds: float = 5.0
    warm_up_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the clients saw. Rates and latencies are of the measured seconds, the counts below them of the whole run."""

    clients: int
    count: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    client_cpu_us: float  # of this process, for a request
    acknowledged: int
    failed: dict[str, int]  # by status; `closed` and `silent` are outcomes that nobody knows
    examples: dict[str, str]  # the first answer of each failure
    file_prefix: str  # the number follows, then `.parquet`
    not_acknowledged: list[int]

    @property
    def commits_per_s(self) -> float:
        """Acknowledged in the measured seconds."""
        return self.count / self.seconds


class Template:
    """A request with two holes: the key, which may be absent, and the number of the file."""

    def __init__(self, target: Target, prefix: str) -> None:
        file = describe_file(target.location)
        file["file-path"] = f"{prefix}{'0' * _DIGITS}.parquet"
        change = {"action": "append", "add-data-files": [file]}
        body = json.dumps({"requirements": [], "updates": [change]}, separators=(",", ":")).encode()
        before, _, self._after = body.partition(b"0" * _DIGITS + b".parquet")
        head = (
            f"POST /v1/namespaces/{target.namespace}/tables/{target.table} HTTP/1.1\r\nHost: {HOST}\r\n"
            f"Content-Type: application/json\r\nPrefer: return=minimal\r\nContent-Length: {len(body)}\r\n"
        )
        if target.token:
            head += f"Authorization: Bearer {target.token}\r\n"
        self._after = b".parquet" + self._after
        self._head, self._before = head.encode(), before
        self._whole = self._head + b"\r\n" + before
        # 12 random bits here and the request's number below: unlike any other key of this or another run.
        self._key_middle = b"-7%03x-8%03x-" % (uuid.uuid4().int & 0xFFF, uuid.uuid4().int & 0xFFF)

    def fill(self, number: int) -> bytes:
        """The request of a file."""
        return b"".join((self._whole, b"%012d" % number, self._after))

    def fill_with_key(self, number: int) -> bytes:
        """The request of a file with an Idempotency-Key (UUIDv7)."""
        now = b"%012x" % (time.time_ns() // 1_000_000)
        key = b"".join((now[:8], b"-", now[8:], self._key_middle, b"%012x" % number))
        parts = (
            self._head,
            b"Idempotency-Key: ",
            key,
            b"\r\n\r\n",
            self._before,
            b"%012d" % number,
            self._after,
        )
        return b"".join(parts)


class Clients:
    """All clients of a run, by the file descriptor of their connection."""

    def __init__(self, target: Target, load: Load) -> None:
        self._load, self._ports = load, target.ports
        self._prefix = f"{target.location}/data/{uuid.uuid4()}-"
        template = Template(target, self._prefix)
        self._fill = template.fill_with_key if target.keys else template.fill
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._indexes: dict[int, int] = {}
        self._ends, self._elapsed = array("q"), array("q")
        self._failed: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._not_acknowledged: list[int] = []
        self._number = 0

    def run(self) -> Outcome:
        """Warm up, measure, stop sending, and wait for what is under way."""
        gc.disable()
        flights: dict[int, tuple[int, int]] = {}  # by descriptor: number, start
        resting: list[tuple[int, int]] = []  # clients that were refused: when they go on, descriptor
        begun = time.perf_counter_ns()
        measure_at = begun + int(self._load.warm_up_s * _S)
        stop_at = measure_at + int(self._load.seconds * _S)
        give_up_at = stop_at + int(_DRAIN_S * _S)
        for index in range(self._load.clients):
            self._send(self._connect(index), flights)
        marks: list[tuple[float, int]] = []  # CPU seconds and answers, when measuring begins and when it ends
        mark_at = (measure_at, stop_at, give_up_at)
        now = time.perf_counter_ns()
        while flights or (resting and now < stop_at):
            self._receive(flights, resting, stop_at)
            now = time.perf_counter_ns()
            if now >= mark_at[len(marks)]:
                marks.append((time.process_time(), len(self._ends)))
                if len(marks) == len(mark_at):
                    break
            while resting and resting[0][0] <= now < stop_at:
                self._send(resting.pop(0)[1], flights)
        for number, _ in flights.values():
            self._fail("silent", number, "")
        for connection in self._sockets.values():
            connection.close()
        marks += [(time.process_time(), len(self._ends))] * 2  # for a run without time
        (cpu_before, before), (cpu_after, after) = marks[:2]
        return self._summarise(measure_at, stop_at, (cpu_after - cpu_before) * 1e6 / max(1, after - before))

    def _connect(self, index: int) -> int:
        """The descriptor of a client's new connection."""
        connection = socket.create_connection((HOST, self._ports[index % len(self._ports)]))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        descriptor = connection.fileno()
        self._sockets[descriptor] = connection
        self._indexes[descriptor] = index
        self._epoll.register(descriptor, select.EPOLLIN)
        return descriptor

    def _send(self, descriptor: int, flights: dict[int, tuple[int, int]]) -> None:
        self._number = number = self._number + 1
        flights[descriptor] = (number, time.perf_counter_ns())
        self._sockets[descriptor].send(self._fill(number))  # far below any socket's buffer

    def _receive(
        self, flights: dict[int, tuple[int, int]], resting: list[tuple[int, int]], stop_at: int
    ) -> None:
        """Take every answer that is there, and let its client go on. The hot loop: names are local, nothing is wrapped."""
        sockets, fill, clock = self._sockets, self._fill, time.perf_counter_ns
        for descriptor, _ in self._epoll.poll(0.02):
            connection = sockets[descriptor]
            try:
                answer = connection.recv(_RECEIVE_BYTES)
            except OSError:
                answer = b""
            if answer and not _is_whole(answer):
                answer = _receive_rest(connection, answer)
            number, started = flights.pop(descriptor, (0, 0))
            now = clock()
            if answer[9:12] == b"200":
                self._ends.append(now)
                self._elapsed.append(now - started)
                if now < stop_at:
                    self._number = number = self._number + 1
                    flights[descriptor] = (number, clock())
                    connection.send(fill(number))
                continue
            if number:
                status = answer[9:12].decode("latin-1") if answer else "closed"
                self._fail(status, number, answer.partition(b"\r\n\r\n")[2].decode(errors="replace"))
            if not answer:
                # It may have been resting; it begins its rest anew.
                resting[:] = [rest for rest in resting if rest[1] != descriptor]
                self._epoll.unregister(descriptor)
                sockets.pop(descriptor).close()
                descriptor = self._connect(self._indexes.pop(descriptor))
            resting.append((now + _AFTER_FAILURE_NS, descriptor))

    def _fail(self, status: str, number: int, text: str) -> None:
        self._failed[status] += 1
        self._examples.setdefault(status, text[:300])
        self._not_acknowledged.append(number)

    def _summarise(self, measure_at: int, stop_at: int, cpu_us: float) -> Outcome:
        pairs = zip(self._ends, self._elapsed, strict=True)
        times = sorted(elapsed for end, elapsed in pairs if measure_at <= end < stop_at)
        return Outcome(
            clients=self._load.clients,
            count=len(times),
            seconds=self._load.seconds,
            p50_ms=statistics.median(times) / 1e6 if times else 0.0,
            p99_ms=times[int(len(times) * 0.99)] / 1e6 if times else 0.0,
            max_ms=times[-1] / 1e6 if times else 0.0,
            client_cpu_us=cpu_us,
            acknowledged=len(self._ends),
            failed=dict(self._failed),
            examples=self._examples,
            file_prefix=self._prefix,
            not_acknowledged=self._not_acknowledged,
        )


def _is_whole(answer: bytes) -> bool:
    """Whether the body has arrived with its header; uvicorn's header names are in lower case."""
    end = answer.find(b"\r\n\r\n")
    at = answer.find(_LENGTH)
    if end < 0 or at < 0:
        return False
    return len(answer) >= end + 4 + int(answer[at + len(_LENGTH) : answer.find(b"\r", at)])


def _receive_rest(connection: socket.socket, answer: bytes) -> bytes:
    """Read on until the answer is whole: rare, so it may block the others; empty when it never will be."""
    connection.setblocking(True)
    try:
        while not _is_whole(answer):
            more = connection.recv(_RECEIVE_BYTES)
            if not more:
                return b""
            answer += more
    except OSError:
        return b""
    finally:
        connection.setblocking(False)
    return answer


def run_load(target: Target, load: Load) -> Outcome:
    """The outcome of a run in a process of its own."""
    words: Sequence[str] = [
        *("--table", f"{target.namespace}.{target.table}", "--location", target.location),
        *(word for port in target.ports for word in ("--port", str(port))),
        *("--clients", str(load.clients), "--seconds", str(load.seconds), "--warm-up-s", str(load.warm_up_s)),
        *(["--keys"] if target.keys else []),
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "bench.load", *words],
        env={**os.environ, TOKEN_VARIABLE: target.token},
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return Outcome(**found)


def main() -> int:
    """Run the clients; print what they saw as JSON."""
    parser = argparse.ArgumentParser(prog="bench load", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--port", type=int, action="append", required=True, help="of the service; once a replica"
    )
    parser.add_argument("--table", required=True, help="NAMESPACE.TABLE, which must exist")
    parser.add_argument("--location", required=True, help="the table's location")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to measure")
    parser.add_argument("--warm-up-s", type=float, default=1.0, help="how long to run before")
    parser.add_argument("--keys", action="store_true", help="send an Idempotency-Key with each request")
    given = parser.parse_args()
    namespace, _, table = given.table.rpartition(".")
    token = os.environ.get(TOKEN_VARIABLE, "")
    target = Target(tuple(given.port), namespace, table, given.location, token, given.keys)
    print(json.dumps(asdict(Clients(target, Load(given.clients, given.seconds, given.warm_up_s)).run())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
