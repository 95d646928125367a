"""The conflict rules: what a commit in the window may not have done. Rules as a table; the docs are made from it.

Each validation of a change is judged against *theirs*, the files that commits in the window added or removed. A
finding names its rule, the other commit and the files. The operations that count are Java's: a compaction is
never "added data"; deletes are added by overwrites and deletes; deletion vectors also by compactions.
Validations about the head rather than the window (files live now) are judged in `plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import msgspec

from headgate.core.change import (
    BaseMustBeAncestor,
    NoAddedDataFiles,
    NoAddedDeleteFiles,
    NoAddedDvs,
    NoNewDeletesForDataFiles,
    NoRemovedDataFiles,
    RequiredDataFiles,
)
from headgate.core.delete_index import DeleteIndex
from headgate.core.intake import LIVE_AT_HEAD, NOT_REMOVED_SINCE_BASE
from headgate.core.manifest import ContentFile, EntryStatus, FileContent, ManifestContent, ManifestFile
from headgate.core.partitioning import is_unpartitioned
from headgate.core.table import Snapshot, TableMetadata
from headgate.core.taken import Change, Check
from headgate.core.window import ReadEffect, ReadReply, Theirs, WindowFiles, is_ancestor
from headgate.errors import BadInput, CommitRefused, ConflictFound, Diverged

ADDED_DATA = frozenset(("append", "overwrite"))
_ADDED_DELETES = frozenset(("overwrite", "delete"))
_ADDED_DVS = frozenset(("overwrite", "delete", "replace"))
_REMOVED = frozenset(("overwrite", "replace", "delete"))


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a change is refused: the rule, the other commit if there is one, and the files."""

    rule: str
    message: str
    snapshot: Snapshot | None = None
    files: tuple[str, ...] = ()
    filter: object = None  # JSON, as the client sent it


@dataclass(frozen=True, slots=True)
class Judgement:
    """What every rule may look at."""

    change: Change
    table: TableMetadata
    head: Snapshot | None
    files: WindowFiles
    known: dict[str, ContentFile]  # data files by path, live at the head or removed in the window


Judge = Callable[[Check, Judgement], Generator[ReadEffect, ReadReply, Finding | None]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    slug: str
    refuses_when: str
    operations: frozenset[str]
    judge: Judge


def mode_of(validation: RequiredDataFiles) -> str:
    """Which of its two meanings a `required-data-files` has."""
    if validation.mode is not None:
        return validation.mode
    since_base = validation.allowed_remove_operations is not None or validation.ignore_delete_operations
    return NOT_REMOVED_SINCE_BASE if since_base else LIVE_AT_HEAD


def _no_added_data(check: Check, at: Judgement) -> Generator[ReadEffect, ReadReply, Finding | None]:
    theirs = yield from at.files.read(
        operations=ADDED_DATA,
        content=ManifestContent.DATA,
        status=EntryStatus.ADDED,
        may_hold=check.may_hold,
        in_scope=check.in_scope,
    )
    return _found(check, "added-data-files", "data was added in what this change read", theirs)


def _no_removed_data(check: Check, at: Judgement) -> Generator[ReadEffect, ReadReply, Finding | None]:
    theirs = yield from at.files.read(
        operations=_REMOVED,
        content=ManifestContent.DATA,
        status=EntryStatus.DELETED,
        may_hold=check.may_hold,
        in_scope=check.in_scope,
    )
    return _found(check, "removed-data-files", "data was removed in what this change read", theirs)


def _added_deletes(
    at: Judgement, may_hold: Callable[[ManifestFile], bool] | None = None
) -> Generator[ReadEffect, ReadReply, tuple[Theirs, ...]]:
    """Delete files of the window that apply to what stood at the base. There are none before v2."""
    if at.table.envelope.format_version < 2:
        return ()
    theirs = yield from at.files.read(
        operations=_ADDED_DELETES,
        content=ManifestContent.DELETES,
        status=EntryStatus.ADDED,
        may_hold=may_hold,
    )
    floor = at.files.window.base_sequence_number
    return tuple(their for their in theirs if their.data_sequence_number > floor)


def _no_added_deletes(check: Check, at: Judgement) -> Generator[ReadEffect, ReadReply, Finding | None]:
    theirs = yield from _added_deletes(at, check.may_hold)
    # An equality delete of a spec that divides nothing concerns the partitions of every other spec too.
    hits = [
        their
        for their in theirs
        if check.in_scope(their.file) or (check.partitions is not None and _is_global(their.file, at.table))
    ]
    return _found(check, "added-delete-files", "rows were deleted in what this change read", hits)


def _no_new_deletes(check: Check, at: Judgement) -> Generator[ReadEffect, ReadReply, Finding | None]:
    validation = check.validation
    if not isinstance(validation, NoNewDeletesForDataFiles):
        return None
    ignored = FileContent.EQUALITY_DELETES if validation.ignore_equality_deletes else None
    theirs = yield from _added_deletes(at)
    index = DeleteIndex(
        (t for t in theirs if t.file.content is not ignored and check.in_scope(t.file)), at.table
    )
    for path in validation.file_paths:
        data = at.known.get(path)
        if data is not None and (found := index.find(data)) is not None:
            text = f"rows of a file that this change replaces were deleted: {path}"
            return Finding("new-deletes-for-data-files", text, found.snapshot, (path,), _scope(check))
    return None


def _no_added_dvs(check: Check, at: Judgement) -> Generator[ReadEffect, ReadReply, Finding | None]:
    validation = check.validation
    if not isinstance(validation, NoAddedDvs):
        return None
    theirs = yield from at.files.read(
        operations=_ADDED_DVS, content=ManifestContent.DELETES, status=EntryStatus.ADDED
    )
    wanted = frozenset(validation.file_paths)
    vectors = [
        t for t in theirs if t.file.is_dv and t.file.referenced_data_file in wanted and check.in_scope(t.file)
    ]
    return _found(check, "added-dvs", "a deletion vector was added for the same data file", vectors)


def _required_data(check: Check, at: Judgement) -> Generator[ReadEffect, ReadReply, Finding | None]:
    validation = check.validation
    if not isinstance(validation, RequiredDataFiles) or mode_of(validation) != NOT_REMOVED_SINCE_BASE:
        return None
    allowed = {operation.lower() for operation in validation.allowed_remove_operations or ()}
    if validation.ignore_delete_operations:
        allowed.add("delete")
    theirs = yield from at.files.read(
        operations=_REMOVED - allowed, content=ManifestContent.DATA, status=EntryStatus.DELETED
    )
    wanted = frozenset(validation.file_paths)
    gone = [t for t in theirs if t.file.file_path in wanted and check.in_scope(t.file)]
    return _found(check, "missing-data-files", "a data file that this change relies on was removed", gone)


def _base_is_ancestor(check: Check, at: Judgement) -> Generator[ReadEffect, ReadReply, Finding | None]:
    yield from ()
    base_id = at.change.base_snapshot_id
    if base_id is None or is_ancestor(at.table, at.head, base_id):
        return None
    head = None if at.head is None else at.head.snapshot_id
    return Finding("base-not-ancestor", f"snapshot {base_id} is not an ancestor of {head}")


RULES: dict[type, Rule] = {
    NoAddedDataFiles: Rule(
        "added-data-files", "a commit in the window added a data file in scope", ADDED_DATA, _no_added_data
    ),
    NoRemovedDataFiles: Rule(
        "removed-data-files",
        "a commit in the window removed a data file in scope",
        _REMOVED,
        _no_removed_data,
    ),
    NoAddedDeleteFiles: Rule(
        "added-delete-files",
        "a commit in the window added a delete file in scope",
        _ADDED_DELETES,
        _no_added_deletes,
    ),
    NoNewDeletesForDataFiles: Rule(
        "new-deletes-for-data-files",
        "a delete file added in the window may delete rows of one of the files",
        _ADDED_DELETES,
        _no_new_deletes,
    ),
    NoAddedDvs: Rule(
        "added-dvs",
        "a commit in the window added a deletion vector for one of the files",
        _ADDED_DVS,
        _no_added_dvs,
    ),
    RequiredDataFiles: Rule(
        "missing-data-files", "a commit in the window removed one of the files", _REMOVED, _required_data
    ),
    BaseMustBeAncestor: Rule(
        "base-not-ancestor", "the base is not in the history of the branch", frozenset(), _base_is_ancestor
    ),
}
NEEDS_HISTORY = frozenset(RULES) - {BaseMustBeAncestor}


def find_conflict(at: Judgement) -> Generator[ReadEffect, ReadReply, Finding | None]:
    """The first validation that the window breaks, in the order in which the client gave them."""
    for check in at.change.checks:
        rule = RULES.get(type(check.validation))
        if rule is None or not _looks_at_window(check):
            continue
        window = at.files.window
        # Without a head there is no window; but a base that is no longer the head of anything has gone.
        complete = window.complete if at.head is not None else window.base_id is None
        needs_history = type(check.validation) in NEEDS_HISTORY
        if needs_history and _window_matters(check, at) and not complete:
            text = f"the history between {window.base_id} and {window.oldest_id} is not known"
            return Finding("unknown-history", text)
        if (finding := (yield from rule.judge(check, at))) is not None:
            return finding
    return None


def _looks_at_window(check: Check) -> bool:
    validation = check.validation
    return not isinstance(validation, RequiredDataFiles) or mode_of(validation) == NOT_REMOVED_SINCE_BASE


def _window_matters(check: Check, at: Judgement) -> bool:
    """Deletes are not looked for before v2, so the history of a v1 table does not matter for them."""
    about_deletes = isinstance(check.validation, NoAddedDeleteFiles | NoNewDeletesForDataFiles)
    return at.table.envelope.format_version >= 2 or not about_deletes


def _found(check: Check, rule: str, text: str, hits: Sequence[Theirs]) -> Finding | None:
    """Report files of the window that are in scope, if there are any."""
    if not hits:
        return None
    return Finding(rule, text, hits[0].snapshot, tuple(hit.file.file_path for hit in hits), _scope(check))


def _is_global(file: ContentFile, table: TableMetadata) -> bool:
    equality = file.content is FileContent.EQUALITY_DELETES
    return equality and is_unpartitioned(table.find_spec(file.spec_id))


def _scope(check: Check) -> object:
    """What the validation is about, as the client sent it."""
    if check.partitions is not None:
        return {"partitions": msgspec.to_builtins(getattr(check.validation, "partitions", ()))}
    return getattr(check.validation, "filter", None)


# --- a finding as an error ----------------------------------------------------------------------------------

_FILES_SHOWN_MAX = 20
_FILTER_BYTES_MAX = 10_000
# Not a conflict with anybody: the change itself is at fault, in this field.
_ILL_MADE = {
    "replace-adds-records": "add-data-files",
    "added-file-outside-filter": "add-data-files",
    "removed-and-referenced": "remove-data-files",
}
_DIVERGED = frozenset(("unknown-history", "base-not-ancestor"))
_NEXT = {
    "unknown-history": "read the table again and redo the work from its head",
    "base-not-ancestor": "read the table again and redo the work from its head",
    "already-live": "leave out the files that are live; the commit may have landed before",
    "second-deletion-vector": "merge the vectors, and remove the old one in the same change",
}


def to_error(finding: Finding, table: str, *, field: str) -> BadInput | CommitRefused:
    """A finding as the error that a client gets, with all its evidence."""
    if finding.rule in _ILL_MADE:
        return BadInput(
            f"{table}: {finding.message}", field=f"{field}.{_ILL_MADE[finding.rule]}", rule=finding.rule
        )
    theirs = finding.snapshot
    evidence: dict[str, object] = {
        "rule": finding.rule,
        "theirs": None
        if theirs is None
        else {
            "snapshot-id": theirs.snapshot_id,
            "operation": theirs.summary.get("operation"),
            "timestamp-ms": theirs.timestamp_ms,
        },
        "files": list(finding.files[:_FILES_SHOWN_MAX]),
        "file-count": len(finding.files),
        "filter": _shown(finding.filter),
        "next": _NEXT.get(
            finding.rule, "read again from the head, and redo the work that read or removed these files"
        ),
    }
    kind = Diverged if finding.rule in _DIVERGED else ConflictFound
    return kind(f"{table}: {finding.message}", **evidence)


def _shown(filter_: object) -> object:
    """The filter, unless it is so large that only its sender would read it."""
    return filter_ if len(msgspec.json.encode(filter_)) <= _FILTER_BYTES_MAX else None
