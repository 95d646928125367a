"""Is this path live? One index of paths for all manifests of the process, filled as lists are asked about.

The index says "perhaps" or "certainly not" (see `path_index`); who finds a manifest here reads it to be sure. It fills
from footprints or, where there is none, from the files. Over its limit it is emptied, and fills again. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from headgate.core.live import FindLive
from headgate.core.manifest import ManifestEntry, ManifestFile
from headgate.core.manifest_list import Block, ManifestList, has_live_files
from headgate.format.footprints import decode_footprint, hash_paths
from headgate.service.path_index import AT_ONCE_BYTES, PathIndex, merge, sort_hashes

# Footprints of these snapshots, of those that the store has; the caller knows whose they are.
LoadFootprints = Callable[[Sequence[int]], Mapping[int, bytes]]


class LivePaths:
    """The index, and what of which lists is in it."""

    def __init__(
        self, *, limit_bytes: int, read_entries: Callable[[ManifestFile], tuple[ManifestEntry, ...]]
    ) -> None:
        self._limit_bytes, self._read_entries = limit_bytes, read_entries
        self._lock = threading.Lock()
        self._paths = PathIndex()
        self._filling = object()  # of the index: blocks, and lists, with this note are in it

    @property
    def size_bytes(self) -> int:
        """How much memory it takes, roughly."""
        return self._paths.size_bytes

    def add(self, manifest_path: str, hashes: bytes) -> None:
        """A manifest with these paths was written here. Nobody waits for one of many paths, but who adds it."""
        if len(hashes) > AT_ONCE_BYTES:
            self._add_large(manifest_path, hashes)
            return
        with self._lock:
            if self._paths.add(manifest_path, hashes):
                self._filling = object()

    def _add_large(self, manifest_path: str, hashes: bytes) -> None:
        with self._lock:
            if manifest_path in self._paths:
                return
            ordinal, is_emptied = self._paths.reserve(manifest_path)
            if is_emptied:
                self._filling = object()
            filling = self._filling
        numbers = sort_hashes(hashes, ordinal)
        with self._lock:
            if self._filling is not filling:
                return  # emptied meanwhile: it fills again as it is asked
            self._paths.put(manifest_path, ordinal, numbers)
            crowd = self._paths.find_crowd()
        while crowd:
            merged = merge(crowd)
            with self._lock:
                is_replaced = self._filling is filling and self._paths.replace(crowd, merged)
                crowd = self._paths.find_crowd() if is_replaced else ()

    def append(
        self, listed: ManifestList, manifest_path: str, hashes: bytes, *, parent: ManifestList
    ) -> None:
        """As `add`, of the one manifest that a list has and its parent has not: where that was all here, so is the list."""
        with self._lock:
            if self._paths.add(manifest_path, hashes):
                self._filling = object()
            elif parent.notes.get("indexed") is self._filling:
                listed.notes["indexed"] = self._filling

    def holds_none(self, manifests: ManifestList, hashes: bytes) -> bool:
        """Whether it is certain at once that no path of these hashes is live; False: somebody has to look closer."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            paths = self._paths
            if manifests.notes.get("indexed") is not self._filling and not self._is_indexed(manifests):
                return False
            return paths.size_bytes <= self._limit_bytes and not paths.may_hold(hashes)
        finally:
            self._lock.release()

    def _is_indexed(self, manifests: ManifestList) -> bool:
        """With the lock held: whether all of a list is in the index; noted, of its blocks too."""
        for block in manifests.blocks:
            if block.notes.get("indexed") is not self._filling:
                if any(one.manifest_path not in self._paths for one in block.manifests):
                    return False
                block.notes["indexed"] = self._filling
        manifests.notes["indexed"] = self._filling
        return True

    def look_up(self, wanted: FindLive, footprints: LoadFootprints) -> dict[str, list[str]]:
        """Which manifests may list the paths, by an index that holds the whole list at the moment of the look."""
        with self._lock:
            if self._paths.size_bytes > self._limit_bytes:
                self._paths.clear()
                self._filling = object()
        while True:
            self._fill(wanted.manifests, footprints)
            with self._lock:  # another table may have emptied the index since
                if not self._find_new(wanted.manifests)[0]:
                    return self._paths.find(sorted(wanted.paths))

    def _fill(self, manifests: ManifestList, footprints: LoadFootprints) -> None:
        """Have every manifest of the list in the index, unless it is emptied meanwhile.

        Blocks are shared, so few are new.
        """
        with self._lock:
            filling = self._filling
            blocks, new = self._find_new(manifests)
        if not blocks:
            return
        by_snapshot: dict[int, list[ManifestFile]] = {}
        for manifest in new:
            if has_live_files(manifest):
                by_snapshot.setdefault(manifest.added_snapshot_id, []).append(manifest)
        hashes = self._find_hashes(by_snapshot, footprints)
        for manifest in new:
            if manifest.manifest_path in hashes:
                self.add(
                    manifest.manifest_path, hashes[manifest.manifest_path]
                )  # one by one: others wait for this
        with self._lock:
            if self._filling is filling:
                for block in blocks:
                    block.notes["indexed"] = filling

    def _find_new(self, manifests: ManifestList) -> tuple[list[Block], list[ManifestFile]]:
        """With the lock held: blocks that were not looked through, and manifests in them that are not indexed."""
        if manifests.notes.get("indexed") is self._filling:
            return [], []
        blocks = [block for block in manifests.blocks if block.notes.get("indexed") is not self._filling]
        return blocks, [m for b in blocks for m in b.manifests if m.manifest_path not in self._paths]

    def _find_hashes(
        self, by_snapshot: Mapping[int, list[ManifestFile]], footprints: LoadFootprints
    ) -> dict[str, bytes]:
        hashes: dict[str, bytes] = {}
        bodies = footprints(list(by_snapshot)) if by_snapshot else {}
        for snapshot_id, manifests in by_snapshot.items():
            body = bodies.get(snapshot_id)
            known = () if body is None else decode_footprint(body) or ()
            by_path = {own.manifest.manifest_path: own.hashes for own in known}
            for manifest in manifests:
                path = manifest.manifest_path
                found = by_path.get(path)
                if found is None:
                    found = hash_paths(entry.file.file_path for entry in self._read_entries(manifest))
                hashes[path] = found
        return hashes
