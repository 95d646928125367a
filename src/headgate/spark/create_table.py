"""The target of a job, made when it is not there: columns of the rows, partitions and sort order as SQL spells them.

country      day(at)      bucket(16, id)      truncate(4, name)          partitions
id           at desc      bucket(16, id)                                 sort order
"""

from __future__ import annotations

import re
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import RESTError, TableAlreadyExistsError
from pyiceberg.exceptions import ValidationError as IcebergRefused
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, Transform, parse_transform
from pyspark.sql import DataFrame
from pyspark.sql.types import NullType

from headgate.errors import BadInput
from headgate.spark.checked_keys import nearest
from headgate.spark.lake import LakeTable
from headgate.spark.pipeline_spec import TableShape
from headgate.spark.view_result import result_schema

_CALL = re.compile(r"([A-Za-z]+)\s*\(\s*(?:(\d{1,9})\s*,\s*)?([^(),\s]+)\s*\)")
_WITH_WIDTH = ("bucket", "truncate")
_TRANSFORMS = ("identity", "year", "month", "day", "hour", *_WITH_WIDTH, "void")
_ORDERED = re.compile(r"(.*?)(?:\s+(asc|desc))?", re.IGNORECASE | re.DOTALL)


def create_if_missing(table: LakeTable, rows: DataFrame, shape: TableShape) -> bool:
    """Make the table for such rows, unless it is there; whether it was made. All its columns may be null."""
    catalog = table.lake.catalog()
    if catalog.table_exists(table.identifier):
        return False
    for field in rows.schema.fields:
        if isinstance(field.dataType, NullType):
            raise BadInput(f"column {field.name}: has no type; cast it in the transform", field=field.name)
    catalog.create_namespace_if_not_exists(table.identifier[:-1])
    try:
        schema = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(result_schema(rows)))
        catalog.create_table(
            table.identifier,
            schema,
            partition_spec=_spec(schema, shape),
            sort_order=_order(schema, shape),
            properties=dict(shape.properties),
        )
    except TableAlreadyExistsError:
        return False  # somebody was faster
    except (TypeError, ValueError, RESTError, IcebergRefused) as error:
        raise BadInput(f"{table.name} cannot be made: {error}", field="create") from error
    return True


def _spec(schema: Schema, shape: TableShape) -> PartitionSpec:
    fields = []
    for at, text in enumerate(shape.partition_by):
        column, transform = read_transform(text, schema.column_names, key="partition-by")
        name = column if isinstance(transform, IdentityTransform) else f"{column}_{_suffix(transform)}"
        source = schema.find_field(column).field_id
        fields.append(PartitionField(source, PARTITION_FIELD_ID_START + at, transform, name))
    return PartitionSpec(*fields)


def _suffix(transform: Transform[Any, Any]) -> str:
    """What Spark and Java call partitions of a transform."""
    name = str(transform).partition("[")[0]
    return {"truncate": "trunc", "void": "null"}.get(name, name)


def _order(schema: Schema, shape: TableShape) -> SortOrder:
    fields = []
    for text in shape.sort_by:
        found = _ORDERED.fullmatch(text.strip())
        term, said = found.groups() if found else (text, None)
        column, transform = read_transform(term, schema.column_names, key="sort-by")
        is_down = (said or "").lower() == "desc"
        fields.append(
            SortField(
                source_id=schema.find_field(column).field_id,
                transform=transform,
                direction=SortDirection.DESC if is_down else SortDirection.ASC,
                null_order=NullOrder.NULLS_LAST if is_down else NullOrder.NULLS_FIRST,
            )
        )
    return SortOrder(*fields, order_id=1) if fields else UNSORTED_SORT_ORDER


def read_transform(text: str, columns: list[str], *, key: str) -> tuple[str, Transform[Any, Any]]:
    """A column and what is done to it; BadInput names the one that is not there."""
    call = _CALL.fullmatch(text.strip())
    name, width, column = call.groups() if call else ("identity", None, text.strip().strip("`"))
    name = name.lower()
    if name not in _TRANSFORMS:
        name = name.removesuffix("s")  # Spark also says days(at)
    if name not in _TRANSFORMS:
        known = ", ".join(_TRANSFORMS)
        raise BadInput(
            f"{key}: no transform {name} in {text!r}{nearest(name, _TRANSFORMS)}; known are {known}",
            field=key,
        )
    if (width is not None) != (name in _WITH_WIDTH):
        example = f"{name}(16, {column})" if name in _WITH_WIDTH else f"{name}({column})"
        raise BadInput(f"{key}: expected {example}, got {text!r}", field=key)
    if column not in columns:
        hint = nearest(column, columns) or f"; there are {', '.join(columns)}"
        raise BadInput(f"{key}: no column {column} in the rows{hint}", field=key)
    return column, parse_transform(name if width is None else f"{name}[{width}]")
