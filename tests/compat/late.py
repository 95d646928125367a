"""A way to the service on which a commit is overtaken: others' commits land after it was sent and before it arrives.

An engine reads the head anew just before it builds its snapshot, so that a race is a matter of luck. Here it is not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

_OF_ONE_HOP = (
    *("accept-encoding", "connection", "content-encoding", "content-length"),
    *("date", "host", "server", "transfer-encoding"),
)
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Answer:
    """What the service said to a commit that adds a snapshot."""

    status: int
    body: dict[str, Any]

    @property
    def why_not_rebased(self) -> str:
        """The reason in a refusal; empty when there is none."""
        details: dict[str, str] = self.body.get("error", {}).get("headgate", {})
        return details.get("not-rebased", "")


@dataclass
class Late:
    """Where an engine finds the service, what is to overtake its next commits, and what they were answered."""

    uri: str
    meanwhile: deque[Callable[[], object]] = field(default_factory=deque)
    answers: list[Answer] = field(default_factory=list)

    @property
    def statuses(self) -> list[int]:
        """How the commits so far were answered."""
        return [answer.status for answer in self.answers]


@contextmanager
def running_late(uri: str) -> Iterator[Late]:
    """Forward to the service at `uri` until the end of the block."""
    with httpx.Client(base_url=uri, timeout=_TIMEOUT_S) as onward:
        server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
        late = Late(f"http://127.0.0.1:{server.server_port}")
        server.RequestHandlerClass = _handler_of(late, onward)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield late
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _handler_of(late: Late, onward: httpx.Client) -> type[BaseHTTPRequestHandler]:
    class Forward(BaseHTTPRequestHandler):
        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            commits = self.command == "POST" and b'"add-snapshot"' in body
            if commits and late.meanwhile:
                late.meanwhile.popleft()()
            answer = onward.request(self.command, self.path, content=body, headers=_onward(self.headers))
            if commits:
                late.answers.append(Answer(answer.status_code, answer.json()))
            self.send_response(answer.status_code)
            for name, value in _onward(answer.headers).items():
                self.send_header(name, value)
            if answer.content:  # after an answer without a body the client may be gone already
                self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            if answer.content:
                self.wfile.write(answer.content)

        do_GET = do_POST = do_HEAD = do_DELETE = forward  # noqa: N815  http.server calls them by these names

        def log_message(self, *_: object) -> None:
            """Say nothing: the test looks at the answers."""

    return Forward


def _onward(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_ONE_HOP}
