"""Heads that come again are not read again; nobody can tell but by the time it takes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from headgate.core.commit import Committed, Verdict
from headgate.files.open import open_files
from headgate.service.app import App, TakeAgain, build_app
from headgate.service.exchange import Body, Reply, Request, Route, RouteTable, json_reply, later
from headgate.service.http_wire import Scope, find_request_id
from headgate.service.idempotency import fingerprint
from headgate.service.known_heads import HEAD_BYTES_MAX, find_form
from headgate.service.reception import Answer
from headgate.service.roles import Role
from headgate.service.server import BoundedProtocol, configure
from headgate.service.services import Services, build_services
from headgate.service.settings import Settings
from headgate.service.tokens import hash_secret, new_secret
from headgate.store.base import Principal
from headgate.store.memory import MemoryStore
from tests.service.app_client import Clock

KEYS = ("01890a5d-ac96-774b-bcce-b302099a8057", "01890A5D-AC96-774B-BCCE-B302099A8058")
NO_KEY = "g1890a5d-ac96-774b-bcce-b302099a8057"
HEADERS = [(b"host", b"h"), (b"content-type", b"application/json"), (b"content-length", b"2")]
LINES = b"POST /x%25?a=%d HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"


class Wire(asyncio.Transport):
    """What was written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.is_closed = b"", False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_extra_info(self, name: Any, default: Any = None) -> Any:
        return ("127.0.0.1", 7) if name in ("peername", "sockname") else default

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def answers(self) -> list[tuple[int, dict[str, str], Any]]:
        """All answers so far."""
        found, rest = [], self.written
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            status, *lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            size = int(headers["content-length"])
            found.append((int(status.split()[1]), headers, msgspec.json.decode(rest[:size])))
            rest = rest[size:]
        return found


def connect(app: Any, take: Any, limits: Settings) -> tuple[BoundedProtocol, Wire]:
    config = configure(app, take, limits)
    config.load()
    made: Any = config.http_protocol_class
    protocol: BoundedProtocol = made(config, ServerState(), {})
    wire = Wire()
    protocol.connection_made(wire)
    return protocol, wire


def post(body: bytes, *lines: str, path: str = "/change") -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: h", "Content-Type: application/json", *lines]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


# --- forms ----------------------------------------------------------------------------------------------


def form_of(lines: bytes, *more: tuple[bytes, bytes]) -> Any:
    line = b"POST /x%25?a=%d HTTP/1.1"
    return find_form(lines + b"\r\n{}", 2, request_line=line, headers=[*HEADERS, *more])


def test_a_form_fits_its_head_with_other_lengths_of_as_many_digits() -> None:
    form = form_of(LINES)
    assert form.fits(LINES + b"\r\n{}")
    assert form.fits(LINES.replace(b"h: 2", b"h: 7") + b"\r\n" + b"x" * 7)


@pytest.mark.parametrize(
    "data",
    [
        LINES + b"\r\n{}x",  # more than the length says
        LINES + b"\r\n{",
        LINES.replace(b"h: 2", b"h: 0") + b"\r\n",
        LINES.replace(b"h: 2", b"h: -") + b"\r\n" + b"x" * 2,
        LINES.replace(b"h: 2", b"h: 10") + b"\r\n" + b"x" * 10,  # another number of digits
        LINES.replace(b"Host: h", b"Host: i") + b"\r\n{}",
        LINES.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n{}",
        b"\r\n" + LINES + b"\r\n{}",
        LINES + b"A: b\r\n\r\n{}",
        b"",
    ],
)
def test_a_form_fits_nothing_else(data: bytes) -> None:
    assert not form_of(LINES).fits(data)


@pytest.mark.parametrize("digits", [1, 2, 3, 5])
def test_a_length_of_other_digits_never_fits(digits: int) -> None:
    body = b"x" * 10 ** (digits - 1)
    head = b"POST / HTTP/1.1\r\nContent-Length: "
    data = b"%b%d\r\n\r\n%b" % (head, len(body), body)
    headers = [(b"content-length", b"%d" % len(body))]
    form = find_form(data, len(body), request_line=b"POST / HTTP/1.1", headers=headers)
    assert form is not None
    for length in range(0, 2 * len(body)):
        for declared in {length - 1, length, length + 1} - {-1}:
            sent = b"%b%d\r\n\r\n%b" % (head, declared, b"x" * length)
            fits = declared == length and len(str(length)) == digits and length > 0
            assert form.fits(sent) is fits


def test_a_form_with_a_key_fits_other_keys_and_nothing_that_is_none() -> None:
    line = b"Idempotency-Key: %b\r\n"
    form = form_of(LINES + line % KEYS[0].encode(), (b"idempotency-key", KEYS[0].encode()))
    other = LINES + line % KEYS[1].encode() + b"\r\n{}"
    assert form.fits(other)
    assert form.find_key(other) == KEYS[1]
    for bad in (NO_KEY.encode(), b"a\r\nTransfer-Encoding: chunked\r\nb: 12", KEYS[0].encode()[:-1]):
        assert not form.fits(LINES + line % bad + b"\r\n{}")


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        (LINES + b"Expect: 100-continue\r\n", (b"expect", b"100-continue")),
        (LINES + b"Upgrade: x\r\n", (b"upgrade", b"x")),
        (LINES + b"Transfer-Encoding: chunked\r\n", (b"transfer-encoding", b"chunked")),
        (LINES + b"Content-Length: 2\r\n", (b"content-length", b"2")),
        (LINES + b"A: b\r\n", (b"a", b"c")),  # not what the parser found
        (LINES + b"A: b \r\n", (b"a", b"b")),
        (LINES + b"A: b\r\n c\r\n", (b"a", b"b c")),
        (LINES + b"Idempotency-Key: x\r\n", (b"idempotency-key", b"x")),
        (LINES + b"A: " + b"x" * HEAD_BYTES_MAX + b"\r\n", (b"a", b"x" * HEAD_BYTES_MAX)),
    ],
)
def test_what_is_not_plain_has_no_form(lines: bytes, more: tuple[bytes, bytes]) -> None:
    assert form_of(lines, more) is None


# --- the application ------------------------------------------------------------------------------------


class Lane:
    """An application with one quick route, whose commits are answered when the test says so."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.limits = Settings(warehouse=str(folder / "w"), **options)
        self.clock, self.waiting = Clock(), list[Callable[[Verdict], None]]()
        files, _ = open_files(self.limits.warehouse_location)
        self.services = build_services(self.limits, store=MemoryStore(), files=files, clock_ms=self.clock)
        route = Route(
            "POST", "/change", self._work, Role.INSERT, Body.JSON, takes_key=True, quick=self._quick
        )
        self.app: App = build_app(self.services, self.limits, RouteTable((route,)))

    def _quick(self, _: Services, request: Request) -> Reply | None:
        if request.body == b'"work"':
            return None
        caller = request.caller
        told = (caller.principal, caller.role.value, caller.key, caller.fingerprint, request.body.decode())
        return later(self.waiting.append, lambda verdict: json_reply(told))

    def _work(self, services: Services, request: Request) -> Reply:
        return json_reply("worked")

    def connect(self) -> tuple[BoundedProtocol, Wire]:
        return connect(self.app, self.app.take, self.limits)

    async def answer(self) -> None:
        while self.waiting:
            self.waiting.pop(0)(Committed(()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncIterator[Lane]:
    lane = Lane(folder, **options)
    try:
        yield lane
    finally:
        await asyncio.to_thread(lane.app.close)


async def learn(lane: Lane, protocol: BoundedProtocol, wire: Wire, *lines: str) -> None:
    """Have the head of these lines known, and the parser refuse to read it again."""
    protocol.data_received(post(b'"first"', *lines))
    await lane.answer()
    assert wire.answers()[0][0] == 200
    wire.written = b""


def deaf(protocol: BoundedProtocol) -> None:
    """From now on whatever the parser is asked to read breaks the test."""
    protocol.parser = None


def play(story: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(story())


def test_a_head_that_comes_again_is_not_parsed(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as lane:
            protocol, wire = lane.connect()
            await learn(lane, protocol, wire, "X-Request-Id: r")
            deaf(protocol)
            for body in (b'"again"', b'"third"'):
                protocol.data_received(post(body, "X-Request-Id: r"))
                await lane.answer()
            told = [(status, headers["x-request-id"], body[4]) for status, headers, body in wire.answers()]
            assert told == [(200, "r", '"again"'), (200, "r", '"third"')]
            assert protocol.server_state.total_requests == 3

    play(story)


def test_each_request_without_an_id_gets_one_of_its_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as lane:
            protocol, wire = lane.connect()
            await learn(lane, protocol, wire)
            deaf(protocol)
            for _ in range(3):
                protocol.data_received(post(b'"again"'))
                await lane.answer()
            assert len({headers["x-request-id"] for _, headers, _ in wire.answers()}) == 3

    play(story)


def test_each_key_is_its_own_with_the_fingerprint_of_its_request(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as lane:
            protocol, wire = lane.connect()
            await learn(lane, protocol, wire, f"Idempotency-Key: {KEYS[0]}")
            deaf(protocol)
            protocol.data_received(post(b'"again"', f"Idempotency-Key: {KEYS[1]}"))
            await lane.answer()
            mark = fingerprint(method="POST", target="/change?", body=b'"again"')
            assert wire.answers()[0][2][2:4] == [KEYS[1].lower(), mark]

    play(story)


def test_a_key_that_is_none_is_refused_as_ever(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as lane:
            protocol, wire = lane.connect()
            await learn(lane, protocol, wire, f"Idempotency-Key: {KEYS[0]}")
            for bad in (NO_KEY, KEYS[0].replace("-7", "-4")):
                protocol.data_received(post(b'"again"', f"Idempotency-Key: {bad}"))
            assert [status for status, _, _ in wire.answers()] == [400, 400]

    play(story)


def test_a_token_is_looked_at_with_every_request(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path, auth="on") as lane:
            secret, store = new_secret(), lane.services.store
            store.put_principal(Principal("etl", hash_secret(secret), "insert", lane.clock()))
            token, lifetime_s = lane.services.authenticator.issue("etl", secret, "")
            line = f"Authorization: Bearer {token}"
            protocol, wire = lane.connect()
            await learn(lane, protocol, wire, line)
            deaf(protocol)
            protocol.data_received(post(b'"again"', line))
            await lane.answer()
            store.put_principal(Principal("etl", hash_secret(secret), "read", lane.clock()))
            lane.clock.pass_s(6)
            protocol.data_received(post(b'"below"', line))
            store.drop_principal("etl")
            lane.clock.pass_s(6)
            protocol.data_received(post(b'"nobody"', line))
            lane.clock.pass_s(lifetime_s)
            protocol.data_received(post(b'"late"', line))
            assert [status for status, _, _ in wire.answers()] == [200, 403, 401, 401]
            assert wire.answers()[0][2][:2] == ["etl", "insert"]

    play(story)


def test_too_many_at_once_are_refused_by_a_known_head_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path, in_flight_max=1) as lane:
            (one, one_wire), (two, two_wire) = lane.connect(), lane.connect()
            await learn(lane, one, one_wire)
            await learn(lane, two, two_wire)
            one.data_received(post(b'"stays"'))
            two.data_received(post(b'"refused"'))
            while not two_wire.written:
                await asyncio.sleep(0)
            assert two_wire.answers()[0][0] == 429
            await lane.answer()
            assert one_wire.answers()[0][0] == 200

    play(story)


def test_a_body_over_the_limit_is_refused_by_a_known_head_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path, body_limit_bytes=1024) as lane:
            protocol, wire = lane.connect()
            protocol.data_received(post(b'"%b"' % (b"x" * 1000)))
            await lane.answer()
            deaf(protocol)
            protocol.data_received(post(b'"%b"' % (b"x" * 1023)))
            assert [status for status, _, _ in wire.answers()] == [200, 413]

    play(story)


def test_what_needs_a_worker_gets_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as lane:
            protocol, wire = lane.connect()
            await learn(lane, protocol, wire)
            protocol.data_received(post(b'"work"'))
            while not wire.written:
                await asyncio.sleep(0.001)
            protocol.data_received(post(b'"again"'))
            await lane.answer()
            assert [body if body == "worked" else body[4] for _, _, body in wire.answers()] == [
                "worked",
                '"again"',
            ]

    play(story)


@pytest.mark.parametrize("at", [1, 60, 110])
def test_a_request_that_comes_before_the_answer_waits_for_it(tmp_path: Path, at: int) -> None:
    async def story() -> None:
        async with opened(tmp_path) as lane:
            protocol, wire = lane.connect()
            await learn(lane, protocol, wire)
            protocol.data_received(post(b'"one"'))
            second = post(b'"two"')
            protocol.data_received(second[:at])
            protocol.data_received(second[at:])
            await asyncio.sleep(0)
            assert len(lane.waiting) == 1
            while len(wire.answers()) < 2:
                await lane.answer()
            assert [body[4] for _, _, body in wire.answers()] == ['"one"', '"two"']

    play(story)


def test_a_stop_lets_a_request_in_flight_be_answered_and_then_closes(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as lane:
            protocol, wire = lane.connect()
            await learn(lane, protocol, wire)
            protocol.data_received(post(b'"last"'))
            protocol.shutdown()
            assert not wire.is_closed
            await lane.answer()
            assert wire.answers()[0][1]["connection"] == "close"
            assert wire.is_closed
            idle, idle_wire = lane.connect()
            await learn(lane, idle, idle_wire)
            idle.shutdown()
            assert idle_wire.is_closed

    play(story)


def test_a_client_that_leaves_is_not_answered_and_its_place_is_free(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path, in_flight_max=1) as lane:
            protocol, wire = lane.connect()
            await learn(lane, protocol, wire)
            protocol.data_received(post(b'"gone"'))
            protocol.connection_lost(None)
            await lane.answer()
            assert wire.written == b""
            other, other_wire = lane.connect()
            await learn(lane, other, other_wire)

    play(story)


def test_requests_by_a_known_head_are_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with opened(tmp_path) as lane:
            protocol, wire = lane.connect()
            await learn(lane, protocol, wire)
            deaf(protocol)
            protocol.data_received(post(b'"again"'))
            await lane.answer()
            text = lane.services.metrics.print().decode()
            labels = '{method="POST",route="/change"'
            assert f'headgate_http_requests_total{labels},status="200"}} 2.0' in text
            assert f"headgate_http_request_seconds_count{labels}}} 2.0" in text

    with caplog.at_level(logging.DEBUG, logger="headgate"):
        play(story)
    assert [record.getMessage() for record in caplog.records].count("request") == 2


def test_a_connection_whose_heads_never_come_again_stops_remembering(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as lane:
            protocol, wire = lane.connect()
            for number in range(20):
                protocol.data_received(post(b'"once"', f"X-Request-Id: {number}"))
                await lane.answer()
            for _ in range(2):
                protocol.data_received(post(b'"again"', "X-Request-Id: same"))
                await lane.answer()
            assert [status for status, _, _ in wire.answers()] == [200] * 22

    play(story)


# --- with the memory and without ------------------------------------------------------------------------


class Echo:
    """Takes what is sent to /take and tells it back; the rest goes through ASGI, which tells it back too."""

    def __init__(self, *, remembers: bool) -> None:
        self._remembers = remembers
        self.taken_again = 0

    def take(self, scope: Scope, body: bytes, answer: Answer) -> bool | TakeAgain:
        if scope["raw_path"] != b"/take" or body.startswith(b"no"):
            return False
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        key = headers.pop("idempotency-key", None)
        headers.pop("content-length", None)
        self._tell(headers, answer, body, key)
        return partial(self._take_again, headers) if self._remembers else True

    def _take_again(self, headers: dict[str, str], answer: Answer, body: bytes, key: str | None) -> bool:
        self.taken_again += 1
        if body.startswith(b"no"):
            return False
        self._tell(headers, answer, body, key)
        return True

    def _tell(self, headers: dict[str, str], answer: Answer, body: bytes, key: str | None) -> None:
        reply = json_reply((headers, key, body.decode()))
        give = partial(answer, reply, find_request_id(headers) or "none")
        if body.startswith(b"later"):
            asyncio.get_running_loop().call_soon(give)
        else:
            give()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        text, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            text, more = text + message.get("body", b""), message.get("more_body", False)
        body = msgspec.json.encode((scope["method"], scope["raw_path"].decode(), text.decode()))
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})


def written(chunks: list[tuple[bytes, bool]], *, remembers: bool) -> tuple[bytes, bool, int, int]:
    async def story() -> tuple[bytes, bool, int, int]:
        echo = Echo(remembers=remembers)
        protocol, wire = connect(echo, echo.take, Settings(warehouse="/lake"))
        for chunk, waits in chunks:
            if not wire.is_closed:
                protocol.data_received(chunk)
            for _ in range(10 if waits else 0):
                await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        found = wire.written, wire.is_closed, protocol.server_state.total_requests, echo.taken_again
        protocol.connection_lost(None)
        return found

    return asyncio.run(story())


BODIES = st.builds(
    lambda word, size: word + b"x" * size,
    st.sampled_from([b"", b"no", b"later"]),
    st.sampled_from([0, 1, 2, 7, 8, 9, 93, 94, 95, 98]),
)
MORE_LINES = st.sampled_from(
    [[]] * 6
    + [
        [f"Idempotency-Key: {KEYS[0]}"],
        [f"Idempotency-Key: {KEYS[1]}"],
        [f"Idempotency-Key: {NO_KEY}"],
        ["X-Request-Id: r"],
        ["X-Odd:  two  "],
        ["Connection: keep-alive"],
        ["Connection: close"],
        ["Expect: 100-continue"],
        ["Connection: upgrade", "Upgrade: x"],
        ["Content-Length: 3"],
    ]
)
REQUESTS = st.one_of(
    st.builds(lambda body, lines: post(body, *lines, path="/take"), BODIES, MORE_LINES),
    st.builds(lambda body: post(body, path="/take"), BODIES),
    st.builds(lambda body: post(body, path="/other"), BODIES),
    st.just(b"GET /take HTTP/1.1\r\nHost: h\r\n\r\n"),
    st.just(b"POST /take HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
    st.just(b"\r\n"),
)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), requests=st.lists(REQUESTS, min_size=1, max_size=8))
def test_the_same_bytes_get_the_same_answers_with_the_memory_and_without(
    data: st.DataObject, requests: list[bytes]
) -> None:
    chunks: list[tuple[bytes, bool]] = []
    rest = b""
    for request in requests:
        cut = data.draw(st.sampled_from(["whole", "whole", "whole", "split", "joined"]))
        rest += request
        if cut == "joined":
            continue
        at = data.draw(st.integers(0, len(rest))) if cut == "split" else len(rest)
        chunks.append((rest[:at], data.draw(st.booleans())))
        rest = rest[at:]
    chunks.append((rest, True))
    chunks = [(chunk, waits) for chunk, waits in chunks if chunk]
    plain = written(chunks, remembers=False)
    assert written(chunks, remembers=True)[:3] == plain[:3]


@pytest.mark.parametrize(
    "begun", [b"POST /other HTTP/1.1\r\nX-A: ", b"P", b"GET /other HTTP/1.1\r\n", b"\r\n"]
)
@pytest.mark.parametrize("is_joined", [True, False])
def test_bytes_that_fit_in_the_middle_of_a_head_are_part_of_it(begun: bytes, is_joined: bool) -> None:
    known = post(b"one", path="/take")
    first = [(known + begun, True)] if is_joined else [(known, True), (begun, True)]
    chunks = [(known, True), *first, (known, True), (known, True)]
    assert written(chunks, remembers=True)[:3] == written(chunks, remembers=False)[:3]


def test_bytes_that_fit_in_the_middle_of_a_body_are_part_of_it() -> None:
    known = post(b"one", path="/take")
    for path in ("/take", "/other"):
        outer = post(known + known, path=path)
        cut = len(outer) - len(known)
        chunks = [
            (known, True),
            (outer[: cut - len(known)], True),
            (known, True),
            (known, True),
            (known, True),
        ]
        assert written(chunks, remembers=True)[:3] == written(chunks, remembers=False)[:3]


def test_the_comparison_meets_heads_that_are_known() -> None:
    chunks = [(post(body, path="/take"), True) for body in (b"one", b"two", b"later", b"no!", b"six")]
    text, _, total, again = written(chunks, remembers=True)
    assert (total, again) == (5, 4)
    assert text == written(chunks, remembers=False)[0]
