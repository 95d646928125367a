"""The part of the audit that needs table metadata alone: ancestry, numbers, refs and references. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

import msgspec

from headgate.core.audit_findings import Ledger, Rule, Severity
from headgate.core.table import MAIN, HistoryEntry, MetadataLogEntry, Snapshot, SnapshotRef
from headgate.core.value import Count, Int, Long, Value
from headgate.errors import BadInput

# Java and Rust refuse a snapshot more than a minute before its parent; less is a skewed clock.
CLOCK_SKEW_MS_MAX = 60_000


class _SchemaId(Value, frozen=True):
    schema_id: Int = 0


class _SpecId(Value, frozen=True):
    spec_id: Int


class _OrderId(Value, frozen=True):
    order_id: Int


class _Statistics(Value, frozen=True):
    snapshot_id: Long
    statistics_path: str


class AuditedMetadata(Value, frozen=True):
    """What the audit looks at, read more leniently than `core.table`: a broken table must be readable too."""

    format_version: Int
    last_sequence_number: Count = 0
    next_row_id: Count | None = None
    current_snapshot_id: Long | None = None
    snapshots: tuple[Snapshot, ...] | None = None
    refs: dict[str, SnapshotRef] | None = None
    snapshot_log: tuple[HistoryEntry, ...] | None = None
    metadata_log: tuple[MetadataLogEntry, ...] | None = None
    current_schema_id: Int | None = None
    schemas: tuple[_SchemaId, ...] | None = None
    schema: _SchemaId | None = None  # v1
    default_spec_id: Int | None = None
    partition_specs: tuple[_SpecId, ...] | None = None
    default_sort_order_id: Int | None = None
    sort_orders: tuple[_OrderId, ...] | None = None
    statistics: tuple[_Statistics, ...] | None = None
    partition_statistics: tuple[_Statistics, ...] | None = None

    def all_snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots, as listed."""
        return self.snapshots or ()

    def current(self) -> int | None:
        """The current snapshot's id; old writers say -1 for none."""
        return None if self.current_snapshot_id == -1 else self.current_snapshot_id

    def heads(self) -> dict[str, int]:
        """Snapshot ids by ref; v1 tables may have a current snapshot and no refs."""
        if self.refs is not None:
            return {name: ref.snapshot_id for name, ref in self.refs.items()}
        current = self.current()
        return {} if current is None else {MAIN: current}

    def schema_ids(self) -> frozenset[int]:
        """Ids of the schemas that are there."""
        if self.schemas is None:
            return frozenset({self.schema.schema_id if self.schema is not None else 0})
        return frozenset(schema.schema_id for schema in self.schemas)

    def spec_ids(self) -> frozenset[int]:
        """Ids of the partition specs that are there; v1 may have one without an id."""
        if self.partition_specs is None:
            return frozenset({0})
        return frozenset(spec.spec_id for spec in self.partition_specs)

    def order_ids(self) -> frozenset[int]:
        """Ids of the sort orders that are there; 0 is "unsorted" and always is."""
        return frozenset(order.order_id for order in self.sort_orders or ()) | {0}


def decode_metadata(metadata: Mapping[str, object]) -> AuditedMetadata:
    """Check the shape of decoded table metadata; BadInput names the field that is wrong."""
    try:
        return msgspec.convert(metadata, AuditedMetadata)
    except msgspec.ValidationError as error:
        raise BadInput(f"not table metadata: {error}", field="metadata") from error


def check_metadata(metadata: AuditedMetadata, ledger: Ledger) -> None:
    """Run every rule that needs no other file."""
    _check_unique(metadata, ledger)
    _check_ancestry(metadata, ledger)
    _check_refs(metadata, ledger)
    _check_references(metadata, ledger)
    _check_snapshot_row_ids(metadata, ledger)


def check_outcomes(
    metadata: AuditedMetadata, ledger: Ledger, *, expected: frozenset[int], forbidden: frozenset[int]
) -> None:
    """Acknowledged commits are there, once; refused ones are nowhere."""
    if not expected and not forbidden:
        return
    listed = Counter(snapshot.snapshot_id for snapshot in metadata.all_snapshots())
    by_id = _by_id(metadata)
    reachable: set[int] = set()
    for head in metadata.heads().values():
        for snapshot in _ancestry(head, by_id):
            if snapshot.snapshot_id in reachable:
                break  # the rest was walked from another head
            reachable.add(snapshot.snapshot_id)
    for snapshot_id in sorted(expected):
        if snapshot_id not in reachable:
            where = "in no ref's ancestry" if listed[snapshot_id] else "not in the table"
            ledger.add(Rule.EXPECTED_SNAPSHOT, snapshot_id, f"acknowledged, but {where}")
        elif listed[snapshot_id] > 1:
            ledger.add(Rule.EXPECTED_SNAPSHOT, snapshot_id, f"listed {listed[snapshot_id]} times")
    for snapshot_id in sorted(forbidden & listed.keys()):
        ledger.add(Rule.FORBIDDEN_SNAPSHOT, snapshot_id, "refused, but in the table", snapshot_id=snapshot_id)


def _by_id(metadata: AuditedMetadata) -> dict[int, Snapshot]:
    return {snapshot.snapshot_id: snapshot for snapshot in metadata.all_snapshots()}


def _ancestry(head: int | None, by_id: Mapping[int, Snapshot]) -> Iterator[Snapshot]:
    """From a head to its oldest known ancestor; ends at a gap and at a cycle."""
    seen: set[int] = set()
    while head is not None and head not in seen and (snapshot := by_id.get(head)) is not None:
        seen.add(head)
        yield snapshot
        head = snapshot.parent_snapshot_id


def _check_unique(metadata: AuditedMetadata, ledger: Ledger) -> None:
    ids = Counter(snapshot.snapshot_id for snapshot in metadata.all_snapshots())
    for snapshot_id, count in ids.items():
        if count > 1:
            ledger.add(Rule.SNAPSHOT_ID_UNIQUE, snapshot_id, f"{count} snapshots", snapshot_id=snapshot_id)
    users: dict[str, set[int]] = {}
    for snapshot in metadata.all_snapshots():
        if snapshot.manifest_list is not None:
            users.setdefault(snapshot.manifest_list, set()).add(snapshot.snapshot_id)
    for path, snapshot_ids in users.items():
        if len(snapshot_ids) > 1:
            ledger.add(Rule.MANIFEST_LIST_UNIQUE, path, f"used by snapshots {sorted(snapshot_ids)}")


def _check_ancestry(metadata: AuditedMetadata, ledger: Ledger) -> None:
    by_id = _by_id(metadata)
    cyclic = _cyclic(by_id)
    for snapshot_id in sorted(cyclic):
        ledger.add(
            Rule.PARENT_CYCLE, snapshot_id, "its own ancestor by parent-snapshot-id", snapshot_id=snapshot_id
        )
    for snapshot in metadata.all_snapshots():
        _check_sequence_limit(metadata, snapshot, ledger)
        parent_id = snapshot.parent_snapshot_id
        if parent_id is None or snapshot.snapshot_id in cyclic:
            continue
        if (parent := by_id.get(parent_id)) is None:
            ledger.add(
                Rule.PARENT_MISSING,
                parent_id,
                "not in the table: expired?",
                snapshot_id=snapshot.snapshot_id,
                severity=Severity.NOTE,
            )
            continue
        _check_pair(metadata, parent, snapshot, ledger)


def _cyclic(by_id: Mapping[int, Snapshot]) -> set[int]:
    """Snapshots that are their own ancestors. Each is walked once: finished ones are not entered again."""
    finished: set[int] = set()
    cyclic: set[int] = set()
    for start in by_id:
        path: dict[int, int] = {}
        at: int | None = start
        while at is not None and at in by_id and at not in finished and at not in path:
            path[at] = len(path)
            at = by_id[at].parent_snapshot_id
        if at is not None and at in path:
            cyclic.update(snapshot_id for snapshot_id, place in path.items() if place >= path[at])
        finished.update(path)
    return cyclic


def _check_sequence_limit(metadata: AuditedMetadata, snapshot: Snapshot, ledger: Ledger) -> None:
    if metadata.format_version > 1 and snapshot.sequence_number > metadata.last_sequence_number:
        ledger.add(
            Rule.SEQUENCE_LIMIT,
            snapshot.sequence_number,
            f"last-sequence-number is {metadata.last_sequence_number}",
            snapshot_id=snapshot.snapshot_id,
        )


def _check_pair(metadata: AuditedMetadata, parent: Snapshot, child: Snapshot, ledger: Ledger) -> None:
    # Snapshots from before an upgrade to v2 all have number 0.
    numbered = parent.sequence_number > 0 or child.sequence_number > 0
    if metadata.format_version > 1 and numbered and child.sequence_number <= parent.sequence_number:
        ledger.add(
            Rule.SEQUENCE_ORDER,
            child.sequence_number,
            f"parent {parent.snapshot_id} has {parent.sequence_number}",
            snapshot_id=child.snapshot_id,
        )
    behind_ms = parent.timestamp_ms - child.timestamp_ms
    if behind_ms > 0:
        ledger.add(
            Rule.TIMESTAMP_ORDER,
            child.timestamp_ms,
            f"{behind_ms} ms before parent {parent.snapshot_id}",
            snapshot_id=child.snapshot_id,
            severity=Severity.ERROR if behind_ms > CLOCK_SKEW_MS_MAX else Severity.NOTE,
        )


def _check_refs(metadata: AuditedMetadata, ledger: Ledger) -> None:
    known = _by_id(metadata).keys()
    for name, snapshot_id in sorted(metadata.heads().items()):
        if snapshot_id not in known:
            ledger.add(Rule.REF_TARGET, name, f"snapshot {snapshot_id} is not in the table")
    current = metadata.current()
    main = metadata.heads().get(MAIN)
    if main != current:
        ledger.add(Rule.CURRENT_IS_MAIN, MAIN, f"refs.main is {main}, current-snapshot-id is {current}")
    if metadata.snapshot_log and metadata.snapshot_log[-1].snapshot_id != current:
        ledger.add(
            Rule.HISTORY_HEAD,
            metadata.snapshot_log[-1].snapshot_id,
            f"the log ends here, but current-snapshot-id is {current}",
        )


def _check_references(metadata: AuditedMetadata, ledger: Ledger) -> None:
    schemas = metadata.schema_ids()
    if metadata.current_schema_id is not None and metadata.current_schema_id not in schemas:
        ledger.add(Rule.SCHEMA_KNOWN, metadata.current_schema_id, "current-schema-id; no such schema")
    for snapshot in metadata.all_snapshots():
        if snapshot.schema_id is not None and snapshot.schema_id not in schemas:
            ledger.add(
                Rule.SCHEMA_KNOWN,
                snapshot.schema_id,
                "the snapshot's schema-id; no such schema",
                snapshot_id=snapshot.snapshot_id,
            )
    if (spec := metadata.default_spec_id) is not None and spec not in metadata.spec_ids():
        ledger.add(Rule.SPEC_KNOWN, spec, "default-spec-id; no such partition spec")
    if (order := metadata.default_sort_order_id) is not None and order not in metadata.order_ids():
        ledger.add(Rule.SORT_ORDER_KNOWN, order, "default-sort-order-id; no such sort order")


def _check_snapshot_row_ids(metadata: AuditedMetadata, ledger: Ledger) -> None:
    ranges = sorted(
        (snapshot.first_row_id, snapshot.first_row_id + (snapshot.added_rows or 0), snapshot.snapshot_id)
        for snapshot in metadata.all_snapshots()
        if snapshot.first_row_id is not None
    )
    for start, end, snapshot_id in ranges:
        if metadata.next_row_id is not None and end > metadata.next_row_id:
            ledger.add(
                Rule.SNAPSHOT_ROW_IDS,
                f"{start}-{end}",
                f"beyond next-row-id {metadata.next_row_id}",
                snapshot_id=snapshot_id,
            )
    filled = [item for item in ranges if item[0] < item[1]]
    for (_, left_end, left_id), (start, end, snapshot_id) in pairwise(filled):
        if start < left_end:
            ledger.add(
                Rule.SNAPSHOT_ROW_IDS,
                f"{start}-{end}",
                f"overlaps the rows of snapshot {left_id}, which end at {left_end}",
                snapshot_id=snapshot_id,
            )
