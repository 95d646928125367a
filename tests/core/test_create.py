"""New tables: fresh ids, defaults, and everything a client may get wrong, read from JSON as on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.create import RESERVED_PROPERTIES, TableDefinition, build_table, format_version_of
from headgate.core.partitioning import PartitionSpec, SortOrder
from headgate.core.schema import Schema, walk_fields
from headgate.core.table import TableMetadata
from headgate.errors import BadInput
from headgate.format.strict_json import convert_into
from tests.core.builders import (
    LOCATION,
    T0,
    UUID,
    append,
    column,
    commit,
    definition,
    list_of,
    map_of,
    order,
    part,
    schema,
    sort,
    spec,
    struct,
    table,
)


def create(**changes: Any) -> TableMetadata:
    return build_table(definition(**changes), now_ms=T0)


def test_a_new_table_has_defaults_for_everything() -> None:
    envelope = create().envelope
    assert envelope.format_version == 2
    assert (envelope.table_uuid, envelope.location, envelope.last_updated_ms) == (UUID, LOCATION, T0)
    assert (envelope.current_schema_id, envelope.last_column_id) == (0, 3)
    assert envelope.partition_specs == (PartitionSpec(fields=(), spec_id=0),)
    assert (envelope.default_spec_id, envelope.last_partition_id) == (0, 999)
    assert envelope.sort_orders == (SortOrder(fields=(), order_id=0),)
    assert envelope.properties == {"write.parquet.compression-codec": "zstd"}
    assert (envelope.refs, envelope.current_snapshot_id, envelope.last_sequence_number) == ({}, None, 0)
    assert len(create().snapshots) == len(create().history) == 0


def test_a_new_table_takes_commits() -> None:
    assert commit(table(), *append(1)).envelope.current_snapshot_id == 1


def test_spark_counts_columns_from_0_and_we_from_1() -> None:
    wanted = schema(
        column(0, "id", required=True),
        column(1, "tags", list_of("string", 4)),
        column(2, "m", map_of("string", struct(column(7, "x")), key_id=5, value_id=6)),
        column(3, "place", struct(column(8, "zip", "string", required=True)), required=True),
        identifiers=(0, 8),
    )
    made = create(
        schema=wanted, spec=spec(part(0, "bucket[4]", "b"), part(8, name="z")), order=order(sort(8))
    )
    assert {name: id_ for name, _, id_, _ in walk_fields(made.schema())} == {
        "id": 1,
        "tags": 2,
        "m": 3,
        "place": 4,
        "tags.element": 5,
        "m.key": 6,
        "m.value": 7,
        "m.value.x": 8,
        "place.zip": 9,
    }
    assert made.schema().identifier_field_ids == (1, 9)
    assert [f.source_id for f in made.envelope.partition_specs[0].fields] == [1, 9]
    assert [f.field_id for f in made.envelope.partition_specs[0].fields] == [1000, 1001]
    assert made.envelope.last_partition_id == 1001
    assert [f.source_id for f in made.envelope.sort_orders[0].fields] == [9]
    assert made.envelope.default_sort_order_id == 1
    assert made.envelope.last_column_id == 9


def test_ids_of_the_client_are_not_kept() -> None:
    made = create(
        schema=schema(column(900, "a"), column(100, "b")), spec=spec(part(900, name="a", field_id=7))
    )
    assert [f.id for f in made.schema().fields] == [1, 2]
    assert made.envelope.partition_specs[0].fields[0].field_id == 1000
    assert made.envelope.partition_specs[0].fields[0].source_id == 1


@pytest.mark.parametrize(
    ("transform", "source"),
    [
        ("identity", 3),
        ("void", 3),
        ("bucket[16]", 1),
        ("truncate[3]", 3),
        ("year", 2),
        ("month", 2),
        ("day", 2),
        ("hour", 2),
    ],
)
def test_a_table_may_be_partitioned_and_sorted_by_every_transform(transform: str, source: int) -> None:
    made = create(spec=spec(part(source, transform, "p")), order=order(sort(source, transform)))
    assert made.envelope.partition_specs[0].fields[0].transform == transform


@pytest.mark.parametrize(("text", "version"), [("1", 1), ("2", 2), ("3", 3), ("03", 3)])
def test_the_format_version_comes_from_the_properties(text: str, version: int) -> None:
    made = create(properties={"format-version": text, "a": "b"})
    assert made.envelope.format_version == version
    assert made.envelope.next_row_id == (0 if version == 3 else None)
    assert "format-version" not in made.envelope.properties
    assert made.envelope.properties["a"] == "b"


def test_reserved_properties_are_not_kept() -> None:
    made = create(properties={**dict.fromkeys(RESERVED_PROPERTIES, "1"), "mine": "x"})
    assert set(made.envelope.properties) == {"mine", "write.parquet.compression-codec"}


def test_a_client_may_choose_another_codec() -> None:
    made = create(properties={"write.parquet.compression-codec": "snappy"})
    assert made.envelope.properties["write.parquet.compression-codec"] == "snappy"


def test_the_version_is_2_unless_asked() -> None:
    assert format_version_of({}) == 2


# --- what a client may get wrong ------------------------------------------------------------------------

A = {"id": 1, "name": "a", "type": "long", "required": True}
B = {"id": 2, "name": "b", "type": "string", "required": False}
D = {"id": 3, "name": "d", "type": "double", "required": True}


def typed(type_: object) -> dict[str, object]:
    return {"schema": {"type": "struct", "fields": [{**A, "type": type_}]}}


def fields(*several: object, **more: object) -> dict[str, object]:
    return {"schema": {"type": "struct", "fields": list(several), **more}}


def partitioned(**changes: object) -> dict[str, object]:
    return {"spec": {"fields": [{"name": "p", "transform": "identity", "source-id": 1, **changes}]}}


def sorted_by(**changes: object) -> dict[str, object]:
    one = {
        "transform": "identity",
        "source-id": 1,
        "direction": "asc",
        "null-order": "nulls-first",
        **changes,
    }
    return {"order": {"order-id": 1, "fields": [one]}}


def nested(levels: int) -> object:
    type_: object = "int"
    for n in range(levels):
        type_ = {"type": "list", "element-id": 100 + n, "element": type_, "element-required": True}
    return type_


BAD: dict[str, dict[str, object]] = {
    "schema is a list": {"schema": []},
    "schema is null": {"schema": None},
    "schema without fields": {"schema": {"type": "struct"}},
    "schema of type list": {"schema": {"type": "list", "fields": []}},
    "fields is an object": {"schema": {"type": "struct", "fields": {}}},
    "field is a text": fields("a"),
    "field without id": fields({k: v for k, v in A.items() if k != "id"}),
    "field without name": fields({k: v for k, v in A.items() if k != "name"}),
    "field without type": fields({k: v for k, v in A.items() if k != "type"}),
    "field without required": fields({k: v for k, v in A.items() if k != "required"}),
    "field id is a text": fields({**A, "id": "1"}),
    "field id is a fraction": fields({**A, "id": 1.5}),
    "field id beyond an int": fields({**A, "id": 2**31}),
    "field name is null": fields({**A, "name": None}),
    "field name is empty": fields({**A, "name": ""}),
    "required is a text": fields({**A, "required": "true"}),
    "two fields of one id": fields(A, {**B, "id": 1}),
    "two fields of one name": fields(A, {**B, "name": "a"}),
    "identifier of no field": fields(A, **{"identifier-field-ids": [9]}),
    "identifier is optional": fields(A, B, **{"identifier-field-ids": [2]}),
    "identifier is a double": fields(A, D, **{"identifier-field-ids": [3]}),
    "identifiers are text": fields(A, **{"identifier-field-ids": ["a"]}),
    "unknown type": typed("varchar"),
    "type in capitals": typed("LONG"),
    "type is a number": typed(5),
    "type is null": typed(None),
    "type object without type": typed({"fields": []}),
    "type object of unknown type": typed({"type": "set", "fields": []}),
    "decimal too wide": typed("decimal(40,2)"),
    "decimal without scale": typed("decimal(9)"),
    "fixed without length": typed("fixed"),
    "list without element": typed({"type": "list", "element-id": 2, "element-required": True}),
    "list without element id": typed({"type": "list", "element": "int", "element-required": True}),
    "map without value": typed(
        {"type": "map", "key-id": 2, "key": "int", "value-id": 3, "value-required": True}
    ),
    "list whose element has the id of the field": typed(
        {"type": "list", "element-id": 1, "element": "int", "element-required": True}
    ),
    "types nested too deep": typed(nested(40)),
    "variant before version 3": typed("variant"),
    "nanoseconds before version 3": typed("timestamp_ns"),
    "default before version 3": fields({**A, "initial-default": 3}),
    "spec without fields": {"spec": {}},
    "spec is a list": {"spec": []},
    "partition field without name": {"spec": {"fields": [{"transform": "identity", "source-id": 1}]}},
    "partition field without transform": {"spec": {"fields": [{"name": "p", "source-id": 1}]}},
    "partition field without source": {"spec": {"fields": [{"name": "p", "transform": "identity"}]}},
    "partition source is unknown": partitioned(**{"source-id": 9}),
    "partition source is a text": partitioned(**{"source-id": "a"}),
    "partition transform is unknown": partitioned(transform="zorder"),
    "partition transform does not fit": partitioned(transform="day"),
    "partition transform without width": partitioned(transform="truncate"),
    "partition transform with a negative width": partitioned(transform="bucket[-1]"),
    "partition transform with a width of 0": partitioned(transform="bucket[0]"),
    "partition name is empty": partitioned(name=""),
    "partition name of another column": partitioned(name="b"),
    "two partition fields of one name": {
        "spec": {"fields": [{"name": "p", "transform": t, "source-id": 1} for t in ("identity", "bucket[4]")]}
    },
    "two sources for one transform": partitioned(**{"source-ids": [1, 2]}),
    "sort order without fields": {"order": {"order-id": 1}},
    "sort source is unknown": sorted_by(**{"source-id": 9}),
    "sort source is missing": sorted_by(**{"source-id": None}),
    "sort direction is unknown": sorted_by(direction="sideways"),
    "sort direction is missing": {"order": {"fields": [{"transform": "identity", "source-id": 1}]}},
    "null order is unknown": sorted_by(**{"null-order": "nulls-nowhere"}),
    "sort transform is unknown": sorted_by(transform="zorder"),
    "sort transform does not fit": sorted_by(transform="hour"),
    "format version 0": {"properties": {"format-version": "0"}},
    "format version 4": {"properties": {"format-version": "4"}},
    "format version is a word": {"properties": {"format-version": "two"}},
    "format version is empty": {"properties": {"format-version": ""}},
    "format version in another script": {"properties": {"format-version": "٢"}},
    "format version of a thousand digits": {"properties": {"format-version": "2" * 5000}},
    "property is a number": {"properties": {"a": 1}},
    "property is null": {"properties": {"a": None}},
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_definition_is_bad_input_that_names_the_field(name: str) -> None:
    wire: dict[str, Any] = {**fields(A, B, D), "spec": None, "order": None, "properties": {}, **BAD[name]}
    with pytest.raises(BadInput) as caught:
        build_table(
            TableDefinition(
                schema=convert_into(Schema, wire["schema"], "schema"),
                spec=convert_into(PartitionSpec, wire["spec"], "partition-spec")
                if wire["spec"] is not None
                else None,
                order=convert_into(SortOrder, wire["order"], "write-order")
                if wire["order"] is not None
                else None,
                properties=convert_into(dict[str, str], wire["properties"], "properties"),
                location=LOCATION,
                uuid=UUID,
            ),
            now_ms=T0,
        )
    assert caught.value.field
    assert len(caught.value.message) < 300


def test_the_table_of_wrong_definitions_differs_from_a_right_one_in_one_thing_each() -> None:
    right = convert_into(Schema, fields(A, B, D)["schema"])
    assert build_table(definition(schema=right), now_ms=T0).envelope.last_column_id == 3
