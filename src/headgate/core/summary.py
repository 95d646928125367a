"""Snapshot summaries: what a change added and removed, and the totals after it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from headgate.core.intake import partition_of
from headgate.core.manifest import ContentFile, FileContent
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


def count_changes(added: Iterable[ContentFile], removed: Iterable[ContentFile]) -> Counter[str]:
    """Counters of a change; those that are zero are left out."""
    counts: Counter[str] = Counter()
    partitions = set()
    for file in added:
        partitions.add(partition_of(file))
        counts.update(_counters(file, added=True))
    for file in removed:
        partitions.add(partition_of(file))
        counts.update(_counters(file, added=False))
    counts["changed-partition-count"] = len(partitions)
    return counts


def _counters(file: ContentFile, *, added: bool) -> dict[str, int]:
    verb = "added" if added else "removed"
    # Many deletion vectors share one file; each counts its own bytes of it, as Java counts them.
    own = file.content_size_in_bytes if file.is_dv else None
    counts = {f"{verb}-files-size": file.file_size_in_bytes if own is None else own}
    match file.content:
        case FileContent.DATA:
            verb = "added" if added else "deleted"
            counts |= {f"{verb}-data-files": 1, f"{verb}-records": file.record_count}
        case FileContent.POSITION_DELETES:
            kind = "dvs" if file.is_dv else "position-delete-files"
            counts |= {
                f"{verb}-delete-files": 1,
                f"{verb}-{kind}": 1,
                f"{verb}-position-deletes": file.record_count,
            }
        case FileContent.EQUALITY_DELETES:
            counts |= {
                f"{verb}-delete-files": 1,
                f"{verb}-equality-delete-files": 1,
                f"{verb}-equality-deletes": file.record_count,
            }
    return counts


def summarise(
    operation: str, counts: Counter[str], extra: Mapping[str, str], previous: Mapping[str, str] | None
) -> dict[str, str]:
    """A snapshot's summary. A total that the parent does not know stays unknown; a first snapshot starts at zero."""
    found = {"operation": operation, **extra}
    found.update((name, str(count)) for name, count in sorted(counts.items()) if count)
    for total, plus, minus in _TOTALS:
        before = "0" if previous is None else previous.get(total, "")
        if before.isascii() and before.isdigit():
            after = max(0, int(before) + counts[plus] - counts[minus])
            if after <= LONG_MAX:  # readers count in 64 bits
                found[total] = str(after)
    return found
