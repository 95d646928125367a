"""Manifests and manifest lists as the library reads and writes them, by the codecs of `format`. Thread-safe.

They never change, so what was read or written is remembered, within bounds, for the table's next commit.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import Generic, TypeVar, assert_never

from headgate.core.build import AppendFiles, PlanEffect, PlanReply, WriteManifest, WriteManifestList
from headgate.core.iceberg import schema_for_spec
from headgate.core.live import FindLive, FoundLive
from headgate.core.manifest import EntryStatus, ManifestEntry, ManifestFile
from headgate.core.manifest_list import ManifestList, has_live_files
from headgate.core.manifest_merge import AddedTwice, MergeManifests
from headgate.core.table import TableMetadata
from headgate.core.window import (
    ManifestChanges,
    OwnManifests,
    ReadChanges,
    ReadManifest,
    ReadManifestList,
    ReadOwn,
    find_changes,
    find_list,
    find_own,
)
from headgate.format.manifest_encode import EncodedManifest, ManifestEncoder
from headgate.format.manifest_list_encode import encode_manifest_list
from headgate.format.manifest_splice import Source, splice_manifests
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.library.pending_files import PendingFiles

METADATA_PATH = "write.metadata.path"
_LISTS_MAX = 64
_ENTRIES_MAX = 200_000
_PATHS_MAX = 2_000_000
_K = TypeVar("_K")
_V = TypeVar("_V")


def metadata_folder(location: str, properties: Mapping[str, str]) -> str:
    """Where a table's metadata files, manifest lists and manifests are put."""
    return properties.get(METADATA_PATH, f"{location.rstrip('/')}/metadata").rstrip("/")


class _Recent(Generic[_K, _V]):
    """What was used last, up to a weight. Not thread-safe."""

    def __init__(self, weight_max: int) -> None:
        self._max, self._weight = weight_max, 0
        self._kept: OrderedDict[_K, tuple[_V, int]] = OrderedDict()

    def get(self, key: _K) -> _V | None:
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def put(self, key: _K, value: _V, weight: int) -> None:
        if key in self._kept:
            self._weight -= self._kept.pop(key)[1]
        self._kept[key] = (value, weight)
        self._weight += weight
        while self._weight > self._max and len(self._kept) > 1:
            self._weight -= self._kept.popitem(last=False)[1][1]


class Manifests:
    """What is remembered of one table's manifests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: _Recent[str, ManifestList] = _Recent(_LISTS_MAX)
        self._entries: _Recent[tuple[str, int, int | None], tuple[ManifestEntry, ...]] = _Recent(_ENTRIES_MAX)
        self._paths: _Recent[str, frozenset[str]] = _Recent(_PATHS_MAX)

    def answer(self, effect: PlanEffect, files: PendingFiles, fresh: frozenset[str]) -> PlanReply:
        """Carry out one effect of planning. `fresh` are files that this commit wrote itself: nowhere live yet."""
        match effect:
            case ReadManifestList():
                return self._read_list(effect.location, files)
            case ReadManifest():
                return self._read_entries(effect.manifest, files)
            case ReadOwn():
                return OwnManifests(
                    tuple(find_own(self._read_list(find_list(s), files), s) for s in effect.snapshots)
                )
            case ReadChanges():
                return ManifestChanges(
                    tuple(find_changes(self._read_entries(m, files), m) for m in effect.manifests)
                )
            case FindLive():
                return self._find_live(effect, files, fresh)
            case WriteManifest():
                return self._write_manifest(effect, files)
            case MergeManifests():
                return self._merge(effect, files)
            case WriteManifestList():
                return self._write_list(effect, files)
            case AppendFiles():
                return None  # in several steps: what it waits for is the catalog
            case _:
                assert_never(effect)

    def _read_list(self, location: str, files: PendingFiles) -> ManifestList:
        with self._lock:
            found = self._lists.get(location)
        if found is None:
            found = ManifestList.of(decode_manifest_list(files.read(location), location=location))
            self._keep_list(location, found)
        return found

    def _keep_list(self, location: str, found: ManifestList) -> None:
        with self._lock:
            self._lists.put(location, found, 1)

    def _read_entries(self, manifest: ManifestFile, files: PendingFiles) -> tuple[ManifestEntry, ...]:
        # Inherited numbers are part of what is remembered, so they are part of the key.
        key = (manifest.manifest_path, manifest.sequence_number, manifest.first_row_id)
        with self._lock:
            found = self._entries.get(key)
        if found is None:
            location = manifest.manifest_path
            found = tuple(decode_manifest(files.read(location), manifest, location=location, metrics=True))
            with self._lock:
                self._entries.put(key, found, 1 + len(found))
        return found

    def _find_live(self, effect: FindLive, files: PendingFiles, fresh: frozenset[str]) -> FoundLive:
        # A file that this commit wrote can be live in its own manifests alone, which are not written yet.
        elsewhere = effect.paths - fresh
        if not elsewhere and not files.waiting:
            return FoundLive()
        found: list[tuple[ManifestFile, ManifestEntry]] = []
        for manifest in effect.manifests:
            wanted = effect.paths if manifest.manifest_path in files.waiting else elsewhere
            if not wanted or effect.content not in (None, manifest.content) or not has_live_files(manifest):
                continue
            if wanted.isdisjoint(self._live_paths(manifest, files)):
                continue
            for entry in self._read_entries(manifest, files):
                if entry.is_live and entry.file.file_path in wanted:
                    found.append((manifest, entry))
        return FoundLive(tuple(found))

    def _live_paths(self, manifest: ManifestFile, files: PendingFiles) -> frozenset[str]:
        with self._lock:
            found = self._paths.get(manifest.manifest_path)
        if found is None:
            entries = self._read_entries(manifest, files)
            found = self._keep_paths(manifest.manifest_path, [e.file.file_path for e in entries if e.is_live])
        return found

    def _keep_paths(self, location: str, paths: list[str]) -> frozenset[str]:
        found = frozenset(paths)
        with self._lock:
            self._paths.put(location, found, 1 + len(found))
        return found

    def _write_manifest(self, effect: WriteManifest, files: PendingFiles) -> ManifestFile:
        spec = effect.table.find_spec(effect.spec_id)
        encoder = ManifestEncoder(
            spec=spec,
            schema=schema_for_spec(spec, effect.table.envelope.schemas, current=effect.table.schema()),
            format_version=effect.table.envelope.format_version,
            content=effect.content,
        )
        for entry in effect.entries:
            encoder.add(entry)
        written = _put(effect, encoder.finish(), files)
        live = [e.file.file_path for e in effect.entries if e.status is not EntryStatus.DELETED]
        self._keep_paths(written.manifest_path, live)
        return written

    def _merge(self, effect: MergeManifests, files: PendingFiles) -> ManifestFile | AddedTwice | None:
        spec = effect.table.find_spec(effect.spec_id)
        merged = splice_manifests(
            [Source(manifest, files.read(manifest.manifest_path)) for manifest in effect.manifests],
            snapshot_id=effect.snapshot_id,
            spec=spec,
            schema=schema_for_spec(spec, effect.table.envelope.schemas, current=effect.table.schema()),
            format_version=effect.table.envelope.format_version,
            content=effect.content,
        )
        if merged is None or isinstance(merged, AddedTwice):
            return merged
        return _put(effect, merged, files)

    def _write_list(self, effect: WriteManifestList, files: PendingFiles) -> str:
        encoded = encode_manifest_list(
            effect.manifests,
            format_version=effect.table.envelope.format_version,
            snapshot_id=effect.snapshot_id,
            parent_snapshot_id=effect.parent_snapshot_id,
            sequence_number=effect.sequence_number,
            first_row_id=effect.first_row_id,
        )
        location = _name(effect.table, f"snap-{effect.snapshot_id}")
        files.put(location, encoded)
        self._keep_list(location, effect.manifests)
        return location


def _put(
    effect: WriteManifest | MergeManifests, encoded: EncodedManifest, files: PendingFiles
) -> ManifestFile:
    location = _name(effect.table, f"{effect.snapshot_id}-m")
    files.put(location, encoded.data)
    return encoded.describe(
        location,
        spec_id=effect.spec_id,
        content=effect.content,
        snapshot_id=effect.snapshot_id,
        sequence_number=effect.sequence_number,
    )


def _name(table: TableMetadata, stem: str) -> str:
    """A name of its own for every attempt."""
    envelope = table.envelope
    return f"{metadata_folder(envelope.location, envelope.properties)}/{stem}-{uuid.uuid4()}.avro"
