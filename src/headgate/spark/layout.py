"""Which rows go into which file, and in which order: the table's distribution, sort order and target size.

Rows of one partition meet in few tasks before they are written, or every task would make a file of each partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import VoidTransform
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headgate.errors import BadInput
from headgate.spark.columns import column_at, spark_schema
from headgate.spark.lake import TableState
from headgate.spark.partitions import Partitioned, transform_column
from headgate.spark.writer_options import TARGET_SIZE, TARGET_SIZE_DEFAULT_BYTES, number_of

DISTRIBUTION = "write.distribution-mode"
_MODES = ("hash", "none", "range")
_ROW_BYTES_MIN = 1
# Of a table without files nothing is known yet: rows take about this part of the memory that Spark reckons with.
_STORED_PART = 0.25
_MAIN = "main"
_FOLDERS_AT_ONCE, _FEW_FOLDERS = 32, 2


def folders_of(parts: Sequence[Partitioned]) -> tuple[Partitioned, ...]:
    """The partition fields that tell rows apart; one that is void does not."""
    return tuple(part for part in parts if not isinstance(part.field.transform, VoidTransform))


def arrange(df: DataFrame, state: TableState, folders: Sequence[Partitioned]) -> DataFrame:
    """The rows as files are to hold them, with a column for each folder. Rows are those that `fit` has made."""
    rows = df.withColumns({part.folder: part.text for part in folders}) if folders else df
    names = [sf.col(part.folder) for part in folders]
    order = sort_columns(state.sort_order.fields, state.schema)
    mode = distribution_of(state.properties, is_partitioned=bool(folders), is_sorted=bool(order))
    if mode == "hash" and names:
        rows = rows.hint("rebalance", *names)
    elif mode == "range" and (names or order):
        rows = rows.repartitionByRange(*names, *order)
    return rows.sortWithinPartitions(*names, *order) if order else rows


def folders_at_once(state: TableState, folders: Sequence[Partitioned]) -> int:
    """Into how many folders a task may write at the same time; with more of them it sorts its rows by folder first.

    Distributed rows are few in each task, so open files are cheap; of others nobody knows, but they may be of one
    folder. 0 leaves it to sorting alone, which keeps an order of the table that Spark would not keep by itself.
    """
    if state.sort_order.fields:
        return 0
    mode = distribution_of(state.properties, is_partitioned=bool(folders), is_sorted=False)
    return _FOLDERS_AT_ONCE if mode == "hash" else _FEW_FOLDERS


def distribution_of(properties: Mapping[str, str], *, is_partitioned: bool, is_sorted: bool) -> str:
    """How rows are distributed before they are written: as the table says, or as the Iceberg jar does by itself."""
    said = properties.get(DISTRIBUTION)
    if said is None:
        return "range" if is_sorted else "hash" if is_partitioned else "none"
    if said.lower() not in _MODES:
        raise BadInput(
            f"{DISTRIBUTION}: expected one of {', '.join(_MODES)}, got {said!r}", field=DISTRIBUTION
        )
    return said.lower()


def sort_columns(fields: Sequence[SortField], schema: Schema) -> list[Column]:
    """A sort order in Spark's words."""
    return [_sorted(field, schema) for field in fields]


def rows_per_file(state: TableState) -> int:
    """How many rows make a file of the target size, by what rows of this table took so far."""
    target = number_of(state.properties, TARGET_SIZE, TARGET_SIZE_DEFAULT_BYTES)
    if target <= 0:
        raise BadInput(f"{TARGET_SIZE}: expected more than 0, got {target}", field=TARGET_SIZE)
    head = state.metadata.snapshot_by_name(_MAIN)
    summary = {} if head is None or head.summary is None else head.summary.additional_properties
    size, records = int(summary.get("total-files-size", 0)), int(summary.get("total-records", 0))
    row = size / records if size > 0 and records > 0 else _row_bytes(state.schema) * _STORED_PART
    return max(1, int(target / max(row, _ROW_BYTES_MIN)))


def _row_bytes(schema: Schema) -> int:
    """What Spark reckons with for one row in memory."""
    simple = {"binary": 100, "string": 20, "boolean": 1, "integer": 4, "date": 4, "float": 4}
    return sum(simple.get(field.dataType.typeName(), 8) for field in spark_schema(schema).fields)


def _sorted(field: SortField, schema: Schema) -> Column:
    source = column_at(schema, field.source_id)
    column = transform_column(field.transform, schema.find_type(field.source_id), source)
    nulls_first = field.null_order is NullOrder.NULLS_FIRST
    if field.direction is SortDirection.ASC:
        return column.asc_nulls_first() if nulls_first else column.asc_nulls_last()
    return column.desc_nulls_first() if nulls_first else column.desc_nulls_last()
