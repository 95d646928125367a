"""Compaction by Spark: the same rows in other files, whoever else is at work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.errors import BadInput, ConflictFound
from headgate.spark.compaction import Compacted, CompactedGroup, compact
from headgate.spark.deletes import delete
from headgate.spark.lake import LakeTable
from headgate.spark.maintain import expire
from headgate.spark.scan import plan
from headgate.spark.writes import write
from tests.compat.lake import local_files
from tests.spark.kinds import BOTH
from tests.spark.tables import Rows, Tables

_KINDS = ("a", "b")


def _small_files(tables: Tables, *, files: int = 3, mode: str = "merge-on-read", **more: str) -> LakeTable:
    """A table by kind with so many small files of two rows in each of two partitions."""
    properties = {"write.delete.mode": mode, "write.distribution-mode": "none", **more}
    table = tables.create("t", "id BIGINT, kind STRING", partitioned="kind", properties=properties)
    for number in range(files):
        rows = ", ".join(f"({number * 10 + at}, '{kind}')" for kind in _KINDS for at in range(2))
        tables.sql(f"INSERT INTO {tables.name('t')} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")
    return table


def _compact(tables: Tables, **options: object) -> Compacted:
    """Compact, and see that every file of the table tells its columns by their ids."""
    options = {"min_files": 2, "spark": tables.spark, **options}
    done = compact(tables.table("t"), **options)  # type: ignore[arg-type]
    for scanned in plan(tables.table("t").load()).files:
        fields = pq.read_schema(unquote(urlsplit(scanned.path).path))
        assert all(b"PARQUET:field_id" in (field.metadata or {}) for field in fields), scanned.path
    return done


def _files(tables: Tables) -> int:
    return len(plan(tables.table("t").load()).files)


def _lineage(tables: Tables) -> Rows:
    return tables.by_jar("t", "id, _row_id, _last_updated_sequence_number")


def test_files_that_are_younger_than_was_said_are_left_alone(tables_v2: Tables) -> None:
    _small_files(tables_v2)
    assert _compact(tables_v2, older_than=timedelta(hours=1)) == Compacted()
    assert len(_compact(tables_v2, older_than=timedelta(0)).landed) == len(_KINDS)


def test_files_whose_snapshots_are_gone_are_old(tables_v2: Tables) -> None:
    table = _small_files(tables_v2)
    write(tables_v2.spark.sql("SELECT 99L AS id, 'a' AS kind"), table)
    expire(table, older_than=timedelta(0), keep=1)
    done = _compact(tables_v2, older_than=timedelta(hours=1))
    assert sorted(group.files_before for group in done.landed) == [3, 3]
    assert _files(tables_v2) == 3  # one for each kind, and the young one


def test_a_table_that_was_upgraded_from_version_1_is_compacted(tables_v2: Tables) -> None:
    _small_files(tables_v2, mode="copy-on-write", **{"format-version": "1"})
    tables_v2.sql(f"ALTER TABLE {tables_v2.name('t')} SET TBLPROPERTIES ('format-version' = '2')")
    before = tables_v2.rows("t")
    assert _compact(tables_v2, older_than=timedelta(hours=1)) == Compacted()
    assert len(_compact(tables_v2).landed) == len(_KINDS)
    assert (_files(tables_v2), tables_v2.rows("t")) == (2, before)


@pytest.mark.parametrize(
    ("version", "age", "message"),
    [
        (1, timedelta(0), "format version 1"),
        (2, timedelta(-1), "negative timedelta"),
        (2, 600, "timedelta, got 600"),
    ],
    ids=["version 1", "negative", "not an age"],
)
def test_an_age_that_cannot_be_told_is_refused(
    tables_v2: Tables, version: int, age: Any, message: str
) -> None:
    table = tables_v2.create("t", properties={"format-version": str(version)})
    with pytest.raises(BadInput, match=message):
        compact(table, older_than=age, spark=tables_v2.spark)


@BOTH
def test_small_files_become_one_in_each_partition_and_no_row_changes(tables: Tables) -> None:
    _small_files(tables)
    before = tables.rows("t")
    lineage = _lineage(tables) if tables.version >= 3 else None
    done = _compact(tables)
    assert [(group.files_before, group.files_after) for group in done.landed] == [(3, 1), (3, 1)]
    assert done.skipped == ()
    assert _files(tables) == 2
    assert tables.rows("t") == before
    if lineage is not None:
        assert _lineage(tables) == lineage
    assert _compact(tables).groups == ()


def test_deleted_rows_and_their_delete_files_are_gone_for_good(tables: Tables) -> None:
    table = _small_files(tables)
    tables.sql(f"DELETE FROM {tables.name('t')} WHERE id IN (0, 10) AND kind = 'a'")
    before = tables.rows("t")
    assert any(scanned.deletes for scanned in plan(table.load()).files)
    done = _compact(tables)
    assert sum(group.deletes_removed for group in done.landed) > 0
    assert tables.rows("t") == before
    assert not any(scanned.deletes for scanned in plan(table.load()).files)
    head = table.load()
    summary = next(s for s in head.raw["snapshots"] if s["snapshot-id"] == head.snapshot_id())["summary"]
    assert summary["total-delete-files"] == "0"


def test_only_files_that_may_hold_rows_of_the_filter_are_rewritten(tables_v2: Tables) -> None:
    _small_files(tables_v2)
    done = _compact(tables_v2, where="kind = 'a'")
    assert len(done.landed) == 1
    assert _files(tables_v2) == 4


def test_a_sorted_group_is_in_order(tables_v2: Tables) -> None:
    _small_files(tables_v2)
    assert len(_compact(tables_v2, strategy="sort", sort_by=["id DESC"]).landed) == 2
    rows = tables_v2.spark.sql(
        f"SELECT id FROM {tables_v2.name('t')} WHERE kind = 'a' ORDER BY _file, _pos"
    ).collect()
    assert [row.id for row in rows] == [21, 20, 11, 10, 1, 0]


def _racing(tables: Tables, race: Callable[[], object], **options: object) -> Compacted:
    """A compaction in which somebody else commits after its first group is written, and before it is committed."""
    raced: list[CompactedGroup] = []

    def on_written(group: CompactedGroup) -> None:
        if not raced:
            raced.append(group)
            thread = threading.Thread(target=race)
            thread.start()
            thread.join()

    return _compact(tables, on_written=on_written, **options)


@BOTH
def test_an_append_in_the_same_partition_is_no_conflict(tables: Tables) -> None:
    _small_files(tables)
    before = tables.rows("t")
    done = _racing(tables, lambda: tables.sql(f"INSERT INTO {tables.name('t')} VALUES (99, 'a'), (99, 'b')"))
    assert (len(done.landed), done.skipped) == (2, ())
    assert tables.rows("t") == sorted([*before, (99, "a"), (99, "b")], key=repr)


@BOTH
def test_a_group_whose_rows_were_deleted_meanwhile_is_left_out_and_the_other_lands(tables: Tables) -> None:
    _small_files(tables)
    before = tables.rows("t")
    done = _racing(tables, lambda: tables.sql(f"DELETE FROM {tables.name('t')} WHERE id = 10 AND kind = 'a'"))
    (skipped,) = done.skipped
    assert len(done.landed) == 1
    assert skipped.evidence["theirs"]["operation"] == "delete"  # type: ignore[index]
    assert skipped.evidence["files"]
    assert tables.rows("t") == [row for row in before if row != (10, "a")]
    again = _compact(tables)
    assert len(again.landed) == 1
    assert tables.rows("t") == [row for row in before if row != (10, "a")]


@BOTH
def test_a_group_that_lost_before_its_work_began_is_not_even_read(tables_v2: Tables) -> None:
    _small_files(tables_v2)
    name = tables_v2.name("t")
    written: list[CompactedGroup] = []

    def on_written(group: CompactedGroup) -> None:
        written.append(group)
        if len(written) == 1:
            other = "b" if "a" in group.partition.values() else "a"
            tables_v2.sql(f"DELETE FROM {name} WHERE id = 10 AND kind = '{other}'")

    done = _compact(tables_v2, on_written=on_written, at_once=1)
    assert len(written) == 1
    assert (len(done.landed), len(done.skipped)) == (1, 1)
    assert done.skipped[0].evidence["rule"] == "looked-before"


def test_without_partial_progress_one_conflict_stops_all(tables_v2: Tables) -> None:
    _small_files(tables_v2, mode="copy-on-write")
    name = tables_v2.name("t")
    before = tables_v2.rows("t")
    raced: list[CompactedGroup] = []

    def on_written(group: CompactedGroup) -> None:
        if not raced:
            tables_v2.sql(f"DELETE FROM {name} WHERE id = 10 AND kind = 'a'")
        raced.append(group)

    with pytest.raises(ConflictFound):
        _compact(tables_v2, on_written=on_written, partial_progress=False)
    assert tables_v2.rows("t") == [row for row in before if row != (10, "a")]
    assert len(_compact(tables_v2, partial_progress=False).landed) == 2
    assert _files(tables_v2) == 2


@pytest.mark.parametrize("partial_progress", [True, False])
def test_a_compaction_that_is_stopped_leaves_no_file_of_its_own(
    tables_v2: Tables, partial_progress: bool
) -> None:
    table = _small_files(tables_v2)
    before, files = tables_v2.rows("t"), local_files(table.load().location, "*.parquet")

    def on_written(group: CompactedGroup) -> None:
        raise RuntimeError(f"stopped at {group.partition}")

    with pytest.raises(RuntimeError, match="stopped at"):
        _compact(tables_v2, on_written=on_written, partial_progress=partial_progress)
    assert local_files(table.load().location, "*.parquet") == files
    assert tables_v2.rows("t") == before


@BOTH
def test_two_compactions_of_the_same_files_do_not_both_land(tables_v2: Tables) -> None:
    _small_files(tables_v2)
    before = tables_v2.rows("t")
    done = _racing(tables_v2, lambda: _compact(tables_v2))
    assert done.landed == ()
    assert len(done.skipped) == 2
    assert tables_v2.rows("t") == before
    assert _files(tables_v2) == 2


def test_files_of_an_old_partition_spec_come_under_the_new_one(tables_v2: Tables) -> None:
    table = _small_files(tables_v2)
    before = tables_v2.rows("t")
    tables_v2.sql(f"ALTER TABLE {tables_v2.name('t')} ADD PARTITION FIELD bucket(2, id)")
    _compact(tables_v2)
    state = table.load()
    assert {scanned.spec_id for scanned in plan(state).files} == {state.spec.spec_id}
    assert tables_v2.rows("t") == before


def test_an_empty_table_has_nothing_to_compact(tables_v2: Tables) -> None:
    tables_v2.create("t")
    assert _compact(tables_v2).groups == ()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"strategy": "zorder"}, "strategy"),
        ({"strategy": "sort"}, "sort_by"),
        ({"sort_by": ["id"]}, "sort_by"),
        ({"strategy": "sort", "sort_by": ["nobody"]}, "sort_by"),
        ({"where": "nobody = 1"}, "where"),
        ({"target_size_bytes": 0}, "target_bytes"),
        ({"at_once": 0}, "at_once"),
    ],
)
def test_an_option_that_means_nothing_is_refused_by_name(
    tables_v2: Tables, options: dict[str, object], field: str
) -> None:
    tables_v2.create("t")
    with pytest.raises(BadInput) as caught:
        _compact(tables_v2, **options)
    assert caught.value.field == field


def _delete_by_value(tables: Tables, id_: int, kind: str, *, spec_id: int | None = None) -> None:
    """An equality delete, as Flink makes them: rows with this id, in all older files of one partition."""
    state = tables.table("t").load()
    location = f"{state.data_location}/equality-{id_}-{kind}.parquet"
    path = Path(unquote(urlsplit(location).path))
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table([[id_]], schema=schema), path)
    file = {
        "content": "equality-deletes",
        "file-path": location,
        "file-format": "parquet",
        "spec-id": state.spec.spec_id if spec_id is None else spec_id,
        "partition": [kind],
        "equality-ids": [1],
        "record-count": 1,
        "file-size-in-bytes": path.stat().st_size,
    }
    tables.table("t").client.row_delta(add_deletes=[file], base_snapshot_id=state.snapshot_id())


def test_equality_deletes_are_carried_out_and_those_that_come_meanwhile_still_apply(tables: Tables) -> None:
    table = _small_files(tables)
    before = tables.by_jar("t")
    _delete_by_value(tables, 0, "a")
    done = _racing(tables, lambda: _delete_by_value(tables, 11, "a"))
    assert (len(done.landed), done.skipped) == (2, ())
    assert tables.by_jar("t") == [row for row in before if row not in ((0, "a"), (11, "a"))]
    deletes = {one.file_path for scanned in plan(table.load()).files for one in scanned.deletes}
    assert [path.rsplit("/", 1)[1] for path in deletes] == ["equality-11-a.parquet"]


@pytest.mark.parametrize("partial_progress", [True, False])
def test_rows_of_an_old_partition_spec_that_were_deleted_by_value_meanwhile_do_not_come_back(
    tables: Tables, partial_progress: bool
) -> None:
    table = _small_files(tables)
    before, old = tables.by_jar("t"), table.load().spec.spec_id
    lineage = _lineage(tables) if tables.version >= 3 else None
    tables.sql(f"ALTER TABLE {tables.name('t')} ADD PARTITION FIELD bucket(2, id)")
    _delete_by_value(tables, 0, "a", spec_id=old)

    def race() -> None:
        for kind in _KINDS:
            _delete_by_value(tables, 11, kind, spec_id=old)

    if partial_progress:
        assert _racing(tables, race).landed == ()
    else:
        with pytest.raises(ConflictFound):
            _racing(tables, race, partial_progress=False)
    left = [row for row in before if row[0] != 11 and row != (0, "a")]
    assert tables.by_jar("t") == left
    assert _compact(tables, partial_progress=partial_progress).skipped == ()
    assert tables.by_jar("t") == left
    if lineage is not None:
        assert set(_lineage(tables)) <= set(lineage)
    state = table.load()
    assert {scanned.spec_id for scanned in plan(state).files} == {state.spec.spec_id}


def test_files_without_a_row_left_are_replaced_by_nothing(tables: Tables) -> None:
    _small_files(tables)
    tables.sql(f"DELETE FROM {tables.name('t')} WHERE kind = 'a' AND id IN (0, 1, 10, 11, 20, 21)")
    before = tables.rows("t")
    done = _compact(tables)
    assert done.skipped == ()
    assert {row[1] for row in before} == {"b"}
    assert tables.rows("t") == before
    assert _files(tables) == 1


_BY_VALUE = "d, amount, raw, name, at, is_it"
_BY_TRANSFORM = "truncate(2, name), bucket(3, id), hours(at), years(d)"


def test_files_keep_their_partition_whatever_it_is_made_of(tables: Tables) -> None:
    columns = "id BIGINT, name STRING, d DATE, at TIMESTAMP, amount DECIMAL(9,2), raw BINARY, is_it BOOLEAN"
    tables.create("t", columns, partitioned=f"{_BY_VALUE}, {_BY_TRANSFORM}")
    values = (
        "({0}, 'é/=%', DATE '2024-02-29', TIMESTAMP '2024-02-29 23:59:59.999999', -1.10, X'00FF', true), "
        "({0}, NULL, NULL, NULL, NULL, NULL, NULL), "
        "({0}, '', DATE '1969-12-31', TIMESTAMP '1969-12-31 23:00:00', 0.00, X'', false)"
    )
    for _ in range(2):
        tables.sql(f"INSERT INTO {tables.name('t')} VALUES {values.format(7)}")
    before, places = tables.rows("t"), _partitions(tables)
    done = _compact(tables, rewrite_all=True, min_files=1)
    assert (len(done.landed), done.skipped) == (3, ())
    assert (_files(tables), tables.rows("t")) == (3, before)
    assert _partitions(tables) == places


def _partitions(tables: Tables) -> set[tuple[object, ...]]:
    return {one.partition for one in plan(tables.table("t").load()).files}


def test_files_from_before_and_after_a_new_column_become_one(tables_v3: Tables) -> None:
    _small_files(tables_v3)
    tables_v3.sql(f"ALTER TABLE {tables_v3.name('t')} ADD COLUMN more STRING")
    tables_v3.sql(f"INSERT INTO {tables_v3.name('t')} VALUES (90, 'a', 'new'), (91, 'b', NULL)")
    before = tables_v3.rows("t")
    done = _compact(tables_v3, rewrite_all=True)
    assert (len(done.landed), done.skipped) == (2, ())
    assert (_files(tables_v3), tables_v3.rows("t")) == (2, before)


@BOTH
def test_a_compaction_among_writers_loses_and_brings_back_no_row(tables: Tables) -> None:
    _small_files(tables)
    expected = set(tables.rows("t"))

    def append() -> None:
        for number in range(100, 104):
            rows = tables.spark.createDataFrame([(number, "a"), (number, "b")], "id BIGINT, kind STRING")
            write(rows, tables.table("t"))
            expected.update({(number, "a"), (number, "b")})

    def remove() -> None:
        for id_ in (0, 11, 20):
            try:
                delete(tables.table("t"), f"id = {id_}", spark=tables.spark, isolation="snapshot")
            except ConflictFound:
                continue  # the compaction was first, and nothing was deleted
            expected.difference_update({(id_, "a"), (id_, "b")})

    threads = [threading.Thread(target=work) for work in (append, remove)]
    for thread in threads:
        thread.start()
    reports = []
    while any(thread.is_alive() for thread in threads):
        reports.append(_compact(tables, rewrite_all=True))
    for thread in threads:
        thread.join()
    assert set(tables.rows("t")) == expected
    assert len(tables.rows("t")) == len(expected)
    assert all(group.evidence for report in reports for group in report.skipped)
    last = _compact(tables, rewrite_all=True)  # alone, it lands whatever became of those before
    assert (len(last.landed), last.skipped) == (2, ())
    assert set(tables.rows("t")) == expected
