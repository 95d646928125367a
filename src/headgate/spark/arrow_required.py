"""Required values inside others, in Arrow: looked for in the rows, and not promised by the types of the file.

Arrow takes a required field of a struct that is itself null for a broken promise; Iceberg does not.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, ListType, MapType, StructType


def with_nulls_inside(schema: pa.Schema) -> pa.Schema:
    """The same columns, where whatever is inside others may be null."""
    return pa.schema([field.with_type(_loose(field.type)) for field in schema], schema.metadata)


def find_absent(values: pa.Array, type_: IcebergType, name: str) -> str | None:
    """The first required value inside a column that a row does not have, by its name."""
    match type_:
        case StructType():
            return _find_in_struct(values, type_, name)
        case ListType():
            elements = values.flatten()  # of lists that are not null
            if type_.element_required and elements.null_count:
                return f"{name}.element"
            return find_absent(elements, type_.element_type, f"{name}.element")
        case MapType():
            entries = values.filter(values.is_valid()).items
            if type_.value_required and entries.null_count:
                return f"{name}.value"
            return find_absent(entries, type_.value_type, f"{name}.value")
    return None


def _find_in_struct(values: pa.Array, struct: StructType, name: str) -> str | None:
    there = values.is_valid()
    for field in struct.fields:
        if values.type.get_field_index(field.name) < 0:
            continue
        inner, path = pc.struct_field(values, field.name), f"{name}.{field.name}"
        if field.required and pc.any(pc.and_(there, inner.is_null())).as_py():
            return path
        if (found := find_absent(inner, field.field_type, path)) is not None:
            return found
    return None


def _loose(type_: pa.DataType) -> pa.DataType:
    is_ = pa.types
    if is_.is_struct(type_):
        return pa.struct([_inner(type_.field(i)) for i in range(type_.num_fields)])
    if is_.is_large_list(type_):
        return pa.large_list(_inner(type_.value_field))
    if is_.is_list(type_):
        return pa.list_(_inner(type_.value_field))
    if is_.is_map(type_):
        key = type_.key_field
        return pa.map_(key.with_type(_loose(key.type)), _inner(type_.item_field), type_.keys_sorted)
    return type_


def _inner(field: pa.Field) -> pa.Field:
    return field.with_type(_loose(field.type)).with_nullable(True)
