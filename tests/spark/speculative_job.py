"""Appends by both roads on a cluster that speculates: `python -m tests.spark.speculative_job <plan as JSON>`.

The first task is slow the first time, so that Spark runs it twice. Every attempt leaves a mark in a folder.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from headgate.spark.create_table import create_if_missing
from headgate.spark.data_files import NATIVE, PYTHON
from headgate.spark.job_session import SessionOptions, job_session
from headgate.spark.lake import Lake
from headgate.spark.pipeline_spec import TableShape
from headgate.spark.writes import write
from tests.spark.cluster_jobs import SETTINGS, JobsPlan

ROWS, TASKS = 400, 4
SPECULATES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}
_SLOW_S = 60


def append(spark: SparkSession, plan: JobsPlan, road: str) -> int:
    """An append whose first task hangs, unless it is the second to try."""
    marks, slow_s = f"{plan.folder}/{road}", _SLOW_S
    Path(marks).mkdir()

    def hang(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        Path(f"{marks}/{task}.{attempt}").touch()
        yield from batches
        if (task, attempt) == (0, 0):
            threading.Event().wait(slow_s)

    table = Lake(plan.uri).table((plan.namespace, road))
    rows = spark.range(0, ROWS, 1, TASKS)
    create_if_missing(table, rows, TableShape())
    return write(rows.mapInArrow(hang, "id BIGINT"), table, road=road).rows


def main() -> None:
    """Run the plan of the command line."""
    plan = JobsPlan(**json.loads(sys.argv[1]))
    options = SessionOptions(master=plan.master, conf={**SETTINGS, **SPECULATES})
    with job_session("headgate-speculation", Lake(plan.uri), options) as spark:
        done = {road: append(spark, plan, road) for road in (NATIVE, PYTHON)}
    sys.stdout.write(f"{json.dumps(done)}\n")


if __name__ == "__main__":
    main()
