"""Builders of what a manifest to be written holds. Each defaults everything."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestFile,
    Metrics,
    NewEntry,
    PartitionValue,
)
from headgate.core.partitioning import PartitionField, PartitionSpec
from headgate.core.schema import Field, Schema
from headgate.format.manifest_encode import EncodedManifest

# Transform, type of its source, a value, and whether the type needs v3.
RESULTS: dict[str, tuple[str, str, PartitionValue, bool]] = {
    "flag": ("identity", "boolean", True, False),
    "number": ("identity", "int", -(2**31), False),
    "big": ("identity", "long", 2**63 - 1, False),
    "ratio": ("identity", "float", -1.5, False),
    "ratio2": ("identity", "double", 0.1, False),
    "price": ("identity", "decimal(10, 2)", Decimal("-12345678.90"), False),
    "cost": ("truncate[10]", "decimal(10, 2)", Decimal("0.10"), False),
    "huge": ("identity", "decimal(38, 0)", Decimal(10**38 - 1), False),
    "day": ("identity", "date", 19_000, False),
    "clock": ("identity", "time", 86_399_999_999, False),
    "at": ("identity", "timestamp", -1, False),
    "atz": ("identity", "timestamptz", 1_700_000_000_000_000, False),
    "at_ns": ("identity", "timestamp_ns", 1, True),
    "atz_ns": ("identity", "timestamptz_ns", 2**62, True),
    "odd.name": ("identity", "string", "grün/🚰", False),
    "1st": ("truncate[3]", "string", "abc", False),
    "u": ("identity", "uuid", UUID(int=5), False),
    "fixed": ("identity", "fixed[3]", b"\x00\x01\xff", False),
    "fixed2": ("identity", "fixed[3]", b"abc", False),
    "raw": ("truncate[2]", "binary", b"\xff\x00", False),
    "bucketed": ("bucket[16]", "uuid", 15, False),
    "by_year": ("year", "date", 54, False),
    "by_month": ("month", "timestamp", 648, False),
    "by_day": ("day", "timestamptz", 19_724, False),
    "by_hour": ("hour", "timestamptz", 473_376, False),
    "gone": ("void", "decimal(9, 3)", None, False),
}
SNAPSHOT_ID = 7001
ALL_METRICS = Metrics(
    column_sizes={1: 10, 2: 2**40},
    value_counts={1: 5},
    null_value_counts={1: 0, 2: 5},
    nan_value_counts={},
    lower_bounds={1: b"\x01", 2: b""},
    upper_bounds={1: b"\xff" * 70},
)


def spec_of(*names: str) -> tuple[PartitionSpec, Schema]:
    """A spec of these fields of RESULTS, and a schema whose columns are called otherwise."""
    columns = tuple(
        Field(id=n, name=f"c{n}", type=RESULTS[name][1], required=False) for n, name in enumerate(names, 1)
    )
    fields = tuple(
        PartitionField(name=name, transform=RESULTS[name][0], source_id=n, field_id=999 + n)
        for n, name in enumerate(names, 1)
    )
    return PartitionSpec(fields=fields, spec_id=3), Schema(fields=columns, schema_id=2)


def file(path: str = "d.parquet", *partition: PartitionValue, **facts: Any) -> ContentFile:
    """A data file with all metrics."""
    known: dict[str, Any] = {
        "content": FileContent.DATA,
        "file_path": path,
        "file_format": "PARQUET",
        "spec_id": 3,
        "partition": tuple((1000 + n, value) for n, value in enumerate(partition)),
        "record_count": 5,
        "file_size_in_bytes": 1000,
        "metrics": ALL_METRICS,
    }
    return ContentFile(**{**known, **facts})


def added(one: ContentFile) -> NewEntry:
    """An entry whose numbers come with the commit."""
    return NewEntry(EntryStatus.ADDED, one, SNAPSHOT_ID, None, None)


def kept(one: ContentFile, *, number: int = 3, status: EntryStatus = EntryStatus.EXISTING) -> NewEntry:
    """An entry with numbers of its own."""
    return NewEntry(status, one, 6999, number, number)


def listed(encoded: EncodedManifest, content: ManifestContent, **facts: Any) -> ManifestFile:
    """The manifest as a list of snapshot SNAPSHOT_ID, sequence number 9, has it."""
    number = encoded.min_sequence_number
    known: dict[str, Any] = {
        "manifest_path": "m.avro",
        "manifest_length": len(encoded.data),
        "partition_spec_id": 3,
        "content": content,
        "sequence_number": 9,
        "min_sequence_number": 9 if number is None else number,
        "added_snapshot_id": SNAPSHOT_ID,
        "added_files_count": encoded.added_files_count,
        "existing_files_count": encoded.existing_files_count,
        "deleted_files_count": encoded.deleted_files_count,
        "added_rows_count": encoded.added_rows_count,
        "existing_rows_count": encoded.existing_rows_count,
        "deleted_rows_count": encoded.deleted_rows_count,
        "partitions": encoded.partitions,
    }
    return ManifestFile(**{**known, **facts})
