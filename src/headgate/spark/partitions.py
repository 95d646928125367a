"""Partition values computed in Spark, for every transform, and how they are spelled in the names of folders.

Times are counted from microseconds or the local calendar, never by the session's zone. A folder's name is ASCII
and tells null, empty and every other value apart; one that would be too long holds a digest instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_plus
from uuid import UUID

import pyarrow as pa
from pyiceberg import types as iceberg
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf

from headgate.errors import BadInput
from headgate.format.content_files import encode_value
from headgate.spark.arrow_partitions import transform_values
from headgate.spark.columns import column_at, path_of

FOLDER = "__headgate_p"  # then the position in the spec: a column of the table is not called so
NULL = "__HIVE_DEFAULT_PARTITION__"  # Spark's name of the folder of nulls
_DAY_MICROS, _HOUR_MICROS = 86_400_000_000, 3_600_000_000
_EPOCH_YEAR, _MONTHS = 1970, 12
_NAME_LENGTH_MAX = 120
_DECIMAL_DIGITS_MAX = 38
_VALUE, _DIGEST = "v", "h"


@dataclass(frozen=True, slots=True)
class Partitioned:
    """One field of a spec: its value, and the text that names the folder of its rows."""

    field: PartitionField
    folder: str  # the column that is written as a folder
    type: iceberg.IcebergType  # of the value
    source: tuple[str, ...]  # the path of the column it is made from; empty when it may be gone
    source_type: iceberg.IcebergType
    value: Column
    text: Column


def partition_columns(spec: PartitionSpec, schema: Schema) -> tuple[Partitioned, ...]:
    """The partition values of a spec, over rows that `fit` has made."""
    return tuple(_partitioned(at, part, schema) for at, part in enumerate(spec.fields))


def transform_column(transform: Transform[Any, Any], source: iceberg.IcebergType, column: Column) -> Column:
    """What a transform makes of a column; times come out as numbers since 1970."""
    match transform:
        case VoidTransform():
            return sf.lit(None).cast("int")
        case IdentityTransform():
            return column
        case YearTransform():
            return sf.year(_date(source, column)) - _EPOCH_YEAR
        case MonthTransform():
            date = _date(source, column)
            return (sf.year(date) - _EPOCH_YEAR) * _MONTHS + sf.month(date) - 1
        case DayTransform():
            if isinstance(source, iceberg.TimestamptzType):
                return _floor_div(sf.unix_micros(column), _DAY_MICROS).cast("int")
            return sf.unix_date(_date(source, column))
        case HourTransform():
            if isinstance(source, iceberg.TimestamptzType):
                return _floor_div(sf.unix_micros(column), _HOUR_MICROS).cast("int")
            return sf.unix_date(_date(source, column)) * 24 + sf.hour(column)
        case BucketTransform():
            return _by_arrow(transform, source, "int")(column)
        case TruncateTransform():
            return _truncate(transform, source, column)
    raise BadInput(f"partition transform {transform}: rows cannot be written by it", field="partition-spec")


def decode_folder(name: str, type_: iceberg.IcebergType) -> object:
    """The value that a folder's name spells, as the JSON of a content file has it; KeyError for a digest."""
    _, _, text = name.partition("=")
    if text == NULL:
        return None
    read = _READ.get(type(type_), int)
    if type(type_) in _SPELLED:
        if text.startswith(_DIGEST):
            raise KeyError(name)
        text = text.removeprefix(_VALUE)
    return encode_value(type_, read(text))


def decode_value(value: Any, part: PartitionField, source: iceberg.IcebergType) -> object:
    """The partition value that belongs to a value of PyArrow's, as the JSON of a content file has it."""
    if isinstance(source, iceberg.UUIDType) and isinstance(value, bytes):
        value = UUID(bytes=value)
    return encode_value(part.transform.result_type(source), part.transform.transform(source)(value))


def _partitioned(at: int, part: PartitionField, schema: Schema) -> Partitioned:
    folder = f"{FOLDER}{at}"
    if isinstance(part.transform, VoidTransform):  # its column may be gone
        nothing = sf.lit(None).cast("string")
        unknown = iceberg.StringType()
        return Partitioned(part, folder, unknown, (), unknown, nothing, nothing)
    path = path_of(schema, part.source_id)
    source = schema.find_type(part.source_id)
    value = transform_column(part.transform, source, column_at(schema, part.source_id))
    type_ = part.transform.result_type(source)
    text = value
    if isinstance(part.transform, IdentityTransform | TruncateTransform):
        text = _text(type_, value)
    return Partitioned(part, folder, type_, path, source, value, text)


# --- transforms ---------------------------------------------------------------------------------------------


def _date(source: iceberg.IcebergType, column: Column) -> Column:
    """The calendar day of a time; of one with a zone, the day in UTC."""
    if isinstance(source, iceberg.TimestamptzType):
        return sf.date_from_unix_date(_floor_div(sf.unix_micros(column), _DAY_MICROS).cast("int"))
    return column.cast("date")


def _floor_div(column: Column, by: int) -> Column:
    """Spark's division rounds towards zero; times before 1970 are to be rounded down."""
    unit = sf.lit(by).cast("long")
    return sf.call_function("div", column - sf.pmod(column, unit), unit)


def _by_arrow(
    transform: Transform[Any, Any], source: iceberg.IcebergType, result: str
) -> Callable[[Column], Column]:
    """A transform that Spark has no expression for, computed by PyIceberg."""

    def compute(values: pa.Array) -> pa.Array:
        if isinstance(source, iceberg.UUIDType):
            octets = [None if text is None else UUID(text).bytes for text in values.to_pylist()]
            values = pa.array(octets, pa.binary(16))
        return transform_values(transform, source, values)

    function: Callable[[Column], Column] = arrow_udf(compute, result)  # type: ignore[call-overload] # hints say which
    return function


def _truncate(transform: TruncateTransform[Any], source: iceberg.IcebergType, column: Column) -> Column:
    match source:
        case iceberg.IntegerType() | iceberg.LongType():
            return column - sf.pmod(column, sf.lit(transform.width))
        case iceberg.DecimalType():
            type_ = f"decimal({source.precision},{source.scale})"
            if (
                source.precision == _DECIMAL_DIGITS_MAX
            ):  # a difference has one digit more, and would be rounded
                return _by_arrow(transform, source, type_)(column)
            unit = sf.lit(Decimal(transform.width).scaleb(-source.scale))
            return (column - sf.pmod(column, unit)).cast(type_)
    return sf.substring(column, 1, transform.width)  # characters of text, bytes of binary


# --- names of folders ---------------------------------------------------------------------------------------


def _text(type_: iceberg.IcebergType, value: Column) -> Column:
    match type_:
        case iceberg.IntegerType() | iceberg.LongType():
            return value
        case iceberg.DateType():
            return sf.unix_date(value)
        case iceberg.TimestamptzType():
            return sf.unix_micros(value)
        case iceberg.TimestampType():
            return _local_micros(value)
        case iceberg.StringType() | iceberg.UUIDType():
            # Java's encoder leaves % and *, which Spark would spell in its own way; neither ! nor ~ comes out of it.
            return _spell(sf.translate(sf.url_encode(value), "%*", "!~"), value)
        case iceberg.BinaryType() | iceberg.FixedType():
            return _spell(sf.hex(value), value)
    return value.cast("string")


def _spell(encoded: Column, value: Column) -> Column:
    digest = sf.concat(sf.lit(_DIGEST), sf.sha2(value.cast("binary"), 256))
    short = sf.length(encoded) <= _NAME_LENGTH_MAX
    return (
        sf.when(value.isNull(), sf.lit(None))
        .when(short, sf.concat(sf.lit(_VALUE), encoded))
        .otherwise(digest)
    )


def _local_micros(value: Column) -> Column:
    """Microseconds since 1970 on the clock of a time without zone."""
    seconds = sf.extract(sf.lit("SECOND"), value)  # a decimal with six places
    clock = (sf.hour(value) * 60 + sf.minute(value)).cast("long") * 60_000_000
    days = sf.unix_date(value.cast("date")).cast("long") * _DAY_MICROS
    return days + clock + (seconds * 1_000_000).cast("long")


def _read_text(text: str) -> str:
    return unquote_plus(text.replace("!", "%").replace("~", "*"))


_READ: Mapping[type[iceberg.IcebergType], Callable[[str], Any]] = {
    iceberg.BinaryType: bytes.fromhex,
    iceberg.BooleanType: lambda text: text == "true",
    iceberg.DecimalType: Decimal,
    iceberg.DoubleType: float,
    iceberg.FixedType: bytes.fromhex,
    iceberg.FloatType: float,
    iceberg.StringType: _read_text,
    iceberg.UUIDType: lambda text: UUID(_read_text(text)),
}
_SPELLED = (iceberg.BinaryType, iceberg.FixedType, iceberg.StringType, iceberg.UUIDType)
