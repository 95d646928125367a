"""The library's driver of the commit conversation: effects of `core.flow` carried out on a catalog and a FileIO.

`Driver` knows everything but how to wait; `drive` and `drive_async` are the two ways to do that. Never decides anything
about a commit itself, and deletes only what a load has proved to be nobody's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, TypeVar

from headgate.core.backoff import delay_ms
from headgate.core.build import PlanEffect
from headgate.core.commit import (
    Answer,
    Candidate,
    Committed,
    Discard,
    Effect,
    Enough,
    Head,
    Load,
    Loaded,
    Refused,
    Reply,
    Swap,
    SwapLost,
    Swapped,
    SwapRefused,
    SwapUnknown,
    TableCommit,
    Target,
    Unknown,
    Verdict,
    Wait,
)
from headgate.core.flow import commit_flow
from headgate.core.locations import find_spellings
from headgate.core.table import Snapshot
from headgate.errors import (
    CommitRefused,
    CommitUnknown,
    HeadgateError,
    InvariantBroken,
    NotFound,
    Overloaded,
    StorageFailed,
)
from headgate.library.adapters import Heard, hear, to_error
from headgate.library.manifests import Manifests
from headgate.library.pending_files import PendingFiles
from headgate.library.policy import Attempted, Ended, Event, Policy, Waited, word_of
from headgate.library.proof import Outcome, find_landed, find_outcome, snapshots_of
from headgate.library.roads import Road, Sent

_T = TypeVar("_T")
# Who holds a turn needs milliseconds, on an object store tenths of a second; one that is stopped must not stop others.
_TURN_MAX_S = 5.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so long, then go on."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Work:
    """One commit: what to do, under which key, and the files that were written for it alone.

    `key_is_given`: the caller's key may have landed before, in another process. `written` are the data files that the
    library itself wrote; they go when the commit is certainly refused.
    """

    commit: TableCommit
    key: str
    key_is_given: bool = False
    written: tuple[str, ...] = ()

    @property
    def only_loads(self) -> bool:
        """Whether there is nothing to commit: the head is all that is asked for."""
        return not self.commit.updates


@dataclass(frozen=True, slots=True)
class Done:
    """A commit that landed: the head as this process knows it, and the last snapshot that the commit made."""

    head: Head
    snapshot: Snapshot | None
    attempts: int
    replayed: bool


class Aside(Protocol):
    """Does a piece of work beside the event loop."""

    async def __call__(self, work: Callable[[], _T]) -> _T:
        """Do it, and give its result."""


def drive(driver: Driver) -> Done:
    """Carry the conversation through, sleeping in between."""
    while isinstance(step := driver.advance(), Pause):
        driver.clock.sleep_s(step.delay_ms / 1000)
    return step


async def drive_async(driver: Driver, aside: Aside) -> Done:
    """Carry the conversation through without holding up the event loop."""
    while isinstance(step := await aside(driver.advance), Pause):
        await asyncio.sleep(step.delay_ms / 1000)
    return step


def load_head(road: Road, policy: Policy) -> Head:
    """The head of now; what is busy is asked again, within the policy's bounds."""
    work = Work(TableCommit(((), road.name), (), ()), "")
    return drive(Driver(road, Manifests(), policy, work, None)).head


def _load_flow(target: Target) -> Generator[Effect, Reply, Verdict]:
    loaded = yield Load((target,), 1)
    return Committed(loaded.heads if isinstance(loaded, Loaded) else ())


class Driver:
    """State of one conversation."""

    def __init__(
        self, road: Road, manifests: Manifests, policy: Policy, work: Work, head: Head | None
    ) -> None:
        self._road, self._manifests, self._policy, self._work = road, manifests, policy, work
        self.clock = policy.clock
        self._bounds = policy.bounds({} if head is None else head.metadata.envelope.properties)
        self._files = PendingFiles(road.io)
        self._fresh = frozenset(one for path in work.written for one in find_spellings(path))
        self._sent: list[Sent] = []
        self._unseen: Sent | None = None  # the last swap, until a load has followed it
        self._head = head
        self._flow: Generator[Effect, Reply, Verdict] = (
            _load_flow(work.commit.target)
            if work.only_loads
            else commit_flow((work.commit,), key=work.key, attempts_max=self._bounds.retries_max + 1)
        )
        self._reply: Reply = None
        self._failed: HeadgateError | None = None
        self._again: Load | None = None  # a load that failed, to be tried again
        self._enough = ""  # why there is no further attempt
        self._looked_at: int | None = None  # the newest snapshot that was searched for a key of the caller's
        self._turn = ExitStack()
        self._started_s = self.clock.now_s()
        self._attempts = self._pauses = self._waited_ms = self._last_wait_ms = 0

    def advance(self) -> Pause | Done:
        """Go on until there is something to wait for, or a verdict; raises the error of a refusal."""
        with self._turn:  # nobody waits, or goes away, with a turn in hand
            return self._advance()

    def _advance(self) -> Pause | Done:
        while True:
            effect: Effect
            if self._again is not None:
                effect, self._again = self._again, None
            else:
                try:
                    effect = (
                        self._flow.send(self._reply) if self._failed is None else self._throw(self._failed)
                    )
                except StopIteration as stop:
                    return self._conclude(stop.value)
            if isinstance(effect, Wait):
                pause = self._wait("the swap was not made")
                if isinstance(pause, Pause):
                    self._reply = None
                    return pause
                self._reply, self._enough = pause, pause.reason
                continue
            try:
                reply = self._carry_out(effect)
            except HeadgateError as error:
                if not isinstance(effect, PlanEffect):
                    return self._conclude(Refused(error))
                self._failed = error  # the flow knows what it had written before, and has it discarded
                continue
            if isinstance(reply, Pause):
                return reply
            self._reply = reply

    def _throw(self, failed: HeadgateError) -> Effect:
        self._failed = None
        return self._flow.throw(failed)

    def _carry_out(self, effect: Effect) -> Reply | Pause:
        match effect:
            case Load():
                return self._load(effect)
            case Swap():
                return self._swap(effect)
            case Discard():
                for candidate in effect.candidates:
                    self._discard(candidate)
            case Answer() | Wait():
                pass
            case _:
                return self._manifests.answer(effect, self._files, self._fresh)
        return None

    # --- waiting -----------------------------------------------------------------------------------------

    def _wait(self, reason: str) -> Pause | Enough:
        """How long until the next attempt; `Enough` when time or the budget of the process is used up."""
        self._pauses += 1
        wait_ms = delay_ms(self._pauses, self.clock.draw(), self._bounds, previous_ms=self._last_wait_ms)
        elapsed_ms = self._elapsed_ms()
        if elapsed_ms + wait_ms >= self._bounds.total_max_ms:
            return Enough(
                f"{self._road.name}: the commit took {elapsed_ms} ms and {self._attempts} attempts; "
                f"commit.retry.total-timeout-ms is {self._bounds.total_max_ms}; try again"
            )
        if not self._policy.budget.take():
            return Enough(
                f"{self._road.name}: this process has used up its retries without a commit landing; try later"
            )
        self._waited_ms += wait_ms
        self._last_wait_ms = wait_ms
        self._tell(Waited(self._road.name, self._work.key, self._attempts, wait_ms, reason))
        return Pause(wait_ms)

    def _elapsed_ms(self) -> int:
        return int((self.clock.now_s() - self._started_s) * 1000)

    def _tell(self, event: Event) -> None:
        if self._policy.observer is not None and (not self._work.only_loads or isinstance(event, Waited)):
            self._policy.observer(event)

    # --- loads -------------------------------------------------------------------------------------------

    def _load(self, effect: Load) -> Reply | Pause:
        self._take_turn()
        try:
            head = self._road.load()
        except HeadgateError:
            raise
        except Exception as error:  # outermost edge: of foreign code; a load changes nothing
            return self._load_again(effect, error)
        self._head, self._attempts, self._unseen = head, effect.attempt, None
        self._tell(Attempted(self._road.name, self._work.key, effect.attempt))
        outcomes = {self._outcome(sent) for sent in self._sent}
        landed = Outcome.LANDED in outcomes
        if self._work.key_is_given:
            # Another process may bring the same key meanwhile: every load is looked at, each snapshot once.
            landed = landed or find_landed(self._work.key, head, after=self._looked_at) is not None
            self._looked_at = next((item.key for item in reversed(head.metadata.snapshots)), None)
        if Outcome.UNTOLD in outcomes and not landed:  # another swap might do it twice
            raise CommitRefused(f"{self._road.name}: the table moved on, and what would tell has expired")
        return Loaded((head,), frozenset((0,)) if landed else frozenset(), self.clock.now_ms())

    def _take_turn(self) -> None:
        if self._policy.turns and not self._work.only_loads:
            self._turn.close()
            left_s = self._bounds.total_max_ms / 1000 - (self.clock.now_s() - self._started_s)
            self._turn.enter_context(self._road.turn(timeout_s=min(_TURN_MAX_S, left_s)))

    def _load_again(self, effect: Load, error: Exception) -> Pause:
        failed = to_error(error, self._road.name)
        if hear(error, sent=False) is Heard.REFUSED or self._pauses >= self._bounds.retries_max:
            raise failed from error
        pause = self._wait(failed.message)
        if isinstance(pause, Enough):
            raise failed from error
        self._again = effect
        return pause

    # --- the swap ----------------------------------------------------------------------------------------

    def _swap(self, effect: Swap) -> Reply:
        (candidate,) = effect.candidates
        try:
            self._files.flush()
        except StorageFailed as error:
            return SwapRefused(error)
        try:
            sent = self._road.swap(candidate, self._work.commit)
        except StorageFailed as error:  # its metadata file could not be written
            return SwapRefused(error)
        self._turn.close()
        self._sent.append(sent)
        self._unseen = sent
        match sent.heard:
            case None:
                self._head = head = sent.head or _known(self._head)
                return Swapped((head,))
            case Heard.LOST | Heard.BUSY:
                return SwapLost()
            case Heard.UNKNOWN:
                return SwapUnknown()
            case Heard.REFUSED:
                return SwapRefused(sent.error or CommitRefused(f"{self._road.name}: the catalog refused"))

    def _discard(self, candidate: Candidate) -> None:
        """Delete the files of a candidate that was never sent, or is proved to have missed."""
        sent = next((one for one in self._sent if one.candidate is candidate), None)
        if sent is not None and self._outcome(sent) is not Outcome.MISSED:
            return
        files = candidate.written
        if sent is not None:
            self._sent.remove(sent)
            files = (*files, sent.location) if sent.location is not None else files
        self._files.discard(files)

    def _outcome(self, sent: Sent) -> Outcome:
        return find_outcome(sent, None if sent is self._unseen else self._head)

    # --- verdicts ----------------------------------------------------------------------------------------

    def _conclude(self, verdict: Verdict) -> Done:
        doubts: list[Heard | None] = []
        is_beaten = False
        for sent in tuple(self._sent):
            outcome = self._outcome(sent)
            if outcome is Outcome.MISSED:
                self._discard(sent.candidate)
            elif outcome is Outcome.BEATEN:
                is_beaten = True
            # "Lost" is hearsay until a load shows another head: a resend of the client may have met its own commit.
            elif outcome is not Outcome.LANDED:
                doubts.append(sent.heard)
        if isinstance(verdict, Refused) and doubts and not _is_gone(verdict.error, doubts):
            text = f"the outcome of this commit is not known: {verdict.error.message}"
            verdict = Unknown(CommitUnknown(text, key=self._work.key))
        elif isinstance(verdict, Unknown) and not doubts:
            # The flow cannot know that the catalog was busy, and that nothing has left.
            text = (
                f"{self._road.name}: {self._attempts} attempts were not made: the catalog is busy; try later"
            )
            verdict = Refused(CommitRefused(self._enough or text))
        self._tell(self._describe(verdict))
        match verdict:
            case Committed():
                head = _known(self._head)
                if self._work.only_loads:
                    return Done(head, None, self._attempts, replayed=False)
                self._policy.budget.fill()
                return Done(head, self._find_snapshot(head), self._attempts, verdict.replayed)
            case Refused(error=error):
                if doubts or is_beaten:
                    # The table is gone, and may hold the files under another name; or a late copy may bring them.
                    error.evidence["in_doubt"] = True
                else:
                    self._files.discard(self._work.written)
                if isinstance(error, Overloaded | StorageFailed) and not self._work.only_loads:
                    error.evidence["key"] = self._work.key  # it holds for this commit: nothing was done
                raise error
            case Unknown(error=unknown):
                unknown.evidence.setdefault("key", self._work.key)
                raise unknown

    def _find_snapshot(self, head: Head) -> Snapshot | None:
        """The last snapshot that the commit made."""
        for sent in self._sent:
            made = snapshots_of(sent.candidate)
            if made and self._outcome(sent) is Outcome.LANDED:
                return head.metadata.find_snapshot(made[-1].snapshot_id) or made[-1]
        return find_landed(self._work.key, head)

    def _describe(self, verdict: Verdict) -> Ended:
        word = "committed" if isinstance(verdict, Committed) else word_of(verdict.error)
        return Ended(
            self._road.name, self._work.key, word, self._attempts, self._waited_ms, self._elapsed_ms()
        )


def _is_gone(error: HeadgateError, doubts: Sequence[Heard | None]) -> bool:
    """Whether the last look found no table, and no reply left it open whether there had been a commit before."""
    return isinstance(error, NotFound) and error.kind == "table" and Heard.UNKNOWN not in doubts


def _known(head: Head | None) -> Head:
    if head is None:
        raise InvariantBroken("invariant broken: a swap without a load")
    return head
