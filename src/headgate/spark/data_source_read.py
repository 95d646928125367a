"""The reader of `format("headgate")`: files planned and read by PyIceberg, position deletes and vectors applied.

Filters that PyIceberg understands skip files and rows; Spark applies them all once more. The session setting
`spark.sql.python.filterPushdown.enabled` lets Spark hand them over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import pyarrow as pa
from pyiceberg import expressions as ice
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headgate.errors import BadInput
from headgate.spark.lake import TableState
from headgate.spark.source_options import SourceOptions

_SPLIT_BYTES = 128 * 1024 * 1024  # Iceberg's read.split.target-size
_MAKE: dict[type[spark.Filter], Any] = {
    spark.EqualTo: ice.EqualTo,
    spark.GreaterThan: ice.GreaterThan,
    spark.GreaterThanOrEqual: ice.GreaterThanOrEqual,
    spark.LessThan: ice.LessThan,
    spark.LessThanOrEqual: ice.LessThanOrEqual,
    spark.In: ice.In,
    spark.StringStartsWith: ice.StartsWith,
}
_MAKE_ALONE: dict[type[spark.Filter], Any] = {spark.IsNull: ice.IsNull, spark.IsNotNull: ice.NotNull}


@dataclass
class Files(spark.InputPartition):
    """What one task reads."""

    tasks: tuple[FileScanTask, ...]


class Reader(spark.DataSourceReader):
    """The rows of one snapshot."""

    def __init__(self, state: TableState, schema: StructType, options: SourceOptions) -> None:
        self._state, self._schema = state, schema
        self._snapshot_id = options.snapshot_id or state.snapshot_id(options.branch)
        self._filter: ice.BooleanExpression = ice.AlwaysTrue()

    def pushFilters(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:  # noqa: N802 — Spark's name
        """Take what PyIceberg can use; Spark applies all of it again."""
        found = [one for one in map(self._to_expression, filters) if one is not None]
        self._filter = reduce(ice.And, found, self._filter)
        return filters

    def partitions(self) -> Sequence[Files]:
        """The files, several small ones for one task."""
        if self._snapshot_id is None:
            return [Files(())]
        scan = self._state.pyiceberg().scan(row_filter=self._filter, snapshot_id=self._snapshot_id)
        try:
            tasks = list(scan.plan_files())
        except ValueError as error:  # PyIceberg: equality deletes
            raise BadInput(
                f"{self._state.table.name}: {error}; read it through the Iceberg jar", field="table"
            ) from error
        return [Files(tuple(group)) for group in _pack(tasks)] or [Files(())]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the rows of some files."""
        if not isinstance(partition, Files) or not partition.tasks:
            return
        scan = ArrowScan(self._state.metadata, self._state.file_io(), self._state.schema, self._filter)
        wanted = to_arrow_schema(self._schema)
        for batch in scan.to_record_batches(partition.tasks):
            yield _to_spark(batch, wanted)

    def _to_expression(self, filter_: spark.Filter) -> ice.BooleanExpression | None:
        made = _translate(filter_)
        if made is None:
            return None
        try:
            bind(self._state.schema, made, case_sensitive=True)
        except (ValueError, TypeError):  # a column inside a map, a literal of another type: Spark will do it
            return None
        return made


def _translate(filter_: spark.Filter) -> ice.BooleanExpression | None:
    if isinstance(filter_, spark.Not):
        inner = _translate(filter_.child)
        return None if inner is None else ice.Not(inner)
    name = ".".join(getattr(filter_, "attribute", ()))
    if not name:
        return None
    if (make_alone := _MAKE_ALONE.get(type(filter_))) is not None:
        return cast(ice.BooleanExpression, make_alone(name))
    make, value = _MAKE.get(type(filter_)), getattr(filter_, "value", None)
    return None if make is None or value is None else cast(ice.BooleanExpression, make(name, value))


def _pack(tasks: Sequence[FileScanTask]) -> Iterator[list[FileScanTask]]:
    group: list[FileScanTask] = []
    size_bytes = 0
    for task in tasks:
        if group and size_bytes + task.file.file_size_in_bytes > _SPLIT_BYTES:
            yield group
            group, size_bytes = [], 0
        group.append(task)
        size_bytes += task.file.file_size_in_bytes
    if group:
        yield group


def _to_spark(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The types that Spark expects: UUIDs are text there."""
    columns = []
    for field in wanted:
        column = batch.column(field.name)
        if isinstance(column, pa.ExtensionArray) and pa.types.is_string(field.type):
            column = pa.array([None if one is None else str(one) for one in column.to_pylist()], pa.string())
        columns.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
