"""How long a leader waits for company, where a group is dear: on an object store each costs a PUT, however small it is.

Clients come back right after they were answered. A leader that goes on at once meets only those who had queued
before, so two halves take turns and each group is half as large as it could be. So the next group waits for those
who were just answered: until all are back, or nobody came for a while, and never longer than a share of what the
last group took. Whoever is alone is never waited with. Decides nothing but when to begin.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_QUIET_SHARE = 8  # nobody came for this part of the last group's time: whoever is missing has gone
_WAIT_SHARE = 2
_QUIET_MAX_S = 0.010
_WAIT_MAX_S = 0.050


class Company:
    """Whom the next group of one table may expect."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._expected = 0
        self._until = float("-inf")
        self._quiet_s = 0.0
        self._is_complete = threading.Event()

    def expect(self, count: int, *, took_s: float) -> None:
        """A group that took so long was answered: so many may be queued before long."""
        self._expected = count
        self._quiet_s = min(took_s / _QUIET_SHARE, _QUIET_MAX_S)
        self._until = self._clock() + min(took_s / _WAIT_SHARE, _WAIT_MAX_S)
        self._is_complete.clear()

    def note(self, queued: int) -> None:
        """So many are queued now."""
        if 0 < self._expected <= queued:
            self._is_complete.set()

    def wait(self, queued: Callable[[], int]) -> None:
        """Until the next group is to begin."""
        if self._expected < 2:
            return
        while not self._is_complete.is_set():
            before, left_s = queued(), self._until - self._clock()
            if before >= self._expected or left_s <= 0:
                break
            if not self._is_complete.wait(min(self._quiet_s, left_s)) and queued() == before:
                break
        self._expected = 0  # waited for once
