"""The HTTP server: uvicorn with the limits that it lacks, and a stop that finishes what was begun.

uvicorn's fast parser bounds neither the size of headers nor the time a client takes to send them, and its
`limit_concurrency` answers 503, which a client would take for an unknown outcome. `BoundedProtocol` adds both
bounds and closes connections over their number before a request is read.

It also offers each request that arrived in one piece to the application's `take`, and starts uvicorn's task only for
those that are not taken: task, events and messages of ASGI were half of what a small commit cost (docs/adr/0010).

And of a commit that was taken it remembers the head (`known_heads`). The next request with that head is handed to the
application as it arrived, without parser, scope and events, if nothing else is under way on the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from headgate.core.value import Record
from headgate.errors import BadInput
from headgate.service.app import App, TakeAgain
from headgate.service.exchange import Reply
from headgate.service.http_wire import Scope, encode_reply
from headgate.service.known_heads import HeadForm, find_form
from headgate.service.reception import Answer
from headgate.service.settings import Settings

Take = Callable[[Scope, bytes, Answer], bool | TakeAgain]

_LISTEN_BACKLOG = 1024
_KEEP_ALIVE_S = 30
_LESSONS_MAX = 8  # heads that a connection is given to remember in a row, none of which comes again

# A gate's thread computes without a pause, and the event loop has to ask for the interpreter after each system call.
# By default it is let in after 5 ms, which an answer then waited for.
_SWITCH_INTERVAL_S = 0.001
# Almost everything here is freed without the collector; a look at all of a large cache took 55 ms. But what has grown old
# and is in a cycle (a connection that was closed) is found by no other look, so it must come in the end.
_GC_THRESHOLDS = (10_000, 20, 10)


class _Known(Record, gc=True):
    """The head of the last commit that was taken, with the cycle that it shares with all that come by it."""

    form: HeadForm
    cycle: RequestResponseCycle
    take: Callable[[bytes, str | None], bool]


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `bounds` is set by `serve` on a subclass: uvicorn makes the object itself."""

    bounds: Settings
    take: Take

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, unless there are too many."""
        self._head_bytes = 0
        self._in_head = True
        self._head_timer: asyncio.TimerHandle | None = None
        self._idle_since: float | None = None  # by the loop's clock
        self._is_reading = False
        self._offered: RequestResponseCycle | None = None  # begun by the bytes that are being read
        self._is_between = True  # the parser has read a whole number of requests, and nothing of the next
        self._arrived = b""  # the bytes that are being read, if they begin with a request
        self._known: _Known | None = None
        self._lessons_left = _LESSONS_MAX
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # an answer leaves at once, not when the loop comes round again
        if len(self.connections) > self.bounds.connections_max:
            transport.abort()
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers with the connection."""
        self._stop_timer()
        super().connection_lost(exc)
        super()._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """A request by a known head is handed on; whatever else arrives is read."""
        known = self._known
        if known is None or not (self._is_between and self.cycle.response_complete and known.form.fits(data)):
            self._read(data, offers=True)
        elif not self._hand_on(known, data):
            self._read(data, offers=False)

    def _hand_on(self, known: _Known, data: bytes) -> bool:
        """Give the application a request that fits; False when it does not take it.

        uvicorn sees the cycle of the first request with this head begin again: so a request that comes before the answer
        waits for it, a stop lets it be finished, and a client that leaves is not answered.
        """
        form = known.form
        self._idle_since = None
        self._lessons_left = _LESSONS_MAX
        self.cycle = cycle = known.cycle
        cycle.response_complete = False
        key = None if form.key_at is None else form.find_key(data)
        if known.take(data[form.head_bytes :], key):
            return True
        cycle.response_complete = True
        return False

    def _read(self, data: bytes, *, offers: bool) -> None:
        """Count what arrives while headers are incomplete; what completes them is measured by the app."""
        if self._in_head:
            self._head_bytes += len(data)
        if self._is_between:
            self._arrived = data
        self._is_reading = offers
        super().data_received(data)
        self._is_reading = False
        self._arrived = b""
        if (cycle := self._offered) is not None:  # its body is still on the way
            self._offered = None
            super()._start_asgi_task(cycle, self.app)
        if self._in_head and self._head_bytes:
            self._is_between = False
            if not self.transport.is_closing():
                if self._head_bytes > self.bounds.header_limit_bytes:
                    self.send_400_response("Request line and headers are too large.")
                elif self._head_timer is None:
                    self._expect_head()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._is_between = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The headers are in."""
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Put it off to the end of the bytes at hand: the request may be complete by then."""
        if self._is_reading and self._offered is None and not cycle.waiting_for_100_continue:
            self._offered = cycle
        else:
            super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        """The request is in, and the next bytes are the headers of the next one."""
        super().on_message_complete()
        self._in_head = self._is_between = True
        self._head_bytes = 0
        if (cycle := self._offered) is not None:
            self._offered = None
            body, answer = bytes(cycle.body), partial(self._answer, cycle)
            taken = self.take(cast(Scope, cycle.scope), body, answer)
            if not taken:
                super()._start_asgi_task(cycle, self.app)
            elif taken is not True:
                self._learn(cycle, len(body), partial(taken, answer))
        self._arrived = b""  # what follows does not begin with a request that could be told from it

    def _learn(
        self, cycle: RequestResponseCycle, body_bytes: int, take: Callable[[bytes, str | None], bool]
    ) -> None:
        """Remember the head of a commit that was taken, unless such heads never come again here."""
        if not self._lessons_left or not cycle.keep_alive:
            return
        self._lessons_left -= 1
        request_line = b"%b %b HTTP/1.1" % (cycle.scope["method"].encode(), self.url)
        form = find_form(
            self._arrived, body_bytes, request_line=request_line, headers=cast(Any, cycle.scope["headers"])
        )
        self._known = None if form is None else _Known(form, cycle, take)
        cycle.body = bytearray()

    def _unsupported_upgrade_warning(self) -> None:
        """What the client takes the connection for from now on, nobody knows: the parser is to read all of it."""
        self._known, self._lessons_left = None, 0
        super()._unsupported_upgrade_warning()

    def _answer(self, cycle: RequestResponseCycle, reply: Reply, request_id: str) -> None:
        """Write the answer to a request that was taken; to one who has gone, none."""
        transport = self.transport
        if cycle.disconnected or transport.is_closing():
            return
        cycle.response_started = cycle.response_complete = True
        keep_alive = cycle.keep_alive
        transport.writelines(encode_reply(reply, request_id, keep_alive=keep_alive))
        if not keep_alive:
            transport.close()
        self.on_response_complete()

    # uvicorn makes a timer after each answer and closes it with the next request. Here one rings now and then, and sees
    # how long the connection has been idle.

    def on_response_complete(self) -> None:
        """Go on with the next request; without one, the connection is idle."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        if self.flow.read_paused:
            self.flow.resume_reading()
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._watch_idle(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        """A request comes in: the connection is not idle."""
        self._idle_since = None

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle all the time."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return  # its next answer has it watched again
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._watch_idle(left_s)
        else:
            super().timeout_keep_alive_handler()

    def _watch_idle(self, delay_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(delay_s, self.timeout_keep_alive_handler)

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(self.bounds.header_timeout_s, self._head_is_late)

    def _head_is_late(self) -> None:
        if self._in_head and not self.transport.is_closing():
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class GracefulServer(uvicorn.Server):
    """Stops on SIGTERM and SIGINT with exit code 0: uvicorn would raise the signal again afterwards."""

    def __init__(self, config: uvicorn.Config, *, before_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._before_stop = before_stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the requests in flight; those that only wait are told to answer now."""
        self._before_stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the two signals while the server runs."""
        handled = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def open_socket(settings: Settings) -> socket.socket:
    """The listening socket; a port that is taken is an error of the settings."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host.strip("[]"), settings.port))
        listener.listen(_LISTEN_BACKLOG)
    except OSError as error:
        listener.close()
        raise BadInput(
            f"port: cannot listen on {settings.host}:{settings.port}: {error.strerror or error}", field="port"
        ) from error
    return listener


def tune_interpreter() -> None:
    """Set this process up for a service: threads give way sooner, and what is there by now is never looked through."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def configure(app: Any, take: Take, settings: Settings) -> uvicorn.Config:
    """uvicorn as we run it: what `take` does not take goes to the application."""
    protocol: Any = type("Protocol", (BoundedProtocol,), {"bounds": settings, "take": staticmethod(take)})
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_LISTEN_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(settings.stop_timeout_s)),
    )


def serve(app: App, settings: Settings, listener: socket.socket) -> None:
    """Run until a signal, finish the requests in flight, then close the services."""
    tune_interpreter()
    server = GracefulServer(configure(app, app.take, settings), before_stop=app.stop_waiting)
    app.listen_on(listener, server.server_state.connections)
    server.run(sockets=[listener])
