"""Record batches brought to the columns of a table: by name, in the table's order and types, with its field ids.

Only casts that lose nothing; what does not fit is refused with the column's name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from uuid import UUID

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from headgate.errors import BadInput
from headgate.spark.arrow_required import find_absent, with_nulls_inside

_WRITABLE = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)


def stored_schema(schema: Schema) -> Schema:
    """The columns that a file holds: a column of type unknown has no values, so it is left out."""
    fields = [field for field in schema.fields if not isinstance(field.field_type, UnknownType)]
    for field in fields:
        _check_writable(field.field_type, field.name)
    return Schema(*fields, schema_id=schema.schema_id)


def file_schema(schema: Schema) -> pa.Schema:
    """The schema of a data file, with field ids."""
    return with_nulls_inside(schema_to_pyarrow(stored_schema(schema)))


def check_columns(found: pa.Schema, schema: Schema) -> None:
    """Refuse rows whose columns do not fit the table; names every column at fault that is found first."""
    _check_struct(list(found), schema.as_struct(), "")


def conform(batch: pa.RecordBatch, schema: Schema, wanted: pa.Schema) -> pa.RecordBatch:
    """A batch that fits (`check_columns`) with the columns of `wanted`, which is the `file_schema` of `schema`."""
    fields = {field.name: field for field in schema.fields}
    columns = [_column(batch, fields[target.name], target) for target in wanted]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _column(batch: pa.RecordBatch, field: NestedField, target: pa.Field) -> pa.Array:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        return _default(field, target.type, batch.num_rows)
    found = batch.column(at)
    if field.required and found.null_count:
        raise BadInput(
            f"column {field.name} is required, and {found.null_count} rows have no value", field=field.name
        )
    if (absent := find_absent(found, field.field_type, field.name)) is not None:
        raise BadInput(f"column {absent} is required, and a row has no value", field=absent)
    try:
        if isinstance(field.field_type, UUIDType) and not isinstance(found, pa.ExtensionArray):
            return _uuids(found)
        return found if found.type.equals(target.type, check_metadata=True) else found.cast(target.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as error:
        raise BadInput(
            f"column {field.name}: a value does not fit {field.field_type}: {error}", field=field.name
        ) from error


def _default(field: NestedField, type_: pa.DataType, rows: int) -> pa.Array:
    """A column that the rows do not have, of a table that says what to write then."""
    if field.write_default is None:
        return pa.nulls(rows, type_)
    storage = pa.binary(16) if isinstance(field.field_type, UUIDType) else type_
    value = field.write_default.bytes if isinstance(field.write_default, UUID) else field.write_default
    made = pa.repeat(pa.scalar(value, storage), rows)
    return pa.ExtensionArray.from_storage(type_, made) if storage is not type_ else made


def _uuids(found: pa.Array) -> pa.Array:
    """Spark has no UUIDs: they come as text, or as sixteen bytes."""
    if pa.types.is_string(found.type) or pa.types.is_large_string(found.type):
        octets = [None if text is None else UUID(text).bytes for text in found.to_pylist()]
        found = pa.array(octets, pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), found.cast(pa.binary(16)))


# --- which types fit which ----------------------------------------------------------------------------------

_IS = pa.types


def _is_text(found: pa.DataType) -> bool:
    return bool(_IS.is_string(found) or _IS.is_large_string(found) or _IS.is_string_view(found))


def _is_octets(found: pa.DataType) -> bool:
    return bool(
        _IS.is_binary(found)
        or _IS.is_large_binary(found)
        or _IS.is_fixed_size_binary(found)
        or _IS.is_binary_view(found)
    )


_FITS: dict[type[IcebergType], Callable[[pa.DataType], bool]] = {
    BooleanType: _IS.is_boolean,
    IntegerType: lambda found: found in (pa.int8(), pa.int16(), pa.int32()),
    LongType: _IS.is_signed_integer,
    FloatType: lambda found: found == pa.float32(),
    DoubleType: lambda found: found in (pa.float32(), pa.float64()),
    DateType: _IS.is_date32,
    TimeType: _IS.is_time,
    TimestampType: lambda found: _IS.is_timestamp(found) and found.tz is None,
    TimestampNanoType: lambda found: _IS.is_timestamp(found) and found.tz is None,
    TimestamptzType: lambda found: _IS.is_timestamp(found) and found.tz is not None,
    TimestamptzNanoType: lambda found: _IS.is_timestamp(found) and found.tz is not None,
    StringType: _is_text,
    BinaryType: _is_octets,
    FixedType: _is_octets,
    UUIDType: lambda found: _is_text(found) or _is_octets(found) or found == pa.uuid(),
}


def _check_struct(found: list[pa.Field], wanted: StructType, prefix: str) -> None:
    names = [field.name for field in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(f"columns that the rows have twice: {prefix}{', '.join(twice)}", field=twice[0])
    if unknown := sorted(set(names) - {field.name for field in wanted.fields}):
        raise BadInput(f"columns that the table has not: {prefix}{', '.join(unknown)}", field=unknown[0])
    types = {field.name: field.type for field in found}
    for field in wanted.fields:
        name = f"{prefix}{field.name}"
        if field.name in types:
            _check_type(types[field.name], field.field_type, name)
        elif field.required and (prefix or field.write_default is None):
            raise BadInput(f"column {name} is required, and the rows have none", field=name)


def _check_type(found: pa.DataType, wanted: IcebergType, name: str) -> None:
    """Only what can be read as the table's type with nothing lost."""
    fits = _IS.is_null(found)
    match wanted:
        case _ if fits:
            return
        case StructType() if _IS.is_struct(found):
            return _check_struct([found.field(i) for i in range(found.num_fields)], wanted, f"{name}.")
        case ListType() if _IS.is_list(found) or _IS.is_large_list(found):
            return _check_type(found.value_type, wanted.element_type, f"{name}.element")
        case MapType() if _IS.is_map(found):
            _check_type(found.key_type, wanted.key_type, f"{name}.key")
            return _check_type(found.item_type, wanted.value_type, f"{name}.value")
        case DecimalType() if _IS.is_decimal(found):
            whole = found.precision - found.scale
            fits = found.scale <= wanted.scale and whole <= wanted.precision - wanted.scale
        case _:
            check = _FITS.get(type(wanted))
            fits = check is not None and check(found)
    if not fits:
        raise BadInput(f"column {name}: the rows have {found}, the table {wanted}", field=name)
    return None


@cache
def _check_writable(type_: IcebergType, name: str) -> None:
    match type_:
        case StructType():
            for field in type_.fields:
                _check_writable(field.field_type, f"{name}.{field.name}")
        case ListType():
            _check_writable(type_.element_type, f"{name}.element")
        case MapType():
            _check_writable(type_.key_type, f"{name}.key")
            _check_writable(type_.value_type, f"{name}.value")
        case _ if not isinstance(type_, _WRITABLE):
            raise BadInput(f"column {name}: values of type {type_} cannot be written here", field=name)
