"""How far the Spark jobs of a command have come, told every few seconds while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

Say = Callable[[str], None]
_EVERY_S = 2.0


@contextmanager
def progress_told(spark: SparkSession, say: Say, *, every_s: float = _EVERY_S) -> Iterator[None]:
    """Tell the progress of what runs inside, whenever it has changed."""
    is_over = threading.Event()
    teller = threading.Thread(target=_tell, args=(spark, say, is_over, every_s), daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


def _tell(spark: SparkSession, say: Say, is_over: threading.Event, every_s: float) -> None:
    last = ""
    while not is_over.wait(every_s):
        try:
            now = describe_stages(spark)
        except (Py4JError, OSError):
            return  # Spark is gone; whoever runs the job is told why
        if now and now != last:
            say(now)
        last = now


def describe_stages(spark: SparkSession) -> str:
    """The stages that run now, with how many of their tasks are done; nothing when none runs."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in sorted(tracker.getActiveStageIds())]
    return ", ".join(
        f"stage {stage.stageId}: {stage.numCompletedTasks:,} of {stage.numTasks:,} tasks"
        + (f", {stage.numFailedTasks} failed" if stage.numFailedTasks else "")
        for stage in stages
        if stage is not None
    )
