"""Where the chaos run takes place: one service, one Spark session, one table for each of the two ways to write it."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader
from tools.demo_story import Row
from tools.iceberg_jar import load_iceberg_jar
from tools.spark_local import quiet_settings

from bench.chaos_faults import flaky
from bench.chaos_story import COLUMNS, Book, Clock, Job, Plan, Problem, Source
from headgate.spark.create_table import create_if_missing
from headgate.spark.lake import Lake, LakeTable
from headgate.spark.pipeline_spec import TableShape
from headgate.spark.session import build_session

_FEED_S = 1.0


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of the table, as its metadata has it."""

    id: int
    sequence_number: int
    summary: dict[str, str]


@dataclass
class World:
    """One run of one peer."""

    spark: SparkSession
    lake: Lake
    plan: Plan
    folder: Path
    clock: Clock
    book: Book = field(default_factory=Book)
    made: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # payments by source

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def streams(self) -> list[Source]:
        """The sources that stream."""
        return [Source(number, self.plan.seed) for number in range(self.plan.streams)]

    @property
    def writers(self) -> list[Source]:
        """The sources that write batches."""
        first = self.plan.streams
        return [Source(first + number, self.plan.seed) for number in range(self.plan.writers)]

    @property
    def task_log(self) -> Path:
        """Where tasks that raise leave a line."""
        return self.folder / "raised"

    def rows(self, session: SparkSession, rows: Sequence[Row]) -> DataFrame:
        """Rows in Spark whose tasks may fail."""
        return self.flaky(session.createDataFrame(list(rows), COLUMNS))

    def corrections(self, session: SparkSession, amounts: dict[int, Decimal]) -> DataFrame:
        """The source of a merge whose tasks may fail."""
        return self.flaky(session.createDataFrame(list(amounts.items()), "id BIGINT, amount DECIMAL(12,2)"))

    def stream(self, session: SparkSession, source: Source) -> DataFrame:
        """A stream of what `feed` brings, whose tasks may fail."""
        self.feed_folder(source).mkdir(parents=True, exist_ok=True)
        reader: DataStreamReader = session.readStream.schema(COLUMNS)
        return self.flaky(reader.json(str(self.feed_folder(source))))

    def flaky(self, rows: DataFrame) -> DataFrame:
        """The same rows, by tasks that may fail."""
        return flaky(rows, self.plan.task_failures, self.task_log)

    def feed_folder(self, source: Source) -> Path:
        """Where a stream's files arrive."""
        return self.folder / f"feed-{source.number}"

    def checkpoint(self, source: Source) -> Path:
        """What a stream remembers."""
        return self.folder / f"checkpoint-{source.number}"

    def done_batches(self, source: Source) -> set[int]:
        """The batches that a stream was told are in the table, as Spark notes them."""
        return {int(one.name) for one in (self.checkpoint(source) / "commits").glob("[0-9]*")}

    def read_batches(self, source: Source) -> dict[int, list[str]]:
        """Which files of the feed each batch of a stream has read, as Spark noted before it began the batch."""
        found: dict[int, set[str]] = {}
        for log in (self.checkpoint(source) / "sources" / "0").glob("[0-9]*"):
            for line in log.read_text().splitlines()[1:]:
                entry = json.loads(line)
                name = entry["path"].rsplit("/", 1)[1].removesuffix(".json")
                found.setdefault(entry["batchId"], set()).add(name)
        return {batch: sorted(names) for batch, names in sorted(found.items())}

    def brought(self, source: Source) -> int:
        """How many of a source's payments were acknowledged so far."""
        if source not in self.streams:
            return self.made[source.number]
        done = self.done_batches(source)
        names = [
            name for batch, names in self.read_batches(source).items() if batch in done for name in names
        ]
        return max((int(name.split("-")[1]) for name in names), default=0)

    def feed(self) -> None:
        """A file of payments each second for every stream, whole when it is there. Its name says which payments."""
        while not self.clock.is_over:
            for source in self.streams:
                start = self.made[source.number]
                end = start + self.plan.rows_per_file
                folder = self.feed_folder(source)
                folder.mkdir(parents=True, exist_ok=True)
                hidden = folder / f".{start}-{end}"
                hidden.write_text("".join(f"{_as_json(row)}\n" for row in source.rows(start, end)))
                hidden.rename(folder / f"{start}-{end}.json")
                self.made[source.number] = end
            self.clock.pause(_FEED_S)


class Peer(Protocol):
    """One way to write the table: ours, or the Iceberg jar's."""

    name: str
    table: LakeTable

    def append(self, rows: Sequence[Row], job: Job) -> int | None:
        """Append a batch; the snapshot, if one is told."""

    def delete(self, customer: int, job: Job) -> int | None:
        """Delete a customer's payments."""

    def merge(self, amounts: dict[int, Decimal], region: str, job: Job) -> int | None:
        """Correct amounts."""

    def compact(self) -> None:
        """Rewrite small files, and tell the book how it went."""

    def start_stream(self, source: Source) -> StreamingQuery:
        """Start a stream, or start it again from its checkpoint."""

    def judge(self, error: BaseException, job: Job | None) -> Problem:
        """What an error means."""

    def settle(self, job: Job) -> bool:
        """Whether a job that was given up has landed, as far as anybody can tell its driver."""

    def find_batches(
        self, source: Source, batches: Sequence[int], snapshots: Sequence[Snapshot]
    ) -> dict[int, list[Snapshot]]:
        """The snapshots of a stream's batches, which come in the order of their numbers."""

    def find_writing(self) -> set[int]:
        """Tasks that have data files on disk at this moment and have not ended yet, perhaps."""


def open_session(lake: Lake, folder: Path) -> SparkSession:
    """The one session, with the jar; a task may fail three times."""
    settings = {
        **quiet_settings(folder),
        "spark.driver.memory": "2g",
        "spark.local.dir": str(folder / "local"),
        "spark.scheduler.mode": "FAIR",
        "spark.sql.leafNodeDefaultParallelism": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": "100000",  # its notes are read at the end, all of them
        "spark.ui.retainedStages": "100000",  # the tasks that were killed are counted at the end
    }
    jar = str(load_iceberg_jar())
    spark = build_session("headgate-chaos", master="local[4,4]", lake=lake, jar=jar, settings=settings)
    spark.range(10).repartition(2).count()  # the first job of a session takes seconds
    spark.sparkContext.setLogLevel("OFF")  # tasks that fail are what this is about, and they are counted
    return spark


def make_table(spark: SparkSession, table: LakeTable, plan: Plan) -> None:
    """The empty table."""
    rows = spark.createDataFrame([], COLUMNS)
    create_if_missing(table, rows, TableShape(partition_by=("region",), properties=plan.properties))


def data_folder(table: LakeTable) -> Path:
    """Where the table's data files are on this disk."""
    return Path(urlsplit(table.load().data_location).path)


def recent(folder: Path, seconds: float = 10.0) -> list[Path]:
    """What was changed in a folder a moment ago."""
    if not folder.is_dir():
        return []
    since = time.time() - seconds
    found = []
    for path in folder.iterdir():
        try:
            if path.stat().st_mtime >= since:
                found.append(path)
        except FileNotFoundError:
            continue  # it went meanwhile
    return found


def luck_of(plan: Plan, name: str) -> random.Random:
    """Draws of one actor."""
    return random.Random(f"{plan.seed}/{name}")


def _as_json(row: Row) -> str:
    id_, customer, region, amount = row
    return json.dumps({"id": id_, "customer": customer, "region": region, "amount": str(amount)})


MakePeer = Callable[[World], Peer]
