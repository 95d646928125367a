"""Upkeep: old snapshots and files that nobody reaches go, and nothing else does."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from headgate.errors import BadInput
from headgate.spark.lake import LakeTable
from headgate.spark.maintain import expire, remove_orphans
from tests.spark.kinds import BOTH
from tests.spark.tables import Tables

_LATER_MS = 10 * 24 * 3600 * 1000
_OLD = timedelta(days=5)


def _table(tables: Tables, *, inserts: int = 3) -> LakeTable:
    table = tables.create("t")
    for number in range(inserts):
        tables.sql(f"INSERT INTO {tables.name('t')} VALUES ({number}, 'x')")
    return table


def _folder(table: LakeTable) -> Path:
    return Path(unquote(urlsplit(table.load().location).path))


def _files(table: LakeTable) -> set[Path]:
    return {path for path in _folder(table).rglob("*") if path.is_file()}


def _snapshots(table: LakeTable) -> int:
    return len(table.load(all_snapshots=True).raw["snapshots"])


def _age(*paths: Path) -> None:
    """Make files look five days old."""
    before = datetime.now(UTC).timestamp() - _OLD.total_seconds()
    for path in paths:
        os.utime(path, (before, before))


def test_snapshots_beyond_those_to_keep_go_and_every_row_stays(tables_v2: Tables) -> None:
    table = _table(tables_v2)
    before = tables_v2.rows("t")
    done = expire(table, older_than=timedelta(0), keep=1, now_ms=_now_ms() + 1000)
    assert len(done.snapshot_ids) == 2
    assert _snapshots(table) == 1
    assert tables_v2.rows("t") == before


@BOTH
def test_files_of_rows_that_only_expired_snapshots_show_are_deleted(tables: Tables) -> None:
    table = _table(tables)
    tables.sql(f"DELETE FROM {tables.name('t')} WHERE id = 1")
    before = _files(table)
    done = expire(table, older_than=timedelta(0), keep=1, now_ms=_now_ms() + 1000)
    data = [name for name in done.files if name.endswith(".parquet")]
    assert len(data) == 1
    gone = {str(path) for path in before - _files(table)}
    assert gone >= {unquote(urlsplit(name).path) for name in done.files}
    assert len(tables.rows("t")) == 2


def test_young_snapshots_and_those_of_tags_are_kept(tables_v2: Tables) -> None:
    table = _table(tables_v2)
    assert expire(table, older_than=timedelta(hours=1)).snapshot_ids == ()
    tables_v2.sql(f"ALTER TABLE {tables_v2.name('t')} CREATE TAG kept")
    tables_v2.sql(f"DELETE FROM {tables_v2.name('t')} WHERE id = 1")
    expire(table, older_than=timedelta(0), keep=1, now_ms=_now_ms() + 1000)
    assert _snapshots(table) == 2
    tagged = tables_v2.spark.sql(f"SELECT * FROM {tables_v2.name('t')} VERSION AS OF 'kept'")
    assert tagged.count() == 3


def test_the_properties_of_the_table_say_what_nobody_else_said(tables_v2: Tables) -> None:
    table = _table(tables_v2)
    assert expire(table).snapshot_ids == ()
    assert len(expire(table, now_ms=_now_ms() + _LATER_MS).snapshot_ids) == 2


def test_old_files_that_nothing_reaches_are_removed_and_no_others(tables: Tables) -> None:
    table = _table(tables)
    tables.sql(f"DELETE FROM {tables.name('t')} WHERE id = 1")
    rows, folder = tables.rows("t"), _folder(table)
    orphans = {folder / name for name in ("data/lost.parquet", "metadata/lost.avro", "data/x/lost.puffin")}
    fresh = folder / "data" / "in-flight.parquet"
    for path in (*orphans, fresh):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"nobody")
    _age(*(_files(table) - {fresh}))
    dry = remove_orphans(table, dry_run=True)
    assert not dry.are_deleted
    assert {Path(urlsplit(name).path) for name in dry.files} >= orphans
    assert orphans <= _files(table)
    done = remove_orphans(table)
    assert done.files == dry.files
    assert done.size_bytes >= 3 * len(b"nobody")
    assert not orphans & _files(table)
    assert fresh.exists()
    assert tables.rows("t") == rows
    assert remove_orphans(table).files == ()


def test_a_table_whose_files_are_shared_loses_none(tables_v2: Tables) -> None:
    table = _table(tables_v2, inserts=1)
    tables_v2.sql(f"ALTER TABLE {tables_v2.name('t')} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    with pytest.raises(BadInput, match=r"gc\.enabled"):
        expire(table, older_than=timedelta(0))
    with pytest.raises(BadInput, match=r"gc\.enabled"):
        remove_orphans(table)


def test_bounds_that_would_delete_what_is_in_flight_are_refused(tables_v2: Tables) -> None:
    table = _table(tables_v2, inserts=0)
    with pytest.raises(BadInput, match="older_than"):
        remove_orphans(table, older_than=timedelta(hours=23))
    with pytest.raises(BadInput, match="older_than"):
        expire(table, older_than=timedelta(days=-1))
    with pytest.raises(BadInput, match="keep"):
        expire(table, keep=0)


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
