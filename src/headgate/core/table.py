"""Table metadata as values: a small parsed envelope, and two logs whose items stay encoded.

A table with 50,000 snapshots has an envelope of a few kilobytes; snapshots and history are `EncodedLog`s
that nobody parses until someone looks at one. Holds no rules; those are in `apply` and `requirements`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

import msgspec

from headgate.core.encoded_log import EncodedLog
from headgate.core.partitioning import PartitionSpec, SortOrder
from headgate.core.schema import Schema
from headgate.core.value import Count, Int, Long, Record, Value
from headgate.errors import BadInput, InvariantBroken

MAIN = "main"
FORMAT_VERSIONS = (1, 2, 3)
FORMAT_VERSION_DEFAULT = 2
_LOOK_BACK = 16  # items between a snapshot and its parent, before the parent is looked up
_SNAPSHOTS_MAX, _SNAPSHOTS_FORGOTTEN = 288, 32
_STEPS_MAX = (
    16_384  # decoded steps that are remembered, of all tables: a window is walked by one change after another
)


class Snapshot(Value):
    """One version of a table's files."""

    snapshot_id: Long
    timestamp_ms: Long
    summary: dict[str, str] = msgspec.field(default_factory=dict)
    parent_snapshot_id: Long | None = None
    sequence_number: Count = 0
    manifest_list: str | None = None
    manifests: tuple[str, ...] | None = None  # v1 only
    schema_id: Int | None = None
    first_row_id: Count | None = None
    added_rows: Count | None = None
    key_id: str | None = None


class SnapshotRef(Value):
    """A branch or a tag."""

    snapshot_id: Long
    type: str
    min_snapshots_to_keep: Int | None = None
    max_snapshot_age_ms: Long | None = None
    max_ref_age_ms: Long | None = None


class HistoryEntry(Value):
    """When a snapshot became current."""

    timestamp_ms: Long
    snapshot_id: Long


class MetadataLogEntry(Value):
    """A previous metadata file."""

    metadata_file: str
    timestamp_ms: Long


class BlobMetadata(Value):
    """One blob of a statistics file."""

    type: str
    snapshot_id: Long
    sequence_number: Long
    fields: tuple[Int, ...]
    properties: dict[str, str] | None = None


class StatisticsFile(Value):
    """A Puffin file of statistics for one snapshot."""

    snapshot_id: Long
    statistics_path: str
    file_size_in_bytes: Count
    file_footer_size_in_bytes: Count
    blob_metadata: tuple[BlobMetadata, ...]
    key_metadata: str | None = None


class PartitionStatisticsFile(Value):
    """A file of per-partition statistics for one snapshot."""

    snapshot_id: Long
    statistics_path: str
    file_size_in_bytes: Count


class EncryptedKey(Value):
    """A key of table encryption, itself encrypted."""

    key_id: str
    encrypted_key_metadata: str
    encrypted_by_id: str | None = None
    properties: dict[str, str] | None = None


class Envelope(Value):
    """Everything in table metadata but the two lists that grow with every commit."""

    format_version: Int
    table_uuid: str
    location: str
    last_sequence_number: Count
    last_updated_ms: Long
    last_column_id: Int
    current_schema_id: Int
    schemas: tuple[Schema, ...]
    default_spec_id: Int
    partition_specs: tuple[PartitionSpec, ...]
    last_partition_id: Int
    default_sort_order_id: Int
    sort_orders: tuple[SortOrder, ...]
    properties: dict[str, str]
    refs: dict[str, SnapshotRef]
    metadata_log: tuple[MetadataLogEntry, ...]
    statistics: tuple[StatisticsFile, ...]
    partition_statistics: tuple[PartitionStatisticsFile, ...]
    current_snapshot_id: Long | None = None
    next_row_id: Count | None = None
    encryption_keys: tuple[EncryptedKey, ...] = ()


class TableMetadata(Record):
    """A table's metadata: `envelope` parsed, `snapshots` and `history` encoded."""

    envelope: Envelope
    snapshots: EncodedLog
    history: EncodedLog

    def find_snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Decode one snapshot, or None when there is none of that id."""
        item = self.snapshots.find(snapshot_id)
        if item is None:
            return None
        found = _DECODED.get(item.body)
        return _remember(item.body, _SNAPSHOT.decode(item.body)) if found is None else found

    def walk_back(self, snapshot_id: int | None, *, until: int | None) -> Iterator[Snapshot]:
        """This snapshot, its parent and so on, as far as they are known and before `until`.

        Their summaries hold the operation alone: whoever walks a window of thousands needs no more.
        """
        snapshots, decode = self.snapshots, _decode_step
        newest_first, steps_left = reversed(snapshots), len(snapshots)
        while snapshot_id is not None and snapshot_id != until:
            # A parent mostly stands just before its child, so the log is read backwards beside the walk.
            item = next(newest_first, None)
            if item is None or item.key != snapshot_id:
                beside = (item for item in islice(newest_first, _LOOK_BACK) if item.key == snapshot_id)
                item = next(beside, None) or snapshots.find(snapshot_id)
                if item is None:
                    return
            snapshot = decode(item.body)
            yield snapshot
            snapshot_id = snapshot.parent_snapshot_id
            if (steps_left := steps_left - 1) < 0:
                raise InvariantBroken("invariant broken: the history of a table has a cycle")

    def iter_snapshots(self) -> Iterator[Snapshot]:
        """Decode all snapshots, oldest first. O(table): for audits and registrations, not for commits."""
        return (_SNAPSHOT.decode(item.body) for item in self.snapshots)

    def iter_history(self) -> Iterator[HistoryEntry]:
        """Decode the history, oldest first."""
        return (_HISTORY.decode(item.body) for item in self.history)

    def schema(self) -> Schema:
        """The current schema."""
        envelope = self.envelope
        current = envelope.current_schema_id
        for schema in envelope.schemas:
            if schema.schema_id == current:
                return schema
        raise InvariantBroken("invariant broken: a table has no current schema")

    def find_spec(self, spec_id: int) -> PartitionSpec:
        """The partition spec of this id, which files have. A spec may be removed while files still use it."""
        for spec in self.envelope.partition_specs:
            if spec.spec_id == spec_id:
                return spec
        raise BadInput(f"the table has no partition spec {spec_id}, which its files use", field="spec-id")

    def size_bytes(self) -> int:
        """Roughly how large the metadata file is."""
        return self.snapshots.size_bytes + self.history.size_bytes + 4096


class _Operation(msgspec.Struct):
    operation: str | None = None


class _Step(msgspec.Struct, rename="kebab"):
    """What a walk through the history looks at in a snapshot; the rest is skipped, not decoded."""

    snapshot_id: int
    timestamp_ms: int
    summary: _Operation | None = None
    parent_snapshot_id: int | None = None
    sequence_number: int = 0
    manifest_list: str | None = None


_ENCODE = msgspec.json.Encoder().encode
_STEP = msgspec.json.Decoder(_Step)
_SNAPSHOT = msgspec.json.Decoder(Snapshot)
_HISTORY = msgspec.json.Decoder(HistoryEntry)
_ENTRIES = msgspec.json.Decoder(list[HistoryEntry])


# Those of the last commits are looked at several times in a row.
_DECODED: dict[bytes, Snapshot] = {}


def _remember(body: bytes, snapshot: Snapshot) -> Snapshot:
    """Have this snapshot at hand; of too many, those that came first go. From any thread."""
    _DECODED[body] = snapshot
    if len(_DECODED) > _SNAPSHOTS_MAX:
        # Some at once, so that not every commit has to.
        for old in list(_DECODED)[:_SNAPSHOTS_FORGOTTEN]:
            _DECODED.pop(old, None)  # another thread may have been faster
    return snapshot


@lru_cache(maxsize=_STEPS_MAX)
def _decode_step(body: bytes) -> Snapshot:
    step = _STEP.decode(body)
    operation = None if step.summary is None else step.summary.operation
    return Snapshot(
        snapshot_id=step.snapshot_id,
        timestamp_ms=step.timestamp_ms,
        summary={} if operation is None else {"operation": operation},
        parent_snapshot_id=step.parent_snapshot_id,
        sequence_number=step.sequence_number,
        manifest_list=step.manifest_list,
    )


def append_snapshot(log: EncodedLog, snapshot: Snapshot) -> EncodedLog:
    """A log with this snapshot at the end, tagged by its manifest list so that a store refuses it twice."""
    body = _ENCODE(snapshot)
    _remember(body, snapshot)  # the next commit's parent
    return log.append(body, key=snapshot.snapshot_id, tag=manifest_list_tag(snapshot))


def append_history(log: EncodedLog, entry: HistoryEntry) -> EncodedLog:
    """A log with this entry at the end."""
    return log.append(_ENCODE(entry))


def find_last_entry(log: EncodedLog) -> HistoryEntry | None:
    """The newest entry of a history."""
    item = log.last()
    return None if item is None else _HISTORY.decode(item.body)


def find_history_ids(log: EncodedLog) -> list[int]:
    """The snapshots of a history, oldest entry first. Blocks are decoded whole: a log of 50,000 takes milliseconds."""
    return [entry.snapshot_id for part in log.parts() for entry in _ENTRIES.decode(b"[%b]" % part)]


def manifest_list_tag(snapshot: Snapshot) -> int | None:
    """A 63-bit hash of the manifest list's path, or None when there is no manifest list."""
    if snapshot.manifest_list is None:
        return None
    digest = hashlib.blake2b(snapshot.manifest_list.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
