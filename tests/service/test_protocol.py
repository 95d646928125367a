"""The server's protocol, with bytes and a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from uvicorn.server import ServerState

from headgate.errors import InvariantBroken
from headgate.service.exchange import JSON, Reply
from headgate.service.http_wire import Scope, encode_reply
from headgate.service.reception import Answer
from headgate.service.server import BoundedProtocol, configure
from headgate.service.settings import Settings

REQUEST = b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{}"
IDLE_S = 30


class Timer:
    """A call that waits for its time."""

    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at, self.callback, self.is_cancelled = at, callback, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """As much of an event loop as the protocol needs when all requests are taken."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + delay_s, callback))
        return self.timers[-1]

    def go_to(self, now: float) -> None:
        while due := [t for t in self.timers if not t.is_cancelled and t.at <= now]:
            timer = min(due, key=lambda t: t.at)
            self.timers.remove(timer)
            self.now = max(self.now, timer.at)
            timer.callback()
        self.now = now


class Wire(asyncio.Transport):
    """What was written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.is_closed = b"", False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def resume_reading(self) -> None: ...
    def get_extra_info(self, name: Any, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True


class Connection:
    """A connection whose requests are taken, and answered when the test says so."""

    def __init__(self) -> None:
        self.clock, self.wire, self.taken = Clock(), Wire(), list[Answer]()
        config = configure(None, self._take, Settings(warehouse="/lake"))
        config.load()
        made: Any = config.http_protocol_class
        self.protocol: BoundedProtocol = made(config, ServerState(), {}, self.clock)
        self.protocol.connection_made(self.wire)

    def _take(self, scope: Scope, body: bytes, answer: Answer) -> bool:
        self.taken.append(answer)
        return True

    def ask(self) -> None:
        self.protocol.data_received(REQUEST)

    def answer(self) -> None:
        self.taken.pop(0)(Reply(200, (b"{}",)), "r")


@pytest.fixture
def connection() -> Connection:
    return Connection()


def test_a_connection_that_is_idle_for_long_is_closed(connection: Connection) -> None:
    connection.ask()
    connection.answer()
    connection.clock.go_to(1000 + IDLE_S - 1)
    assert not connection.wire.is_closed
    connection.clock.go_to(1000 + IDLE_S)
    assert connection.wire.is_closed


def test_a_connection_is_idle_since_its_last_answer(connection: Connection) -> None:
    for now in range(1000, 1100, 10):
        connection.clock.go_to(now)
        connection.ask()
        connection.answer()
    connection.clock.go_to(1090 + IDLE_S - 1)
    assert not connection.wire.is_closed
    connection.clock.go_to(1090 + IDLE_S)
    assert connection.wire.is_closed


def test_a_connection_that_waits_for_its_answer_is_not_idle(connection: Connection) -> None:
    connection.ask()
    connection.answer()
    connection.ask()
    connection.clock.go_to(1000 + 5 * IDLE_S)
    assert not connection.wire.is_closed
    connection.answer()
    connection.clock.go_to(1000 + 6 * IDLE_S - 1)
    assert not connection.wire.is_closed
    connection.clock.go_to(1000 + 6 * IDLE_S)
    assert connection.wire.is_closed


def test_requests_of_a_busy_connection_share_one_timer(connection: Connection) -> None:
    before = len(connection.clock.timers)
    for _ in range(10):
        connection.ask()
        connection.answer()
    assert len(connection.clock.timers) == before + 1


def test_a_connection_that_is_lost_leaves_no_timer(connection: Connection) -> None:
    connection.ask()
    connection.answer()
    connection.protocol.connection_lost(ConnectionResetError())
    assert all(timer.is_cancelled for timer in connection.clock.timers)


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize(
    ("reply", "head"),
    [
        (
            Reply(200, (b"a", b"bc"), (("etag", '"1"'),)),
            b'HTTP/1.1 200 OK\r\nx-request-id: r\r\netag: "1"\r\n'
            b"content-type: application/json\r\ncontent-length: 3\r\n",
        ),
        (Reply(404), b"HTTP/1.1 404 Not Found\r\nx-request-id: r\r\ncontent-length: 0\r\n"),
        (Reply(204), b"HTTP/1.1 204 No Content\r\nx-request-id: r\r\n"),
    ],
)
def test_an_answer_is_written_as_http(reply: Reply, head: bytes, keep_alive: bool) -> None:
    text = b"".join(encode_reply(reply, "r", keep_alive=keep_alive))
    ending = b"\r\n" if keep_alive else b"connection: close\r\n\r\n"
    assert text == head + ending + b"".join(reply.parts)


@pytest.mark.parametrize(
    "reply", [Reply(200, (), (("a", "b\r\nc: d"),)), Reply(200, (b"",), (), JSON + "\n")]
)
def test_a_header_of_two_lines_is_never_written(reply: Reply) -> None:
    with pytest.raises(InvariantBroken):
        encode_reply(reply, "r", keep_alive=True)


def test_an_answer_like_an_earlier_one_is_written_with_its_own_id_and_length() -> None:
    headers = (("etag", '"%d%%"'),)
    for id_, parts in (("r", (b"a",)), ("a%b", (b"", b"x" * 1000)), ("r", (b"a",))):
        head, *rest = encode_reply(Reply(200, parts, headers), id_, keep_alive=True)
        text = f'x-request-id: {id_}\r\netag: "%d%%"\r\ncontent-type: {JSON}\r\n'
        length = f"content-length: {sum(map(len, parts))}\r\n\r\n"
        assert head.decode() == f"HTTP/1.1 200 OK\r\n{text}{length}"
        assert tuple(rest) == parts
        with pytest.raises(InvariantBroken):
            encode_reply(Reply(200, parts, headers), f"{id_}\nx", keep_alive=True)
