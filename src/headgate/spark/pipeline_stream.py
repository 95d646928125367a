"""The stream of a pipeline: started, watched, and ended in order. What makes it exactly once is in `epochs`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headgate.errors import HeadgateError
from headgate.spark.lake import LakeTable
from headgate.spark.pipeline_spec import Pipeline
from headgate.spark.spark_errors import spark_errors_as_ours
from headgate.spark.streams import Batch, stream

_POLL_S = 0.2
_LAST_BATCH_WAIT_S = 30.0
_WAITING = "Waiting for"  # how Spark's status begins when the source has been asked and had nothing


@dataclass
class Streamed:
    """What a stream has brought into its table in this run, and the errors that ended it."""

    batches: int = 0
    rows: int = 0
    failures: list[HeadgateError] = field(default_factory=list)


def run_stream(
    rows: DataFrame,
    table: LakeTable,
    pipeline: Pipeline,
    *,
    say: Callable[[str], None],
    stop: threading.Event | None = None,
) -> Streamed:
    """Run until the source has no more (with `available-now`), nothing came for a while, or `stop` is set."""
    schedule, target, done = pipeline.schedule, pipeline.target, Streamed()

    def on_batch(batch: Batch) -> None:
        done.batches += 1
        done.rows += batch.rows
        say(f"batch {batch.epoch.number}: {batch.rows:,} rows in {batch.files} files")

    with spark_errors_as_ours("schedule"):
        query = stream(
            rows,
            table,
            checkpoint=str(schedule.checkpoint),
            trigger=schedule.trigger,
            fold=schedule.fold,
            branch=target.branch,
            summary=target.summary,
            name=pipeline.name,
            road=target.road,
            on_batch=on_batch,
            on_failure=done.failures.append,
        )
    try:
        _watch(query, done, stop or threading.Event(), schedule.stop_when_idle_s)
    except StreamingQueryException as error:
        if done.failures:
            raise done.failures[-1] from error
        raise
    finally:
        query.stop()
    return done


def _watch(
    query: StreamingQuery, done: Streamed, stop: threading.Event, stop_when_idle_s: int | None
) -> None:
    """Return when the stream has ended or should; raise what ended it."""
    seen, busy_at_s, has_begun = 0, time.monotonic(), False
    while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # it takes fractions
        if stop.is_set():
            _let_batch_end(query)
            return
        status = query.status
        has_begun = has_begun or status["message"].startswith(_WAITING)
        if not has_begun or done.batches != seen or status["isDataAvailable"]:
            seen, busy_at_s = done.batches, time.monotonic()
        elif stop_when_idle_s is not None and time.monotonic() - busy_at_s >= stop_when_idle_s:
            return


def _let_batch_end(query: StreamingQuery) -> None:
    """Wait for the batch that runs, within bounds; one that is cut off is finished by the next start."""
    last, deadline_s = _last_batch(query), time.monotonic() + _LAST_BATCH_WAIT_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
        if _last_batch(query) != last or query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # as above
            return


def _last_batch(query: StreamingQuery) -> object:
    progress = query.lastProgress
    return None if progress is None else progress["batchId"]
