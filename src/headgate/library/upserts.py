"""An upsert over Arrow rows: which of them are new, which differ from the table's, and what stays of a file."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import upsert_util

from headgate.errors import BadInput

_INDEX = "__headgate_index"


def check_keys(rows: pa.Table, keys: list[str], schema: Schema) -> pa.Table:
    """The rows in the table's types; BadInput when a key is missing, unknown, or there twice."""
    names = {column.name for column in schema.fields}
    for key in keys:
        if key not in names or key not in rows.column_names:
            raise BadInput(f"keys: {key!r} is no column of the table and the data", field="keys")
    if not keys:
        raise BadInput("an upsert needs keys: name them, or set the table's identifier fields", field="keys")
    cast = _fill_in(rows, schema)
    if upsert_util.has_duplicate_rows(cast, keys):
        raise BadInput(f"two rows of the data have one key ({', '.join(keys)})", field="data")
    return cast


def _fill_in(rows: pa.Table, schema: Schema) -> pa.Table:
    """All columns of the table, in its types and order; optional ones that the data has not are null."""
    unknown = set(rows.column_names) - {column.name for column in schema.fields}
    if unknown:
        raise BadInput(f"the table has no column {', '.join(sorted(unknown))}", field="data")
    columns = []
    for column in (wanted := schema_to_pyarrow(schema, include_field_ids=False)):
        if column.name not in rows.column_names and not column.nullable:
            raise BadInput(f"column {column.name} is required, and the data has none", field=column.name)
        try:
            columns.append(
                rows.column(column.name).cast(column.type)
                if column.name in rows.column_names
                else pa.nulls(rows.num_rows, column.type)
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BadInput(f"column {column.name}: {error}", field=column.name) from error
    return pa.Table.from_arrays(columns, schema=wanted)


def check_unique(seen: list[pa.Table], keys: list[str]) -> None:
    """Refuse to guess which of two rows of one key is meant."""
    if seen and upsert_util.has_duplicate_rows(pa.concat_tables(seen), keys):
        raise BadInput(f"the table has two rows of one key ({', '.join(keys)})", field="keys")


def find_changed(rows: pa.Table, present: pa.Table, keys: list[str]) -> pa.Table:
    """Rows of the data whose key the table has with other values."""
    try:
        return upsert_util.get_rows_to_update(rows, present, keys)
    except ValueError as error:
        raise BadInput(
            f"the table has two rows of one key ({', '.join(keys)}): {error}", field="keys"
        ) from error


def without(rows: pa.Table, others: pa.Table, keys: list[str]) -> pa.Table:
    """The rows whose key is not among the others', in order."""
    if not others.num_rows or not rows.num_rows:
        return rows
    marked = rows.select(keys).append_column(_INDEX, pa.array(range(rows.num_rows), pa.int64()))
    left = marked.join(others.select(keys).cast(rows.select(keys).schema), keys=keys, join_type="left anti")
    return rows.take(left.column(_INDEX).sort())
