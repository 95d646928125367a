"""An append that reads nothing, judged and built in one step: what nearly every commit of a busy table is. Pure.

It asks of the table only that its paths are new. So there is no window to judge and nothing to remove; one manifest goes
in front of the parent's, and one snapshot behind the parent. The general way (`plan`, `build`, `apply`) comes to the
same in a dozen steps, each of which looks for cases that cannot be here: it took twice as long (docs/adr/0013).

Never refuses: whatever is not as plain as that, or might be refused, is None, and goes the general way.
`tests/flow/test_append_at_once.py` holds both ways to one result.
"""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from headgate.core.apply import extend_metadata_log, is_in_time
from headgate.core.build import Appended, AppendFiles, PlanEffect, PlanReply, merge_policy_of
from headgate.core.change import Action, Append, ChangeUpdate, action_of
from headgate.core.commit import TableCommit
from headgate.core.manifest_list import ManifestList
from headgate.core.snapshot_ids import choose_snapshot_id
from headgate.core.summary import summarise_append
from headgate.core.table import (
    MAIN,
    HistoryEntry,
    MetadataLogEntry,
    Snapshot,
    SnapshotRef,
    TableMetadata,
    append_history,
    append_snapshot,
)
from headgate.core.taken import Change
from headgate.core.updates import AddSnapshot, AssertTableUuid, SetSnapshotRef, TableUpdate
from headgate.core.value import Record
from headgate.core.window import ReadManifestList

_replace = msgspec.structs.replace


class AtOnce(Record):
    """A table with one more snapshot, the plain updates that it took, and the files that were written for it."""

    metadata: TableMetadata
    updates: tuple[TableUpdate, ...]
    written: tuple[str, ...]


def is_blind_append(commit: TableCommit) -> bool:
    """Whether a commit is one append to the main branch that asks nothing of the table but to be itself."""
    if len(commit.updates) != 1 or commit.reads is not None or commit.properties:
        return False
    update = commit.updates[0]
    if type(update) is not Append and (
        not isinstance(update, ChangeUpdate) or action_of(update) is not Action.APPEND
    ):
        return False
    if update.commit_validations or update.branch != MAIN or update.stage_only or update.create_branch:
        return False
    return not commit.requirements or all(isinstance(one, AssertTableUuid) for one in commit.requirements)


def append_at_once(
    change: Change, table: TableMetadata, *, seed: str, now_ms: int, previous_file: MetadataLogEntry | None
) -> Generator[PlanEffect, PlanReply, AtOnce | None]:
    """The table after a blind append, as the general way would leave it; None: go that way, nothing was written."""
    envelope, files = table.envelope, change.added_data
    ref = envelope.refs.get(MAIN)
    if ref is None or ref.type != "branch" or not files:
        return None
    parent = table.find_snapshot(ref.snapshot_id)
    if parent is None or parent.manifest_list is None:
        return None
    moment_ms = max(now_ms, envelope.last_updated_ms)
    spec_id = files[0].spec_id
    if parent.timestamp_ms > moment_ms or not is_in_time(table.history, moment_ms):
        return None
    if len(files) > 1 and any(file.spec_id != spec_id for file in files):
        return None
    manifests = yield ReadManifestList(parent.manifest_list)
    if not isinstance(manifests, ManifestList):
        return None
    version = envelope.format_version
    if version >= 3 and manifests.unnumbered:
        return None
    rest, policy = manifests.rest, merge_policy_of(envelope.properties)
    if rest is None or rest.policy is not policy:
        rest = None
        if policy.enabled and manifests.length >= policy.fan_in:
            return None  # it may be time to merge
    snapshot_id = choose_snapshot_id(seed, table)
    sequence = 0 if version == 1 else envelope.last_sequence_number + 1
    appended = yield AppendFiles(files, spec_id, snapshot_id, sequence, parent, manifests, rest, table)
    if not isinstance(appended, Appended):
        return None
    first_row_id = envelope.next_row_id if version >= 3 else None
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id,
        sequence_number=sequence,
        timestamp_ms=moment_ms,
        manifest_list=appended.manifest_list,
        summary=summarise_append(files, change.summary, parent.summary),
        schema_id=envelope.current_schema_id,
        first_row_id=first_row_id,
        added_rows=None if first_row_id is None else appended.next_row_id - first_row_id,
    )
    return _add_to_main(table, snapshot, ref, appended, previous_file)


def _add_to_main(
    table: TableMetadata,
    snapshot: Snapshot,
    ref: SnapshotRef,
    appended: Appended,
    previous_file: MetadataLogEntry | None,
) -> AtOnce:
    """What `apply` makes of the two updates: all that it checks holds for a snapshot built on this very table."""
    envelope, snapshot_id = table.envelope, snapshot.snapshot_id
    moved = _replace(
        envelope,
        last_sequence_number=snapshot.sequence_number or envelope.last_sequence_number,
        last_updated_ms=snapshot.timestamp_ms,
        next_row_id=appended.next_row_id if envelope.format_version >= 3 else None,
        refs={**envelope.refs, MAIN: _replace(ref, snapshot_id=snapshot_id)},
        current_snapshot_id=snapshot_id,
        metadata_log=extend_metadata_log(envelope, previous_file),
    )
    updates = (
        AddSnapshot(snapshot=snapshot),
        SetSnapshotRef(
            ref_name=MAIN,
            snapshot_id=snapshot_id,
            type="branch",
            min_snapshots_to_keep=ref.min_snapshots_to_keep,
            max_snapshot_age_ms=ref.max_snapshot_age_ms,
            max_ref_age_ms=ref.max_ref_age_ms,
        ),
    )
    entry = HistoryEntry(timestamp_ms=snapshot.timestamp_ms, snapshot_id=snapshot_id)
    metadata = TableMetadata(
        moved, append_snapshot(table.snapshots, snapshot), append_history(table.history, entry)
    )
    return AtOnce(metadata, updates, (appended.manifest, appended.manifest_list))
