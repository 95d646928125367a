"""What one snapshot of a table changed, file by file, from the service's change feed. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headgate.client.changes import File
from headgate.errors import BadInput

_PAGES_MAX = 100_000

LoadPage = Callable[[str | None], Mapping[str, Any]]  # a cursor leads to a page


@dataclass(frozen=True, slots=True)
class SnapshotChanges:
    """The files that a snapshot added and removed, as content files of the REST specification."""

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    action: str | None  # as its summary has it: append, overwrite, delete, replace
    added_data: tuple[File, ...] = ()
    removed_data: tuple[File, ...] = ()
    added_deletes: tuple[File, ...] = ()
    removed_deletes: tuple[File, ...] = ()


def read_changes(load: LoadPage) -> SnapshotChanges:
    """All pages of one snapshot's changes as one value."""
    lists: dict[str, list[File]] = {}
    cursor: str | None = None
    for _ in range(_PAGES_MAX):
        page = load(cursor)
        for name in ("added-data-files", "removed-data-files", "added-delete-files", "removed-delete-files"):
            lists.setdefault(name, []).extend(page[name])
        cursor = page.get("next-page-token")
        if not cursor:
            return SnapshotChanges(
                snapshot_id=page["snapshot-id"],
                parent_snapshot_id=page["parent-snapshot-id"],
                sequence_number=page["sequence-number"],
                action=page["action"],
                added_data=tuple(lists["added-data-files"]),
                removed_data=tuple(lists["removed-data-files"]),
                added_deletes=tuple(lists["added-delete-files"]),
                removed_deletes=tuple(lists["removed-delete-files"]),
            )
    raise BadInput(f"the changes of one snapshot take more than {_PAGES_MAX} pages", field="snapshot-id")
