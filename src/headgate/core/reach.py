"""Which files snapshots reach: what expired ones leave behind, and what of it is still in use. Pure.

Two questions, asked by effects. `find_left_behind` is asked before snapshots go, and costs what they changed: it
looks at their manifest lists, at those of the snapshots next to them, and at the manifests that were dropped or
written between. Its answer is a suspicion. `Proof` is asked against the head of the moment before anything is
deleted: it looks at every snapshot there is, and every manifest, as Java's `ReachableFileCleanup` does.

Nothing is lost between the two. A suspect that turns out to be in use is forgotten; the snapshot that uses it will
name it again when its own time comes.

Engines spell one location in several ways (`file:/a`, `file:///a`), so every comparison is over all spellings.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass

from headgate.core.locations import find_spellings
from headgate.core.manifest import ManifestFile
from headgate.core.manifest_list import has_live_files
from headgate.core.table import Snapshot, TableMetadata
from headgate.core.vetting import statistics_paths
from headgate.core.window import ReadEffect, ReadReply, read_entries, read_manifests

_NEIGHBOURS_MAX = 16  # behind the last expired one; as many branches may be written in turns
_BETWEEN_MAX = 2


@dataclass(frozen=True, slots=True)
class FindPaths:
    """Which of these paths are live in this manifest? Answered by a frozenset of them."""

    manifest: ManifestFile
    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What snapshots leave when they go: files, contents first; and snapshots that brought no manifest still in use."""

    files: tuple[str, ...]
    forgotten: tuple[int, ...]


ReachEffect = ReadEffect | FindPaths
ReachReply = ReadReply | frozenset[str]


def find_left_behind(
    table: TableMetadata, expired: Collection[int]
) -> Generator[ReachEffect, ReachReply, LeftBehind]:
    """What only the expired snapshots seem to reach."""
    gone = [snapshot for id_ in expired if (snapshot := table.find_snapshot(id_)) is not None]
    neighbours = list(_neighbours(table, frozenset(expired)))
    kept = yield from _manifests_of(neighbours)
    reached = yield from _manifests_of(gone)
    dropped = {path: manifest for path, manifest in reached.items() if path not in kept}
    contents = yield from _live_in(dropped.values())
    if contents:
        # What a dropped manifest held was carried on by whoever dropped it, into a manifest of its own.
        writers = {snapshot.snapshot_id for snapshot in (*gone, *neighbours)}
        carriers = [m for m in kept.values() if m.added_snapshot_id in writers and _carries(m)]
        carried = yield from _live_in(carriers)
        contents -= carried
    lists = {snapshot.manifest_list for snapshot in gone if snapshot.manifest_list is not None}
    lists -= {snapshot.manifest_list for snapshot in neighbours}
    files = (*sorted(contents), *sorted(dropped), *sorted(lists), *sorted(_statistics(table, expired)))
    bringers = {*expired, *(manifest.added_snapshot_id for manifest in dropped.values())}
    bringers -= {manifest.added_snapshot_id for manifest in kept.values()}
    return LeftBehind(files, tuple(sorted(i for i in bringers if i in expired or i not in table.snapshots)))


class Proof:
    """Whether files may be deleted: shown heads of a table, it strikes off every suspect that one of them uses.

    What an earlier look has read is not read again, so a second look, right before files are deleted, costs only
    what was committed meanwhile.
    """

    def __init__(self, suspects: Iterable[str]) -> None:
        self._open: dict[str, set[str]] = {}  # a spelling leads to the suspects it may be
        for suspect in suspects:
            for spelling in find_spellings(suspect):
                self._open.setdefault(spelling, set()).add(suspect)
        self._snapshots: set[int] = set()
        self._manifests: set[str] = set()

    def unreached(self) -> frozenset[str]:
        """The suspects that nothing seen so far uses."""
        return frozenset().union(*self._open.values())

    def look(self, table: TableMetadata) -> Generator[ReachEffect, ReachReply, None]:
        """Strike off what the table's metadata names, and what any of its snapshots reaches."""
        self._meet(statistics_paths(table))
        self._meet(entry.metadata_file for entry in table.envelope.metadata_log)
        new: list[ManifestFile] = []
        for snapshot in _unseen(table, self._snapshots):
            if not self._open:
                return
            if snapshot.manifest_list is None:  # v1 without a list: nobody can tell, so all of it is in use
                self._open.clear()
                return
            self._meet((snapshot.manifest_list,))
            for manifest in (yield from read_manifests(snapshot)):
                if manifest.manifest_path not in self._manifests:
                    self._manifests.add(manifest.manifest_path)
                    new.append(manifest)
        self._meet(manifest.manifest_path for manifest in new)
        wanted = frozenset(self._open)
        for manifest in filter(has_live_files, new):
            if not wanted:
                return
            found = yield FindPaths(manifest, wanted)
            if isinstance(found, frozenset) and found:
                self._meet(found)
                wanted = frozenset(self._open)

    def _meet(self, paths: Iterable[str]) -> None:
        for path in paths:
            for suspect in self._open.pop(path, ()):
                for spelling in find_spellings(suspect):
                    self._open.pop(spelling, None)


def _unseen(table: TableMetadata, seen: set[int]) -> Iterator[Snapshot]:
    for item in table.snapshots:
        if item.key not in seen and (snapshot := table.find_snapshot(item.key)) is not None:
            seen.add(item.key)
            yield snapshot


def _neighbours(table: TableMetadata, expired: frozenset[int]) -> Iterator[Snapshot]:
    """Snapshots that most likely share files with the expired: the next ones in the log, and those of refs."""
    wanted = {ref.snapshot_id for ref in table.envelope.refs.values()} - expired
    left, following = set(expired), 0
    for item in table.snapshots:
        if item.key in left:
            left.discard(item.key)
            following = 0
        elif len(left) < len(expired) and following < (_BETWEEN_MAX if left else _NEIGHBOURS_MAX):
            wanted.add(item.key)
            following += 1
        elif not left:
            break
    for id_ in sorted(wanted):
        if (snapshot := table.find_snapshot(id_)) is not None:
            yield snapshot


def _manifests_of(
    snapshots: Iterable[Snapshot],
) -> Generator[ReadEffect, ReadReply, dict[str, ManifestFile]]:
    """By path; snapshots of v1 without a list are left out, and so are never found to leave anything behind."""
    found: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        if snapshot.manifest_list is not None:
            for manifest in (yield from read_manifests(snapshot)):
                found.setdefault(manifest.manifest_path, manifest)
    return found


def _live_in(manifests: Iterable[ManifestFile]) -> Generator[ReadEffect, ReadReply, set[str]]:
    found: set[str] = set()
    for manifest in manifests:
        if has_live_files(manifest):
            entries = yield from read_entries(manifest)
            found.update(entry.file.file_path for entry in entries if entry.is_live)
    return found


def _carries(manifest: ManifestFile) -> bool:
    return manifest.existing_files_count != 0  # unknown in v1


def _statistics(table: TableMetadata, expired: Collection[int]) -> set[str]:
    envelope = table.envelope
    every = [(s.snapshot_id, s.statistics_path) for s in envelope.statistics]
    every += [(s.snapshot_id, s.statistics_path) for s in envelope.partition_statistics]
    kept = {path for id_, path in every if id_ not in expired}
    return {path for id_, path in every if id_ in expired} - kept
