"""The same workload by Spark SQL and the streaming sink of the Iceberg jar, through the same service.

It has no keys for jobs: one that failed is simply run again. The conditions say the region and the range of ids, which
ours finds by itself, because the jar judges conflicts by what stands in the statement.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tools.demo_story import Row

from bench.chaos_spark_errors import message_of, name_of
from bench.chaos_story import STAMP, Job, Problem, Source
from bench.chaos_world import Snapshot, World, data_folder, recent
from headgate.spark.session import JAR_CATALOG

_MIN_FILES = 4
_PROPERTY = f"spark.sql.iceberg.snapshot-property.{STAMP}"
_QUERY, _EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
_ROWS = "news"


class Jar:
    """The Iceberg jar."""

    name = "jar"

    def __init__(self, world: World) -> None:
        self._world = world
        self.table = world.lake.table(f"chaos.{self.name}")
        self._in_spark = f"{JAR_CATALOG}.{self.table.name}"
        self._local = threading.local()

    @cached_property
    def _data(self) -> Path:
        return data_folder(self.table)

    def append(self, rows: Sequence[Row], job: Job) -> int | None:
        """INSERT."""
        session = self._session(job)
        self._world.rows(session, rows).createOrReplaceTempView(_ROWS)
        session.sql(f"INSERT INTO {self._in_spark} SELECT * FROM {_ROWS}")
        return None

    def delete(self, customer: int, job: Job) -> int | None:
        """DELETE."""
        self._session(job).sql(f"DELETE FROM {self._in_spark} WHERE customer = {customer}")
        return None

    def merge(self, amounts: dict[int, Decimal], region: str, job: Job) -> int | None:
        """MERGE."""
        session = self._session(job)
        self._world.corrections(session, amounts).createOrReplaceTempView(_ROWS)
        scope = f"t.region = '{region}' AND t.id BETWEEN {min(amounts)} AND {max(amounts)}"
        session.sql(
            f"MERGE INTO {self._in_spark} t USING {_ROWS} s ON t.id = s.id AND {scope} "
            "WHEN MATCHED THEN UPDATE SET t.amount = s.amount"
        )
        return None

    def compact(self) -> None:
        """`rewrite_data_files` with partial progress, as ours."""
        options = {"min-input-files": _MIN_FILES, "partial-progress.enabled": "true"}
        said = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
        row = (
            self._session(None)
            .sql(
                f"CALL {JAR_CATALOG}.system.rewrite_data_files("
                f"table => '{self.table.name}', options => map({said}))"
            )
            .first()
        )
        if row is None:
            return
        self._world.book.note_compacted(int(row["rewritten_data_files_count"] > 0))
        if row["failed_data_files_count"]:
            self._world.book.note("compaction", Problem("groups given up"))

    def start_stream(self, source: Source) -> StreamingQuery:
        """The jar's own sink: exactly once by query and epoch in the snapshots' summaries."""
        writer = self._world.stream(self._world.spark, source).writeStream.format("iceberg")
        writer = writer.option("checkpointLocation", str(self._world.checkpoint(source)))
        writer = writer.option("fanout-enabled", "true").trigger(processingTime="1 second")
        return writer.toTable(self._in_spark)

    def judge(self, error: BaseException, job: Job | None) -> Problem:
        """A validation that failed is a refusal; its message names files or a filter."""
        name = name_of(error)
        if name == "ValidationException":
            text = message_of(error, name)
            return Problem(text.split(":")[0][:60], is_refusal=True, evidence=text)
        return Problem(name)

    def settle(self, job: Job) -> bool:
        """Nobody can tell: there is no key."""
        return False

    def find_batches(
        self, source: Source, batches: Sequence[int], snapshots: Sequence[Snapshot]
    ) -> dict[int, list[Snapshot]]:
        """The snapshots say query and epoch."""
        metadata = self._world.checkpoint(source) / "metadata"
        if not metadata.exists():
            return {}
        query = json.loads(metadata.read_text())["id"]
        found: dict[int, list[Snapshot]] = {}
        for snapshot in snapshots:
            if snapshot.summary.get(_QUERY) == query:
                found.setdefault(int(snapshot.summary[_EPOCH]), []).append(snapshot)
        return found

    def find_writing(self) -> set[int]:
        """The number of a task is the second part of a data file's name."""
        found = set()
        for region in recent(self._data):
            for file in recent(region, 0.5):
                parts = file.name.split("-")
                if len(parts) > 2 and parts[1].isdecimal():
                    found.add(int(parts[1]))
        return found

    def _session(self, job: Job | None) -> SparkSession:
        """A session of this thread's own, whose commits carry the job's id."""
        if not hasattr(self._local, "session"):
            self._local.session = self._world.spark.newSession()
        session: SparkSession = self._local.session
        if job is not None:
            session.conf.set(_PROPERTY, job.id)
        return session
