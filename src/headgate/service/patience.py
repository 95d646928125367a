"""How long requests wait for their verdicts: each as long as any other, so one timer does for all of them.

A timer for each was made and closed again with every commit, and hardly one of them ever rang. Used on one event loop only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Patience(Generic[T]):
    """Who waits. Of whoever has waited too long, `give_up` is told; to end its waiting is for that to do."""

    def __init__(self, timeout_s: float, give_up: Callable[[T], None]) -> None:
        self._timeout_s, self._give_up = timeout_s, give_up
        self._waiting: dict[T, float] = {}  # until when; who came first is first
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, waiter: T) -> None:
        """From now on it waits."""
        self._waiting[waiter] = time.monotonic() + self._timeout_s
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._look)

    def end(self, waiter: T) -> bool:
        """It waits no more; False: it did not."""
        return self._waiting.pop(waiter, None) is not None

    def _look(self) -> None:
        now, self._timer = time.monotonic(), None
        late: list[T] = []
        for waiter, until in self._waiting.items():
            if until > now:
                self._timer = asyncio.get_running_loop().call_later(until - now, self._look)
                break
            late.append(waiter)
        for waiter in late:
            self._give_up(waiter)
