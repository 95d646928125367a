"""The gate: one queue for each table, drained by one leader at a time, each drain published by one swap.

    submit ─▶ queue of the table ─▶ leader: drain ─▶ judge one after the other ─▶ one swap ─▶ answers
                                       ▲                                                        │
                                       └──────────── what has come meanwhile ◀──────────────────┘

A single writer waits for nobody: the first to come starts a leader at once, and what arrives while it works is its
next group; where a group is dear, it waits for those who were just answered (see `company`). Leaders of different
tables take turns on a few threads, a group each, so a busy table cannot starve the others. Where replicas
take turns at a table, a leader waits for its own before it drains the queue: who comes meanwhile is in the group. A
queue is bounded; over its bound a request is refused before anything is done. A commit of several tables holds all
their gates while it runs, in one order for everybody; a held gate takes no thread, and groups and holds of one gate
take turns.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

from headgate.core.commit import Committed, Refused, Target, Unknown, Verdict
from headgate.errors import CommitUnknown, QueueFull
from headgate.service.commit_records import Work
from headgate.service.company import Company
from headgate.service.logs import log_crash
from headgate.service.metrics import Metrics

Done = Callable[[Verdict], None]
# Drive one group: the works, whom to tell each verdict, whether remembered heads will do. False: others commit too.
RunGroup = Callable[[Sequence[Work], Callable[[int, Verdict], None], bool], bool]

# The table's turn among replicas, for as long as the context lasts: a courtesy that never raises. All take it, or who
# has met nobody yet and does not would win every swap from those who have.
TakeTurn = Callable[[Target], AbstractContextManager[object]]

_CALM_S = 5.0  # so long after a commit of somebody else was met, remembered heads are not trusted
_IDLE_GATES_MAX = 10_000


@dataclass(slots=True)
class _Waiting:
    work: Work
    done: Done
    run: RunGroup
    deadline: float | None  # by the monotonic clock


@dataclass(slots=True)
class _Gate:
    target: Target
    queue: deque[_Waiting] = field(default_factory=deque)
    is_led: bool = False  # a group runs, or is about to
    is_held: bool = False  # a commit of several tables runs
    holders: int = 0  # commits of several tables that wait for this gate
    met_at: float = float("-inf")  # when a commit of somebody else was met
    company: Company = field(default_factory=Company)

    @property
    def is_idle(self) -> bool:
        return not (self.queue or self.is_led or self.is_held or self.holders)

    @property
    def is_calm(self) -> bool:
        return time.monotonic() - self.met_at > _CALM_S


class Gates:
    """The gates of one process. Thread-safe."""

    def __init__(
        self,
        *,
        leaders: int,
        queue_max: int,
        group_max: int,
        metrics: Metrics,
        idle_max: int = _IDLE_GATES_MAX,
        take_turn: TakeTurn = nullcontext,
        seeks_company: bool = False,
    ) -> None:
        self._take_turn, self._seeks_company = take_turn, seeks_company
        self._queue_max, self._group_max, self._idle_max = queue_max, group_max, idle_max
        self._metrics = metrics
        self._changed = threading.Condition(threading.Lock())
        self._gates: dict[Target, _Gate] = {}
        self._leaders = ThreadPoolExecutor(leaders, thread_name_prefix="headgate-gate")
        self._queued = 0
        self._lined_up = 0  # gates whose leader has not begun
        self._recent: dict[Target, float] = {}
        self.is_closing = False

    def submit(self, work: Work, done: Done, *, run: RunGroup, deadline: float | None = None) -> None:
        """Queue a commit of one table; `done` is called once, by some thread. `run` drives its group. Raises QueueFull."""
        target = work.commits[0].target
        with self._changed:
            if self.is_closing:
                raise QueueFull("the service is stopping; nothing was written")
            gate = self._find_gate(target)
            if len(gate.queue) >= self._queue_max:
                self._metrics.gate_refusals.inc()
                raise QueueFull(
                    f"{'.'.join((*target[0], target[1]))}: {self._queue_max} commits are waiting already"
                )
            gate.queue.append(_Waiting(work, done, run, deadline))
            self._queued += 1
            gate.company.note(len(gate.queue))
            if not gate.is_led and not gate.is_held and not gate.holders:
                self._start(gate)

    def is_busy(self, target: Target) -> bool:
        """Whether commits of this table are waiting or being made."""
        with self._changed:
            gate = self._gates.get(target)
            return gate is not None and not gate.is_idle

    def take_recent(self) -> dict[Target, float]:
        """Tables that were committed to since this was asked last, and when, by the monotonic clock."""
        with self._changed:
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
                stack.enter_context(self._hold_one(target))
            yield

    @contextmanager
    def _hold_one(self, target: Target) -> Iterator[None]:
        with self._changed:
            gate = self._find_gate(target)
            gate.holders += 1
            try:
                self._changed.wait_for(lambda: not gate.is_led and not gate.is_held)
            finally:
                gate.holders -= 1
            gate.is_held = True
        try:
            yield
        finally:
            with self._changed:
                gate.is_held = False
                if gate.queue:  # also when others wait to hold it: they come after the next group
                    self._start(gate)
                self._changed.notify_all()

    def close(self) -> None:
        """Finish what is queued, and take nothing more. Safe to call twice."""
        with self._changed:
            self.is_closing = True
            self._changed.wait_for(lambda: not any(g.queue or g.is_led for g in self._gates.values()))
        self._leaders.shutdown(wait=True)

    def _find_gate(self, target: Target) -> _Gate:
        """With the lock held."""
        gate = self._gates.get(target)
        if gate is None:
            if len(self._gates) >= self._idle_max:
                self._gates = {t: g for t, g in self._gates.items() if not g.is_idle}
            gate = self._gates[target] = _Gate(target)
        return gate

    # --- leading -----------------------------------------------------------------------------------------

    def _start(self, gate: _Gate) -> None:
        """With the lock held: have a leader for the next group, at the back of the line."""
        gate.is_led = True
        self._lined_up += 1
        self._leaders.submit(self._lead, gate)

    def _lead(self, gate: _Gate) -> None:
        """Drive one group after the other, for as long as no other table waits for a leader."""
        with self._changed:
            self._lined_up -= 1
        while self._lead_one(gate):
            pass

    def _lead_one(self, gate: _Gate) -> bool:
        """Drive one group; then whoever waits to hold the gate has it. True: what has come meanwhile is to be led."""
        gate.company.wait(lambda: len(gate.queue))
        with self._take_turn(gate.target):
            started = time.monotonic()
            group, expired = self._drain(gate)
            for waiting in expired:
                text = "the commit's time was over before its turn came; nothing was written"
                _tell(waiting, Refused(QueueFull(text)))
            if group:
                _drive(gate, group)
        with self._changed:
            if group:
                ended = self._recent[gate.target] = time.monotonic()
                if self._seeks_company:
                    back = min(len(group) + len(gate.queue), self._group_max)
                    gate.company.expect(back, took_s=ended - started)
            gate.is_led = False
            if gate.holders:
                self._changed.notify_all()
            elif gate.queue and not self._lined_up:
                gate.is_led = True
                return True
            elif gate.queue:
                self._start(gate)
            elif self.is_closing:
                self._changed.notify_all()
        return False

    def _drain(self, gate: _Gate) -> tuple[list[_Waiting], list[_Waiting]]:
        """The next group in order of arrival; the same key twice is for two groups: the second finds the first's verdict."""
        now = time.monotonic()
        group: list[_Waiting] = []
        expired: list[_Waiting] = []
        keys: set[tuple[str, str]] = set()
        with self._changed:
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


def _drive(gate: _Gate, group: list[_Waiting]) -> None:
    told: set[int] = set()

    def answer(member: int, verdict: Verdict) -> None:
        told.add(member)
        _tell(group[member], verdict)

    try:
        works = [waiting.work for waiting in group]
        if not group[0].run(works, answer, gate.is_calm):
            gate.met_at = time.monotonic()
    except Exception as error:  # outermost edge of this thread: a bug, and the table's gate must go on
        log_crash("a group crashed", error, key=group[0].work.key, members=len(group))
    for member, waiting in enumerate(group):
        if member not in told:  # nobody may wait for ever
            text = "the gate failed; the outcome of this commit is not known"
            _tell(waiting, Unknown(CommitUnknown(text)))


def _tell(waiting: _Waiting, verdict: Verdict) -> None:
    try:
        waiting.done(verdict)
    except Exception as error:  # outermost edge of this thread: who has gone keeps nobody else waiting
        log_crash("a verdict was not delivered", error, key=waiting.work.key)


def to_committed(verdict: Verdict) -> Committed:
    """The verdict of a commit that landed; raises the error of any other."""
    if not isinstance(verdict, Committed):
        raise verdict.error
    return verdict
