"""The manifests of one snapshot, written by effects: what a change adds, rewrites and, within its budget, merges.

Judging is over when this begins (`plan`). Numbers and times come from the head and are assigned anew each attempt.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from headgate.core.conflicts import Finding
from headgate.core.identity_cache import IdentityCache
from headgate.core.live import FindLive, FoundLive, LiveChange
from headgate.core.manifest import (
    ADDED,
    DATA_MANIFEST,
    DELETE_MANIFEST,
    ContentFile,
    EntryStatus,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    NewEntry,
)
from headgate.core.manifest_list import ManifestList, has_live_files, number
from headgate.core.manifest_merge import (
    AddedTwice,
    Merged,
    MergeManifests,
    MergePlan,
    MergePolicy,
    Rest,
    background_change,
    find_rest,
    merge,
    parse_policy,
    plan_merge,
)
from headgate.core.summary import count_changes, summarise
from headgate.core.table import Envelope, Snapshot, TableMetadata
from headgate.core.taken import Change
from headgate.core.value import Record
from headgate.core.window import ReadEffect, ReadReply, read_entries
from headgate.errors import InvariantBroken

_POLICIES: IdentityCache[MergePolicy] = IdentityCache()


class WriteManifest(Record):
    """Encode and write one manifest. Answered by its `ManifestFile`."""

    entries: tuple[NewEntry, ...]
    spec_id: int
    content: ManifestContent
    snapshot_id: int
    sequence_number: int
    table: TableMetadata


class WriteManifestList(Record):
    """Encode and write the manifest list. Answered by its location."""

    manifests: ManifestList
    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    first_row_id: int | None
    table: TableMetadata


class AppendFiles(Record):
    """Write one manifest of new data files and the list that has it in front of the parent's, if none of the paths is live.

    Answered by `Appended`, or by None when something of it cannot be done in one step: then nothing was written, and it
    is asked for step by step. A driver that has nothing to gain by one step may always say so.
    """

    files: tuple[ContentFile, ...]
    spec_id: int
    snapshot_id: int
    sequence_number: int
    parent: Snapshot
    manifests: ManifestList  # the parent's
    rest: Rest | None  # of the parent's, before these files
    table: TableMetadata


class Appended(Record):
    """Where the manifest and the list are, and the next row id after them (of v3)."""

    manifest: str
    manifest_list: str
    next_row_id: int


PlanEffect = ReadEffect | FindLive | AppendFiles | WriteManifest | WriteManifestList | MergeManifests
PlanReply = ReadReply | FoundLive | Appended | ManifestFile | str | AddedTwice | None
Planning = Generator[PlanEffect, PlanReply, "Plan | Finding"]


class Plan(Record):
    """A snapshot that is ready to be added, and the files that were written for it."""

    snapshot: Snapshot
    branch: str | None  # None: staged only
    written: tuple[str, ...]


class Build:
    """Writes the manifests of one snapshot, by effects. `ids` are its id and sequence number.

    `written` is told of every file when it is written.
    """

    def __init__(
        self,
        change: Change,
        table: TableMetadata,
        head: Snapshot | None,
        ids: tuple[int, int],
        written: list[str],
    ) -> None:
        self._change, self._table, self._head = change, table, head
        self._snapshot_id, self._sequence = ids
        self._rest: Rest | None = None
        self._written, self._before = written, len(written)

    def run(self, manifests: ManifestList, removals: LiveChange, *, now_ms: int) -> Planning:
        change, envelope = self._change, self._table.envelope
        new: list[ManifestFile] = []
        numbered = envelope.format_version > 1  # v1 has no sequence numbers to keep
        for content, files, wanted in (
            (DATA_MANIFEST, change.added_data, change.data_sequence_number),
            (DELETE_MANIFEST, change.added_deletes, change.delete_sequence_number),
        ):
            sequence = wanted if numbered else None
            for spec_id in sorted({file.spec_id for file in files}):
                entries = tuple(
                    [
                        NewEntry(ADDED, file, self._snapshot_id, sequence, None)
                        for file in files
                        if file.spec_id == spec_id
                    ]
                )
                new.append((yield from self._write(entries, spec_id, content)))
        rewritten: dict[str, ManifestFile | None] = {}
        for removal in (removals.data, removals.deletes):
            for path, removed in removal.entries.items():
                rewritten[path] = yield from self._rewrite(removal.manifests[path], removed)
        merged = yield from self._merge(manifests, rewritten)
        listed, next_row_id = list_next(manifests, new, envelope, rewritten=rewritten, rest=self._rest)
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
                change.action,
                counts,
                {**change.summary, **self._describe_merge(merged, new=len(new), listed=len(listed))},
                None if self._head is None else self._head.summary,
            ),
            schema_id=envelope.current_schema_id,
            first_row_id=first_row_id,
            added_rows=None if first_row_id is None else next_row_id - first_row_id,
        )
        written = tuple(self._written[self._before :])
        return Plan(snapshot, None if change.stage_only else change.branch, written)

    def _merge(
        self, manifests: ManifestList, rewritten: dict[str, ManifestFile | None]
    ) -> Generator[PlanEffect, PlanReply, Merged | None]:
        """Merge manifests that this commit takes over unchanged, within its budget; noted among the rewritten."""
        policy = merge_policy_of(self._table.envelope.properties)
        if self._change.rewrites_manifests:
            kept = _find_kept(manifests, rewritten)
            plan = background_change(kept, replace(policy, enabled=True), idle=True) or MergePlan()
        elif policy.enabled:
            rest = manifests.rest
            if rest is not None and rest.policy is policy and not rewritten:
                self._rest = rest
                return None
            if manifests.length < policy.fan_in:
                return None
            plan = plan_merge(_find_kept(manifests, rewritten), policy)
            if not plan.bins and not rewritten:
                self._rest = find_rest(_find_kept(manifests, rewritten), policy)
        else:
            return None
        if not plan.bins:
            return None
        removes = bool(rewritten)
        merging = merge(plan, self._table, snapshot_id=self._snapshot_id, sequence_number=self._sequence)
        reply: PlanReply = None
        while True:
            try:
                effect = merging.send(reply if isinstance(reply, ManifestFile | AddedTwice) else None)
            except StopIteration as stop:
                merged: Merged = stop.value
                break
            reply = yield effect
            if isinstance(reply, ManifestFile):
                self._written.append(reply.manifest_path)
        rewritten.update(merged.replaced)
        if not removes and not plan_merge(_find_standing(manifests, rewritten), policy).bins:
            # Told here, or a later commit that is otherwise plain would have to look for it.
            self._rest = find_rest(_find_standing(manifests, rewritten), policy)
        return merged

    def _describe_merge(self, merged: Merged | None, *, new: int, listed: int) -> dict[str, str]:
        if merged is None:
            return {}
        if self._change.rewrites_manifests:
            return merged.count_rewrite(listed=listed)
        return merged.count_manifests(new=new, listed=listed)

    def _timestamp(self, now_ms: int) -> int:
        """Time never goes backwards along a branch, whatever the clocks of writers and replicas say."""
        of_head = 0 if self._head is None else self._head.timestamp_ms
        return max(now_ms, of_head, self._table.envelope.last_updated_ms)

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
        paths = {entry.file.file_path for entry in removed}
        entries = []
        for entry in (yield from read_entries(manifest)):
            if entry.status is EntryStatus.DELETED:
                continue
            file, number = entry.file, entry.data_sequence_number
            is_gone = file.file_path in paths and (file.identity, number) in gone
            status = EntryStatus.DELETED if is_gone else EntryStatus.EXISTING
            by = self._snapshot_id if is_gone else entry.snapshot_id
            entries.append(NewEntry(status, file, by, number, entry.file_sequence_number))
        return (yield from self._write(tuple(entries), manifest.partition_spec_id, manifest.content))


def merge_policy_of(properties: dict[str, str]) -> MergePolicy:
    """What a table's properties say about merging: one object for as long as they are the same."""
    return _POLICIES.get((properties,), lambda: parse_policy(properties))


def list_next(
    manifests: ManifestList,
    new: Sequence[ManifestFile],
    envelope: Envelope,
    *,
    rewritten: Mapping[str, ManifestFile | None] | None = None,
    rest: Rest | None = None,
) -> tuple[ManifestList, int]:
    """The list of a new snapshot, and the next row id after it (v3)."""
    next_row_id, has_row_ids = envelope.next_row_id or 0, envelope.format_version >= 3
    left = None if rest is None else rest.after(new)
    if (
        has_row_ids and not rewritten and not manifests.unnumbered
    ):  # then nobody has to look at what is not new
        new, next_row_id = number(new, next_row_id)
    listed = manifests.next(new, rewritten, left)
    if has_row_ids:
        listed, next_row_id = listed.numbered(next_row_id)
    if rest is not None and listed.rest is not left:
        listed = listed.resting(left)
    return listed, next_row_id


def _find_kept(manifests: ManifestList, rewritten: Container[str]) -> Iterator[ManifestFile]:
    """The manifests that a commit takes over unchanged."""
    return (m for m in manifests if m.manifest_path not in rewritten and has_live_files(m))


def _find_standing(
    manifests: ManifestList, rewritten: Mapping[str, ManifestFile | None]
) -> Iterator[ManifestFile]:
    """What the next commit finds behind the new manifests of this one."""
    standing = (rewritten.get(m.manifest_path, m) for m in manifests)
    return (m for m in standing if m is not None and has_live_files(m))
