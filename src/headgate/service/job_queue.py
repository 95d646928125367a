"""Acknowledged requests that wait to be carried out: claimed from the store, run on a few threads, never lost.

Theory. A job is in the store from before its acknowledgement until the transaction that stores its verdict under its
key. A claim is a lease, and a lease is a courtesy: it spares replicas the same work, and correctness does not rest on
it. Whoever carries out a job a second time commits under the same key, which lands once. So a process may die at any
step; when its lease ends, somebody claims the job again. What fails for now is tried again here, at growing
intervals, for as long as it takes.

What it means to carry out a job is for `jobs` to say; this module knows when, how many at once, and nothing else.
"""

from __future__ import annotations

import heapq
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from headgate.core.backoff import BackoffPolicy, Spread, delay_ms
from headgate.errors import HeadgateError, QueueFull
from headgate.service.logs import log, log_crash
from headgate.service.metrics import Metrics
from headgate.service.settings import Settings
from headgate.store.base import Job, Store

STREAM = "stream"  # the kind of job that is carried out together with others of its table


_POLL_S = 2.0  # how soon the jobs of a replica that died are seen, once their lease is over
_HELD_MAX = 256
_COUNT_GOOD_FOR_S = 0.25
_RETRY = BackoffPolicy(spread=Spread.FULL, wait_min_ms=100, wait_max_ms=5_000)


@dataclass(frozen=True, slots=True)
class Try:
    """A job to be carried out; the first attempt is 1."""

    job: Job
    attempt: int


@dataclass(slots=True)
class _Held:
    """A job that this process has claimed. `again_at` is when it is tried again; None while it is at work."""

    job: Job
    attempt: int = 1
    again_at: float | None = None


# One answer each. True: it has its verdict, and is not in the store any more. False: it is tried again.
CarryOut = Callable[[Sequence[Try]], Sequence[bool]]


class JobQueue:
    """The jobs of one process. `start` it, `close` it; everything else from any thread."""

    def __init__(
        self, store: Store, settings: Settings, metrics: Metrics, *, clock_ms: Callable[[], int], owner: str
    ) -> None:
        self._store, self._metrics, self._clock_ms = store, metrics, clock_ms
        self._owner = owner
        self._pending_max, self._lease_ms = settings.jobs_max, round(settings.job_lease_s * 1000)
        self._pool = ThreadPoolExecutor(settings.job_workers, thread_name_prefix="headgate-job")
        self._lock = threading.Lock()
        self._held: dict[tuple[str, str], _Held] = {}
        self._due_at_ms: list[int] = []  # a heap of times at which jobs that we acknowledged become due
        self._count, self._counted_at = 0, float("-inf")
        self._is_full = False  # the last claim brought as many as it asked for: there may be more
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, carry_out: CarryOut) -> None:
        """Begin, also with what an earlier process left behind."""
        self._thread = threading.Thread(
            target=self._run, args=(carry_out,), name="headgate-jobs", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Finish what is at work; the rest stays in the store. Safe to call twice."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._pool.shutdown(wait=True, cancel_futures=True)

    def admit(self) -> None:
        """Refuse one more job while too many wait. The count is a little old at times, so the bound is about right."""
        with self._lock:
            if time.monotonic() - self._counted_at < _COUNT_GOOD_FOR_S and self._count < self._pending_max:
                self._count += 1
                return
        count = self._recount()
        if count >= self._pending_max:
            raise QueueFull(
                f"too many requests wait to be carried out; jobs_max={self._pending_max}", pending=count
            )

    def expect(self, due_at_ms: int) -> None:
        """A job that is due then is in the store now."""
        with self._lock:
            is_sooner = not self._due_at_ms or due_at_ms < self._due_at_ms[0]
            if due_at_ms not in self._due_at_ms[:1]:  # many share the end of one linger
                heapq.heappush(self._due_at_ms, due_at_ms)
        if is_sooner:  # otherwise the thread wakes early enough by itself
            self._wake.set()

    def run_due(self, carry_out: CarryOut) -> int:
        """Carry out what is due now, waiting retries too, and wait for it; returns how many jobs that were."""
        begun = self._dispatch(carry_out, now=float("inf"))
        wait(begun)
        return sum(future.result() for future in begun)

    def _run(self, carry_out: CarryOut) -> None:
        while not self._stop.is_set():
            try:
                self._dispatch(carry_out, now=time.monotonic())
                if time.monotonic() - self._counted_at >= _POLL_S:
                    self._recount()
            except HeadgateError as error:
                log(logging.WARNING, "jobs were not claimed; will try again", error=str(error))
            self._wake.wait(self._pause_s())
            self._wake.clear()

    def _pause_s(self) -> float:
        now, now_ms = time.monotonic(), self._clock_ms()
        with self._lock:
            waits = [held.again_at - now for held in self._held.values() if held.again_at is not None]
            if self._due_at_ms:
                waits.append((self._due_at_ms[0] - now_ms) / 1000)
        return max(0.0, min((_POLL_S, *waits)))

    def _recount(self) -> int:
        count = self._store.count_jobs()
        with self._lock:
            self._count, self._counted_at = count + 1, time.monotonic()
        self._metrics.jobs_pending.set(count)
        return count

    def _dispatch(self, carry_out: CarryOut, *, now: float) -> list[Future[int]]:
        """Have everything begun that is due and that there is room for."""
        now_ms = self._clock_ms()
        with self._lock:
            room = _HELD_MAX - len(self._held)
            while self._due_at_ms and self._due_at_ms[0] <= now_ms:
                heapq.heappop(self._due_at_ms)
        claimed: list[Job] = []
        if room > 0:
            claimed = self._store.claim_jobs(
                owner=self._owner, now_ms=now_ms, lease_ms=self._lease_ms, limit=room
            )
        with self._lock:
            self._is_full = len(claimed) >= room
            ripe = [
                held for held in self._held.values() if held.again_at is not None and held.again_at <= now
            ]
            for job in claimed:
                # One that is here already outlived its lease at our hands; it is not begun twice.
                if (job.principal, job.id) not in self._held:
                    held = self._held[job.principal, job.id] = _Held(job)
                    ripe.append(held)
            for held in ripe:
                held.again_at = None
            batches: dict[tuple[object, ...], list[_Held]] = {}
            for held in ripe:
                batches.setdefault(_batch_of(held.job), []).append(held)
        return [self._pool.submit(self._carry_out, carry_out, batch) for batch in batches.values()]

    def _carry_out(self, carry_out: CarryOut, batch: Sequence[_Held]) -> int:
        try:
            done = carry_out([Try(held.job, held.attempt) for held in batch])
        except Exception as error:  # outermost edge
            ids = [held.job.id for held in batch]
            log_crash("jobs crashed; they will be tried again", error, jobs=ids, attempt=batch[0].attempt)
            done = [False] * len(batch)
        with self._lock:
            for held, is_done in zip(batch, done, strict=True):
                if is_done:
                    del self._held[held.job.principal, held.job.id]
                    continue
                delay_s = delay_ms(held.attempt, random.random(), _RETRY) / 1000
                held.attempt, held.again_at = held.attempt + 1, time.monotonic() + delay_s
            is_news = self._is_full or not all(done)
        if is_news:
            self._wake.set()
        return len(batch)


def _batch_of(job: Job) -> tuple[object, ...]:
    """Jobs of which this is the same are carried out together."""
    if job.kind == STREAM:
        return job.kind, job.namespace, job.name
    return job.kind, job.principal, job.id
