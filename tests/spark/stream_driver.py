"""A Spark driver of its own, to be killed: several streams from folders of files into one table, by both roads.

`python -m tests.spark.stream_driver <plan as JSON>` writes a line for each batch that is done. With `to_the_end` it
ends when all files are read; else it goes on until somebody ends it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tools.spark_local import UNCOMPILED

from headgate.spark.data_source import register
from headgate.spark.lake import Lake
from headgate.spark.session import build_session
from headgate.spark.streams import AVAILABLE_NOW, stream

_POLL_S = 0.1
_BY_SOURCE_EVERY = 4  # of so many streams one goes by the Python source, which is slower to start


@dataclass(frozen=True, slots=True)
class DriverPlan:
    """What a driver is to do."""

    uri: str
    table: str
    folder: str
    streams: int
    to_the_end: bool = False

    def source(self, stream_number: int) -> Path:
        """Where a stream's files are."""
        return Path(self.folder) / f"source-{stream_number}"

    def checkpoint(self, stream_number: int) -> Path:
        """What a stream remembers."""
        return Path(self.folder) / f"checkpoint-{stream_number}"

    def to_argument(self) -> str:
        """The plan as the command line has it."""
        return json.dumps(asdict(self))


def start(spark: SparkSession, plan: DriverPlan, number: int) -> StreamingQuery:
    """One of the streams: a file a batch, or all that are left."""
    reader = spark.readStream.schema("id BIGINT, name STRING")
    reader = reader.option("maxFilesPerTrigger", 1_000 if plan.to_the_end else 1)
    rows, checkpoint = reader.json(str(plan.source(number))), str(plan.checkpoint(number))
    if number % _BY_SOURCE_EVERY != _BY_SOURCE_EVERY - 1:
        trigger = AVAILABLE_NOW if plan.to_the_end else None
        return stream(
            rows, Lake(plan.uri).table(plan.table), checkpoint=checkpoint, fold=True, trigger=trigger
        )
    writer: DataStreamWriter = rows.writeStream.format("headgate").option("checkpointLocation", checkpoint)
    writer = writer.option("uri", plan.uri).option("table", plan.table).option("fold", "true")
    return (writer.trigger(availableNow=True) if plan.to_the_end else writer).start()


def tell(queries: list[StreamingQuery], told: dict[int, int]) -> None:
    """A line for each stream that has another batch done."""
    for number, query in enumerate(queries):
        progress: Any = query.lastProgress
        if progress is not None and progress.batchId > told.get(number, -1) and progress.numInputRows:
            told[number] = progress.batchId
            sys.stdout.write(f"stream {number} batch {progress.batchId}\n")
            sys.stdout.flush()


def main() -> None:
    """Run the plan of the command line."""
    plan = DriverPlan(**json.loads(sys.argv[1]))
    local = {
        **UNCOMPILED,
        # It lives for seconds, and most of them went into compiling what runs once.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": f"{plan.folder}/local",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": f"{plan.folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = build_session("headgate-stream-driver", master="local[2]", settings=local)
    register(spark)
    queries = [start(spark, plan, number) for number in range(plan.streams)]
    told: dict[int, int] = {}
    while any(query.isActive for query in queries):
        tell(queries, told)
        for query in queries:
            query.awaitTermination(_POLL_S)  # raises what ended it
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
