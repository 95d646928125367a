"""Apply updates of a plain commit to a table's metadata: the whole policy of the specification, without I/O.

Semantics follow the Java reference where it is sound. On purpose we differ (docs/adr/0003): removing a
snapshot that a ref still points at is refused instead of silently dropping the ref; row ids continue after
the highest one handed out. Values that are stale because the head moved (sequence number, first row id) are
`CommitRefused`, which a client retries, never a bad request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import assert_never

import msgspec

from headgate.core.draft import Draft
from headgate.core.encoded_log import EncodedLog
from headgate.core.table import (
    MAIN,
    Envelope,
    HistoryEntry,
    MetadataLogEntry,
    Snapshot,
    SnapshotRef,
    TableMetadata,
    append_history,
    append_snapshot,
    find_history_ids,
    find_last_entry,
)
from headgate.core.updates import (
    AddEncryptionKey,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AddSpec,
    AssignUuid,
    RemoveEncryptionKey,
    RemovePartitionSpecs,
    RemovePartitionStatistics,
    RemoveProperties,
    RemoveSchemas,
    RemoveSnapshotRef,
    RemoveSnapshots,
    RemoveStatistics,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetPartitionStatistics,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    TableUpdate,
    UpgradeFormatVersion,
)
from headgate.core.value import LONG_MAX
from headgate.errors import BadInput, CommitRefused

_CLOCK_SKEW_MAX_MS = 60_000  # what Java readers tolerate
_PREVIOUS_VERSIONS_MAX = "write.metadata.previous-versions-max"
_PREVIOUS_VERSIONS_DEFAULT = 100
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def apply(
    base: TableMetadata | None,
    updates: Iterable[TableUpdate],
    *,
    now_ms: int,
    previous_file: MetadataLogEntry | None = None,
) -> TableMetadata | None:
    """The metadata after the updates, or None when they change nothing.

    `previous_file` is the newest metadata file known to be written; it joins the metadata log.
    """
    updates = tuple(updates)
    applying = Applying(base, now_ms=now_ms, format_version=find_format_version(updates))
    for update in updates:
        applying.add(update)
    return applying.finish(previous_file)


def find_format_version(updates: Iterable[object]) -> int | None:
    """The version that a table being created has from its first update on."""
    return next((u.format_version for u in updates if isinstance(u, UpgradeFormatVersion)), None)


class Applying:
    """Updates applied one after the other, with a look at the table in between; each is applied once."""

    def __init__(self, base: TableMetadata | None, *, now_ms: int, format_version: int | None = None) -> None:
        self._base = base
        self._draft = Draft(base, now_ms=now_ms)
        self._begun = False
        if base is None and format_version is not None:
            self._draft.set(format_version=1)
            self._draft.upgrade(format_version)

    def add(self, update: TableUpdate) -> None:
        """Apply one more. Raises what is wrong with it."""
        self._begun = True
        _apply_one(self._draft, update)

    def look(self) -> TableMetadata | None:
        """The table as it is so far, for the next change to build on; None before there is one.

        Its history may hold snapshots that `finish` leaves out.
        """
        draft = self._draft
        if not self._begun or not draft.changed:
            return self._base
        self._check()
        updated_ms = max(draft.now_ms, draft.envelope.last_updated_ms)
        envelope = msgspec.structs.replace(draft.envelope, last_updated_ms=updated_ms)
        return TableMetadata(envelope, draft.snapshots, draft.history)

    def finish(self, previous_file: MetadataLogEntry | None) -> TableMetadata | None:
        """The metadata after all updates, or None when they change nothing."""
        draft = self._draft
        if not draft.changed:
            return None
        self._check()
        history = _settle_history(draft)
        draft.set(
            last_updated_ms=max(draft.now_ms, draft.envelope.last_updated_ms),
            metadata_log=extend_metadata_log(draft.envelope, previous_file),
        )
        return TableMetadata(draft.envelope, draft.snapshots, history)

    def _check(self) -> None:
        _check_refs(self._draft)
        self._draft.check_whole()


def _apply_one(draft: Draft, update: TableUpdate) -> None:  # one line a case: the whole policy on one screen
    match update:
        case AddSnapshot():  # the two that nearly every commit consists of are found first
            _add_snapshot(draft, update.snapshot)
        case SetSnapshotRef():
            _set_ref(draft, update)
        case AssignUuid():
            _assign_uuid(draft, update.uuid)
        case UpgradeFormatVersion():
            draft.upgrade(update.format_version)
        case AddSchema():
            draft.add_schema(update.schema, update.last_column_id)
        case SetCurrentSchema():
            draft.set_current_schema(update.schema_id)
        case AddSpec():
            draft.add_spec(update.spec)
        case SetDefaultSpec():
            draft.set_default_spec(update.spec_id)
        case AddSortOrder():
            draft.add_order(update.sort_order)
        case SetDefaultSortOrder():
            draft.set_default_order(update.sort_order_id)
        case RemoveSnapshots():
            _remove_snapshots(draft, update.snapshot_ids)
        case RemoveSnapshotRef():
            _remove_ref(draft, update.ref_name)
        case SetLocation():
            if update.location != draft.envelope.location:
                draft.set(location=update.location)
        case SetProperties():
            if not update.updates.items() <= draft.envelope.properties.items():
                draft.set(properties={**draft.envelope.properties, **update.updates})
        case RemoveProperties():
            _remove_properties(draft, update.removals)
        case SetStatistics():
            _set_statistics(draft, update)
        case RemoveStatistics():
            _drop_statistics(draft, {update.snapshot_id}, partitions=False)
        case SetPartitionStatistics():
            new = update.partition_statistics
            others = (s for s in draft.envelope.partition_statistics if s.snapshot_id != new.snapshot_id)
            draft.set(partition_statistics=(*others, new))
        case RemovePartitionStatistics():
            _drop_statistics(draft, {update.snapshot_id}, files=False)
        case RemovePartitionSpecs():
            draft.remove_specs(update.spec_ids)
        case RemoveSchemas():
            draft.remove_schemas(update.schema_ids)
        case AddEncryptionKey():
            keys = draft.envelope.encryption_keys
            if all(key.key_id != update.encryption_key.key_id for key in keys):
                draft.set(encryption_keys=(*keys, update.encryption_key))
        case RemoveEncryptionKey():
            kept = tuple(k for k in draft.envelope.encryption_keys if k.key_id != update.key_id)
            if kept != draft.envelope.encryption_keys:
                draft.set(encryption_keys=kept)
        case _:
            assert_never(update)


def _assign_uuid(draft: Draft, uuid: str) -> None:
    current = draft.envelope.table_uuid
    if current.lower() == uuid.lower():
        return
    if not draft.creating:
        raise BadInput(f"Cannot reassign uuid: {current} to {uuid}", field="updates.uuid")
    if not _UUID.fullmatch(uuid):
        raise BadInput(f"not a uuid: {uuid[:80]}", field="updates.uuid")
    draft.set(table_uuid=uuid)


def _add_snapshot(draft: Draft, snapshot: Snapshot) -> None:
    envelope = draft.envelope
    draft.schema()
    _check_snapshot(draft, snapshot)
    if snapshot.snapshot_id in draft.snapshots:
        raise BadInput(f"Snapshot already exists for id: {snapshot.snapshot_id}", field="updates.snapshot-id")
    if (
        envelope.format_version > 1
        and snapshot.sequence_number <= envelope.last_sequence_number
        and snapshot.parent_snapshot_id is not None
    ):
        # Another branch moved, or this one did: the client's number is stale, and a refresh cures it.
        raise CommitRefused(
            "Validation failed, please retry: Cannot add snapshot with sequence number "
            f"{snapshot.sequence_number} older than last sequence number {envelope.last_sequence_number}"
        )
    draft.snapshots = append_snapshot(draft.snapshots, snapshot)
    draft.added_snapshots[snapshot.snapshot_id] = snapshot
    draft.set(
        last_sequence_number=max(snapshot.sequence_number, envelope.last_sequence_number),
        last_updated_ms=max(snapshot.timestamp_ms, envelope.last_updated_ms),
        next_row_id=_next_row_id(envelope.next_row_id or 0, snapshot)
        if envelope.format_version >= 3
        else None,
    )


def _check_snapshot(draft: Draft, snapshot: Snapshot) -> None:
    envelope = draft.envelope
    if snapshot.snapshot_id < 0:
        raise BadInput(f"Invalid snapshot id: {snapshot.snapshot_id}", field="updates.snapshot.snapshot-id")
    if envelope.format_version > 1 and snapshot.manifest_list is None:
        raise BadInput(
            f"Snapshot {snapshot.snapshot_id} has no manifest list, which v{envelope.format_version} needs",
            field="updates.snapshot.manifest-list",
        )
    if envelope.format_version == 1 and snapshot.sequence_number != 0:
        raise BadInput(
            f"Sequence number must be 0 in v1: {snapshot.sequence_number}",
            field="updates.snapshot.sequence-number",
        )
    if "operation" not in snapshot.summary and envelope.format_version > 1:
        raise BadInput(
            f"Snapshot {snapshot.snapshot_id} has no operation in its summary",
            field="updates.snapshot.summary",
        )
    if snapshot.schema_id is not None and snapshot.schema_id not in [s.schema_id for s in envelope.schemas]:
        raise BadInput(
            f"Snapshot {snapshot.snapshot_id} names an unknown schema: {snapshot.schema_id}",
            field="updates.snapshot.schema-id",
        )
    # A writer whose clock runs ahead would lock out the others until theirs caught up. The service's own clock
    # may have jumped back, so what the table has seen counts too.
    now_ms = max(draft.now_ms, envelope.last_updated_ms)
    if snapshot.timestamp_ms > now_ms + _CLOCK_SKEW_MAX_MS:
        raise BadInput(
            f"Invalid snapshot timestamp {snapshot.timestamp_ms}: "
            f"more than a minute ahead of the service's clock {now_ms}",
            field="updates.snapshot.timestamp-ms",
        )
    if not is_in_time(draft.history, snapshot.timestamp_ms):
        latest = find_last_entry(draft.history)
        raise BadInput(
            f"Invalid snapshot timestamp {snapshot.timestamp_ms}: "
            f"before the last snapshot's {0 if latest is None else latest.timestamp_ms}",
            field="updates.snapshot.timestamp-ms",
        )


def is_in_time(history: EncodedLog, timestamp_ms: int) -> bool:
    """Whether a snapshot of this time may follow a history: clocks differ a little."""
    latest = find_last_entry(history)
    return timestamp_ms >= max(0, 0 if latest is None else latest.timestamp_ms - _CLOCK_SKEW_MAX_MS)


def _next_row_id(next_row_id: int, snapshot: Snapshot) -> int:
    if snapshot.first_row_id is None or snapshot.added_rows is None:
        missing = "first-row-id" if snapshot.first_row_id is None else "added-rows"
        raise BadInput(f"Cannot add a snapshot: {missing} is null", field=f"updates.snapshot.{missing}")
    if snapshot.first_row_id < next_row_id:
        raise CommitRefused(
            "Validation failed, please retry: Cannot add a snapshot, first-row-id is behind table "
            f"next-row-id: {snapshot.first_row_id} < {next_row_id}"
        )
    if snapshot.first_row_id + snapshot.added_rows > LONG_MAX:
        raise BadInput("Cannot add a snapshot: no row id is left", field="updates.snapshot.added-rows")
    return snapshot.first_row_id + snapshot.added_rows


def _set_ref(draft: Draft, update: SetSnapshotRef) -> None:
    ref = SnapshotRef(
        snapshot_id=update.snapshot_id,
        type=update.type.lower(),
        min_snapshots_to_keep=update.min_snapshots_to_keep,
        max_snapshot_age_ms=update.max_snapshot_age_ms,
        max_ref_age_ms=update.max_ref_age_ms,
    )
    name = update.ref_name
    if not name:
        raise BadInput("a ref needs a name", field="updates.ref-name")
    if ref.type not in ("branch", "tag"):
        raise BadInput(f"Invalid snapshot ref type: {update.type}", field="updates.type")
    for value, field in (
        (ref.min_snapshots_to_keep, "min-snapshots-to-keep"),
        (ref.max_snapshot_age_ms, "max-snapshot-age-ms"),
        (ref.max_ref_age_ms, "max-ref-age-ms"),
    ):
        if value is not None and value <= 0:
            raise BadInput(f"{field} of ref {name} must be positive: {value}", field=f"updates.{field}")
    if ref.type == "tag" and (ref.min_snapshots_to_keep is not None or ref.max_snapshot_age_ms is not None):
        raise BadInput(f"Tags do not support setting a snapshot retention: {name}", field="updates.type")
    if draft.envelope.refs.get(name) == ref:
        return
    if ref.snapshot_id not in draft.snapshots:
        raise BadInput(
            f"Cannot set {name} to unknown snapshot: {ref.snapshot_id}", field="updates.snapshot-id"
        )
    if name == MAIN and ref.type != "branch":
        raise BadInput(f"Cannot set {MAIN} to a tag, it must be a branch", field="updates.type")
    if name == MAIN:
        _make_current(draft, ref.snapshot_id)
    draft.set(refs={**draft.envelope.refs, name: ref})


def _make_current(draft: Draft, snapshot_id: int) -> None:
    if draft.envelope.current_snapshot_id == snapshot_id:
        return
    added = draft.added_snapshots.get(snapshot_id)
    if added is not None:
        draft.made_current.add(snapshot_id)
    # A rollback to an existing snapshot happens now; a new snapshot carries its own time.
    at_ms = max(draft.now_ms, draft.envelope.last_updated_ms) if added is None else added.timestamp_ms
    draft.history = append_history(draft.history, HistoryEntry(timestamp_ms=at_ms, snapshot_id=snapshot_id))
    draft.set(current_snapshot_id=snapshot_id, last_updated_ms=max(at_ms, draft.envelope.last_updated_ms))


def _remove_ref(draft: Draft, name: str) -> None:
    if name not in draft.envelope.refs:
        return
    draft.set(refs={k: v for k, v in draft.envelope.refs.items() if k != name})
    if name == MAIN:
        draft.set(current_snapshot_id=None)


def _remove_snapshots(draft: Draft, ids: tuple[int, ...]) -> None:
    gone = {id_ for id_ in ids if id_ in draft.snapshots}
    if not gone:
        return
    draft.snapshots = draft.snapshots.without(gone)
    draft.removed_snapshots |= gone
    draft.changed = True
    _drop_statistics(draft, gone)


def _check_refs(draft: Draft) -> None:
    """A snapshot that a ref needs is not removed: the ref may have been made after the client looked."""
    if not draft.removed_snapshots:
        return
    held = sorted(n for n, ref in draft.envelope.refs.items() if ref.snapshot_id not in draft.snapshots)
    if held:
        raise CommitRefused(
            f"Cannot remove snapshots that refs still point at: {', '.join(held)}; "
            "remove the refs first or refresh"
        )


def _drop_statistics(draft: Draft, ids: set[int], *, files: bool = True, partitions: bool = True) -> None:
    envelope = draft.envelope
    if files and any(s.snapshot_id in ids for s in envelope.statistics):
        draft.set(statistics=tuple(s for s in envelope.statistics if s.snapshot_id not in ids))
    if partitions and any(s.snapshot_id in ids for s in envelope.partition_statistics):
        kept = tuple(s for s in envelope.partition_statistics if s.snapshot_id not in ids)
        draft.set(partition_statistics=kept)


def _set_statistics(draft: Draft, update: SetStatistics) -> None:
    new = update.statistics
    if update.snapshot_id is not None and update.snapshot_id != new.snapshot_id:
        raise BadInput(
            f"statistics are for snapshot {new.snapshot_id}, the update says {update.snapshot_id}",
            field="updates.snapshot-id",
        )
    others = (s for s in draft.envelope.statistics if s.snapshot_id != new.snapshot_id)
    draft.set(statistics=(*others, new))


def _remove_properties(draft: Draft, names: tuple[str, ...]) -> None:
    kept = {k: v for k, v in draft.envelope.properties.items() if k not in names}
    if len(kept) != len(draft.envelope.properties):
        draft.set(properties=kept)


def _settle_history(draft: Draft) -> EncodedLog:
    """Leave out snapshots that were current only inside this request, and history before a removed one.

    Time travel must not see a gap as if the next snapshot had been current during it.
    """
    superseded = draft.made_current - {draft.envelope.current_snapshot_id}
    if not superseded and not draft.removed_snapshots:
        return draft.history
    items = list(draft.history)
    ids = find_history_ids(draft.history)
    gap = -1
    if draft.removed_snapshots:
        present = draft.snapshots.keys()
        behind = range(len(ids) - 1, -1, -1)
        gap = next((i for i in behind if ids[i] not in present and ids[i] not in superseded), -1)
    gone = {item.key for item in items[: gap + 1]}
    if superseded:
        gone |= {item.key for item, id_ in zip(items, ids, strict=True) if id_ in superseded}
    return draft.history.without(gone)


def extend_metadata_log(
    envelope: Envelope, previous: MetadataLogEntry | None
) -> tuple[MetadataLogEntry, ...]:
    """The log of metadata files, with the previous one at its end, and no more of them than the table wants."""
    log = envelope.metadata_log
    if previous is None or (log and log[-1].metadata_file == previous.metadata_file):
        return log
    return (*log, previous)[-previous_versions_max(envelope.properties) :]


def previous_versions_max(properties: dict[str, str]) -> int:
    """How many previous metadata files the log keeps; a value that is no number counts as the default."""
    text = properties.get(_PREVIOUS_VERSIONS_MAX, "")
    return max(1, int(text)) if re.fullmatch("[0-9]{1,9}", text) else _PREVIOUS_VERSIONS_DEFAULT
