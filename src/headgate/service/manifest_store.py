"""Manifests and manifest lists as the service reads and writes them: immutable, so cached in bounded memory.

Each cached manifest has an index of its live paths, so that "is this path live?" costs a look-up per manifest.
Names are unique to an attempt; nothing is ever overwritten. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from headgate.core.iceberg import schema_for_spec
from headgate.core.live import FindLive, FoundLive
from headgate.core.manifest import ManifestEntry, ManifestFile
from headgate.core.plan import WriteManifest, WriteManifestList
from headgate.core.table import TableMetadata
from headgate.files.base import Files
from headgate.format.manifest_encode import encode_manifest
from headgate.format.manifest_list_encode import encode_manifest_list
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.service.placement import metadata_folder

_BYTES_MAX = 256 * 1024 * 1024
_LISTED_MAX = 200_000  # manifests in cached lists, of all tables
_ENTRY_BYTES = 1200  # what an entry without statistics takes in memory, roughly
_STATISTIC_BYTES = 90  # a number or a bound in its mapping; a wide table has thousands of them for each file


@dataclass(frozen=True, slots=True)
class _Cached:
    entries: tuple[ManifestEntry, ...]
    live: dict[str, tuple[ManifestEntry, ...]]
    size_bytes: int


class ManifestStore:
    """Reads and writes the metadata files between a table's metadata and its data files."""

    def __init__(self, files: Files, *, limit_bytes: int, new_uuid: Callable[[], str]) -> None:
        self._files = files
        self._limit_bytes = limit_bytes
        self._new_uuid = new_uuid
        self._lock = threading.Lock()
        self._manifests: OrderedDict[tuple[str, int, int | None], _Cached] = OrderedDict()
        self._lists: OrderedDict[str, tuple[ManifestFile, ...]] = OrderedDict()
        self._bytes = 0
        self._listed = 0

    @property
    def size_bytes(self) -> int:
        """How much the cached manifests take, roughly."""
        return self._bytes

    def read_list(self, location: str) -> tuple[ManifestFile, ...]:
        """The manifests of a snapshot."""
        with self._lock:
            cached = self._lists.get(location)
            if cached is not None:
                self._lists.move_to_end(location)
                return cached
        found = decode_manifest_list(self._files.read(location, limit_bytes=_BYTES_MAX), location=location)
        self._keep_list(location, found)
        return found

    def read_entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """All entries of a manifest, with statistics."""
        return self._load(manifest).entries

    def find_live(self, wanted: FindLive) -> FoundLive:
        """Which of the paths are live in which manifests."""
        found: list[tuple[ManifestFile, ManifestEntry]] = []
        for manifest in wanted.manifests:
            live = self._load(manifest).live
            if len(live) < len(wanted.paths):
                hits = [path for path in live if path in wanted.paths]
            else:
                hits = [path for path in wanted.paths if path in live]
            found.extend((manifest, entry) for path in sorted(hits) for entry in live[path])
        return tuple(found)

    def write_manifest(self, wanted: WriteManifest) -> ManifestFile:
        """Encode and write a manifest under a name of its own."""
        spec = wanted.table.find_spec(wanted.spec_id)
        encoded = encode_manifest(
            wanted.entries,
            spec=spec,
            schema=schema_for_spec(spec, wanted.table.envelope.schemas, current=wanted.table.schema()),
            format_version=wanted.table.envelope.format_version,
            content=wanted.content,
        )
        location = self._name(wanted.table, f"{wanted.snapshot_id}-m")
        self._files.write_new(location, (encoded.data,))
        number = wanted.sequence_number
        return ManifestFile(
            manifest_path=location,
            manifest_length=len(encoded.data),
            partition_spec_id=wanted.spec_id,
            content=wanted.content,
            sequence_number=number,
            min_sequence_number=number
            if encoded.min_sequence_number is None
            else encoded.min_sequence_number,
            added_snapshot_id=wanted.snapshot_id,
            added_files_count=encoded.added_files_count,
            existing_files_count=encoded.existing_files_count,
            deleted_files_count=encoded.deleted_files_count,
            added_rows_count=encoded.added_rows_count,
            existing_rows_count=encoded.existing_rows_count,
            deleted_rows_count=encoded.deleted_rows_count,
            partitions=encoded.partitions,
        )

    def write_list(self, wanted: WriteManifestList) -> str:
        """Encode and write a manifest list under a name of its own."""
        data = encode_manifest_list(
            wanted.manifests,
            format_version=wanted.table.envelope.format_version,
            snapshot_id=wanted.snapshot_id,
            parent_snapshot_id=wanted.parent_snapshot_id,
            sequence_number=wanted.sequence_number,
            first_row_id=wanted.first_row_id,
        )
        location = self._name(wanted.table, f"snap-{wanted.snapshot_id}")
        self._files.write_new(location, (data,))
        self._keep_list(location, wanted.manifests)
        return location

    def _name(self, table: TableMetadata, stem: str) -> str:
        envelope = table.envelope
        return f"{metadata_folder(envelope.location, envelope.properties)}/{stem}-{self._new_uuid()}.avro"

    def _keep_list(self, location: str, manifests: tuple[ManifestFile, ...]) -> None:
        with self._lock:
            if location not in self._lists:
                self._listed += len(manifests)
            self._lists[location] = manifests
            while self._listed > _LISTED_MAX and len(self._lists) > 1:
                self._listed -= len(self._lists.popitem(last=False)[1])

    def _load(self, manifest: ManifestFile) -> _Cached:
        # Inherited numbers are part of what is cached, so they are part of the key.
        key = (manifest.manifest_path, manifest.sequence_number, manifest.first_row_id)
        with self._lock:
            cached = self._manifests.get(key)
            if cached is not None:
                self._manifests.move_to_end(key)
                return cached
        location = manifest.manifest_path
        data = self._files.read(location, limit_bytes=_BYTES_MAX)
        entries = tuple(decode_manifest(data, manifest, location=location, metrics=True))
        live: dict[str, tuple[ManifestEntry, ...]] = {}
        for entry in entries:
            if entry.is_live:
                live[entry.file.file_path] = (*live.get(entry.file.file_path, ()), entry)
        cached = _Cached(entries, live, 500 + sum(map(_size_bytes, entries)))
        with self._lock:
            if key in self._manifests:  # another thread read it meanwhile; it counts once
                return cached
            self._bytes += cached.size_bytes
            self._manifests[key] = cached
            while self._bytes > self._limit_bytes and len(self._manifests) > 1:
                _, dropped = self._manifests.popitem(last=False)
                self._bytes -= dropped.size_bytes
        return cached


def _size_bytes(entry: ManifestEntry) -> int:
    """What an entry takes in memory, roughly."""
    metrics = entry.file.metrics
    if metrics is None:
        return _ENTRY_BYTES
    counts = (metrics.column_sizes, metrics.value_counts, metrics.null_value_counts, metrics.nan_value_counts)
    bounds = [found for found in (metrics.lower_bounds, metrics.upper_bounds) if found is not None]
    statistics = sum(len(found) for found in counts if found is not None) + sum(map(len, bounds))
    bound_bytes = sum(sum(map(len, found.values())) for found in bounds)
    return _ENTRY_BYTES + statistics * _STATISTIC_BYTES + bound_bytes
