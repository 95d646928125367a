"""Data files as rows by PyArrow on executors, for storage that Spark has no file system for: S3 without Hadoop's jars.

Slower than Spark's own reader: every column is read, and rows pass through Python. What Iceberg means beyond one file
(deletes, row ids) is put around it as around Spark's reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import LongType as SparkLong
from pyspark.sql.types import StructField, StructType

from headgate.spark.columns import FIELD_ID
from headgate.spark.lake import TableState

_S3 = ("s3:", "s3a:", "s3n:")
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_NO_SPEC = -1  # columns that a file lacks are not filled from its partition, as Spark's reader does not


def is_read_by_arrow(spark: SparkSession, location: str) -> bool:
    """Whether Spark itself cannot reach a location."""
    if not location.startswith(_S3):
        return False
    java: Any = spark._jvm
    return not java.org.apache.spark.util.Utils.classIsLoadable(_S3A)


def read_by_arrow(
    spark: SparkSession,
    described: pa.Table,
    state: TableState,
    columns: StructType,
    *,
    path: str,
    position: str,
) -> DataFrame:
    """The rows of the files that are described in a table by their `path`, each with all of its description.

    `columns` are asked for by their field ids; the row's place in its file is added as `position`.
    """
    added = [*from_arrow_schema(described.schema).fields, StructField(position, SparkLong())]
    shape = StructType([*columns.fields, *added])
    read = partial(
        _read_files, state=state, wanted=to_arrow_schema(shape), asked=_asked(state, columns), path=path
    )
    return spark.createDataFrame(described).mapInArrow(_reader(read), shape)


def _reader(
    read: Callable[..., Iterator[pa.RecordBatch]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does; made here, so that nothing but these values travels with it."""

    def read_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for described in batch.to_pylist():
                yield from read(described)

    return read_all


def _read_files(
    described: dict[str, Any], *, state: TableState, wanted: pa.Schema, asked: Schema, path: str
) -> Iterator[pa.RecordBatch]:
    """The rows of one file, in their order."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=described[path],
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=0,
        file_size_in_bytes=0,
    )
    file.spec_id = _NO_SPEC
    scan = ArrowScan(state.metadata, state.file_io(), asked, AlwaysTrue())
    begun = 0
    # Its public method holds all rows of a file at once.
    for batch in scan._record_batches_from_scan_tasks_and_deletes([FileScanTask(file)], {}):
        count = batch.num_rows
        values = {name: pa.repeat(pa.scalar(value), count) for name, value in described.items()}
        values[wanted.names[-1]] = pa.array(range(begun, begun + count), pa.int64())
        columns = [
            _cast(batch.column(field.name) if field.name in asked.column_names else values[field.name], field)
            for field in wanted
        ]
        begun += count
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    """The type that Spark expects. UUIDs are sixteen bytes."""
    return (column.storage if isinstance(column, pa.ExtensionArray) else column).cast(field.type)


def _asked(state: TableState, columns: StructType) -> Schema:
    """The columns as PyIceberg finds them in a file: by id, under the names that are asked for, null where missing."""
    known = {field.field_id: field for field in state.schema.fields}
    fields = []
    for column in columns.fields:
        id_ = int(column.metadata[FIELD_ID])
        type_ = known[id_].field_type if id_ in known else LongType()  # the others are those of row ids
        fields.append(NestedField(id_, column.name, type_, required=False))
    return Schema(*fields)
