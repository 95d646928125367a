"""Which files of a table nothing reaches, and their end. Deletes only what a load has proved unused.

What is reachable is judged by `core.reach`, as the service does: all snapshots, all kinds of files (data, deletes,
manifests, lists, statistics, metadata), under every spelling of a location, and once more right before anything is
deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
from pyarrow.fs import FileSystem, FileType

from headgate.core.expire import GC_ENABLED
from headgate.core.locations import find_spellings
from headgate.core.manifest import ManifestEntry, ManifestFile
from headgate.core.manifest_list import ManifestList
from headgate.core.reach import FindPaths, Proof, ReachEffect, ReachReply
from headgate.core.table import TableMetadata
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
from headgate.errors import BadInput, NotFound, StorageFailed
from headgate.format.manifests import decode_manifest, decode_manifest_list

Filesystems = Callable[[str], tuple[FileSystem, str]]  # of a location: the file system, and the path in it
Tick = Callable[
    [str, int, int | None], None
]  # what is done, how much of it, and of how much, where that is known
_PATHS = ("write.data.path", "write.metadata.path")
_T = TypeVar("_T")


def silent(what: str, done: int, total: int | None) -> None:
    """Nobody is told."""


@dataclass(frozen=True)
class Seen:
    """A table at one moment, with all its snapshots, and the way to its files."""

    name: str
    metadata: TableMetadata
    metadata_location: str
    filesystem: Filesystems

    @property
    def location(self) -> str:
        """Where the table is: what lies below is its own."""
        return self.metadata.envelope.location.rstrip("/")

    @property
    def locations(self) -> list[str]:
        """Where files of the table are. Those beside its own location it may share with other tables."""
        properties = self.metadata.envelope.properties
        return [self.location, *(properties[name].rstrip("/") for name in _PATHS if name in properties)]

    def check_gc(self) -> None:
        """Refuse to touch the files of a table that shares them."""
        if self.metadata.envelope.properties.get(GC_ENABLED, "true").lower() == "false":
            raise BadInput(
                f"{self.name}: {GC_ENABLED} is false, so its files may belong to others too", field=GC_ENABLED
            )

    def has_inside(self, name: str) -> bool:
        """Whether a file that the table named may be deleted with it: what lies elsewhere may be somebody's."""
        spellings = find_spellings(name)  # the Iceberg jar says `file:/` where we say `file:///`
        return any(one.startswith(f"{location}/") for one in spellings for location in self.locations)


Load = Callable[[], Seen]


@dataclass(frozen=True)
class Deleted:
    """Files that are gone, and why others are not."""

    files: tuple[str, ...]
    failed: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """StorageFailed when a file could not be deleted."""
        for name, why in self.failed.items():
            raise StorageFailed(f"{len(self.failed)} files could not be deleted; the first: {name}: {why}")


def find_unreached(proof: Proof, seen: Seen, reader: Reader) -> list[str]:
    """Those of the suspects that the table as it was seen does not reach."""
    reader.run(proof.look(seen.metadata), lists=len(seen.metadata.snapshots))
    return sorted(proof.unreached() - set(find_spellings(seen.metadata_location)))


def delete_unreached(load: Load, suspects: Iterable[str], reader: Reader, *, tick: Tick = silent) -> Deleted:
    """Delete those of the suspects that the table as it is now does not reach."""
    proof = Proof(suspects)
    find_unreached(proof, load(), reader)
    # The first look may have taken minutes. A second one sees what was committed meanwhile, and takes moments.
    seen = load()
    seen.check_gc()
    unreached = [name for name in find_unreached(proof, seen, reader) if seen.has_inside(name)]
    deleted: list[str] = []
    failed: dict[str, str] = {}
    for number, name in enumerate(unreached, 1):
        try:
            filesystem, path = seen.filesystem(name)
            if filesystem.get_file_info(path).type is FileType.File:
                filesystem.delete_file(path)
        except (OSError, pa.ArrowException) as error:
            failed[name] = str(error)
        else:
            deleted.append(name)
        tick("files deleted", number, len(unreached))
    return Deleted(tuple(deleted), failed)


class Reader:
    """Carries out the reads of `core.reach`; a manifest is read once."""

    def __init__(self, filesystem: Filesystems, *, tick: Tick = silent) -> None:
        self._filesystem, self._tick = filesystem, tick
        self._entries: dict[str, tuple[ManifestEntry, ...]] = {}
        self._named: set[str] = set()
        self._read_count = self._known = 0

    def run(self, conversation: Generator[ReachEffect, ReachReply, _T], *, lists: int = 0) -> _T:
        """Drive a conversation to its end; it will read about so many lists."""
        self._known = self._read_count + lists
        try:
            effect = next(conversation)
            while True:
                reply = self._carry_out(effect)
                self._read_count += 1
                self._tick("lists and manifests read", self._read_count, max(self._known, self._read_count))
                effect = conversation.send(reply)
        except StopIteration as stop:
            found: _T = stop.value
            return found

    def _carry_out(self, effect: ReachEffect) -> ReachReply:
        match effect:
            case ReadManifestList(location=location):
                return self._list(location)
            case ReadManifest(manifest=manifest):
                return self._read(manifest)
            case FindPaths(manifest=manifest, paths=paths):
                live = (entry.file.file_path for entry in self._read(manifest) if entry.is_live)
                return paths.intersection(live)
            case ReadOwn(snapshots=snapshots):
                return OwnManifests(tuple(find_own(self._list(find_list(s)), s) for s in snapshots))
            case ReadChanges(manifests=manifests):
                return ManifestChanges(tuple(map(self._read, manifests)))

    def _list(self, location: str) -> ManifestList:
        found = ManifestList.of(decode_manifest_list(self._load(location), location=location))
        for manifest in found:
            if manifest.manifest_path not in self._named:
                self._named.add(manifest.manifest_path)
                self._known += 1
        return found

    def _read(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        path = manifest.manifest_path
        if path not in self._entries:
            self._entries[path] = tuple(decode_manifest(self._load(path), manifest, location=path))
        return self._entries[path]

    def _load(self, location: str) -> bytes:
        filesystem, path = self._filesystem(location)
        try:
            with filesystem.open_input_file(path) as file:
                found: bytes = file.read()
                return found
        except FileNotFoundError as error:
            raise NotFound(f"File does not exist: {location}", kind="file") from error
        except OSError as error:
            raise StorageFailed(f"{location}: {error}") from error
