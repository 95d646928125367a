"""Footprints: what one snapshot brought, in a few hundred bytes, kept in the store beside its head.

For each manifest that the snapshot added: what its list says about it, a hash of every path in it, and, when they
are few, its entries. So a window of a thousand commits is judged without opening a thousand files, and an index of
live paths is made again after a restart without reading a manifest. A footprint is a copy: what it lacks is read
from the files. MessagePack; no I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import msgspec

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

HASH_BYTES = 5
_VERSION = 1
_ENTRIES_BYTES_MAX = 4096
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(strict=True).decode
# Field by field, in order: `dataclasses.astuple` copies deeply and takes forty times as long.
_MANIFEST = attrgetter(*(field.name for field in fields(ManifestFile)))
_SUMMARY = attrgetter(*(field.name for field in fields(FieldSummary)))
_FILE = attrgetter(*(field.name for field in fields(ContentFile)))
_METRICS = attrgetter(*(field.name for field in fields(Metrics)))
_PARTITIONS, _FILE_METRICS = 13, 15  # their places
_PLAIN = (
    bool,
    int,
    float,
    str,
    bytes,
    type(None),
)  # partition values that MessagePack gives back as they were


@dataclass(frozen=True, slots=True)
class OwnManifest:
    """A manifest that a snapshot added, with the hashes of its paths; `entries` stay encoded until asked for."""

    manifest: ManifestFile
    hashes: bytes
    encoded_entries: bytes | None

    def entries(self) -> tuple[ManifestEntry, ...] | None:
        """All entries of the manifest, if the footprint holds them."""
        if self.encoded_entries is None:
            return None
        return tuple(_to_entry(values) for values in _DECODE(self.encoded_entries))


def hash_path(path: str) -> bytes:
    """Forty bits of a path: the same in every process."""
    return hashlib.blake2b(path.encode(), digest_size=HASH_BYTES).digest()


def hash_paths(paths: Iterable[str]) -> bytes:
    """The hashes of these paths, one after the other."""
    return b"".join(map(hash_path, paths))


def encode_footprint(own: Iterable[tuple[ManifestFile, bytes, Sequence[ManifestEntry] | None]]) -> bytes:
    """What a snapshot brought: its manifests, each with the hashes of its paths and, where known, all its entries."""
    return _ENCODE([_VERSION, [_encode_own(*one) for one in own]])


def decode_footprint(body: bytes) -> tuple[OwnManifest, ...] | None:
    """The manifests of a footprint; None when it is of a version that we do not know."""
    version, own = _DECODE(body)
    if version != _VERSION:
        return None
    return tuple(OwnManifest(_to_manifest(values), hashes, entries) for values, hashes, entries in own)


def _encode_own(
    manifest: ManifestFile, hashes: bytes, entries: Sequence[ManifestEntry] | None
) -> list[object]:
    encoded = None
    if entries is not None and len(entries) * 200 <= _ENTRIES_BYTES_MAX and all(map(_is_plain, entries)):
        encoded = _ENCODE([_from_entry(entry) for entry in entries])
    small = encoded is not None and len(encoded) <= _ENTRIES_BYTES_MAX
    return [_from_manifest(manifest), hashes, encoded if small else None]


def _from_manifest(manifest: ManifestFile) -> list[object]:
    values = list(_MANIFEST(manifest))
    if manifest.partitions is not None:
        values[_PARTITIONS] = [_SUMMARY(summary) for summary in manifest.partitions]
    return values


def _from_entry(entry: ManifestEntry) -> tuple[object, ...]:
    file = list(_FILE(entry.file))
    if entry.file.metrics is not None:
        file[_FILE_METRICS] = _METRICS(entry.file.metrics)
    return entry.status, entry.snapshot_id, entry.data_sequence_number, entry.file_sequence_number, file


def _is_plain(entry: ManifestEntry) -> bool:
    return all(type(value) in _PLAIN for _, value in entry.file.partition)


def _to_manifest(values: list[Any]) -> ManifestFile:
    values[3] = ManifestContent(values[3])
    if values[_PARTITIONS] is not None:
        values[_PARTITIONS] = tuple(FieldSummary(*summary) for summary in values[_PARTITIONS])
    return ManifestFile(*values)


def _to_entry(values: list[Any]) -> ManifestEntry:
    status, snapshot_id, data_number, file_number, file = values
    file[0] = FileContent(file[0])
    file[4] = tuple((id_, value) for id_, value in file[4])
    for place in (7, 14):  # equality ids, split offsets
        file[place] = None if file[place] is None else tuple(file[place])
    file[_FILE_METRICS] = None if file[_FILE_METRICS] is None else Metrics(*file[_FILE_METRICS])
    return ManifestEntry(EntryStatus(status), snapshot_id, data_number, file_number, ContentFile(*file))
