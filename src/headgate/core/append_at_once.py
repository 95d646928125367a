"""An append that reads nothing, judged and built in one step: what nearly every commit of a busy table is. Pure.

It asks of the table only that its paths are new. So there is no window to judge and nothing to remove; one manifest goes
in front of the parent's, and one snapshot behind the parent. The general way (`plan`, `build`, `apply`) comes to the
same in a dozen steps, each of which looks for cases that cannot be here: it took twice as long (docs/adr/0013).

Never refuses: whatever is not as plain as that, or might be refused, is None, and goes the general way.
`tests/core/test_append_at_once.py` holds both ways to one result.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

import msgspec

from headgate.core.apply import extend_metadata_log, is_in_time
from headgate.core.build import Appended, AppendFiles, PlanEffect, PlanReply, merge_policy_of
from headgate.core.change import Action, ChangeUpdate, action_of
from headgate.core.commit import TableCommit
from headgate.core.manifest import ContentFile
from headgate.core.manifest_list import ManifestList
from headgate.core.snapshot_ids import choose_snapshot_id
from headgate.core.summary import add_totals
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
from headgate.core.taken import Change, partition_of
from headgate.core.updates import AddSnapshot, AssertTableUuid, SetSnapshotRef, TableUpdate
from headgate.core.value import Record
from headgate.core.window import ReadManifestList


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
    if not isinstance(update, ChangeUpdate) or action_of(update) is not Action.APPEND:
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
    rest, policy = None, merge_policy_of(envelope.properties)
    if policy.enabled and manifests.length >= policy.fan_in:
        rest = manifests.rest
        if rest is None or rest.policy is not policy:
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
        summary=_summarise(files, change.summary, parent.summary),
        schema_id=envelope.current_schema_id,
        first_row_id=first_row_id,
        added_rows=None if first_row_id is None else appended.next_row_id - first_row_id,
    )
    metadata = _add_to_main(table, snapshot, ref, appended.next_row_id, previous_file)
    updates = (AddSnapshot(snapshot=snapshot), _move_main(ref, snapshot_id))
    return AtOnce(metadata, updates, (appended.manifest, appended.manifest_list))


def _summarise(
    files: Sequence[ContentFile], extra: Mapping[str, str], previous: Mapping[str, str]
) -> dict[str, str]:
    """As `summary` counts data files that are added."""
    rows = size_bytes = 0
    for file in files:
        rows += file.record_count
        size_bytes += file.file_size_in_bytes
    partitions = 1 if len(files) == 1 else len({partition_of(file) for file in files})
    found = {"operation": "append", **extra, "added-data-files": str(len(files))}
    if size_bytes:
        found["added-files-size"] = str(size_bytes)
    if rows:
        found["added-records"] = str(rows)
    found["changed-partition-count"] = str(partitions)
    moved = {"total-records": rows, "total-files-size": size_bytes, "total-data-files": len(files)}
    add_totals(found, moved, previous)
    return found


def _add_to_main(
    table: TableMetadata,
    snapshot: Snapshot,
    ref: SnapshotRef,
    next_row_id: int,
    previous_file: MetadataLogEntry | None,
) -> TableMetadata:
    """What `apply` makes of the two updates: all that it checks holds for a snapshot built on this very table."""
    envelope, snapshot_id = table.envelope, snapshot.snapshot_id
    moved = SnapshotRef(
        snapshot_id=snapshot_id,
        type="branch",
        min_snapshots_to_keep=ref.min_snapshots_to_keep,
        max_snapshot_age_ms=ref.max_snapshot_age_ms,
        max_ref_age_ms=ref.max_ref_age_ms,
    )
    entry = HistoryEntry(timestamp_ms=snapshot.timestamp_ms, snapshot_id=snapshot_id)
    return TableMetadata(
        msgspec.structs.replace(
            envelope,
            last_sequence_number=max(snapshot.sequence_number, envelope.last_sequence_number),
            last_updated_ms=snapshot.timestamp_ms,
            next_row_id=next_row_id if envelope.format_version >= 3 else None,
            refs={**envelope.refs, MAIN: moved},
            current_snapshot_id=snapshot_id,
            metadata_log=extend_metadata_log(envelope, previous_file),
        ),
        append_snapshot(table.snapshots, snapshot),
        append_history(table.history, entry),
    )


def _move_main(ref: SnapshotRef, snapshot_id: int) -> SetSnapshotRef:
    return SetSnapshotRef(
        ref_name=MAIN,
        snapshot_id=snapshot_id,
        type="branch",
        min_snapshots_to_keep=ref.min_snapshots_to_keep,
        max_snapshot_age_ms=ref.max_snapshot_age_ms,
        max_ref_age_ms=ref.max_ref_age_ms,
    )
