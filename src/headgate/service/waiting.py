"""Requests that wait for an event (long poll): on the event loop, bounded, with one look at the outbox for all.

A held reply waits without a worker thread. All waiters share one reading of the outbox's tip, at most one per
`_EVERY_S`; only a waiter whose feed may have grown looks again, in a worker. The tip comes from the store, so
commits of other replicas wake waiters too. Who waits for something that the outbox does not tell (the verdict of a
job: a refusal makes no event) looks by itself, at growing intervals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from headgate.errors import Overloaded
from headgate.service.exchange import Reply
from headgate.store.base import Store

_T = TypeVar("_T")
_EVERY_S = 0.05
_FIRST_LOOK_S, _LAST_LOOK_S = 0.01, 0.5


class Waiters:
    """The waiting requests of one process. Used on its event loop only."""

    def __init__(self, store: Store, workers: ThreadPoolExecutor, *, limit: int) -> None:
        self._store, self._workers, self._limit = store, workers, limit
        self._waiting = 0
        self._tip = 0
        self._read_at = float("-inf")
        self._reading: asyncio.Future[int] | None = None
        self._is_closing = False

    async def settle(self, reply: Reply) -> Reply:
        """The reply itself, or for a held one the reply that an event or the end of its time brings."""
        if reply.hold is None:
            return reply
        if self._waiting >= self._limit:
            raise Overloaded(f"too many requests wait for events; waiters_max={self._limit}")
        self._waiting += 1
        try:
            return await self._wait(reply)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Let every waiter answer with what it has."""
        self._is_closing = True

    async def _wait(self, reply: Reply) -> Reply:
        clock = asyncio.get_running_loop().time
        until, seen = clock() + (0 if reply.hold is None else reply.hold.within_ms / 1000), 0
        pause_s = _FIRST_LOOK_S
        while (hold := reply.hold) is not None and not self._is_closing and (left_s := until - clock()) > 0:
            if hold.seen is None:
                await asyncio.sleep(min(pause_s, left_s))
                reply, pause_s = await self._run(hold.look), min(2 * pause_s, _LAST_LOOK_S)
                continue
            await asyncio.sleep(min(_EVERY_S, left_s))
            seen = max(seen, hold.seen)
            if (tip := await self._find_tip(seen)) > seen:
                reply, seen = await self._run(hold.look), tip  # it looks after the tip was read
        return replace(reply, hold=None)

    async def _find_tip(self, seen: int) -> int:
        self._tip = max(self._tip, seen)
        clock = asyncio.get_running_loop().time
        if self._reading is None and clock() - self._read_at >= _EVERY_S:
            self._reading = asyncio.ensure_future(self._run(lambda: self._read_tip(self._tip)))
        if self._reading is not None:
            reading = self._reading
            try:
                self._tip = max(self._tip, await asyncio.shield(reading))
            finally:
                if self._reading is reading and reading.done():
                    self._reading, self._read_at = None, clock()
        return self._tip

    def _read_tip(self, after: int) -> int:
        # One is enough to wake everybody, and whoever looks brings the tip up to where he has seen.
        events = self._store.read_events(after=after, limit=1)
        return events[-1].sequence if events else after

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.wrap_future(self._workers.submit(work))
