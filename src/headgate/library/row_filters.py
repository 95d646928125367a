"""Filters of the library: text or PyIceberg's expressions in, an expression with the table's own names and its JSON out."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
)
from pyiceberg.expressions.parser import parse
from pyiceberg.schema import Schema

from headgate.core.filters import parse_filter
from headgate.core.iceberg import to_schema
from headgate.core.table import TableMetadata
from headgate.errors import BadInput

Filter = str | BooleanExpression
_IN, _AT_LEAST, _AT_MOST = (
    cast(Any, kind) for kind in (In, GreaterThanOrEqual, LessThanOrEqual)
)  # typed as models
_KEYS_MAX = 1000  # so many keys are listed; of more, their range is what was read


def to_expression(given: Filter, table: TableMetadata, *, case_sensitive: bool = True) -> BooleanExpression:
    """The filter with the table's own names; BadInput when it does not fit."""
    try:
        expression = parse(given) if isinstance(given, str) else given
    except Exception as error:  # outermost edge: of foreign code; PyParsing's errors have no common class
        raise BadInput(f"not a filter: {str(error)[:300]}", field="filter") from error
    schema = to_schema(table.schema())
    raw = _rename(to_json(expression), schema, case_sensitive=case_sensitive)
    return parse_filter(raw, table.schema(), field="filter")


def to_json(expression: BooleanExpression) -> Any:
    """The expression as the wire has it."""
    return msgspec.json.decode(expression.model_dump_json())


def _rename(raw: Any, schema: Schema, *, case_sensitive: bool) -> Any:
    if isinstance(raw, list):
        return [_rename(part, schema, case_sensitive=case_sensitive) for part in raw]
    if not isinstance(raw, dict):
        return raw
    found = {name: _rename(part, schema, case_sensitive=case_sensitive) for name, part in raw.items()}
    term = raw.get("term")
    if isinstance(term, str):
        try:
            field_id = schema.find_field(term, case_sensitive=case_sensitive).field_id
        except ValueError as error:
            raise BadInput(f"filter: no column is named {term!r}", field="filter") from error
        found["term"] = schema.find_column_name(field_id)
    return found


def keys_filter(rows: pa.Table, keys: list[str]) -> BooleanExpression:
    """What an upsert of these rows reads: rows with one of their keys, or a little more; BadInput for null keys."""
    if not rows.num_rows:
        return AlwaysFalse()
    found: BooleanExpression | None = None
    for key in keys:
        column = rows.column(key)
        if column.null_count:
            raise BadInput(f"{key}: a key has no value in {column.null_count} rows", field=key)
        values = pc.unique(column)
        part: BooleanExpression
        if len(values) <= _KEYS_MAX:
            part = _IN(key, values.to_pylist())
        else:
            bounds = pc.min_max(column)
            part = And(_AT_LEAST(key, bounds["min"].as_py()), _AT_MOST(key, bounds["max"].as_py()))
        found = part if found is None else And(found, part)
    return found or AlwaysFalse()
