"""Filters that were written with the names of an older schema: columns are their ids."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.change import Delete, NoAddedDataFiles
from headgate.core.filters import rename_terms
from headgate.core.intake import take_in
from headgate.core.schema import Field, Schema
from headgate.core.table import TableMetadata
from headgate.core.updates import AddSchema, SetCurrentSchema
from headgate.errors import BadInput, RequirementFailed
from tests.core.builders import commit, table

OLD = Schema(
    schema_id=0,
    fields=(
        Field(id=1, name="id", required=True, type="long"),
        Field(id=2, name="old", required=False, type="string"),
    ),
)
NEW = Schema(
    schema_id=1,
    fields=(
        Field(id=1, name="id", required=True, type="long"),
        Field(id=2, name="new", required=False, type="string"),
        Field(id=3, name="old", required=False, type="string"),
    ),
)
FILTER: dict[str, Any] = {
    "type": "and",
    "left": {"type": "eq", "term": "old", "value": "x"},
    "right": {"type": "in", "term": "id", "values": [1, 2]},
}


def test_a_renamed_column_is_found_by_its_id_although_another_has_its_name_now() -> None:
    found: Any = rename_terms(FILTER, old=OLD, new=NEW, field="f")
    assert found["left"] == {"type": "eq", "term": "new", "value": "x"}
    assert found["right"] == FILTER["right"]


def test_a_dropped_column_is_refused_by_name() -> None:
    gone = Schema(schema_id=1, fields=NEW.fields[:1])
    with pytest.raises(RequirementFailed, match="column old"):
        rename_terms(FILTER, old=OLD, new=gone, field="f")


def test_what_never_fitted_is_left_to_the_parser() -> None:
    raw = {"type": "eq", "term": "nowhere", "value": 1}
    assert rename_terms(raw, old=OLD, new=NEW, field="f") == raw
    assert rename_terms(True, old=OLD, new=NEW, field="f") is True


def _renamed() -> TableMetadata:
    made = table()
    first = made.schema()
    renamed = Schema(
        schema_id=1,
        fields=tuple(
            Field(id=f.id, name=f"{f.name}_now", required=f.required, type=f.type) for f in first.fields
        ),
    )
    return commit(made, AddSchema(schema=renamed), SetCurrentSchema(schema_id=-1))


def _delete(schema_id: int | None, name: str) -> Delete:
    raw = {"type": "not-null", "term": name}
    return Delete(schema_id=schema_id, commit_validations=(NoAddedDataFiles(filter=raw),))


def test_a_change_may_say_which_schema_its_filters_are_written_for() -> None:
    made = _renamed()
    name = made.envelope.schemas[0].fields[0].name
    (check,) = take_in(_delete(0, name), made, field="u").checks
    assert check.filter is not None
    take_in(_delete(None, f"{name}_now"), made, field="u")
    take_in(_delete(1, f"{name}_now"), made, field="u")
    with pytest.raises(BadInput, match="not a filter"):
        take_in(_delete(None, name), made, field="u")


def test_a_schema_that_the_table_has_not_is_refused() -> None:
    with pytest.raises(BadInput, match="no schema 7") as refused:
        take_in(_delete(7, "id"), table(), field="u")
    assert refused.value.field == "u.schema-id"
