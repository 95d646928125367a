"""What a window of commits did to the rows of a source, as versions of files that came and went. Pure.

A version of a data file is the file with the deletes that apply to it. A commit adds files, removes files, or
puts deletes on files, which takes one version away and brings the next. Versions that came and went inside the
window cancel out unread. A `replace` changes no rows, so it is passed over altogether: what stood before it and
what stands after it are the same rows, and later removals of its files balance, as bags of rows, with what it was
made from.

A commit of which the files do not tell which rows it changed ends in `Lost`, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from headgate.client.changes import File
from headgate.client.feed import SnapshotChanges

_ROW_ACTIONS = frozenset(("append", "overwrite", "delete"))
_FILE_PATH_ID = 2147483546  # the column `file_path` of a position delete file


class Deletes(Enum):
    """Whether rows of a version are deleted."""

    NONE = "none"  # it was written in the window, by a commit that brings rows
    MAYBE = "maybe"  # only if the source had delete files before the window
    SOME = "some"


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A data file as a snapshot has it. `file` is None where only its path is known: a delete file named it."""

    path: str
    snapshot_id: int | None  # None: as the base of the window has it
    deletes: Deletes
    file: File | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """The rows that came and the rows that went, by file. As bags: what is in both cancels out."""

    came: tuple[FileVersion, ...] = ()
    went: tuple[FileVersion, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no row changed."""
        return not self.came and not self.went


@dataclass(frozen=True, slots=True)
class Lost:
    """The change cannot be followed, for this reason."""

    reason: str


def find_delta(commits: Sequence[SnapshotChanges]) -> Delta | Lost:
    """What the commits of a window, the oldest first, did together."""
    ledger = _Ledger()
    for commit in commits:
        if commit.action == "replace":
            ledger.note_replaced(commit)
            continue
        if commit.action not in _ROW_ACTIONS:
            return Lost(f"snapshot {commit.snapshot_id} has an operation that is not known: {commit.action}")
        removed = frozenset(str(file["file-path"]) for file in commit.removed_data)
        touched = _find_touched(commit, removed)
        if isinstance(touched, Lost):
            return touched
        for file in commit.removed_data:
            ledger.remove(str(file["file-path"]), file)
        added = {str(file["file-path"]): file for file in commit.added_data}
        for path, file in added.items():
            deletes = Deletes.SOME if path in touched else Deletes.NONE
            ledger.add(FileVersion(path, commit.snapshot_id, deletes), file)
        for path in touched - added.keys():
            ledger.touch(path, commit.snapshot_id)
    return ledger.balance()


class _Ledger:
    """Versions that came and went, and which version of a file stands now."""

    def __init__(self) -> None:
        self._current: dict[str, FileVersion] = {}
        self._came: dict[FileVersion, File | None] = {}
        self._went: dict[FileVersion, File | None] = {}

    def add(self, version: FileVersion, file: File | None) -> None:
        self._current[version.path] = version
        self._came[version] = file

    def remove(self, path: str, file: File | None) -> None:
        version = self._current.pop(path, None) or FileVersion(path, None, Deletes.MAYBE)
        if version in self._came:
            del self._came[version]
        else:
            self._went[version] = file

    def touch(self, path: str, snapshot_id: int) -> None:
        before = self._current.get(path)
        file = self._came.get(before) if before is not None else None
        self.remove(path, file)
        self.add(FileVersion(path, snapshot_id, Deletes.SOME), file)

    def note_replaced(self, commit: SnapshotChanges) -> None:
        """Files that a compaction wrote stand as it left them; their rows have been counted already."""
        for file in commit.removed_data:
            self._current.pop(str(file["file-path"]), None)
        for file in commit.added_data:
            path = str(file["file-path"])
            self._current[path] = FileVersion(path, commit.snapshot_id, Deletes.MAYBE)

    def balance(self) -> Delta:
        return Delta(_listed(self._came), _listed(self._went))


def _listed(versions: dict[FileVersion, File | None]) -> tuple[FileVersion, ...]:
    return tuple(FileVersion(v.path, v.snapshot_id, v.deletes, file) for v, file in versions.items())


def _find_touched(commit: SnapshotChanges, removed: frozenset[str]) -> frozenset[str] | Lost:
    """The data files that a commit deletes rows from, without those that it removes whole."""
    touched: set[str] = set()
    for file in commit.added_deletes:
        path = referenced_by(file)
        if path is None:
            kind = file.get("content")
            return Lost(f"snapshot {commit.snapshot_id} deletes rows by {kind} of no single file")
        touched.add(path)
    for file in commit.removed_deletes:
        path = referenced_by(file)
        if path is None or path not in touched | removed:
            # A merged delete file takes the place of the one before. One that goes without either is a mystery.
            return Lost(f"snapshot {commit.snapshot_id} takes deletes back: {file['file-path']}")
    return frozenset(touched - removed)


def referenced_by(file: File) -> str | None:
    """The one data file that a delete file speaks of, if its description tells."""
    if file.get("referenced-data-file"):
        return str(file["referenced-data-file"])
    if file.get("content") != "position-deletes":
        return None
    bounds = [_bound(file.get(name)) for name in ("lower-bounds", "upper-bounds")]
    return bounds[0] if bounds[0] is not None and bounds[0] == bounds[1] else None


def _bound(bounds: object) -> str | None:
    if not isinstance(bounds, dict):
        return None
    for key, value in zip(bounds.get("keys", ()), bounds.get("values", ()), strict=False):
        if key == _FILE_PATH_ID:
            return bytes.fromhex(str(value)).decode()
    return None


def list_window(
    walk: Iterable[SnapshotChanges], *, base_id: int | None, commits_max: int
) -> tuple[SnapshotChanges, ...] | Lost:
    """The commits after the base, the oldest first, from a walk that begins at the head and follows parents."""
    found: list[SnapshotChanges] = []
    for commit in walk:
        if len(found) == commits_max:
            return Lost(f"more than {commits_max} commits came since")
        found.append(commit)
        if commit.parent_snapshot_id == base_id:
            return tuple(reversed(found))
    return Lost(f"snapshot {base_id}, which was read before, is not in the history of the source any more")
