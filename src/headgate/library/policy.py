"""How a commit is tried again: bounds, spread, the budget of the process, and who is told. Light: no PyIceberg.

A field that is None is as the table's `commit.retry.*` says, and else ours. Ours differ from Java's on purpose: with
full jitter short waits are cheap, and giving up after four retries loses a quarter of the commits of sixteen writers.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headgate.core.backoff import BackoffPolicy, Spread, parse_policy
from headgate.errors import HeadgateError

_DEFAULTS: Mapping[str, str] = {
    "commit.retry.num-retries": "200",
    "commit.retry.min-wait-ms": "20",
    "commit.retry.max-wait-ms": "1000",
}


# --- what is told -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attempted:
    """The head was loaded and the commit is judged against it."""

    table: str
    key: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Waited:
    """A swap was lost, busy or unknown, or a load failed: the next attempt is so far away."""

    table: str
    key: str
    attempt: int
    delay_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The verdict: committed, conflict, diverged, refused or unknown."""

    table: str
    key: str
    verdict: str
    attempts: int
    waited_ms: int
    elapsed_ms: int


_WORDS: Mapping[str, str] = {
    "conflict-found": "conflict",
    "diverged": "diverged",
    "commit-unknown": "unknown",
}


def word_of(error: HeadgateError) -> str:
    """The verdict of an error in one word."""
    return _WORDS.get(error.code, "refused")


Event = Attempted | Waited | Ended
Observer = Callable[[Event], None]


class Counters:
    """An observer that counts: attempts, waits and verdicts, for metrics. May be shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.attempts = 0
        self.waits = 0
        self.waited_ms = 0
        self.verdicts: dict[str, int] = {}

    def __call__(self, event: Event) -> None:
        with self._lock:
            match event:
                case Attempted():
                    self.attempts += 1
                case Waited(delay_ms=delay_ms):
                    self.waits += 1
                    self.waited_ms += delay_ms
                case Ended(verdict=verdict):
                    self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1


# --- bounds -------------------------------------------------------------------------------------------------


class RetryBudget:
    """Retries that a process may make without a single commit landing: a circuit breaker against storms of retries.

    A commit that lands fills it up again, and so does time, slowly: a process that was cut off recovers.
    """

    def __init__(
        self,
        retries_max: int = 2000,
        *,
        refill_per_s: float = 10.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max, self._refill_per_s, self._now_s = retries_max, refill_per_s, now_s
        self._left = float(retries_max)
        self._at_s = now_s()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """One more retry; False when there is none left."""
        with self._lock:
            now_s = self._now_s()
            self._left = min(self._max, self._left + (now_s - self._at_s) * self._refill_per_s)
            self._at_s = now_s
            if self._left < 1:
                return False
            self._left -= 1
            return True

    def fill(self) -> None:
        """A commit landed."""
        with self._lock:
            self._left = float(self._max)


PROCESS_BUDGET = RetryBudget()


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance, as the driver needs them; a test has its own."""

    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)
    now_s: Callable[[], float] = time.monotonic
    sleep_s: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class Policy:
    """How commits of a table are tried again. `turns`: queue with others for the head, where the catalog lets us."""

    spread: Spread = Spread.FULL
    retries_max: int | None = None
    wait_min_ms: int | None = None
    wait_max_ms: int | None = None
    total_max_ms: int | None = None
    turns: bool = True
    budget: RetryBudget = PROCESS_BUDGET
    observer: Observer | None = None
    clock: Clock = field(default_factory=Clock)

    def bounds(self, properties: Mapping[str, str]) -> BackoffPolicy:
        """The bounds for a table with these properties; BadInput names one that is no number."""
        told = parse_policy({**_DEFAULTS, **properties}, spread=self.spread)
        return BackoffPolicy(
            spread=self.spread,
            retries_max=told.retries_max if self.retries_max is None else self.retries_max,
            wait_min_ms=told.wait_min_ms if self.wait_min_ms is None else self.wait_min_ms,
            wait_max_ms=told.wait_max_ms if self.wait_max_ms is None else self.wait_max_ms,
            total_max_ms=told.total_max_ms if self.total_max_ms is None else self.total_max_ms,
        )
