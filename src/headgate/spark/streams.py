"""`stream`: every batch of a streaming DataFrame in the table exactly once, its files written by Spark itself.

What makes it exactly once is in `epochs`. A batch that is in the table already (the driver died between the commit
and Spark's own note of it) is not written again; one without rows commits nothing. Files of a batch that failed are
removed when the failure is certain; those of a driver that died have the run in their names, for `headgate audit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headgate.client import Committed
from headgate.client.results import MAIN
from headgate.errors import BadInput, HeadgateError
from headgate.spark.epochs import Epoch, Sink, There, commit_epoch, is_in_table
from headgate.spark.lake import LakeTable
from headgate.spark.landing import discard_quietly, land
from headgate.spark.runs import new_run
from headgate.spark.writes import write_run

AVAILABLE_NOW = "available-now"  # what is there now, then end
QUERY_ID = "sql.streaming.queryId"  # Spark's name for it in the thread that runs a batch


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that is in the table. `committed` is None when an earlier attempt or another driver brought it."""

    epoch: Epoch
    rows: int
    files: int
    committed: Committed | None


def stream(
    df: DataFrame,
    table: LakeTable,
    *,
    checkpoint: str,
    trigger: str | None = None,
    fold: bool = False,
    branch: str = MAIN,
    summary: Mapping[str, str] | None = None,
    name: str | None = None,
    road: str | None = None,
    on_batch: Callable[[Batch], None] | None = None,
    on_failure: Callable[[HeadgateError], None] | None = None,
) -> StreamingQuery:
    """Start a stream into the table. The checkpoint is the stream's own, and stays: it holds its id and its place.

    `trigger` is "available-now" or an interval ("5 seconds"); without it a batch follows the other. With `fold`
    batches of streams that arrive together share a snapshot. `on_batch` is told of every batch that is in, and
    `on_failure` of the error that ends the stream: Spark itself keeps its text only.
    """
    if not df.isStreaming:
        raise BadInput("df: expected a streaming DataFrame, as spark.readStream makes them", field="df")
    if not checkpoint:
        raise BadInput("checkpoint: a stream needs a folder that is its own and stays", field="checkpoint")
    sink = Sink(table, branch, fold=fold, summary=summary or {})

    def bring(rows: DataFrame, number: int) -> None:
        try:
            done = write_batch(rows, sink, _query_of(rows), number, road=road)
        except HeadgateError as error:
            if on_failure is not None:
                on_failure(error)
            raise
        if done is not None and on_batch is not None:
            on_batch(done)

    writer = df.writeStream.option("checkpointLocation", checkpoint).foreachBatch(bring)
    if name is not None:
        writer = writer.queryName(name)
    return _trigger(writer, trigger).start()


def write_batch(
    rows: DataFrame, sink: Sink, query_id: str, number: int, *, road: str | None = None
) -> Batch | None:
    """Write one batch and commit it, unless it is in the table; None for one without rows."""
    state = sink.table.load()
    epoch = Epoch(query_id, number, state.raw["table-uuid"])
    if is_in_table(state.properties, epoch):
        return Batch(epoch, 0, 0, None)
    run = new_run(epoch.key(0))
    files = write_run(rows, state, run, road=road)
    if not files:
        return None
    count = sum(int(file["record-count"]) for file in files)
    committed = land(sink.table, run, files, lambda _: commit_epoch(sink, epoch, files), state=state)
    if committed is There.OTHERS:
        discard_quietly(sink.table, run, files, state)
    return Batch(epoch, count, len(files), None if isinstance(committed, There) else committed)


def _query_of(rows: DataFrame) -> str:
    query_id: str | None = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if query_id is None:
        raise BadInput("Spark does not say which stream this batch is of", field=QUERY_ID)
    return query_id


def _trigger(writer: DataStreamWriter, trigger: str | None) -> DataStreamWriter:
    if trigger is None:
        return writer
    if trigger == AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=trigger)
