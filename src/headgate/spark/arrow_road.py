"""The Python road of `write`: rows of a DataFrame to data files by PyArrow on executors, without Hadoop.

Only attempts that end well tell of their files. A speculative copy that ended well too has told nobody: what it left
is in the run's folder under its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from headgate.client.changes import File
from headgate.errors import BadInput
from headgate.spark.arrow_files import Attempt, write_batches
from headgate.spark.lake import TableState

_TOLD = "files"


def write_by_arrow(
    rows: DataFrame,
    state: TableState,
    folder: str,
    *,
    spec_id: int | None = None,
    sort_order_id: int | None = None,
    extra: Sequence[str] = (),
) -> tuple[File, ...]:
    """Write rows that fit the table into a folder of the run's own; their content files."""
    write = partial(write_batches, state=state, spec_id=spec_id, sort_order_id=sort_order_id, extra=extra)
    told = rows.mapInArrow(_writer(write, folder), f"{_TOLD} BINARY").collect()
    return tuple(
        file for row in told for file in msgspec.json.decode(row[_TOLD], type=list[dict[str, object]])
    )


def _writer(
    write_all: Callable[..., tuple[File, ...]], folder: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does; made here, so that nothing but these values travels with it."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = write_all(batches, attempt=attempt_in(folder))
        yield pa.record_batch([pa.array([msgspec.json.encode(files)], pa.binary())], [_TOLD])

    return write


def attempt_in(folder: str) -> Attempt:
    """The attempt of a task that runs here."""
    context = TaskContext.get()
    if context is None:
        raise BadInput("rows are written by tasks of Spark", field="folder")
    return Attempt(folder, f"{context.partitionId():05d}-{context.taskAttemptId()}")
