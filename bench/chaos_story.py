"""What the chaos run is about: its plan, its payments, its jobs, and the book of what everybody was told.

A job has an id, which goes with it into the summary of the snapshot that it makes. So at the end the table itself says
what landed, how often and in which order, and the book says what was acknowledged: the two must agree.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tools.demo_story import Row, Rows

from headgate.client.keys import new_key
from headgate.spark.demo_source import Demo, payments

STAMP = "chaos.job"  # in the summary of a snapshot: the id of the job that made it
COLUMNS = "id BIGINT, customer BIGINT, region STRING, amount DECIMAL(12,2)"
ACKNOWLEDGED, REFUSED, FAILED = "acknowledged", "refused", "failed"
REGIONS = ("asia", "europe", "america", "africa")
_IDS, _CUSTOMERS = 10_000_000, 100_000  # of each source of payments
_WINDOW, _PAYMENTS_EACH = 20, 25  # customers who pay at one time; payments until the next one comes


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    minutes: float = 5.0
    format_version: int = 2
    seed: int = 1
    streams: int = 4
    writers: int = 2
    service_kills: int = 2
    down_s: float = 1.0  # how long the service is away
    task_failures: float = (
        0.05  # the share of first attempts that raise, at their beginning and at their end each
    )
    task_kills_every_s: float = 2.0
    rows_per_file: int = 60  # of a stream's source, a file each second
    rows_per_write: int = 150
    pause_s: float = 0.5  # between two jobs of one actor
    tries_max: int = 12

    @property
    def properties(self) -> dict[str, str]:
        """Of the table: version 2 copies files, version 3 hides rows."""
        mode = "copy-on-write" if self.format_version == 2 else "merge-on-read"
        modes = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
        return {"format-version": str(self.format_version), **modes}


@dataclass(frozen=True, slots=True)
class Source:
    """One who brings payments: their ids and customers are nobody else's, their region may be."""

    number: int
    seed: int

    @property
    def region(self) -> str:
        """Where its customers live."""
        return REGIONS[self.number % len(REGIONS)]

    def rows(self, start: int, end: int) -> Iterator[Row]:
        """Its payments from one number up to another, the same ones every time. Customers come and go."""
        demo = Demo(seed=self.seed * 100 + self.number, first_id=self.number * _IDS)
        for number, payment in zip(range(start, end), payments(demo, start, end), strict=True):
            yield payment[0], self.first_customer(number) + payment[1] % _WINDOW, self.region, payment[3]

    def first_customer(self, number: int) -> int:
        """The oldest customer who still pays when this payment is made."""
        return self.number * _CUSTOMERS + number // _PAYMENTS_EACH

    def ids(self, start: int, end: int) -> range:
        """The ids of these payments."""
        return range(self.number * _IDS + start, self.number * _IDS + end)


@dataclass(slots=True)
class Job:
    """One piece of work, done until it is acknowledged, refused too often or given up."""

    id: str
    kind: str
    play: Callable[[Rows], None]  # what it does to the rows of the table once it has landed
    key: str = field(default_factory=new_key)
    tries: int = 0
    outcome: str = "open"
    snapshot_id: int | None = None  # as it was told; None when it was not, or when there was nothing to do


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a job did not end well this time."""

    kind: str
    is_refusal: bool = False
    evidence: str = ""  # whose commit, and the rule


@dataclass
class Book:
    """What everybody was told. Shared by threads."""

    jobs: list[Job] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)  # by kind of job and rule
    without_evidence: int = 0
    retries: Counter[str] = field(default_factory=Counter)  # by kind of job and problem
    compacted: int = 0
    broken: list[str] = field(default_factory=list)  # what the story does not foresee
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, job: Job) -> None:
        """A job begins."""
        with self._lock:
            self.jobs.append(job)

    def note(self, kind: str, problem: Problem) -> None:
        """A job was refused, or failed in another way."""
        with self._lock:
            if not problem.is_refusal:
                self.retries[f"{kind}: {problem.kind}"] += 1
                return
            self.refusals[f"{kind}: {problem.kind}"] += 1
            self.without_evidence += not problem.evidence

    def note_compacted(self, groups: int) -> None:
        """Groups of files were rewritten."""
        with self._lock:
            self.compacted += groups

    def break_off(self, actor: str, error: BaseException) -> None:
        """An actor ended that should not have."""
        with self._lock:
            self.broken.append(f"{actor}: {type(error).__name__}: {str(error)[:600]}")

    def count(self, outcome: str) -> int:
        """How many jobs ended so."""
        return sum(job.outcome == outcome for job in self.jobs)


@dataclass
class Clock:
    """The time that the run has."""

    seconds: float
    began: float = field(default_factory=time.monotonic)
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def is_over(self) -> bool:
        """Whether nobody shall begin anything new."""
        return self._over.is_set() or time.monotonic() - self.began >= self.seconds

    def end(self) -> None:
        """End it now."""
        self._over.set()

    def pause(self, seconds: float) -> None:
        """Wait, unless the time is over before."""
        self._over.wait(max(0.0, min(seconds, self.seconds - (time.monotonic() - self.began))))

    def passed(self) -> float:
        """The share of the time that has passed."""
        return (time.monotonic() - self.began) / self.seconds
