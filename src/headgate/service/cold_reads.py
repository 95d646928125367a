"""Reads of manifests for background work: past the caches of the requests, and slow on purpose.

What upkeep looks at is old, and must not push out what commits need; and it can wait, so every read is followed
by a pause as long as several such reads. Which paths are live in a manifest is remembered as one hash each, within
a bound: a manifest never changes, so it is read once however often it is asked about. Not thread-safe.
"""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Generator
from typing import TypeVar

from headgate.core.manifest import ManifestEntry, ManifestFile
from headgate.core.manifest_list import ManifestList
from headgate.core.reach import FindPaths, ReachEffect, ReachReply
from headgate.core.window import (
    ManifestChanges,
    OwnManifests,
    ReadChanges,
    ReadManifest,
    ReadManifestList,
    ReadOwn,
    find_list,
    find_own,
)
from headgate.files.base import Files
from headgate.format.manifests import decode_manifest, decode_manifest_list

_BYTES_MAX = 256 * 1024 * 1024
_HASHES_MAX = 4_000_000  # of eight bytes, of all tables
_PAUSE_PER_WORK = 4.0  # a fifth of one thread's time at most is spent here

_T = TypeVar("_T")


class ColdReader:
    """Carries out the reads of `core.reach`. `pause_s` is called with how long to leave others alone."""

    def __init__(self, files: Files, *, pause_s: Callable[[float], None]) -> None:
        self._files = files
        self._pause_s = pause_s
        self._hashes: OrderedDict[str, array[int]] = OrderedDict()
        self._count = 0

    def run(self, conversation: Generator[ReachEffect, ReachReply, _T]) -> _T:
        """Drive a conversation to its end; raises what a read raises."""
        try:
            effect = next(conversation)
            while True:
                started = time.perf_counter()
                reply = self._carry_out(effect)
                self._pause_s(_PAUSE_PER_WORK * (time.perf_counter() - started))
                effect = conversation.send(reply)
        except StopIteration as stop:
            found: _T = stop.value
            return found

    def _carry_out(self, effect: ReachEffect) -> ReachReply:
        match effect:
            case ReadManifestList(location=location):
                return self._list(location)
            case ReadManifest(manifest=manifest):
                return self._entries(manifest)
            case FindPaths(manifest=manifest, paths=paths):
                return self._find(manifest, paths)
            case ReadOwn(snapshots=snapshots):
                return OwnManifests(tuple(find_own(self._list(find_list(s)), s) for s in snapshots))
            case ReadChanges(manifests=manifests):
                return ManifestChanges(tuple(map(self._entries, manifests)))

    def _list(self, location: str) -> ManifestList:
        data = self._files.read(location, limit_bytes=_BYTES_MAX)
        return ManifestList.of(decode_manifest_list(data, location=location))

    def _entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        location = manifest.manifest_path
        data = self._files.read(location, limit_bytes=_BYTES_MAX)
        return tuple(decode_manifest(data, manifest, location=location))

    def _find(self, manifest: ManifestFile, paths: frozenset[str]) -> frozenset[str]:
        known = self._hashes.get(manifest.manifest_path)
        if known is not None:
            self._hashes.move_to_end(manifest.manifest_path)
            if set(map(hash, paths)).isdisjoint(known):
                return frozenset()
        # Two paths may share a hash, so a hit is looked up in the manifest itself.
        live = [entry.file.file_path for entry in self._entries(manifest) if entry.is_live]
        if known is None:
            self._remember(manifest.manifest_path, array("q", map(hash, live)))
        return paths.intersection(live)

    def _remember(self, path: str, hashes: array[int]) -> None:
        self._hashes[path] = hashes
        self._count += len(hashes)
        while self._count > _HASHES_MAX and len(self._hashes) > 1:
            self._count -= len(self._hashes.popitem(last=False)[1])
