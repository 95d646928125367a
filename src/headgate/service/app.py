"""The ASGI application: the order in which a request is checked, worked on and answered.

    in flight? → route → token → headers → body → (worker thread:) principal → role → key → handler → held?

A commit is queued at its table's gate and answered when that has its verdict; until then no thread waits for it. A
small one is decoded and queued on the event loop itself: a hop to a worker and back costs more than the work. If it
also arrived whole, the server offers it to `take`, and it passes the same checks without a task of its own; and so do
those that come after it with the same head, which is not read again.

Nothing of the body is read before the token is good, and nothing is done before the role allows it. Below
`_work` everything is synchronous. `except Exception` stands here and nowhere else in the service.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Sized
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial

from headgate.core.commit import Committed, Verdict
from headgate.errors import (
    CommitUnknown,
    HeadgateError,
    InvariantBroken,
    Overloaded,
    StorageFailed,
    without_frames,
)
from headgate.service import idempotency
from headgate.service.auth import ANONYMOUS, Unproved
from headgate.service.body import Disconnected, Receive, read_body, too_large
from headgate.service.exchange import Body, Later, Reply, Request, Route, RouteTable
from headgate.service.http_errors import KeyTaken, crash_reply, error_reply, is_our_failure
from headgate.service.http_wire import Scope, Send, find_request_id, read_headers, send_reply
from headgate.service.logs import LOGGER, log, log_crash
from headgate.service.loop_turns import Turns
from headgate.service.mailbox import Mailbox
from headgate.service.patience import Patience
from headgate.service.reception import Answer, Call, Opened, Reception
from headgate.service.roles import Caller, Role
from headgate.service.routing import Match, Router
from headgate.service.services import Services
from headgate.service.settings import Settings
from headgate.service.waiting import Waiters

_UNMATCHED = "unmatched"  # the label of requests without a route: paths are not labels
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
# What asyncio takes for its own when a worker raises it: no future may hold a StopIteration, so the request would
# never end and keep its place for ever; the others would pass for a time-out or a cancellation of ours.
_NOT_CARRIED = (StopIteration, TimeoutError, CancelledError)


# Takes a request with the head of one that was taken, given its body and key; False: serve it as any other.
TakeAgain = Callable[[Answer, bytes, str | None], bool]


class App:
    """The application. One object per process; `await app(scope, receive, send)` is ASGI."""

    def __init__(self, services: Services, settings: Settings, table: RouteTable) -> None:
        self._services, self._settings = services, settings
        self._metrics, self._replayers = services.metrics, table.replayers
        self._router = Router(table.routes)
        self._reception = Reception(services, settings)
        self._in_flight = 0
        services.metrics.in_flight.set_function(lambda: self._in_flight)  # asked for seldom, changed always
        self._mailbox = Mailbox()
        self._patience = Patience[Call](
            settings.request_timeout_s, lambda call: self._settle_pending(call, None)
        )
        self._has_newcomers: Callable[[], bool] = lambda: False  # whether connections wait to be accepted
        self._connections: Sized = ()
        self._tasks: set[asyncio.Task[Reply]] = set()  # a loop alone does not keep a task alive
        self._workers = ThreadPoolExecutor(settings.workers, thread_name_prefix="headgate")
        self._waiters = Waiters(services.store, self._workers, limit=settings.waiters_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the process."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        headers = read_headers(scope)
        request_id = find_request_id(headers) or self._services.new_uuid()
        route = _UNMATCHED
        try:
            match = self._router.match(scope["method"], scope["raw_path"])
            route = match.route.template
            reply = await self._admit(scope, receive, headers, match, request_id)
            reply = await self._waiters.settle(reply)  # counted out: who waits is in nobody's way
        except Disconnected:
            return
        except Exception as error:  # outermost edge
            reply = self._explain(error, request_id, route)
        await send_reply(send, reply, request_id, head=scope["method"] == "HEAD")
        self._account(scope["method"], route, reply.status, request_id, time.perf_counter() - started)

    def take(self, scope: Scope, body: bytes, answer: Answer) -> bool | TakeAgain:
        """Serve a request that arrived whole and needs no worker, without a task; False: serve it as any other.

        `answer` is called once, on the event loop: before this returns, or when the commit has its verdict. Of a commit
        that was queued, what is returned takes those that come with the same head.
        """
        match = self._router.find(scope["method"], scope["raw_path"])
        if match is None or match.route.quick is None or self._in_flight >= self._settings.in_flight_max:
            return False
        started_s = time.perf_counter()
        headers = read_headers(scope)
        request_id = find_request_id(headers) or self._services.new_uuid()
        call = self._reception.begin(scope, match, headers, request_id)
        call.request.body, call.answer, call.started_s = body, answer, started_s
        is_taken = self._take(call, headers.get(idempotency.HEADER), scope)
        return partial(self._take_again, self._reception.keep(call)) if call.later is not None else is_taken

    def _take_again(self, opened: Opened, answer: Answer, body: bytes, key: str | None) -> bool:
        """As `take`, by a head that is known."""
        if self._in_flight >= self._settings.in_flight_max:
            return False
        return self._take(self._reception.begin_again(opened, body, answer), key, None)

    def _take(self, call: Call, key: str | None, scope: Scope | None) -> bool:
        """Without a scope, the head was checked before."""
        reception, settings = self._reception, self._settings
        try:
            if scope is not None:
                reception.check(call, scope)
            elif key is not None or reception.auth_is_on:
                reception.check_again(call, key)
            if len(call.request.body) > settings.body_limit_bytes:
                raise too_large(settings.body_limit_bytes)
            reply = self._try_quickly(call)
            if reply is None:
                return False
            if reply.later is not None:
                self._settle_later(call, reply.later)
                return True
        except Exception as error:  # outermost edge
            reply = self._explain_call(error, call)
        self._finish(call, reply)
        return True

    def _finish(self, call: Call, reply: Reply) -> None:
        """Answer a call that was taken."""
        request, answer = call.request, call.answer
        request_id = request.caller.request_id
        if answer is not None:
            answer(reply, request_id)
        elapsed_s = time.perf_counter() - call.started_s
        self._account(request.method, call.route.template, reply.status, request_id, elapsed_s)

    def _settle_later(self, call: Call, later: Later) -> None:
        """Queue a commit; its reply is made on the event loop when its verdict comes, without a task."""
        self._patience.begin(call)
        self._in_flight += 1  # it may be settled before `start` returns
        call.later = later
        try:
            later.start(partial(self._mailbox.post, asyncio.get_running_loop(), self._settle_pending, call))
        except Exception as error:  # outermost edge
            if self._patience.end(call):
                self._in_flight -= 1
                call.later = None
                raise
            # It was answered before this broke: it may not be answered again.
            log_crash("a commit crashed after its answer", error, request_id=call.request.caller.request_id)

    def _settle_pending(self, call: Call, found: Verdict | None) -> None:
        later = call.later
        if later is None or not self._patience.end(call):
            return  # its time was over before
        if not isinstance(found, Committed) or found.replayed:
            task = asyncio.get_running_loop().create_task(self._conclude(call, later, found))
            self._tasks.add(task)
            task.add_done_callback(partial(self._end_pending, call))
            return
        try:
            reply = later.finish(found)
        except Exception as error:  # outermost edge
            reply = self._explain_call(error, call)
        self._in_flight -= 1
        self._finish(call, reply)

    def _end_pending(self, call: Call, task: asyncio.Task[Reply]) -> None:
        self._tasks.discard(task)
        self._in_flight -= 1
        error = task.exception()
        self._finish(call, task.result() if error is None else self._explain_call(error, call))

    def _explain_call(self, error: BaseException, call: Call) -> Reply:
        return self._explain(error, call.request.caller.request_id, call.route.template)

    def _explain(self, error: BaseException, request_id: str, route: str) -> Reply:
        """The reply to a request that failed; what is our fault is logged. Nobody asks how it came about afterwards."""
        if not isinstance(error, HeadgateError):
            error_id = self._services.new_uuid()
            log_crash("request crashed", error, error_id=error_id, request_id=request_id, route=route)
            without_frames(error)
            return crash_reply(error_id)
        without_frames(error)
        reply = error_reply(error)
        if is_our_failure(reply.status):
            log(
                logging.ERROR,
                "request failed",
                request_id=request_id,
                route=route,
                error=error.message,
                code=error.code,
            )
        return reply

    async def _admit(
        self, scope: Scope, receive: Receive, headers: dict[str, str], match: Match, request_id: str
    ) -> Reply:
        """Count the request in, until its work is done: a worker that is late still holds its place."""
        if match.route.inline:
            caller = Caller(ANONYMOUS, Role.READ, request_id)
            request = Request(scope["method"], match.route.template, match.params, {}, headers, b"", caller)
            return match.route.handler(self._services, request)
        if self._in_flight >= self._settings.in_flight_max:
            self._services.metrics.refused_overload.inc()
            raise Overloaded(f"too many requests at once; in_flight_max={self._settings.in_flight_max}")
        self._in_flight += 1
        timeout_s = self._settings.request_timeout_s
        work: asyncio.Future[Reply] | None = None
        try:
            call = await self._read(scope, receive, headers, match, request_id)
            reply = self._try_quickly(call)
            if reply is None:
                job = self._workers.submit(self._work, call)
                work = asyncio.wrap_future(job)
                try:
                    reply = await asyncio.wait_for(asyncio.shield(work), timeout_s)
                except TimeoutError as error:
                    if job.cancel():  # it had not begun, and now never will
                        raise Overloaded(f"no worker was free within {timeout_s:g} s") from error
                    raise _too_late(match.route, timeout_s) from error
            return reply if reply.later is None else await self._settle(call, reply.later)
        finally:
            if work is None or work.done():
                self._in_flight -= 1
            else:
                work.add_done_callback(self._count_out)

    async def _settle(self, call: Call, later: Later) -> Reply:
        """Queue a commit, wait for its verdict without a thread, and make its reply."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Verdict | None] = loop.create_future()
        later.start(partial(self._mailbox.post, loop, _give, waiting))
        timer = loop.call_later(self._settings.request_timeout_s, _give, waiting, None)
        try:
            found = await waiting
        finally:
            timer.cancel()
        return await self._conclude(call, later, found)

    async def _conclude(self, call: Call, later: Later, found: Verdict | None) -> Reply:
        """The reply to a verdict; without one, that nobody can say yet."""
        if found is None:  # it stays queued, or is being made: nobody can say
            raise _too_late(call.route, self._settings.request_timeout_s)
        if isinstance(found, Committed) and not found.replayed:
            return later.finish(found)
        if call.request.caller.key is None:
            if isinstance(found, Committed):
                return await self._run(lambda: later.finish(found))
            raise found.error
        # A commit that had landed before is answered as the key's record says, wherever its table is now.
        error = KeyTaken() if isinstance(found, Committed) else found.error
        return await self._run(
            lambda: idempotency.answer_error(self._services, call.request, error, self._replayers)
        )

    async def _run(self, work: Callable[[], Reply]) -> Reply:
        return await asyncio.wrap_future(self._workers.submit(work))

    async def _read(
        self, scope: Scope, receive: Receive, headers: dict[str, str], match: Match, request_id: str
    ) -> Call:
        call = self._reception.begin(scope, match, headers, request_id)
        self._reception.check(call, scope)
        if match.route.body is not Body.NONE:
            limit_bytes, timeout_s = self._settings.body_limit_bytes, self._settings.body_timeout_s
            call.request.body = await read_body(
                receive, headers, limit_bytes=limit_bytes, timeout_s=timeout_s
            )
        return call

    def _try_quickly(self, call: Call) -> Reply | None:
        """What needs neither a worker nor the store, on the event loop; None when it does."""
        quick = call.route.quick
        if quick is None or isinstance(call.credential, Unproved):
            return None  # proving a secret takes long, by design
        self._reception.identify(call)
        return quick(self._services, call.request)

    def _work(self, call: Call) -> Reply:
        """In a worker thread: the answer, or an error that the event loop can carry."""
        try:
            self._reception.identify(call)
            return idempotency.run(self._services, call.route, call.request, self._replayers)
        except _NOT_CARRIED as error:
            request_id = call.request.caller.request_id
            log_crash("worker crashed", error, request_id=request_id, route=call.route.template)
            kind = type(error).__name__
            raise InvariantBroken(f"invariant broken: a worker ended with {kind}") from error

    def _count_out(self, work: asyncio.Future[Reply]) -> None:
        self._in_flight -= 1
        if not work.cancelled() and (error := work.exception()) is not None:
            log(logging.ERROR, "late request failed", error=str(error))

    def _account(self, method: str, route: str, status: int, request_id: str, elapsed_s: float) -> None:
        label = method if method in _METHODS else "other"
        self._metrics.count_request(method=label, route=route, status=status, elapsed_s=elapsed_s)
        if LOGGER.isEnabledFor(logging.DEBUG):
            log(
                logging.DEBUG,
                "request",
                method=label,
                route=route,
                status=int(status),
                request_id=request_id,
                elapsed_ms=round(elapsed_s * 1000, 3),
            )

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        if self._services.is_near:
            self._lead_here(asyncio.get_running_loop())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.to_thread(self.close)
        await send({"type": "lifespan.shutdown.complete"})

    def _lead_here(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have commits made on this event loop, for as long as they need not wait for anything."""
        home = threading.get_ident()
        turns = Turns(loop, self._has_newcomers)

        def soon(callback: Callable[[], None]) -> None:
            call = loop.call_soon if threading.get_ident() == home else loop.call_soon_threadsafe
            call(turns.add, callback)

        def is_alone() -> bool:
            if len(self._connections) != 1 or threading.get_ident() != home or turns.is_going:
                return False
            return not self._has_newcomers()

        self._mailbox.live_in(home)
        self._services.gates.lead_by(soon, is_alone)

    def listen_on(self, listener: socket.socket, connections: Sized = ()) -> None:
        """Where connections come in, and those that have."""
        self._connections = connections
        poller = select.poll()
        poller.register(listener, select.POLLIN)

        def has_newcomers() -> bool:
            found = poller.poll(0)
            return bool(found) and any(event & select.POLLIN for _, event in found)

        self._has_newcomers = has_newcomers

    def stop_waiting(self) -> None:
        """Answer the requests that wait for events with what they have: the service is about to stop."""
        self._waiters.close()
        self._services.gates.lead_by(None)  # the event loop ends before the last commit may

    def close(self) -> None:
        """Wait for the workers, then close the services: nothing is pulled away from under a commit."""
        self._workers.shutdown(wait=True, cancel_futures=True)
        self._services.close()


def build_app(services: Services, settings: Settings, table: RouteTable) -> App:
    """The ASGI application of a service."""
    return App(services, settings, table)


def _give(waiting: asyncio.Future[Verdict | None], found: Verdict | None) -> None:
    if not waiting.done():
        waiting.set_result(found)


def _too_late(route: Route, timeout_s: float) -> HeadgateError:
    if route.takes_key:
        return CommitUnknown(
            f"no answer within {timeout_s:g} s; the change may still be made", timeout_s=timeout_s
        )
    return StorageFailed(f"no answer within {timeout_s:g} s", timeout_s=timeout_s)
