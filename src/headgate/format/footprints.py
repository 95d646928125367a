"""Footprints: what one snapshot brought, in a few hundred bytes, kept in the store beside its head.

For each manifest that the snapshot added: what its list says about it, a hash of every path in it, and, when they
are few, the entries of what the snapshot itself added or removed. So a window of a thousand commits is judged without
opening a thousand files, and an index of live paths is made again after a restart without reading a manifest. A
footprint is a copy: what it lacks is read from the files. MessagePack; no I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from headgate.core.locations import find_stem
from headgate.core.manifest import (
    ManifestEntry,
    ManifestFile,
)
from headgate.core.value import Record
from headgate.core.window import find_changes

HASH_BYTES = 5
_VERSION = 3  # 1 held all entries of a manifest; 2 hashed each spelling of a path apart
_HEADER = bytes((0x92, _VERSION))  # an array of two, the first of them the version
_CHANGES_BYTES_MAX = 4096
# Partition values that MessagePack gives back as they were.
_PLAIN = frozenset((bool, int, float, str, bytes, type(None)))


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE_CHANGES = msgspec.msgpack.Decoder(tuple[ManifestEntry, ...]).decode


class OwnManifest(Record):
    """A manifest that a snapshot added, with the hashes of its paths; changes stay encoded until asked for."""

    manifest: ManifestFile
    hashes: bytes
    encoded_changes: bytes | None

    def changes(self) -> tuple[ManifestEntry, ...] | None:
        """What the snapshot itself added and removed in the manifest, if the footprint holds it."""
        if self.encoded_changes is None:
            return None
        return _DECODE_CHANGES(self.encoded_changes)

    def entries(self) -> tuple[ManifestEntry, ...] | None:
        """All entries of the manifest, if the footprint holds them."""
        manifest = self.manifest
        if self.encoded_changes is None or manifest.existing_files_count != 0:
            return None
        found = self.changes() or ()
        counted = (manifest.added_files_count or 0) + (manifest.deleted_files_count or 0)
        return found if len(found) == counted else None


class _Footprint(Record):
    version: int
    own: tuple[OwnManifest, ...]


_DECODE = msgspec.msgpack.Decoder(_Footprint).decode


def hash_path(path: str) -> bytes:
    """Forty bits of a path: the same in every process, and for all spellings of the path."""
    return hashlib.blake2b(find_stem(path).encode(), digest_size=HASH_BYTES).digest()


def hash_paths(paths: Iterable[str]) -> bytes:
    """The hashes of these paths, one after the other."""
    return b"".join([hash_path(path) for path in paths])


def encode_appended(manifest: ManifestFile, hashes: bytes, entries: Sequence[ManifestEntry]) -> bytes:
    """As `encode_footprint` of one manifest whose entries are all of files that its snapshot added."""
    return _ENCODE((_VERSION, ((manifest, hashes, _encode_changes(entries)),)))


def encode_footprint(own: Iterable[tuple[ManifestFile, bytes, Sequence[ManifestEntry] | None]]) -> bytes:
    """What a snapshot brought: its manifests, each with the hashes of its paths and, where known, all its entries.

    Only the entries of what the snapshot itself added or removed are kept, and only when they are few.
    """
    return _ENCODE([_VERSION, [_encode_own(*one) for one in own]])


def decode_footprint(body: bytes) -> tuple[OwnManifest, ...] | None:
    """The manifests of a footprint; None when it is of a version that we do not know."""
    return _DECODE(body).own if body.startswith(_HEADER) else None


def _encode_own(
    manifest: ManifestFile, hashes: bytes, entries: Sequence[ManifestEntry] | None
) -> list[object]:
    encoded = None
    if manifest.added_files_count == 0 and manifest.deleted_files_count == 0:
        entries = ()  # merged: whatever it holds was there before
    if entries is not None:
        encoded = _encode_changes(find_changes(entries, manifest))
    return [manifest, hashes, encoded]


def _encode_changes(changes: Sequence[ManifestEntry]) -> bytes | None:
    """The entries of what a snapshot changed, if they are few and come back as they were."""
    if len(changes) * 200 > _CHANGES_BYTES_MAX:
        return None
    for entry in changes:
        for _, value in entry.file.partition:
            if type(value) not in _PLAIN:
                return None
    encoded = _ENCODE(changes)
    return encoded if len(encoded) <= _CHANGES_BYTES_MAX else None
