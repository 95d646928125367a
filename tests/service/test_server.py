"""The real server in a process of its own: stopping, and the limits that live below the application."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tools.service_process import Service, running_service

WAIT_S = 30.0
BODY = json.dumps({"namespace": ["a"]}).encode()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Shared by the tests that leave it running."""
    options = ["--header-timeout-s", "0.5", "--connections-max", "40"]
    with running_service(tmp_path_factory.mktemp("service"), options=options) as started:
        yield started


def connect(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), timeout=WAIT_S)


def head(length: int) -> bytes:
    lines = [
        "POST /v1/namespaces HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        f"Content-Length: {length}",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def read_all(connection: socket.socket) -> bytes:
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received


def wait_until_refused(service: Service) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            connect(service).close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            continue  # it was in the backlog when the listener closed
    raise AssertionError("the service still accepts connections")


def test_a_stop_finishes_the_request_in_flight(tmp_path: Path) -> None:
    with running_service(tmp_path) as service, connect(service) as connection:
        connection.sendall(head(len(BODY)) + BODY[:5])
        # An answer to another connection shows that the loop has seen our bytes.
        assert httpx.get(f"{service.uri}/healthz").status_code == 200
        service.process.send_signal(signal.SIGTERM)
        wait_until_refused(service)
        connection.sendall(BODY[5:])
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert service.process.wait(WAIT_S) == 0


def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    for status in (200, 409):
        with running_service(tmp_path) as service:
            assert httpx.post(f"{service.uri}/v1/namespaces", json={"namespace": ["a"]}).status_code == status


def test_endless_headers_are_cut_off(service: Service) -> None:
    with connect(service) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX-Long: ")
        try:
            for _ in range(200):
                connection.sendall(b"x" * 16384)
        except OSError:
            pass
        assert b"HTTP/1.1 200" not in read_all(connection)
    assert httpx.get(f"{service.uri}/healthz").status_code == 200


def test_slow_headers_are_given_up(service: Service) -> None:
    with connect(service) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost")
        assert read_all(connection) == b""


def test_connections_over_the_limit_are_closed_and_others_live(service: Service) -> None:
    with httpx.Client() as client:
        assert client.get(f"{service.uri}/healthz").status_code == 200
        many = [connect(service) for _ in range(60)]
        try:
            assert client.get(f"{service.uri}/healthz").status_code == 200
        finally:
            for connection in many:
                connection.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /v1/namespaces HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nBad Header: x\r\n\r\n",
    ],
)
def test_an_ambiguous_request_is_refused(service: Service, request_bytes: bytes) -> None:
    with connect(service) as connection:
        connection.sendall(request_bytes)
        assert read_all(connection).startswith(b"HTTP/1.1 4")


def test_a_body_over_the_limit_is_answered_and_not_reset(tmp_path: Path) -> None:
    with running_service(tmp_path, options=["--body-limit-bytes", "1048576"]) as service:
        big = b'{"namespace":["' + b"a" * 1_500_000 + b'"]}'
        headers = {"Content-Type": "application/json"}
        answer = httpx.post(f"{service.uri}/v1/namespaces", content=big, headers=headers)
        assert answer.status_code == 413


def test_the_start_says_where_and_what_in_one_line(service: Service) -> None:
    lines = [line for line in service.log.read_text().splitlines() if line.startswith("headgate: ")]
    assert len(lines) == 1
    assert re.search(
        r"http://127\.0\.0\.1:\d+ warehouse=file:///\S+ database=sqlite:///\S+ auth=off$", lines[0]
    )


def test_no_secret_is_in_the_log_of_a_whole_run(tmp_path: Path) -> None:
    canary = "cAnArY0123456789"
    env = {"HEADGATE_S3_ACCESS_KEY_ID": f"id-{canary}", "HEADGATE_S3_SECRET_ACCESS_KEY": canary}
    with running_service(tmp_path, options=["--log-level", "debug", "--auth", "on"], env=env) as service:
        form = {"grant_type": "client_credentials", "client_id": "x", "client_secret": canary}
        assert httpx.post(f"{service.uri}/v1/oauth/tokens", data=form).status_code == 401
        headers = {"Authorization": f"Bearer {canary}"}
        assert httpx.get(f"{service.uri}/v1/namespaces?token={canary}", headers=headers).status_code == 401
        assert httpx.get(f"{service.uri}/{canary}?X-Amz-Signature={canary}").status_code == 404
    text = service.log.read_text()
    assert '"message": "request"' in text
    assert canary not in text
