"""Which schema knows the types of a spec's partition values."""

from __future__ import annotations

import pytest

from headgate.core.iceberg import partition_schema, schema_for_spec, to_schema
from headgate.core.partitioning import PartitionSpec
from headgate.core.schema import Field, Schema
from tests.core.builders import column, list_of, part

ID, OLD, LONG = column(1), column(2, type="int"), column(2, type="long")


def _schema(number: int, *fields: Field) -> Schema:
    return Schema(fields=fields, schema_id=number)


BY_TWO = PartitionSpec(fields=(part(2, name="p", field_id=1000),), spec_id=0)
BY_BOTH = PartitionSpec(fields=(*BY_TWO.fields, part(3, "void", name="v", field_id=1001)), spec_id=1)
BY_NOTHING = PartitionSpec(fields=(), spec_id=2)
BY_TWO_AND_THREE = PartitionSpec(fields=(*BY_TWO.fields, part(3, name="d", field_id=1001)), spec_id=3)

FIRST, PROMOTED, DROPPED = _schema(0, ID, OLD), _schema(1, ID, LONG), _schema(2, ID)
# what | spec | schemas in the order of the metadata | id of the current one | id of the one that tells the types
CHOICES: list[tuple[str, PartitionSpec, tuple[Schema, ...], int, int]] = [
    ("the current schema has the source", BY_TWO, (FIRST, PROMOTED), 1, 1),
    ("an older schema is current again", BY_TWO, (FIRST, PROMOTED), 0, 0),
    ("the source was dropped: the newest that has it", BY_TWO, (FIRST, PROMOTED, DROPPED), 2, 1),
    ("newest by id, wherever it stands", BY_TWO, (DROPPED, PROMOTED, FIRST), 2, 1),
    ("the source of a void field does not matter", BY_BOTH, (FIRST, PROMOTED), 1, 1),
    ("a spec of no fields needs no source", BY_NOTHING, (FIRST, DROPPED), 2, 2),
    ("no schema has the source any more", BY_TWO, (DROPPED,), 2, 2),
    ("no schema has all sources", BY_TWO_AND_THREE, (FIRST, DROPPED), 2, 0),
]


@pytest.mark.parametrize("row", CHOICES, ids=lambda row: row[0])
def test_the_types_of_a_spec_come_from_the_newest_schema_that_has_its_sources(
    row: tuple[str, PartitionSpec, tuple[Schema, ...], int, int],
) -> None:
    _, spec, schemas, current, expected = row
    by_id = {schema.schema_id: schema for schema in schemas}
    assert schema_for_spec(spec, schemas, current=by_id[current]).schema_id == expected


def test_a_partition_field_whose_source_was_dropped_keeps_its_type() -> None:
    schema = schema_for_spec(BY_TWO, (FIRST, PROMOTED, DROPPED), current=DROPPED)
    assert [str(field.field_type) for field in partition_schema(BY_TWO, schema).fields] == ["long"]


def test_a_column_with_a_list_as_its_default_is_read_like_any_other() -> None:
    schema = _schema(0, ID, column(3, type=list_of("int"), initial_default=[1], write_default=[1]))
    assert [field.name for field in to_schema(schema).fields] == ["c1", "c3"]
    assert partition_schema(BY_NOTHING, schema).fields == ()
