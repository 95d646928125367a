"""What a job reads: the data files of one snapshot that may hold rows of a filter, each with its delete files.

Planned from the manifests by the decoders and filters that the service judges conflicts with, so both mean the same
by "may match"; PyIceberg's tasks know neither sequence numbers nor row ids, and refuse equality deletes. Reads no
data: that is `scan`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.types import IcebergType

from headgate.core.delete_index import referenced_data_file
from headgate.core.filters import RowFilter
from headgate.core.manifest import (
    DELETE_PATH_ID,
    ContentFile,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    Metrics,
    PartitionValue,
)
from headgate.core.partitioning import is_unpartitioned
from headgate.core.table import Snapshot, TableMetadata
from headgate.core.taken import Partition, partition_of
from headgate.errors import NotFound
from headgate.format.content_files import encode_value, partition_types
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.format.table_metadata import decode_metadata
from headgate.spark.lake import TableState

_READERS = 8  # manifests that are read at the same time


@dataclass(frozen=True)
class ScannedFile:
    """A data file of a snapshot, and what deletes rows of it."""

    file: ContentFile
    data_sequence_number: int
    snapshot_id: int  # the one that was scanned
    deletes: tuple[ContentFile, ...] = ()

    @property
    def path(self) -> str:
        """Where it is, as the table names it."""
        return self.file.file_path

    @property
    def spec_id(self) -> int:
        """The partition spec it was written by."""
        return self.file.spec_id

    @property
    def partition(self) -> tuple[tuple[int, PartitionValue], ...]:
        """Its partition: values by the ids of the spec's fields."""
        return self.file.partition

    @property
    def first_row_id(self) -> int | None:
        """The id of its first row, in format version 3."""
        return self.file.first_row_id

    @property
    def own_deletes(self) -> tuple[ContentFile, ...]:
        """The delete files that are for this data file alone: they go when it goes."""
        return tuple(one for one in self.deletes if referenced_data_file(one) == self.path)

    @property
    def live_rows(self) -> int:
        """How many rows it has left; too many when deletes that are for other files too took some."""
        return self.file.record_count - sum(one.record_count for one in self.own_deletes)


@dataclass(frozen=True)
class Scan:
    """The files of one scan. `snapshot_id` is the base of whatever is made of it; None when the table is empty."""

    state: TableState
    snapshot_id: int | None
    expression: BooleanExpression
    files: tuple[ScannedFile, ...]
    _table: TableMetadata = field(repr=False)

    def matches_wholly(self, scanned: ScannedFile) -> bool:
        """Whether every row of the file satisfies the scan's expression, provably."""
        return self._row_filter.all_rows_match(scanned.file)

    def partition_wire(self, scanned: ScannedFile) -> list[object]:
        """The file's partition as content-file JSON has it."""
        types = self._types.get(scanned.spec_id)
        if types is None:
            types = self._types[scanned.spec_id] = partition_types(self._table, scanned.spec_id)
        return [encode_value(types.get(id_), value) for id_, value in scanned.partition]

    @cached_property
    def _types(self) -> dict[int, Mapping[int, IcebergType]]:
        return {}

    @cached_property
    def _row_filter(self) -> RowFilter:
        return _row_filter(self._table, self.expression)


def plan(
    state: TableState,
    *,
    row_filter: BooleanExpression | None = None,
    snapshot_id: int | None = None,
    branch: str = "main",
) -> Scan:
    """The files that may hold rows of the filter, in a snapshot or at the head of a branch."""
    expression = AlwaysTrue() if row_filter is None else row_filter
    head = state.snapshot_id(branch) if snapshot_id is None else snapshot_id
    table = decode_metadata(
        msgspec.json.encode(state.raw),
        location=state.loaded.metadata_location,
        uuid=str(state.raw["table-uuid"]),
    )
    if head is None:
        return Scan(state, None, expression, (), table)
    snapshot = table.find_snapshot(head)
    if snapshot is None:
        raise NotFound(f"Snapshot does not exist: {head}; was it loaded with all snapshots?", kind="snapshot")
    wanted = _row_filter(table, expression)
    data, deletes = _read_entries(state, snapshot, wanted)
    index = _Deletes(deletes, table)
    files = tuple(
        ScannedFile(entry.file, entry.data_sequence_number, head, index.find(entry))
        for entry in data
        if wanted.some_rows_match(entry.file)
    )
    return Scan(state, head, expression, files, table)


def read_location(state: TableState, location: str) -> bytes:
    """The bytes of a metadata file."""
    filesystem, path = state.filesystem(location)
    try:
        with filesystem.open_input_file(path) as file:
            found: bytes = file.read()
            return found
    except FileNotFoundError as error:
        raise NotFound(f"File does not exist: {location}", kind="file") from error


def _row_filter(table: TableMetadata, expression: BooleanExpression) -> RowFilter:
    specs = {spec.spec_id: spec for spec in table.envelope.partition_specs}
    return RowFilter(expression, table.schema(), specs)


def _read_entries(
    state: TableState, snapshot: Snapshot, wanted: RowFilter
) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
    """The live entries of the manifests that may hold files in question: data, and deletes."""
    location = str(snapshot.manifest_list)
    manifests = decode_manifest_list(read_location(state, location), location=location)
    kept = [manifest for manifest in manifests if wanted.may_hold(manifest)]

    def read(manifest: ManifestFile) -> list[ManifestEntry]:
        path = manifest.manifest_path
        entries = decode_manifest(read_location(state, path), manifest, location=path, metrics=True)
        return [entry for entry in entries if entry.is_live]

    with ThreadPoolExecutor(_READERS) as pool:
        found = list(pool.map(read, kept))
    data: list[ManifestEntry] = []
    deletes: list[ManifestEntry] = []
    for manifest, entries in zip(kept, found, strict=True):
        (data if manifest.content is ManifestContent.DATA else deletes).extend(entries)
    return data, deletes


class _Deletes:
    """Delete files by what they are for: one data file, a partition, or everything."""

    def __init__(self, entries: Iterable[ManifestEntry], table: TableMetadata) -> None:
        whole = {spec.spec_id for spec in table.envelope.partition_specs if is_unpartitioned(spec)}
        self._by_path: dict[str, list[ManifestEntry]] = {}
        self._by_partition: dict[Partition, list[ManifestEntry]] = {}
        self._everywhere: list[ManifestEntry] = []
        for entry in entries:
            path = referenced_data_file(entry.file)
            if path is not None:
                self._by_path.setdefault(path, []).append(entry)
            elif entry.file.content is FileContent.EQUALITY_DELETES and entry.file.spec_id in whole:
                self._everywhere.append(entry)
            else:
                self._by_partition.setdefault(partition_of(entry.file), []).append(entry)

    def find(self, data: ManifestEntry) -> tuple[ContentFile, ...]:
        """The delete files that apply to a data file. Where it has a vector, position deletes are in that."""
        path = data.file.file_path
        own = self._by_path.get(path, [])
        near = self._by_partition.get(partition_of(data.file), [])
        vectors = [entry for entry in own if entry.file.is_dv]
        found: list[ContentFile] = []
        for entry in (*(vectors or own), *near, *self._everywhere):
            equality = entry.file.content is FileContent.EQUALITY_DELETES
            if vectors and not equality and not entry.file.is_dv:
                continue
            # An equality delete is for older rows only; positions may be of the same commit.
            age = data.data_sequence_number + equality
            if entry.data_sequence_number >= age and (equality or _may_name(entry.file, path)):
                found.append(entry.file)
        return tuple(found)


def _may_name(delete: ContentFile, path: str) -> bool:
    """Whether the path bounds of a position delete file leave room for a data file."""
    metrics = delete.metrics or Metrics()
    lower = (metrics.lower_bounds or {}).get(DELETE_PATH_ID)
    upper = (metrics.upper_bounds or {}).get(DELETE_PATH_ID)
    name = path.encode()
    return (lower is None or lower <= name) and (upper is None or name <= upper)


def paths_of(files: Sequence[ScannedFile]) -> list[str]:
    """Where the files are."""
    return [scanned.path for scanned in files]
