"""The commit conversation: a generator that yields effects and is sent replies. No I/O, clock or logging.

    Load ─▶ (landed? done) ─▶ judge ─▶ Swap ─▶ Swapped: done
      ▲                                  │
      └───── Wait ◀── SwapLost / SwapUnknown

Theory. A reply is a hint; a load is proof. `Swapped` comes from the transaction that moved the heads, so it
is proof too; `SwapLost` and `SwapUnknown` are not. After either, the next `Load` tells: the key is stored
(committed), or it is not and the heads a candidate expected are gone (that candidate missed for good, and
only then are its files discarded), or the heads still stand (the swap may be sent again: the key and the
version predicate let at most one of them land). The last step is always a load; what it cannot decide is
reported as unknown, never as failed.

Service, library and simulator drive this same generator; there is no second retry loop anywhere.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from headgate.core.apply import apply
from headgate.core.requirements import find_failed
from headgate.core.table import MetadataLogEntry, TableMetadata
from headgate.core.updates import AssertCreate, TableRequirement, TableUpdate
from headgate.errors import BadInput, CommitRefused, CommitUnknown, HeadgateError, InvariantBroken, NotFound

Target = tuple[tuple[str, ...], str]  # namespace levels and name

ATTEMPTS_MAX = 20


@dataclass(frozen=True, slots=True)
class PlainCommit:
    """An engine's own commit of one table: what must hold, and what to change."""

    target: Target
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]

    def creates(self) -> bool:
        """Whether it makes the table."""
        return any(isinstance(requirement, AssertCreate) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class Head:
    """A table as it is now. `version` is the token that a swap expects."""

    id: str
    version: int
    metadata: TableMetadata
    metadata_location: str
    checkpoint: MetadataLogEntry | None  # the newest metadata file known to be written


@dataclass(frozen=True, slots=True)
class Candidate:
    """Built metadata that nobody can see yet. `base` is None for a table being created."""

    target: Target
    base: Head | None
    metadata: TableMetadata


# --- effects and replies --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """Read all heads at one point in time, and whether our key is stored. Answered by `Loaded`."""

    targets: tuple[Target, ...]
    attempt: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """Heads in the order asked; `landed` when our key is already stored; the time of this attempt."""

    heads: tuple[Head | None, ...]
    landed: bool
    now_ms: int


@dataclass(frozen=True, slots=True)
class Swap:
    """Write what must be written before, then publish all candidates in one transaction with our key."""

    candidates: tuple[Candidate, ...]
    attempt: int


@dataclass(frozen=True, slots=True)
class Swapped:
    """The transaction committed. `heads` are the new ones, in the order of the candidates."""

    heads: tuple[Head, ...]


@dataclass(frozen=True, slots=True)
class SwapLost:
    """Refused: some head was no longer the expected one."""


@dataclass(frozen=True, slots=True)
class SwapRefused:
    """Refused for a reason that trying again does not cure (a name taken, a location that overlaps)."""

    error: HeadgateError


@dataclass(frozen=True, slots=True)
class SwapUnknown:
    """No answer, or an error from COMMIT itself."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete the files written for these candidates: a load has proved that they missed for good."""

    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Back off before attempt number `attempt`; the driver knows how long that is."""

    attempt: int


Effect = Load | Swap | Discard | Wait
Reply = Loaded | Swapped | SwapLost | SwapRefused | SwapUnknown | None


# --- verdicts -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Committed:
    """All of it is published. `heads` in the order of the commits; `replayed` when a load found our key."""

    heads: tuple[Head | None, ...]
    candidates: tuple[Candidate, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing of it is published, and that is certain."""

    error: HeadgateError


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows yet; nothing was deleted."""

    error: CommitUnknown


Verdict = Committed | Refused | Unknown


def commit_flow(
    commits: tuple[PlainCommit, ...], *, attempts_max: int = ATTEMPTS_MAX
) -> Generator[Effect, Reply, Verdict]:
    """Judge the commits against the heads, and publish them all by one swap."""
    targets = tuple(commit.target for commit in commits)
    sent: list[tuple[Candidate, ...]] = []
    refusal: HeadgateError | None = None
    judged: tuple[Candidate, ...] | HeadgateError = ()
    for attempt in range(1, attempts_max + 2):
        loaded = yield Load(targets, attempt)
        if not isinstance(loaded, Loaded):
            raise InvariantBroken(f"invariant broken: a load was answered by {type(loaded).__name__}")
        if loaded.landed:
            return Committed(loaded.heads, replayed=True)
        standing = [candidates for candidates in sent if _stands(candidates, targets, loaded)]
        if refusal is not None and judged in standing:
            standing.remove(judged)
        for candidates in sent:
            if candidates not in standing:
                yield Discard(candidates)
        sent = standing
        if refusal is not None:
            return _give_up(refusal, sent)
        if attempt > attempts_max:
            break
        judged = judge(commits, loaded)
        if isinstance(judged, HeadgateError):
            return _give_up(judged, sent)
        if not judged:
            return Committed(loaded.heads)  # nothing to change
        sent.append(judged)
        reply = yield Swap(judged, attempt)
        if isinstance(reply, Swapped):
            return Committed(_merge(loaded.heads, targets, judged, reply.heads), judged)
        if isinstance(reply, SwapRefused):
            refusal = reply.error
            continue  # look once more before answering: an earlier swap of ours may have landed
        yield Wait(attempt)
    return _give_up(
        CommitRefused(f"the table changed {attempts_max} times while committing; try again"), sent
    )


def judge(commits: tuple[PlainCommit, ...], loaded: Loaded) -> tuple[Candidate, ...] | HeadgateError:
    """Candidates for the commits that change something, or the first refusal."""
    candidates = []
    for commit, head in zip(commits, loaded.heads, strict=True):
        if head is None and not commit.creates():
            name = ".".join((*commit.target[0], commit.target[1]))
            return NotFound(f"Table does not exist: {name}", kind="table")
        failed = find_failed(commit.requirements, None if head is None else head.metadata)
        if failed is not None:
            return failed
        try:
            built = apply(
                None if head is None else head.metadata,
                commit.updates,
                now_ms=loaded.now_ms,
                previous_file=None if head is None else head.checkpoint,
            )
        except (BadInput, CommitRefused) as error:
            return error
        if built is not None:
            candidates.append(Candidate(commit.target, head, built))
    return tuple(candidates)


def _stands(candidates: tuple[Candidate, ...], targets: tuple[Target, ...], loaded: Loaded) -> bool:
    """Whether every head that these candidates expected is still the head, so that they might yet land."""
    heads = dict(zip(targets, loaded.heads, strict=True))
    return all(_token(candidate.base) == _token(heads[candidate.target]) for candidate in candidates)


def _token(head: Head | None) -> tuple[str, int] | None:
    return None if head is None else (head.id, head.version)


def _give_up(error: HeadgateError, sent: list[tuple[Candidate, ...]]) -> Verdict:
    if sent:
        return Unknown(CommitUnknown(f"the outcome of this commit is not known: {error.message}"))
    return Refused(error)


def _merge(
    loaded: tuple[Head | None, ...],
    targets: tuple[Target, ...],
    candidates: tuple[Candidate, ...],
    swapped: tuple[Head, ...],
) -> tuple[Head | None, ...]:
    new = {candidate.target: head for candidate, head in zip(candidates, swapped, strict=True)}
    return tuple(new.get(target, head) for target, head in zip(targets, loaded, strict=True))
