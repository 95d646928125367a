"""MERGE by our job, held against Spark's own through the jar."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate.errors import BadInput
from headgate.spark.merges import merge
from headgate.spark.row_changes import COPY, MERGE
from tests.spark.kinds import on_kinds
from tests.spark.tables import Tables
from tests.spark.twins import COLUMNS, make_twins

CELLS = [("plain", COPY), ("plain", MERGE), ("partitioned", MERGE), ("evolved", COPY), ("dropped", MERGE)]
SOURCE = """
    SELECT * FROM VALUES
        (1, 'u', 10.00, TIMESTAMP '2024-05-01 00:00:00'), (3, 'd', 0, NULL), (6, NULL, 60.00, NULL),
        (7, 'keep', 70.00, NULL), (11, 'new', 11.00, NULL), (12, 'skip', 12.00, NULL), (NULL, 'null', 13.00, NULL)
    AS s(id, kind, amount, at)
"""


def source(spark: SparkSession, sql: str = SOURCE) -> DataFrame:
    """The source with the table's types."""
    return spark.sql(f"SELECT CAST(id AS BIGINT), kind, CAST(amount AS DECIMAL(10,2)), at FROM ({sql})")


@on_kinds(CELLS, elsewhere=[("plain", MERGE)])
def test_the_same_rows_come_out_as_by_sparks_own_merge(tables: Tables, layout: str, mode: str) -> None:
    twins = make_twins(tables, layout, {"write.merge.mode": mode})
    before = twins.lineage() if tables.version == 3 else {}
    rows = source(tables.spark)
    rows.createOrReplaceTempView("s")
    changed = merge(
        twins.ours,
        rows,
        on=["id"],
        when_matched_delete="source.kind = 'd'",
        when_matched_update={"amount": "target.amount + source.amount", "kind": "source.kind"},
        when_matched_update_if="source.kind <> 'keep'",
        when_not_matched_insert="all",
        when_not_matched_insert_if="kind <> 'skip'",
    )
    twins.sql(
        "MERGE INTO {t} AS target USING s AS source ON target.id = source.id "
        "WHEN MATCHED AND source.kind = 'd' THEN DELETE "
        "WHEN MATCHED AND source.kind <> 'keep' THEN UPDATE SET amount = target.amount + source.amount, "
        "kind = source.kind WHEN NOT MATCHED AND kind <> 'skip' THEN INSERT *"
    )
    # Once more, onto files that have delete files by now; every match is deleted, the others are inserted anew.
    again = merge(
        twins.ours,
        rows,
        on="target.id = source.id AND target.amount > 5",
        when_matched_delete="true",
        when_not_matched_insert={"id": "source.id + 100", "amount": "1"},
    )
    twins.sql(
        "MERGE INTO {t} AS target USING s AS source ON target.id = source.id AND target.amount > 5 "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, amount) VALUES (source.id + 100, 1)"
    )
    twins.agree()
    assert (changed.updated, changed.deleted, changed.inserted) == (1, 1, 2)
    assert (again.updated, again.deleted, again.inserted) == (0, 4, 3)
    assert bool(twins.delete_files()) == (mode == MERGE)
    if tables.version == 3:
        after = twins.lineage()
        stayed = after.keys() & before.keys()
        assert stayed == {2, 4, 5, 8, 9, 10}
        assert {id_: after[id_] for id_ in stayed} == {id_: before[id_] for id_ in stayed}
        assert not {row for row, _ in before.values()} & {after[id_][0] for id_ in after.keys() - stayed}


def test_an_update_by_merge_keeps_the_id_of_the_row(tables_v3: Tables) -> None:
    twins = make_twins(tables_v3, "partitioned")
    for mode in (COPY, MERGE):
        before = twins.lineage()
        merge(twins.ours, source(tables_v3.spark), on=["id"], when_matched_update="all", mode=mode)
        after = twins.lineage()
        assert {id_: row for id_, (row, _) in after.items()} == {id_: row for id_, (row, _) in before.items()}
        head = twins.ours.load().metadata.last_sequence_number
        assert {id_ for id_, (_, age) in after.items() if age == head} == {1, 3, 6, 7}


def test_only_what_matches_nothing_is_inserted(tables_v2: Tables) -> None:
    twins = make_twins(tables_v2)
    for mode in (COPY, MERGE):
        changed = merge(twins.ours, source(tables_v2.spark), ["id"], when_not_matched_insert="all", mode=mode)
        assert changed.removed == ()
        assert changed.inserted == (3 if mode == COPY else 1), "null matches nothing, whenever it is asked"
    source(tables_v2.spark).createOrReplaceTempView("s")
    for _ in range(2):
        twins.sql("MERGE INTO {t} t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    twins.agree()


def test_rows_go_into_a_table_that_has_none(tables_v3: Tables) -> None:
    table = tables_v3.create("t", COLUMNS, partitioned="kind")
    changed = merge(
        table, source(tables_v3.spark), ["id"], when_matched_update="all", when_not_matched_insert="all"
    )
    assert changed.inserted == 7
    assert len(tables_v3.rows("t")) == 7


def test_a_merge_that_matches_nothing_commits_nothing(tables_v2: Tables) -> None:
    twins = make_twins(tables_v2)
    empty = source(tables_v2.spark).where("id > 100")
    assert (
        merge(twins.ours, empty, ["id"], when_matched_update="all", when_not_matched_insert="all").committed
        is None
    )
    assert merge(twins.ours, source(tables_v2.spark), "false", when_matched_delete="true").committed is None


def test_a_row_that_two_rows_of_the_source_match_refuses_the_merge(tables_v2: Tables) -> None:
    twins = make_twins(tables_v2)
    before, files = twins.ours.load().snapshot_id(), twins.all_files()
    twice = source(tables_v2.spark).union(source(tables_v2.spark).where("id = 6"))
    with pytest.raises(BadInput, match=r"2 of its rows match one row of the table \(id=6, kind='c'"):
        merge(twins.ours, twice, ["id"], when_matched_update="all")
    assert (twins.ours.load().snapshot_id(), twins.all_files()) == (before, files)
    # Deleted twice is deleted.
    assert merge(twins.ours, twice, ["id"], when_matched_delete="true").deleted == 4


def test_a_source_that_answers_differently_each_time_is_asked_once(tables_v2: Tables) -> None:
    twins = make_twins(tables_v2)
    shaky = source(tables_v2.spark).selectExpr(
        "CAST(rand() * 1000000 + 1000 AS BIGINT) AS id", "kind", "amount", "at"
    )
    assert (
        merge(twins.ours, shaky, ["id"], when_matched_update="all", when_not_matched_insert="all").inserted
        == 7
    )
    assert len(tables_v2.rows("ours")) == 17


Case = dict[str, Any]


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"on": ["nokey"], "when_matched_update": "all"}, "nokey"),
        ({"on": [], "when_matched_update": "all"}, "on"),
        ({"on": "target.id = source.nokey", "when_matched_update": "all"}, "on"),
        ({"on": "id = 1", "when_matched_update": "all"}, "on"),
        ({"on": "target.id", "when_matched_update": "all"}, "on"),
        ({"on": "rand() < 0.5", "when_matched_update": "all"}, "on"),
        ({"on": ["id"]}, "when_matched_update"),
        ({"on": ["id"], "when_matched_update": {"nocolumn": "1"}}, "nocolumn"),
        ({"on": ["id"], "when_matched_update": {"kind": "source.nocolumn"}}, "kind"),
        ({"on": ["id"], "when_matched_update": "some"}, "when_matched_update"),
        ({"on": ["id"], "when_matched_update": {}}, "when_matched_update"),
        ({"on": ["id"], "when_matched_delete": "source.x = 1"}, "when_matched_delete"),
        ({"on": ["id"], "when_not_matched_insert": {"id": "target.id"}}, "id"),
        (
            {"on": ["id"], "when_matched_delete": "true", "when_matched_update_if": "true"},
            "when_matched_update_if",
        ),
        ({"on": ["id"], "when_matched_delete": "true", "mode": "sideways"}, "mode"),
    ],
)
def test_a_merge_that_does_not_fit_names_what_is_wrong(
    spark: SparkSession, merge_table: Any, said: Case, named: str
) -> None:
    with pytest.raises(BadInput) as refused:
        merge(merge_table, source(spark), **said)
    assert refused.value.field == named


@pytest.fixture
def merge_table(tables_v2: Tables) -> Any:
    """A table with one row."""
    table = tables_v2.create("t", COLUMNS)
    tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} VALUES (1, 'a', 1.00, NULL)")
    return table


def test_a_source_with_reserved_names_or_missing_columns_is_refused(
    spark: SparkSession, merge_table: Any
) -> None:
    rows = source(spark)
    with pytest.raises(BadInput, match="_file"):
        merge(merge_table, rows.withColumnRenamed("kind", "_file"), ["id"], when_matched_delete="true")
    with pytest.raises(BadInput, match="kind"):
        merge(merge_table, rows.drop("kind"), ["id"], when_not_matched_insert="all")
