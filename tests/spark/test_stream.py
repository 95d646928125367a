"""Streams into tables, by both roads: what the source gave is in the table, once, over restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.errors import BadInput
from headgate.spark.active_session import active_session
from headgate.spark.data_source import register
from headgate.spark.demo_source import Demo, payments
from headgate.spark.lake import LakeTable
from headgate.spark.streams import Batch, stream
from tests.spark.kinds import BOTH
from tests.spark.tables import Rows, Tables, in_order, source_options

COLUMNS = "id BIGINT, customer BIGINT, country STRING, amount DECIMAL(12, 2), at TIMESTAMP"
_LOOKS_MAX = 200


class Start(Protocol):
    """Starts a stream into a table."""

    def __call__(
        self, df: DataFrame, table: LakeTable, checkpoint: Path, *, fold: bool = False
    ) -> StreamingQuery:
        """The query."""


def by_spark(df: DataFrame, table: LakeTable, checkpoint: Path, *, fold: bool = False) -> StreamingQuery:
    """`stream`: files by Spark's own writer."""
    return stream(df, table, checkpoint=str(checkpoint), fold=fold)


def by_source(df: DataFrame, table: LakeTable, checkpoint: Path, *, fold: bool = False) -> StreamingQuery:
    """`writeStream.format("headgate")`: files by PyArrow."""
    writer = df.writeStream.format("headgate").option("checkpointLocation", str(checkpoint))
    return writer.options(**source_options(table), fold=str(fold).lower()).start()


@pytest.fixture(params=[by_spark, by_source], ids=["stream", "format"])
def start(request: pytest.FixtureRequest) -> Start:
    """Both roads."""
    road: Start = request.param
    return road


@pytest.fixture(autouse=True)
def formats(spark: SparkSession) -> Iterator[None]:
    """The session knows the formats, and no stream outlives its test."""
    register(spark)
    yield
    for query in spark.streams.active:
        query.stop()


def demo(spark: SparkSession, rows: int, *, first_id: int = 0, per_batch: int = 15) -> DataFrame:
    """So many payments, in batches of a few."""
    options = {"rows": rows, "first-id": first_id, "rows-per-batch": per_batch, "rows-per-second": 1_000_000}
    return spark.readStream.format("headgate-demo").options(**{k: str(v) for k, v in options.items()}).load()


def wanted(rows: int, *, first_id: int = 0) -> Rows:
    """What the source gives."""
    return in_order(payments(Demo(first_id=first_id), 0, rows))


def drain(query: StreamingQuery, rows: int) -> None:
    """Run until the source has given all its rows, then stop."""
    for _ in range(_LOOKS_MAX):
        query.processAllAvailable()
        progress: Any = query.lastProgress
        if progress is not None and str(rows) in str(progress.sources[0].endOffset):
            break
    query.stop()


def forget_last_batch(checkpoint: Path) -> None:
    """As if the driver had died after the commit to the table, and before Spark's own note of it."""
    last = max(
        (file for file in (checkpoint / "commits").iterdir() if file.name.isdigit()),
        key=lambda f: int(f.name),
    )
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_what_the_source_gave_is_in_the_table(tables: Tables, start: Start, tmp_path: Path) -> None:
    table = tables.create("t", COLUMNS, partitioned="country")
    drain(start(demo(tables.spark, 40), table, tmp_path / "checkpoint"), 40)
    assert tables.rows("t") == wanted(40)


def test_a_stream_starts_though_another_session_is_active_in_the_thread(
    tables_v2: Tables, tmp_path: Path
) -> None:
    table, spark = tables_v2.create("t", COLUMNS), tables_v2.spark
    other = spark.newSession()
    spark.createDataFrame([(1,)], "id INT")  # PySpark takes this session for the active one from now on
    with active_session(other):
        register(spark)
        drain(by_source(demo(spark, 15), table, tmp_path / "checkpoint"), 15)
    assert tables_v2.rows("t") == wanted(15)


@BOTH
def test_a_stream_goes_on_where_it_stood(tables_v2: Tables, start: Start, tmp_path: Path) -> None:
    table = tables_v2.create("t", COLUMNS)
    for rows in (20, 45):
        drain(start(demo(tables_v2.spark, rows), table, tmp_path / "checkpoint"), rows)
    assert tables_v2.rows("t") == wanted(45)


@BOTH
def test_a_batch_that_landed_and_was_not_noted_is_not_written_again(
    tables_v2: Tables, start: Start, tmp_path: Path
) -> None:
    table, checkpoint = tables_v2.create("t", COLUMNS), tmp_path / "checkpoint"
    drain(start(demo(tables_v2.spark, 20), table, checkpoint), 20)
    files = _files(table)
    forget_last_batch(checkpoint)
    drain(start(demo(tables_v2.spark, 20), table, checkpoint), 20)
    assert tables_v2.rows("t") == wanted(20)
    assert _files(table) == files  # what was written again is gone


def test_batches_without_rows_commit_nothing(tables_v2: Tables, start: Start, tmp_path: Path) -> None:
    table = tables_v2.create("t", COLUMNS)
    drain(start(demo(tables_v2.spark, 20).filter("id < 0"), table, tmp_path / "checkpoint"), 20)
    assert table.load().snapshot_id() is None


def test_streams_of_both_roads_into_one_table_at_once(tables_v2: Tables, tmp_path: Path) -> None:
    table = tables_v2.create("t", COLUMNS)
    queries = [
        road(demo(tables_v2.spark, 20, first_id=1000 * at), table, tmp_path / str(at), fold=True)
        for at, road in enumerate((by_spark, by_source))
    ]
    for query in queries:
        drain(query, 20)
    assert tables_v2.rows("t") == in_order([*wanted(20), *wanted(20, first_id=1000)])


@BOTH
def test_a_batch_that_fails_leaves_nothing_and_is_brought_by_the_next_driver(
    tables_v2: Tables, start: Start, tmp_path: Path
) -> None:
    table, checkpoint = tables_v2.create("t", COLUMNS), tmp_path / "checkpoint"
    source = demo(tables_v2.spark, 20, per_batch=20)
    bad = source.withColumn("amount", source.amount / (source.id - 13)).selectExpr(
        "id", "customer", "country", "CAST(amount AS DECIMAL(12, 2)) AS amount", "at"
    )
    with pytest.raises(StreamingQueryException, match="DIVIDE_BY_ZERO"):
        drain(start(bad, table, checkpoint), 20)
    assert table.load().snapshot_id() is None
    assert not _files(table)
    drain(start(source, table, checkpoint), 20)
    assert tables_v2.rows("t") == wanted(20)


def test_batches_are_told_of_with_their_commit(tables_v2: Tables, tmp_path: Path) -> None:
    table, told = tables_v2.create("t", COLUMNS), list[Batch]()
    query = stream(
        demo(tables_v2.spark, 14),
        table,
        checkpoint=str(tmp_path / "checkpoint"),
        summary={"job": "demo"},
        name="told",
        on_batch=told.append,
    )
    assert query.name == "told"
    drain(query, 14)
    assert sum(batch.rows for batch in told) == 14
    state = table.load(all_snapshots=True)
    jobs = {one["snapshot-id"]: one["summary"].get("job") for one in state.raw["snapshots"]}
    assert {jobs[batch.committed.snapshot_id] for batch in told if batch.committed} == {"demo"}


def test_columns_that_do_not_fit_stop_the_stream_with_their_name(
    tables_v2: Tables, start: Start, tmp_path: Path
) -> None:
    table = tables_v2.create("t", "id BIGINT, nmae STRING")
    with pytest.raises((StreamingQueryException, Exception), match="country"):
        drain(start(demo(tables_v2.spark, 5), table, tmp_path / "checkpoint"), 5)
    assert table.load().snapshot_id() is None


def test_what_a_stream_lacks_is_named(tables_v2: Tables) -> None:
    table = tables_v2.create("t", COLUMNS)
    with pytest.raises(BadInput, match="streaming DataFrame"):
        stream(tables_v2.spark.range(1), table, checkpoint="x")
    with pytest.raises(BadInput, match="checkpoint"):
        stream(demo(tables_v2.spark, 1), table, checkpoint="")


def test_an_option_of_the_demo_source_at_fault_is_named(spark: SparkSession) -> None:
    for name, value in (("rows-per-sceond", "1"), ("rows", "many")):
        with pytest.raises(Exception, match=name):
            spark.readStream.format("headgate-demo").option(name, value).load().writeStream.format(
                "noop"
            ).start().processAllAvailable()


def test_the_demo_source_gives_the_same_rows_every_time() -> None:
    assert list(payments(Demo(seed=3), 5, 9)) == list(payments(Demo(seed=3), 0, 20))[5:9]
    assert list(payments(Demo(seed=3), 0, 5)) != list(payments(Demo(seed=4), 0, 5))


def _files(table: LakeTable) -> set[str]:
    folder = Path(urlsplit(table.load().data_location).path)
    return {file.name for file in folder.rglob("*.parquet")}
