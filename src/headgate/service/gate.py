"""The gate: one queue for each table, drained by one leader at a time, each drain published by one swap.

    submit ─▶ queue of the table ─▶ leader: drain ─▶ judge one after the other ─▶ one swap ─▶ answers
                                       ▲                                                        │
                                       └──────────── what has come meanwhile ◀──────────────────┘

A single writer waits for nobody: the first to come starts a leader at once, and what arrives while it works is its
next group. Leaders of different tables take turns on a few threads, a group each, so a busy table cannot starve the
others. A queue is bounded; over its bound a request is refused before anything is done. A commit of several tables
holds all their gates while it runs, in one order for everybody.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from headgate.core.commit import Committed, Refused, Target, Unknown, Verdict
from headgate.errors import CommitUnknown, QueueFull
from headgate.service.commit_records import Work
from headgate.service.logs import log_crash
from headgate.service.metrics import Metrics

Done = Callable[[Verdict], None]
# Drive one group: the works, whom to tell each verdict, whether remembered heads will do. False: a swap was lost.
RunGroup = Callable[[Sequence[Work], Callable[[int, Verdict], None], bool], bool]

_CALM_S = 5.0  # so long after a swap was lost to somebody else, remembered heads are not trusted
_IDLE_GATES_MAX = 10_000


@dataclass(slots=True)
class _Waiting:
    work: Work
    done: Done
    deadline: float | None  # by the monotonic clock


@dataclass(slots=True)
class _Gate:
    target: Target
    queue: deque[_Waiting] = field(default_factory=deque)
    is_led: bool = False
    held: threading.RLock = field(
        default_factory=threading.RLock
    )  # while a group, or a commit of several tables, runs
    lost_at: float = float("-inf")


class Gates:
    """The gates of one process. Thread-safe."""

    def __init__(self, *, leaders: int, queue_max: int, group_max: int, metrics: Metrics) -> None:
        self._queue_max, self._group_max = queue_max, group_max
        self._metrics = metrics
        self._lock = threading.Lock()
        self._gates: dict[Target, _Gate] = {}
        self._leaders = ThreadPoolExecutor(leaders, thread_name_prefix="headgate-gate")
        self._queued = 0
        self._recent: dict[Target, float] = {}

    def submit(self, work: Work, done: Done, *, run: RunGroup, deadline: float | None = None) -> None:
        """Queue a commit of one table; `done` is called once, by some thread. `run` drives its group. Raises QueueFull."""
        target = work.commits[0].target
        with self._lock:
            gate = self._gates.get(target)
            if gate is None:
                gate = self._gates[target] = self._new_gate(target)
            if len(gate.queue) >= self._queue_max:
                self._metrics.gate_refusals.inc()
                raise QueueFull(
                    f"{'.'.join((*target[0], target[1]))}: {self._queue_max} commits are waiting already"
                )
            gate.queue.append(_Waiting(work, done, deadline))
            self._queued += 1
            starts = not gate.is_led
            gate.is_led = True
        if starts:
            self._leaders.submit(self._lead, gate, run)

    def is_busy(self, target: Target) -> bool:
        """Whether commits of this table are waiting or being made."""
        with self._lock:
            gate = self._gates.get(target)
            return gate is not None and gate.is_led

    def take_recent(self) -> dict[Target, float]:
        """Tables that were committed to since this was asked last, and when, by the monotonic clock."""
        with self._lock:
            recent, self._recent = self._recent, {}
        return recent

    @property
    def depth(self) -> int:
        """How many commits are waiting."""
        return self._queued

    @contextmanager
    def hold(self, targets: Sequence[Target]) -> Iterator[None]:
        """Keep the gates of these tables shut for as long as this lasts; what comes meanwhile waits."""
        with ExitStack() as stack:
            for target in sorted(set(targets)):
                with self._lock:
                    gate = self._gates.get(target)
                    if gate is None:
                        gate = self._gates[target] = self._new_gate(target)
                stack.enter_context(gate.held)
            yield

    def close(self) -> None:
        """Finish what is queued."""
        self._leaders.shutdown(wait=True)

    def _new_gate(self, target: Target) -> _Gate:
        """With the lock held."""
        if len(self._gates) >= _IDLE_GATES_MAX:
            self._gates = {
                t: g for t, g in self._gates.items() if g.is_led or not g.held.acquire(blocking=False)
            }
        return _Gate(target)

    # --- leading -----------------------------------------------------------------------------------------

    def _lead(self, gate: _Gate, run: RunGroup) -> None:
        """Drive one group, then go to the back of the line if more has come."""
        with gate.held:
            group, expired = self._drain(gate)
            for waiting in expired:
                waiting.done(
                    Refused(QueueFull("the commit's time was over before its turn came; nothing was written"))
                )
            if group:
                _drive(gate, group, run)
                self._recent[gate.target] = time.monotonic()
        with self._lock:
            gate.is_led = bool(gate.queue)
            if not gate.is_led:
                return
        self._leaders.submit(self._lead, gate, run)

    def _drain(self, gate: _Gate) -> tuple[list[_Waiting], list[_Waiting]]:
        """The next group in order of arrival; the same key twice is for two groups: the second finds the first's verdict."""
        now = time.monotonic()
        group: list[_Waiting] = []
        expired: list[_Waiting] = []
        keys: set[tuple[str, str]] = set()
        with self._lock:
            while gate.queue and len(group) < self._group_max:
                key = (gate.queue[0].work.caller.principal, gate.queue[0].work.key)
                if key in keys:
                    break
                waiting = gate.queue.popleft()
                self._queued -= 1
                if waiting.deadline is not None and waiting.deadline < now:
                    expired.append(waiting)
                    continue
                keys.add(key)
                group.append(waiting)
        return group, expired


def _drive(gate: _Gate, group: list[_Waiting], run: RunGroup) -> None:
    told: set[int] = set()

    def answer(member: int, verdict: Verdict) -> None:
        told.add(member)
        group[member].done(verdict)

    try:
        works = [waiting.work for waiting in group]
        calm = run(works, answer, time.monotonic() - gate.lost_at > _CALM_S)
        if not calm:
            gate.lost_at = time.monotonic()
    except Exception as error:  # a bug, in whatever of the group: nobody may wait for ever
        log_crash("a group crashed", error, key=group[0].work.key, members=len(group))
        for member, waiting in enumerate(group):
            if member not in told:
                text = "the gate failed; the outcome of this commit is not known"
                waiting.done(Unknown(CommitUnknown(text)))


def to_committed(verdict: Verdict) -> Committed:
    """The verdict of a commit that landed; raises the error of any other."""
    if not isinstance(verdict, Committed):
        raise verdict.error
    return verdict
