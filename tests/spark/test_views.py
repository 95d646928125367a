"""Views that follow their sources: the result is always what the whole query gives, and little is read for it."""

from __future__ import annotations

import threading

import pytest

from headgate.core.own_properties import VIEW_PROGRESS
from headgate.errors import AlreadyExists, BadInput
from headgate.spark.compaction import compact
from headgate.spark.lake import LakeTable
from headgate.spark.view_plan import PREFIX
from headgate.spark.views import Kind, Refreshed, ViewJob, create_view_job, refresh
from tests.spark.kinds import BOTH
from tests.spark.tables import Rows, Tables

_GROUPS = """
    SELECT kind, count(*) AS n, count(amount) AS m, sum(amount) AS total, avg(amount) AS mean,
           min(id) AS low, max(id) AS high
    FROM pay WHERE id >= 0 GROUP BY kind
"""
_ROWS = "SELECT id, upper(kind) AS kind, amount * 2 AS twice FROM pay WHERE amount IS NOT NULL"


def _pay(
    tables: Tables, *, mode: str = "copy-on-write", rows: str = "(1, 'a', 10.00), (2, 'b', 20.00)"
) -> LakeTable:
    table = tables.create(
        "pay",
        "id BIGINT, kind STRING, amount DECIMAL(12, 2)",
        properties={"write.delete.mode": mode, "write.update.mode": mode},
    )
    tables.sql(f"INSERT INTO {tables.name('pay')} VALUES {rows}")
    return table


def _view(tables: Tables, query: str, *sources: str, name: str = "view") -> ViewJob:
    names = [f"{tables.namespace}.{source}" for source in sources or ("pay",)]
    return create_view_job(tables.lake, (tables.namespace, name), query, names, spark=tables.spark)


def _refresh(tables: Tables, name: str = "view", *, full: bool = False) -> Refreshed:
    return refresh(tables.lake, (tables.namespace, name), spark=tables.spark, full=full)


def _whole(tables: Tables, query: str, *sources: str) -> Rows:
    """What the query gives when the jar reads the sources as they are now."""
    for source in sources or ("pay",):
        tables.spark.table(tables.name(source)).createOrReplaceTempView(source)
    return sorted((tuple(row) for row in tables.spark.sql(query).collect()), key=repr)


def _shown(tables: Tables, name: str = "view") -> Rows:
    """The result, without the columns of the view's own."""
    columns = [one.name for one in tables.table(name).load().schema.fields]
    count = sum(not column.startswith(PREFIX) for column in columns)
    return sorted((row[:count] for row in tables.rows(name)), key=repr)


@pytest.mark.parametrize("query", [_GROUPS, _ROWS], ids=["groups", "rows"])
def test_a_view_follows_every_kind_of_commit(tables: Tables, query: str) -> None:
    # Both ways to delete with both versions, and each with one of the queries.
    is_merged = (query == _GROUPS) == (tables.version == 2)
    _pay(tables, mode="merge-on-read" if is_merged else "copy-on-write")
    assert _view(tables, query).reason is None
    first = _refresh(tables)
    assert (first.kind, first.reason) == (Kind.REBUILT, "nothing was built before")
    name = tables.name("pay")
    for statement in (
        f"INSERT INTO {name} VALUES (3, 'a', 5.55), (4, NULL, NULL), (5, 'c', 1.00), (5, 'c', 1.00)",
        f"DELETE FROM {name} WHERE id = 4",
        f"UPDATE {name} SET amount = amount + 0.01 WHERE kind = 'c'",
        f"INSERT OVERWRITE {name} SELECT id, kind, amount + 1 FROM {name} WHERE kind <> 'zz'",
    ):
        tables.sql(statement)
        done = _refresh(tables)
        assert (done.kind, done.reason) == (Kind.INCREMENTAL, None), statement
        assert _shown(tables) == _whole(tables, query), statement


@BOTH
def test_nothing_is_read_when_nothing_changed_and_for_a_compaction(tables_v2: Tables) -> None:
    table = _pay(tables_v2)
    tables_v2.sql(f"INSERT INTO {tables_v2.name('pay')} VALUES (3, 'a', 1.00)")
    _view(tables_v2, _GROUPS)
    _refresh(tables_v2)
    assert _refresh(tables_v2) == Refreshed(Kind.UNCHANGED)
    assert len(compact(table, min_files=2, spark=tables_v2.spark).landed) == 1
    done = _refresh(tables_v2)
    assert (done.kind, done.bytes_read, done.files_read) == (Kind.UNCHANGED, 0, 0)
    tables_v2.sql(f"INSERT INTO {tables_v2.name('pay')} VALUES (4, 'b', 1.00)")
    assert _refresh(tables_v2).kind is Kind.INCREMENTAL
    assert _shown(tables_v2) == _whole(tables_v2, _GROUPS)


def test_a_join_follows_both_sides_also_when_both_changed(tables_v2: Tables) -> None:
    query = """SELECT k.label, count(*) AS n, sum(p.amount) AS total
               FROM pay p JOIN kinds k ON p.kind = k.kind GROUP BY k.label"""
    _pay(tables_v2)
    tables_v2.create("kinds", "kind STRING, label STRING")
    _view(tables_v2, query, "pay", "kinds")
    _refresh(tables_v2)
    pay, kinds = tables_v2.name("pay"), tables_v2.name("kinds")
    for statements in (
        [f"INSERT INTO {kinds} VALUES ('a', 'A'), ('b', 'B'), ('b', 'BB')"],
        [f"INSERT INTO {pay} VALUES (3, 'a', 3.00)"],
        [
            f"DELETE FROM {kinds} WHERE label = 'BB'",
            f"INSERT INTO {pay} VALUES (4, 'b', 4.00), (5, 'b', 5.00)",
        ],
    ):
        tables_v2.sql(*statements)
        done = _refresh(tables_v2)
        assert (done.kind, done.reason) == (Kind.INCREMENTAL, None), statements
        assert _shown(tables_v2) == _whole(tables_v2, query, "pay", "kinds")


def test_the_side_of_an_outer_join_that_makes_rows_appear_is_not_followed(tables_v2: Tables) -> None:
    query = "SELECT p.id, k.label FROM pay p LEFT JOIN kinds k ON p.kind = k.kind"
    _pay(tables_v2)
    tables_v2.create("kinds", "kind STRING, label STRING")
    _view(tables_v2, query, "pay", "kinds")
    _refresh(tables_v2)
    tables_v2.sql(f"INSERT INTO {tables_v2.name('kinds')} VALUES ('a', 'A')")
    done = _refresh(tables_v2)
    assert done.kind is Kind.REBUILT
    assert "kinds changed" in str(done.reason)
    assert _shown(tables_v2) == _whole(tables_v2, query, "pay", "kinds")
    tables_v2.sql(f"INSERT INTO {tables_v2.name('pay')} VALUES (7, 'a', 1.00)")
    assert _refresh(tables_v2).kind is Kind.INCREMENTAL
    assert _shown(tables_v2) == _whole(tables_v2, query, "pay", "kinds")


def test_a_whole_table_is_one_group_also_when_it_is_empty(tables_v2: Tables) -> None:
    query = "SELECT count(*) AS n, sum(amount) AS total, max(id) AS high FROM pay"
    tables_v2.create("pay", "id BIGINT, kind STRING, amount DECIMAL(12, 2)")
    _view(tables_v2, query)
    name = tables_v2.name("pay")
    for statement in (
        "SELECT 1",
        f"INSERT INTO {name} VALUES (1, 'a', 1.00)",
        f"DELETE FROM {name} WHERE id = 1",
    ):
        tables_v2.sql(statement)
        _refresh(tables_v2)
        assert _shown(tables_v2) == _whole(tables_v2, query), statement


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("DELETE FROM {} WHERE id = 1", "the minimum of low went"),
        ("DELETE FROM {} WHERE id = 3", "the maximum of high went"),
        ("DELETE FROM {} WHERE id = 2", "values of rough went"),
        ("ALTER TABLE {} ADD COLUMN note STRING", "pay has another schema now"),
    ],
)
def test_a_change_that_the_query_cannot_follow_is_answered_by_a_rebuild_with_its_reason(
    tables_v2: Tables, change: str, reason: str
) -> None:
    query = """SELECT kind, min(id) AS low, max(id) AS high, sum(CAST(amount AS DOUBLE)) AS rough
               FROM pay GROUP BY kind"""
    _pay(tables_v2, rows="(1, 'a', 1.00), (2, 'a', 2.00), (3, 'a', 4.00)")
    _view(tables_v2, query)
    _refresh(tables_v2)
    tables_v2.sql(change.format(tables_v2.name("pay")))
    done = _refresh(tables_v2)
    assert done.kind is Kind.REBUILT
    assert reason in str(done.reason)
    assert _shown(tables_v2) == _whole(tables_v2, query)
    tables_v2.sql(f"INSERT INTO {tables_v2.name('pay')} (id, kind, amount) VALUES (9, 'a', 8.00)")
    assert _refresh(tables_v2).kind is Kind.INCREMENTAL
    assert _shown(tables_v2) == _whole(tables_v2, query)


def test_a_feed_that_has_expired_is_answered_by_a_rebuild(tables_v2: Tables) -> None:
    _pay(tables_v2)
    _view(tables_v2, _GROUPS)
    _refresh(tables_v2)
    name = tables_v2.name("pay")
    for number in range(2):
        tables_v2.sql(f"INSERT INTO {name} VALUES ({number}, 'b', 1.00)")
    tables_v2.sql(
        f"CALL headgate_jar.system.expire_snapshots(table => '{tables_v2.namespace}.pay', "
        "older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1)"
    )
    done = _refresh(tables_v2)
    assert done.kind is Kind.REBUILT
    assert "expired" in str(done.reason)
    assert _shown(tables_v2) == _whole(tables_v2, _GROUPS)


def test_a_query_that_cannot_be_followed_is_always_rebuilt_and_says_so(tables_v2: Tables) -> None:
    query = "SELECT kind, count(DISTINCT id) AS n FROM pay GROUP BY kind"
    _pay(tables_v2)
    job = _view(tables_v2, query)
    assert "count(DISTINCT" in str(job.reason)
    _refresh(tables_v2)
    tables_v2.sql(f"INSERT INTO {tables_v2.name('pay')} VALUES (9, 'a', 8.00)")
    done = _refresh(tables_v2)
    assert (done.kind, done.reason) == (Kind.REBUILT, job.reason)
    assert _shown(tables_v2) == _whole(tables_v2, query)


def test_a_new_column_of_a_source_is_in_the_result_of_all_columns(tables_v2: Tables) -> None:
    query = "SELECT * FROM pay"
    _pay(tables_v2)
    _view(tables_v2, query)
    _refresh(tables_v2)
    name = tables_v2.name("pay")
    tables_v2.sql(
        f"ALTER TABLE {name} ADD COLUMN note STRING", f"INSERT INTO {name} VALUES (3, 'c', 1.00, 'x')"
    )
    assert _refresh(tables_v2).kind is Kind.REBUILT
    assert _shown(tables_v2) == _whole(tables_v2, query)
    tables_v2.sql(f"ALTER TABLE {name} DROP COLUMN kind")
    with pytest.raises(BadInput, match="column kind"):
        _refresh(tables_v2)


def test_a_result_that_somebody_else_changed_is_rebuilt_but_not_one_that_was_compacted(
    tables_v2: Tables,
) -> None:
    _pay(tables_v2)
    _view(tables_v2, _ROWS)
    _refresh(tables_v2)
    tables_v2.sql(f"INSERT INTO {tables_v2.name('pay')} VALUES (3, 'c', 1.00)")
    _refresh(tables_v2)
    assert compact(tables_v2.table("view"), min_files=2, spark=tables_v2.spark).landed
    tables_v2.sql(f"INSERT INTO {tables_v2.name('pay')} VALUES (4, 'd', 1.00)")
    assert _refresh(tables_v2).kind is Kind.INCREMENTAL
    tables_v2.sql(f"DELETE FROM {tables_v2.name('view')} WHERE id = 4")
    done = _refresh(tables_v2)
    assert (done.kind, done.reason) == (Kind.REBUILT, "the result was changed by somebody else")
    assert _shown(tables_v2) == _whole(tables_v2, _ROWS)


def test_refreshes_at_the_same_time_add_every_row_once(tables_v2: Tables) -> None:
    _pay(tables_v2)
    _view(tables_v2, _ROWS)
    _refresh(tables_v2)
    tables_v2.sql(f"INSERT INTO {tables_v2.name('pay')} VALUES (3, 'c', 1.00)")
    done: list[Refreshed] = []
    threads = [threading.Thread(target=lambda: done.append(_refresh(tables_v2))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 3
    assert [one.kind for one in done].count(Kind.INCREMENTAL) == 1
    assert _shown(tables_v2) == _whole(tables_v2, _ROWS)


def test_progress_is_in_the_commit_of_the_result(tables_v2: Tables) -> None:
    _pay(tables_v2)
    job = _view(tables_v2, _ROWS)
    _refresh(tables_v2)
    before = job.table.load()
    tables_v2.sql(f"INSERT INTO {tables_v2.name('pay')} VALUES (3, 'c', 1.00)")
    _refresh(tables_v2)
    after = job.table.load(all_snapshots=True)
    assert before.properties[VIEW_PROGRESS] != after.properties[VIEW_PROGRESS]
    # Two states of the table and no third between them: the metadata log has one entry for the second refresh.
    logged = [entry["metadata-file"] for entry in after.raw["metadata-log"]]
    assert len(logged) - len(before.raw["metadata-log"]) <= 1
    assert len(after.raw["snapshots"]) == 2


def test_a_view_that_makes_no_sense_is_refused_by_name(tables_v2: Tables) -> None:
    _pay(tables_v2)
    for query, field in (
        ("SELECT nobody FROM pay", "query"),
        ("SELECT id, id FROM pay", "id"),
        ("SELECT id AS _headgate_x FROM pay", "_headgate_x"),
        ("DROP VIEW pay", "query"),
        (" ", "query"),
    ):
        with pytest.raises(BadInput) as caught:
            _view(tables_v2, query)
        assert caught.value.field == field, query
    _view(tables_v2, _ROWS)
    with pytest.raises(AlreadyExists):
        _view(tables_v2, _ROWS)
    with pytest.raises(BadInput, match="pay is no view"):
        _refresh(tables_v2, "pay")
