"""A server that answers as it is told: for lost replies, overload and refusals that a real service rarely gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"
HANG_UP = None  # instead of a status: the request was read, and the connection ends


@dataclass(frozen=True)
class Told:
    """One answer."""

    status: int | None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False  # half of the body, then the connection ends


@dataclass(frozen=True)
class Heard:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str | None:
        """A header, whatever the case of its name."""
        return {key.lower(): value for key, value in self.headers.items()}.get(name.lower())


@dataclass
class Script:
    """What is answered, in order; the last answer stays. And what was heard."""

    uri: str
    answers: list[Told]
    heard: list[Heard] = field(default_factory=list)

    def keys(self) -> list[str | None]:
        """The idempotency keys of what was heard."""
        return [one.header("idempotency-key") for one in self.heard]


def error(status: int, code: str, retry: str, **parts: Any) -> Told:
    """An error as the service makes it."""
    conflict = {"conflict": parts.pop("conflict")} if "conflict" in parts else {}
    kind = parts.pop("type", "SomeException")
    details = {"code": code, "retry": retry, **parts}
    return Told(
        status,
        {
            "error": {
                "message": f"it is {code}",
                "type": kind,
                "code": status,
                "headgate": details,
                **conflict,
            }
        },
    )


@contextmanager
def scripted(answers: Sequence[Told]) -> Iterator[Script]:
    """A server for one test."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                script.heard.append(Heard(self.command, self.path, dict(self.headers), body))
                told = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
            if told.status is None:
                self.close_connection = True
                return
            content = b"" if told.body is None else json.dumps(told.body).encode()
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if told.is_cut else content)
            self.close_connection = self.close_connection or told.is_cut

        do_GET = do_POST = answer  # noqa: N815 — the names that http.server looks for

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the test has the script."""

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        server.daemon_threads = True
        script = Script(f"http://{HOST}:{server.server_address[1]}", list(answers))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()
