"""The window: the commits after the base up to the head, and what each of them added and removed.

Read by effects, only as far as a validation asks: which manifests each commit brought (`ReadOwn`, for the whole
window at once), then what it did to files in those that may hold what the validation is about (`ReadChanges`, again
at once). Whoever drives may cache: manifests never change.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Set
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeVar

from headgate.core.manifest import (
    EXISTING,
    ContentFile,
    EntryStatus,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    NewEntry,
)
from headgate.core.manifest_list import ManifestList
from headgate.core.table import Snapshot, TableMetadata
from headgate.core.value import Record
from headgate.errors import InvariantBroken, Unsupported

_Entry = TypeVar("_Entry", ManifestEntry, NewEntry)


class ReadManifestList(Record):
    """Answered by a `ManifestList`."""

    location: str


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """Answered by a tuple of `ManifestEntry`, with column statistics, deleted ones too."""

    manifest: ManifestFile


@dataclass(frozen=True, slots=True)
class ReadOwn:
    """The manifests that each snapshot itself added. Answered by `OwnManifests`: one tuple for each, in order."""

    snapshots: tuple[Snapshot, ...]


@dataclass(frozen=True, slots=True)
class OwnManifests:
    """What snapshots added, in the order asked."""

    of: tuple[tuple[ManifestFile, ...], ...]


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """What each of these manifests says that its own snapshot did. Answered by `ManifestChanges`, in order."""

    manifests: tuple[ManifestFile, ...]


@dataclass(frozen=True, slots=True)
class ManifestChanges:
    """Entries with statistics, of files that the snapshot of the manifest added or removed; others do no harm."""

    of: tuple[tuple[ManifestEntry, ...], ...]


ReadEffect = ReadManifestList | ReadManifest | ReadOwn | ReadChanges
ReadReply = ManifestList | OwnManifests | ManifestChanges | tuple[ManifestEntry, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Snapshots after `base_id`, newest first. Incomplete: walking back from the head did not end at the base."""

    base_id: int | None
    head: Snapshot | None
    snapshots: tuple[Snapshot, ...]
    complete: bool
    base_sequence_number: int

    @property
    def oldest_id(self) -> int | None:
        """The last snapshot that could be walked to."""
        return self.snapshots[-1].snapshot_id if self.snapshots else None

    def without(self, own: Set[int]) -> Window:
        """The same window without these commits: what is left is *theirs*."""
        if not own:
            return self
        return replace(self, snapshots=tuple(s for s in self.snapshots if s.snapshot_id not in own))


@dataclass(frozen=True, slots=True)
class Theirs:
    """A file that a commit in the window added or removed."""

    snapshot: Snapshot
    file: ContentFile
    data_sequence_number: int


def find_window(table: TableMetadata, head: Snapshot | None, base_id: int | None) -> Window:
    """Walk back from the head to the base."""
    base = None if base_id is None else table.find_snapshot(base_id)
    sequence = 0 if base is None else base.sequence_number
    found = [] if head is None or head.snapshot_id == base_id else [head]
    if head is not None and found:
        found.extend(table.walk_back(head.parent_snapshot_id, until=base_id))
    complete = not found or found[-1].parent_snapshot_id == base_id
    return Window(base_id, head, tuple(found), complete, sequence)


def is_ancestor(table: TableMetadata, head: Snapshot | None, snapshot_id: int) -> bool:
    """Whether walking back from the head meets this snapshot."""
    window = find_window(table, head, snapshot_id)
    if head is None:
        return False
    return not window.snapshots or window.snapshots[-1].parent_snapshot_id == snapshot_id


def read_manifests(snapshot: Snapshot) -> Generator[ReadEffect, ReadReply, ManifestList]:
    """The manifests of one snapshot."""
    reply = yield ReadManifestList(find_list(snapshot))
    if not isinstance(reply, ManifestList):
        raise InvariantBroken("invariant broken: a manifest list was not answered")
    return reply


def find_list(snapshot: Snapshot) -> str:
    """Where the manifest list of a snapshot is; some snapshots of v1 have none."""
    if snapshot.manifest_list is None:
        raise Unsupported(
            f"snapshot {snapshot.snapshot_id} has no manifest list; rewrite the table's manifests first"
        )
    return snapshot.manifest_list


def find_own(manifests: ManifestList, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """The manifests of a snapshot that it added itself."""
    return tuple(m for m in manifests if m.added_snapshot_id == snapshot.snapshot_id)


def read_entries(manifest: ManifestFile) -> Generator[ReadEffect, ReadReply, tuple[ManifestEntry, ...]]:
    """The entries of one manifest."""
    reply = yield ReadManifest(manifest)
    if not isinstance(reply, tuple):
        raise InvariantBroken("invariant broken: the entries of a manifest were not answered")
    return reply


def find_changes(entries: Iterable[_Entry], manifest: ManifestFile) -> tuple[_Entry, ...]:
    """The entries of files that the snapshot which added the manifest added or removed."""
    theirs, existing = manifest.added_snapshot_id, EXISTING
    return tuple([e for e in entries if e.snapshot_id == theirs and e.status is not existing])


class WindowFiles:
    """What the commits of a window added and removed, read once and only when asked for."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._operations: frozenset[str | None] | None = None
        self._own: dict[int, tuple[ManifestFile, ...]] = {}
        self._changes: dict[str, tuple[ManifestEntry, ...]] = {}

    def find_operations(self) -> frozenset[str | None]:
        """The operations of the window's commits; None of one that does not say."""
        found = self._operations
        if found is None:
            found = frozenset([s.summary.get("operation") for s in self.window.snapshots])
            self._operations = found
        return found

    def read(
        self,
        *,
        operations: Set[str | None],
        content: ManifestContent,
        status: EntryStatus,
        may_hold: Callable[[ManifestFile], bool] | None = None,
        in_scope: Callable[[ContentFile], bool] | None = None,
    ) -> Generator[ReadEffect, ReadReply, tuple[Theirs, ...]]:
        """Files in scope that commits of these operations added or removed, oldest commit first.

        A manifest that cannot hold any (`may_hold`) is not opened.
        """
        snapshots = self._find_snapshots(operations)
        if not snapshots:
            return ()  # mostly: nothing but appends, and this is about removals
        yield from self._read_own(snapshots)
        own, has = self._own, _HAS[status]
        wanted = [
            (snapshot, manifest)
            for snapshot in snapshots
            for manifest in own[snapshot.snapshot_id]
            if manifest.content is content
            and has(manifest) != 0  # None: not known, in v1
            and (may_hold is None or may_hold(manifest))
        ]
        yield from self._read_changes([manifest for _, manifest in wanted])
        changes = self._changes
        return tuple(
            [
                Theirs(snapshot, entry.file, entry.data_sequence_number)
                for snapshot, manifest in wanted
                for entry in changes[manifest.manifest_path]
                if entry.status is status
                and entry.snapshot_id == snapshot.snapshot_id
                and (in_scope is None or in_scope(entry.file))
            ]
        )

    def _find_snapshots(self, operations: Set[str | None]) -> list[Snapshot]:
        """The commits of these operations, oldest first."""
        present = self.find_operations()
        if operations.isdisjoint(present):
            return []
        oldest_first = reversed(self.window.snapshots)
        if operations >= present:
            return list(oldest_first)
        return [s for s in oldest_first if s.summary.get("operation") in operations]

    def _read_own(self, snapshots: list[Snapshot]) -> Generator[ReadEffect, ReadReply, None]:
        missing = tuple([s for s in snapshots if s.snapshot_id not in self._own])
        if not missing:
            return
        if None in [snapshot.manifest_list for snapshot in missing]:
            for snapshot in missing:
                find_list(snapshot)  # raises
        reply = yield ReadOwn(missing)
        if not isinstance(reply, OwnManifests):
            raise InvariantBroken("invariant broken: the manifests of a window were not answered")
        self._own.update(zip([snapshot.snapshot_id for snapshot in missing], reply.of, strict=True))

    def _read_changes(self, manifests: list[ManifestFile]) -> Generator[ReadEffect, ReadReply, None]:
        missing = tuple([m for m in manifests if m.manifest_path not in self._changes])
        if not missing:
            return
        reply = yield ReadChanges(missing)
        if not isinstance(reply, ManifestChanges):
            raise InvariantBroken("invariant broken: the changes of a window were not answered")
        self._changes.update(zip([manifest.manifest_path for manifest in missing], reply.of, strict=True))


_HAS: dict[EntryStatus, Callable[[ManifestFile], int | None]] = {
    EntryStatus.ADDED: attrgetter("added_files_count"),
    EntryStatus.EXISTING: attrgetter("existing_files_count"),
    EntryStatus.DELETED: attrgetter("deleted_files_count"),
}
