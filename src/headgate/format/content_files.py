"""Data and delete files as the REST specification's content-file JSON: the inverse of `core.intake`. No I/O.

Partition values are single-value JSON (spec, appendix D), bounds the hexadecimal of their single-value bytes, as
fine-grained commits send them. What a file does not have is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from uuid import UUID

from pyiceberg.types import (
    DateType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)
from pyiceberg.utils.datetime import days_to_date, micros_to_time, micros_to_timestamp, micros_to_timestamptz

from headgate.core.iceberg import partition_schema, schema_for_spec
from headgate.core.manifest import ContentFile, FileContent, Metrics, PartitionValue
from headgate.core.table import TableMetadata

_CONTENTS = {
    FileContent.DATA: "data",
    FileContent.POSITION_DELETES: "position-deletes",
    FileContent.EQUALITY_DELETES: "equality-deletes",
}
_NANOS_A_MICRO = 1000


def _nanos(value: int, *, zone: str) -> str:
    micros, nanos = divmod(value, _NANOS_A_MICRO)
    return f"{micros_to_timestamp(micros).isoformat(timespec='microseconds')}{nanos:03d}{zone}"


_STORED_AS_NUMBERS: Mapping[type[IcebergType], Callable[[int], str]] = {
    DateType: lambda value: days_to_date(value).isoformat(),
    TimeType: lambda value: micros_to_time(value).isoformat(timespec="microseconds"),
    TimestampType: lambda value: micros_to_timestamp(value).isoformat(timespec="microseconds"),
    TimestamptzType: lambda value: micros_to_timestamptz(value).isoformat(timespec="microseconds"),
    TimestampNanoType: lambda value: _nanos(value, zone=""),
    TimestamptzNanoType: lambda value: _nanos(value, zone="+00:00"),
}


def encode_content_file(file: ContentFile, types: Mapping[int, IcebergType]) -> dict[str, object]:
    """The JSON object of a file; `types` are the `partition_types` of its spec."""
    shown: dict[str, object] = {
        "content": _CONTENTS[file.content],
        "file-path": file.file_path,
        "file-format": file.file_format.lower(),
        "spec-id": file.spec_id,
        "partition": [encode_value(types.get(id_), value) for id_, value in file.partition],
        "file-size-in-bytes": file.file_size_in_bytes,
        "record-count": file.record_count,
        "key-metadata": None if file.key_metadata is None else file.key_metadata.hex(),
        "split-offsets": file.split_offsets,
        "sort-order-id": file.sort_order_id,
        "first-row-id": file.first_row_id,
        "equality-ids": file.equality_ids,
        "referenced-data-file": file.referenced_data_file,
        "content-offset": file.content_offset,
        "content-size-in-bytes": file.content_size_in_bytes,
        **_metrics(file.metrics or Metrics()),
    }
    return {name: value for name, value in shown.items() if value is not None}


def partition_types(table: TableMetadata, spec_id: int) -> Mapping[int, IcebergType]:
    """The types of a spec's partition values by field id; those of a dropped column come from an older schema."""
    envelope = table.envelope
    spec = next((spec for spec in envelope.partition_specs if spec.spec_id == spec_id), None)
    if spec is None:
        return {}
    schema = schema_for_spec(spec, envelope.schemas, current=table.schema())
    return {field.field_id: field.field_type for field in partition_schema(spec, schema).fields}


def encode_value(type_: IcebergType | None, value: PartitionValue) -> object:
    """One partition value as single-value JSON; a time that no calendar text can hold stays a number."""
    match value:
        case bool() | str() | None:
            return value
        case int():
            encode = None if type_ is None else _STORED_AS_NUMBERS.get(type(type_))
            if encode is None:
                return value
            try:
                return encode(value)
            except (OverflowError, ValueError):
                return value
        case float():
            return value if math.isfinite(value) else _non_number(value)
        case Decimal():
            return f"{value:f}"
        case UUID():
            return str(value)
        case bytes():
            return value.hex()


def _non_number(value: float) -> str:
    """JSON has no such numbers; this is how Java's writer spells them."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _metrics(metrics: Metrics) -> dict[str, object]:
    return {
        "column-sizes": _counts(metrics.column_sizes),
        "value-counts": _counts(metrics.value_counts),
        "null-value-counts": _counts(metrics.null_value_counts),
        "nan-value-counts": _counts(metrics.nan_value_counts),
        "lower-bounds": _bounds(metrics.lower_bounds),
        "upper-bounds": _bounds(metrics.upper_bounds),
    }


def _counts(counts: Mapping[int, int] | None) -> dict[str, object] | None:
    return None if counts is None else {"keys": list(counts), "values": list(counts.values())}


def _bounds(bounds: Mapping[int, bytes] | None) -> dict[str, object] | None:
    return (
        None if bounds is None else {"keys": list(bounds), "values": [data.hex() for data in bounds.values()]}
    )
