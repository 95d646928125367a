"""Rows brought to the columns of a table: by name, in the table's order and types, with its field ids.

Only casts that lose nothing. Nulls in required columns at the top are left to the footers, which count them anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from uuid import UUID

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from headgate.errors import BadInput
from headgate.spark.lake import TableState
from headgate.spark.lineage import LAST_UPDATED, LINEAGE, ROW_ID, with_lineage

__all__ = [
    "LAST_UPDATED",
    "LINEAGE",
    "ROW_ID",
    "column_at",
    "fit",
    "lineage_fields",
    "path_of",
    "spark_schema",
]

FIELD_ID = "parquet.field.id"

# UUIDs are text in Spark, and fixed bytes are bytes, as the Iceberg jar has them.
_TYPES: Mapping[type[iceberg.IcebergType], spark.DataType] = {
    iceberg.BinaryType: spark.BinaryType(),
    iceberg.BooleanType: spark.BooleanType(),
    iceberg.DateType: spark.DateType(),
    iceberg.DoubleType: spark.DoubleType(),
    iceberg.FixedType: spark.BinaryType(),
    iceberg.FloatType: spark.FloatType(),
    iceberg.IntegerType: spark.IntegerType(),
    iceberg.LongType: spark.LongType(),
    iceberg.StringType: spark.StringType(),
    iceberg.TimestampType: spark.TimestampNTZType(),
    iceberg.TimestamptzType: spark.TimestampType(),
    iceberg.UUIDType: spark.StringType(),
}
_DIGITS: Mapping[type[spark.DataType], int] = {
    spark.ByteType: 3,
    spark.ShortType: 5,
    spark.IntegerType: 10,
    spark.LongType: 20,
}
_SMALL_NUMBERS = (spark.ByteType, spark.ShortType, spark.IntegerType)
_WIDENS: Mapping[type[spark.DataType], tuple[type[spark.DataType], ...]] = {
    spark.ShortType: (spark.ByteType,),
    spark.IntegerType: (spark.ByteType, spark.ShortType),
    spark.LongType: _SMALL_NUMBERS,
    spark.FloatType: (spark.ByteType, spark.ShortType),
    spark.DoubleType: (*_SMALL_NUMBERS, spark.FloatType),
}


def spark_schema(schema: Schema) -> spark.StructType:
    """A table's columns in Spark's types, with their field ids."""
    return _struct(schema.as_struct(), "")


def lineage_fields(extra: Sequence[str]) -> list[spark.StructField]:
    """The columns of row lineage that a file of format version 3 keeps."""
    kept = with_lineage(Schema(), extra)
    return spark_schema(kept).fields


def fit(df: DataFrame, state: TableState, *, extra: Sequence[str] = ()) -> DataFrame:
    """The rows with exactly the columns of the table (and of its lineage, if asked for), ready to be written."""
    wanted = spark_schema(state.schema).fields + lineage_fields(extra)
    found = _by_name(df, [field.name for field in wanted])
    columns, absent = [], []
    for field in wanted:
        name = found.get(field.name)
        if name is None:
            columns.append(_default(state.schema, field))
            continue
        have = df.schema[name]
        _check(field.name, have.dataType, field.dataType)
        columns.append(sf.col(_quoted(name)).alias(field.name))
        if not isinstance(field.dataType, spark.AtomicType) and not field.nullable:
            absent += [(field.name, sf.col(_quoted(field.name)).isNull())] if have.nullable else []
        absent += _absent(sf.col(_quoted(field.name)), field.name, have.dataType, field.dataType)
    checked = _refuse_absent(df.select(columns), absent)
    # Spark drops a projection that only adds field ids; one of aliases stays.
    named = checked.select(
        [sf.col(_quoted(field.name)).alias(field.name, metadata=field.metadata) for field in wanted]
    )
    # Nothing is promised of nulls in the file itself: Spark would refuse rows that it cannot prove to have none.
    return named.to(spark.StructType([_nullable_field(field) for field in wanted]))


def carry(df: DataFrame, state: TableState, *, extra: Sequence[str] = ()) -> DataFrame:
    """Rows of the table as `read` gives them, ready to be written again; `fit` where they have lost their field ids.

    Spark's reader gave the columns their ids, and they fit: for wide tables that saves hundreds of calls of Java.
    """
    added = lineage_fields(extra)
    wanted = spark_schema(state.schema).fields + added
    names = [_quoted(field.name) for field in wanted[: len(wanted) - len(added)]]
    ids = [sf.col(_quoted(field.name)).alias(field.name, metadata=field.metadata) for field in added]
    carried = df.select(*names, *ids)
    kept = [(field.name, field.dataType, field.metadata) for field in carried.schema.fields]
    is_whole = kept == [(field.name, field.dataType, field.metadata) for field in wanted]
    return carried if is_whole else fit(df, state, extra=extra)


def column_at(schema: Schema, field_id: int) -> Column:
    """A column of the table, at the top or inside structs, as rows that `fit` has made have it."""
    name = schema.find_column_name(field_id)
    if name is None:
        raise BadInput(f"column {field_id}: the table has none of this id", field=str(field_id))
    first, *inner = path_of(schema, field_id)
    return reduce(lambda column, part: column.getField(part), inner, sf.col(_quoted(first)))


def path_of(schema: Schema, field_id: int) -> tuple[str, ...]:
    """The names from the top down to a column; dots in names are part of them."""
    found = next(_paths(schema.as_struct(), field_id), None)
    if found is None:
        raise BadInput(f"column {field_id}: not found at the top or inside structs", field=str(field_id))
    return found


def _paths(struct: iceberg.StructType, field_id: int) -> Iterator[tuple[str, ...]]:
    for field in struct.fields:
        if field.field_id == field_id:
            yield (field.name,)
        elif isinstance(field.field_type, iceberg.StructType):
            yield from ((field.name, *below) for below in _paths(field.field_type, field_id))


# --- types --------------------------------------------------------------------------------------------------


def _struct(struct: iceberg.StructType, prefix: str) -> spark.StructType:
    return spark.StructType(
        [
            spark.StructField(
                field.name,
                _type(field.field_type, f"{prefix}{field.name}"),
                nullable=not field.required,
                metadata={FIELD_ID: field.field_id},
            )
            for field in struct.fields
        ]
    )


def _type(type_: iceberg.IcebergType, name: str) -> spark.DataType:
    match type_:
        case iceberg.StructType():
            return _struct(type_, f"{name}.")
        case iceberg.ListType():
            element = _type(type_.element_type, f"{name}.element")
            return spark.ArrayType(element, containsNull=not type_.element_required)
        case iceberg.MapType():
            return spark.MapType(
                _type(type_.key_type, f"{name}.key"),
                _type(type_.value_type, f"{name}.value"),
                valueContainsNull=not type_.value_required,
            )
        case iceberg.DecimalType():
            return spark.DecimalType(type_.precision, type_.scale)
    if (found := _TYPES.get(type(type_))) is None:
        raise BadInput(f"column {name}: Spark has no type for {type_}", field=name)
    return found


def _check(name: str, have: spark.DataType, want: spark.DataType) -> None:
    """Refuse a column whose values the table's type may not hold."""
    match have, want:
        case spark.NullType(), _:
            return
        case spark.StructType(), spark.StructType():
            _check_struct(name, have, want)
        case spark.ArrayType(), spark.ArrayType():
            _check(f"{name}.element", have.elementType, want.elementType)
        case spark.MapType(), spark.MapType():
            _check(f"{name}.key", have.keyType, want.keyType)
            _check(f"{name}.value", have.valueType, want.valueType)
        case _:
            if not _widens(have, want):
                raise BadInput(
                    f"column {name}: the rows have {have.simpleString()}, the table {want.simpleString()}; "
                    f"cast it, as in CAST({name} AS {want.simpleString().upper()})",
                    field=name,
                )


def _check_struct(name: str, have: spark.StructType, want: spark.StructType) -> None:
    names = {field.name: field for field in have.fields}
    if unknown := sorted(set(names) - {field.name for field in want.fields}):
        raise BadInput(f"columns that the table has not: {name}.{', '.join(unknown)}", field=name)
    for field in want.fields:
        if field.name in names:
            _check(f"{name}.{field.name}", names[field.name].dataType, field.dataType)
        elif not field.nullable:
            raise BadInput(
                f"column {name}.{field.name} is required, and the rows have none",
                field=f"{name}.{field.name}",
            )


def _widens(have: spark.DataType, want: spark.DataType) -> bool:
    if isinstance(want, spark.DecimalType):
        whole = want.precision - want.scale
        if isinstance(have, spark.DecimalType):
            return have.scale <= want.scale and have.precision - have.scale <= whole
        return _DIGITS.get(type(have), whole + 1) <= whole
    same = type(have) is type(want) or isinstance(have, type(want))  # CHAR and VARCHAR are strings
    return same or type(have) in _WIDENS.get(type(want), ())


# --- rows ---------------------------------------------------------------------------------------------------


def _by_name(df: DataFrame, wanted: Sequence[str]) -> dict[str, str]:
    """For each wanted column that the rows have, what they call it; refuses what the table does not have."""
    if repeated := sorted({name for name in df.columns if df.columns.count(name) > 1}):
        raise BadInput(f"columns that the rows have twice: {', '.join(repeated)}", field=repeated[0])
    found = {name: name for name in wanted if name in df.columns}
    left = [name for name in df.columns if name not in found]
    if df.sparkSession.conf.get("spark.sql.caseSensitive", "false") != "true":
        for name in wanted:
            alike = [one for one in left if one.lower() == name.lower()]
            if name not in found and len(alike) == 1:
                found[name] = alike[0]
                left.remove(alike[0])
    if left:
        raise BadInput(f"columns that the table has not: {', '.join(sorted(left))}", field=min(left))
    return found


def _default(schema: Schema, field: spark.StructField) -> Column:
    """A column that the rows do not have: what the table writes then, or null if it may."""
    known = next((one for one in schema.fields if one.name == field.name), None)
    value = None if known is None else known.write_default
    if value is None and not field.nullable:
        raise BadInput(f"column {field.name} is required, and the rows have none", field=field.name)
    value = str(value) if isinstance(value, UUID) else value
    return sf.lit(value).cast(field.dataType).alias(field.name)


def _nullable_field(field: spark.StructField) -> spark.StructField:
    return spark.StructField(field.name, _nullable(field.dataType), nullable=True, metadata=field.metadata)


def _nullable(type_: spark.DataType) -> spark.DataType:
    match type_:
        case spark.StructType():
            return spark.StructType([_nullable_field(field) for field in type_.fields])
        case spark.ArrayType():
            return spark.ArrayType(_nullable(type_.elementType), containsNull=True)
        case spark.MapType():
            return spark.MapType(_nullable(type_.keyType), _nullable(type_.valueType), valueContainsNull=True)
    return type_


Absent = list[tuple[str, Column]]


def _absent(value: Column, name: str, have: spark.DataType, want: spark.DataType) -> Absent:
    """Where a required value inside another may be missing, and how a row shows it."""
    found: Absent = []
    match have, want:
        case spark.StructType(), spark.StructType():
            names = {field.name: field for field in have.fields}
            for field in want.fields:
                inner, path = names.get(field.name), f"{name}.{field.name}"
                if inner is None:
                    continue
                if inner.nullable and not field.nullable:
                    found.append((path, value.isNotNull() & value.getField(field.name).isNull()))
                found += _absent(value.getField(field.name), path, inner.dataType, field.dataType)
        case spark.ArrayType(), spark.ArrayType():
            found += _absent_in(
                value,
                f"{name}.element",
                (have.containsNull, want.containsNull),
                (have.elementType, want.elementType),
            )
        case spark.MapType(), spark.MapType():
            found += _absent_in(
                sf.map_values(value),
                f"{name}.value",
                (have.valueContainsNull, want.valueContainsNull),
                (have.valueType, want.valueType),
            )
    return found


def _absent_in(
    values: Column,
    name: str,
    may_be_null: tuple[bool, bool],
    types: tuple[spark.DataType, spark.DataType],
) -> Absent:
    found: Absent = []
    if may_be_null[0] and not may_be_null[1]:
        found.append((name, sf.exists(values, lambda one: one.isNull())))
    for at, (path, _) in enumerate(_absent(sf.lit(None), name, *types)):  # how many there are to look for
        found.append((path, sf.exists(values, _nth_absent(at, name, types))))
    return found


def _nth_absent(
    at: int, name: str, types: tuple[spark.DataType, spark.DataType]
) -> Callable[[Column], Column]:
    return lambda one: _absent(one, name, *types)[at][1]


def _refuse_absent(rows: DataFrame, absent: Absent) -> DataFrame:
    """Rows that stop the job where a required value inside another is missing."""
    for path, missing in absent:
        top = next(name for name in rows.columns if path == name or path.startswith(f"{name}."))
        refusal = sf.raise_error(sf.lit(f"column {path} is required, and a row has no value"))
        column = sf.col(_quoted(top))
        checked = sf.when(sf.coalesce(missing, sf.lit(False)), refusal).otherwise(column)
        rows = rows.withColumn(top, checked)
    return rows


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
