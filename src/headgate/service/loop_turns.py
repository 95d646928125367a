"""Long work on the event loop, a stretch at a time: between two of them the loop does what else there is to do.

libuv accepts one connection in each round of the loop: behind groups of commits, hundreds would wait for seconds. And a
request that is no commit takes a few rounds: after a long stretch it is to have them, however many tables are busy.
Used on the loop only.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

_ROUNDS_MAX = 64  # that a stretch waits for connections that come in
_ROUNDS_BETWEEN = 4  # after a stretch that took long
_LONG_S = 0.002


class Turns:
    """The stretches that wait for their turn; one at a time has it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, has_newcomers: Callable[[], bool]) -> None:
        self._loop, self._has_newcomers = loop, has_newcomers
        self._waiting: deque[Callable[[], None]] = deque()
        self._between = 0  # rounds that the next one has to wait
        self.is_going = False  # some stretch has its turn, or waits for it

    def add(self, stretch: Callable[[], None]) -> None:
        """Have this done in its turn."""
        self._waiting.append(stretch)
        if not self.is_going:
            self.is_going = True
            self._go(0)

    def _go(self, rounds: int) -> None:
        """One round of the loop."""
        if rounds < _ROUNDS_MAX and (rounds < self._between or self._has_newcomers()):
            self._loop.call_soon(self._go, rounds + 1)
            return
        started = time.monotonic()
        try:
            self._waiting.popleft()()
        finally:
            self._between = _ROUNDS_BETWEEN if time.monotonic() - started > _LONG_S else 0
            self.is_going = bool(self._waiting)
            if self.is_going:
                self._loop.call_soon(self._go, 0)
