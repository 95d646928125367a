"""Processes that race for one table: all start together, each does its step again and again until the time is over.

Who is still trying a good while after the end is stopped, and counted as unfinished.
"""

from __future__ import annotations

import multiprocessing
import queue
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.common import summarise

_GRACE_S = 20.0
_START_S = 300.0  # 64 processes that import PyIceberg on two cores, of which others have a third


@dataclass(frozen=True, slots=True)
class Race:
    """How many writers, and for how long; commits begun during the warm-up are not timed."""

    writers: int
    seconds: float
    warm_up_s: float = 0.0

    @property
    def whole_s(self) -> float:
        """How long they commit."""
        return self.warm_up_s + self.seconds


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one commit: `failure` is empty when it was published, else the name of what went wrong."""

    failure: str = ""
    attempts: int | None = None  # None where nobody counts them
    took_s: float | None = None  # of a step that does more than commit


@dataclass(frozen=True, slots=True)
class Lap:
    """One commit of one writer, on the clock that all processes share."""

    started_s: float
    ended_s: float
    tried: Tried

    @property
    def took_s(self) -> float:
        """How long the commit took."""
        return self.ended_s - self.started_s if self.tried.took_s is None else self.tried.took_s


@dataclass(frozen=True, slots=True)
class Laps:
    """What came of a race; `unfinished` writers were stopped in the middle of a commit."""

    race: Race
    started_s: float
    all: list[Lap]
    unfinished: int

    def timed(self) -> list[Lap]:
        """Commits that began after the warm-up."""
        return [lap for lap in self.all if lap.started_s >= self.started_s + self.race.warm_up_s]


Step = Callable[[], Tried]
Maker = Callable[..., Step]


def run_race(race: Race, make: Maker, *arguments: Any) -> dict[str, Any]:
    """Let the writers race; their figures."""
    return sum_up(run_laps(race, make, *arguments))


def run_laps(race: Race, make: Maker, *arguments: Any) -> Laps:
    """Let the writers race, and tell all that came of it."""
    # Everything is imported once, and no thread is forked.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([make.__module__])
    barrier, results = context.Barrier(race.writers + 1), context.Queue()
    common = (race.whole_s, barrier, results, make, arguments)
    writers = [context.Process(target=_write, args=common, daemon=True) for _ in range(race.writers)]
    for writer in writers:
        writer.start()
    barrier.wait(_START_S)
    started_s = time.monotonic()
    laps: list[Lap] = []
    left = race.writers
    while left and (wait_s := started_s + race.whole_s + _GRACE_S - time.monotonic()) > 0:
        try:
            found = results.get(timeout=wait_s)
        except queue.Empty:
            break
        if found is None:
            left -= 1
        else:
            laps.append(found)
    for writer in writers:
        writer.terminate()
        writer.join()
    return Laps(race, started_s, laps, left)


def _write(seconds: float, barrier: Any, results: Any, make: Maker, arguments: tuple[Any, ...]) -> None:
    """The life of one writer."""
    step = make(*arguments)
    barrier.wait(_START_S)
    until_s = time.monotonic() + seconds
    while (started_s := time.monotonic()) < until_s:
        tried = step()
        results.put(Lap(started_s, time.monotonic(), tried))
    results.put(None)


def sum_up(laps: Laps) -> dict[str, Any]:
    """The figures of a race; a commit that ended after the time does not count for the rate."""
    race, until_s = laps.race, laps.started_s + laps.race.whole_s
    published = [lap for lap in laps.all if not lap.tried.failure]
    failures = Counter(lap.tried.failure for lap in laps.all if lap.tried.failure)
    in_time = sum(until_s - race.seconds <= lap.ended_s <= until_s for lap in published)
    attempts = [lap.tried.attempts for lap in laps.all if lap.tried.attempts is not None]
    counted = {"attempts_per_commit": sum(attempts) / max(1, len(published))} if attempts else {}
    return {
        "clients": race.writers,
        "commits_per_s": in_time / race.seconds,
        **summarise([lap.took_s for lap in laps.timed() if not lap.tried.failure]),
        **counted,
        "acknowledged": len(published),
        "failed": dict(failures),
        "lost_share": failures.total() / max(1, len(laps.all)),
        "unfinished": laps.unfinished,
    }
