"""Content files of the wire as values that fit their table: partition, counts, bounds, format. Pure.

What does not fit is a BadInput that names the field, to the value in a list.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import PrimitiveType, StringType

from headgate.core.change import BoundMap, CountMap, WireFile
from headgate.core.file_looks import Looks
from headgate.core.iceberg import partition_schema, schema_for_spec
from headgate.core.identity_cache import IdentityCache
from headgate.core.manifest import (
    DATA_FILE,
    DELETE_PATH_ID,
    EQUALITY_DELETES,
    POSITION_DELETES,
    ContentFile,
    FileContent,
    Metrics,
    PartitionValue,
)
from headgate.core.partitioning import PartitionSpec
from headgate.core.schema import parse_primitive, walk_fields
from headgate.core.single_values import BoundReader, decode_value, fits_transform
from headgate.core.table import TableMetadata
from headgate.errors import BadInput

_RESERVED_ID_MIN = 2147483447  # columns of the format itself (spec, "Reserved Field IDs")
_CONTENTS = {
    "data": FileContent.DATA,
    "position-deletes": FileContent.POSITION_DELETES,
    "equality-deletes": FileContent.EQUALITY_DELETES,
}
_FORMATS = ("PARQUET", "AVRO", "ORC", "PUFFIN")


_SHARED: IdentityCache[WireFiles] = IdentityCache()


def wire_files_of(table: TableMetadata) -> WireFiles:
    """What makes values of wire values for this table: the same for all its versions of one shape."""
    envelope = table.envelope
    shape = (
        envelope.schemas,
        envelope.current_schema_id,
        envelope.partition_specs,
        envelope.sort_orders,
    )
    return _SHARED.get(shape, lambda: WireFiles(table))


class WireFiles:
    """Makes values of wire values, for one table."""

    def __init__(self, table: TableMetadata) -> None:
        self._schema = table.schema()
        self._schemas = table.envelope.schemas
        self._specs: dict[int, PartitionSpec] = {s.spec_id: s for s in table.envelope.partition_specs}
        self._partition_types: dict[int, IcebergSchema] = {}
        self._orders = {order.order_id for order in table.envelope.sort_orders} | {0}
        # A file may have been written under an older schema; the current one has the last word on a type.
        self._ids: set[int] = set()
        self._types: dict[int, PrimitiveType] = {}
        for schema in (*table.envelope.schemas, self._schema):
            for _, _, id_, type_ in walk_fields(schema):
                self._ids.add(id_)
                if isinstance(type_, str) and (primitive := parse_primitive(type_)) is not None:
                    self._types[id_] = primitive
        self._readers = {id_: BoundReader(type_) for id_, type_ in self._types.items()}
        self._readers[DELETE_PATH_ID] = BoundReader(StringType())
        self._looks = Looks(self._readers)

    def read(self, wires: tuple[WireFile, ...], field: str, *, data: bool) -> tuple[ContentFile, ...]:
        """Files of one list, which is of data or of deletes."""
        if not data:
            return tuple([self._file(wire, f"{field}[{i}]", data=False) for i, wire in enumerate(wires)])
        if len(wires) == 1:
            return (self._data_file(wires[0], field, 0),)
        return tuple([self._data_file(wire, field, i) for i, wire in enumerate(wires)])

    def _data_file(self, wire: WireFile, field: str, at: int) -> ContentFile:
        """The data file at this place of its list: as `_file` has it, but sooner if it looks like one before it."""
        sizes, values, nulls, nans = (
            wire.column_sizes,
            wire.value_counts,
            wire.null_value_counts,
            wire.nan_value_counts,
        )
        lower, upper = wire.lower_bounds, wire.upper_bounds
        key = (
            wire.content,
            wire.file_format,
            wire.spec_id,
            wire.sort_order_id,
            wire.equality_ids,
            wire.key_metadata,
            sizes and sizes.keys,
            values and values.keys,
            nulls and nulls.keys,
            nans and nans.keys,
            lower and lower.keys,
            upper and upper.keys,
        )
        look = self._looks.find(key)
        metrics = None
        if look is not None and wire.file_path:
            metrics = look.read_metrics(sizes, values, nulls, nans, lower, upper)
        if look is None or metrics is None:
            file = self._file(wire, f"{field}[{at}]", data=True)
            if look is None:
                self._looks.learn(key, wire, file.file_format, is_partitioned=bool(file.partition))
            return file
        partition: tuple[tuple[int, PartitionValue], ...] = ()
        if wire.partition or look.is_partitioned:
            partition = self.partition(wire.spec_id, wire.partition, f"{field}[{at}]")
        return ContentFile(
            DATA_FILE,
            wire.file_path,
            look.file_format,
            wire.spec_id,
            partition,
            wire.record_count,
            wire.file_size_in_bytes,
            wire.equality_ids,
            wire.sort_order_id,
            None,
            wire.referenced_data_file,
            wire.content_offset,
            wire.content_size_in_bytes,
            None,
            wire.split_offsets,
            metrics,
        )

    def _file(self, wire: WireFile, field: str, *, data: bool) -> ContentFile:
        content = _CONTENTS.get(wire.content)
        if content is None or (content is DATA_FILE) is not data:
            wanted = "data" if data else "position-deletes or equality-deletes"
            raise BadInput(f"content: expected {wanted}, got {wire.content[:40]!r}", field=f"{field}.content")
        format_ = wire.file_format.upper()
        if format_ not in _FORMATS or (format_ == "PUFFIN") > (content is POSITION_DELETES):
            raise BadInput(
                f"file-format: {wire.file_format[:40]!r} is not known for {wire.content}",
                field=f"{field}.file-format",
            )
        if not wire.file_path:
            raise BadInput("file-path: a file needs a path", field=f"{field}.file-path")
        if wire.sort_order_id is not None and wire.sort_order_id not in self._orders:
            raise BadInput(
                f"sort-order-id: {wire.sort_order_id} is not known", field=f"{field}.sort-order-id"
            )
        self._check_deletes(wire, content, format_, field)
        return ContentFile(
            content=content,
            file_path=wire.file_path,
            file_format=format_,
            spec_id=wire.spec_id,
            partition=self.partition(wire.spec_id, wire.partition, field),
            record_count=wire.record_count,
            file_size_in_bytes=wire.file_size_in_bytes,
            equality_ids=wire.equality_ids,
            sort_order_id=wire.sort_order_id,
            referenced_data_file=wire.referenced_data_file,
            content_offset=wire.content_offset,
            content_size_in_bytes=wire.content_size_in_bytes,
            key_metadata=None
            if wire.key_metadata is None
            else _hex(wire.key_metadata, f"{field}.key-metadata"),
            split_offsets=wire.split_offsets,
            metrics=self._metrics(wire, field),
        )

    def _check_deletes(self, wire: WireFile, content: FileContent, format_: str, field: str) -> None:
        if content is EQUALITY_DELETES:
            if not wire.equality_ids:
                raise BadInput("equality-ids: equality deletes need columns", field=f"{field}.equality-ids")
            for id_ in wire.equality_ids:
                if id_ not in self._types:
                    raise BadInput(f"equality-ids: no column has id {id_}", field=f"{field}.equality-ids")
        elif wire.equality_ids:
            raise BadInput("equality-ids: only equality deletes have them", field=f"{field}.equality-ids")
        if format_ == "PUFFIN":
            for name in ("referenced_data_file", "content_offset", "content_size_in_bytes"):
                if getattr(wire, name) in (None, ""):
                    wanted = name.replace("_", "-")
                    raise BadInput(f"{wanted}: a deletion vector needs it", field=f"{field}.{wanted}")
            if (wire.content_offset or 0) + (wire.content_size_in_bytes or 0) > wire.file_size_in_bytes:
                raise BadInput(
                    "content-offset: the deletion vector ends after its file", field=f"{field}.content-offset"
                )

    def partition(
        self, spec_id: int, values: tuple[object, ...], field: str
    ) -> tuple[tuple[int, PartitionValue], ...]:
        """A partition tuple with the ids of its fields."""
        spec = self._specs.get(spec_id)
        if spec is None:
            raise BadInput(f"spec-id: the table has no partition spec {spec_id}", field=f"{field}.spec-id")
        if len(values) != len(spec.fields):
            raise BadInput(
                f"partition: spec {spec_id} has {len(spec.fields)} fields, not {len(values)}",
                field=f"{field}.partition",
            )
        found: list[tuple[int, PartitionValue]] = []
        typed = self._partition_type(spec).fields
        for i, (column, value) in enumerate(zip(typed, values, strict=True)):
            where = f"{field}.partition[{i}]"
            decoded = decode_value(column.field_type, value, field=where)
            if not fits_transform(spec.fields[i].transform, decoded):
                raise BadInput(f"{value!r} is no result of {spec.fields[i].transform}", field=where)
            found.append((column.field_id, decoded))
        return tuple(found)

    def _partition_type(self, spec: PartitionSpec) -> IcebergSchema:
        found = self._partition_types.get(spec.spec_id)
        if found is None:
            found = partition_schema(spec, schema_for_spec(spec, self._schemas, current=self._schema))
            self._partition_types[spec.spec_id] = found
        return found

    def _metrics(self, wire: WireFile, field: str) -> Metrics:
        values = self._counts(wire.value_counts, field, "value-counts")
        nulls = self._counts(wire.null_value_counts, field, "null-value-counts")
        nans = self._counts(wire.nan_value_counts, field, "nan-value-counts")
        for name, what, counts in (("null-value-counts", "nulls", nulls), ("nan-value-counts", "NaNs", nans)):
            if values is None or counts is None:
                continue
            for id_, count in counts.items():
                if count > values.get(id_, count):
                    raise BadInput(
                        f"{name}: column {id_} has more {what} ({count}) than values ({values[id_]})",
                        field=f"{field}.{name}",
                    )
        lower, lowest = self._bounds(wire.lower_bounds, f"{field}.lower-bounds")
        upper, highest = self._bounds(wire.upper_bounds, f"{field}.upper-bounds")
        for id_, least in lowest.items():
            if id_ in highest and self._readers[id_].are_reversed(least, highest[id_]):
                raise BadInput(
                    f"the lower bound of column {id_} is above the upper", field=f"{field}.lower-bounds"
                )
        sizes = self._counts(wire.column_sizes, field, "column-sizes")
        return Metrics(sizes, values, nulls, nans, lower, upper)

    def _counts(self, wire: CountMap | None, field: str, name: str) -> dict[int, int] | None:
        if wire is None:
            return None
        if len(wire.keys) != len(wire.values) or len(set(wire.keys)) != len(wire.keys):
            raise BadInput(f"{name}: keys and values do not pair up", field=f"{field}.{name}")
        for id_ in wire.keys:
            if id_ not in self._ids and id_ < _RESERVED_ID_MIN:
                raise BadInput(f"{name}: no column has id {id_}", field=f"{field}.{name}")
        return dict(zip(wire.keys, wire.values, strict=True))

    def _bounds(self, wire: BoundMap | None, field: str) -> tuple[dict[int, bytes] | None, dict[int, Any]]:
        """Bounds as manifests hold them, and the values of those whose type is known."""
        values: dict[int, Any] = {}
        if wire is None:
            return None, values
        if len(wire.keys) != len(wire.values) or len(set(wire.keys)) != len(wire.keys):
            raise BadInput("keys and values do not pair up", field=field)
        found: dict[int, bytes] = {}
        for id_, text in zip(wire.keys, wire.values, strict=True):
            data = found[id_] = _hex(text, field)
            reader = self._readers.get(id_)
            if reader is not None:
                values[id_] = reader.decode(data, field=field)
            elif id_ < _RESERVED_ID_MIN:
                raise BadInput(f"no primitive column has id {id_}", field=field)
        return found, values


def _hex(text: str, field: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise BadInput("not hexadecimal", field=field) from error
