"""Snapshot summaries: what a change added and removed, and the totals after it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

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
_DIGITS_MAX = 1000  # of a total; of much more `int` makes no number
_NAMES = tuple([total for total, _, _ in _TOTALS])
# An append moves the first three and carries the others on, which mostly count nothing. A KeyError: one is not known.
_find_moved, _find_carried = itemgetter(*_NAMES[:3]), itemgetter(*_NAMES[3:])
_NO_DELETES = dict.fromkeys(_NAMES[3:], "0")
_NO_DELETES_TEXTS = tuple(_NO_DELETES.values())


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
    for total, by in moved.items():
        before = "0" if previous is None else previous.get(total, "")
        if not by and before == "0":
            found[total] = before
        elif before.isascii() and before.isdigit() and len(before) <= _DIGITS_MAX:
            after = max(0, int(before) + by)
            if after <= LONG_MAX:  # readers count in 64 bits
                found[total] = str(after)
    return found


def summarise_append(
    files: Sequence[ContentFile], extra: Mapping[str, str], previous: Mapping[str, str]
) -> dict[str, str]:
    """As `summarise`, of data files that are added to a parent of this summary; most parents know all their totals."""
    count, partitions, rows, size_bytes = len(files), 1, files[0].record_count, files[0].file_size_in_bytes
    if count > 1:
        partitions = len({partition_of(file) for file in files})
        rows = sum([file.record_count for file in files])
        size_bytes = sum([file.file_size_in_bytes for file in files])
    try:
        of_rows, of_bytes, of_files = _find_moved(previous)
        has_no_deletes = _find_carried(previous) == _NO_DELETES_TEXTS
        all_rows, all_bytes, all_files = (
            int(of_rows) + rows,
            int(of_bytes) + size_bytes,
            int(of_files) + count,
        )
    except (KeyError, ValueError):
        has_no_deletes = False
    # `int` has refused an empty text; it takes some that are no digits, and no total.
    if (
        has_no_deletes
        and rows
        and size_bytes
        and (digits := of_rows + of_bytes + of_files).isascii()
        and digits.isdigit()
        and max(all_rows, all_bytes, all_files) <= LONG_MAX
    ):
        return {
            "operation": "append",
            **extra,
            "added-data-files": f"{count}",
            "added-files-size": f"{size_bytes}",
            "added-records": f"{rows}",
            "changed-partition-count": f"{partitions}",
            "total-records": f"{all_rows}",
            "total-files-size": f"{all_bytes}",
            "total-data-files": f"{all_files}",
            **_NO_DELETES,
        }
    counts = {
        "added-data-files": count,
        "added-files-size": size_bytes,
        "added-records": rows,
        "changed-partition-count": partitions,
    }
    return summarise("append", counts, extra, previous)
