"""What others committed since a compaction began, so that it does no work in vain on files that they changed."""

from __future__ import annotations

from typing import Any

from headgate.client.feed import SnapshotChanges
from headgate.errors import ConflictFound, HeadgateError, NotFound
from headgate.spark.compact_groups import Group
from headgate.spark.lake import LakeTable
from headgate.spark.view_changes import Lost, list_window, referenced_by

_COMMITS_MAX = 10_000


class Window:
    """What was committed on the branch since the base, looked at again and again."""

    def __init__(self, table: LakeTable, branch: str, base_id: int) -> None:
        self._table, self._branch, self._seen = table, branch, base_id
        self._removed: dict[str, SnapshotChanges] = {}

    def find_lost(self, group: Group) -> HeadgateError | None:
        """The refusal that a group would get, if that can be told already."""
        try:
            self._look()
        except NotFound:
            return None  # snapshots have expired: the service will judge
        for path in group.paths:
            if (theirs := self._removed.get(path)) is not None:
                return ConflictFound(
                    f"snapshot {theirs.snapshot_id} has removed or deleted from {path} meanwhile",
                    rule="looked-before",
                    theirs={"snapshot-id": theirs.snapshot_id, "operation": theirs.action},
                    files=[path],
                )
        return None

    def _look(self) -> None:
        head = self._table.client.load().snapshot_id(self._branch)
        if head is None or head == self._seen:
            return
        commits = list_window(self._walk(head), base_id=self._seen, commits_max=_COMMITS_MAX)
        if isinstance(commits, Lost):
            return  # the branch went back, or far ahead: the service will judge
        for commit in commits:
            for file in commit.removed_data:
                self._removed.setdefault(str(file["file-path"]), commit)
            for file in commit.added_deletes:
                if (path := referenced_by(file)) is not None:
                    self._removed.setdefault(path, commit)
        self._seen = head

    def _walk(self, head: int) -> Any:
        at: int | None = head
        while at is not None:
            changes = self._table.client.changes_of(at)
            yield changes
            at = changes.parent_snapshot_id
