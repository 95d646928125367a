"""Commits that arrive whole are answered without a task; nobody can tell but by the time it takes."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tools.service_process import Service, running_service

WAIT_S = 30.0
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "x", "type": "long", "required": False}]}
TABLE = "/v1/namespaces/a/tables/t"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path) as started:
        assert httpx.post(f"{started.uri}/v1/namespaces", json={"namespace": ["a"]}).status_code == 200
        table = {"name": "t", "schema": SCHEMA}
        assert httpx.post(f"{started.uri}/v1/namespaces/a/tables", json=table).status_code == 200
        yield started


def location(service: Service) -> str:
    metadata = httpx.get(service.uri + TABLE).json()["metadata"]
    return str(metadata["location"])


def append(place: str, name: str) -> bytes:
    file = {
        "content": "data",
        "file-path": f"{place}/data/{name}.parquet",
        "file-format": "parquet",
        "spec-id": 0,
        "partition": [],
        "file-size-in-bytes": 10,
        "record-count": 1,
    }
    updates = [{"action": "append", "add-data-files": [file]}]
    return json.dumps({"requirements": [], "updates": updates}).encode()


def post(body: bytes, *lines: str) -> bytes:
    head = [
        f"POST {TABLE} HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        "Prefer: return=minimal",
        f"Content-Length: {len(body)}",
        *lines,
    ]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body


def connect(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), timeout=WAIT_S)


def read_answer(stream: Any) -> tuple[int, dict[str, str], Any]:
    status = int(stream.readline().split()[1])
    headers = {}
    while line := stream.readline().strip():
        name, _, value = line.decode().partition(":")
        headers[name] = value.strip()
    return status, headers, json.loads(stream.read(int(headers["content-length"])))


def committed(service: Service) -> int:
    metadata = httpx.get(service.uri + TABLE).json()["metadata"]
    return len(metadata.get("snapshots", []))


def test_a_commit_in_one_piece_and_one_in_many_get_the_same_answer(service: Service) -> None:
    place = location(service)
    with connect(service) as connection, connection.makefile("rb") as stream:
        connection.sendall(post(append(place, "whole"), "X-Request-Id: one"))
        whole = read_answer(stream)
        for byte in post(append(place, "parts"), "X-Request-Id: two"):
            connection.sendall(bytes([byte]))
        parts = read_answer(stream)
    assert (whole[0], parts[0]) == (200, 200)
    assert (whole[1]["x-request-id"], parts[1]["x-request-id"]) == ("one", "two")
    assert whole[1].keys() == parts[1].keys()
    assert whole[2].keys() == parts[2].keys()
    assert committed(service) == 2


def test_requests_that_arrive_together_are_answered_in_order(service: Service) -> None:
    place = location(service)
    names = [f"r{i}" for i in range(5)]
    together = b"".join(post(append(place, name), f"X-Request-Id: {name}") for name in names)
    with connect(service) as connection, connection.makefile("rb") as stream:
        connection.sendall(together)
        answers = [read_answer(stream) for _ in names]
    assert [headers["x-request-id"] for _, headers, _ in answers] == names
    assert [status for status, _, _ in answers] == [200] * 5
    assert committed(service) == 5


def test_a_client_that_asks_for_the_end_of_the_connection_gets_it(service: Service) -> None:
    with connect(service) as connection, connection.makefile("rb") as stream:
        connection.sendall(post(append(location(service), "last"), "Connection: close"))
        status, headers, _ = read_answer(stream)
        assert (status, headers["connection"]) == (200, "close")
        assert stream.read() == b""


def test_a_refusal_and_bad_input_are_answered_on_the_same_connection(service: Service) -> None:
    place = location(service)
    twice = append(place, "twice")
    with connect(service) as connection, connection.makefile("rb") as stream:
        seen = []
        for body in (
            twice,
            twice,
            b'{"updates":[{"action":"append","action":"append"}]}',
            b"{",
            append(place, "z"),
        ):
            connection.sendall(post(body))
            seen.append(read_answer(stream)[0])
    assert seen == [200, 409, 400, 400, 200]


def test_a_body_in_chunks_is_held_to_the_limit_though_nothing_was_declared(tmp_path: Path) -> None:
    body = append("file:///lake/t", "x" * 2000)
    head = post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with (
        running_service(tmp_path, options=["--body-limit-bytes", "1024"]) as started,
        connect(started) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert read_answer(stream)[0] == 413


def test_the_same_key_again_gets_the_first_verdict(service: Service) -> None:
    key = "Idempotency-Key: 01890a5d-ac96-774b-bcce-b302099a8057"
    body = append(location(service), "once")
    with connect(service) as connection, connection.makefile("rb") as stream:
        answers = []
        for _ in range(3):
            connection.sendall(post(body, key))
            answers.append(read_answer(stream))
    assert [status for status, _, _ in answers] == [200, 200, 200]
    assert len({answer["snapshot-id"] for _, _, answer in answers}) == 1
    assert committed(service) == 1


def test_a_client_that_leaves_does_not_take_its_commit_along(service: Service) -> None:
    place = location(service)
    for number in range(10):
        with connect(service) as connection:
            connection.sendall(post(append(place, f"gone{number}")))
    with connect(service) as connection, connection.makefile("rb") as stream:
        connection.sendall(post(append(place, "stays")))
        assert read_answer(stream)[0] == 200
    metrics = httpx.get(f"{service.uri}/metrics").text
    assert "headgate_http_in_flight 1.0" in metrics  # the one that asks


def test_a_stop_answers_the_commits_in_flight(service: Service) -> None:
    place = location(service)
    answers: list[int] = []

    def write(number: int) -> None:
        with connect(service) as connection, connection.makefile("rb") as stream:
            try:
                for turn in range(200):
                    connection.sendall(post(append(place, f"s{number}-{turn}")))
                    answers.append(read_answer(stream)[0])
            except (OSError, IndexError):
                return  # the connection was closed between two requests

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    while len(answers) < 20:
        assert any(writer.is_alive() for writer in writers)
    service.process.send_signal(signal.SIGTERM)
    for writer in writers:
        writer.join(WAIT_S)
    assert service.process.wait(WAIT_S) == 0
    assert set(answers) == {200}
