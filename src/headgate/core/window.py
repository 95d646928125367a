"""The window: the commits after the base up to the head, and what each of them added and removed.

Read by effects (`ReadManifestList`, `ReadManifest`), only as far as a validation asks. Whoever drives may cache:
manifests never change.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from headgate.core.manifest import ContentFile, EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from headgate.core.table import Snapshot, TableMetadata
from headgate.errors import InvariantBroken, Unsupported


@dataclass(frozen=True, slots=True)
class ReadManifestList:
    """Answered by a tuple of `ManifestFile`."""

    location: str


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """Answered by a tuple of `ManifestEntry`, with column statistics, deleted ones too."""

    manifest: ManifestFile


ReadEffect = ReadManifestList | ReadManifest
ReadReply = tuple[ManifestFile, ...] | tuple[ManifestEntry, ...]


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
    found: list[Snapshot] = []
    current = head
    while current is not None and current.snapshot_id != base_id:
        found.append(current)
        if len(found) > len(table.snapshots):
            raise InvariantBroken("invariant broken: the history of a table has a cycle")
        parent = current.parent_snapshot_id
        current = None if parent is None else table.find_snapshot(parent)
    complete = not found or found[-1].parent_snapshot_id == base_id
    return Window(base_id, head, tuple(found), complete, sequence)


def is_ancestor(table: TableMetadata, head: Snapshot | None, snapshot_id: int) -> bool:
    """Whether walking back from the head meets this snapshot."""
    window = find_window(table, head, snapshot_id)
    if head is None:
        return False
    return not window.snapshots or window.snapshots[-1].parent_snapshot_id == snapshot_id


def read_manifests(snapshot: Snapshot) -> Generator[ReadEffect, ReadReply, tuple[ManifestFile, ...]]:
    """The manifests of one snapshot."""
    if snapshot.manifest_list is None:
        raise Unsupported(
            f"snapshot {snapshot.snapshot_id} has no manifest list; rewrite the table's manifests first"
        )
    reply = yield ReadManifestList(snapshot.manifest_list)
    return tuple(item for item in reply if isinstance(item, ManifestFile))


def read_entries(manifest: ManifestFile) -> Generator[ReadEffect, ReadReply, tuple[ManifestEntry, ...]]:
    """The entries of one manifest."""
    reply = yield ReadManifest(manifest)
    return tuple(item for item in reply if isinstance(item, ManifestEntry))


class WindowFiles:
    """What the commits of a window added and removed, read once and only when asked for."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._entries: dict[tuple[int, ManifestContent], tuple[ManifestEntry, ...]] = {}

    def read(
        self, *, operations: frozenset[str], content: ManifestContent, status: EntryStatus
    ) -> Generator[ReadEffect, ReadReply, tuple[Theirs, ...]]:
        """Files that commits of these operations added or removed, oldest commit first."""
        found: list[Theirs] = []
        for snapshot in reversed(self.window.snapshots):
            if snapshot.summary.get("operation") not in operations:
                continue
            entries = yield from self._of(snapshot, content)
            found.extend(
                Theirs(snapshot, entry.file, entry.data_sequence_number)
                for entry in entries
                if entry.status is status and entry.snapshot_id == snapshot.snapshot_id
            )
        return tuple(found)

    def _of(
        self, snapshot: Snapshot, content: ManifestContent
    ) -> Generator[ReadEffect, ReadReply, tuple[ManifestEntry, ...]]:
        key = (snapshot.snapshot_id, content)
        if key not in self._entries:
            entries: list[ManifestEntry] = []
            for manifest in (yield from read_manifests(snapshot)):
                if manifest.content is content and manifest.added_snapshot_id == snapshot.snapshot_id:
                    entries.extend((yield from read_entries(manifest)))
            self._entries[key] = tuple(entries)
        return self._entries[key]
