"""Server-side rebase: a plain commit whose head has moved, built anew on the head that is there now.

    sent ─▶ (staged, fenced, diverged, odd?  not rebasable: the ordinary 409)
      └──▶ what it adds and removes ─▶ a `Change` ─▶ plan_change ─▶ the client's snapshot id on the new head
                                          └─▶ a finding: the window changed what a replace relies on

A table's opt-in (`headgate.rebase`). All judging and building is that of fine-grained changes; new here is only how
a client's snapshot is read (`client_snapshot`) and that its id and its own manifests are kept. Anything odd is left to
the rules for plain commits: refusing costs the client a retry, guessing would cost it data. Never deletes: the client
removes what it wrote in vain, and what it leaves is named in `left_over`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeGuard

import msgspec

from headgate.core.build import Plan, PlanEffect, Planning, PlanReply, WriteManifest, WriteManifestList
from headgate.core.change import Action, ChangeUpdate, Validation
from headgate.core.client_snapshot import ClientFiles, NotRebasable, read_client_files
from headgate.core.conflicts import Finding
from headgate.core.intake import COUNTED, check_files
from headgate.core.isolation import Isolation, Producer, Scope, validations
from headgate.core.manifest import EntryStatus, ManifestFile
from headgate.core.manifest_merge import MergeManifests
from headgate.core.plan import plan_change
from headgate.core.requirements import find_failed
from headgate.core.table import MAIN, Snapshot, TableMetadata
from headgate.core.taken import Change, Check
from headgate.core.updates import (
    AddSnapshot,
    AssertRefSnapshotId,
    AssertTableUuid,
    SetSnapshotRef,
    TableRequirement,
    TableUpdate,
)
from headgate.core.window import is_ancestor
from headgate.errors import BadInput, invariant

PROPERTY = "headgate.rebase"
# In the summary of a rebased snapshot: the manifest list that the client sent, which tells its attempts apart.
REBASED_FROM = "headgate.rebased-from"
_WORDS = {action.value: action for action in (Action.APPEND, Action.REPLACE)}
# Counts of manifests that Java writes for the list that it built, which is not the one that is committed.
_OF_THE_LIST = frozenset(("manifests-created", "manifests-kept", "manifests-replaced", "entries-processed"))
# The client's own fault rather than a conflict: what a plain commit says of it is for the plain rules.
_ILL_MADE = frozenset(("replace-adds-records",))


class PlainCommit(Protocol):
    """A commit as the flow has it."""

    @property
    def requirements(self) -> tuple[TableRequirement, ...]:
        """What must hold."""

    @property
    def updates(self) -> tuple[TableUpdate | ChangeUpdate, ...]:
        """What to change."""

    @property
    def reads(self) -> ChangeUpdate | None:
        """What it relies on besides."""


@dataclass(frozen=True, slots=True)
class Rebased:
    """The client's snapshot on the head: the updates to apply, the files written for it."""

    snapshot: Snapshot
    updates: tuple[TableUpdate, ...]
    written: tuple[str, ...]
    left_over: tuple[
        str, ...
    ]  # files of the client that no snapshot refers to; some clients remove them themselves


@dataclass(frozen=True, slots=True)
class _Sent:
    """The one form of commit that is rebased: a snapshot, and a branch moved to it from `base_id`."""

    snapshot: Snapshot
    branch: str
    base_id: int | None


Rebasing = Generator[PlanEffect, PlanReply, "Rebased | NotRebasable | Finding"]


def parse_rebase(properties: Mapping[str, str]) -> frozenset[Action]:
    """The operations that a table lets the service rebase; none when a word is unknown, because off is safe."""
    words = _words(properties.get(PROPERTY, ""))
    return frozenset(_WORDS[word] for word in words) if words <= _WORDS.keys() else frozenset()


def check_rebase_property(properties: Mapping[str, str], *, field: str = "properties") -> None:
    """Refuse a setting with an unknown word before it is stored: it would turn the rebase off without a sound."""
    unknown = sorted(_words(properties.get(PROPERTY, "")) - _WORDS.keys())
    if unknown:
        raise BadInput(
            f"{PROPERTY}: expected append or append,replace, got {', '.join(unknown)[:40]!r}",
            field=f"{field}.{PROPERTY}",
        )


def _words(text: str) -> set[str]:
    return {word.strip().lower() for word in text.split(",")} - {""}


def is_landed(commit: PlainCommit, table: TableMetadata) -> bool:
    """Whether this very request is in the branch already: sent again because its answer was lost.

    The snapshot id alone is no proof, the manifest list is: its name is made anew for every attempt, and a rebased
    snapshot remembers the one that was sent.
    """
    sent = _find_sent(commit)
    if isinstance(sent, NotRebasable) or sent.snapshot.manifest_list is None:
        return False
    if find_failed((r for r in commit.requirements if isinstance(r, AssertTableUuid)), table) is not None:
        return False
    there = table.find_snapshot(sent.snapshot.snapshot_id)
    ref = table.envelope.refs.get(sent.branch)
    if there is None or ref is None:
        return False
    lists = (there.manifest_list, there.summary.get(REBASED_FROM))
    head = table.find_snapshot(ref.snapshot_id)
    return sent.snapshot.manifest_list in lists and is_ancestor(table, head, there.snapshot_id)


def rebase_commit(commit: PlainCommit, table: TableMetadata, *, now_ms: int, seed: str) -> Rebasing:
    """Build a plain commit on the head of its branch, if the table allows it and the head has moved.

    Reads nothing unless both hold, so it may be asked about every commit.
    """
    sent = _examine(commit, table)
    if isinstance(sent, NotRebasable):
        return sent
    snapshot = sent.snapshot
    base = None if sent.base_id is None else table.find_snapshot(sent.base_id)
    files = yield from read_client_files(snapshot, base, table)
    if isinstance(files, NotRebasable):
        return files
    change = _to_change(sent, files, table)
    if isinstance(change, NotRebasable):
        return change
    planning = plan_change(change, table, seed=seed, now_ms=now_ms)
    planned = yield from _as_sent(planning, snapshot.snapshot_id, files.kept)
    if isinstance(planned, Finding):
        return NotRebasable(planned.message) if planned.rule in _ILL_MADE else planned
    return _conclude(sent, files, planned, table)


# --- may it be rebased? ----------------------------------------------------------------------------------


def is_rebasable(commit: PlainCommit, table: TableMetadata) -> bool:
    """Whether the commit is stale and will be built on the head, as far as metadata alone tells."""
    return isinstance(_examine(commit, table), _Sent)


def _examine(commit: PlainCommit, table: TableMetadata) -> _Sent | NotRebasable:
    allowed = parse_rebase(table.envelope.properties)
    if not allowed:
        return NotRebasable(f"{PROPERTY} is not set")
    sent = _find_sent(commit)
    if isinstance(sent, NotRebasable):
        return sent
    reason = _find_obstacle(commit, sent, table, allowed)
    return sent if reason is None else NotRebasable(reason)


def _find_sent(commit: PlainCommit) -> _Sent | NotRebasable:
    """A snapshot added and a branch moved to it from an asserted head, and nothing else."""
    match commit.updates:
        case (AddSnapshot(snapshot=snapshot), SetSnapshotRef() as moved):
            pass
        case _:
            return NotRebasable("the updates are not one snapshot and one branch moved to it")
    if moved.snapshot_id != snapshot.snapshot_id or moved.type.lower() != "branch":
        return NotRebasable("the ref is not a branch moved to the added snapshot")
    name = moved.ref_name
    asserted = {r.snapshot_id for r in commit.requirements if _is_about(r, name)}
    if len(asserted) != 1:
        return NotRebasable(f"the commit asserts no head of {name}")
    return _Sent(snapshot, name, asserted.pop())


def _is_about(requirement: TableRequirement, branch: str) -> TypeGuard[AssertRefSnapshotId]:
    return isinstance(requirement, AssertRefSnapshotId) and requirement.ref == branch


def _find_obstacle(
    commit: PlainCommit, sent: _Sent, table: TableMetadata, allowed: frozenset[Action]
) -> str | None:
    """Why the commit is not ours to rebase, as far as metadata alone tells."""
    snapshot, operation = sent.snapshot, sent.snapshot.summary.get("operation")
    if operation not in allowed:
        return f"{PROPERTY} does not allow the operation {operation}"
    if commit.reads is not None:
        return "the request has validations of its own, which are for the head that it asserts"
    if snapshot.snapshot_id in table.snapshots:
        return f"snapshot {snapshot.snapshot_id} exists already"
    others = tuple(r for r in commit.requirements if not _is_about(r, sent.branch))
    if (failed := find_failed(others, table)) is not None:
        return failed.message
    return _find_shape_fault(snapshot, table) or _find_history_fault(sent, table)


def _find_shape_fault(snapshot: Snapshot, table: TableMetadata) -> str | None:
    envelope = table.envelope
    if snapshot.manifest_list is None or snapshot.key_id is not None:
        return "the snapshot has no manifest list that can be read"
    if snapshot.schema_id is not None and all(s.schema_id != snapshot.schema_id for s in envelope.schemas):
        return f"schema {snapshot.schema_id} is unknown"
    numbered, has_row_ids = snapshot.sequence_number > 0, snapshot.first_row_id is not None
    if numbered != (envelope.format_version > 1) or has_row_ids != (envelope.format_version >= 3):
        return "the snapshot is not of the table's format version"
    return None


def _find_history_fault(sent: _Sent, table: TableMetadata) -> str | None:
    ref = table.envelope.refs.get(sent.branch)
    if ref is None or ref.type != "branch":
        return f"there is no branch {sent.branch}"
    if sent.snapshot.parent_snapshot_id != sent.base_id:
        return "the parent of the snapshot is not the asserted head"
    if sent.base_id is None:
        # A new branch other than main starts with the files of main; that another one made it first is for the client.
        return None if sent.branch == MAIN else f"branch {sent.branch} was created concurrently"
    head = table.find_snapshot(ref.snapshot_id)
    if ref.snapshot_id == sent.base_id and _is_fresh(sent.snapshot, table):
        return "the head has not moved"
    if table.find_snapshot(sent.base_id) is None or not is_ancestor(table, head, sent.base_id):
        return f"snapshot {sent.base_id} is not in the history of {sent.branch}"
    return None


def _is_fresh(snapshot: Snapshot, table: TableMetadata) -> bool:
    """Whether the numbers of the snapshot are still free: a commit to any other branch takes them too."""
    envelope = table.envelope
    fresh = envelope.format_version == 1 or snapshot.sequence_number > envelope.last_sequence_number
    return fresh and (snapshot.first_row_id or 0) >= (envelope.next_row_id or 0)


# --- the commit as a change ------------------------------------------------------------------------------


def _to_change(sent: _Sent, files: ClientFiles, table: TableMetadata) -> Change | NotRebasable:
    action = Action(sent.snapshot.summary["operation"])
    if (reason := _find_misfit(action, files)) is not None:
        return NotRebasable(reason)
    scope = Scope(
        has_base=sent.base_id is not None,
        removed_data=tuple(sorted(files.removed_data)),
        removed_deletes=tuple(sorted(path for path, _ in files.removed_deletes)),
        keeps_sequence_number=files.data_sequence_number is not None,
    )
    producer = Producer.APPEND if action is Action.APPEND else Producer.REWRITE
    clauses = msgspec.convert(
        validations(producer, Isolation.SERIALIZABLE, scope), tuple[Validation, ...], strict=True
    )
    change = Change(
        action=action,
        branch=sent.branch,
        create_branch=False,
        stage_only=False,
        base_snapshot_id=sent.base_id,
        added_data=files.added_data,
        added_deletes=files.added_deletes,
        removed_data=files.removed_data,
        removed_deletes=files.removed_deletes,
        row_filter=None,
        drop_partitions=frozenset(),
        data_sequence_number=files.data_sequence_number,
        delete_sequence_number=files.delete_sequence_number,
        summary=_own_summary(sent.snapshot),
        checks=tuple(Check(clause) for clause in clauses),
    )
    try:
        check_files(change, table, field="updates.snapshot")
    except BadInput as error:
        return NotRebasable(error.message)
    return change


def _find_misfit(action: Action, files: ClientFiles) -> str | None:
    """What an append or a replace does not do."""
    removes = files.removed_data or files.removed_deletes
    if action is Action.APPEND:
        return "an append removes files or adds delete files" if removes or files.added_deletes else None
    if not removes:
        return "a replace that removes no file only rewrites manifests"
    if (files.added_data and not files.removed_data) or (files.added_deletes and not files.removed_deletes):
        return "a replace adds files that take the place of none"
    return None


def _own_summary(snapshot: Snapshot) -> dict[str, str]:
    """What the client says about its commit; what it counted is counted anew."""
    own = {
        name: text
        for name, text in snapshot.summary.items()
        if name != "operation" and name not in _OF_THE_LIST and COUNTED.fullmatch(name) is None
    }
    return {**own, REBASED_FROM: snapshot.manifest_list or ""}


# --- the plan as the client's snapshot -------------------------------------------------------------------


def _as_sent(planning: Planning, snapshot_id: int, kept: tuple[ManifestFile, ...]) -> Planning:
    """The same planning under the client's snapshot id, with its own manifests in place of those to be written."""
    ready = {(manifest.partition_spec_id, manifest.content): manifest for manifest in kept}
    try:
        effect = next(planning)
        while True:
            match effect:
                case WriteManifest() if _is_new(effect) and (effect.spec_id, effect.content) in ready:
                    manifest = ready[effect.spec_id, effect.content]
                    invariant(manifest.sequence_number == effect.sequence_number, "numbers are the head's")
                    invariant(manifest.added_files_count == len(effect.entries), "all files are in it")
                    effect = planning.send(manifest)
                case WriteManifest():
                    entries = tuple(
                        replace(entry, snapshot_id=snapshot_id)
                        if entry.snapshot_id == effect.snapshot_id
                        else entry
                        for entry in effect.entries
                    )
                    effect = planning.send((yield replace(effect, entries=entries, snapshot_id=snapshot_id)))
                case WriteManifestList() | MergeManifests():
                    effect = planning.send((yield replace(effect, snapshot_id=snapshot_id)))
                case _:
                    effect = planning.send((yield effect))
    except StopIteration as stop:
        planned: Plan | Finding = stop.value
    if isinstance(planned, Finding):
        return planned
    # What the client wrote is not ours to discard when the swap is lost: it is needed for the next attempt.
    theirs = {manifest.manifest_path for manifest in kept}
    return replace(
        planned,
        snapshot=msgspec.structs.replace(planned.snapshot, snapshot_id=snapshot_id),
        written=tuple(path for path in planned.written if path not in theirs),
    )


def _is_new(effect: WriteManifest) -> bool:
    """Whether it is to hold the added files, rather than to stand for a manifest that loses some."""
    return all(entry.status is EntryStatus.ADDED for entry in effect.entries)


def _conclude(sent: _Sent, files: ClientFiles, planned: Plan, table: TableMetadata) -> Rebased:
    # Rows were written by the schema that the client knew; readers may look it up here.
    snapshot = msgspec.structs.replace(planned.snapshot, schema_id=sent.snapshot.schema_id)
    ref = table.envelope.refs[sent.branch]
    moved = SetSnapshotRef(  # the branch keeps its retention: the client's is as old as its base
        ref_name=sent.branch,
        snapshot_id=snapshot.snapshot_id,
        type="branch",
        min_snapshots_to_keep=ref.min_snapshots_to_keep,
        max_snapshot_age_ms=ref.max_snapshot_age_ms,
        max_ref_age_ms=ref.max_ref_age_ms,
    )
    left_over = (*files.left_over, sent.snapshot.manifest_list or "")
    return Rebased(snapshot, (AddSnapshot(snapshot=snapshot), moved), planned.written, left_over)
