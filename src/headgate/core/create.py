"""Metadata of a new table: fresh column ids, defaults, format version. Pure."""

from __future__ import annotations

import msgspec

from headgate.core.draft import EMPTY_ENVELOPE
from headgate.core.encoded_log import EncodedLog
from headgate.core.partitioning import (
    UNSORTED,
    PartitionSpec,
    SortOrder,
    check_order,
    check_spec,
    highest_partition_id,
    remap_order,
    remap_spec,
)
from headgate.core.schema import Schema, check_schema, fresh_schema, highest_field_id
from headgate.core.table import FORMAT_VERSION_DEFAULT, FORMAT_VERSIONS, TableMetadata
from headgate.errors import BadInput

# What engines send as properties although it is not one; the metadata has fields for them.
RESERVED_PROPERTIES = frozenset(
    (
        "format-version",
        "uuid",
        "snapshot-count",
        "current-snapshot-summary",
        "current-snapshot-id",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    )
)
# Defaults that hold for new tables only, so that old tables keep what they had.
NEW_TABLE_PROPERTIES = {"write.parquet.compression-codec": "zstd"}


class TableDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asks for when it creates a table."""

    schema: Schema
    location: str
    uuid: str
    spec: PartitionSpec | None = None
    order: SortOrder | None = None
    properties: dict[str, str]


def format_version_of(properties: dict[str, str]) -> int:
    """The format version that the properties ask for."""
    text = properties.get("format-version", str(FORMAT_VERSION_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) < 4 and int(text) in FORMAT_VERSIONS):
        raise BadInput(
            f"Unsupported format version: {text[:40]} (supported: 1 to {FORMAT_VERSIONS[-1]})",
            field="properties.format-version",
        )
    return int(text)


def build_table(wanted: TableDefinition, *, now_ms: int) -> TableMetadata:
    """Metadata without snapshots, under column ids of our own."""
    version = format_version_of(wanted.properties)
    check_schema(wanted.schema, format_version=version)
    schema, renamed = fresh_schema(wanted.schema)
    spec = remap_spec(wanted.spec or PartitionSpec(fields=()), renamed)
    order = remap_order(wanted.order or UNSORTED, renamed)
    check_spec(spec, schema, format_version=version)
    check_order(order, schema)
    kept = {k: v for k, v in wanted.properties.items() if k not in RESERVED_PROPERTIES}
    envelope = msgspec.structs.replace(
        EMPTY_ENVELOPE,
        format_version=version,
        table_uuid=wanted.uuid,
        location=wanted.location,
        last_updated_ms=now_ms,
        last_column_id=highest_field_id(schema),
        current_schema_id=schema.schema_id,
        schemas=(schema,),
        default_spec_id=spec.spec_id,
        partition_specs=(spec,),
        last_partition_id=highest_partition_id(spec),
        default_sort_order_id=order.order_id,
        sort_orders=(order,),
        properties={**NEW_TABLE_PROPERTIES, **kept},
        next_row_id=0 if version >= 3 else None,
    )
    return TableMetadata(envelope, EncodedLog(), EncodedLog())
