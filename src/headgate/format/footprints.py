"""Footprints: what one snapshot brought, in a few hundred bytes, kept in the store beside its head.

For each manifest that the snapshot added: what its list says about it, a hash of every path in it, and, when they
are few, the entries of what the snapshot itself added or removed. So a window of a thousand commits is judged without
opening a thousand files, and an index of live paths is made again after a restart without reading a manifest. A
footprint is a copy: what it lacks is read from the files. MessagePack; no I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from headgate.core.locations import find_stem
from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    FieldSummary,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    Metrics,
)
from headgate.core.window import find_changes

HASH_BYTES = 5
_VERSION = 3  # 1 held all entries of a manifest; 2 hashed each spelling of a path apart
_CHANGES_BYTES_MAX = 4096
_PARTITIONS, _FILE_METRICS = 13, 15  # their places
# Partition values that MessagePack gives back as they were.
_PLAIN = (bool, int, float, str, bytes, type(None))


# The values as they are encoded: arrays, so that decoding is msgspec's work.


class _Summary(msgspec.Struct, array_like=True):
    contains_null: bool
    contains_nan: bool | None
    lower_bound: bytes | None
    upper_bound: bytes | None


class _Manifest(msgspec.Struct, array_like=True):
    manifest_path: str
    manifest_length: int
    partition_spec_id: int
    content: ManifestContent
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added_files_count: int | None
    existing_files_count: int | None
    deleted_files_count: int | None
    added_rows_count: int | None
    existing_rows_count: int | None
    deleted_rows_count: int | None
    partitions: msgspec.Raw
    key_metadata: bytes | None
    first_row_id: int | None


class _Own(msgspec.Struct, array_like=True):
    manifest: _Manifest
    hashes: bytes
    changes: bytes | None


class _Footprint(msgspec.Struct, array_like=True):
    version: int
    own: msgspec.Raw


class _Metrics(msgspec.Struct, array_like=True):
    column_sizes: dict[int, int] | None
    value_counts: dict[int, int] | None
    null_value_counts: dict[int, int] | None
    nan_value_counts: dict[int, int] | None
    lower_bounds: dict[int, bytes] | None
    upper_bounds: dict[int, bytes] | None


class _File(msgspec.Struct, array_like=True):
    content: FileContent
    file_path: str
    file_format: str
    spec_id: int
    partition: tuple[tuple[int, Any], ...]
    record_count: int
    file_size_in_bytes: int
    equality_ids: tuple[int, ...] | None
    sort_order_id: int | None
    first_row_id: int | None
    referenced_data_file: str | None
    content_offset: int | None
    content_size_in_bytes: int | None
    key_metadata: bytes | None
    split_offsets: tuple[int, ...] | None
    metrics: _Metrics | None


class _Entry(msgspec.Struct, array_like=True):
    status: EntryStatus
    snapshot_id: int
    data_sequence_number: int
    file_sequence_number: int | None
    file: _File


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(_Footprint).decode
_DECODE_OWN = msgspec.msgpack.Decoder(list[_Own]).decode
_DECODE_SUMMARIES = msgspec.msgpack.Decoder(list[_Summary] | None).decode
_DECODE_CHANGES = msgspec.msgpack.Decoder(list[_Entry]).decode


@dataclass(frozen=True, slots=True)
class OwnManifest:
    """A manifest that a snapshot added, with the hashes of its paths; changes stay encoded until asked for."""

    manifest: ManifestFile
    hashes: bytes
    encoded_changes: bytes | None

    def changes(self) -> tuple[ManifestEntry, ...] | None:
        """What the snapshot itself added and removed in the manifest, if the footprint holds it."""
        if self.encoded_changes is None:
            return None
        return tuple([_to_entry(entry) for entry in _DECODE_CHANGES(self.encoded_changes)])

    def entries(self) -> tuple[ManifestEntry, ...] | None:
        """All entries of the manifest, if the footprint holds them."""
        manifest = self.manifest
        if self.encoded_changes is None or manifest.existing_files_count != 0:
            return None
        found = self.changes() or ()
        counted = (manifest.added_files_count or 0) + (manifest.deleted_files_count or 0)
        return found if len(found) == counted else None


def hash_path(path: str) -> bytes:
    """Forty bits of a path: the same in every process, and for all spellings of the path."""
    return hashlib.blake2b(find_stem(path).encode(), digest_size=HASH_BYTES).digest()


def hash_paths(paths: Iterable[str]) -> bytes:
    """The hashes of these paths, one after the other."""
    return b"".join([hash_path(path) for path in paths])


def encode_footprint(own: Iterable[tuple[ManifestFile, bytes, Sequence[ManifestEntry] | None]]) -> bytes:
    """What a snapshot brought: its manifests, each with the hashes of its paths and, where known, all its entries.

    Only the entries of what the snapshot itself added or removed are kept, and only when they are few.
    """
    return _ENCODE([_VERSION, [_encode_own(*one) for one in own]])


def decode_footprint(body: bytes) -> tuple[OwnManifest, ...] | None:
    """The manifests of a footprint; None when it is of a version that we do not know."""
    footprint = _DECODE(body)
    if footprint.version != _VERSION:
        return None
    return tuple(
        [OwnManifest(_to_manifest(o.manifest), o.hashes, o.changes) for o in _DECODE_OWN(footprint.own)]
    )


def _encode_own(
    manifest: ManifestFile, hashes: bytes, entries: Sequence[ManifestEntry] | None
) -> list[object]:
    encoded = None
    if manifest.added_files_count == 0 and manifest.deleted_files_count == 0:
        entries = ()  # merged: whatever it holds was there before
    if entries is not None:
        changes = find_changes(entries, manifest)
        if len(changes) * 200 <= _CHANGES_BYTES_MAX and all(map(_is_plain, changes)):
            encoded = _ENCODE([_from_entry(entry) for entry in changes])
    small = encoded is not None and len(encoded) <= _CHANGES_BYTES_MAX
    return [_from_manifest(manifest), hashes, encoded if small else None]


def _from_manifest(manifest: ManifestFile) -> list[object]:
    values = list(msgspec.structs.astuple(manifest))
    if manifest.partitions is not None:
        values[_PARTITIONS] = [msgspec.structs.astuple(summary) for summary in manifest.partitions]
    return values


def _from_entry(entry: ManifestEntry) -> tuple[object, ...]:
    file = list(msgspec.structs.astuple(entry.file))
    if entry.file.metrics is not None:
        file[_FILE_METRICS] = msgspec.structs.astuple(entry.file.metrics)
    return entry.status, entry.snapshot_id, entry.data_sequence_number, entry.file_sequence_number, file


def _is_plain(entry: ManifestEntry) -> bool:
    return all(type(value) in _PLAIN for _, value in entry.file.partition)


def _to_manifest(manifest: _Manifest) -> ManifestFile:
    values = list(msgspec.structs.astuple(manifest))
    values[_PARTITIONS] = _to_summaries(bytes(manifest.partitions))
    return ManifestFile(*values)


@lru_cache(maxsize=4096)
def _to_summaries(encoded: bytes) -> tuple[FieldSummary, ...] | None:
    """Remembered, because commits into one partition all say the same."""
    found = _DECODE_SUMMARIES(encoded)
    return (
        None
        if found is None
        else tuple([FieldSummary(*msgspec.structs.astuple(summary)) for summary in found])
    )


def _to_entry(entry: _Entry) -> ManifestEntry:
    file = list(msgspec.structs.astuple(entry.file))
    if entry.file.metrics is not None:
        file[_FILE_METRICS] = Metrics(*msgspec.structs.astuple(entry.file.metrics))
    return ManifestEntry(
        entry.status,
        entry.snapshot_id,
        entry.data_sequence_number,
        entry.file_sequence_number,
        ContentFile(*file),
    )
