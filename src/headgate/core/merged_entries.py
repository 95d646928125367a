"""What a merged manifest holds: the entries of those it replaces, as state. Values only, no I/O.

Changes neither which files are live nor their numbers. A file that is live twice is a finding, never a choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.core.manifest import EXISTING, EntryStatus, ManifestEntry, NewEntry
from headgate.core.manifest_merge import AddedTwice


def merge_entries(
    sources: Sequence[Sequence[ManifestEntry]], *, snapshot_id: int
) -> tuple[tuple[NewEntry, ...], ...] | AddedTwice:
    """The entries of a manifest that replaces these, source by source, when snapshot `snapshot_id` writes it.

    What that snapshot added or removed stays said; what older ones did becomes state. A file that it both added and
    removed was never there. A removed file and a live one of the same path, but another number, are two files.
    """
    undone = _find_undone(sources, snapshot_id)
    live: set[tuple[str, int | None]] = set()
    twice: set[str] = set()
    merged: list[tuple[NewEntry, ...]] = []
    for entries in sources:
        kept: list[NewEntry] = []
        for entry in entries:
            file, ours = entry.file, entry.snapshot_id == snapshot_id
            if entry.is_live:
                if ours and (file.identity, entry.data_sequence_number) in undone:
                    continue
                if file.identity in live:
                    twice.add(file.file_path)
                live.add(file.identity)
            elif not ours or (file.identity, entry.data_sequence_number) in undone:
                continue
            status = entry.status if ours else EXISTING
            numbers = (entry.data_sequence_number, entry.file_sequence_number)
            kept.append(NewEntry(status, file, entry.snapshot_id, *numbers))
        merged.append(tuple(kept))
    return AddedTwice(tuple(sorted(twice))) if twice else tuple(merged)


def _find_undone(
    sources: Iterable[Iterable[ManifestEntry]], snapshot_id: int
) -> set[tuple[tuple[str, int | None], int]]:
    """Files that this snapshot added and removed again."""
    found: dict[EntryStatus, set[tuple[tuple[str, int | None], int]]] = {s: set() for s in EntryStatus}
    for entries in sources:
        for entry in entries:
            if entry.snapshot_id == snapshot_id:
                found[entry.status].add((entry.file.identity, entry.data_sequence_number))
    return found[EntryStatus.ADDED] & found[EntryStatus.DELETED]
