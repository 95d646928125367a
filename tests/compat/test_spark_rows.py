"""Spark changes rows through the service: insert, overwrite, delete, update, merge, streams; rows are compared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql.functions import col

from tests.compat.lake import Lake

_MODES = ["copy-on-write", "merge-on-read"]


def _mode(mode: str) -> dict[str, str]:
    return {f"write.{verb}.mode": mode for verb in ("delete", "update", "merge")}


def test_inserts_add_to_what_is_there(lake: Lake) -> None:
    table = lake.create("t", "id BIGINT, kind STRING", partitioned="kind")
    lake.sql(f"INSERT INTO {table} VALUES (1, 'a')", f"INSERT INTO {table} (kind, id) VALUES ('b', 2)")
    lake.session.createDataFrame([(3, "c")], "id BIGINT, kind STRING").writeTo(table).append()
    assert lake.rows(table) == [(1, "a"), (2, "b"), (3, "c")]
    assert lake.rows(f"SELECT operation FROM {table}.snapshots") == [("append",)] * 3


def test_a_static_overwrite_replaces_the_partitions_it_names(lake_v2: Lake) -> None:
    table = lake_v2.create("t", "id BIGINT, kind STRING", partitioned="kind")
    lake_v2.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    lake_v2.sql(f"INSERT OVERWRITE {table} PARTITION (kind = 'a') SELECT 10L")
    assert lake_v2.rows(table) == [(10, "a"), (2, "b"), (3, "c")]
    lake_v2.sql(f"INSERT OVERWRITE {table} VALUES (20, 'b')")
    assert lake_v2.rows(table) == [(20, "b")]


def test_a_dynamic_overwrite_replaces_the_partitions_it_writes(lake: Lake) -> None:
    table = lake.create("t", "id BIGINT, kind STRING", partitioned="kind")
    lake.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    with lake.setting("spark.sql.sources.partitionOverwriteMode", "dynamic"):
        lake.sql(f"INSERT OVERWRITE {table} VALUES (20, 'b'), (40, 'd')")
    assert lake.rows(table) == [(1, "a"), (20, "b"), (3, "c"), (40, "d")]
    source = lake.session.createDataFrame([(30, "c")], "id BIGINT, kind STRING")
    source.writeTo(table).overwritePartitions()
    assert lake.rows(table) == [(1, "a"), (20, "b"), (30, "c"), (40, "d")]


@pytest.mark.parametrize("mode", _MODES)
def test_delete_update_and_merge_change_the_rows_they_name(lake: Lake, mode: str) -> None:
    table = lake.create("t", "id BIGINT, kind STRING, n INT", partitioned="kind", properties=_mode(mode))
    lake.sql(f"INSERT INTO {table} SELECT id, if(id % 2 = 0, 'even', 'odd'), 0 FROM range(8)")
    lake.sql(f"DELETE FROM {table} WHERE id = 3")
    assert lake.one(f"SELECT count(*) FROM {table}") == 7
    lake.sql(f"UPDATE {table} SET n = n + 1 WHERE id >= 4")
    assert lake.rows(f"SELECT id FROM {table} WHERE n = 1") == [(4,), (5,), (6,), (7,)]
    lake.sql(
        f"MERGE INTO {table} AS t USING (SELECT * FROM VALUES (4, 'gone'), (5, 'new'), (9, 'nine') AS s(id, what)) s "
        "ON t.id = s.id "
        "WHEN MATCHED AND s.what = 'gone' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET n = 100, kind = 'moved' "
        "WHEN NOT MATCHED THEN INSERT (id, kind, n) VALUES (s.id, s.what, 0) "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN DELETE"
    )
    assert lake.rows(table) == [
        (1, "odd", 0),
        (2, "even", 0),
        (5, "moved", 100),
        (6, "even", 1),
        (7, "odd", 1),
        (9, "nine", 0),
    ]
    deletes = lake.rows(f"SELECT file_format FROM {table}.delete_files")
    if mode == "copy-on-write":
        assert deletes == []
    else:
        assert {row[0] for row in deletes} == ({"PARQUET"} if lake.version == 2 else {"PUFFIN"})


@pytest.mark.parametrize("mode", _MODES)
def test_a_delete_of_whole_partitions_and_of_everything_is_metadata_only(lake: Lake, mode: str) -> None:
    table = lake.create("t", "id BIGINT, kind STRING", partitioned="kind", properties=_mode(mode))
    lake.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    lake.sql(f"DELETE FROM {table} WHERE kind = 'a'")
    assert lake.rows(table) == [(2, "b"), (3, "c")]
    lake.sql(f"TRUNCATE TABLE {table}")
    assert lake.rows(table) == []
    assert lake.rows(
        f"SELECT summary['deleted-data-files'] FROM {table}.snapshots WHERE operation = 'delete'"
    ) == [
        ("1",),
        ("2",),
    ]


def test_a_write_by_data_frame_replaces_what_its_condition_names(lake_v2: Lake) -> None:
    table = lake_v2.create("t", "id BIGINT, kind STRING", partitioned="kind")
    lake_v2.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    source = lake_v2.session.createDataFrame([(5, "a")], "id BIGINT, kind STRING")
    source.writeTo(table).overwrite(col("kind") == "a")
    assert lake_v2.rows(table) == [(2, "b"), (5, "a")]


def test_a_stream_appends_every_row_once_over_restarts(lake: Lake, tmp_path: Path) -> None:
    table = lake.create("t", "id BIGINT, kind STRING")
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"

    def run() -> None:
        stream = lake.session.readStream.schema("id BIGINT, kind STRING").json(str(source))
        query = (
            stream.writeStream.format("iceberg")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .toTable(table)
        )
        assert query.awaitTermination(120)

    source.mkdir()
    (source / "1.json").write_text('{"id": 1, "kind": "a"}\n{"id": 2, "kind": "b"}\n')
    run()
    run()
    (source / "2.json").write_text('{"id": 3, "kind": "c"}\n')
    run()
    assert lake.rows(table) == [(1, "a"), (2, "b"), (3, "c")]
    copy = lake.create("copy", "id BIGINT, kind STRING")
    query = (
        lake.session.readStream.format("iceberg")
        .load(table)
        .writeStream.option("checkpointLocation", str(tmp_path / "onward"))
        .trigger(availableNow=True)
        .toTable(copy)
    )
    assert query.awaitTermination(120)
    assert lake.rows(copy) == lake.rows(table)


def test_concurrent_inserts_are_all_there_and_no_row_twice(lake: Lake) -> None:
    table = lake.create("t", "id BIGINT", properties={"commit.retry.num-retries": "50"})
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: lake.sql(f"INSERT INTO {table} VALUES ({n})"), range(12)))
    assert lake.rows(table) == sorted(((n,) for n in range(12)), key=repr)
    assert lake.one(f"SELECT count(*) FROM {table}.snapshots") == 12


@pytest.mark.parametrize("mode", _MODES)
def test_concurrent_updates_of_one_row_never_lose_one(lake: Lake, mode: str) -> None:
    table = lake.create("t", "id BIGINT, n INT", properties={**_mode(mode), "commit.retry.num-retries": "20"})
    lake.sql(f"INSERT INTO {table} VALUES (1, 0)")

    update = f"UPDATE {table} SET n = n + 1 WHERE id = 1"
    with ThreadPoolExecutor(3) as pool:
        acknowledged = sum(pool.map(lake.lands, [update] * 6))
    assert acknowledged >= 1
    assert lake.rows(table) == [(1, acknowledged)]
