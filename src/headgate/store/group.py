"""Group commit: writes that arrive while another is under way share the next transaction.

Theory. There are a few places to write at. Who finds one free takes it at once, alone: nobody waits for company.
Who finds none queues. When a batch ends, its place goes to the one who has waited longest; he takes those behind
him along, up to a bound, and runs all of their work in his thread while they sleep. So a batch is as large as the
one before it was slow.

A member's outcome is set by whoever ran the batch. If that breaks off without a word, the outcome is unknown, which
is never wrong. Knows nothing of databases.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from typing import Generic, TypeVar

from headgate.errors import CommitUnknown, HeadgateError, Overloaded, WouldWait

W = TypeVar("W")
R = TypeVar("R")


class Member(Generic[W, R]):
    """One caller's work, and what became of it."""

    __slots__ = ("_error", "_outcome", "awake", "is_in_hurry", "leads", "work")

    def __init__(self, work: W, *, is_in_hurry: bool = False) -> None:
        self.work = work
        self.is_in_hurry = is_in_hurry  # it waits for nobody long, so it goes alone
        self.leads = False  # it has been given a place to write at
        self.awake = threading.Lock()  # taken while its thread has to sleep
        self._outcome: tuple[R] | None = None
        self._error: BaseException | None = None

    def settle(self, outcome: R) -> None:
        """Its work ended so."""
        self._outcome = (outcome,)

    def fail(self, error: BaseException) -> None:
        """Its work ended in this error, to be raised in its own thread."""
        self._error = error

    def result(self) -> R:
        """The outcome, or its error."""
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # it holds this frame, and must not be held by it
        if self._outcome is None:
            raise CommitUnknown("the thread that wrote for others was interrupted; look for the key")
        return self._outcome[0]


def tell_all(members: Sequence[Member[W, R]], outcomes: Sequence[R | Exception]) -> None:
    """Each of them ended so; an exception among the outcomes is an error."""
    for member, outcome in zip(members, outcomes, strict=True):
        if isinstance(outcome, Exception):
            member.fail(outcome)
        else:
            member.settle(outcome)


def fail_all(members: Sequence[Member[W, R]], error: HeadgateError) -> None:
    """All of them ended in this error. Each gets its own: raising an error changes it."""
    for member in members:
        own = copy(error)
        own.__cause__ = error.__cause__
        member.fail(own)


class Group(Generic[W, R]):
    """The queue before a few places to write at. `run` settles or fails every member it is given.

    Who may do his work himself, alone, asks to `enter` first: a place that is free costs him nothing but that.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Member[W, R]]], None],
        *,
        members_max: int,
        batches_max: int,
        wait_max_s: float,
    ) -> None:
        self._run = run
        self._members_max = members_max
        self._batches_max = batches_max
        self._wait_max_s = wait_max_s
        self._lock = threading.Lock()
        self._running = 0
        self._waiting: deque[Member[W, R]] = deque()  # empty while a place is free

    def enter(self) -> bool:
        """Take a place if one is free. Who took it must `leave` it."""
        with self._lock:
            if self._running < self._batches_max:
                self._running += 1
                return True
            return False

    def leave(self) -> None:
        """The place goes to who has waited longest, or is free."""
        with self._lock:
            if self._waiting:
                self._pass_on()
            else:
                self._running -= 1

    def submit(self, work: W, *, wait_max_s: float | None = None) -> R:
        """Have the work done, with others' or alone; what it gave, or its error.

        Who says how long he waits for a place is told WouldWait after that, and shares his place with nobody: others
        are not to be told so too, and might have to be waited for.
        """
        member: Member[W, R] = Member(work, is_in_hurry=wait_max_s is not None)
        with self._lock:
            if self._running < self._batches_max:
                self._running += 1
                batch = [member]
            else:
                member.awake.acquire()
                self._waiting.append(member)
                batch = []
        if not batch and self._wait(member, wait_max_s):
            batch = self._take_along(member)
        if batch:
            self._lead(batch)
        return member.result()

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._waiting)

    def _wait(self, member: Member[W, R], wait_max_s: float | None) -> bool:
        """Sleep until the work was done (False) or the member is to do it (True)."""
        try:
            if not member.awake.acquire(timeout=self._wait_max_s if wait_max_s is None else wait_max_s):
                self._give_up(member, WouldWait if wait_max_s is not None else Overloaded)
                member.awake.acquire()  # its batch is under way, and ends as batches do
        except BaseException:
            self._withdraw(member)
            raise
        return member.leads

    def _give_up(self, member: Member[W, R], error: type[Overloaded]) -> None:
        with self._lock:
            if member in self._waiting:
                self._waiting.remove(member)
                raise error("the database is busy with other writes; nothing was written")

    def _withdraw(self, member: Member[W, R]) -> None:
        """Leave the queue, or pass on the place that was given meanwhile."""
        with self._lock:
            if member in self._waiting:
                self._waiting.remove(member)
                return
        if member.leads:
            self.leave()

    def _take_along(self, leader: Member[W, R]) -> list[Member[W, R]]:
        with self._lock:
            batch = [leader]
            while self._waiting and len(batch) < self._members_max:
                if leader.is_in_hurry or self._waiting[0].is_in_hurry:
                    break
                batch.append(self._waiting.popleft())
            return batch

    def _lead(self, batch: Sequence[Member[W, R]]) -> None:
        try:
            self._run(batch)
        finally:
            self.leave()
            for other in batch[1:]:
                other.awake.release()

    def _pass_on(self) -> None:
        """The place goes to who has waited longest. The lock is held, and somebody waits."""
        leader = self._waiting.popleft()
        leader.leads = True
        leader.awake.release()
