"""Appends that share one snapshot: which may, and which of them together. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.core.change import Action, ChangeUpdate, action_of
from headgate.core.commit import TableCommit
from headgate.core.intake import FILES_MAX
from headgate.core.stream_progress import is_progress
from headgate.core.taken import Change
from headgate.core.updates import AssertTableUuid, SetProperties


@dataclass(slots=True)
class Fold:
    """Appends that wait to share one snapshot: member, key, commit and change of each."""

    appends: list[tuple[int, str, TableCommit, Change]] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    streams: set[str] = field(default_factory=set)
    files: int = 0

    def takes(self, commit: TableCommit, change: Change, paths: set[str]) -> bool:
        """Whether the change may share the snapshot: same branch and words, no file twice, not too many files.

        Nor may one stream come twice: which batch is its last depends on their order.
        """
        first = self.appends[0][3]
        return (
            first.branch == change.branch
            and first.summary == change.summary
            and self.files + len(change.added_data) <= FILES_MAX
            and self.paths.isdisjoint(paths)
            and self.streams.isdisjoint(_streams(commit))
        )

    def add(self, index: int, key: str, commit: TableCommit, change: Change, paths: set[str]) -> None:
        """Have an append wait with the others."""
        self.appends.append((index, key, commit, change))
        self.paths |= paths
        self.streams |= _streams(commit)
        self.files += len(change.added_data)


def find_foldable(commit: TableCommit) -> ChangeUpdate | None:
    """The one append of a commit that may share a snapshot with others: it commutes with them, whatever they add."""
    if commit.reads is not None or not commit.updates or not all(map(is_progress, commit.updates[1:])):
        return None
    update = commit.updates[0]
    if not isinstance(update, ChangeUpdate) or action_of(update) is not Action.APPEND:
        return None
    if update.stage_only or update.create_branch or update.commit_validations:
        return None
    plain = all(isinstance(requirement, AssertTableUuid) for requirement in commit.requirements)
    return update if plain else None


def _streams(commit: TableCommit) -> set[str]:
    return {name for update in commit.updates if isinstance(update, SetProperties) for name in update.updates}
