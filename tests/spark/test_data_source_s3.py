"""`format("headgate")` on a real S3 server: no Hadoop and no jar between Spark and the bucket."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyarrow.fs import FileSelector
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import DataFrame, SparkSession
from tools.service_process import HOST, sqlite_url, start_process

from headgate.spark.arrow_files import ArrowFiles, Attempt
from headgate.spark.data_source import register
from headgate.spark.lake import Lake, LakeTable
from headgate.spark.streams import stream
from tests.s3_server import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def s3_lake(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A service whose tables are in the bucket."""
    folder = tmp_path_factory.mktemp("s3-service")
    access = {
        "s3.access-key-id": s3_server.access_key_id,
        "s3.secret-access-key": s3_server.secret_access_key,
    }
    environment = {
        "AWS_ACCESS_KEY_ID": s3_server.access_key_id,
        "AWS_SECRET_ACCESS_KEY": s3_server.secret_access_key,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }

    def command(port: int) -> list[str]:
        place = ["--warehouse", f"s3://{s3_server.bucket}/{uuid4().hex}", "--s3-endpoint", s3_server.endpoint]
        serve = [sys.executable, "-m", "headgate.cli.main", "serve", "--host", HOST, "--port", str(port)]
        return [*serve, *place, "--database", sqlite_url(folder / "catalog.db")]

    service = start_process(command, log=folder / "service.log", env=environment)
    try:
        yield Lake(
            service.uri, storage={"s3.endpoint": s3_server.endpoint, "s3.region": "us-east-1", **access}
        )
    finally:
        service.stop()


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


def test_a_failed_attempt_leaves_no_object(table: LakeTable) -> None:
    state = table.load()
    files = ArrowFiles(state, Attempt(f"{state.data_location}/run-that-fails", "00000-0"))
    files.add(pa.record_batch({"id": [1, 2], "name": ["a", "b"]}))
    files.discard()
    assert _objects(table) == 0
