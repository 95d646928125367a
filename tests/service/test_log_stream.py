"""The log's stream: nobody waits for whoever reads it, and what is dropped is told."""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.service_process import HOST, find_free_port, sqlite_url

from headgate.service.log_stream import LogStream
from headgate.service.logs import LOGGER, set_up_logs
from tests.service.table_calls import SCHEMA

PIPE_BYTES = 1 << 16


class Pipe:
    """A stream into a pipe, and what its reader finds."""

    def __init__(self, *, kept_bytes_max: int) -> None:
        self.reading, self.writing = os.pipe()
        self.stream = LogStream(self.writing, lambda n: f"dropped {n}", kept_bytes_max=kept_bytes_max)

    def read(self) -> str:
        """What is in the pipe, and what comes while somebody reads."""
        found = b""
        poller = select.poll()
        poller.register(self.reading, select.POLLIN)
        while self.stream.is_behind or poller.poll(0):
            if poller.poll(10):
                found += os.read(self.reading, 1 << 20)
        return found.decode()

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe(kept_bytes_max=200_000)
    yield made
    made.close()


def line(number: int, size: int = 100) -> str:
    return f"{number:08d} {'x' * size}\n"


def test_logging_and_the_stream_share_one_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers)
    monkeypatch.setattr(root, "level", root.level)
    before = LOGGER.level
    with (tmp_path / "log").open("w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        set_up_logs("info")
        (handler,) = root.handlers
        assert isinstance(handler, logging.StreamHandler)
        assert isinstance(handler.stream, LogStream)
        assert handler.lock is handler.stream.lock
    LOGGER.setLevel(before)


def test_lines_reach_a_reader_in_order(pipe: Pipe) -> None:
    for number in range(10):
        pipe.stream.write(line(number))
    assert pipe.read() == "".join(map(line, range(10)))
    assert pipe.stream.dropped == 0


def test_what_a_full_pipe_does_not_take_comes_when_its_reader_goes_on(pipe: Pipe) -> None:
    for number in range(1000):  # more than the pipe holds, less than is kept
        pipe.stream.write(line(number))
    assert pipe.read() == "".join(map(line, range(1000)))
    assert pipe.stream.dropped == 0


def test_lines_beyond_the_bound_are_dropped_counted_and_told_of(pipe: Pipe) -> None:
    for number in range(5000):
        pipe.stream.write(line(number))
    *kept, told = pipe.read().splitlines(keepends=True)
    assert kept == [line(number) for number in range(len(kept))]
    assert 1000 < len(kept) < 5000
    assert told == f"dropped {5000 - len(kept)}\n"
    assert pipe.stream.dropped == 5000 - len(kept)
    pipe.stream.write("after\n")
    assert pipe.read() == "after\n"


def test_a_line_longer_than_a_packet_arrives_whole(pipe: Pipe) -> None:
    pipe.stream.write(line(1, 50_000) + line(2) + "ä" * 3000 + "\n")
    assert pipe.read() == line(1, 50_000) + line(2) + "ä" * 3000 + "\n"


def test_a_reader_that_has_gone_is_no_error(pipe: Pipe) -> None:
    os.close(pipe.reading)
    pipe.stream.write(line(1))
    assert pipe.stream.dropped == 1
    pipe.stream.close()
    pipe.reading = os.open(os.devnull, os.O_RDONLY)


def test_a_file_takes_everything(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        stream = LogStream(file.fileno(), str, kept_bytes_max=10)
        stream.write(line(1, 100_000))
        stream.write(line(2))
    assert (tmp_path / "log").read_text() == line(1, 100_000) + line(2)


def test_the_end_waits_a_moment_for_the_reader_and_no_longer(pipe: Pipe) -> None:
    for number in range(1000):
        pipe.stream.write(line(number))
    reader: list[str] = []
    thread = threading.Thread(target=lambda: reader.append(pipe.read()))
    thread.start()
    pipe.stream.close()
    thread.join()
    assert reader == ["".join(map(line, range(1000)))]
    for number in range(1000):
        pipe.stream.write(line(number))
    pipe.stream.close()  # nobody reads: it comes back all the same


def test_a_reader_that_is_only_slow_is_told_what_it_missed(pipe: Pipe) -> None:
    for number in range(5000):
        pipe.stream.write(line(number))
    found = b""
    while len(found) < PIPE_BYTES:  # it makes room, and is far from having read everything
        found += os.read(pipe.reading, PIPE_BYTES)
    missed = -1
    while missed != pipe.stream.dropped:
        missed = pipe.stream.dropped
        pipe.stream.write("next\n")
    *before, told, last = (found.decode() + pipe.read()).splitlines(keepends=True)
    assert last == "next\n"
    assert told == f"dropped {missed}\n"
    assert before == [line(number) for number in range(len(before))]


def test_a_line_that_comes_in_the_middle_of_another_is_written_after_it() -> None:
    """As a finaliser's that runs while memory is asked for, or a signal handler's."""
    pipe = Pipe(kept_bytes_max=0)

    def say(count: int) -> str:
        stream.write("inner\n")
        return f"dropped {count}"

    stream = pipe.stream = LogStream(pipe.writing, say, kept_bytes_max=50_000)
    try:
        for number in range(3000):
            stream.write(line(number))
        lines = pipe.read().splitlines()
        assert lines[-2:] == ["inner", f"dropped {stream.dropped}"]
    finally:
        pipe.close()


def test_a_terminal_that_is_stopped_is_not_waited_for() -> None:
    shown, typed = os.openpty()
    try:
        stream = LogStream(typed, lambda n: f"dropped {n}", kept_bytes_max=20_000)
        for number in range(2000):
            stream.write(line(number))
        assert stream.dropped > 1000
        assert stream.is_behind
        assert os.get_blocking(typed)  # others who write to it wait as they did
        assert os.read(shown, 8).decode() == "00000000"
    finally:
        os.close(shown)
        os.close(typed)


def test_a_socket_that_is_not_read_is_not_waited_for() -> None:
    """As the standard error of a service of systemd's is one."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = LogStream(ours.fileno(), lambda n: f"dropped {n}", kept_bytes_max=20_000)
        for number in range(10_000):  # far more than a socket holds
            stream.write(line(number))
        assert stream.dropped > 1000
        found = b""
        while stream.is_behind:
            found += theirs.recv(1 << 20)
        ours.shutdown(socket.SHUT_WR)
        while more := theirs.recv(1 << 20):
            found += more
        *kept, told = found.decode().splitlines(keepends=True)
        assert kept == [line(number) for number in range(len(kept))]
        assert told == f"dropped {10_000 - len(kept)}\n"


def test_a_full_disk_keeps_lines_and_nobody_turns_in_circles() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        stream = LogStream(full, lambda n: f"dropped {n}", kept_bytes_max=1000)
        for number in range(100):
            stream.write(line(number))
        assert stream.is_behind
        assert stream.dropped > 80
        assert "headgate-log" not in {thread.name for thread in threading.enumerate()}
        stream.close()  # at once
    finally:
        os.close(full)


def test_a_forked_process_leaves_what_is_kept_to_the_other(pipe: Pipe) -> None:
    for number in range(1000):
        pipe.stream.write(line(number))
    child = os.fork()
    if child == 0:
        os._exit(int(pipe.stream.is_behind))
    assert os.waitpid(child, 0)[1] == 0
    assert pipe.read() == "".join(map(line, range(1000)))


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.lists(st.integers(0, 9000), min_size=1, max_size=4), max_size=30))
def test_whatever_is_written_is_there_whole_or_counted(sizes: list[list[int]]) -> None:
    pipe = Pipe(kept_bytes_max=30_000)
    try:
        written = 0
        for texts in sizes:
            pipe.stream.write("".join(line(written + n, size) for n, size in enumerate(texts)))
            written += len(texts)
        lines = pipe.read().splitlines(keepends=True)
        told = sum(int(found.split()[1]) for found in lines if found.startswith("dropped "))
        assert told == pipe.stream.dropped
        numbers = [int(found.split()[0]) for found in lines if not found.startswith("dropped ")]
        assert numbers == sorted(set(numbers))
        assert len(numbers) + told == written
    finally:
        pipe.close()


def test_a_service_whose_standard_error_nobody_reads_goes_on(tmp_path: Path) -> None:
    port = find_free_port()
    place = ["--host", HOST, "--port", str(port), "--warehouse", str(tmp_path / "warehouse")]
    serve = [sys.executable, "-m", "headgate.cli.main", "serve", *place, "--log-level", "debug"]
    command = [*serve, "--database", sqlite_url(tmp_path / "catalog.db")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        try:
            assert process.stderr is not None
            assert b"headgate: http://" in process.stderr.readline()
            root = f"http://{HOST}:{port}"

            def post(path: str, body: object) -> dict[str, object]:
                data = json.dumps(body).encode()
                headers = {"Content-Type": "application/json"}
                request = urllib.request.Request(f"{root}{path}", data, headers, method="POST")
                with urllib.request.urlopen(request, timeout=20) as answer:
                    found: dict[str, object] = json.load(answer)
                    return found

            space, name = "a" * 200, "t" * 200  # so that a line is long
            post("/v1/namespaces", {"namespace": [space]})
            post(f"/v1/namespaces/{space}/tables", {"name": name, "schema": SCHEMA})
            for n in range(1800):  # many times what the pipe holds, and more than is kept
                change = {"action": "set-properties", "updates": {"n": str(n)}}
                post(f"/v1/namespaces/{space}/tables/{name}", {"requirements": [], "updates": [change]})
            with urllib.request.urlopen(f"{root}/metrics", timeout=20) as answer:
                text = answer.read().decode()
            found = [
                told for told in text.splitlines() if told.startswith("headgate_log_lines_dropped_total ")
            ]
            dropped = float(found[0].split()[1])
        finally:
            process.terminate()
            rest = process.stderr.read() if process.stderr is not None else b""
            process.wait(30)
    assert process.returncode == 0
    lines = [json.loads(told) for told in rest.splitlines()]
    assert len(lines) > 500
    assert sum(told.get("lines", 0) for told in lines) >= dropped > 0
