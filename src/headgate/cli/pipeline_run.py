"""A pipeline, run for a command: its progress on standard error, its summary on standard output."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from headgate.cli.lake_options import open_job, read_lake, say
from headgate.cli.summary import Fact, print_summary, shown_size

if TYPE_CHECKING:
    from headgate.spark.pipeline import PipelineRun
    from headgate.spark.pipeline_spec import Pipeline


def run_and_print(parsed: argparse.Namespace, pipeline: Pipeline, *, key: str | None) -> int:
    """Run it to its end; what goes wrong is raised."""
    from headgate.spark.pipeline import run_pipeline  # optional extra
    from headgate.spark.pipeline_spec import STREAM, check  # optional extra

    check(pipeline)
    lake = read_lake(parsed, uri=pipeline.uri, storage=pipeline.storage)
    is_stream = pipeline.schedule.run == STREAM
    with (
        open_job(parsed, pipeline.name, lake, conf=pipeline.conf, py_files=pipeline.py_files) as job,
        _stop_by_signals(is_stream=is_stream) as stop,
    ):
        done = run_pipeline(job.spark, job.lake, pipeline, key=key, say=say, stop=stop)
    print_summary(pipeline.name, _facts(done), as_json=parsed.json)
    return 0


@contextmanager
def _stop_by_signals(*, is_stream: bool) -> Iterator[threading.Event | None]:
    """Ctrl-C and SIGTERM end a stream in order. PySpark's own handler would cancel the batch that runs."""
    if not is_stream or threading.current_thread() is not threading.main_thread():
        yield None
        return
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _facts(done: PipelineRun) -> dict[str, Fact]:
    facts: dict[str, Fact] = {"table": done.table, "mode": done.mode}
    if done.was_done_before:
        return {**facts, "commit": "landed before, under the same key", "key": done.key}
    facts |= {"table was made": True} if done.was_created else {}
    if done.batches is not None:
        return {**facts, "batches": done.batches, "rows": done.rows, "seconds": done.elapsed_s}
    if done.updated is not None:
        facts |= {"rows updated": done.updated, "rows deleted": done.deleted, "rows inserted": done.rows}
    else:
        facts |= {"rows": done.rows}
    return {
        **facts,
        "files": done.files,
        "size": shown_size(done.size_bytes),
        "commit": "nothing to commit" if done.snapshot_id is None else None,
        "snapshot": None if done.snapshot_id is None else str(done.snapshot_id),
        "key": done.key,
        "seconds": done.elapsed_s,
    }
