"""Manifests: values to Avro bytes, v1 to v3, as Java writes them. No I/O, no clock.

The records are written by hand: every field's type is known here, and fastavro, which finds out the branch
of each union by trying the value, takes several times as long (docs/adr/0005); it checks us in the tests.
The same values make the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from pyiceberg.types import DoubleType, FloatType

from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    FieldSummary,
    FileContent,
    ManifestContent,
    Metrics,
    NewEntry,
    PartitionValue,
)
from headgate.core.partitioning import PartitionSpec
from headgate.core.schema import Schema
from headgate.errors import BadInput, invariant
from headgate.format.avro_write import (
    NULL,
    Container,
    encode_list,
    encode_long,
    encode_optional_bytes,
    encode_optional_long,
    encode_optional_longs,
    encode_optional_text,
    encode_sized,
    open_container,
    write_container,
)
from headgate.format.manifest_schemas import VERSIONS, entry_schema
from headgate.format.partition_values import Column, find_columns, summarise

_NO_METRICS = Metrics()
# v1 requires a block size that nobody reads; this is what Java writes.
_BLOCK_SIZE = encode_long(64 * 1024 * 1024)
_CONTENT_NAMES = {ManifestContent.DATA: b"data", ManifestContent.DELETES: b"deletes"}
_ENCODER = msgspec.json.Encoder()
_SCHEMAS = msgspec.json.Decoder(Schema)


@dataclass(frozen=True, slots=True)
class EncodedManifest:
    """A manifest's bytes, and what the manifest list says about them."""

    data: bytes
    added_files_count: int
    existing_files_count: int
    deleted_files_count: int
    added_rows_count: int
    existing_rows_count: int
    deleted_rows_count: int
    min_sequence_number: int | None  # None: all live entries inherit theirs
    partitions: tuple[FieldSummary, ...] | None  # None: bounds would mislead some reader


@dataclass(frozen=True, slots=True)
class _Layout:
    """What manifests of one schema, spec, version, content and codec share."""

    container: Container
    columns: tuple[Column, ...]
    field_ids: tuple[int, ...]
    has_floats: bool


def encode_manifest(
    entries: Sequence[NewEntry],
    *,
    spec: PartitionSpec,
    schema: Schema,
    format_version: int,
    content: ManifestContent,
    codec: str = "deflate",
) -> EncodedManifest:
    """A manifest of these entries, in order. `schema` still has the columns that the spec is computed from."""
    layout = _layout(_ENCODER.encode(schema), schema.schema_id, spec, (format_version, content, codec))
    partitions = _Partitions(layout)
    files, rows = [0, 0, 0], [0, 0, 0]
    min_sequence_number: int | None = None
    records = []
    for entry in entries:
        file, status = entry.file, entry.status
        fault = _find_fault(entry, spec.spec_id, format_version, content)
        invariant(fault is None, f"{fault}; file={file.file_path}")
        files[status] += 1
        rows[status] += file.record_count
        number = entry.data_sequence_number
        if number is not None and status is not EntryStatus.DELETED:
            min_sequence_number = number if min_sequence_number is None else min(min_sequence_number, number)
        records.append(_ENTRIES[format_version](entry, partitions.encode(file)))
    return EncodedManifest(
        data=write_container(layout.container, records),
        added_files_count=files[EntryStatus.ADDED],
        existing_files_count=files[EntryStatus.EXISTING],
        deleted_files_count=files[EntryStatus.DELETED],
        added_rows_count=rows[EntryStatus.ADDED],
        existing_rows_count=rows[EntryStatus.EXISTING],
        deleted_rows_count=rows[EntryStatus.DELETED],
        min_sequence_number=min_sequence_number,
        partitions=partitions.summaries(),
    )


@lru_cache(maxsize=256)
def _layout(
    schema_json: bytes, schema_id: int, spec: PartitionSpec, kind: tuple[int, ManifestContent, str]
) -> _Layout:
    # Keyed by the encoded schema: defaults may be JSON lists, which have no hash.
    format_version, content, codec = kind
    invariant(format_version in VERSIONS, f"format version {format_version} is one we write")
    invariant(format_version > 1 or content is ManifestContent.DATA, "v1 has no delete manifests")
    columns = find_columns(spec, _SCHEMAS.decode(schema_json))
    metadata = {
        "schema": schema_json,
        "schema-id": str(schema_id).encode(),
        "partition-spec": _ENCODER.encode(spec.fields),
        "partition-spec-id": str(spec.spec_id).encode(),
        "format-version": str(format_version).encode(),
    }
    if format_version > 1:
        metadata["content"] = _CONTENT_NAMES[content]
    avro = _ENCODER.encode(entry_schema(columns, format_version=format_version))
    return _Layout(
        container=open_container(avro, metadata, codec=codec),
        columns=columns,
        field_ids=tuple(column.field_id for column in columns),
        has_floats=any(isinstance(column.type, FloatType | DoubleType) for column in columns),
    )


class _Partitions:
    """The partition tuples of one manifest, each distinct one encoded once."""

    def __init__(self, layout: _Layout) -> None:
        self._layout = layout
        self._encoded: dict[object, bytes] = {}
        self._values: list[tuple[PartitionValue, ...]] = []

    def encode(self, file: ContentFile) -> bytes:
        # Equal floats may differ in bytes (0.0 and -0.0), so those are told apart by their text.
        key: object = repr(file.partition) if self._layout.has_floats else file.partition
        encoded = self._encoded.get(key)
        return self._add(file.partition, key) if encoded is None else encoded

    def _add(self, partition: tuple[tuple[int, PartitionValue], ...], key: object) -> bytes:
        by_id = dict(partition)
        if by_id.keys() != set(self._layout.field_ids):
            raise BadInput(
                f"partition fields {sorted(by_id)} are not those of the spec, {sorted(self._layout.field_ids)}",
                field="partition",
            )
        values = tuple(by_id[field_id] for field_id in self._layout.field_ids)
        self._values.append(values)
        pairs = zip(self._layout.columns, values, strict=True)
        encoded = self._encoded[key] = b"".join([column.encode_optional(value) for column, value in pairs])
        return encoded

    def summaries(self) -> tuple[FieldSummary, ...] | None:
        summaries = []
        for n, column in enumerate(self._layout.columns):
            summary = summarise(column, (values[n] for values in self._values))
            if summary is None:
                return None
            summaries.append(summary)
        return tuple(summaries)


def _find_fault(entry: NewEntry, spec_id: int, format_version: int, content: ManifestContent) -> str | None:
    file = entry.file
    if entry.data_sequence_number is None and entry.status is not EntryStatus.ADDED:
        return "only an added file inherits its sequence number"
    if file.metrics is None and entry.status is EntryStatus.EXISTING:
        return "a file that is kept keeps its metrics"
    if file.spec_id != spec_id:
        return "a file is in a manifest of its spec"
    if (file.content is FileContent.DATA) != (content is ManifestContent.DATA):
        return "data and delete files are in manifests of their own"
    if format_version < 3 and file.is_dv:
        return "deletion vectors are of v3"
    return None


# --- entries: the order of `manifest_schemas` -----------------------------------------------------------


def _entry_v1(entry: NewEntry, partition: bytes) -> bytes:
    file = entry.file
    return b"".join(
        (
            encode_long(entry.status),
            encode_optional_long(entry.snapshot_id),
            *_begin_file(file, partition),
            _BLOCK_SIZE,
            *_metrics(file.metrics or _NO_METRICS),
            encode_optional_bytes(file.key_metadata),
            encode_optional_longs(file.split_offsets),
            encode_optional_long(file.sort_order_id),
        )
    )


def _entry_v2(entry: NewEntry, partition: bytes) -> bytes:
    return b"".join((*_begin_entry(entry, partition), encode_optional_text(entry.file.referenced_data_file)))


def _entry_v3(entry: NewEntry, partition: bytes) -> bytes:
    file = entry.file
    return b"".join(
        (
            *_begin_entry(entry, partition),
            encode_optional_long(file.first_row_id),
            encode_optional_text(file.referenced_data_file),
            encode_optional_long(file.content_offset),
            encode_optional_long(file.content_size_in_bytes),
        )
    )


_ENTRIES = {1: _entry_v1, 2: _entry_v2, 3: _entry_v3}


def _begin_entry(entry: NewEntry, partition: bytes) -> tuple[bytes, ...]:
    file = entry.file
    return (
        encode_long(entry.status),
        encode_optional_long(entry.snapshot_id),
        encode_optional_long(entry.data_sequence_number),
        encode_optional_long(entry.file_sequence_number),
        encode_long(file.content),
        *_begin_file(file, partition),
        *_metrics(file.metrics or _NO_METRICS),
        encode_optional_bytes(file.key_metadata),
        encode_optional_longs(file.split_offsets),
        encode_optional_longs(file.equality_ids),
        encode_optional_long(file.sort_order_id),
    )


def _begin_file(file: ContentFile, partition: bytes) -> tuple[bytes, ...]:
    return (
        encode_sized(file.file_path.encode()),
        encode_sized(file.file_format.encode()),
        partition,
        encode_long(file.record_count),
        encode_long(file.file_size_in_bytes),
    )


def _metrics(metrics: Metrics) -> tuple[bytes, ...]:
    return (
        _counts_or_null(metrics.column_sizes),
        _counts_or_null(metrics.value_counts),
        _counts_or_null(metrics.null_value_counts),
        _counts_or_null(metrics.nan_value_counts),
        _bounds_or_null(metrics.lower_bounds),
        _bounds_or_null(metrics.upper_bounds),
    )


def _counts_or_null(counts: Mapping[int, int] | None) -> bytes:
    if counts is None:
        return NULL
    return encode_list(len(counts), [encode_long(number) for pair in counts.items() for number in pair])


def _bounds_or_null(bounds: Mapping[int, bytes] | None) -> bytes:
    if bounds is None:
        return NULL
    return encode_list(len(bounds), [encode_long(key) + encode_long(len(b)) + b for key, b in bounds.items()])
