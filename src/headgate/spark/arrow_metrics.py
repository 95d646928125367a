"""What is told of a file that was written here: its footer, and the NaNs that were counted on the way.

The footer is read as every other (`headgate.client.footers`). It does not tell of NaNs: who writes the rows counts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from headgate.client.footers import TableColumns, describe_columns, read_columns, split_offsets
from headgate.client.metrics_modes import NONE
from headgate.client.parquet import table_columns

_FLOATS = ("float", "double")


@dataclass(frozen=True, slots=True)
class MetricsPlan:
    """What is to be told of each column."""

    table: TableColumns
    floats: Mapping[
        int, tuple[int, ...]
    ]  # where the columns are whose NaNs are counted, by position from the top


def plan_metrics(schema: Schema, metadata: Mapping[str, Any]) -> MetricsPlan:
    """The modes of all columns. `schema` has the columns of the file, `metadata` is that of the table."""
    table = table_columns(metadata)
    counted = {
        leaf.id
        for leaf in table.leaves.values()
        if leaf.type in _FLOATS and not leaf.repeated and table.modes[leaf.id] != NONE
    }
    return MetricsPlan(table, {id_: path for id_, path in _paths(schema.as_struct(), ()) if id_ in counted})


def describe(footer: pq.FileMetaData, plan: MetricsPlan, nans: Mapping[int, int]) -> dict[str, Any]:
    """The part of the content-file JSON that a footer tells."""
    columns = read_columns(footer, footer.schema.to_arrow_schema(), plan.table)
    for column in columns:
        column.nans = nans.get(column.leaf.id)
    return {
        "record-count": footer.num_rows,
        "split-offsets": split_offsets(footer),
        **describe_columns(columns),
    }


def count_nans(rows: pa.Table, plan: MetricsPlan) -> dict[int, int]:
    """How many NaNs the rows have, by column; 0 where there are none."""
    return {
        id_: sum(_count(chunk, path[1:]) for chunk in rows.column(path[0]).chunks)
        for id_, path in plan.floats.items()
    }


def _count(values: pa.Array, path: tuple[int, ...]) -> int:
    leaf = pc.struct_field(values, list(path)) if path else values
    return pc.sum(pc.is_nan(leaf)).as_py() or 0


def _paths(struct: StructType, above: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    for at, field in enumerate(struct.fields):
        yield field.field_id, (*above, at)
        if isinstance(field.field_type, StructType):
            yield from _paths(field.field_type, (*above, at))
