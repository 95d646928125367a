"""DELETE by our job, held against Spark's own through the jar: rows, files, row ids, conflicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.expressions import In

from headgate.errors import BadInput
from headgate.spark import delete_files
from headgate.spark.deletes import delete
from headgate.spark.row_changes import COPY, MERGE
from headgate.spark.session import has_jar_catalog, prepare_session
from headgate.spark.updates import update
from tests.spark.kinds import on_kinds
from tests.spark.tables import Tables
from tests.spark.twins import ROWS, make_twins, snapshot_summary

CELLS = [
    ("plain", COPY),
    ("plain", MERGE),
    ("partitioned", MERGE),
    ("evolved", COPY),
    ("evolved", MERGE),
    ("dropped", MERGE),
]
# One after the other on the same tables: part of a file, nulls in the condition, files that have deletes already.
CONDITIONS = (
    "id = 2 or id = 6",
    "kind <> 'a' and amount > 5",
    "length(kind) = 1 and id in (select 7)",
)


@pytest.fixture(params=[delete_files.DRIVER_ROWS_MAX, 0], ids=["by the driver", "by executors"])
def written_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who writes delete files."""
    monkeypatch.setattr(delete_files, "DRIVER_ROWS_MAX", request.param)


@on_kinds(CELLS, elsewhere=[("partitioned", MERGE)])
def test_the_same_rows_are_left_as_by_sparks_own_delete(tables: Tables, layout: str, mode: str) -> None:
    twins = make_twins(tables, layout, {"write.delete.mode": mode})
    before = twins.lineage() if tables.version == 3 else {}
    deleted = 0
    for condition in CONDITIONS:
        deleted += delete(twins.ours, condition, spark=tables.spark).deleted
        # The jar (1.12) tells Iceberg `kind <> 'a'` as "not equal", which null is there: files of a partition of nulls
        # would go as a whole. What it has no words for it judges row by row.
        twins.sql(f"DELETE FROM {{t}} WHERE coalesce({condition}, false)")
    assert deleted == ROWS - len(twins.agree())
    formats = {name for names in twins.delete_files().values() for name in names}
    assert formats <= ({"PUFFIN"} if tables.version == 3 else {"PARQUET"})
    assert bool(formats) == (mode == MERGE)
    assert {len(names) for names in twins.delete_files().values()} <= {1}, "one delete file for a data file"
    if tables.version == 3:
        after = twins.lineage()
        assert after == {id_: before[id_] for id_ in after}, "rows that stay keep their ids and age"


def test_files_that_go_as_a_whole_are_not_read(tables: Tables) -> None:
    twins = make_twins(tables, "partitioned")
    kept = {path for path in twins.data_files() if "kind=b" not in path}
    for path in twins.data_files() - kept:
        Path(urlsplit(path).path).write_bytes(b"not a Parquet file any more")
    changed = delete(twins.ours, "kind = 'b'", spark=tables.spark)
    twins.sql("DELETE FROM {t} WHERE kind = 'b'")
    twins.agree()
    assert changed.deleted == 3
    assert changed.added == ()
    assert snapshot_summary(twins.ours, changed)["operation"] == "delete"
    assert twins.data_files() == kept


def test_everything_goes_without_a_condition(tables_v3: Tables) -> None:
    twins = make_twins(tables_v3)
    delete(twins.ours, "id = 1", mode=MERGE, spark=tables_v3.spark)
    assert delete(twins.ours, None, spark=tables_v3.spark).deleted == ROWS - 1
    assert tables_v3.rows("ours") == []
    assert twins.delete_files() == {}, "a vector goes with its data file"


def test_only_files_with_such_rows_are_written_anew(tables_v2: Tables) -> None:
    twins = make_twins(tables_v2)
    before = twins.data_files()
    changed = delete(twins.ours, In("id", {5, 6, 7, 8}), spark=tables_v2.spark)
    assert changed.deleted == 4
    assert len(changed.removed) == 2
    assert len(changed.added) == 1, "of the file that loses all its rows nothing is left to write"
    assert len(twins.data_files() & before) == 1


def test_a_delete_of_no_row_commits_nothing(tables_v2: Tables) -> None:
    twins = make_twins(tables_v2)
    before, files = twins.ours.load().snapshot_id(), twins.all_files()
    for mode in (COPY, MERGE):
        for condition in ("id = 100", "id = 2 and kind = 'zz'", "kind = null", "length(kind) > 5"):
            assert delete(twins.ours, condition, mode=mode, spark=tables_v2.spark).committed is None
    empty = tables_v2.create("empty")
    assert delete(empty, "id = 1", spark=tables_v2.spark).committed is None
    assert (twins.ours.load().snapshot_id(), twins.all_files()) == (before, files)


@pytest.mark.usefixtures("written_by")
def test_position_deletes_of_a_partition_share_a_file_when_the_table_says_so(tables_v2: Tables) -> None:
    properties = {"write.delete.mode": MERGE, "write.delete.granularity": "partition"}
    twins = make_twins(tables_v2, "plain", properties)
    changed = delete(twins.ours, "id in (1, 2, 5, 10)", spark=tables_v2.spark)
    twins.sql("DELETE FROM {t} WHERE id in (1, 2, 5, 10)")
    twins.agree()
    assert changed.deleted == 4
    (file,) = changed.added
    assert "referenced-data-file" not in file
    assert delete(twins.ours, "id in (1, 3, 6)", spark=tables_v2.spark).deleted == 2
    twins.sql("DELETE FROM {t} WHERE id in (1, 3, 6)")
    twins.agree()


@pytest.mark.usefixtures("written_by")
def test_vectors_take_in_the_position_deletes_of_a_table_that_was_upgraded(tables_v2: Tables) -> None:
    twins = make_twins(
        tables_v2, "partitioned", {"write.delete.mode": MERGE, "write.delete.granularity": "partition"}
    )
    delete(twins.ours, "id in (1, 5)", spark=tables_v2.spark)
    twins.sql("DELETE FROM {t} WHERE id in (1, 5)")
    twins.both("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    assert delete(twins.ours, "id in (4, 5, 10)", spark=tables_v2.spark).deleted == 2
    twins.sql("DELETE FROM {t} WHERE id in (4, 5, 10)")
    twins.agree()


def test_a_branch_is_deleted_from_without_the_others(tables_v2: Tables) -> None:
    twins = make_twins(tables_v2)
    before = tables_v2.rows("ours")
    tables_v2.sql(f"ALTER TABLE {tables_v2.name('ours')} CREATE BRANCH audit")
    changed = delete(twins.ours, "id < 5", branch="audit", summary={"why": "asked"}, spark=tables_v2.spark)
    assert changed.deleted == 4
    assert snapshot_summary(twins.ours, changed)["why"] == "asked"
    assert tables_v2.rows("ours") == before
    left = tables_v2.sql(f"SELECT id FROM {tables_v2.name('ours')} VERSION AS OF 'audit'").collect()
    assert sorted(row[0] for row in left) == [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("condition", "options", "named"),
    [
        ("nocolumn = 1", {}, "filter"),
        ("id = 1", {"mode": "sideways"}, "mode"),
        ("id = 1", {"isolation": "chaos", "mode": MERGE}, "isolation"),
        ("id = 1", {"key": "no uuid"}, "key"),
    ],
)
def test_a_delete_that_does_not_fit_names_what_is_wrong(
    tables_v2: Tables, condition: str, options: dict[str, Any], named: str
) -> None:
    table = tables_v2.create("t")
    tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} VALUES (1, 'a'), (2, 'b')")
    with pytest.raises(BadInput) as refused:
        delete(table, condition, spark=tables_v2.spark, **options)
    assert refused.value.field == named


@pytest.mark.usefixtures("written_by")
def test_rows_are_hidden_again_and_again_without_the_jar(tables: Tables) -> None:
    twins = make_twins(tables, "partitioned")
    plain = prepare_session(tables.spark.newSession())
    assert not has_jar_catalog(plain)
    delete(twins.ours, "id in (1, 5, 6)", mode=MERGE, spark=plain)
    delete(twins.ours, "id = 7 or amount = 2", mode=MERGE, spark=plain)
    update(twins.ours, {"amount": "0"}, "kind = 'a'", mode=MERGE, spark=plain)
    delete(twins.ours, "id = 9", mode=COPY, spark=plain)
    twins.sql("DELETE FROM {t} WHERE id in (1, 2, 5, 6, 7, 9)")
    twins.sql("UPDATE {t} SET amount = 0 WHERE kind = 'a'")
    assert len(twins.agree()) == 4


def test_a_session_without_our_settings_is_refused(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    other = tables_v2.spark.newSession()
    with pytest.raises(BadInput, match="prepare_session"):
        delete(table, "id = 1", spark=other)
