"""Schemas, specs, sort orders and format versions of a table that exists."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headgate.core.apply import apply
from headgate.core.partitioning import PartitionField, PartitionSpec, SortField, SortOrder
from headgate.core.schema import Field
from headgate.core.table import TableMetadata
from headgate.core.updates import (
    AddSchema,
    AddSortOrder,
    AddSpec,
    RemovePartitionSpecs,
    RemoveSchemas,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetProperties,
    TableUpdate,
    UpgradeFormatVersion,
)
from headgate.errors import BadInput
from tests.core.builders import (
    CITY,
    COLUMNS,
    ID,
    T0,
    TS,
    append,
    column,
    commit,
    order,
    part,
    schema,
    sort,
    spec,
    table,
)

INT_MAX = 2**31 - 1
LAST_SCHEMA, LAST_SPEC, LAST_ORDER = (
    SetCurrentSchema(schema_id=-1),
    SetDefaultSpec(spec_id=-1),
    SetDefaultSortOrder(sort_order_id=-1),
)


def evolve(*fields: Field) -> tuple[TableUpdate, ...]:
    return AddSchema(schema=schema(*fields)), LAST_SCHEMA


def partition_by(*fields: PartitionField) -> tuple[TableUpdate, ...]:
    return AddSpec(spec=spec(*fields)), LAST_SPEC


def sort_by(*fields: SortField) -> tuple[TableUpdate, ...]:
    return AddSortOrder(sort_order=order(*fields)), LAST_ORDER


def upgrade(version: int) -> UpgradeFormatVersion:
    return UpgradeFormatVersion(format_version=version)


def bad(base: TableMetadata, *updates: TableUpdate) -> BadInput:
    with pytest.raises(BadInput) as caught:
        commit(base, *updates)
    return caught.value


def unchanged(base: TableMetadata, *updates: TableUpdate) -> bool:
    return apply(base, updates, now_ms=T0) is None


def with_envelope(base: TableMetadata, **changes: Any) -> TableMetadata:
    return TableMetadata(msgspec.structs.replace(base.envelope, **changes), base.snapshots, base.history)


# --- schemas --------------------------------------------------------------------------------------------


def test_a_new_schema_gets_the_next_id_and_moves_the_last_column_id() -> None:
    made = commit(table(), *evolve(*COLUMNS, column(4)))
    assert made.envelope.current_schema_id == 1
    assert made.envelope.last_column_id == 4
    assert [s.schema_id for s in made.envelope.schemas] == [0, 1]
    assert [field.id for field in made.schema().fields] == [1, 2, 3, 4]


def test_a_schema_added_but_not_made_current_waits() -> None:
    made = commit(table(), AddSchema(schema=schema(ID)))
    assert made.envelope.current_schema_id == 0
    assert len(made.envelope.schemas) == 2


def test_an_equal_schema_is_used_again() -> None:
    base = commit(table(), *evolve(ID))
    made = commit(base, *evolve(*COLUMNS))
    assert made.envelope.current_schema_id == 0
    assert len(made.envelope.schemas) == 2
    assert unchanged(table(), *evolve(*COLUMNS))


def test_an_equal_schema_may_still_move_the_last_column_id() -> None:
    made = commit(table(), AddSchema(schema=schema(), last_column_id=9))
    assert made.envelope.last_column_id == 9
    assert len(made.envelope.schemas) == 1


def test_dropping_the_newest_column_keeps_its_id_taken() -> None:
    # Java sends the highest id of the schema as last-column-id, which is below the table's.
    made = commit(table(), AddSchema(schema=schema(ID, TS), last_column_id=2), LAST_SCHEMA)
    assert made.envelope.last_column_id == 3


def test_a_schema_that_cannot_be_is_refused() -> None:
    assert bad(table(), AddSchema(schema=schema(ID, ID))).field == "schema.fields.id"
    assert "until v3" in bad(table(), AddSchema(schema=schema(column(1, "v", "variant")))).message


def test_a_schema_must_exist_to_be_current() -> None:
    error = bad(table(), SetCurrentSchema(schema_id=9))
    assert error.message == "Cannot set current schema to unknown schema: 9"
    error = bad(table(), LAST_SCHEMA)
    assert error.message == "Cannot set last added schema: no schema has been added"
    assert error.field == "updates.schema-id"
    assert unchanged(table(), SetCurrentSchema(schema_id=0))


def test_an_older_schema_may_be_current_again() -> None:
    base = commit(table(), *evolve(ID))
    assert commit(base, SetCurrentSchema(schema_id=0)).envelope.current_schema_id == 0


def test_schemas_may_be_forgotten_but_not_the_current_one() -> None:
    base = commit(table(), *evolve(ID))
    made = commit(base, RemoveSchemas(schema_ids=(0, 77)))
    assert [s.schema_id for s in made.envelope.schemas] == [1]
    assert bad(base, RemoveSchemas(schema_ids=(0, 1))).message == "Cannot remove the current schema"
    assert unchanged(base, RemoveSchemas(schema_ids=()), RemoveSchemas(schema_ids=(77,)))


def test_a_snapshot_may_name_any_schema_of_the_table() -> None:
    base = commit(table(), *evolve(ID))
    assert commit(base, *append(1, schema_id=1)).find_snapshot(1) is not None


# --- what a schema change must leave usable -------------------------------------------------------------


def test_a_column_that_partitions_the_table_may_not_be_dropped() -> None:
    error = bad(table(spec=spec(part(3))), *evolve(ID, TS))
    assert error.message == "Cannot find source column for partition field city"


def test_a_column_that_only_an_old_spec_uses_may_be_dropped() -> None:
    base = commit(table(spec=spec(part(3))), *partition_by(part(1)))
    made = commit(base, *evolve(ID, TS))
    assert made.envelope.current_schema_id == 1


def test_a_column_that_sorts_the_table_may_not_be_dropped() -> None:
    error = bad(table(order=order(sort(3))), *evolve(ID, TS))
    assert error.message == "Cannot find source column for sort field: identity(3) ASC NULLS FIRST"


def test_a_column_may_not_take_the_name_of_a_partition_field_of_any_spec() -> None:
    # Java binds every spec, old ones too, to the current schema, and could not read the table.
    base = commit(table(spec=spec(part(3, "bucket[4]"))), *partition_by(part(1)))
    error = bad(base, *evolve(*COLUMNS, column(4, "city_bucket")))
    assert error.message == "Cannot create partition from name that exists in schema: city_bucket"


def test_renaming_a_partition_column_is_good() -> None:
    made = commit(table(spec=spec(part(3))), *evolve(ID, TS, column(3, "town", "string")))
    assert made.schema().fields[2].name == "town"


def test_the_shape_is_checked_at_the_end_whatever_the_order_of_updates() -> None:
    base = table(spec=spec(part(3)))
    made = commit(base, *evolve(ID, TS), *partition_by(part(1)))
    assert made.envelope.default_spec_id == 1


def test_a_commit_that_leaves_the_shape_alone_does_not_check_it_again() -> None:
    odd = with_envelope(
        table(), default_spec_id=0, partition_specs=(PartitionSpec(fields=(part(77),), spec_id=0),)
    )
    assert commit(odd, SetProperties(updates={"a": "b"})).envelope.properties["a"] == "b"
    assert "Cannot find source column" in bad(odd, *evolve(ID)).message


# --- specs ----------------------------------------------------------------------------------------------


def test_a_new_spec_gets_the_next_id_and_moves_the_last_partition_id() -> None:
    made = commit(table(), *partition_by(part(3, field_id=1000), part(1, "bucket[4]", field_id=1001)))
    assert made.envelope.default_spec_id == 1
    assert made.envelope.last_partition_id == 1001
    assert [s.spec_id for s in made.envelope.partition_specs] == [0, 1]


def test_field_ids_left_to_us_are_filled_in() -> None:
    base = table(spec=spec(part(3)))
    made = commit(base, *partition_by(part(3), part(1, "bucket[4]")))
    assert [f.field_id for f in made.envelope.partition_specs[1].fields] == [1000, 1001]
    assert made.envelope.last_partition_id == 1001


def test_a_compatible_spec_is_used_again() -> None:
    base = commit(table(), *partition_by(part(3)))
    made = commit(base, *partition_by())
    assert made.envelope.default_spec_id == 0
    assert len(made.envelope.partition_specs) == 2
    assert unchanged(table(), *partition_by())


def test_a_spec_without_fields_keeps_the_last_partition_id() -> None:
    base = commit(table(spec=spec(part(3))), *partition_by())
    assert base.envelope.last_partition_id == 1000
    assert base.envelope.default_spec_id == 1


def test_a_spec_that_does_not_fit_is_refused() -> None:
    assert bad(table(), AddSpec(spec=spec(part(9)))).field == "spec.fields.source-id"


def test_a_spec_must_exist_to_be_the_default() -> None:
    error = bad(table(), SetDefaultSpec(spec_id=9))
    assert error.message == "Cannot set default partition spec to unknown spec: 9"
    error = bad(table(), LAST_SPEC)
    assert error.message == "Cannot set last added spec: no spec has been added"
    assert error.field == "updates.spec-id"
    assert unchanged(table(), SetDefaultSpec(spec_id=0))


def test_specs_may_be_forgotten_but_not_the_default() -> None:
    base = commit(table(), *partition_by(part(3)))
    made = commit(base, RemovePartitionSpecs(spec_ids=(0,)))
    assert [s.spec_id for s in made.envelope.partition_specs] == [1]
    error = bad(base, RemovePartitionSpecs(spec_ids=(1,)))
    assert error.message == "Cannot remove the default partition spec"
    assert unchanged(base, RemovePartitionSpecs(spec_ids=(7,)))


def test_version_1_numbers_fields_by_position() -> None:
    base = table(version=1, spec=spec(part(3)))
    made = commit(base, *partition_by(part(3, "void"), part(1)))
    assert [f.field_id for f in made.envelope.partition_specs[1].fields] == [1000, 1001]
    error = bad(base, *partition_by(part(1, field_id=1001)))
    assert error.message == "Spec does not use sequential IDs that are required in v1: id=1001"


# --- sort orders ----------------------------------------------------------------------------------------


def test_a_new_order_gets_the_next_id() -> None:
    made = commit(commit(table(), *sort_by(sort(1))), *sort_by(sort(2)))
    assert made.envelope.default_sort_order_id == 2
    assert [o.order_id for o in made.envelope.sort_orders] == [0, 1, 2]


def test_an_equal_order_is_used_again() -> None:
    base = commit(table(), *sort_by(sort(1)))
    made = commit(base, *sort_by())
    assert made.envelope.default_sort_order_id == 0
    assert commit(made, *sort_by(sort(1))).envelope.default_sort_order_id == 1


def test_the_unsorted_order_has_id_0_wherever_it_comes_from() -> None:
    base = table(order=order(sort(1)))
    assert [o.order_id for o in base.envelope.sort_orders] == [1]
    made = commit(base, *sort_by())
    assert made.envelope.sort_orders[1:] == (SortOrder(fields=(), order_id=0),)
    assert made.envelope.default_sort_order_id == 0


def test_an_order_must_fit_and_exist_to_be_the_default() -> None:
    assert bad(table(), *sort_by(sort(9))).field == "sort-order.fields.source-id"
    error = bad(table(), SetDefaultSortOrder(sort_order_id=9))
    assert error.message == "Cannot set default sort order to unknown order: 9"
    error = bad(table(), LAST_ORDER)
    assert error.message == "Cannot set last added sort order: no sort order has been added"
    assert error.field == "updates.sort-order-id"
    assert unchanged(table(), SetDefaultSortOrder(sort_order_id=0))


# --- ids that run out -----------------------------------------------------------------------------------


def test_an_id_beyond_an_int_is_refused_not_stored() -> None:
    base = table()
    full = with_envelope(
        base,
        schemas=(*base.envelope.schemas, msgspec.structs.replace(schema(ID), schema_id=INT_MAX)),
        partition_specs=(*base.envelope.partition_specs, PartitionSpec(fields=(part(1),), spec_id=INT_MAX)),
        sort_orders=(*base.envelope.sort_orders, SortOrder(fields=(sort(1),), order_id=INT_MAX)),
    )
    for updates in (evolve(ID, TS), partition_by(part(3)), sort_by(sort(2))):
        assert bad(full, *updates).message == "no id is left for another schema, spec or sort order"


# --- versions -------------------------------------------------------------------------------------------


def test_a_table_climbs_from_version_1_to_3() -> None:
    made = table(version=1, snapshots=2)
    assert made.envelope.next_row_id is None
    made = commit(made, upgrade(2))
    assert made.envelope.format_version == 2
    assert made.envelope.next_row_id is None
    made = commit(made, *append(3, sequence_number=1))
    assert made.envelope.last_sequence_number == 1
    made = commit(made, upgrade(3))
    assert made.envelope.next_row_id == 0
    made = commit(made, *append(4, version=3, first_row_id=0, sequence_number=2))
    assert [s.sequence_number for s in made.iter_snapshots()] == [0, 0, 1, 2]


def test_a_table_may_jump_from_version_1_to_3() -> None:
    assert commit(table(version=1), upgrade(3)).envelope.next_row_id == 0


def test_the_next_row_id_survives_an_upgrade_that_changes_nothing() -> None:
    base = table(version=3, snapshots=2)
    assert unchanged(base, upgrade(3))


def test_a_version_never_goes_down() -> None:
    assert bad(table(version=3), upgrade(2)).message == "Cannot downgrade v3 table to v2"
    assert bad(table(), upgrade(1)).field == "updates.format-version"


@pytest.mark.parametrize("version", [0, -1, 4, 99])
def test_a_version_that_we_do_not_know_is_refused(version: int) -> None:
    expected = f"Cannot upgrade table to unsupported format version: v{version} (supported: v3)"
    assert bad(table(), upgrade(version)).message == expected


def test_types_of_version_3_may_come_with_the_upgrade() -> None:
    made = commit(table(), upgrade(3), *evolve(*COLUMNS, column(4, "v", "variant")))
    assert made.schema().fields[-1].type == "variant"
    assert CITY in made.schema().fields
