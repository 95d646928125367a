"""Judging the members of a group, one after the other, each against the head as the ones before it leave it.

`chain`: a snapshot for each member, exactly as if they had come one by one. `fold`: appends that commute (no
validation, nothing but files to add) share one snapshot, which each of them gets. Nothing here is visible to anybody
until the conversation in `flow` swaps it in.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from headgate.core.append_at_once import append_at_once, is_blind_append
from headgate.core.apply import Applying, find_format_version
from headgate.core.build import Plan, PlanEffect, PlanReply
from headgate.core.change import ChangeUpdate
from headgate.core.client_snapshot import NotRebasable
from headgate.core.commit import Candidate, Head, Judged, Member, Refusal, Share, TableCommit, Target
from headgate.core.conflicts import Finding, to_error
from headgate.core.fold import Fold, find_foldable
from headgate.core.intake import take_in
from headgate.core.locations import LocationPolicy, find_spellings
from headgate.core.manifest import ManifestFile
from headgate.core.plan import judge_only, plan_change
from headgate.core.rebase import is_landed, parse_rebase, rebase_commit
from headgate.core.requirements import find_changed, find_failed
from headgate.core.snapshot_ids import seed_of
from headgate.core.stream_progress import find_passed
from headgate.core.table import TableMetadata
from headgate.core.taken import Change
from headgate.core.updates import AddSnapshot, SetSnapshotRef, TableUpdate
from headgate.core.value import Record
from headgate.errors import (
    BadInput,
    CommitRefused,
    HeadgateError,
    InvariantBroken,
    NotFound,
    without_frames,
)

GROUP_PROPERTY = "headgate.group"
FOLD, CHAIN = "fold", "chain"
NOT_REBASED = "not-rebased"  # evidence of a refusal: why the table's wish to have it rebased did not help
CHANGES_MAX = 100  # of one request, over all its tables: each writes files and makes a snapshot

Judging = Generator[PlanEffect, PlanReply, None]
T = TypeVar("T")


class _Terms(Record):
    """What all commits of one attempt are judged under."""

    key: str
    policy: LocationPolicy | None
    now_ms: int


class _Taken(Record):
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


@dataclass(slots=True)
class _Table:
    """A table while its group is judged: `base` is published, `head` what the members so far make of it."""

    base: Head | None
    head: Head | None
    written: list[str] = field(default_factory=list)
    updates: list[TableUpdate] = field(default_factory=list)
    changed: bool = False

    def advance(
        self, metadata: TableMetadata, written: Sequence[str], updates: Sequence[TableUpdate]
    ) -> None:
        """One member further. The previous metadata file is in the log from the first member on."""
        if (head := self.head) is None:
            self.head = Head("", 0, metadata, "", None)
        else:
            self.head = Head(head.id, head.version, metadata, head.metadata_location, None)
        self.written.extend(written)
        self.updates.extend(updates)
        self.changed = True


class Group:
    """The judging of one group. `judge` each member, then `close`; both yield what planning asks for."""

    def __init__(
        self,
        heads: Mapping[Target, Head | None],
        policy: LocationPolicy | None,
        now_ms: int,
        *,
        folds: bool = True,  # not where nobody is there to share a snapshot with
    ) -> None:
        self._tables = {target: _Table(head, head) for target, head in heads.items()}
        self._policy, self._now_ms, self._folds_appends = policy, now_ms, folds
        self._shares: list[Share] = []
        self._refusals: dict[int, Refusal] = {}
        self._unchanged: dict[Target, Head] = {}
        self._unwanted: list[Candidate] = []
        self._folds: dict[Target, Fold] = {}

    def judge(self, index: int, member: Member) -> Judging:
        """Judge one member: its share is kept, or its refusal."""
        rests_on_group = False
        for commit in member.commits:
            rests_on_group |= self._tables[commit.target].changed or commit.target in self._folds
        try:
            update = self._find_foldable(member)
            if update is not None and (yield from self._fold_in(index, member, update)):
                return
            if self._folds:
                for commit in member.commits:
                    yield from self._close_fold(commit.target)
            if len(member.commits) == 1 and is_blind_append(member.commits[0]):
                yield from self._append(index, member)
            else:
                yield from self._build(index, member)
        except HeadgateError as error:
            self._refusals[index] = Refusal(without_frames(error), rests_on_group)

    def close(self) -> Generator[PlanEffect, PlanReply, Judged]:
        """What is to be swapped."""
        for target in tuple(self._folds):
            yield from self._close_fold(target)
        candidates = tuple(
            [
                Candidate(target, table.base, table.head.metadata, tuple(table.written), tuple(table.updates))
                for target, table in self._tables.items()
                if table.changed and table.head is not None
            ]
        )
        unchanged: tuple[Head, ...] = ()
        if self._unchanged:
            changed = {candidate.target for candidate in candidates}
            unchanged = tuple(head for target, head in self._unchanged.items() if target not in changed)
        return Judged(candidates, unchanged, tuple(self._shares), self._refusals, tuple(self._unwanted))

    def _find_foldable(self, member: Member) -> ChangeUpdate | None:
        if member.fold is False or not self._folds_appends or len(member.commits) != 1:
            return None
        head = self._tables[member.commits[0].target].head
        if head is None:
            return None
        word = head.metadata.envelope.properties.get(GROUP_PROPERTY, CHAIN).lower()
        if not member.fold and word != FOLD:
            return None
        return find_foldable(member.commits[0])

    def _terms(self, key: str) -> _Terms:
        return _Terms(key, self._policy, self._now_ms)

    def _build(self, index: int, member: Member) -> Judging:
        """Every commit is checked, then every read set judged, and only then is anything written."""
        terms = self._terms(member.key)
        _check_count(member.commits)
        left = None
        if len(member.commits) == 1:
            left = yield from self._rebase(index, member.commits[0], member.key)
            if left is True:
                return
        try:
            all_taken = [_take_in(c, self._tables[c.target].head, terms) for c in member.commits]
            for taken in all_taken:
                yield from _judge_reads(taken)
            yield from self._advance(index, all_taken, terms)
        except CommitRefused as error:
            if isinstance(left, NotRebasable):
                error.evidence[NOT_REBASED] = left.reason
            raise

    def _append(self, index: int, member: Member) -> Judging:
        """A blind append in one step, or if that cannot be in several."""
        commit, terms = member.commits[0], self._terms(member.key)
        table = self._tables[commit.target]
        taken = _take_in(commit, table.head, terms)
        head = table.head
        if head is not None:
            done = yield from append_at_once(
                taken.changes[0],
                head.metadata,
                seed=seed_of(terms.key, commit.target),
                now_ms=terms.now_ms,
                previous_file=head.checkpoint,
            )
            if done is not None:
                table.advance(done.metadata, done.written, done.updates)
                self._shares.append(Share(index, ((commit.target, done.updates),)))
                return
        yield from self._advance(index, [taken], terms)

    def _rebase(
        self, index: int, commit: TableCommit, key: str
    ) -> Generator[PlanEffect, PlanReply, NotRebasable | bool]:
        """Build a plain commit that lost its head on the one that is there: True, or why not if its table wants that."""
        table = self._tables[commit.target]
        if table.head is None or not any(isinstance(update, AddSnapshot) for update in commit.updates):
            return False
        if is_landed(commit, table.head.metadata):  # sent again because its answer was lost
            self._shares.append(Share(index, ()))
            return True
        if not parse_rebase(table.head.metadata.envelope.properties):
            return False
        trail = _Trail([], [], table.head.metadata)
        seed = seed_of(key, commit.target)
        try:
            rebased = yield from _track(
                rebase_commit(commit, table.head.metadata, now_ms=self._now_ms, seed=seed), trail.written
            )
            if isinstance(rebased, Finding):
                raise to_error(rebased, ".".join((*commit.target[0], commit.target[1])), field=commit.field)
            if isinstance(rebased, NotRebasable):
                self._discard(commit.target, trail)
                return rebased
            applying = Applying(table.head.metadata, now_ms=self._now_ms)
            for update in rebased.updates:
                applying.add(update)
                trail.updates.append(update)
            metadata = applying.finish(table.head.checkpoint)
        except HeadgateError:
            self._discard(commit.target, trail)
            raise
        if metadata is None:
            raise InvariantBroken("invariant broken: a rebased commit changes nothing")
        table.advance(metadata, trail.written, trail.updates)
        self._shares.append(Share(index, ((commit.target, tuple(trail.updates)),)))
        return True

    def _discard(self, target: Target, trail: _Trail) -> None:
        if trail.written and trail.table is not None:
            base = self._tables[target].base
            self._unwanted.append(Candidate(target, base, trail.table, tuple(trail.written)))

    def _advance(self, index: int, all_taken: Sequence[_Taken], terms: _Terms) -> Judging:
        """Build the member's tables; they move on only when all of them are built."""
        built: list[tuple[_Taken, _Trail, TableMetadata | None]] = []
        try:
            for taken in all_taken:
                trail = _Trail([], [], None if taken.head is None else taken.head.metadata)
                built.append((taken, trail, None))
                metadata = yield from _judge_one(taken, terms, trail)
                built[-1] = (taken, trail, metadata)
        except HeadgateError:
            for taken, trail, _ in built:
                self._discard(taken.commit.target, trail)
            raise
        parts: list[tuple[Target, tuple[TableUpdate, ...]]] = []
        for taken, trail, metadata in built:
            commit, table = taken.commit, self._tables[taken.commit.target]
            if metadata is not None:
                table.advance(metadata, trail.written, trail.updates)
                parts.append((commit.target, tuple(trail.updates)))
            elif table.base is not None and (commit.reads is not None or commit.requirements):
                self._unchanged[commit.target] = table.base
        self._shares.append(Share(index, tuple(parts)))

    def _fold_in(
        self, index: int, member: Member, update: ChangeUpdate
    ) -> Generator[PlanEffect, PlanReply, bool]:
        """Have an append wait for others; False when it cannot."""
        commit = member.commits[0]
        taken = _take_in(commit, self._tables[commit.target].head, self._terms(member.key))
        change = taken.changes[0]
        paths = {path for file in change.added_data for path in find_spellings(file.file_path)}
        fold = self._folds.get(commit.target)
        if fold is not None and not fold.takes(commit, change, paths):
            yield from self._close_fold(commit.target)
            return False
        if fold is None:
            fold = self._folds[commit.target] = Fold()
        fold.add(index, member.key, commit, change, paths)
        return True

    def _close_fold(self, target: Target) -> Judging:
        """One snapshot for all that wait; if they cannot share one, one for each."""
        fold = self._folds.pop(target, None)
        if fold is None:
            return
        table = self._tables[target]
        first, key, commit, change = fold.appends[0]
        shared = tuple(file for _, _, _, one in fold.appends for file in one.added_data)
        merged = replace(change, added_data=shared)
        progress = tuple(update for _, _, one, _ in fold.appends for update in one.updates[1:])
        all_in_one = replace(commit, updates=(commit.updates[0], *progress))
        try:
            taken = _Taken(all_in_one, table.head, None, {0: merged})
            yield from self._advance(first, [taken], self._terms(key))
        except HeadgateError as error:
            if len(fold.appends) == 1:
                self._refusals[first] = Refusal(without_frames(error), table.changed)
                return
            for index, key, commit, change in fold.appends:
                rests_on_group = table.changed
                try:
                    taken = _Taken(commit, table.head, None, {0: change})
                    yield from self._advance(index, [taken], self._terms(key))
                except HeadgateError as own:
                    self._refusals[index] = Refusal(without_frames(own), rests_on_group)
            return
        parts = self._shares[-1].parts
        self._shares.extend(Share(index, parts, shares_with=first) for index, *_ in fold.appends[1:])


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
    failed = find_failed(commit.requirements, base) or find_changed(commit.properties, base)
    if failed is None and len(commit.updates) > 1:  # how far a stream has come comes with what it brings
        failed = find_passed(commit.updates, base)
    if failed is not None:
        raise failed
    if commit.reads is not None:
        if base is None:
            raise BadInput(
                "a table that is being created has nothing to read", field=commit.path("commit-validations")
            )
        taken = _Taken(commit, head, take_in(commit.reads, base, field=commit.field), {})
    table, waiting = base, list[TableUpdate]()
    plain: Applying | None = None
    for i, update in enumerate(commit.updates):
        if not isinstance(update, ChangeUpdate):
            waiting.append(update)
            continue
        field = commit.path(f"updates[{i}]")
        if waiting:  # what no change follows is applied when the commit is built, and only then
            plain = _begin(taken, terms) if plain is None else plain
            for before in waiting:
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
    own: frozenset[int] = frozenset()
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
        seed = seed_of(terms.key, taken.commit.target, i)
        planned = yield from plan_change(
            change, table, seed=seed, now_ms=terms.now_ms, written=trail.written, own=own
        )
        if isinstance(planned, Finding):
            raise to_error(planned, taken.name, field=change.field)
        own |= {planned.snapshot.snapshot_id}
        for added in _publish(planned, table):
            applying.add(added)
            trail.updates.append(added)
    return applying.finish(None if taken.head is None else taken.head.checkpoint)


def _track(
    planning: Generator[PlanEffect, PlanReply, T], written: list[str]
) -> Generator[PlanEffect, PlanReply, T]:
    """The same planning, with every file noted when it is written: a later step may fail, and it must go then."""
    try:
        effect = next(planning)
        while True:
            try:
                reply = yield effect
            except HeadgateError as failed:  # the planning may know what to do about it
                effect = planning.throw(failed)
                continue
            if isinstance(
                reply, ManifestFile | str
            ):  # a written manifest, a written list; no read is so answered
                written.append(reply if isinstance(reply, str) else reply.manifest_path)
            effect = planning.send(reply)
    except StopIteration as stop:
        planned: T = stop.value
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
