"""Data files as rows by Spark's own Parquet reader, with what it does not know of Iceberg put around it.

Where Spark has no file system for the files, PyArrow reads them on executors instead (`arrow_read`).

Columns are found by field id. They are asked for under names that no file has: the vectorised reader would take a
column of the same name for one that the file does not have, whatever its id. Defaults of columns that a file was
written without, text for UUIDs, rows that position deletes or vectors have deleted, and row ids are added here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import NestedField, UUIDType
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as spark_types

from headgate.core.manifest import Metrics
from headgate.errors import InvariantBroken
from headgate.spark.arrow_read import is_read_by_arrow, read_by_arrow
from headgate.spark.columns import FIELD_ID, LAST_UPDATED, LINEAGE, ROW_ID, spark_schema
from headgate.spark.delete_positions import deleted_rows, previous_of
from headgate.spark.expression_sql import quote_name
from headgate.spark.lake import TableState
from headgate.spark.scan_plan import ScannedFile

FILE, POSITION = "_file", "_pos"
_COLUMN = "__headgate_c"  # then the field id
_SPARK_PATH, _NUMBER, _FIRST_ROW_ID, _SEQUENCE = "__path", "__number", "__first_row_id", "__sequence_number"
_DESCRIBED = pa.schema(
    [
        (_SPARK_PATH, pa.string()),
        (_NUMBER, pa.int32()),
        (FILE, pa.string()),
        (_FIRST_ROW_ID, pa.int64()),
        (_SEQUENCE, pa.int64()),
    ]
)
_BROADCAST_ROWS_MAX = 1_000_000
_UUID_TEXT = r"^(.{8})(.{4})(.{4})(.{4})(.{12})$"
_FOOTERS = 8  # that are read at the same time


def added_columns(*, positions: bool, lineage: bool) -> list[str]:
    """The columns that a read adds to those of the table."""
    return ([FILE, POSITION] if positions else []) + ([ROW_ID, LAST_UPDATED] if lineage else [])


def read_natively(
    spark: SparkSession, files: Sequence[ScannedFile], state: TableState, *, positions: bool, lineage: bool
) -> DataFrame:
    """The live rows of files that have no equality deletes."""
    if not files:
        return _no_rows(spark, state, positions=positions, lineage=lineage)
    groups: dict[frozenset[int], list[ScannedFile]] = {}
    for scanned, lacking in zip(files, _lacking(files, state), strict=True):
        groups.setdefault(lacking, []).append(scanned)
    parts = [
        _read_group(spark, group, state, lacking, positions=positions, lineage=lineage)
        for lacking, group in groups.items()
    ]
    return reduce(DataFrame.unionByName, parts)


def _read_group(
    spark: SparkSession,
    files: Sequence[ScannedFile],
    state: TableState,
    lacking: frozenset[int],
    *,
    positions: bool,
    lineage: bool,
) -> DataFrame:
    """Files that lack the same columns with defaults."""
    fields = dict(zip(state.schema.fields, spark_schema(state.schema).fields, strict=True))
    asked = [_asked(id_, spark_types.LongType()) for id_ in (LINEAGE.values() if lineage else ())]
    for field, column in fields.items():
        binary = isinstance(field.field_type, UUIDType)
        asked.append(_asked(field.field_id, spark_types.BinaryType() if binary else column.dataType))
    deleted = [(n, one) for n, one in enumerate(files) if one.deletes]
    if is_read_by_arrow(spark, files[0].path):
        table = _describe({scanned.path: (n, scanned) for n, scanned in enumerate(files)})
        shape = spark_types.StructType(asked)
        rows = read_by_arrow(spark, table, state, shape, path=_SPARK_PATH, position=POSITION)
    else:
        # A path is a path, not a pattern.
        reader = spark.read.schema(spark_types.StructType(asked)).option("__globPaths__", "false")
        rows = reader.parquet(*(scanned.path for scanned in files))
        spelled = _find_spelled(rows, files)
        if positions or lineage or deleted:
            path, position = sf.col("_metadata.file_path"), sf.col("_metadata.row_index").alias(POSITION)
            name = None if lineage or deleted else _respelled(spelled, path)
            if name is not None:
                rows = rows.select("*", name.alias(FILE), position)
            else:
                # As Arrow, so that it is at hand in the plan: rows of Python would be handed over by workers.
                described = sf.broadcast(spark.createDataFrame(_describe(spelled)))
                rows = rows.select("*", path.alias(_SPARK_PATH), position)
                rows = rows.join(described, on=_SPARK_PATH, how="inner")
    if deleted:
        rows = _without_deleted(rows, deleted, state)
    if not lacking and not lineage and not any(isinstance(one.field_type, UUIDType) for one in fields):
        # The same in one call: each column of Python's is several, of about a millisecond.
        names = [f"{_COLUMN}{field.field_id} AS {quote_name(field.name)}" for field in fields]
        return rows.selectExpr(*names, *added_columns(positions=positions, lineage=False))
    columns = [
        _value(field, column, is_lacking=field.field_id in lacking) for field, column in fields.items()
    ]
    return rows.select(*columns, *_added(positions=positions, lineage=lineage))


def _asked(field_id: int, type_: spark_types.DataType) -> spark_types.StructField:
    return spark_types.StructField(
        f"{_COLUMN}{field_id}", type_, nullable=True, metadata={FIELD_ID: field_id}
    )


def _value(field: NestedField, column: spark_types.StructField, *, is_lacking: bool) -> Column:
    """A column of the table from what was read."""
    read = sf.col(f"{_COLUMN}{field.field_id}")
    if is_lacking:
        return sf.lit(field.initial_default).cast(column.dataType).alias(field.name)
    if isinstance(field.field_type, UUIDType):
        return sf.regexp_replace(sf.lower(sf.hex(read)), _UUID_TEXT, "$1-$2-$3-$4-$5").alias(field.name)
    return read.alias(field.name)


def _added(*, positions: bool, lineage: bool) -> list[Column]:
    found = [sf.col(FILE), sf.col(POSITION)] if positions else []
    if lineage:
        kept = {name: sf.col(f"{_COLUMN}{id_}") for name, id_ in LINEAGE.items()}
        counted = sf.col(_FIRST_ROW_ID) + sf.col(POSITION)
        found += [
            sf.coalesce(kept[ROW_ID], counted).alias(ROW_ID),
            sf.coalesce(kept[LAST_UPDATED], sf.col(_SEQUENCE)).alias(LAST_UPDATED),
        ]
    return found


def _no_rows(spark: SparkSession, state: TableState, *, positions: bool, lineage: bool) -> DataFrame:
    fields = [
        spark_types.StructField(field.name, field.dataType, nullable=True)
        for field in spark_schema(state.schema).fields
    ]
    for name in added_columns(positions=positions, lineage=lineage):
        type_ = spark_types.StringType() if name == FILE else spark_types.LongType()
        fields.append(spark_types.StructField(name, type_))
    return spark.createDataFrame([], spark_types.StructType(fields))


def _find_spelled(rows: DataFrame, files: Sequence[ScannedFile]) -> dict[str, tuple[int, ScannedFile]]:
    """The files, with their numbers, by what Spark calls each in its metadata column.

    Every file must be found, once: one that Spark left out would be lost rows, and nobody would be told.
    """
    planned = {_normal(scanned.path): (number, scanned) for number, scanned in enumerate(files)}
    listed = {_normal(unquote(name)): name for name in rows.inputFiles()}
    if len(planned) != len(files) or planned.keys() != listed.keys():
        odd = sorted(planned.keys() ^ listed.keys())
        raise InvariantBroken(f"invariant broken: Spark reads other files than were planned: {odd[:5]}")
    return {re.sub("^file:/+", "file:/", name): planned[key] for key, name in listed.items()}


def _respelled(files: Mapping[str, tuple[int, ScannedFile]], path: Column) -> Column | None:
    """The table's name of a file from Spark's, where one rule makes all of them; it is cheaper than a join."""
    if all(name == one.path for name, (_, one) in files.items()):
        return path
    if all(name.replace("file:/", "file:///", 1) == one.path for name, (_, one) in files.items()):
        return sf.concat(sf.lit("file://"), sf.substr(path, sf.lit(len("file:/"))))
    return None


def _describe(files: Mapping[str, tuple[int, ScannedFile]]) -> pa.Table:
    """What the table knows of each file, by what the reader calls it."""
    rows_by_name: dict[str, list[Any]] = {name: [] for name in _DESCRIBED.names}
    for name, (number, one) in files.items():
        values = (name, number, one.path, one.first_row_id, one.data_sequence_number)
        for column, value in zip(rows_by_name.values(), values, strict=True):
            column.append(value)
    return pa.table(rows_by_name, schema=_DESCRIBED)


def _normal(path: str) -> str:
    """A path without the spellings that differ: scheme, slashes."""
    return re.sub("/+", "/", re.sub("^[a-z0-9]+:", "", path))


def _without_deleted(
    rows: DataFrame, deleted: Sequence[tuple[int, ScannedFile]], state: TableState
) -> DataFrame:
    targets = [(number, one.path, tuple(previous_of(old) for old in one.deletes)) for number, one in deleted]
    count = sum({old.identity: old.record_count for _, one in deleted for old in one.deletes}.values())
    gone = deleted_rows(
        rows.sparkSession, targets, state.storage, count=count, number=_NUMBER, position=POSITION
    )
    if count <= _BROADCAST_ROWS_MAX:
        gone = sf.broadcast(gone)
    return rows.join(gone, on=[_NUMBER, POSITION], how="left_anti")


# --- defaults -----------------------------------------------------------------------------------------------


def _lacking(files: Sequence[ScannedFile], state: TableState) -> list[frozenset[int]]:
    """For each file the columns with a default that it was written without."""
    wanted = frozenset(field.field_id for field in state.schema.fields if field.initial_default is not None)
    if not wanted:
        return [frozenset()] * len(files)

    def lacking(scanned: ScannedFile) -> frozenset[int]:
        metrics = scanned.file.metrics or Metrics()
        known = (metrics.value_counts or {}).keys() | (metrics.column_sizes or {}).keys()
        return frozenset() if wanted <= known else wanted - _stored_ids(scanned.path, state)

    with ThreadPoolExecutor(_FOOTERS) as threads:
        return list(threads.map(lacking, files))


def _stored_ids(path: str, state: TableState) -> frozenset[int]:
    """The ids of the columns that a file has, by its footer."""
    filesystem, place = state.filesystem(path)
    schema: Any = pq.read_schema(place, filesystem=filesystem)
    found = ((field.metadata or {}).get(b"PARQUET:field_id") for field in schema)
    return frozenset(int(id_) for id_ in found if id_ is not None)
