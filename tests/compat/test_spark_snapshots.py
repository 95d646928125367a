"""Spark works with a table's history through the service: branches, tags, publishing, rollback, upkeep."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.compat.lake import CATALOG, Lake, local_files

_MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


def _numbers(
    lake: Lake, name: str = "t", *, properties: dict[str, str] | None = None, commits: int = 1
) -> str:
    table = lake.create(name, "id BIGINT", properties=properties)
    for n in range(1, commits + 1):
        lake.sql(f"INSERT INTO {table} VALUES ({n})")
    return table


def test_a_branch_takes_writes_and_main_is_moved_to_it(lake: Lake) -> None:
    table = _numbers(lake)
    lake.sql(
        f"ALTER TABLE {table} CREATE BRANCH audit RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS 3 DAYS",
        f"INSERT INTO {table}.branch_audit VALUES (2)",
        f"DELETE FROM {table}.branch_audit WHERE id = 1",
    )
    assert lake.rows(table) == [(1,)]
    assert lake.rows(f"SELECT * FROM {table} VERSION AS OF 'audit'") == [(2,)]
    assert lake.rows(
        f"SELECT name, type, max_reference_age_in_ms, min_snapshots_to_keep, max_snapshot_age_in_ms FROM {table}.refs"
    ) == [
        ("audit", "BRANCH", 7 * 86_400_000, 2, 3 * 86_400_000),
        ("main", "BRANCH", None, None, None),
    ]
    lake.call("fast_forward", table, "branch => 'main', to => 'audit'")
    assert lake.rows(table) == [(2,)]
    lake.sql(f"INSERT INTO {table} VALUES (3)")
    assert lake.rows(f"{table}.branch_audit") == [(2,)]
    with pytest.raises(Exception, match="not an ancestor"):
        lake.call("fast_forward", table, "branch => 'main', to => 'audit'")
    lake.sql(f"ALTER TABLE {table} DROP BRANCH audit")
    assert lake.rows(f"SELECT name FROM {table}.refs") == [("main",)]
    lake.sql(f"ALTER TABLE {table} DROP BRANCH IF EXISTS audit")


def test_a_branch_made_again_points_where_it_is_told(lake_v2: Lake) -> None:
    table = _numbers(lake_v2, commits=2)
    first = lake_v2.one(f"SELECT min_by(snapshot_id, committed_at) FROM {table}.snapshots")
    lake_v2.sql(f"ALTER TABLE {table} CREATE BRANCH b", f"INSERT INTO {table}.branch_b VALUES (9)")
    lake_v2.sql(f"ALTER TABLE {table} CREATE OR REPLACE BRANCH b AS OF VERSION {first}")
    assert lake_v2.rows(f"{table}.branch_b") == [(1,)]
    with pytest.raises(Exception, match="already exists"):
        lake_v2.sql(f"ALTER TABLE {table} CREATE BRANCH b")
    lake_v2.sql(f"ALTER TABLE {table} CREATE BRANCH IF NOT EXISTS b")
    assert lake_v2.head(table, "b") == first


def test_a_branch_of_an_empty_table_takes_the_first_rows(lake_v2: Lake) -> None:
    table = lake_v2.create("t", "id BIGINT")
    lake_v2.sql(f"ALTER TABLE {table} CREATE BRANCH first", f"INSERT INTO {table}.branch_first VALUES (1)")
    assert lake_v2.rows(table) == []
    assert lake_v2.rows(f"{table}.branch_first") == [(1,)]


def test_a_tag_holds_what_the_table_was(lake: Lake) -> None:
    table = _numbers(lake)
    lake.sql(f"ALTER TABLE {table} CREATE TAG one RETAIN 365 DAYS", f"INSERT INTO {table} VALUES (2)")
    assert lake.rows(f"SELECT * FROM {table} VERSION AS OF 'one'") == [(1,)]
    assert lake.rows(f"{table}.tag_one") == [(1,)]
    lake.sql(f"ALTER TABLE {table} REPLACE TAG one AS OF VERSION {lake.head(table)}")
    assert lake.rows(f"SELECT * FROM {table} VERSION AS OF 'one'") == [(1,), (2,)]
    with pytest.raises(Exception, match="time travel"):
        lake.sql(f"INSERT INTO {table}.tag_one VALUES (3)")
    lake.sql(f"ALTER TABLE {table} DROP TAG one")
    assert lake.rows(f"SELECT name FROM {table}.refs") == [("main",)]


def test_time_travel_shows_each_moment(lake_v2: Lake) -> None:
    table = _numbers(lake_v2, commits=2)
    (first, at), _ = (
        lake_v2.session.table(f"{table}.snapshots")
        .orderBy("committed_at")
        .select("snapshot_id", "committed_at")
    ).collect()
    assert lake_v2.rows(f"SELECT * FROM {table} VERSION AS OF {first}") == [(1,)]
    assert lake_v2.rows(f"SELECT * FROM {table} TIMESTAMP AS OF '{at.isoformat(sep=' ')}'") == [(1,)]
    changes = lake_v2.session.read.option("start-snapshot-id", first).table(table)
    assert [tuple(row) for row in changes.collect()] == [(2,)]


def test_staged_rows_are_seen_once_they_are_published(lake: Lake) -> None:
    table = _numbers(lake, properties={"write.wap.enabled": "true"})
    with lake.setting("spark.wap.id", "night"):
        lake.sql(f"INSERT INTO {table} VALUES (2)")
    with lake.setting("spark.wap.id", "day"):
        lake.sql(f"INSERT INTO {table} VALUES (3)")
    assert lake.rows(table) == [(1,)]
    lake.sql(f"INSERT INTO {table} VALUES (4)")
    lake.call("publish_changes", table, "wap_id => 'night'")
    assert lake.rows(table) == [(1,), (2,), (4,)]
    staged = lake.one(f"SELECT snapshot_id FROM {table}.snapshots WHERE summary['wap.id'] = 'day'")
    lake.call("cherrypick_snapshot", table, f"snapshot_id => {staged}")
    assert lake.rows(table) == [(1,), (2,), (3,), (4,)]
    with pytest.raises(Exception, match="night"):
        lake.call("publish_changes", table, "wap_id => 'night'")


def test_rows_written_to_a_publishing_branch_wait_there(lake: Lake) -> None:
    table = _numbers(lake, "first_on_branch", properties={"write.wap.enabled": "true"})
    with lake.setting("spark.wap.branch", "review"):
        lake.sql(f"INSERT INTO {table} VALUES (2)")
        assert lake.rows(table) == [(1,), (2,)]
    assert lake.rows(table) == [(1,)]
    lake.call("fast_forward", table, "branch => 'main', to => 'review'")
    assert lake.rows(table) == [(1,), (2,)]


def test_a_table_goes_back_and_forward_in_its_history(lake: Lake) -> None:
    table = _numbers(lake, commits=3)
    first, second, third = (
        row.snapshot_id for row in lake.session.table(f"{table}.snapshots").orderBy("committed_at").collect()
    )
    lake.call("rollback_to_snapshot", table, f"snapshot_id => {second}")
    assert lake.rows(table) == [(1,), (2,)]
    with pytest.raises(Exception, match="ancestor"):
        lake.call("rollback_to_snapshot", table, f"snapshot_id => {third}")
    lake.call("set_current_snapshot", table, f"snapshot_id => {third}")
    assert lake.rows(table) == [(1,), (2,), (3,)]
    lake.sql(f"ALTER TABLE {table} CREATE TAG old AS OF VERSION {first}")
    lake.call("set_current_snapshot", table, "ref => 'old'")
    lake.sql(f"INSERT INTO {table} VALUES (4)")
    assert lake.rows(table) == [(1,), (4,)]
    history = lake.session.table(f"{table}.history").orderBy("made_current_at").collect()
    assert [row.snapshot_id for row in history][:6] == [first, second, third, second, third, first]
    assert [row.is_current_ancestor for row in history] == [True, False, False, False, False, True, True]
    made_current = history[1].made_current_at
    lake.call("set_current_snapshot", table, f"snapshot_id => {third}")
    lake.call("rollback_to_timestamp", table, f"timestamp => TIMESTAMP '{made_current.isoformat(sep=' ')}'")
    assert len(lake.rows(table)) < 3


def test_metadata_tables_tell_what_happened(lake: Lake) -> None:
    table = lake.create("t", "id BIGINT, kind STRING", partitioned="kind", properties=_MERGE_ON_READ)
    lake.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'a'), (3, 'b')", f"DELETE FROM {table} WHERE id = 1")
    assert lake.rows(f"SELECT operation FROM {table}.snapshots") == [("append",), ("delete",)]
    assert lake.rows(f"SELECT partition.kind, record_count FROM {table}.data_files") == [("a", 2), ("b", 1)]
    assert lake.one(f"SELECT count(*) FROM {table}.delete_files") == 1
    assert lake.one(f"SELECT count(*) FROM {table}.files") == 3
    assert lake.one(f"SELECT count(*) FROM {table}.all_data_files") == 2
    assert lake.rows(f"SELECT content, added_snapshot_id = {lake.head(table)} FROM {table}.manifests") == [
        (0, False),
        (1, True),
    ]
    assert lake.rows(f"SELECT status, data_file.record_count FROM {table}.entries") == [
        (1, 1),
        (1, 1),
        (1, 2),
    ]
    assert lake.rows(f"SELECT partition.kind, record_count, file_count FROM {table}.partitions") == [
        ("a", 2, 1),
        ("b", 1, 1),
    ]
    log = lake.session.table(f"{table}.metadata_log_entries").orderBy("timestamp").collect()
    assert [row.latest_snapshot_id for row in log][-1] == lake.head(table)
    assert len(log) == 3
    assert all(Path(urlsplit(row.file).path).exists() for row in log)
    assert lake.one(f"SELECT count(*) FROM {table}.history") == 2
    assert lake.rows(f"SELECT id, _file IS NOT NULL, _pos FROM {table} WHERE id = 3") == [(3, True, 0)]


def test_compaction_keeps_the_rows_in_fewer_files(lake: Lake) -> None:
    table = _numbers(lake, commits=5, properties=_MERGE_ON_READ)
    lake.sql(f"DELETE FROM {table} WHERE id = 2")
    before = lake.rows(table)
    done = lake.call("rewrite_data_files", table, "options => map('rewrite-all', 'true')")
    assert done["rewritten_data_files_count"] in (4, 5)
    assert lake.rows(table) == before
    assert lake.one(f"SELECT count(*) FROM {table}.data_files") == 1
    lake.sql(f"INSERT INTO {table} VALUES (6)", f"INSERT INTO {table} VALUES (7)")
    lake.call(
        "rewrite_data_files",
        table,
        "strategy => 'sort', sort_order => 'id DESC', options => map('rewrite-all', 'true')",
    )
    assert lake.rows(table) == [*before, (6,), (7,)]


def test_rewritten_manifests_list_the_same_files(lake: Lake) -> None:
    table = _numbers(lake, commits=4)
    before = lake.rows(f"SELECT file_path FROM {table}.files")
    assert lake.call("rewrite_manifests", table) == {
        "rewritten_manifests_count": 4,
        "added_manifests_count": 1,
    }
    assert lake.rows(f"SELECT file_path FROM {table}.files") == before
    assert lake.rows(table) == [(1,), (2,), (3,), (4,)]


def test_position_deletes_are_compacted_and_still_apply(lake: Lake) -> None:
    table = lake.create("t", "id BIGINT", properties=_MERGE_ON_READ)
    lake.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id FROM range(10)")
    for n in (1, 3, 5):
        lake.sql(f"DELETE FROM {table} WHERE id = {n}")
    before = lake.rows(table)
    assert [row[0] for row in before] == [0, 2, 4, 6, 7, 8, 9]
    lake.call("rewrite_position_delete_files", table, "options => map('rewrite-all', 'true')")
    assert lake.rows(table) == before
    assert lake.one(f"SELECT count(*) FROM {table}.delete_files") == 1


def test_expired_snapshots_take_only_their_own_files_away(lake: Lake) -> None:
    table = _numbers(lake, commits=2)
    lake.sql(f"ALTER TABLE {table} CREATE TAG keep", f"INSERT OVERWRITE {table} VALUES (5)")
    lake.sql(f"INSERT OVERWRITE {table} VALUES (6)")
    later = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
    done = lake.call(
        "expire_snapshots", table, f"older_than => TIMESTAMP '{later:%Y-%m-%d %H:%M:%S}', retain_last => 1"
    )
    assert done["deleted_data_files_count"] == 1
    assert lake.rows(table) == [(6,)]
    assert lake.rows(f"SELECT * FROM {table} VERSION AS OF 'keep'") == [(1,), (2,)]
    assert lake.one(f"SELECT count(*) FROM {table}.snapshots") == 2
    data = local_files(lake.location(table), "*.parquet")
    assert len(data) == 3


def test_unused_schemas_and_specs_are_forgotten_with_their_snapshots(lake_v2: Lake) -> None:
    lake = lake_v2
    table = _numbers(lake)
    lake.sql(
        f"ALTER TABLE {table} ADD COLUMN more STRING",
        f"ALTER TABLE {table} ADD PARTITION FIELD more",
        f"INSERT OVERWRITE {table} VALUES (2, 'x')",
    )
    later = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
    lake.call(
        "expire_snapshots",
        table,
        f"older_than => TIMESTAMP '{later:%Y-%m-%d %H:%M:%S}', retain_last => 1, clean_expired_metadata => true",
    )
    assert lake.rows(table) == [(2, "x")]
    assert lake.rows(f"SELECT spec_id FROM {table}.files") == [(1,)]


def test_orphans_are_found_then_removed_and_nothing_else_is(lake: Lake) -> None:
    table = _numbers(lake, commits=2)
    folder = Path(urlsplit(lake.location(table)).path)
    orphan = folder / "data" / "orphan.parquet"
    orphan.write_bytes(b"nobody knows me")
    two_days_ago = time.time() - 2 * 86_400
    for file in local_files(str(folder)):
        os.utime(
            file, (two_days_ago, two_days_ago)
        )  # every file is old enough: only being known protects one
    older_than = dt.datetime.now(dt.UTC) - dt.timedelta(days=1, hours=1)
    argument = f"older_than => TIMESTAMP '{older_than:%Y-%m-%d %H:%M:%S}'"
    before = local_files(str(folder))
    procedure = f"CALL {CATALOG}.system.remove_orphan_files(table => '{lake.namespace}.t', {argument}"
    found = lake.rows(f"{procedure}, dry_run => true)")
    assert [urlsplit(str(row[0])).path for row in found] == [str(orphan)]
    assert local_files(str(folder)) == before
    lake.rows(f"{procedure})")
    assert {file for file in before - local_files(str(folder)) if not file.name.endswith(".crc")} == {orphan}
    assert lake.rows(table) == [(1,), (2,)]


def test_statistics_are_attached_to_their_snapshot(lake_v2: Lake) -> None:
    table = _numbers(lake_v2, commits=2)
    assert str(lake_v2.call("compute_table_stats", table)["statistics_file"]).endswith(".stats")
    assert (
        lake_v2.call("compute_partition_stats", lake_v2.create("p", "id INT, k INT", partitioned="k")) == {}
    )
    lake_v2.sql(f"INSERT INTO {lake_v2.name('p')} VALUES (1, 1)")
    assert lake_v2.call("compute_partition_stats", lake_v2.name("p"))["partition_statistics_file"]


def test_files_written_elsewhere_are_added_in_place(lake: Lake) -> None:
    table = _numbers(lake, "added_by_manifest")
    folder = Path(urlsplit(lake.location(table)).path) / "elsewhere"
    lake.session.range(5, 7).coalesce(1).write.parquet(str(folder))
    done = lake.call("add_files", table, f"source_table => '`parquet`.`{folder}`'")
    assert done["added_files_count"] == 1
    assert lake.rows(table) == [(1,), (5,), (6,)]


def test_a_changelog_names_what_each_commit_did(lake_v2: Lake) -> None:
    table = _numbers(lake_v2, commits=2)
    lake_v2.sql(f"DELETE FROM {table} WHERE id = 1")
    lake_v2.call("create_changelog_view", table, "changelog_view => 'seen_changes'")
    assert lake_v2.rows("SELECT id, _change_type, _change_ordinal FROM seen_changes") == [
        (1, "DELETE", 2),
        (1, "INSERT", 0),
        (2, "INSERT", 1),
    ]
