"""A TCP proxy that loses requests and answers: it hangs up before the service hears of one, or after it has answered."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

from tools.service_process import HOST

_CHUNK_BYTES = 1 << 16
_OVERLOADED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Fate(Enum):
    """What becomes of one request."""

    PASS = "pass"
    LOSE_ANSWER = "lose-answer"  # the service did the work; the client hears nothing
    LOSE_REST = "lose-rest"  # the client hears the first half of the answer
    REFUSE = "refuse"  # 503 before the service hears of it
    MISLEAD = "mislead"  # the service did the work; the client hears 503
    LOSE_REQUEST = "lose-request"  # the service never hears of it, and the client hears nothing


Decide = Callable[[bytes], Fate]  # from the request, to the byte


@contextmanager
def unsafe_proxy(port: int, decide: Decide) -> Iterator[int]:
    """A proxy before the port of a service; gives its own port. One request a connection."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            client: socket.socket = self.request
            request = _read_request(client)
            fate = decide(request)
            if fate is Fate.REFUSE:
                client.sendall(_OVERLOADED)
                return
            if fate is Fate.LOSE_REQUEST:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                return
            with socket.create_connection((HOST, port)) as upstream:
                upstream.sendall(request)
                answer = _read_all(upstream)
            if fate is Fate.PASS:
                client.sendall(answer)
                return
            if fate is Fate.MISLEAD:
                client.sendall(_OVERLOADED)
                return
            if fate is Fate.LOSE_REST:
                client.sendall(answer[: len(answer) // 2])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        request_queue_size = 128

    with Server((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _read_request(client: socket.socket) -> bytes:
    """One request, told to be the last of its connection: so the end of the answer is the end of what is sent."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _receive(client)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [
        line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    ]
    missing = (int(lengths[0]) if lengths else 0) - len(body)
    while missing > 0:
        more = _receive(client)
        data += more
        missing -= len(more)
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    _, _, body = data.partition(b"\r\n\r\n")
    return b"\r\n".join((*lines, b"Connection: close", b"", body))


def _receive(client: socket.socket) -> bytes:
    data = client.recv(_CHUNK_BYTES)
    if not data:
        raise ConnectionError("the client went away in the middle of its request")
    return data


def _read_all(upstream: socket.socket) -> bytes:
    parts = []
    while data := upstream.recv(_CHUNK_BYTES):
        parts.append(data)
    return b"".join(parts)
