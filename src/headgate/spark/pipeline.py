"""A pipeline, run: sources ─▶ transform ─▶ target, once or as a stream.

Prints nothing: what happens is told to `say`, and what was done is the value that comes back. A run once is one commit
under one key; the batches of a stream are one commit each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from headgate.client import Committed
from headgate.client.changes import File
from headgate.errors import BadInput, NotFound
from headgate.spark.active_session import active_session
from headgate.spark.create_table import create_if_missing
from headgate.spark.fates import is_key_taken
from headgate.spark.lake import Lake, LakeTable
from headgate.spark.merges import merge
from headgate.spark.pipeline_sources import open_sources, transform_sources
from headgate.spark.pipeline_spec import APPEND, STREAM, MergeSpec, Pipeline, TargetSpec, check
from headgate.spark.pipeline_stream import run_stream
from headgate.spark.repeats import is_settled
from headgate.spark.session import has_jar_catalog, prepare_session
from headgate.spark.spark_errors import spark_errors_as_ours
from headgate.spark.writes import write

Say = Callable[[str], None]


@dataclass(frozen=True)
class PipelineRun:
    """What a run did. `snapshot_id` is None when it committed nothing; `key` then, too, or when it streamed."""

    name: str
    table: str
    mode: str
    elapsed_s: float = 0.0
    was_created: bool = False
    was_done_before: bool = False
    rows: int = 0  # written
    files: int = 0
    size_bytes: int = 0
    updated: int | None = None
    deleted: int | None = None
    batches: int | None = None
    snapshot_id: int | None = None
    key: str | None = None


def run_pipeline(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    *,
    key: str | None = None,
    say: Say = lambda _: None,
    stop: threading.Event | None = None,
) -> PipelineRun:
    """Run it to its end; a stream also ends when `stop` is set. What has landed under `key` is not done again."""
    check(pipeline)
    if pipeline.schedule.run == STREAM and key is not None:
        raise BadInput("key: a stream has a key for each of its batches", field="key")
    began_s = time.monotonic()
    target = lake.table(pipeline.target.table)
    if key is not None and is_settled(target, key):
        return _done_before(pipeline, key)
    say(f"{pipeline.name}: {', '.join(pipeline.sources)} → {pipeline.target.table} ({pipeline.target.mode})")
    with spark_errors_as_ours(), active_session(_own_session(spark, lake)) as session:
        try:
            done = _run(session, lake, pipeline, key, say, stop)
        except BadInput as error:
            if key is None or not is_key_taken(error) or not is_settled(target, key):
                raise
            done = _done_before(pipeline, key)  # by the run before, whose answer was lost
    return replace(done, elapsed_s=time.monotonic() - began_s)


def _own_session(spark: SparkSession, lake: Lake) -> SparkSession:
    """A session whose temporary views nobody else sees."""
    session = prepare_session(spark.newSession(), lake, jar=has_jar_catalog(spark, lake))
    session.conf.set("spark.sql.shuffle.partitions", str(spark.conf.get("spark.sql.shuffle.partitions")))
    return session


def _run(
    session: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    key: str | None,
    say: Say,
    stop: threading.Event | None,
) -> PipelineRun:
    streaming = pipeline.schedule.run == STREAM
    frames = open_sources(session, lake, pipeline.sources, streaming=streaming)
    rows = transform_sources(session, frames, pipeline.transform)
    _check_kind(rows, streaming=streaming)
    table = lake.table(pipeline.target.table)
    created = _make_target(table, rows, pipeline.target, say)
    if streaming:
        streamed = run_stream(rows, table, pipeline, say=say, stop=stop)
        done = PipelineRun(pipeline.name, table.name, APPEND, rows=streamed.rows, batches=streamed.batches)
    elif pipeline.target.merge is not None:
        done = _merge(session, rows, table, pipeline, pipeline.target.merge, key)
    else:
        done = _write(rows, table, pipeline, key)
    return replace(done, was_created=created)


def _check_kind(rows: DataFrame, *, streaming: bool) -> None:
    if rows.isStreaming != streaming:
        wrong = "gives no stream; schedule.run" if streaming else "gives a stream; schedule.run"
        raise BadInput(f"transform: {wrong} does not go with it", field="schedule.run")


def _make_target(table: LakeTable, rows: DataFrame, target: TargetSpec, say: Say) -> bool:
    if target.create is None:
        try:
            table.client.load()
        except NotFound as error:
            raise BadInput(
                f"target.table: {error.message}; create = true (--create) makes it", field="target.table"
            ) from error
        return False
    created = create_if_missing(table, rows, target.create)
    say(f"{table.name} was {'made' if created else 'there already'}")
    return created


def _merge(
    session: SparkSession,
    rows: DataFrame,
    table: LakeTable,
    pipeline: Pipeline,
    wish: MergeSpec,
    key: str | None,
) -> PipelineRun:
    target = pipeline.target
    done = merge(
        table,
        rows,
        on=wish.on if isinstance(wish.on, str) else list(wish.on),
        when_matched_update=wish.when_matched_update,
        when_matched_update_if=wish.when_matched_update_if,
        when_matched_delete=wish.when_matched_delete,
        when_not_matched_insert=wish.when_not_matched_insert,
        when_not_matched_insert_if=wish.when_not_matched_insert_if,
        mode=wish.mode,
        isolation=target.isolation,
        branch=target.branch,
        key=key,
        summary=target.summary or None,
        spark=session,
        attempts=wish.attempts if key is None else 1,  # a key stands for one
    )
    found = _landed(pipeline, done.committed, done.added)
    return replace(found, rows=done.inserted, updated=done.updated, deleted=done.deleted)


def _write(rows: DataFrame, table: LakeTable, pipeline: Pipeline, key: str | None) -> PipelineRun:
    target = pipeline.target
    done = write(
        rows,
        table,
        mode=target.mode,
        filter=target.filter,
        branch=target.branch,
        isolation=target.isolation,
        key=key,
        summary=target.summary or None,
        road=target.road,
    )
    return replace(_landed(pipeline, done.committed, done.files), rows=done.rows)


def _landed(pipeline: Pipeline, committed: Committed | None, added: Sequence[File]) -> PipelineRun:
    return PipelineRun(
        pipeline.name,
        pipeline.target.table,
        pipeline.target.mode,
        files=len(added),
        size_bytes=sum(int(file["file-size-in-bytes"]) for file in added),
        snapshot_id=None if committed is None else committed.snapshot_id,
        key=None if committed is None else committed.key,
    )


def _done_before(pipeline: Pipeline, key: str) -> PipelineRun:
    target = pipeline.target
    return PipelineRun(pipeline.name, target.table, target.mode, was_done_before=True, key=key)
