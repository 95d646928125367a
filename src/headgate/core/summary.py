"""Snapshot summaries: what a change added and removed, and the totals after it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headgate.core.manifest import DATA_FILE, ContentFile, FileContent
from headgate.core.taken import partition_of
from headgate.core.value import LONG_MAX

# Totals of the specification, with the counters that move them.
_TOTALS = (
    ("total-records", "added-records", "deleted-records"),
    ("total-files-size", "added-files-size", "removed-files-size"),
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
    ("total-equality-deletes", "added-equality-deletes", "removed-equality-deletes"),
)
_TOTAL_NAMES = tuple([total for total, _, _ in _TOTALS])


def count_changes(added: Iterable[ContentFile], removed: Iterable[ContentFile]) -> dict[str, int]:
    """Counters of a change; those that are zero may be left out."""
    counts: dict[str, int] = {}
    partitions = set()
    for files, is_added in ((added, True), (removed, False)):
        for file in files:
            partitions.add(partition_of(file))
            for name, count in _counters(file, added=is_added):
                counts[name] = counts.get(name, 0) + count
    counts["changed-partition-count"] = len(partitions)
    return counts


def _counters(file: ContentFile, *, added: bool) -> tuple[tuple[str, int], ...]:
    verb = "added" if added else "removed"
    if file.content is DATA_FILE:
        of_data = "added" if added else "deleted"
        return (
            (f"{verb}-files-size", file.file_size_in_bytes),
            (f"{of_data}-data-files", 1),
            (f"{of_data}-records", file.record_count),
        )
    # Many deletion vectors share one file; each counts its own bytes of it, as Java counts them.
    own = file.content_size_in_bytes if file.is_dv else None
    is_equality = file.content is FileContent.EQUALITY_DELETES
    kind = "equality" if is_equality else "position"
    return (
        (f"{verb}-files-size", file.file_size_in_bytes if own is None else own),
        (f"{verb}-delete-files", 1),
        (f"{verb}-dvs" if file.is_dv else f"{verb}-{kind}-delete-files", 1),
        (f"{verb}-{kind}-deletes", file.record_count),
    )


def summarise(
    operation: str, counts: Mapping[str, int], extra: Mapping[str, str], previous: Mapping[str, str] | None
) -> dict[str, str]:
    """A snapshot's summary. A total that the parent does not know stays unknown; a first snapshot starts at zero."""
    found = {"operation": operation, **extra}
    for name, count in sorted(counts.items()):
        if count:
            found[name] = str(count)
    moved = {total: counts.get(plus, 0) - counts.get(minus, 0) for total, plus, minus in _TOTALS}
    add_totals(found, moved, previous)
    return found


def add_totals(found: dict[str, str], moved: Mapping[str, int], previous: Mapping[str, str] | None) -> None:
    """Add the totals after a change that moved them by so much."""
    for total in _TOTAL_NAMES:
        before = "0" if previous is None else previous.get(total, "")
        by = moved.get(total, 0)
        if not by and before == "0":
            found[total] = before
        elif before.isascii() and before.isdigit():
            after = max(0, int(before) + by)
            if after <= LONG_MAX:  # readers count in 64 bits
                found[total] = str(after)
