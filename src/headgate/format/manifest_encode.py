"""Manifests: values to Avro bytes, v1 to v3, as Java writes them. No I/O, no clock.

The records are written by hand: every field's type is known here, and fastavro, which finds out the branch
of each union by trying the value, takes several times as long (docs/adr/0005); it checks us in the tests.
The same values make the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import msgspec
from pyiceberg.types import DoubleType, FloatType

from headgate.core.identity_cache import IdentityCache
from headgate.core.manifest import (
    ADDED,
    DATA_FILE,
    DATA_MANIFEST,
    DELETED,
    EXISTING,
    ContentFile,
    EntryStatus,
    FieldSummary,
    ManifestContent,
    ManifestFile,
    NewEntry,
    PartitionValue,
)
from headgate.core.partitioning import PartitionSpec
from headgate.core.schema import Schema
from headgate.core.value import Record
from headgate.errors import BadInput, InvariantBroken, invariant
from headgate.format.avro import Blocks, read_blocks
from headgate.format.avro_write import (
    NULL,
    Container,
    encode_optional_long,
    open_container,
    write_blocks,
)
from headgate.format.entry_encode import FILES, Numbers, begin_added, begin_entry
from headgate.format.manifest_schemas import VERSIONS, entry_schema
from headgate.format.partition_values import Column, decode_bound, find_columns, summarise

_CONTENT_NAMES = {ManifestContent.DATA: b"data", ManifestContent.DELETES: b"deletes"}
# Metadata of a manifest of which every entry is EXISTING and has all its numbers written out: it inherits nothing,
# so its blocks mean the same in any later manifest. Readers skip keys they do not know.
SETTLED = "headgate.settled"
_ENCODER = msgspec.json.Encoder()
_SCHEMAS = msgspec.json.Decoder(Schema)


class EncodedFile(Record):
    """A file as the entries of one kind of manifest hold it, for an entry that says something else about it.

    All but its first row id, which changes from inherited to written; `begin` goes before that, `end` after it.
    """

    path: str
    layout: bytes  # which schema of entries the bytes follow
    begin: bytes
    end: bytes


class EncodedManifest(Record):
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
    files: tuple[EncodedFile, ...] = ()  # of the entries, in order; not of blocks that were copied

    def describe(
        self, location: str, *, spec_id: int, content: ManifestContent, snapshot_id: int, sequence_number: int
    ) -> ManifestFile:
        """What the list of its snapshot says of it, once it is at this location."""
        least = self.min_sequence_number
        return ManifestFile(
            manifest_path=location,
            manifest_length=len(self.data),
            partition_spec_id=spec_id,
            content=content,
            sequence_number=sequence_number,
            min_sequence_number=sequence_number if least is None else least,
            added_snapshot_id=snapshot_id,
            added_files_count=self.added_files_count,
            existing_files_count=self.existing_files_count,
            deleted_files_count=self.deleted_files_count,
            added_rows_count=self.added_rows_count,
            existing_rows_count=self.existing_rows_count,
            deleted_rows_count=self.deleted_rows_count,
            partitions=self.partitions,
        )


@dataclass(frozen=True, slots=True)
class _Layout:
    """What manifests of one schema, spec, version, content and codec share."""

    container: Container
    settled: Container
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
    encoder = ManifestEncoder(
        spec=spec, schema=schema, format_version=format_version, content=content, codec=codec
    )
    for entry in entries:
        encoder.add(entry)
    return encoder.finish()


class AddedManifest(Record):
    """A manifest of data files that a snapshot adds: its bytes, what the manifest list says of it, and its files."""

    data: bytes
    manifest: ManifestFile
    files: tuple[EncodedFile, ...]


class AddedEncoder:
    """Encodes manifests of data files that a snapshot adds, whose numbers are all inherited: what appends write.

    As `encode_manifest` does; but made once for all appends to a table.
    """

    __slots__ = ("_container", "_encode_file", "_layout", "_row_id", "_spec_id", "_version")

    def __init__(self, *, spec: PartitionSpec, schema: Schema, format_version: int) -> None:
        self._layout = _find_layout(schema, spec, (format_version, DATA_MANIFEST, "deflate"))
        self._container, self._encode_file = self._layout.container, FILES[format_version]
        self._row_id = NULL if format_version >= 3 else b""
        self._spec_id, self._version = spec.spec_id, format_version

    def encode(
        self, files: Sequence[ContentFile], path: str, *, snapshot_id: int, sequence_number: int
    ) -> AddedManifest:
        """The manifest of these files, in order, to be put at `path`."""
        container, spec_id, row_id = self._container, self._spec_id, self._row_id
        partitions = _Partitions(self._layout) if self._layout.columns else None
        begin = begin_added(snapshot_id, self._version)
        encoded: list[EncodedFile] = []
        records: list[bytes] = []
        rows = 0
        for file in files:
            if file.spec_id != spec_id or file.content is not DATA_FILE or file.first_row_id is not None:
                raise InvariantBroken(f"invariant broken: a new data file of its spec; file={file.file_path}")
            before, after = self._encode_file(file, b"" if partitions is None else partitions.encode(file))
            encoded.append(EncodedFile(file.file_path, container.sync, before, after))
            records.append(b"".join((begin, before, row_id, after)))
            rows += file.record_count
        data = container.header + write_blocks(container, records)
        manifest = ManifestFile(
            path,
            len(data),
            spec_id,
            DATA_MANIFEST,
            sequence_number,
            sequence_number,
            snapshot_id,
            added_files_count=len(records),
            existing_files_count=0,
            deleted_files_count=0,
            added_rows_count=rows,
            existing_rows_count=0,
            deleted_rows_count=0,
            partitions=() if partitions is None else partitions.summaries(),
        )
        return AddedManifest(data, manifest, tuple(encoded))


class ManifestEncoder:
    """A manifest in the making: entries added one by one, and blocks of settled manifests copied as they are."""

    def __init__(
        self,
        *,
        spec: PartitionSpec,
        schema: Schema,
        format_version: int,
        content: ManifestContent,
        codec: str = "deflate",
    ) -> None:
        self._layout = _find_layout(schema, spec, (format_version, content, codec))
        self._spec_id, self._version, self._content = spec.spec_id, format_version, content
        self._needs_row_ids = format_version >= 3 and content is ManifestContent.DATA
        self._partitions = _Partitions(self._layout)
        self._counts, self._rows = [0, 0, 0], [0, 0, 0]
        self._min_sequence_number: int | None = None
        self._settled = True
        self._blocks: list[bytes] = []
        self._records: list[bytes] = []
        self._files: list[EncodedFile] = []
        self._begun: tuple[Numbers, bytes] | None = None  # how the entry before began: most begin alike

    def add(self, entry: NewEntry, known: EncodedFile | None = None) -> None:
        """Add an entry; `known` spares encoding its file again, when it was made for such a manifest."""
        file, status = entry.file, entry.status
        fault = _find_fault(entry, self._spec_id, self._version, self._content)
        if fault is not None:
            raise InvariantBroken(f"invariant broken: {fault}; file={file.file_path}")
        self._counts[status] += 1
        self._rows[status] += file.record_count
        if entry.data_sequence_number is not None and status is not DELETED:
            self._see_number(entry.data_sequence_number)
        if status is not EXISTING or (self._needs_row_ids and file.first_row_id is None):
            self._settled = False
        partition = self._partitions.encode(file)
        layout = self._layout.container.sync
        if known is None or known.layout != layout or known.path != file.file_path:
            known = EncodedFile(file.file_path, layout, *FILES[self._version](file, partition))
        self._files.append(known)
        row_id = encode_optional_long(file.first_row_id) if self._version >= 3 else b""
        self._records.append(b"".join((self._begin(entry), known.begin, row_id, known.end)))

    def _begin(self, entry: NewEntry) -> bytes:
        numbers = (entry.status, entry.snapshot_id, entry.data_sequence_number, entry.file_sequence_number)
        if self._begun is None or self._begun[0] != numbers:
            self._begun = numbers, begin_entry(numbers, self._version)
        return self._begun[1]

    def find_blocks(self, manifest: ManifestFile, data: bytes) -> Blocks | None:
        """The blocks of a manifest, if they can be copied: all settled, and written as this one's are."""
        partitions, container = manifest.partitions, self._layout.settled
        known = (
            manifest.content is self._content
            and manifest.partition_spec_id == self._spec_id
            and manifest.added_files_count == manifest.deleted_files_count == 0
            and manifest.existing_rows_count is not None
            and partitions is not None
            and len(partitions) == len(self._layout.columns)
            and all(summary.contains_nan is not None for summary in partitions)
        )
        if not known:
            return None
        blocks = read_blocks(data, location=manifest.manifest_path)
        if blocks.sync != container.sync or blocks.records != manifest.existing_files_count:
            return None
        same = ("avro.schema", "avro.codec", SETTLED)
        is_same = all(blocks.metadata.get(key) == container.metadata[key] for key in same)
        return blocks if is_same else None

    def copy(self, manifest: ManifestFile, blocks: Blocks) -> None:
        """Add all entries of a manifest as `find_blocks` found them, without looking at them."""
        self._close_records()
        self._blocks.append(blocks.data)
        self._counts[EntryStatus.EXISTING] += blocks.records
        self._rows[EntryStatus.EXISTING] += manifest.existing_rows_count or 0
        self._see_number(manifest.min_sequence_number)
        self._partitions.widen(manifest.partitions or ())

    def finish(self) -> EncodedManifest:
        """The manifest."""
        self._close_records()
        is_settled = self._settled and sum(self._counts) > 0
        container = self._layout.settled if is_settled else self._layout.container
        return EncodedManifest(
            data=b"".join((container.header, *self._blocks)),
            added_files_count=self._counts[ADDED],
            existing_files_count=self._counts[EXISTING],
            deleted_files_count=self._counts[DELETED],
            added_rows_count=self._rows[ADDED],
            existing_rows_count=self._rows[EXISTING],
            deleted_rows_count=self._rows[DELETED],
            min_sequence_number=self._min_sequence_number,
            partitions=self._partitions.summaries(),
            files=tuple(self._files),
        )

    def _see_number(self, number: int) -> None:
        least = self._min_sequence_number
        self._min_sequence_number = number if least is None else min(least, number)

    def _close_records(self) -> None:
        self._blocks.append(write_blocks(self._layout.container, self._records))
        self._records = []


_LAYOUTS: IdentityCache[_Layout] = IdentityCache()


def _find_layout(schema: Schema, spec: PartitionSpec, kind: tuple[int, ManifestContent, str]) -> _Layout:
    return _LAYOUTS.get(
        (schema, spec, *kind), lambda: _layout(_ENCODER.encode(schema), schema.schema_id, spec, kind)
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
        settled=open_container(avro, {**metadata, SETTLED: b"true"}, codec=codec),
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
        self._wider: list[list[PartitionValue]] = [[] for _ in layout.columns]

    def encode(self, file: ContentFile) -> bytes:
        if not file.partition and not self._layout.columns:
            return b""
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

    def widen(self, summaries: Sequence[FieldSummary]) -> None:
        """Count in what another manifest of this spec holds."""
        for column, summary, wider in zip(self._layout.columns, summaries, self._wider, strict=True):
            bounds = (bound for bound in (summary.lower_bound, summary.upper_bound) if bound is not None)
            wider += [decode_bound(str(column.type), bound) for bound in bounds]
            wider += [None] * summary.contains_null + [math.nan] * bool(summary.contains_nan)

    def summaries(self) -> tuple[FieldSummary, ...] | None:
        summaries = []
        for n, column in enumerate(self._layout.columns):
            summary = summarise(column, chain((values[n] for values in self._values), self._wider[n]))
            if summary is None:
                return None
            summaries.append(summary)
        return tuple(summaries)


def _find_fault(entry: NewEntry, spec_id: int, format_version: int, content: ManifestContent) -> str | None:
    file = entry.file
    if entry.status is not ADDED and entry.data_sequence_number is None:
        return "only an added file inherits its sequence number"
    if file.metrics is None and entry.status is EXISTING:
        return "a file that is kept keeps its metrics"
    if file.spec_id != spec_id:
        return "a file is in a manifest of its spec"
    if (file.content is DATA_FILE) != (content is DATA_MANIFEST):
        return "data and delete files are in manifests of their own"
    if format_version < 3 and file.is_dv:
        return "deletion vectors are of v3"
    return None
