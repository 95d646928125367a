"""The gate: one queue for each table, drained by one leader at a time, each drain published by one swap.

    submit ─▶ queue of the table ─▶ leader: drain ─▶ judge one after the other ─▶ one swap ─▶ answers
                                       ▲                                                        │
                                       └──────────── what has come meanwhile ◀──────────────────┘

A single writer waits for nobody: the first to come starts a leader at once, and what arrives while it works is its
next group; where a group is dear, it waits for those who were just answered (see `company`). Leaders of different
tables take turns on a few threads, a group each, so a busy table cannot starve the others.

Where nothing is far (a database file, a local disk), a group is led on the event loop instead, for as long as it need
not wait, and goes on in a thread then: two threads that hand one interpreter and its caches to each other cost a quarter
more than one (docs/adr/0011).

Where replicas take turns at a table, a leader waits for its own before it drains the queue: who comes meanwhile is in
the group. A leader that goes without (nothing is known of the table yet, or the wait was too long) and loses a race takes
one before the next. A queue is bounded; over its bound a request is refused before anything is done. A commit of several
tables holds all their gates while it runs, in one order for everybody; a held gate takes no thread, and groups and holds
of one gate take turns.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Protocol

from headgate.core.commit import Committed, Refused, Target, Unknown, Verdict
from headgate.errors import CommitUnknown, QueueFull
from headgate.service.commit_records import Work
from headgate.service.company import Company
from headgate.service.logs import log_crash
from headgate.service.metrics import Metrics

Done = Callable[[Verdict], None]


class Pause(Enum):
    """Why a group that may not wait has not ended. Nothing is amiss: it goes on from where it was."""

    HAS_TO_WAIT = "has to wait"
    HAS_MORE = "has more to do"  # and others were to have their turn
    TRIES_AGAIN = "tries again"  # its swap was lost to another replica, or may be; also where it may wait


class GroupUnderWay(Protocol):
    """A group that is being driven."""

    def go_on(self, *, may_wait: bool) -> bool | Pause:
        """To its end; False: others commit too. Or to a pause: where it may wait only `TRIES_AGAIN`."""


# The works, whom to tell each verdict, whether remembered heads will do.
BeginGroup = Callable[[Sequence[Work], Callable[[int, Verdict], None], bool], GroupUnderWay]

# The table's turn among replicas, for as long as the context lasts: a courtesy that never raises. All take it, or who
# has met nobody yet and does not would win every swap from those who have.
TakeTurn = Callable[[Target], AbstractContextManager[object]]

# Has something called on the event loop before long; from any thread.
Soon = Callable[[Callable[[], None]], object]

# Whether this thread is the event loop's, and whoever submits is the only one who could: a commit of his is led where it
# is submitted, since there is nobody to wait for.
IsAlone = Callable[[], bool]

_CALM_S = 5.0  # so long after a commit of somebody else was met, remembered heads are not trusted
_IDLE_GATES_MAX = 10_000
_HERE_MAX = 64  # commits of a group that is led on the event loop
_SLOW_S = 0.25  # a group on the event loop may take: a disk that is slower is waited for in threads
_SLOW_FOR_S = 5.0


@dataclass(slots=True)
class _Waiting:
    work: Work
    done: Done
    begin: BeginGroup
    deadline: float | None  # by the monotonic clock
    is_small: bool


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
    def is_free(self) -> bool:
        """Whether the next group may be led."""
        return not (self.is_led or self.is_held or self.holders)

    @property
    def is_calm(self) -> bool:
        return time.monotonic() - self.met_at > _CALM_S


def _never() -> bool:
    return False


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
        self._lock = (
            threading.Lock()
        )  # taken as it is: by way of the condition it would be a call of Python, twice
        self._changed = threading.Condition(self._lock)
        self._gates: dict[Target, _Gate] = {}
        self._leaders = ThreadPoolExecutor(leaders, thread_name_prefix="headgate-gate")
        self._queued = 0
        self._lined_up = 0  # gates whose leader has not begun
        self._recent: dict[Target, float] = {}
        self._soon: Soon | None = None
        self._is_alone: IsAlone = _never
        self._slow_until = float("-inf")
        self.is_closing = False

    def lead_by(self, soon: Soon | None, is_alone: IsAlone | None = None) -> None:
        """Lead groups on the event loop, for as long as they need not wait; None: in threads only."""
        with self._lock:
            self._soon, self._is_alone = soon, is_alone or _never

    def submit(
        self,
        work: Work,
        done: Done,
        *,
        begin: BeginGroup,
        deadline: float | None = None,
        is_small: bool = False,
    ) -> None:
        """Queue a commit of one table; `done` is called once, by some thread. `begin` begins its group. Raises QueueFull.

        Groups of small ones may be led on the event loop, also before this returns.
        """
        target = work.commits[0].target
        with self._lock:
            if self.is_closing:
                raise QueueFull("the service is stopping; nothing was written")
            gate = self._find_gate(target)
            if len(gate.queue) >= self._queue_max:
                self._metrics.gate_refusals.inc()
                raise QueueFull(
                    f"{'.'.join((*target[0], target[1]))}: {self._queue_max} commits are waiting already"
                )
            waiting = _Waiting(work, done, begin, deadline, is_small)
            is_alone = is_small and not gate.queue and self._is_alone() and gate.is_free
            is_late = deadline is not None and deadline < time.monotonic()
            if not is_alone or is_late or not self._may_lead_here():
                gate.queue.append(waiting)
                self._queued += 1
                gate.company.note(len(gate.queue))
                if gate.is_free:
                    self._start(gate)
                return
            gate.is_led = True
        self._drive_here(gate, _Driven(gate, [waiting]))

    def is_busy(self, target: Target) -> bool:
        """Whether commits of this table are waiting or being made."""
        with self._lock:
            gate = self._gates.get(target)
            return gate is not None and not gate.is_idle

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
                stack.enter_context(self._hold_one(target))
            yield

    @contextmanager
    def _hold_one(self, target: Target) -> Iterator[None]:
        with self._lock:
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
            with self._lock:
                gate.is_held = False
                if gate.queue:  # also when others wait to hold it: they come after the next group
                    self._start(gate)
                self._changed.notify_all()

    def close(self) -> None:
        """Finish what is queued, and take nothing more. Safe to call twice."""
        with self._lock:
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
        if not (gate.queue[0].is_small and self._may_lead_here()) or not self._ask_loop(
            partial(self._lead_here, gate)
        ):
            self._leaders.submit(self._lead, gate)

    def _may_lead_here(self) -> bool:
        """With the lock held; only groups of small commits are led here."""
        return self._soon is not None and time.monotonic() >= self._slow_until

    def _lead_here(self, gate: _Gate) -> None:
        """On the event loop: drive one group as far as it goes without waiting; a thread drives it to its end."""
        with self._lock:
            self._lined_up -= 1
        self._drive_here(gate, self._begin(gate, min(self._group_max, _HERE_MAX), only_small=True))

    def _drive_here(self, gate: _Gate, driven: _Driven) -> None:
        """A stretch of a group; between two of them the event loop does what else there is to do."""
        started = time.monotonic()
        pause = driven.go_on(may_wait=False)
        ended = time.monotonic()
        if ended - started > _SLOW_S:
            self._slow_until = ended + _SLOW_FOR_S
        if pause is None:
            self._end(gate, driven)
        elif pause is Pause.HAS_TO_WAIT or not self._ask_loop(partial(self._drive_here, gate, driven)):
            with self._lock:
                self._lined_up += 1
            self._leaders.submit(self._go_on, gate, driven)

    def _ask_loop(self, callback: Callable[[], None]) -> bool:
        """False: there is none, or it has ended."""
        soon = self._soon
        try:
            if soon is not None:
                soon(callback)
        except RuntimeError:
            soon = self._soon = None
        return soon is not None

    def _go_on(self, gate: _Gate, driven: _Driven) -> None:
        with self._lock:
            self._lined_up -= 1
        self._drive(gate, driven, has_turn=False)
        self._end(gate, driven)

    def _lead(self, gate: _Gate) -> None:
        """Drive one group after the other, for as long as no other table waits for a leader."""
        with self._lock:
            self._lined_up -= 1
        while self._lead_one(gate):
            pass

    def _lead_one(self, gate: _Gate) -> bool:
        """Drive one group; then whoever waits to hold the gate has it. True: what has come meanwhile is to be led."""
        gate.company.wait(lambda: len(gate.queue))
        with self._take_turn(gate.target) as is_ours:
            started = time.monotonic()
            driven = self._begin(gate, self._group_max)
            self._drive(gate, driven, has_turn=bool(is_ours))
        with self._lock:
            ended = time.monotonic()
            self._let_go(gate, driven, ended)
            if driven.group and self._seeks_company:
                back = min(len(driven.group) + len(gate.queue), self._group_max)
                gate.company.expect(back, took_s=ended - started)
            if not gate.queue or gate.holders:
                return False
            if self._lined_up or (gate.queue[0].is_small and self._may_lead_here()):
                self._start(gate)
                return False
            gate.is_led = True
            return True

    def _drive(self, gate: _Gate, driven: _Driven, *, has_turn: bool) -> None:
        """To its end. Who lost a race without a turn takes one: those who have theirs would win the next one too."""
        with ExitStack() as turns:
            while driven.go_on(may_wait=True) is not None:
                has_turn = has_turn or bool(turns.enter_context(self._take_turn(gate.target)))

    @contextmanager
    def turns_at(self, targets: Sequence[Target]) -> Iterator[None]:
        """The turns of these tables, in one order for everybody."""
        with ExitStack() as turns:
            for target in sorted(set(targets)):
                turns.enter_context(self._take_turn(target))
            yield

    def _begin(self, gate: _Gate, group_max: int, *, only_small: bool = False) -> _Driven:
        """The next group; those whose time is over are told so."""
        group, expired = self._drain(gate, group_max, only_small=only_small)
        for waiting in expired:
            text = "the commit's time was over before its turn came; nothing was written"
            _tell(waiting, Refused(QueueFull(text)))
        return _Driven(gate, group)

    def _end(self, gate: _Gate, driven: _Driven) -> None:
        """The group has ended: what has come meanwhile is led next, unless somebody waits to hold the gate."""
        with self._lock:
            self._let_go(gate, driven, time.monotonic())
            if gate.queue and not gate.holders:
                self._start(gate)

    def _let_go(self, gate: _Gate, driven: _Driven, ended: float) -> None:
        """With the lock held: nobody leads the gate. Who waits to hold it has it now."""
        if driven.group:
            self._recent[gate.target] = ended
        gate.is_led = False
        if gate.holders or (self.is_closing and not gate.queue):
            self._changed.notify_all()

    def _drain(
        self, gate: _Gate, group_max: int, *, only_small: bool
    ) -> tuple[list[_Waiting], list[_Waiting]]:
        """The next group in order of arrival; the same key twice is for two groups: the second finds the first's verdict."""
        now = time.monotonic()
        group: list[_Waiting] = []
        expired: list[_Waiting] = []
        keys: set[tuple[str, str]] = set()
        with self._lock:
            while gate.queue and len(group) < group_max:
                key = (gate.queue[0].work.caller.principal, gate.queue[0].work.key)
                if key in keys or (only_small and not gate.queue[0].is_small):
                    break
                waiting = gate.queue.popleft()
                self._queued -= 1
                if waiting.deadline is not None and waiting.deadline < now:
                    expired.append(waiting)
                    continue
                keys.add(key)
                group.append(waiting)
        return group, expired


class _Driven:
    """A group, and who of it was told. Whatever happens to it, everybody is told something, once."""

    def __init__(self, gate: _Gate, group: list[_Waiting]) -> None:
        self.group = group
        self._gate = gate
        self._told: set[int] = set()
        self._under_way: GroupUnderWay | None = None

    def go_on(self, *, may_wait: bool) -> Pause | None:
        """Drive it to its end, or to a pause."""
        if not self.group:
            return None
        try:
            if self._under_way is None:
                works = [waiting.work for waiting in self.group]
                self._under_way = self.group[0].begin(works, self._answer, self._gate.is_calm)
            is_calm = self._under_way.go_on(may_wait=may_wait)
            if isinstance(is_calm, Pause):
                return is_calm
            self._under_way = None  # which knows whom to tell, and so this
            if is_calm is not True:
                self._gate.met_at = time.monotonic()
        except Exception as error:  # outermost edge of this thread: a bug, and the table's gate must go on
            self._under_way = None
            log_crash("a group crashed", error, key=self.group[0].work.key, members=len(self.group))
        for member, waiting in enumerate(self.group):
            if member not in self._told:  # nobody may wait for ever
                text = "the gate failed; the outcome of this commit is not known"
                _tell(waiting, Unknown(CommitUnknown(text)))
        return None

    def _answer(self, member: int, verdict: Verdict) -> None:
        self._told.add(member)
        _tell(self.group[member], verdict)


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
