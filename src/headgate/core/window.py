"""The window: the commits after the base up to the head, and what each of them added and removed.

Read by effects, only as far as a validation asks: which manifests each commit brought (`ReadOwn`, for the whole
window at once), then the entries of those that may hold what the validation is about. Whoever drives may cache:
manifests never change.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from headgate.core.manifest import ContentFile, EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from headgate.core.manifest_list import ManifestList
from headgate.core.table import Snapshot, TableMetadata
from headgate.errors import InvariantBroken, Unsupported


@dataclass(frozen=True, slots=True)
class ReadManifestList:
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


ReadEffect = ReadManifestList | ReadManifest | ReadOwn
ReadReply = ManifestList | OwnManifests | tuple[ManifestEntry, ...]


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


class WindowFiles:
    """What the commits of a window added and removed, read once and only when asked for."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._own: dict[int, tuple[ManifestFile, ...]] = {}
        self._entries: dict[str, tuple[ManifestEntry, ...]] = {}

    def read(
        self,
        *,
        operations: frozenset[str],
        content: ManifestContent,
        status: EntryStatus,
        may_hold: Callable[[ManifestFile], bool] | None = None,
    ) -> Generator[ReadEffect, ReadReply, tuple[Theirs, ...]]:
        """Files that commits of these operations added or removed, oldest commit first.

        A manifest that cannot hold any (`may_hold`) is not opened, so files may be missing that it rules out.
        """
        found: list[Theirs] = []
        snapshots = [s for s in reversed(self.window.snapshots) if s.summary.get("operation") in operations]
        yield from self._read_own(snapshots)
        for snapshot in snapshots:
            for manifest in self._own[snapshot.snapshot_id]:
                if manifest.content is not content or not _has(manifest, status):
                    continue
                if may_hold is not None and not may_hold(manifest):
                    continue
                entries = yield from self._read_entries(manifest)
                found.extend(
                    Theirs(snapshot, entry.file, entry.data_sequence_number)
                    for entry in entries
                    if entry.status is status and entry.snapshot_id == snapshot.snapshot_id
                )
        return tuple(found)

    def _read_own(self, snapshots: list[Snapshot]) -> Generator[ReadEffect, ReadReply, None]:
        missing = tuple(s for s in snapshots if s.snapshot_id not in self._own)
        if not missing:
            return
        for snapshot in missing:
            find_list(snapshot)  # raises
        reply = yield ReadOwn(missing)
        if not isinstance(reply, OwnManifests):
            raise InvariantBroken("invariant broken: the manifests of a window were not answered")
        for snapshot, own in zip(missing, reply.of, strict=True):
            self._own[snapshot.snapshot_id] = own

    def _read_entries(
        self, manifest: ManifestFile
    ) -> Generator[ReadEffect, ReadReply, tuple[ManifestEntry, ...]]:
        path = manifest.manifest_path
        if path not in self._entries:
            self._entries[path] = yield from read_entries(manifest)
        return self._entries[path]


def _has(manifest: ManifestFile, status: EntryStatus) -> bool:
    """Whether a manifest may have entries of this status; counts may be unknown in v1."""
    counts = {
        EntryStatus.ADDED: manifest.added_files_count,
        EntryStatus.EXISTING: manifest.existing_files_count,
        EntryStatus.DELETED: manifest.deleted_files_count,
    }
    return counts[status] != 0
