"""Entries of manifests as they are kept in memory: as a reader sees them, and what they take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from headgate.core.manifest import (
    ADDED,
    DATA_MANIFEST,
    DELETED,
    ContentFile,
    ManifestEntry,
    ManifestFile,
    NewEntry,
)
from headgate.core.value import Record
from headgate.format.manifest_encode import EncodedFile

_ENTRY_BYTES = 1200  # what an entry without statistics takes in memory, roughly
_STATISTIC_BYTES = 90  # a number or a bound in its mapping; a wide table has thousands of them for each file
_DECODED_TIMES = 12  # what a number or a bound takes in memory, of what it takes encoded; with that itself
_COUNTED_MAX = 64  # entries of one manifest are much alike: of many, some are counted


class CachedEntries:
    """The entries of a manifest; which of them are live at a path is found out when someone asks."""

    __slots__ = ("_live", "entries")

    def __init__(self, entries: tuple[ManifestEntry, ...]) -> None:
        self.entries = entries
        self._live: dict[str, tuple[ManifestEntry, ...]] | None = None

    def find_live(self, path: str) -> tuple[ManifestEntry, ...]:
        """The live entries at a path: one, or several vectors of one file."""
        if self._live is None:
            live: dict[str, tuple[ManifestEntry, ...]] = {}
            for entry in self.entries:
                if entry.is_live:
                    live[entry.file.file_path] = (*live.get(entry.file.file_path, ()), entry)
            self._live = live
        return self._live.get(path, ())


class Written(Record):
    """A manifest written here: its entries, as they were written or, where that is known already, as they are read.

    Of a merged one, whose blocks were copied, the bytes are kept instead.
    """

    hashes: bytes
    size_bytes: int  # what it takes in memory, roughly
    entries: tuple[NewEntry, ...] = ()
    files: tuple[EncodedFile, ...] = ()
    data: bytes | None = None
    listed: ManifestFile | None = None  # what its list says of it, when `found` are its entries
    found: tuple[ManifestEntry, ...] = ()

    def read(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...] | None:
        """Its entries, as a reader of the manifest sees them; None when its bytes have to be read."""
        if self.listed is not None:  # another list may say something else of it
            return self.found if self.listed is manifest or self.listed == manifest else None
        return inherit(self.entries, manifest) if self.data is None else None


def keep_written(hashes: bytes, entries: tuple[NewEntry, ...], files: tuple[EncodedFile, ...]) -> Written:
    """What is kept of a manifest that was made of these entries."""
    return Written(hashes, len(hashes) + _count_encoded(files), entries, files)


def keep_merged(hashes: bytes, data: bytes) -> Written:
    """What is kept of a manifest whose blocks were copied."""
    return Written(hashes, len(hashes) + len(data), data=data)


def keep_added(
    hashes: bytes, added: Sequence[ContentFile], files: tuple[EncodedFile, ...], listed: ManifestFile
) -> Written:
    """What is kept of a manifest of files that its snapshot added, and that inherit all their numbers."""
    found: list[ManifestEntry] = []
    by, number, row_id = listed.added_snapshot_id, listed.sequence_number, listed.first_row_id
    for file in added:
        if row_id is not None:
            file, row_id = replace(file, first_row_id=row_id), row_id + file.record_count
        found.append(ManifestEntry(ADDED, by, number, number, file))
    size_bytes = len(hashes) + _count_encoded(files)
    return Written(hashes, size_bytes, (), files, None, listed, tuple(found))


def _count_encoded(files: Sequence[EncodedFile]) -> int:
    """What entries take in memory, roughly: by their files' encoded bytes, as looking through statistics takes longer."""
    size_bytes = 0
    for file in files:
        size_bytes += _ENTRY_BYTES + _DECODED_TIMES * (len(file.begin) + len(file.end))
    return size_bytes


def inherit(entries: Iterable[NewEntry], manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
    """Entries that were written, as a reader of the manifest sees them: with the numbers that they inherit."""
    found: list[ManifestEntry] = []
    next_row_id = manifest.first_row_id if manifest.content is DATA_MANIFEST else None
    for entry in entries:
        is_added = entry.status is ADDED
        inherited = manifest.sequence_number if is_added or manifest.sequence_number == 0 else None
        file, live = entry.file, entry.status is not DELETED
        if manifest.first_row_id is None:
            file = file if file.first_row_id is None else replace(file, first_row_id=None)
        elif file.first_row_id is None and live and next_row_id is not None:
            file, next_row_id = replace(file, first_row_id=next_row_id), next_row_id + file.record_count
        number = entry.data_sequence_number
        number = inherited if number is None else number
        file_number = entry.file_sequence_number
        file_number = inherited if file_number is None else file_number
        found.append(ManifestEntry(entry.status, entry.snapshot_id, number or 0, file_number, file))
    return tuple(found)


def count_bytes(entries: Sequence[ManifestEntry]) -> int:
    """What entries take in memory, roughly."""
    step = len(entries) // _COUNTED_MAX + 1
    counted = entries[::step]
    return sum(map(_count_bytes, counted)) * len(entries) // max(1, len(counted))


def _count_bytes(entry: ManifestEntry) -> int:
    """What an entry takes in memory, roughly."""
    metrics = entry.file.metrics
    if metrics is None:
        return _ENTRY_BYTES
    counts = (metrics.column_sizes, metrics.value_counts, metrics.null_value_counts, metrics.nan_value_counts)
    bounds = [found for found in (metrics.lower_bounds, metrics.upper_bounds) if found is not None]
    statistics = sum(len(found) for found in counts if found is not None) + sum(map(len, bounds))
    bound_bytes = sum(sum(map(len, found.values())) for found in bounds)
    return _ENTRY_BYTES + statistics * _STATISTIC_BYTES + bound_bytes
