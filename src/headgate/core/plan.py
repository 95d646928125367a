"""From a change to a snapshot: judge it against the window and the head, then have its manifests written.

A generator of effects like the rest of the core. Sequence numbers, row ids and timestamps come from the head,
not from the base, and are assigned anew each attempt; data files survive a retry, manifests do not.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from headgate.core.build import Build, PlanEffect, Planning, PlanReply
from headgate.core.change import (
    Action,
    AddedFilesMatchRowFilter,
    MustNotRemoveAnyFile,
    NoAddedDataFiles,
    NoNewDeletesForDataFiles,
    RemovedFilesNotReferenced,
    RequiredDataFiles,
    RequiredDeleteFiles,
)
from headgate.core.conflicts import ADDED_DATA, Finding, Judgement, find_conflict, mode_of
from headgate.core.intake import LIVE_AT_HEAD
from headgate.core.live import (
    NOTHING,
    LiveChange,
    find_live,
    find_removals,
    is_wanted,
)
from headgate.core.locations import find_spellings
from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    ManifestContent,
)
from headgate.core.manifest_list import ManifestList, has_live_files
from headgate.core.snapshot_ids import choose_snapshot_id
from headgate.core.table import MAIN, Snapshot, TableMetadata
from headgate.core.taken import Change
from headgate.core.window import (
    WindowFiles,
    find_window,
    read_entries,
    read_manifests,
)
from headgate.errors import BadInput, InvariantBroken, NotFound

_REMOVE = frozenset(("overwrite", "replace", "delete"))  # operations that remove files
_MISSED = frozenset(("missing-required-removes", "vector-without-data-file"))


def plan_change(
    change: Change,
    table: TableMetadata,
    *,
    seed: str,
    now_ms: int,
    written: list[str] | None = None,
    own: frozenset[int] = frozenset(),
) -> Planning:
    """Judge a change; a finding refuses it, a plan holds its snapshot.

    `written` is told of every file when it is written: a later step may fail, and it must go then. `own` are snapshots
    that earlier changes of the same commit made: nobody conflicts with himself.
    """
    head = find_head(change, table)
    manifests = ManifestList() if head is None else (yield from read_manifests(head))
    window = None
    if change.checks:
        window = WindowFiles(find_window(table, head, change.base_snapshot_id).without(own))
    finding = yield from _judge_window(change, table, head, manifests, window)
    if finding is not None:
        return finding
    # What the commit itself added before is in no window, so it was not judged by any filter.
    cleared_after = None if own else (yield from _find_cleared(change, window))
    removals = yield from find_removals(change, table, manifests, cleared_after=cleared_after)
    if isinstance(removals, Finding):
        return removals
    finding = yield from _judge_live(change, manifests, removals)
    if finding is not None:
        return (yield from _name_theirs(finding, change, table, head))
    snapshot_id = choose_snapshot_id(seed, table)
    sequence = 0 if table.envelope.format_version == 1 else table.envelope.last_sequence_number + 1
    build = Build(change, table, head, (snapshot_id, sequence), [] if written is None else written)
    return (yield from build.run(manifests, removals, now_ms=now_ms))


def judge_only(change: Change, table: TableMetadata) -> Generator[PlanEffect, PlanReply, Finding | None]:
    """A read set: validations without a change."""
    head = find_head(change, table)
    manifests = ManifestList() if head is None else (yield from read_manifests(head))
    window = WindowFiles(find_window(table, head, change.base_snapshot_id)) if change.checks else None
    finding = yield from _judge_window(change, table, head, manifests, window)
    if finding is None:
        finding = yield from _judge_required(change, manifests, frozenset(), frozenset())
        if finding is not None:
            finding = yield from _name_theirs(finding, change, table, head)
    return finding


def find_head(change: Change, table: TableMetadata) -> Snapshot | None:
    """The snapshot that the branch points at now; a branch to be created starts at main's."""
    ref = table.envelope.refs.get(change.branch)
    field = f"{change.field}.branch" if change.field else "branch"
    if ref is not None and ref.type == "tag":
        raise BadInput(f"{change.branch} is a tag, not a branch", field=field, rule="ref-is-a-tag")
    if ref is None and change.branch != MAIN and not change.create_branch:
        raise NotFound(
            f"Branch does not exist: {change.branch}; send create-branch to make it from {MAIN}",
            kind="branch",
            field=field,
        )
    if ref is None:
        current = table.envelope.current_snapshot_id
        return None if current is None or change.branch == MAIN else _must_find(table, current)
    return _must_find(table, ref.snapshot_id)


def _must_find(table: TableMetadata, snapshot_id: int) -> Snapshot:
    """What a ref points at: to take it for nothing would be to build on an empty table."""
    snapshot = table.find_snapshot(snapshot_id)
    if snapshot is None:
        raise InvariantBroken(f"invariant broken: a ref points at snapshot {snapshot_id}, which is not there")
    return snapshot


def _judge_window(
    change: Change,
    table: TableMetadata,
    head: Snapshot | None,
    manifests: ManifestList,
    files: WindowFiles | None,
) -> Generator[PlanEffect, PlanReply, Finding | None]:
    if (finding := _find_outside_filter(change)) is not None:
        return finding
    if files is None:
        return None  # an append without a word to say does not walk the table's history
    known = yield from _known_data(change, manifests, files)
    return (yield from find_conflict(Judgement(change, table, head, files, known)))


def _find_cleared(change: Change, files: WindowFiles | None) -> Generator[PlanEffect, PlanReply, int | None]:
    """The sequence number above which no live data file may match the row filter; None when that is not known.

    A live file with a number above the base's was added by a commit in the window. Those that appends and overwrites
    added were judged by a validation with the same filter, or we would not be here; the others are looked at now.
    """
    row_filter = change.row_filter
    if row_filter is None or change.drop_partitions or files is None or not files.window.complete:
        return None
    if not any(isinstance(c.validation, NoAddedDataFiles) and c.filter is row_filter for c in change.checks):
        return None
    if change.base_snapshot_id is not None and files.window.base_sequence_number == 0:
        return None  # the base has expired: nobody knows its number any more
    others = yield from files.read(
        operations=files.find_operations() - ADDED_DATA,
        content=ManifestContent.DATA,
        status=EntryStatus.ADDED,
        may_hold=row_filter.may_hold,
        in_scope=row_filter.may_match,
    )
    return None if others else files.window.base_sequence_number


def _find_outside_filter(change: Change) -> Finding | None:
    if not any(isinstance(check.validation, AddedFilesMatchRowFilter) for check in change.checks):
        return None
    for file in change.added_data:
        if change.row_filter is None or not change.row_filter.all_rows_match(file):
            text = f"an added file is not provably inside the row filter: {file.file_path}"
            return Finding("added-file-outside-filter", text, None, (file.file_path,))
    return None


def _known_data(
    change: Change, manifests: ManifestList, files: WindowFiles
) -> Generator[PlanEffect, PlanReply, dict[str, ContentFile]]:
    """Data files that validations ask about: live at the head, or removed in the window."""
    wanted: set[str] = set()
    for check in change.checks:
        if isinstance(check.validation, NoNewDeletesForDataFiles):
            wanted.update(check.validation.file_paths)
    found = yield from find_live(manifests, wanted, ManifestContent.DATA)
    known = {entry.file.file_path: entry.file for _, entry in found}
    if wanted - known.keys() and files.window.complete:
        removed = yield from files.read(
            operations=_REMOVE,
            content=ManifestContent.DATA,
            status=EntryStatus.DELETED,
        )
        known.update((t.file.file_path, t.file) for t in removed if t.file.file_path in wanted - known.keys())
    return known


def _judge_live(
    change: Change, manifests: ManifestList, removals: LiveChange
) -> Generator[PlanEffect, PlanReply, Finding | None]:
    """What must hold at the head itself."""
    if removals is NOTHING and change.action is Action.APPEND and not (change.checks or change.added_deletes):
        return (yield from _find_live_twice(change, manifests, set(), set()))  # the one rule that is left
    gone = {file.file_path for file in removals.data.files()}
    gone_deletes = {file.file_path for file in removals.deletes.files()}
    finding = yield from _judge_required(change, manifests, frozenset(gone), frozenset(gone_deletes))
    if finding is not None:
        return finding
    for check in change.checks:
        if isinstance(check.validation, MustNotRemoveAnyFile) and (gone or gone_deletes):
            first = min(gone | gone_deletes)
            return Finding("append-only", f"the change would remove files: {first}", None, (first,))
        targets = (
            check.validation.file_paths if isinstance(check.validation, RemovedFilesNotReferenced) else ()
        )
        if both := change.removed_data.intersection(targets):
            text = f"data files are removed and the target of new deletes: {', '.join(sorted(both))}"
            return Finding("removed-and-referenced", text, None, tuple(sorted(both)))
    replaces = change.action in (Action.OVERWRITE, Action.REPLACE)
    if replaces and (missing := change.removed_data - gone):
        # Rows would be there twice: in the file that replaces them, and in the one that replaced them before.
        text = f"files to remove are not live at the head: {', '.join(sorted(missing))}"
        return Finding("missing-required-removes", text, None, tuple(sorted(missing)))
    if (finding := (yield from _find_live_twice(change, manifests, gone, gone_deletes))) is not None:
        return finding
    if (finding := (yield from _find_dangling(change, manifests, gone))) is not None:
        return finding
    added = sum(file.record_count for file in change.added_data)
    replaced = sum(file.record_count for file in removals.data.files())
    if change.action is Action.REPLACE and added > replaced:
        text = f"a replace adds more records ({added}) than it removes ({replaced})"
        return Finding("replace-adds-records", text)
    return None


def _name_theirs(
    finding: Finding, change: Change, table: TableMetadata, head: Snapshot | None
) -> Generator[PlanEffect, PlanReply, Finding]:
    """A finding about files that the head lacks, with the commit of the window that removed them."""
    if finding.rule not in _MISSED or change.base_snapshot_id is None:
        return finding
    files = WindowFiles(find_window(table, head, change.base_snapshot_id))
    for content in ManifestContent:
        removed = yield from files.read(operations=_REMOVE, content=content, status=EntryStatus.DELETED)
        for their in removed:
            if their.file.file_path in finding.files:
                return replace(finding, snapshot=their.snapshot)
    return finding


def _judge_required(
    change: Change, manifests: ManifestList, gone: frozenset[str], gone_deletes: frozenset[str]
) -> Generator[PlanEffect, PlanReply, Finding | None]:
    """Files that must be live at the head; what the change itself removes was."""
    for check in change.checks:
        match check.validation:
            case RequiredDataFiles() as validation if mode_of(validation) == LIVE_AT_HEAD:
                wanted, content, had = frozenset(validation.file_paths), ManifestContent.DATA, gone
            case RequiredDeleteFiles() as validation:
                wanted, content, had = frozenset(validation.file_paths), ManifestContent.DELETES, gone_deletes
            case _:
                continue
        found = yield from find_live(manifests, wanted - had, content)
        missing = wanted - had - {entry.file.file_path for _, entry in found}
        if missing:
            text = f"required files are not live at the head: {', '.join(sorted(missing))}"
            return Finding("missing-required-removes", text, None, tuple(sorted(missing)))
    return None


def _find_live_twice(
    change: Change, manifests: ManifestList, gone: set[str], gone_deletes: set[str]
) -> Generator[PlanEffect, PlanReply, Finding | None]:
    """A path may be live once, and a data file may have one deletion vector."""
    added = (file for file in (*change.added_data, *change.added_deletes) if not file.is_dv)
    paths = {spelling for file in added for spelling in find_spellings(file.file_path)}
    twice = {e.file.file_path for _, e in (yield from find_live(manifests, paths))} - gone - gone_deletes
    if twice:
        text = f"files are already live in the table: {', '.join(sorted(twice))}"
        return Finding("already-live", text, None, tuple(sorted(twice)))
    vectors = {file.identity for file in change.added_deletes if file.is_dv}
    targets = {file.referenced_data_file for file in change.added_deletes if file.is_dv}
    if targets:
        for manifest in manifests.deletes:
            if not has_live_files(manifest):
                continue
            for entry in (yield from read_entries(manifest)):
                file = entry.file
                if not entry.is_live or not file.is_dv or _goes(file, change, gone):
                    continue
                if file.identity in vectors:
                    text = f"the deletion vector is already live in the table: {file.file_path}"
                    return Finding("already-live", text, None, (file.file_path,))
                if file.referenced_data_file in targets:
                    text = f"the data file has a deletion vector, which this change keeps: {file.referenced_data_file}"
                    return Finding("second-deletion-vector", text, None, (file.file_path,))
    return None


def _find_dangling(
    change: Change, manifests: ManifestList, gone: set[str]
) -> Generator[PlanEffect, PlanReply, Finding | None]:
    """A deletion vector goes when its data file goes, so it cannot come without it either."""
    targets = {file.referenced_data_file or "" for file in change.added_deletes if file.is_dv}
    found = yield from find_live(manifests, targets, ManifestContent.DATA)
    live = {entry.file.file_path for _, entry in found} - gone | {
        file.file_path for file in change.added_data
    }
    if not (missing := targets - live):
        return None
    text = f"data files of deletion vectors are not live at the head: {', '.join(sorted(missing))}"
    return Finding("vector-without-data-file", text, None, tuple(sorted(missing)))


def _goes(file: ContentFile, change: Change, gone: set[str]) -> bool:
    return is_wanted(file, change.removed_deletes) or file.referenced_data_file in gone
