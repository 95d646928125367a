"""Builders of the values of `core` that default everything, so that a test shows only what matters.

Snapshot n has id n, sequence number n, parent n - 1 and a time n seconds after `T0`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headgate.core.apply import apply
from headgate.core.create import TableDefinition, build_table
from headgate.core.partitioning import PartitionField, PartitionSpec, SortField, SortOrder
from headgate.core.schema import Field, ListType, MapType, Schema, StructType, Type
from headgate.core.table import (
    MAIN,
    BlobMetadata,
    EncryptedKey,
    MetadataLogEntry,
    PartitionStatisticsFile,
    Snapshot,
    StatisticsFile,
    TableMetadata,
)
from headgate.core.updates import AddSnapshot, SetSnapshotRef, TableUpdate

T0 = 1_700_000_000_000
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
LOCATION = "file:///warehouse/db/t"
ROWS = 10  # added by every snapshot of a v3 table


def column(id: int, name: str | None = None, type: Type = "long", **more: Any) -> Field:
    return Field(id=id, name=f"c{id}" if name is None else name, type=type, **{"required": False, **more})


def struct(*fields: Field) -> StructType:
    return StructType(fields=fields)


def list_of(element: Type, id: int = 50, *, required: bool = False) -> ListType:
    return ListType(element_id=id, element=element, element_required=required)


def map_of(key: Type, value: Type, *, key_id: int = 60, value_id: int = 61) -> MapType:
    return MapType(key_id=key_id, key=key, value_id=value_id, value=value, value_required=False)


ID = column(1, "id", required=True)
TS = column(2, "ts", "timestamptz")
CITY = column(3, "city", "string")
COLUMNS = (ID, TS, CITY)


def schema(*fields: Field, identifiers: tuple[int, ...] = ()) -> Schema:
    return Schema(fields=fields or COLUMNS, identifier_field_ids=identifiers)


def part(
    source: int | None, transform: str = "identity", name: str | None = None, **more: Any
) -> PartitionField:
    names = {1: "id", 2: "ts", 3: "city"}
    default = names.get(source or 0, "p") + (
        "" if transform == "identity" else f"_{transform.partition('[')[0]}"
    )
    return PartitionField(
        name=default if name is None else name, transform=transform, source_id=source, **more
    )


def spec(*fields: PartitionField) -> PartitionSpec:
    return PartitionSpec(fields=fields)


def sort(source: int | None, transform: str = "identity", **more: Any) -> SortField:
    defaults = {"direction": "asc", "null_order": "nulls-first"}
    return SortField(source_id=source, transform=transform, **{**defaults, **more})


def order(*fields: SortField) -> SortOrder:
    return SortOrder(fields=fields)


def definition(**changes: Any) -> TableDefinition:
    defaults = {"schema": schema(), "location": LOCATION, "uuid": UUID, "properties": {}}
    return TableDefinition(**{**defaults, **changes})


def table(*, version: int = 2, snapshots: int = 0, at_ms: int = T0, **changes: Any) -> TableMetadata:
    """A table of three columns, with this many snapshots on main, each made by its own commit."""
    properties = {"format-version": str(version), **changes.pop("properties", {})}
    made = build_table(definition(properties=properties, **changes), now_ms=at_ms)
    for n in range(1, snapshots + 1):
        made = commit(made, *append(n, version=version))
    return made


def snapshot(n: int, *, version: int = 2, **changes: Any) -> Snapshot:
    defaults: dict[str, Any] = {
        "snapshot_id": n,
        "timestamp_ms": T0 + n * 1000,
        "summary": {"operation": "append"},
        "parent_snapshot_id": n - 1 if n > 1 else None,
        "sequence_number": 0 if version == 1 else n,
        "manifest_list": f"{LOCATION}/metadata/snap-{n}.avro",
        "schema_id": 0,
    }
    if version >= 3:
        defaults |= {"first_row_id": (n - 1) * ROWS, "added_rows": ROWS}
    return Snapshot(**{**defaults, **changes})


def append(n: int, *, branch: str = MAIN, version: int = 2, **changes: Any) -> tuple[TableUpdate, ...]:
    """The updates of a commit that adds snapshot n to a branch."""
    return AddSnapshot(snapshot=snapshot(n, version=version, **changes)), point(branch, n)


def point(ref: str, snapshot_id: int, type: str = "branch", **retention: Any) -> SetSnapshotRef:
    return SetSnapshotRef(ref_name=ref, snapshot_id=snapshot_id, type=type, **retention)


def statistics(snapshot_id: int, path: str = "s.puffin") -> StatisticsFile:
    blob = BlobMetadata(type="ndv", snapshot_id=snapshot_id, sequence_number=1, fields=(1,))
    return StatisticsFile(
        snapshot_id=snapshot_id,
        statistics_path=path,
        file_size_in_bytes=10,
        file_footer_size_in_bytes=4,
        blob_metadata=(blob,),
    )


def partition_statistics(snapshot_id: int, path: str = "p.parquet") -> PartitionStatisticsFile:
    return PartitionStatisticsFile(snapshot_id=snapshot_id, statistics_path=path, file_size_in_bytes=10)


def encryption_key(key_id: str = "k", metadata: str = "bQ==") -> EncryptedKey:
    return EncryptedKey(key_id=key_id, encrypted_key_metadata=metadata)


def metadata_file(n: int) -> MetadataLogEntry:
    return MetadataLogEntry(metadata_file=f"v{n}.metadata.json", timestamp_ms=T0 + n)


def commit(base: TableMetadata | None, *updates: TableUpdate, now_ms: int | None = None) -> TableMetadata:
    """The metadata after a commit that must change something; by default at the time of its last snapshot."""
    made = apply(base, updates, now_ms=_time_of(base, updates) if now_ms is None else now_ms)
    assert made is not None, "the commit changed nothing"
    return made


def _time_of(base: TableMetadata | None, updates: Iterable[TableUpdate]) -> int:
    times = [update.snapshot.timestamp_ms for update in updates if isinstance(update, AddSnapshot)]
    return max((T0 if base is None else base.envelope.last_updated_ms, *times))


def history(metadata: TableMetadata) -> list[int]:
    """The snapshots that were current, oldest first."""
    return [entry.snapshot_id for entry in metadata.iter_history()]


def ids(metadata: TableMetadata) -> list[int]:
    """The snapshots that are there, oldest first."""
    return [item.key for item in metadata.snapshots]
