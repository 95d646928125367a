"""UPDATE by our job, held against Spark's own through the jar."""

from __future__ import annotations

import pytest

from headgate.client.keys import new_key
from headgate.errors import BadInput
from headgate.spark.row_changes import COPY, MERGE
from headgate.spark.updates import update
from tests.spark.kinds import BOTH, on_kinds
from tests.spark.tables import Tables
from tests.spark.twins import make_twins

CELLS = [("plain", COPY), ("plain", MERGE), ("partitioned", COPY), ("evolved", MERGE), ("dropped", COPY)]
# One after the other: values by the row as it was, a new partition, a condition that is null for some rows.
UPDATES = (
    ({"amount": "amount * 2", "kind": "concat(kind, 'x')"}, "id in (1, 3, 6)"),
    ({"kind": "'b'", "amount": "id"}, "kind = 'a' or amount > 8"),
    ({"at": "at + interval 1 day"}, "length(kind) = 1 and id in (select 7)"),
)


@on_kinds(CELLS, elsewhere=[("dropped", COPY)])
def test_the_same_rows_come_out_as_by_sparks_own_update(tables: Tables, layout: str, mode: str) -> None:
    twins = make_twins(tables, layout, {"write.update.mode": mode})
    before = twins.lineage() if tables.version == 3 else {}
    updated = []
    for values, condition in UPDATES:
        updated.append(update(twins.ours, values, condition, spark=tables.spark).updated)
        said = ", ".join(f"{name} = {sql}" for name, sql in values.items())
        twins.sql(f"UPDATE {{t}} SET {said} WHERE {condition}")
    twins.agree()
    assert updated == [3, 4, 1]
    assert bool(twins.delete_files()) == (mode == MERGE)
    if tables.version == 3:
        after = twins.lineage()
        assert {id_: row for id_, (row, _) in after.items()} == {id_: row for id_, (row, _) in before.items()}
        changed = {id_ for id_ in after if after[id_] != before[id_]}
        assert changed == {1, 3, 4, 6, 7, 9}, "only changed rows have a new age"
        assert (after[1][1], after[6][1], after[7][1]) == (4, 5, 6), "of the commit that changed it"


def test_all_rows_are_updated_without_a_condition(tables_v3: Tables) -> None:
    twins = make_twins(tables_v3)
    assert update(twins.ours, {"kind": "null"}, spark=tables_v3.spark).updated == 10
    twins.sql("UPDATE {t} SET kind = null")
    twins.agree()


@BOTH
def test_an_update_that_is_started_again_under_its_key_is_done_once(tables_v2: Tables) -> None:
    twins, key = make_twins(tables_v2), new_key()
    first = update(twins.ours, {"amount": "amount * 2"}, "id = 2", key=key, spark=tables_v2.spark)
    again = update(twins.ours, {"amount": "amount * 2"}, "id = 2", key=key, spark=tables_v2.spark)
    assert first.committed is not None
    assert again.committed is not None
    assert again.committed.snapshot_id == first.committed.snapshot_id
    twins.sql("UPDATE {t} SET amount = amount * 2 WHERE id = 2")
    twins.agree()


def test_an_update_of_no_row_commits_nothing(tables_v2: Tables) -> None:
    twins = make_twins(tables_v2)
    before = twins.ours.load().snapshot_id()
    for mode in (COPY, MERGE):
        assert (
            update(
                twins.ours, {"kind": "'x'"}, "id = 2 and kind = 'zz'", mode=mode, spark=tables_v2.spark
            ).committed
            is None
        )
    assert twins.ours.load().snapshot_id() == before


@pytest.mark.parametrize(
    ("values", "where", "named"),
    [
        ({}, None, "set"),
        ({"nokind": "1"}, None, "nokind"),
        ({"kind": "nokind"}, None, "kind"),
        ({"at": "true"}, None, "at"),
        ({"kind": "'x'"}, "rand() < 0.5", "where"),
        ({"kind": "'x'", "KIND": "'y'"}, None, "KIND"),
    ],
)
def test_an_update_that_does_not_fit_names_the_column(
    tables_v2: Tables, values: dict[str, str], where: str | None, named: str
) -> None:
    table = tables_v2.create("t", "id BIGINT, kind STRING, at TIMESTAMP")
    tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} VALUES (1, 'a', NULL)")
    with pytest.raises(BadInput) as refused:
        update(table, values, where, spark=tables_v2.spark)
    assert refused.value.field == named


def test_a_value_that_is_too_large_for_its_column_stops_the_job_and_leaves_nothing(tables_v2: Tables) -> None:
    twins = make_twins(tables_v2)
    files = twins.all_files()
    with pytest.raises(Exception, match="NUMERIC_VALUE_OUT_OF_RANGE"):
        update(twins.ours, {"amount": "id * 100000000000"}, spark=tables_v2.spark)
    assert twins.all_files() == files
    twins.agree()
