"""`format("headgate")` for batches: what is written is read alike by the jar, PyIceberg and the source itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from headgate.client.keys import new_key
from headgate.errors import BadInput
from headgate.spark.data_source import register
from headgate.spark.data_source_write import BatchWriter, FilesWritten, sweep
from headgate.spark.fates import Fate, fence, find_fate
from headgate.spark.lake import LakeTable
from headgate.spark.runs import new_run
from headgate.spark.source_options import read_options
from tests.spark.tables import Tables, in_order


@pytest.fixture(autouse=True)
def formats(spark: SparkSession) -> None:
    """The session knows the formats."""
    register(spark)


def _writer(df: DataFrame, table: LakeTable, mode: str = "append", **options: str) -> DataFrameWriter:
    writer = df.write.format("headgate").mode(mode).option("uri", table.lake.uri).option("table", table.name)
    return writer.options(**{name.replace("_", "-"): value for name, value in options.items()})


def _read(tables: Tables, table: LakeTable, **options: str) -> DataFrame:
    reader = tables.spark.read.format("headgate").option("uri", table.lake.uri).option("table", table.name)
    return reader.options(**{name.replace("_", "-"): value for name, value in options.items()}).load()


def _files(table: LakeTable) -> set[str]:
    folder = Path(urlsplit(table.load().data_location).path)
    return {file.name for file in folder.rglob("*.parquet")}


EVERYTHING = """
    SELECT id, id % 3 = 0 AS flag, CAST(id AS INT) AS i, CAST(id / 3D AS FLOAT) AS f, id / 7D AS d,
      CAST(id AS DECIMAL(9, 2)) AS small, CAST(id AS DECIMAL(30, 10)) AS large, DATE '2024-02-29' + CAST(id AS INT) AS day,
      TIMESTAMP '1969-12-31 23:59:59.999999' + MAKE_INTERVAL(0, 0, 0, CAST(id AS INT)) AS at,
      TIMESTAMP_NTZ '2024-02-29 01:02:03' AS local, CAST(id AS STRING) AS text, CAST(CAST(id AS STRING) AS BINARY) AS octets,
      NAMED_STRUCT('x', id, 'y', CAST(id AS STRING)) AS s, ARRAY(id, NULL) AS l, MAP(CAST(id AS STRING), id) AS m
    FROM RANGE(20)
"""
COLUMNS = """id BIGINT, flag BOOLEAN, i INT, f FLOAT, d DOUBLE, small DECIMAL(9, 2), large DECIMAL(30, 10), day DATE,
    at TIMESTAMP, local TIMESTAMP_NTZ, text STRING, octets BINARY, s STRUCT<x: BIGINT, y: STRING>, l ARRAY<BIGINT>,
    m MAP<STRING, BIGINT>"""


def test_every_type_is_read_alike_by_all_readers(tables: Tables) -> None:
    table = tables.create("t", COLUMNS, partitioned="days(at), bucket(3, id), truncate(1, text)")
    rows = tables.sql(EVERYTHING)
    _writer(rows, table).save()
    wanted = in_order(tuple(row) for row in rows.collect())
    assert tables.rows("t") == wanted
    assert in_order(tuple(row) for row in _read(tables, table).collect()) == wanted


def test_overwrite_replaces_everything_and_partitions_only_theirs(tables_v2: Tables) -> None:
    table = tables_v2.create("t", partitioned="name")
    df = tables_v2.spark.createDataFrame([(1, "a"), (2, "b")], "id BIGINT, name STRING")
    _writer(df, table).save()
    _writer(
        df.filter("id = 1").selectExpr("id + 10 AS id", "name"), table, "overwrite", replace_partitions="true"
    ).save()
    assert tables_v2.rows("t") == [(11, "a"), (2, "b")]
    _writer(df.filter("id = 2"), table, "overwrite").save()
    assert tables_v2.rows("t") == [(2, "b")]


def test_columns_are_matched_by_name_and_missing_ones_are_null(tables_v2: Tables) -> None:
    table = tables_v2.create("t", "id BIGINT, name STRING, more DOUBLE")
    _writer(tables_v2.spark.sql("SELECT 'a' AS name, 1 AS id"), table).save()
    assert tables_v2.rows("t") == [(1, "a", None)]


@pytest.mark.parametrize(
    ("query", "column"),
    [
        ("SELECT 1L AS id, 'a' AS nmae", "nmae"),
        ("SELECT 'a' AS id", "id"),
        ("SELECT 1.5D AS id", "id"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_any_task_runs(
    tables_v2: Tables, query: str, column: str
) -> None:
    table = tables_v2.create("t")
    with pytest.raises(PySparkException, match=column):
        _writer(tables_v2.spark.sql(query), table).save()
    assert not _files(table)


@pytest.mark.parametrize(
    ("options", "at_fault"),
    [
        ({"uri": "http://x"}, "table"),
        ({"table": "a.b"}, "uri"),
        ({"uri": "http://x", "table": "a.b", "brnach": "x"}, "brnach"),
        ({"uri": "http://x", "table": "a.b", "fold": "yes"}, "fold"),
        ({"uri": "http://x", "table": "a.b", "credential": "secret"}, "credential"),
        ({"uri": "http://x", "table": "a.b", "snapshot-id": "last"}, "snapshot-id"),
    ],
)
def test_an_option_at_fault_is_named(options: dict[str, str], at_fault: str) -> None:
    with pytest.raises(BadInput, match=at_fault) as refused:
        read_options(options)
    assert refused.value.field == at_fault


def test_the_same_key_writes_once(tables_v2: Tables) -> None:
    table, key = tables_v2.create("t"), new_key()
    df = tables_v2.spark.createDataFrame([(1, "a")], "id BIGINT, name STRING")
    _writer(df, table, key=key).save()
    with pytest.raises(PySparkException, match="key was used"):
        _writer(df, table, key=key).save()
    assert tables_v2.rows("t") == [(1, "a")]
    assert (
        len(_files(table)) == 2
    )  # whose files the second ones are cannot be proved, so they stay for the audit


def test_an_older_snapshot_and_a_branch_can_be_read(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    df = tables_v2.spark.createDataFrame([(1, "a")], "id BIGINT, name STRING")
    _writer(df, table).save()
    first = table.load().snapshot_id()
    tables_v2.sql(f"ALTER TABLE {tables_v2.name('t')} CREATE BRANCH side")
    _writer(df, table, branch="side").save()
    _writer(df, table).save()
    assert _read(tables_v2, table).count() == 2
    assert _read(tables_v2, table, branch="side").count() == 2
    assert _read(tables_v2, table, snapshot_id=str(first)).count() == 1


def test_rows_that_were_deleted_are_not_read(tables: Tables) -> None:
    table = tables.create("t", properties={"write.delete.mode": "merge-on-read"})
    _writer(tables.spark.range(10).selectExpr("id", "CAST(id AS STRING) AS name").coalesce(1), table).save()
    tables.sql(f"DELETE FROM {tables.name('t')} WHERE id % 2 = 0")
    assert in_order(tuple(row) for row in _read(tables, table).collect()) == tables.rows("t")


def test_filters_skip_files_and_rows(tables_v2: Tables) -> None:
    table = tables_v2.create("t", partitioned="name")
    df = tables_v2.spark.createDataFrame([(i, f"n{i}") for i in range(5)], "id BIGINT, name STRING")
    _writer(df.coalesce(1), table).save()
    found = _read(tables_v2, table).filter(
        "name = 'n3' AND id > 1 AND name LIKE 'n%' AND id IN (3, 4) AND NOT (id <=> 4)"
    )
    assert found.rdd.getNumPartitions() == 1
    assert [tuple(row) for row in found.collect()] == [(3, "n3")]


def _fails_at(rows: Iterator[Any], value: int) -> Iterator[Any]:
    for row in rows:
        if row.id == value:
            raise RuntimeError("a task that fails")
        yield row


def test_a_task_that_fails_leaves_no_rows_and_no_files(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    rows = tables_v2.spark.range(0, 100, numPartitions=2).rdd.mapPartitions(lambda part: _fails_at(part, 99))
    df = tables_v2.spark.createDataFrame(rows, "id BIGINT")
    with pytest.raises(PySparkException, match="a task that fails"):
        _writer(df, table).save()
    assert tables_v2.rows("t") == []
    assert not _files(table)


def _written(tables: Tables, table: LakeTable) -> tuple[BatchWriter, list[FilesWritten], str]:
    """A writer whose tasks are done and that has not committed."""
    key = new_key()
    options = read_options({"uri": table.lake.uri, "table": table.name})
    run = new_run(key)
    state = table.load()
    writer = BatchWriter(state, run, options, overwrite=False)

    def write(batches: Any) -> Any:
        yield pa.record_batch([pa.array([CPickleSerializer().dumps(writer.write(batches))])], ["m"])

    df = tables.spark.range(4).selectExpr("id", "CAST(id AS STRING) AS name").coalesce(1)
    told = df.mapInArrow(write, "m BINARY").collect()
    return writer, [CPickleSerializer().loads(bytes(row.m)) for row in told], key


def test_an_abort_after_a_commit_that_landed_deletes_nothing(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    writer, messages, _ = _written(tables_v2, table)
    writer.commit(messages)
    writer.abort(messages)  # what Spark does when the answer of the commit is lost
    assert len(tables_v2.rows("t")) == 4


def test_an_abort_without_a_commit_removes_the_files_and_the_commit_cannot_land_later(
    tables_v2: Tables,
) -> None:
    table = tables_v2.create("t")
    writer, messages, key = _written(tables_v2, table)
    assert len(_files(table)) == 1
    writer.abort(messages)
    assert not _files(table)
    with pytest.raises(BadInput, match="key was used"):
        writer.commit(messages)
    assert find_fate(table, key) is Fate.REFUSED
    assert tables_v2.rows("t") == []


def test_a_fence_uses_up_a_key_once_and_sees_what_was_there_before(tables_v2: Tables) -> None:
    table, key = tables_v2.create("t"), new_key()
    assert find_fate(table, key) is Fate.ABSENT
    assert fence(table, key) is Fate.FENCED
    assert fence(table, key) is Fate.REFUSED
    writer, messages, landed = _written(tables_v2, table)
    writer.commit(messages)
    assert fence(table, landed) is Fate.LANDED


def test_files_of_a_task_that_ran_twice_are_swept_after_the_commit(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    writer, messages, _ = _written(tables_v2, table)
    kept = Path(urlsplit(str(messages[0].files[0]["file-path"])).path)
    loser = kept.with_name("00000-999-00000.parquet")
    loser.write_bytes(kept.read_bytes())
    writer.commit(messages)
    assert _files(table) == {kept.name}
    assert len(tables_v2.rows("t")) == 4


def test_a_sweep_of_a_folder_that_is_not_there_is_no_error(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    sweep([f"{table.load().data_location}/run-that-wrote-nothing"], [], {})
