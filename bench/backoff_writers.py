"""Writers of the backoff experiment for real: processes with the library, which wait as they are told and take no turns.

Not part of `backoff` itself: writer processes import this module once, and not the command line.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

from bench.backoff_waits import ALL, RETRIES_MAX, WAIT_MAX_MS, WAIT_MIN_MS, Waits
from bench.library_writers import SCHEMA, Place, make_library_step, new_place
from bench.race import Race, Step, Tried, run_laps
from headgate.library import Clock, Policy, RetryBudget, Spread

APART, TOGETHER = "apart", "together"
THINK_MS, TICK_MS = 1_000.0, 3_000.0


@dataclass(frozen=True, slots=True)
class Commit:
    """What one commit needed."""

    retries: int
    took_s: float
    committed: bool


class Sleeper:
    """Sleeps by a formula instead of as it is told; counts the retries of the commit that is under way."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._attempt, self._previous_ms = 0, 0.0

    def begin(self) -> None:
        """A new commit."""
        self._attempt, self._previous_ms = 0, 0.0

    def sleep_s(self, _: float) -> None:
        """One wait."""
        self._attempt += 1
        self._previous_ms = self._waits.formula(self._attempt, random.random(), self._previous_ms)
        time.sleep(self._previous_ms / 1000)


def policy_of(waits: Waits, sleeper: Sleeper) -> Policy:
    """The library's policy for a way to wait; those that it does not offer are slept by their formula."""
    told = Policy(
        spread=waits.spread or Spread.NONE,
        retries_max=RETRIES_MAX,
        wait_min_ms=WAIT_MIN_MS,
        wait_max_ms=WAIT_MAX_MS,
        turns=waits.turns,
        budget=RetryBudget(10**9),
        clock=Clock() if waits.spread is not None else Clock(sleep_s=sleeper.sleep_s),
    )
    return told


def make_backoff_step(place: Place, name: str, load: str) -> Step:
    """One writer: a pause, or the next tick, then a commit."""
    waits = next(one for one in ALL if one.name == name)
    sleeper = Sleeper(waits)
    commit = make_library_step(place, policy_of(waits, sleeper))
    tick_s = TICK_MS / 1000

    def step() -> Tried:
        # One clock for all processes: their ticks are the same.
        pause_s = random.expovariate(1000 / THINK_MS) if load == APART else tick_s - time.monotonic() % tick_s
        time.sleep(pause_s)
        sleeper.begin()
        began_s = time.monotonic()
        tried = commit()
        return Tried(tried.failure, tried.attempts, time.monotonic() - began_s)

    return step


def race_for_real(
    uri: str, warehouse: Path, waits: Waits, load: str, race: Race
) -> tuple[list[Commit], float]:
    """What the commits of a race needed, and how many a second there were."""
    place = new_place(uri, warehouse)
    catalog = place.open()
    catalog.create_table(place.table, SCHEMA)
    laps = run_laps(race, make_backoff_step, place, waits.name, load)
    catalog.engine.dispose()
    timed = laps.timed()
    commits = [Commit((lap.tried.attempts or 1) - 1, lap.took_s, not lap.tried.failure) for lap in timed]
    return commits, len(commits) / race.seconds
