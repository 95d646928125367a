"""The HTTP server: uvicorn with the limits that it lacks, and a stop that finishes what was begun.

uvicorn's fast parser bounds neither the size of headers nor the time a client takes to send them, and its
`limit_concurrency` answers 503, which a client would take for an unknown outcome. `BoundedProtocol` adds both
bounds and closes connections over their number before a request is read.

It also offers each request that arrived in one piece to the application's `take`, and starts uvicorn's task only for
those that are not taken: task, events and messages of ASGI were half of what a small commit cost (docs/adr/0010).
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

from headgate.errors import BadInput
from headgate.service.app import Answer, App
from headgate.service.exchange import Reply
from headgate.service.http_wire import Scope, encode_reply
from headgate.service.settings import Settings

Take = Callable[[Scope, bytes, Answer], bool]

_LISTEN_BACKLOG = 1024
_KEEP_ALIVE_S = 30

# A gate's thread computes without a pause, and the event loop has to ask for the interpreter after each system call.
# By default it is let in after 5 ms, which an answer then waited for.
_SWITCH_INTERVAL_S = 0.001
# Almost everything here is freed without the collector; a look at all of a large cache took 55 ms. But what has grown old
# and is in a cycle (a connection that was closed) is found by no other look, so it must come in the end.
_GC_THRESHOLDS = (10_000, 20, 10)


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
        """Count what arrives while headers are incomplete; what completes them is measured by the app."""
        if self._in_head:
            self._head_bytes += len(data)
        self._is_reading = True
        super().data_received(data)
        self._is_reading = False
        if (cycle := self._offered) is not None:  # its body is still on the way
            self._offered = None
            super()._start_asgi_task(cycle, self.app)
        if self._in_head and self._head_bytes and not self.transport.is_closing():
            if self._head_bytes > self.bounds.header_limit_bytes:
                self.send_400_response("Request line and headers are too large.")
            elif self._head_timer is None:
                self._expect_head()

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
        self._in_head = True
        self._head_bytes = 0
        if (cycle := self._offered) is not None:
            self._offered = None
            scope = cast(Scope, cycle.scope)
            if not self.take(scope, bytes(cycle.body), partial(self._answer, cycle)):
                super()._start_asgi_task(cycle, self.app)

    def _answer(self, cycle: RequestResponseCycle, reply: Reply, request_id: str) -> None:
        """Write the answer to a request that was taken; to one who has gone, none."""
        if cycle.disconnected or self.transport.is_closing():
            return
        cycle.response_started = cycle.response_complete = True
        self.transport.writelines(encode_reply(reply, request_id, keep_alive=cycle.keep_alive))
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    # uvicorn makes a timer after each answer and closes it with the next request. Here one rings now and then, and sees
    # how long the connection has been idle.

    def on_response_complete(self) -> None:
        """Go on with the next request; without one, the connection is idle."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
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
