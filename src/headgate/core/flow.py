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
from dataclasses import dataclass, replace

from headgate.core.apply import Applying, find_format_version
from headgate.core.change import ChangeUpdate
from headgate.core.conflicts import Finding, to_error
from headgate.core.intake import Change, take_in
from headgate.core.locations import LocationPolicy
from headgate.core.manifest import ManifestFile
from headgate.core.plan import Plan, PlanEffect, Planning, PlanReply, judge_only, plan_change
from headgate.core.requirements import find_failed
from headgate.core.table import MetadataLogEntry, TableMetadata
from headgate.core.updates import AddSnapshot, AssertCreate, SetSnapshotRef, TableRequirement, TableUpdate
from headgate.errors import BadInput, CommitRefused, CommitUnknown, HeadgateError, InvariantBroken, NotFound

Target = tuple[tuple[str, ...], str]  # namespace levels and name

ATTEMPTS_MAX = 20
CHANGES_MAX = 100  # of one request, over all its tables: each writes files and makes a snapshot


@dataclass(frozen=True, slots=True)
class TableCommit:
    """The commit of one table: what must hold, and what to change, by plain updates and by changes, in order.

    `reads` is a read set: validations without a change. A table with a read set alone is judged, not written.
    `field` is where the commit stands in its request, as the names of its fields begin.
    """

    target: Target
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate | ChangeUpdate, ...]
    reads: ChangeUpdate | None = None
    field: str = ""

    def path(self, part: str) -> str:
        """A field of this commit as errors name it."""
        return f"{self.field}.{part}" if self.field else part

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
    written: tuple[str, ...] = ()  # manifests and lists written for it
    updates: tuple[TableUpdate, ...] = ()  # what was applied, changes as the plain updates they amount to


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
    """Write what must be written before, then publish all candidates in one transaction with our key.

    `unchanged` are heads that were only read: the same transaction must find them as they were.
    """

    candidates: tuple[Candidate, ...]
    unchanged: tuple[Head, ...]
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
    """Delete the files written for these candidates: never sent, or a load proved that they missed for good."""

    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Back off before attempt number `attempt`; the driver knows how long that is."""

    attempt: int


Effect = Load | Swap | Discard | Wait | PlanEffect
Reply = Loaded | Swapped | SwapLost | SwapRefused | SwapUnknown | PlanReply | None


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
    commits: tuple[TableCommit, ...],
    *,
    key: str,
    policy: LocationPolicy | None = None,
    attempts_max: int = ATTEMPTS_MAX,
) -> Generator[Effect, Reply, Verdict]:
    """Judge the commits against the heads, and publish them all by one swap."""
    targets = tuple(commit.target for commit in commits)
    sent: list[_Judged] = []
    refusal: HeadgateError | None = None
    for attempt in range(1, attempts_max + 2):
        loaded = yield Load(targets, attempt)
        if not isinstance(loaded, Loaded):
            raise InvariantBroken(f"invariant broken: a load was answered by {type(loaded).__name__}")
        if loaded.landed:
            return Committed(loaded.heads, replayed=True)
        standing = [judged for judged in sent if _stands(judged, targets, loaded)]
        if refusal is not None and sent and sent[-1] in standing:
            standing.remove(sent[-1])
        for judged in sent:
            if judged not in standing:
                yield Discard(judged.candidates)
        sent = standing
        if refusal is not None:
            return _give_up(refusal, sent)
        if attempt > attempts_max:
            break
        judged = yield from _judge(commits, loaded, _Terms(key, policy, loaded.now_ms))
        if judged.refusal is not None:
            if judged.candidates:
                yield Discard(judged.candidates)
            return _give_up(judged.refusal, sent)
        if not judged.candidates:
            return Committed(loaded.heads)  # nothing to change
        sent.append(judged)
        reply = yield Swap(judged.candidates, judged.unchanged, attempt)
        if isinstance(reply, Swapped):
            return Committed(_merge(loaded.heads, targets, judged.candidates, reply.heads), judged.candidates)
        if isinstance(reply, SwapRefused):
            refusal = reply.error
            continue  # look once more before answering: an earlier swap of ours may have landed
        yield Wait(attempt)
    return _give_up(
        CommitRefused(f"the table changed {attempts_max} times while committing; try again"), sent
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """Candidates of the commits that change something, heads that were only read, or why it is all refused."""

    candidates: tuple[Candidate, ...]
    unchanged: tuple[Head, ...] = ()
    refusal: HeadgateError | None = None


@dataclass(frozen=True, slots=True)
class _Terms:
    """What all commits of one attempt are judged under."""

    key: str
    policy: LocationPolicy | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class _Taken:
    """A commit that is well made and whose requirements hold; `changes` by their place among the updates."""

    commit: TableCommit
    head: Head | None
    reads: Change | None
    changes: dict[int, Change]

    @property
    def name(self) -> str:
        """The table's name as errors show it."""
        return ".".join((*self.commit.target[0], self.commit.target[1]))


@dataclass(slots=True)
class _Trail:
    """What judging one commit leaves behind, whether it ends in a candidate or not."""

    written: list[str]
    updates: list[TableUpdate]
    table: TableMetadata | None


def _judge(
    commits: tuple[TableCommit, ...], loaded: Loaded, terms: _Terms
) -> Generator[PlanEffect, PlanReply, _Judged]:
    """Every commit is checked, then every read set judged, and only then is anything written."""
    candidates: list[Candidate] = []
    unchanged: list[Head] = []
    try:
        _check_count(commits)
        all_taken = [_take_in(c, head, terms) for c, head in zip(commits, loaded.heads, strict=True)]
        for taken in all_taken:
            yield from _judge_reads(taken)
    except HeadgateError as error:
        return _Judged((), (), error)
    for taken in all_taken:
        commit, head = taken.commit, taken.head
        trail = _Trail([], [], None if head is None else head.metadata)
        try:
            built = yield from _judge_one(taken, terms, trail)
        except HeadgateError as error:
            if trail.written and trail.table is not None:
                candidates.append(Candidate(commit.target, head, trail.table, tuple(trail.written)))
            return _Judged(tuple(candidates), (), error)
        if built is not None:
            applied = tuple(trail.updates)
            candidates.append(Candidate(commit.target, head, built, tuple(trail.written), applied))
        elif head is not None and (commit.reads is not None or commit.requirements):
            unchanged.append(head)
    return _Judged(tuple(candidates), tuple(unchanged))


def _check_count(commits: tuple[TableCommit, ...]) -> None:
    changes = 0
    for commit in commits:
        changes += sum(isinstance(update, ChangeUpdate) for update in commit.updates)
        if changes > CHANGES_MAX:
            raise BadInput(f"a request takes at most {CHANGES_MAX} changes", field=commit.path("updates"))


def _begin(taken: _Taken, terms: _Terms) -> Applying:
    base = None if taken.head is None else taken.head.metadata
    return Applying(base, now_ms=terms.now_ms, format_version=find_format_version(taken.commit.updates))


def _take_in(commit: TableCommit, head: Head | None, terms: _Terms) -> _Taken:
    """One table's commit, checked before anything is read or written. Raises what is wrong with it."""
    taken = _Taken(commit, head, None, {})
    if head is None and not commit.creates():
        raise NotFound(f"Table does not exist: {taken.name}", kind="table")
    base = None if head is None else head.metadata
    failed = find_failed(commit.requirements, base)
    if failed is not None:
        raise failed
    if commit.reads is not None:
        if base is None:
            raise BadInput(
                "a table that is being created has nothing to read", field=commit.path("commit-validations")
            )
        taken = replace(taken, reads=take_in(commit.reads, base, field=commit.field))
    plain, waiting = _begin(taken, terms), list[TableUpdate]()
    for i, update in enumerate(commit.updates):
        if not isinstance(update, ChangeUpdate):
            waiting.append(update)
            continue
        field = commit.path(f"updates[{i}]")
        for before in waiting:  # what no change follows is applied when the commit is built, and only then
            plain.add(before)
        waiting.clear()
        table = plain.look()
        if table is None:
            raise BadInput("a table needs a schema before its first change", field=field)
        taken.changes[i] = take_in(update, table, field=field, policy=terms.policy)
    return taken


def _judge_reads(taken: _Taken) -> Generator[PlanEffect, PlanReply, None]:
    if taken.reads is None or taken.head is None:
        return
    finding = yield from judge_only(taken.reads, taken.head.metadata)
    if finding is not None:
        raise to_error(finding, taken.name, field=taken.commit.path("commit-validations"))


def _judge_one(
    taken: _Taken, terms: _Terms, trail: _Trail
) -> Generator[PlanEffect, PlanReply, TableMetadata | None]:
    """The metadata after one table's commit, or None when it changes nothing. Raises what refuses it."""
    applying = _begin(taken, terms)
    for i, update in enumerate(taken.commit.updates):
        if not isinstance(update, ChangeUpdate):
            applying.add(update)
            trail.updates.append(update)
            continue
        change = taken.changes[i]
        table = applying.look()
        if table is None:
            raise BadInput("a table needs a schema before its first change", field=change.field)
        trail.table = table
        seed = f"{terms.key}/{taken.name}/{i}"
        planning = plan_change(change, table, seed=seed, now_ms=terms.now_ms)
        planned = yield from _track(planning, trail.written)
        if isinstance(planned, Finding):
            raise to_error(planned, taken.name, field=change.field)
        for added in _publish(planned, table):
            applying.add(added)
            trail.updates.append(added)
    return applying.finish(None if taken.head is None else taken.head.checkpoint)


def _track(planning: Planning, written: list[str]) -> Planning:
    """The same planning, with every file noted when it is written: a later step may fail, and it must go then."""
    try:
        effect = next(planning)
        while True:
            reply = yield effect
            if isinstance(
                reply, ManifestFile | str
            ):  # a written manifest, a written list; no read is so answered
                written.append(reply if isinstance(reply, str) else reply.manifest_path)
            effect = planning.send(reply)
    except StopIteration as stop:
        planned: Plan | Finding = stop.value
        return planned


def _publish(planned: Plan, table: TableMetadata) -> list[TableUpdate]:
    """The plain updates that a plan amounts to; a branch keeps its retention."""
    snapshot = planned.snapshot
    added: list[TableUpdate] = [AddSnapshot(snapshot=snapshot)]
    if planned.branch is not None:
        ref = table.envelope.refs.get(planned.branch)
        added.append(
            SetSnapshotRef(
                ref_name=planned.branch,
                snapshot_id=snapshot.snapshot_id,
                type="branch",
                min_snapshots_to_keep=None if ref is None else ref.min_snapshots_to_keep,
                max_snapshot_age_ms=None if ref is None else ref.max_snapshot_age_ms,
                max_ref_age_ms=None if ref is None else ref.max_ref_age_ms,
            )
        )
    return added


def _stands(judged: _Judged, targets: tuple[Target, ...], loaded: Loaded) -> bool:
    """Whether every head that this swap expected, to change or only read, is still the head: it might yet land."""
    heads = dict(zip(targets, loaded.heads, strict=True))
    tokens = {_token(head) for head in loaded.heads}
    return all(
        _token(candidate.base) == _token(heads[candidate.target]) for candidate in judged.candidates
    ) and all(_token(head) in tokens for head in judged.unchanged)


def _token(head: Head | None) -> tuple[str, int] | None:
    return None if head is None else (head.id, head.version)


def _give_up(error: HeadgateError, sent: list[_Judged]) -> Verdict:
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
