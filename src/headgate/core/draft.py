"""A table's metadata while updates are being applied: the mutable working copy, and what was added so far.

Private to one call of `apply`; never shared. Schema, spec and sort-order evolution live here with their
id-assignment rules (spec: "Schema Evolution", "Partition Evolution"); snapshots and refs are in `apply`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headgate.core.encoded_log import EncodedLog
from headgate.core.partitioning import (
    UNSORTED,
    PartitionSpec,
    SortOrder,
    check_order,
    check_spec,
    check_spec_names,
    check_spec_sources,
    highest_partition_id,
    same_spec,
    with_field_ids,
)
from headgate.core.schema import Schema, check_schema, highest_field_id, same_schema
from headgate.core.table import FORMAT_VERSION_DEFAULT, FORMAT_VERSIONS, Envelope, Snapshot, TableMetadata
from headgate.core.updates import LAST_ADDED
from headgate.core.value import INT_MAX
from headgate.errors import BadInput

EMPTY_ENVELOPE = Envelope(
    format_version=FORMAT_VERSION_DEFAULT,
    table_uuid="",
    location="",
    last_sequence_number=0,
    last_updated_ms=0,
    last_column_id=0,
    current_schema_id=-1,
    schemas=(),
    default_spec_id=-1,
    partition_specs=(),
    last_partition_id=999,
    default_sort_order_id=-1,
    sort_orders=(),
    properties={},
    refs={},
    metadata_log=(),
    statistics=(),
    partition_statistics=(),
)


class Draft:
    """The working copy. Fields of the envelope are replaced one by one; `changed` tells whether any was."""

    def __init__(self, base: TableMetadata | None, *, now_ms: int) -> None:
        self.base = None if base is None else base.envelope
        self.creating = base is None
        self.envelope = EMPTY_ENVELOPE if base is None else base.envelope
        self.snapshots = EncodedLog() if base is None else base.snapshots
        self.history = EncodedLog() if base is None else base.history
        self.now_ms = now_ms
        self.changed = base is None
        self.added_snapshots: dict[int, Snapshot] = {}
        self.made_current: set[int] = set()  # snapshots of this request that were current at some time in it
        self.removed_snapshots: set[int] = set()
        self.last_schema_id: int | None = None
        self.last_spec_id: int | None = None
        self.last_order_id: int | None = None

    def set(self, **fields: object) -> None:
        """Replace fields of the envelope."""
        self.envelope = msgspec.structs.replace(self.envelope, **fields)
        self.changed = True

    def schema(self) -> Schema:
        """The current schema; adding specs, orders or snapshots needs one."""
        for schema in self.envelope.schemas:
            if schema.schema_id == self.envelope.current_schema_id:
                return schema
        raise BadInput("no current schema is set", field="updates")

    def upgrade(self, version: int) -> None:
        """Move to a newer format version."""
        if version not in FORMAT_VERSIONS:
            raise BadInput(
                f"Cannot upgrade table to unsupported format version: v{version} "
                f"(supported: v{FORMAT_VERSIONS[-1]})",
                field="updates.format-version",
            )
        current = self.envelope.format_version
        if version < current:
            raise BadInput(f"Cannot downgrade v{current} table to v{version}", field="updates.format-version")
        if version == current and not self.creating:
            return
        next_row_id = (self.envelope.next_row_id or 0) if version >= 3 else None
        self.set(format_version=version, next_row_id=next_row_id)

    def add_schema(self, schema: Schema, last_column_id: int | None) -> None:
        """Add a schema under the next id, or reuse an equal one."""
        check_schema(schema, format_version=self.envelope.format_version)
        # Java sends the highest id of the schema, which is below ours once the newest column was dropped.
        last = max(self.envelope.last_column_id, highest_field_id(schema), last_column_id or 0)
        known = next((s for s in self.envelope.schemas if same_schema(s, schema)), None)
        if known is not None:
            self.last_schema_id = known.schema_id
            if last != self.envelope.last_column_id:
                self.set(last_column_id=last)
            return
        self.last_schema_id = _next_id([s.schema_id for s in self.envelope.schemas], least=0)
        added = msgspec.structs.replace(schema, schema_id=self.last_schema_id)
        self.set(schemas=(*self.envelope.schemas, added), last_column_id=last)

    def set_current_schema(self, schema_id: int) -> None:
        """Make a schema current; -1 is the one added last."""
        if schema_id == LAST_ADDED:
            if self.last_schema_id is None:
                raise BadInput(
                    "Cannot set last added schema: no schema has been added", field="updates.schema-id"
                )
            schema_id = self.last_schema_id
        if schema_id == self.envelope.current_schema_id:
            return
        if all(schema.schema_id != schema_id for schema in self.envelope.schemas):
            raise BadInput(
                f"Cannot set current schema to unknown schema: {schema_id}", field="updates.schema-id"
            )
        self.set(current_schema_id=schema_id)

    def remove_schemas(self, ids: tuple[int, ...]) -> None:
        """Forget schemas that are not current."""
        if self.envelope.current_schema_id in ids:
            raise BadInput("Cannot remove the current schema", field="updates.schema-ids")
        kept = tuple(s for s in self.envelope.schemas if s.schema_id not in ids)
        if len(kept) != len(self.envelope.schemas):
            self.set(schemas=kept)

    def add_spec(self, spec: PartitionSpec) -> None:
        """Add a spec under the next id, or reuse a compatible one."""
        known = next((s for s in self.envelope.partition_specs if same_spec(s, spec)), None)
        if known is not None:
            self.last_spec_id = known.spec_id
            return
        version, specs = self.envelope.format_version, self.envelope.partition_specs
        spec = with_field_ids(spec, specs, last_id=self.envelope.last_partition_id, format_version=version)
        check_spec(spec, self.schema(), format_version=version)
        self.last_spec_id = _next_id([s.spec_id for s in specs], least=0)
        self.set(
            partition_specs=(*specs, msgspec.structs.replace(spec, spec_id=self.last_spec_id)),
            last_partition_id=max(self.envelope.last_partition_id, highest_partition_id(spec)),
        )

    def set_default_spec(self, spec_id: int) -> None:
        """Make a spec the default; -1 is the one added last."""
        if spec_id == LAST_ADDED:
            if self.last_spec_id is None:
                raise BadInput("Cannot set last added spec: no spec has been added", field="updates.spec-id")
            spec_id = self.last_spec_id
        if spec_id == self.envelope.default_spec_id:
            return
        if all(spec.spec_id != spec_id for spec in self.envelope.partition_specs):
            raise BadInput(
                f"Cannot set default partition spec to unknown spec: {spec_id}", field="updates.spec-id"
            )
        self.set(default_spec_id=spec_id)

    def remove_specs(self, ids: tuple[int, ...]) -> None:
        """Forget specs that are not the default."""
        if self.envelope.default_spec_id in ids:
            raise BadInput("Cannot remove the default partition spec", field="updates.spec-ids")
        kept = tuple(s for s in self.envelope.partition_specs if s.spec_id not in ids)
        if len(kept) != len(self.envelope.partition_specs):
            self.set(partition_specs=kept)

    def add_order(self, order: SortOrder) -> None:
        """Add a sort order under the next id, or reuse an equal one. The unsorted order has id 0."""
        known = next((o for o in self.envelope.sort_orders if o.fields == order.fields), None)
        if known is not None:
            self.last_order_id = known.order_id
            return
        check_order(order, self.schema())
        if order.fields:
            self.last_order_id = _next_id([o.order_id for o in self.envelope.sort_orders], least=1)
            added = msgspec.structs.replace(order, order_id=self.last_order_id)
        else:
            self.last_order_id, added = 0, UNSORTED
        self.set(sort_orders=(*self.envelope.sort_orders, added))

    def set_default_order(self, order_id: int) -> None:
        """Make a sort order the default; -1 is the one added last."""
        if order_id == LAST_ADDED:
            if self.last_order_id is None:
                raise BadInput(
                    "Cannot set last added sort order: no sort order has been added",
                    field="updates.sort-order-id",
                )
            order_id = self.last_order_id
        if order_id == self.envelope.default_sort_order_id:
            return
        if all(order.order_id != order_id for order in self.envelope.sort_orders):
            raise BadInput(
                f"Cannot set default sort order to unknown order: {order_id}", field="updates.sort-order-id"
            )
        self.set(default_sort_order_id=order_id)

    def check_whole(self) -> None:
        """What must hold at the end, whatever the order of the updates was."""
        envelope, base = self.envelope, self.base
        if base is not None and _shape(base) == _shape(envelope):
            return  # a wide schema is not walked again for every snapshot
        if not envelope.location:
            raise BadInput("a table needs a location", field="updates.location")
        if not envelope.table_uuid:
            raise BadInput("a table needs a uuid", field="updates.uuid")
        schema = self.schema()
        spec = next((s for s in envelope.partition_specs if s.spec_id == envelope.default_spec_id), None)
        if spec is None:
            raise BadInput("a table needs a default partition spec", field="updates.spec-id")
        order = next((o for o in envelope.sort_orders if o.order_id == envelope.default_sort_order_id), None)
        if order is None:
            raise BadInput("a table needs a default sort order", field="updates.sort-order-id")
        check_spec_sources(spec, schema)
        for known in envelope.partition_specs:
            check_spec_names(known, schema)
        check_order(order, schema)


def _next_id(taken: Iterable[int], *, least: int) -> int:
    id_ = max((*(one + 1 for one in taken), least))
    if id_ > INT_MAX:
        raise BadInput("no id is left for another schema, spec or sort order", field="updates")
    return id_


def _shape(envelope: Envelope) -> tuple[object, ...]:
    # Identity is enough: an untouched tuple is carried over from the base.
    return (
        id(envelope.schemas),
        id(envelope.partition_specs),
        id(envelope.sort_orders),
        envelope.current_schema_id,
        envelope.default_spec_id,
        envelope.default_sort_order_id,
        envelope.format_version,
        envelope.location,
    )
