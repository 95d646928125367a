"""Plain REST commits through the service: commits/s and latency, beside the durable floor of SQLite.

    ./dev bench serve [--commits 300] [--json FILE]

1. The floor: bare UPDATEs in SQLite, WAL with synchronous=FULL, as fast as one thread can.
2. W = 1 and 16 client processes, each on a table of its own, one add-snapshot + set-snapshot-ref per commit.
3. One client on a table with 10, 1,000 and 10,000 snapshots, answers read whole, and `loaded` as they come.

Manifest lists are empty files made before the clock starts: the service checks that they exist.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import sqlite3
import statistics
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from tools.service_process import Service, running_service

from bench.ground import fresh_folder

_SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}


def measure_floor(folder: Path, seconds: float) -> float:
    """Durable swaps per second: one row, one thread."""
    database = sqlite3.connect(folder / "floor.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE head (id INTEGER PRIMARY KEY, version INTEGER, body BLOB)")
    database.execute("INSERT INTO head VALUES (1, 0, ?)", (b"x" * 1000,))
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        database.execute("UPDATE head SET version = version + 1 WHERE id = 1 AND version = ?", (done,))
        done += 1
    elapsed = time.perf_counter() - started
    database.close()
    return done / elapsed


class Client:
    """One connection that commits snapshots to one table."""

    def __init__(self, port: int, table: str, metadata: dict[str, Any]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._path = f"/v1/namespaces/bench/tables/{table}"
        self._uuid = metadata["table-uuid"]
        self._location = metadata["location"]
        self._parent = metadata.get("current-snapshot-id")
        self._sequence = metadata["last-sequence-number"]
        self._prepared: list[str] = []

    def prepare(self, count: int) -> None:
        """Make the manifest lists of the next commits."""
        folder = Path(self._location.removeprefix("file://")) / "metadata"
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(count):
            path = folder / f"snap-{uuid.uuid4()}.avro"
            path.touch()
            self._prepared.append(f"file://{path}")

    def commit(self) -> tuple[float, int]:
        """Seconds of one commit with its answer read whole, and the answer's size."""
        snapshot_id = uuid.uuid4().int >> 65
        self._sequence += 1
        snapshot = {
            "snapshot-id": snapshot_id,
            "sequence-number": self._sequence,
            "timestamp-ms": time.time_ns() // 1_000_000,
            "manifest-list": self._prepared.pop(),
            "schema-id": 0,
            "summary": {"operation": "append", "added-data-files": "1", "added-records": "1000"},
        }
        if self._parent is not None:
            snapshot["parent-snapshot-id"] = self._parent
        body = json.dumps(
            {
                "requirements": [
                    {"type": "assert-table-uuid", "uuid": self._uuid},
                    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": self._parent},
                ],
                "updates": [
                    {"action": "add-snapshot", "snapshot": snapshot},
                    {
                        "action": "set-snapshot-ref",
                        "ref-name": "main",
                        "type": "branch",
                        "snapshot-id": snapshot_id,
                    },
                ],
            }
        ).encode()
        started = time.perf_counter()
        self._connection.request("POST", self._path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        elapsed = time.perf_counter() - started
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {text[:500]!r}")
        self._parent = snapshot_id
        return elapsed, len(text)


def call(port: int, method: str, path: str, body: object = None) -> dict[str, Any]:
    """One request, with its JSON answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    text = None if body is None else json.dumps(body).encode()
    connection.request(method, path, text, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status}: {found[:500]!r}")
    return json.loads(found) if found else {}


def create(port: int, table: str) -> dict[str, Any]:
    """A new table's metadata."""
    made = call(port, "POST", "/v1/namespaces/bench/tables", {"name": table, "schema": _SCHEMA})
    metadata: dict[str, Any] = made["metadata"]
    return metadata


def register(port: int, warehouse: Path, table: str, snapshots: int) -> dict[str, Any]:
    """A table that has this many snapshots already."""
    location = warehouse / "bench" / table
    (location / "metadata").mkdir(parents=True)
    now = time.time_ns() // 1_000_000 - snapshots
    items = [
        {
            "snapshot-id": i + 1,
            "sequence-number": i + 1,
            "timestamp-ms": now + i,
            "manifest-list": f"file://{location}/metadata/snap-{i:08d}-{uuid.uuid4()}.avro",
            "schema-id": 0,
            "summary": {
                "operation": "append",
                **{f"total-{k}": str(i) for k in ("records", "data-files", "files-size")},
            },
            **({"parent-snapshot-id": i} if i else {}),
        }
        for i in range(snapshots)
    ]
    metadata = {
        "format-version": 2,
        "table-uuid": str(uuid.uuid4()),
        "location": f"file://{location}",
        "last-sequence-number": snapshots,
        "last-updated-ms": now + snapshots,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [{**_SCHEMA, "schema-id": 0}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
        "current-snapshot-id": snapshots,
        "refs": {"main": {"snapshot-id": snapshots, "type": "branch"}},
        "snapshots": items,
        "snapshot-log": [{"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]} for s in items],
        "metadata-log": [],
    }
    file = location / "metadata" / "00000-registered.metadata.json"
    file.write_text(json.dumps(metadata))
    made = call(
        port, "POST", "/v1/namespaces/bench/register", {"name": table, "metadata-location": f"file://{file}"}
    )
    found: dict[str, Any] = made["metadata"]
    return found


def _work(port: int, table: str, commits: int, barrier: Any, results: Any) -> None:
    client = Client(port, table, create(port, table))
    client.prepare(commits)
    barrier.wait()
    started = time.perf_counter()
    times = [client.commit()[0] for _ in range(commits)]
    results.put((started, time.perf_counter(), times))


def measure_clients(port: int, clients: int, commits: int) -> dict[str, float]:
    """Commits per second and latency of processes that share nothing but the service."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(clients), context.Queue()
    workers = [
        context.Process(target=_work, args=(port, f"w{clients}_{i}", commits, barrier, results))
        for i in range(clients)
    ]
    for worker in workers:
        worker.start()
    found = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    times = sorted(t for _, _, ts in found for t in ts)
    elapsed = max(end for _, end, _ in found) - min(start for start, _, _ in found)
    return {
        "commits_per_s": len(times) / elapsed,
        "p50_ms": statistics.median(times) * 1000,
        "p99_ms": times[int(len(times) * 0.99)] * 1000,
    }


def measure_growth(port: int, warehouse: Path, snapshots: int, commits: int) -> dict[str, float]:
    """Latency of one client on a table with this many snapshots."""
    table = f"grown_{snapshots}"
    client = Client(port, table, register(port, warehouse, table, snapshots))
    client.prepare(commits + 20)
    for _ in range(20):
        client.commit()
    measured = [client.commit() for _ in range(commits)]
    times = sorted(seconds for seconds, _ in measured)
    return {
        "p50_ms": statistics.median(times) * 1000,
        "p99_ms": times[int(len(times) * 0.99)] * 1000,
        "answer_bytes": measured[-1][1],
    }


def run(service: Service, folder: Path, commits: int) -> dict[str, Any]:
    """All figures."""
    call(service.port, "POST", "/v1/namespaces", {"namespace": ["bench"]})
    floor = measure_floor(folder, 2.0)
    print(f"floor: SQLite WAL FULL, bare UPDATE           {floor:9.0f} swaps/s")
    found: dict[str, Any] = {"floor_swaps_per_s": floor, "clients": {}, "growth": {}}
    for clients in (1, 16):
        row = measure_clients(service.port, clients, commits if clients == 1 else max(50, commits // 4))
        found["clients"][clients] = row
        print(
            f"{clients:3d} clients, a table each                    {row['commits_per_s']:9.0f} commits/s"
            f"   p50 {row['p50_ms']:6.2f} ms   p99 {row['p99_ms']:6.2f} ms"
            f"   floor/ours {floor / row['commits_per_s']:.1f} x"
        )
    found["growth"] = print_growth(service, folder, commits)
    return found


def print_growth(service: Service, folder: Path, commits: int) -> dict[int, dict[str, float]]:
    """Latency at 10, 1,000 and 10,000 snapshots, beside that at 10."""
    found: dict[int, dict[str, float]] = {}
    for snapshots in (10, 1_000, 10_000):
        row = measure_growth(service.port, folder / "warehouse", snapshots, min(commits, 100))
        found[snapshots] = row
        ratio = row["p50_ms"] / found[10]["p50_ms"]
        print(
            f"{snapshots:6d} snapshots, 1 client                   p50 {row['p50_ms']:6.2f} ms"
            f"   p99 {row['p99_ms']:6.2f} ms   answer {row['answer_bytes'] / 1e6:5.2f} MB   {ratio:.2f} x of 10"
        )
    return found


def main() -> int:
    """Start a service, measure, print, and write the figures if asked."""
    parser = argparse.ArgumentParser(prog="bench serve", description=__doc__)
    parser.add_argument(
        "--commits", type=int, default=400, help="commits per client (a quarter at 16 clients)"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    with fresh_folder() as folder, running_service(folder) as service:
        found = run(service, folder, arguments.commits)
    # A small table writes its metadata file inside the commit, a large one afterwards: the ratio above compares two
    # regimes. With no file in any commit, it compares like with like.
    print("the same with --metadata-inline-bytes 0 (no metadata file in any commit):")
    with (
        fresh_folder() as folder,
        running_service(folder, options=("--metadata-inline-bytes", "0")) as service,
    ):
        call(service.port, "POST", "/v1/namespaces", {"namespace": ["bench"]})
        found["growth_without_files"] = print_growth(service, folder, arguments.commits)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
