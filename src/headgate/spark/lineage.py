"""Row lineage of format version 3: the columns that a file keeps when rows are written again. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from headgate.errors import BadInput

ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
LINEAGE: Mapping[str, int] = {ROW_ID: 2147483540, LAST_UPDATED: 2147483539}  # reserved field ids (spec v3)


def with_lineage(schema: Schema, extra: Sequence[str]) -> Schema:
    """The columns of a file that keeps these columns of lineage besides those of the table."""
    if unknown := sorted(set(extra) - set(LINEAGE)):
        raise BadInput(f"extra: expected {', '.join(LINEAGE)}, got {', '.join(unknown)}", field="extra")
    if not extra:
        return schema
    kept = (NestedField(LINEAGE[name], name, LongType(), required=False) for name in extra)
    return Schema(*schema.fields, *kept, schema_id=schema.schema_id)
