"""From a change to a snapshot: judge it against the window and the head, then have its manifests written.

A generator of effects like the rest of the core. Sequence numbers, row ids and timestamps come from the head,
not from the base, and are assigned anew each attempt; data files survive a retry, manifests do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass, replace

from headgate.core.change import (
    Action,
    AddedFilesMatchRowFilter,
    MustNotRemoveAnyFile,
    NoNewDeletesForDataFiles,
    RemovedFilesNotReferenced,
    RequiredDataFiles,
    RequiredDeleteFiles,
)
from headgate.core.conflicts import Finding, Judgement, find_conflict, mode_of
from headgate.core.intake import LIVE_AT_HEAD, Change
from headgate.core.live import (
    FindLive,
    FoundLive,
    LiveChange,
    find_live,
    find_removals,
    has_live_files,
    is_wanted,
)
from headgate.core.locations import find_spellings
from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    NewEntry,
)
from headgate.core.summary import count_changes, summarise
from headgate.core.table import MAIN, Snapshot, TableMetadata
from headgate.core.window import (
    ReadEffect,
    ReadReply,
    WindowFiles,
    find_window,
    read_entries,
    read_manifests,
)
from headgate.errors import BadInput, InvariantBroken, NotFound

_REMOVE = frozenset(("overwrite", "replace", "delete"))  # operations that remove files
_MISSED = frozenset(("missing-required-removes", "vector-without-data-file"))


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Encode and write one manifest. Answered by its `ManifestFile`."""

    entries: tuple[NewEntry, ...]
    spec_id: int
    content: ManifestContent
    snapshot_id: int
    sequence_number: int
    table: TableMetadata


@dataclass(frozen=True, slots=True)
class WriteManifestList:
    """Encode and write the manifest list. Answered by its location."""

    manifests: tuple[ManifestFile, ...]
    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    first_row_id: int | None
    table: TableMetadata


PlanEffect = ReadEffect | FindLive | WriteManifest | WriteManifestList
PlanReply = ReadReply | FoundLive | ManifestFile | str
Planning = Generator[PlanEffect, PlanReply, "Plan | Finding"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A snapshot that is ready to be added, and the files that were written for it."""

    snapshot: Snapshot
    branch: str | None  # None: staged only
    written: tuple[str, ...]


def plan_change(change: Change, table: TableMetadata, *, seed: str, now_ms: int) -> Planning:
    """Judge a change; a finding refuses it, a plan holds its snapshot."""
    head = find_head(change, table)
    manifests = () if head is None else (yield from read_manifests(head))
    finding = yield from _judge_window(change, table, head, manifests)
    if finding is not None:
        return finding
    removals = yield from find_removals(change, table, manifests)
    if isinstance(removals, Finding):
        return removals
    finding = yield from _judge_live(change, manifests, removals)
    if finding is not None:
        return (yield from _name_theirs(finding, change, table, head))
    snapshot_id = choose_snapshot_id(seed, table)
    sequence = 0 if table.envelope.format_version == 1 else table.envelope.last_sequence_number + 1
    build = _Build(change, table, head, snapshot_id, sequence)
    return (yield from build.run(manifests, removals, now_ms=now_ms))


def judge_only(change: Change, table: TableMetadata) -> Generator[PlanEffect, PlanReply, Finding | None]:
    """A read set: validations without a change."""
    head = find_head(change, table)
    manifests = () if head is None else (yield from read_manifests(head))
    finding = yield from _judge_window(change, table, head, manifests)
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
        return None if current is None or change.branch == MAIN else table.find_snapshot(current)
    return table.find_snapshot(ref.snapshot_id)


def choose_snapshot_id(seed: str, table: TableMetadata) -> int:
    """A positive id that is the same for every attempt of one commit, and free in the table."""
    for salt in range(1000):
        digest = hashlib.blake2b(f"{seed}/{salt}".encode(), digest_size=8).digest()
        id_ = int.from_bytes(digest, "big") >> 1
        if id_ and id_ not in table.snapshots:
            return id_
    raise InvariantBroken("invariant broken: a thousand snapshot ids in a row are taken")


def _judge_window(
    change: Change, table: TableMetadata, head: Snapshot | None, manifests: tuple[ManifestFile, ...]
) -> Generator[PlanEffect, PlanReply, Finding | None]:
    if (finding := _find_outside_filter(change)) is not None:
        return finding
    if not change.checks:
        return None  # an append without a word to say does not walk the table's history
    window = find_window(table, head, change.base_snapshot_id)
    files = WindowFiles(window)
    known = yield from _known_data(change, manifests, files)
    return (yield from find_conflict(Judgement(change, table, head, files, known)))


def _find_outside_filter(change: Change) -> Finding | None:
    if not any(isinstance(check.validation, AddedFilesMatchRowFilter) for check in change.checks):
        return None
    for file in change.added_data:
        if change.row_filter is None or not change.row_filter.all_rows_match(file):
            text = f"an added file is not provably inside the row filter: {file.file_path}"
            return Finding("added-file-outside-filter", text, None, (file.file_path,))
    return None


def _known_data(
    change: Change, manifests: tuple[ManifestFile, ...], files: WindowFiles
) -> Generator[PlanEffect, PlanReply, dict[str, ContentFile]]:
    """Data files that validations ask about: live at the head, or removed in the window."""
    wanted: set[str] = set()
    for check in change.checks:
        if isinstance(check.validation, NoNewDeletesForDataFiles):
            wanted.update(check.validation.file_paths)
    found = yield from find_live((m for m in manifests if m.content is ManifestContent.DATA), wanted)
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
    change: Change, manifests: tuple[ManifestFile, ...], removals: LiveChange
) -> Generator[PlanEffect, PlanReply, Finding | None]:
    """What must hold at the head itself."""
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
    change: Change, manifests: tuple[ManifestFile, ...], gone: frozenset[str], gone_deletes: frozenset[str]
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
        found = yield from find_live((m for m in manifests if m.content is content), wanted - had)
        missing = wanted - had - {entry.file.file_path for _, entry in found}
        if missing:
            text = f"required files are not live at the head: {', '.join(sorted(missing))}"
            return Finding("missing-required-removes", text, None, tuple(sorted(missing)))
    return None


def _find_live_twice(
    change: Change, manifests: tuple[ManifestFile, ...], gone: set[str], gone_deletes: set[str]
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
        for manifest in manifests:
            if manifest.content is not ManifestContent.DELETES or not has_live_files(manifest):
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
    change: Change, manifests: tuple[ManifestFile, ...], gone: set[str]
) -> Generator[PlanEffect, PlanReply, Finding | None]:
    """A deletion vector goes when its data file goes, so it cannot come without it either."""
    targets = {file.referenced_data_file or "" for file in change.added_deletes if file.is_dv}
    found = yield from find_live((m for m in manifests if m.content is ManifestContent.DATA), targets)
    live = {entry.file.file_path for _, entry in found} - gone | {
        file.file_path for file in change.added_data
    }
    if not (missing := targets - live):
        return None
    text = f"data files of deletion vectors are not live at the head: {', '.join(sorted(missing))}"
    return Finding("vector-without-data-file", text, None, tuple(sorted(missing)))


def _goes(file: ContentFile, change: Change, gone: set[str]) -> bool:
    return is_wanted(file, change.removed_deletes) or file.referenced_data_file in gone


class _Build:
    """Writes the manifests of one snapshot, by effects."""

    def __init__(
        self, change: Change, table: TableMetadata, head: Snapshot | None, snapshot_id: int, sequence: int
    ) -> None:
        self._change, self._table, self._head = change, table, head
        self._snapshot_id, self._sequence = snapshot_id, sequence
        self._written: list[str] = []

    def run(self, manifests: tuple[ManifestFile, ...], removals: LiveChange, *, now_ms: int) -> Planning:
        change, envelope = self._change, self._table.envelope
        new: list[ManifestFile] = []
        numbered = envelope.format_version > 1  # v1 has no sequence numbers to keep
        for content, files, wanted in (
            (ManifestContent.DATA, change.added_data, change.data_sequence_number),
            (ManifestContent.DELETES, change.added_deletes, change.delete_sequence_number),
        ):
            sequence = wanted if numbered else None
            for spec_id in sorted({file.spec_id for file in files}):
                entries = tuple(
                    NewEntry(EntryStatus.ADDED, file, self._snapshot_id, sequence, None)
                    for file in files
                    if file.spec_id == spec_id
                )
                new.append((yield from self._write(entries, spec_id, content)))
        kept: list[ManifestFile] = []
        for manifest in manifests:
            removal = removals.data if manifest.content is ManifestContent.DATA else removals.deletes
            if manifest.manifest_path in removal.entries:
                kept.append((yield from self._rewrite(manifest, removal.entries[manifest.manifest_path])))
            elif has_live_files(manifest):
                kept.append(manifest)
        listed, next_row_id = self._with_row_ids((*new, *kept))
        first_row_id = envelope.next_row_id if envelope.format_version >= 3 else None
        parent = None if self._head is None else self._head.snapshot_id
        location = yield WriteManifestList(
            listed, self._snapshot_id, parent, self._sequence, first_row_id, self._table
        )
        if not isinstance(location, str):
            raise InvariantBroken("invariant broken: a manifest list has no location")
        self._written.append(location)
        counts = count_changes(
            (*change.added_data, *change.added_deletes), (*removals.data.files(), *removals.deletes.files())
        )
        snapshot = Snapshot(
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=self._sequence,
            timestamp_ms=self._timestamp(now_ms),
            manifest_list=location,
            summary=summarise(
                change.action, counts, change.summary, None if self._head is None else self._head.summary
            ),
            schema_id=envelope.current_schema_id,
            first_row_id=first_row_id,
            added_rows=None if first_row_id is None else next_row_id - first_row_id,
        )
        return Plan(snapshot, None if change.stage_only else change.branch, tuple(self._written))

    def _timestamp(self, now_ms: int) -> int:
        """Time never goes backwards along a branch, whatever the clocks of writers and replicas say."""
        after_head = 0 if self._head is None else self._head.timestamp_ms + 1
        return max(now_ms, after_head, self._table.envelope.last_updated_ms)

    def _write(
        self, entries: tuple[NewEntry, ...], spec_id: int, content: ManifestContent
    ) -> Generator[PlanEffect, PlanReply, ManifestFile]:
        reply = yield WriteManifest(entries, spec_id, content, self._snapshot_id, self._sequence, self._table)
        if not isinstance(reply, ManifestFile):
            raise InvariantBroken("invariant broken: a written manifest was not answered")
        self._written.append(reply.manifest_path)
        return reply

    def _rewrite(
        self, manifest: ManifestFile, removed: list[ManifestEntry]
    ) -> Generator[PlanEffect, PlanReply, ManifestFile]:
        """The same manifest with some entries marked as deleted; entries that were deleted before are left out."""
        gone = {(entry.file.identity, entry.data_sequence_number) for entry in removed}
        entries = []
        for entry in (yield from read_entries(manifest)):
            if not entry.is_live:
                continue
            is_gone = (entry.file.identity, entry.data_sequence_number) in gone
            entries.append(
                NewEntry(
                    EntryStatus.DELETED if is_gone else EntryStatus.EXISTING,
                    entry.file,
                    self._snapshot_id if is_gone else entry.snapshot_id,
                    entry.data_sequence_number,
                    entry.file_sequence_number,
                )
            )
        return (yield from self._write(tuple(entries), manifest.partition_spec_id, manifest.content))

    def _with_row_ids(self, manifests: tuple[ManifestFile, ...]) -> tuple[tuple[ManifestFile, ...], int]:
        """Row ids for data manifests that have none yet (spec v3, "First Row ID Assignment")."""
        envelope = self._table.envelope
        next_row_id = envelope.next_row_id or 0
        if envelope.format_version < 3:
            return manifests, next_row_id
        listed = []
        for manifest in manifests:
            if manifest.content is ManifestContent.DATA and manifest.first_row_id is None:
                rows = (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
                manifest, next_row_id = replace(manifest, first_row_id=next_row_id), next_row_id + rows
            listed.append(manifest)
        return tuple(listed), next_row_id
