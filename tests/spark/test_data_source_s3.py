"""`format("headgate")` and the jobs on a real S3 server: no Hadoop and no jar between Spark and the bucket."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from pyarrow.fs import FileSelector
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import DataFrame, SparkSession

from headgate.spark.arrow_files import ArrowFiles, Attempt
from headgate.spark.compaction import compact
from headgate.spark.data_source import register
from headgate.spark.deletes import delete
from headgate.spark.lake import Lake, LakeTable
from headgate.spark.merges import merge
from headgate.spark.row_changes import COPY, MERGE
from headgate.spark.streams import stream
from headgate.spark.updates import update
from headgate.spark.writes import write
from tests.s3_server import S3Server
from tests.spark.s3_lake import running_s3_lake

pytestmark = pytest.mark.s3

TYPES = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "small", IntegerType()),
    NestedField(4, "at", TimestamptzType()),
    NestedField(5, "u", UUIDType()),
    NestedField(
        6,
        "deep",
        StructType(NestedField(7, "a", IntegerType()), NestedField(8, "tags", ListType(9, StringType()))),
    ),
    NestedField(10, "m", MapType(11, StringType(), 12, DecimalType(10, 2))),
)
VALUES = (
    "id",
    "'n' || id AS name",
    "CAST(id AS INT) AS small",
    "TIMESTAMP '2024-01-01 00:00:00' + make_interval(0, 0, 0, CAST(id AS INT)) AS at",
    "'00000000-0000-0000-0000-0000000000' || lpad(lower(hex(id)), 2, '0') AS u",
    "named_struct('a', CAST(id AS INT), 'tags', array('t' || id)) AS deep",
    "map('k' || id, CAST(id AS DECIMAL(10,2))) AS m",
)


@pytest.fixture(scope="module")
def s3_lake(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A service whose tables are in the bucket."""
    with running_s3_lake(s3_server, tmp_path_factory.mktemp("s3-service")) as lake:
        yield lake


@pytest.fixture
def table(s3_lake: Lake) -> LakeTable:
    """A table by name, in a namespace of its own."""
    namespace = f"n{uuid4().hex}"
    s3_lake.catalog().create_namespace(namespace)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    by_name = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    s3_lake.catalog().create_table((namespace, "t"), schema, partition_spec=by_name)
    return s3_lake.table((namespace, "t"))


def _options(table: LakeTable) -> dict[str, str]:
    return {"uri": table.lake.uri, "table": table.name, **table.lake.storage}


def _rows(spark: SparkSession, count: int = 10) -> DataFrame:
    return spark.range(count).selectExpr("id", "CAST(id % 2 AS STRING) AS name")


def _ids(table: LakeTable) -> list[int]:
    found = table.lake.catalog().load_table(table.identifier).scan().to_arrow()
    return sorted(found.column("id").to_pylist())


def _objects(table: LakeTable) -> int:
    filesystem, path = table.load().filesystem(table.load().data_location)
    found = filesystem.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    return sum(info.is_file for info in found)


def test_rows_are_written_to_the_bucket_and_read_from_it(spark: SparkSession, table: LakeTable) -> None:
    register(spark)
    _rows(spark).write.format("headgate").mode("append").options(**_options(table)).save()
    found = spark.read.format("headgate").options(**_options(table)).load()
    assert sorted(row.id for row in found.filter("name = '1'").collect()) == [1, 3, 5, 7, 9]
    assert _ids(table) == list(range(10))


def test_a_stream_goes_to_the_bucket_and_starts_again(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for at in range(2):
        _rows(spark).selectExpr(f"id + {10 * at} AS id", "name").write.mode("append").parquet(str(source))
        rows = spark.readStream.schema("id BIGINT, name STRING").parquet(str(source))
        query = stream(rows, table, checkpoint=str(tmp_path / "checkpoint"), trigger="available-now")
        query.awaitTermination()
    assert _ids(table) == list(range(20))


@pytest.mark.parametrize("version", [2, 3])
def test_rows_in_the_bucket_are_changed_without_hadoop(
    spark: SparkSession, s3_lake: Lake, version: int
) -> None:
    namespace = f"n{uuid4().hex}"
    s3_lake.catalog().create_namespace(namespace)
    found = s3_lake.catalog().create_table(
        (namespace, "t"), TYPES, properties={"format-version": str(version)}
    )
    table = s3_lake.table((namespace, "t"))
    rows = spark.range(20).repartition(2).selectExpr(*VALUES)
    write(rows.where("id < 10"), table)
    with found.update_schema() as schema:
        schema.rename_column("name", "title").update_column("small", LongType())
        schema.add_column("added", StringType()).rename_column("deep.a", "b")
    write(rows.where("id >= 10").withColumnRenamed("name", "title").drop("deep"), table)
    hidden = delete(table, "id IN (1, 11)", mode=MERGE, spark=spark)
    copied = delete(table, "title = 'n2' OR deep.b = 3", mode=COPY, spark=spark)
    assert (hidden.deleted, copied.deleted) == (2, 2)
    raised = update(
        table, {"small": "small + 5000000000", "added": "title"}, "id = 4", mode=MERGE, spark=spark
    )
    source = spark.sql("SELECT 5L AS id, 'five' AS title UNION ALL SELECT 50L, 'fifty'")
    said = {"id": "source.id", "title": "source.title"}
    merged = merge(table, source, ["id"], when_matched_update=said, when_not_matched_insert=said)
    assert (raised.updated, merged.updated, merged.inserted) == (1, 1, 1)
    before = _by_id(table)
    assert sorted(before) == [0, *range(4, 11), *range(12, 20), 50]
    assert before[4] == {**_row(4), "small": 5_000_000_004, "added": "n4", "deep": {"b": 4, "tags": ["t4"]}}
    assert before[5]["title"] == "five"
    assert (before[12]["deep"], before[12]["title"]) == (None, "n12")
    assert compact(table, rewrite_all=True, min_files=1, spark=spark).skipped == ()
    assert _by_id(table) == before


def _row(id_: int) -> dict[str, object]:
    """The columns that have the same value in every row of an id."""
    at = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=id_)
    return {"id": id_, "title": f"n{id_}", "at": at, "u": UUID(int=id_), "m": [(f"k{id_}", Decimal(id_))]}


def _by_id(table: LakeTable) -> dict[int, dict[str, object]]:
    found = table.lake.catalog().load_table(table.identifier).scan().to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row for row in found}


def test_a_failed_attempt_leaves_no_object(table: LakeTable) -> None:
    state = table.load()
    files = ArrowFiles(state, Attempt(f"{state.data_location}/run-that-fails", "00000-0"))
    files.add(pa.record_batch({"id": [1, 2], "name": ["a", "b"]}))
    files.discard()
    assert _objects(table) == 0
