"""Schemas: values, checks, and fresh ids for new tables.

PyIceberg parses the types; the two it lacks (variant, geometry with parameters) are let through by name.
Raises BadInput that names the column at fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
from pydantic import ValidationError as PydanticValidationError
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.types import IcebergType, PrimitiveType

from headgate.core.value import Int, Value
from headgate.errors import BadInput

_TYPE_DEPTH_MAX = 32
_FIELDS_MAX = 10_000
_V3_TYPES = re.compile(r"(timestamp_ns|timestamptz_ns|unknown|variant|geometry|geography)\b")
_PRIMITIVE = re.compile(r"[a-z_]+|decimal\(\s*\d{1,2}\s*,\s*\d{1,2}\s*\)|fixed\[\s*\d{1,9}\s*\]")
_BEYOND_PYICEBERG = re.compile(r"variant|(geometry|geography)\([^()]{1,200}\)")


class StructType(Value, tag_field="type", tag="struct"):
    """A nested struct."""

    fields: tuple[Field, ...]


class ListType(Value, tag_field="type", tag="list"):
    """A list of one element type."""

    element_id: Int
    element: str | StructType | ListType | MapType
    element_required: bool


class MapType(Value, tag_field="type", tag="map"):
    """A map from key to value."""

    key_id: Int
    key: str | StructType | ListType | MapType
    value_id: Int
    value: str | StructType | ListType | MapType
    value_required: bool


Type = str | StructType | ListType | MapType


class Field(Value):
    """A column, or a field of a nested struct."""

    id: Int
    name: str
    type: Type
    required: bool
    doc: str | None = None
    # Any JSON value: single-value serialization of the field's type (spec, appendix D).
    initial_default: Any = msgspec.UNSET
    write_default: Any = msgspec.UNSET


class Schema(Value, tag_field="type", tag="struct"):
    """A table's or view's schema."""

    fields: tuple[Field, ...]
    schema_id: Int = -1  # -1: not assigned yet
    identifier_field_ids: tuple[Int, ...] = ()


def walk_fields(schema: Schema) -> Iterator[tuple[str, Field | None, int, Type]]:
    """Every id of a schema as (full name, field if it is one, id, type), outer before inner."""
    yield from _walk(schema.fields, "", 0)


def _walk(fields: Iterable[Field], prefix: str, depth: int) -> Iterator[tuple[str, Field | None, int, Type]]:
    for field in fields:
        yield prefix + field.name, field, field.id, field.type
        yield from _walk_type(field.type, prefix + field.name + ".", depth + 1)


def _walk_type(type_: Type, prefix: str, depth: int) -> Iterator[tuple[str, Field | None, int, Type]]:
    if depth > _TYPE_DEPTH_MAX:
        raise BadInput(
            f"types are nested deeper than {_TYPE_DEPTH_MAX}: {prefix[:80]}", field="schema.fields"
        )
    match type_:
        case StructType():
            yield from _walk(type_.fields, prefix, depth)
        case ListType():
            yield prefix + "element", None, type_.element_id, type_.element
            yield from _walk_type(type_.element, prefix + "element.", depth + 1)
        case MapType():
            yield prefix + "key", None, type_.key_id, type_.key
            yield from _walk_type(type_.key, prefix + "key.", depth + 1)
            yield prefix + "value", None, type_.value_id, type_.value
            yield from _walk_type(type_.value, prefix + "value.", depth + 1)
        case str():
            return


def struct_fields(schema: Schema) -> dict[int, tuple[Field, bool]]:
    """Fields outside lists and maps by id, each with whether all the structs around it are required."""
    found: dict[int, tuple[Field, bool]] = {}
    level = [(field, True) for field in schema.fields]
    while level:  # bounded: `check_schema` limits the depth and the number of fields
        found.update((field.id, (field, required)) for field, required in level)
        level = [
            (inner, required and field.required)
            for field, required in level
            if isinstance(field.type, StructType)
            for inner in field.type.fields
        ]
    return found


def highest_field_id(schema: Schema) -> int:
    """The largest id in use, 0 for an empty schema."""
    return max((id_ for _, _, id_, _ in walk_fields(schema)), default=0)


@lru_cache(maxsize=1024)
def parse_primitive(text: str) -> PrimitiveType | None:
    """PyIceberg's type, or None when the text is no type that PyIceberg knows."""
    if not _PRIMITIVE.fullmatch(text):
        return None
    try:
        parsed = IcebergType.model_validate(text)
    except (ValueError, TypeError, IcebergValidationError, PydanticValidationError):
        return None
    return parsed if isinstance(parsed, PrimitiveType) else None


def check_schema(schema: Schema, *, format_version: int) -> None:
    """Refuse a schema that no reader could use: ids or names twice, unknown types, bad identifiers."""
    by_id: dict[int, str] = {}
    names: set[str] = set()
    for name, field, id_, type_ in walk_fields(schema):
        if field is not None and not field.name:
            raise BadInput("a column has an empty name", field="schema.fields.name")
        if id_ in by_id:
            raise BadInput(
                f"Multiple entries with same key: {id_}={by_id[id_]} and {id_}={name}",
                field="schema.fields.id",
            )
        if name in names:
            raise BadInput(f"Invalid schema: multiple fields for name {name}", field="schema.fields.name")
        by_id[id_] = name
        names.add(name)
        if len(by_id) > _FIELDS_MAX:
            raise BadInput(f"a schema may have at most {_FIELDS_MAX} fields", field="schema.fields")
        if isinstance(type_, str):
            _check_primitive(type_, name, format_version)
        if field is not None:
            _check_field(field, name, format_version)
    outside_lists = struct_fields(schema) if schema.identifier_field_ids else {}
    for id_ in schema.identifier_field_ids:
        where = "schema.identifier-field-ids"
        if id_ not in by_id:
            raise BadInput(
                f"Cannot add fieldId {id_} as an identifier field: field does not exist", field=where
            )
        if (fault := _find_identifier_fault(outside_lists.get(id_))) is not None:
            raise BadInput(f"Cannot add field {by_id[id_]} as an identifier field: {fault}", field=where)


def _check_primitive(text: str, name: str, format_version: int) -> None:
    if parse_primitive(text) is None and not _BEYOND_PYICEBERG.fullmatch(text):
        raise BadInput(
            f"Cannot parse type string to primitive: {text} (column {name})", field="schema.fields.type"
        )
    if format_version < 3 and _V3_TYPES.match(text):
        raise BadInput(
            f"Invalid schema for v{format_version}: type {text} of column {name} is not supported until v3",
            field="schema.fields.type",
        )


def _check_field(field: Field, name: str, format_version: int) -> None:
    if field.required and field.type == "unknown":
        raise BadInput(
            f"Cannot create required field with unknown type: {name}", field="schema.fields.required"
        )
    if (
        format_version < 3
        and field.initial_default is not msgspec.UNSET
        and field.initial_default is not None
    ):
        raise BadInput(
            f"Invalid schema for v{format_version}: initial default of {name} is not supported until v3",
            field="schema.fields.initial-default",
        )


def _find_identifier_fault(found: tuple[Field, bool] | None) -> str | None:
    if found is None:
        return "must not be nested in a list or map"
    field, structs_required = found
    if not isinstance(field.type, str) or field.type == "variant":
        return "not a primitive type field"
    if not field.required:
        return "not a required field"
    if field.type in ("float", "double"):
        return "must not be float or double field"
    return None if structs_required else "must not be nested in an optional field"


def same_schema(left: Schema, right: Schema) -> bool:
    """Equal but for the schema id."""
    return left.fields == right.fields and set(left.identifier_field_ids) == set(right.identifier_field_ids)


def fresh_schema(schema: Schema) -> tuple[Schema, dict[int, int]]:
    """A schema whose ids start at 1, outer fields first, and the map from the client's ids to ours."""
    renamed: dict[int, int] = {}
    counter = iter(range(1, 2**31))

    def take(old: int) -> int:
        new = next(counter)
        renamed[old] = new
        return new

    # Columns of one level get their ids before the fields nested in them, as in the reference implementation.
    fields = _fresh_fields(schema.fields, take)
    identifiers = []
    for old in schema.identifier_field_ids:
        if old not in renamed:
            raise BadInput(
                f"Cannot add fieldId {old} as an identifier field: field does not exist",
                field="schema.identifier-field-ids",
            )
        identifiers.append(renamed[old])
    return Schema(fields=fields, schema_id=0, identifier_field_ids=tuple(identifiers)), renamed


def _fresh_fields(fields: tuple[Field, ...], take: Callable[[int], int]) -> tuple[Field, ...]:
    ids = [take(field.id) for field in fields]
    return tuple(
        msgspec.structs.replace(field, id=new, type=_fresh_type(field.type, take))
        for field, new in zip(fields, ids, strict=True)
    )


def _fresh_type(type_: Type, take: Callable[[int], int]) -> Type:
    match type_:
        case StructType():
            return StructType(fields=_fresh_fields(type_.fields, take))
        case ListType():
            element_id = take(type_.element_id)
            return msgspec.structs.replace(
                type_, element_id=element_id, element=_fresh_type(type_.element, take)
            )
        case MapType():
            key_id, value_id = take(type_.key_id), take(type_.value_id)
            return msgspec.structs.replace(
                type_,
                key_id=key_id,
                value_id=value_id,
                key=_fresh_type(type_.key, take),
                value=_fresh_type(type_.value, take),
            )
        case str():
            return type_
