"""Rows in Arrow cut by partition: the values of a spec's transforms, and the rows that share them.

PyIceberg computes `bucket` and `truncate`, once for each different value; times are cut by Arrow itself, whatever the
zone of the session is. Values come out as manifests store them: days and microseconds are numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import IcebergType, StructType

from headgate.errors import BadInput
from headgate.format.content_files import encode_value

Values = tuple[Any, ...]  # one partition: a value for each field of the spec
_EPOCH_YEAR = 1970
_MONTHS = 12
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_HOUR_S, _DAY_S = 3_600, 86_400


def split(rows: pa.Table, spec: PartitionSpec, schema: Schema) -> Iterator[tuple[Values, pa.Table]]:
    """The rows of each partition, in the order in which they came."""
    if not spec.fields or not rows.num_rows:
        yield tuple(None for _ in spec.fields), rows
        return
    columns = [_partition_column(rows, part, schema) for part in spec.fields]
    codes = _number(columns)
    order = pc.array_sort_indices(codes)
    run_ends = pc.run_end_encode(codes.take(order)).run_ends.to_pylist()
    if len(run_ends) > 1:
        rows = rows.take(order)
    start = 0
    for end in run_ends:
        first = order[start].as_py()
        yield tuple(column[first].as_py() for column in columns), rows.slice(start, end - start)
        start = end


def transform_values(transform: Transform[Any, Any], source: IcebergType, values: pa.Array) -> pa.Array:
    """What a transform makes of a column."""
    stored = _as_stored(values)
    match transform:
        case IdentityTransform():
            return stored
        case YearTransform() | MonthTransform():
            times = values if pa.types.is_date(values.type) else stored.cast(_unzoned(values.type))
            years = pc.subtract(pc.year(times), _EPOCH_YEAR)
            if isinstance(transform, YearTransform):
                return years.cast(pa.int32())
            return pc.add(pc.multiply(years, _MONTHS), pc.subtract(pc.month(times), 1)).cast(pa.int32())
        case DayTransform() if pa.types.is_date(values.type):
            return stored
        case DayTransform() | HourTransform():
            unit_s = _DAY_S if isinstance(transform, DayTransform) else _HOUR_S
            return _floor_divide(stored, unit_s * _PER_SECOND[values.type.unit]).cast(pa.int32())
        case TruncateTransform() if pa.types.is_integer(stored.type):
            # Unchecked, so that it wraps around at the least number, as Java's does.
            return pc.multiply(
                _floor_divide(stored, transform.width), pa.scalar(transform.width, stored.type)
            )
        case UnknownTransform():
            raise BadInput(
                f"partition transform {transform}: rows cannot be written by it", field="partition-spec"
            )
        case _:
            return _each_once(transform, source, stored)


def to_wire(spec: PartitionSpec, schema: Schema, values: Values) -> list[object]:
    """A partition tuple as content-file JSON has it."""
    return [
        None if value is None else encode_value(_result_type(part, schema), value)
        for part, value in zip(spec.fields, values, strict=True)
    ]


def _partition_column(rows: pa.Table, part: PartitionField, schema: Schema) -> pa.Array:
    if isinstance(part.transform, VoidTransform):  # its column may be gone
        return pa.nulls(rows.num_rows, pa.int32())
    path = _find_path(schema.as_struct(), part.source_id)
    if path is None:
        raise BadInput(
            f"partition field {part.name}: the table has no column for it now", field=f"partition.{part.name}"
        )
    column = rows.column(schema.fields[path[0]].name)
    source = pa.concat_arrays(column.chunks)
    if len(path) > 1:
        source = pc.struct_field(source, list(path[1:]))
    return transform_values(part.transform, schema.find_type(part.source_id), source)


def _result_type(part: PartitionField, schema: Schema) -> IcebergType:
    return part.transform.result_type(schema.find_type(part.source_id))


def _find_path(struct: StructType, field_id: int) -> tuple[int, ...] | None:
    """Where a column is, by positions: at the top or inside structs."""
    for at, field in enumerate(struct.fields):
        if field.field_id == field_id:
            return (at,)
        if isinstance(field.field_type, StructType):
            below = _find_path(field.field_type, field_id)
            if below is not None:
                return (at, *below)
    return None


def _as_stored(values: pa.Array) -> pa.Array:
    """Dates and times as the numbers that manifests hold; UUIDs as their bytes."""
    if isinstance(values, pa.ExtensionArray):
        return values.storage
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(values.type) or pa.types.is_time64(values.type):
        return values.cast(pa.int64())
    return values


def _unzoned(type_: pa.DataType) -> pa.DataType:
    return pa.timestamp(type_.unit)


def _floor_divide(values: pa.Array, by: int) -> pa.Array:
    """Arrow rounds towards zero; times before 1970 are to be rounded down."""
    unit = pa.scalar(by, values.type)
    down = pc.divide(values, unit)
    short = pc.less(values, pc.multiply(down, unit))
    return pc.subtract(down, short.cast(values.type))


def _each_once(transform: Transform[Any, Any], source: IcebergType, stored: pa.Array) -> pa.Array:
    """PyIceberg's function on every different value."""
    encoded = stored.dictionary_encode()
    apply = transform.transform(source)
    made = [apply(value) for value in encoded.dictionary.to_pylist()]
    result = stored.type if transform.result_type(source) == source else pa.int32()
    return pa.array(made, result).take(encoded.indices)


def _number(columns: list[pa.Array]) -> pa.Array:
    """A number for each row, the same for rows of one partition."""
    codes: pa.Array | None = None
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        numbers = encoded.indices.cast(pa.int64())
        if codes is not None:
            # Numbered anew at each step, so that the product stays small.
            product = pc.add(pc.multiply(codes, len(encoded.dictionary)), numbers)
            numbers = product.dictionary_encode().indices.cast(pa.int64())
        codes = numbers
    return codes
