"""Schemas: what is refused and how it is named, and fresh ids."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headgate.core.schema import (
    Field,
    Schema,
    Type,
    check_schema,
    fresh_schema,
    highest_field_id,
    parse_primitive,
    same_schema,
    struct_fields,
    walk_fields,
)
from headgate.errors import BadInput
from tests.core.builders import ID, column, list_of, map_of, schema, struct

NESTED = schema(
    column(0, "id", required=True),
    column(1, "points", list_of(struct(column(3, "x", "double"), column(4, "y", "double")), 2)),
    column(5, "tags", map_of("string", struct(column(8, "v")), key_id=6, value_id=7)),
    column(9, "place", struct(column(10, "city", "string"))),
)


def refusal(wanted: Schema, version: int = 2) -> BadInput:
    with pytest.raises(BadInput) as caught:
        check_schema(wanted, format_version=version)
    return caught.value


def deep(levels: int) -> Type:
    type_: Type = "int"
    for n in range(levels):
        type_ = list_of(type_, 100 + n)
    return type_


@pytest.mark.parametrize(
    ("wanted", "field", "message"),
    [
        (schema(ID, column(1, "b")), "schema.fields.id", "Multiple entries with same key: 1=id and 1=b"),
        (schema(ID, column(2, "id")), "schema.fields.name", "Invalid schema: multiple fields for name id"),
        (schema(column(1, "")), "schema.fields.name", "a column has an empty name"),
        (schema(column(1, "a", struct(column(2, "")))), "schema.fields.name", "a column has an empty name"),
        (
            schema(column(1, "a", struct(column(2, "b"))), column(3, "a.b")),
            "schema.fields.name",
            "Invalid schema: multiple fields for name a.b",
        ),
        (
            schema(column(1, "a", list_of("int", 1))),
            "schema.fields.id",
            "Multiple entries with same key: 1=a and 1=a.element",
        ),
        (
            schema(column(1, "a", "varchar")),
            "schema.fields.type",
            "Cannot parse type string to primitive: varchar (column a)",
        ),
        (
            schema(column(1, "a", list_of("nope"))),
            "schema.fields.type",
            "Cannot parse type string to primitive: nope (column a.element)",
        ),
        (
            schema(column(1, "a", "unknown", required=True)),
            "schema.fields.required",
            "Cannot create required field with unknown type: a",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_schema_no_reader_could_use_is_refused(wanted: Schema, field: str, message: str) -> None:
    error = refusal(wanted, version=3)
    assert (error.field, error.message) == (field, message)


@pytest.mark.parametrize(
    "type_", ["struct", "list", "map", "", "int ", "Int", "decimal", "decimal(a,b)", "fixed"]
)
def test_a_text_that_is_no_primitive_type_is_refused(type_: str) -> None:
    assert parse_primitive(type_) is None
    assert refusal(schema(column(1, "a", type_)), version=3).field == "schema.fields.type"


@pytest.mark.parametrize("type_", ["decimal(39,2)", "decimal(0,0)", "decimal(-1,0)"])
def test_a_type_with_parameters_out_of_range_is_refused(type_: str) -> None:
    assert refusal(schema(column(1, "a", type_)), version=3).field == "schema.fields.type"


@pytest.mark.parametrize(
    "type_",
    [
        *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz"),
        *("string", "uuid", "binary", "fixed[16]", "decimal(9, 2)", "decimal(38,10)"),
    ],
)
def test_the_types_of_version_1_are_good_in_every_version(type_: str) -> None:
    for version in (1, 2, 3):
        check_schema(schema(column(1, "a", type_)), format_version=version)


@pytest.mark.parametrize(
    "type_",
    [
        "timestamp_ns",
        "timestamptz_ns",
        "unknown",
        "variant",
        "geometry",
        "geography",
        "geometry(OGC:CRS84)",
        "geography(OGC:CRS84, spherical)",
    ],
)
def test_the_types_of_version_3_are_refused_before_it(type_: str) -> None:
    wanted = schema(column(1, "a", type_))
    check_schema(wanted, format_version=3)
    error = refusal(wanted, version=2)
    assert error.message == f"Invalid schema for v2: type {type_} of column a is not supported until v3"


@pytest.mark.parametrize("default", [0, "x", False])
def test_an_initial_default_is_refused_before_version_3(default: object) -> None:
    wanted = schema(column(1, "a", "string", initial_default=default))
    check_schema(wanted, format_version=3)
    assert refusal(wanted).field == "schema.fields.initial-default"


def test_a_null_or_write_default_is_good_in_every_version() -> None:
    check_schema(schema(column(1, "a", initial_default=None, write_default=3)), format_version=1)


def test_a_column_may_have_dots_in_its_name() -> None:
    check_schema(schema(column(1, "a."), column(2, ".."), column(3, "b.c")), format_version=2)


def test_types_nested_to_the_limit_are_good_and_one_level_more_is_refused() -> None:
    check_schema(schema(column(1, "a", deep(31))), format_version=2)
    error = refusal(schema(column(1, "a", deep(32))))
    assert error.message.startswith("types are nested deeper than 32")


def test_a_schema_of_more_than_ten_thousand_fields_is_refused() -> None:
    check_schema(schema(*(column(n) for n in range(10_000))), format_version=2)
    assert "at most 10000" in refusal(schema(*(column(n) for n in range(10_001)))).message


IDENTIFIER_CASES = {
    "of no field": ((9,), "Cannot add fieldId 9 as an identifier field: field does not exist"),
    "optional": ((2,), "Cannot add field o as an identifier field: not a required field"),
    "float": ((3,), "Cannot add field f as an identifier field: must not be float or double field"),
    "double": ((4,), "Cannot add field d as an identifier field: must not be float or double field"),
    "a struct": ((5,), "Cannot add field s as an identifier field: not a primitive type field"),
    "a variant": ((14,), "Cannot add field v as an identifier field: not a primitive type field"),
    "an element": (
        (8,),
        "Cannot add field l.element as an identifier field: must not be nested in a list or map",
    ),
    "in a list": (
        (10,),
        "Cannot add field ls.element.x as an identifier field: must not be nested in a list or map",
    ),
    "in an optional struct": (
        (12,),
        "Cannot add field os.x as an identifier field: must not be nested in an optional field",
    ),
    "one of two": ((1, 9), "Cannot add fieldId 9 as an identifier field: field does not exist"),
}


@pytest.mark.parametrize("name", IDENTIFIER_CASES)
def test_an_identifier_field_must_be_a_required_primitive_outside_lists(name: str) -> None:
    identifiers, message = IDENTIFIER_CASES[name]
    inner = column(10, "x", required=True)
    wanted = schema(
        ID,
        column(2, "o"),
        column(3, "f", "float", required=True),
        column(4, "d", "double", required=True),
        column(5, "s", struct(column(6, "x", required=True)), required=True),
        column(7, "l", list_of("int", 8, required=True), required=True),
        column(9 + 20, "ls", list_of(struct(inner), 11, required=True), required=True),
        column(13, "os", struct(column(12, "x", required=True))),
        column(14, "v", "variant", required=True),
        identifiers=identifiers,
    )
    error = refusal(wanted, version=3)
    assert (error.field, error.message) == ("schema.identifier-field-ids", message)


def test_an_identifier_field_may_stand_in_required_structs() -> None:
    inner = struct(column(3, "x", required=True))
    wanted = schema(
        column(1, "s", struct(column(2, "t", inner, required=True)), required=True), identifiers=(3,)
    )
    check_schema(wanted, format_version=2)


def test_fresh_ids_start_at_one_and_number_a_level_before_what_is_nested_in_it() -> None:
    fresh, renamed = fresh_schema(NESTED)
    assert [(name, id_) for name, _, id_, _ in walk_fields(fresh)] == [
        ("id", 1),
        ("points", 2),
        ("points.element", 5),
        ("points.element.x", 6),
        ("points.element.y", 7),
        ("tags", 3),
        ("tags.key", 8),
        ("tags.value", 9),
        ("tags.value.v", 10),
        ("place", 4),
        ("place.city", 11),
    ]
    assert renamed[0] == 1
    assert renamed[10] == 11
    assert fresh.schema_id == 0
    assert highest_field_id(fresh) == 11


def test_fresh_identifiers_follow_their_columns() -> None:
    fresh, _ = fresh_schema(msgspec.structs.replace(NESTED, identifier_field_ids=(0, 10)))
    assert fresh.identifier_field_ids == (1, 11)


def test_fresh_ids_keep_everything_but_the_ids() -> None:
    wanted = schema(column(7, "a", required=True, doc="text", initial_default=3, write_default=4))
    fresh, _ = fresh_schema(wanted)
    assert fresh.fields == (msgspec.structs.replace(wanted.fields[0], id=1),)


def test_an_identifier_of_no_column_has_no_fresh_id() -> None:
    with pytest.raises(BadInput, match="fieldId 77"):
        fresh_schema(msgspec.structs.replace(NESTED, identifier_field_ids=(77,)))


def test_schemas_are_the_same_whatever_their_id_and_the_order_of_identifiers() -> None:
    left = Schema(fields=(ID,), schema_id=3, identifier_field_ids=(1, 2))
    assert same_schema(left, Schema(fields=(ID,), schema_id=7, identifier_field_ids=(2, 1)))
    assert not same_schema(left, Schema(fields=(ID,), schema_id=3))
    assert not same_schema(left, Schema(fields=(column(1, "other"),), identifier_field_ids=(1, 2)))


def test_an_empty_schema_has_highest_id_0() -> None:
    assert highest_field_id(Schema(fields=())) == 0


def test_fields_in_lists_and_maps_are_not_fields_of_structs() -> None:
    assert set(struct_fields(NESTED)) == {0, 1, 5, 9, 10}
    assert [required for _, required in struct_fields(NESTED).values()] == [True] * 4 + [False]


@pytest.mark.parametrize(
    "wire",
    [
        {"id": 1, "name": "a", "type": "long", "required": True},
        {
            "id": 1,
            "name": "a",
            "type": "long",
            "required": False,
            "initial-default": None,
            "write-default": 0,
        },
        {
            "id": 1,
            "name": "l",
            "required": False,
            "doc": "d",
            "type": {"type": "list", "element-id": 2, "element": "int", "element-required": True},
        },
    ],
)
def test_a_field_is_written_as_it_was_read(wire: dict[str, Any]) -> None:
    assert msgspec.to_builtins(msgspec.convert(wire, Field)) == wire
