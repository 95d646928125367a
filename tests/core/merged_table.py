"""A table's manifests through commits that append, remove and merge, with whatever keeps the manifests.

Commits follow `core.plan`: what a commit adds or rewrites itself is not merged by it. `Entries` keeps values; a
test of bytes brings its own keeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    Metrics,
    NewEntry,
)
from headgate.core.manifest_merge import (
    COMMIT_BUDGET,
    AddedTwice,
    Budget,
    Merged,
    MergeManifests,
    MergePlan,
    MergePolicy,
    MergeReply,
    background_change,
    merge,
    plan_merge,
)
from headgate.core.merged_entries import merge_entries
from tests.core.builders import table

DATA, DELETES = ManifestContent.DATA, ManifestContent.DELETES
SPECS = (3, 4)
Facts = tuple[str, int, int | None, int, int | None]


def file(path: str, *, spec_id: int = 3, content: ManifestContent = DATA, rows: int = 5) -> ContentFile:
    kind = FileContent.DATA if content is DATA else FileContent.POSITION_DELETES
    day = sum(path.encode()) % 9
    return ContentFile(kind, path, "PARQUET", spec_id, ((1000, day),), rows, 1000, metrics=Metrics())


def facts(entry: ManifestEntry) -> Facts:
    """What merging must not change."""
    return (
        entry.file.file_path,
        entry.data_sequence_number,
        entry.file_sequence_number,
        entry.snapshot_id,
        entry.file.first_row_id,
    )


class Keeper(Protocol):
    """Writes, reads and merges manifests."""

    version: int

    def write(self, entries: Sequence[NewEntry], like: ManifestFile) -> ManifestFile: ...

    def read(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]: ...

    def merge(self, effect: MergeManifests) -> MergeReply: ...


def listed(path: str, number: int, snapshot_id: int, spec_id: int, content: ManifestContent) -> ManifestFile:
    """A manifest of which the numbers and counts are still to come."""
    return ManifestFile(path, 0, spec_id, content, number, number, snapshot_id)


@dataclass
class Entries:
    """Keeps the entries of manifests as values, with what a reader inherits."""

    version: int = 3
    kept: dict[str, tuple[NewEntry, ...]] = field(default_factory=dict)

    def write(self, entries: Sequence[NewEntry], like: ManifestFile) -> ManifestFile:
        path = f"m{len(self.kept)}"
        self.kept[path] = tuple(entries)
        files = {status: [e.file for e in entries if e.status is status] for status in EntryStatus}
        counts: dict[str, Any] = {
            f"{status.name.lower()}_{what}_count": len(found)
            if what == "files"
            else sum(one.record_count for one in found)
            for status, found in files.items()
            for what in ("files", "rows")
        }
        return replace(like, manifest_path=path, manifest_length=300 + 100 * len(entries), **counts)

    def read(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        found: list[ManifestEntry] = []
        row_id = manifest.first_row_id
        for entry in self.kept[manifest.manifest_path]:
            one = entry.file
            if row_id is not None and one.first_row_id is None and entry.status is not EntryStatus.DELETED:
                one, row_id = replace(one, first_row_id=row_id), row_id + one.record_count
            numbers = [
                manifest.sequence_number if number is None else number
                for number in (entry.data_sequence_number, entry.file_sequence_number)
            ]
            found.append(ManifestEntry(entry.status, entry.snapshot_id, numbers[0], numbers[1], one))
        return tuple(found)

    def merge(self, effect: MergeManifests) -> MergeReply:
        merged = merge_entries([self.read(m) for m in effect.manifests], snapshot_id=effect.snapshot_id)
        if isinstance(merged, AddedTwice):
            return merged
        entries = [entry for part in merged for entry in part]
        like = listed("", effect.sequence_number, effect.snapshot_id, effect.spec_id, effect.content)
        return self.write(entries, like) if entries else None


@dataclass
class World:
    """One table. `ledger` says of every live file what was true when it was added."""

    keeper: Keeper
    policy: MergePolicy = field(default_factory=MergePolicy)
    budget: Budget = COMMIT_BUDGET
    manifests: list[ManifestFile] = field(default_factory=list)
    ledger: dict[str, Facts] = field(default_factory=dict)
    commits: int = 0
    next_row_id: int = 0
    entries_merged: int = 0

    def live(self, manifests: Iterable[ManifestFile] | None = None) -> list[ManifestEntry]:
        """In the order of the list."""
        chosen = self.manifests if manifests is None else manifests
        return [e for m in chosen for e in self.keeper.read(m) if e.is_live]

    def append(self, *files: ContentFile) -> MergePlan:
        return self._commit(files, frozenset())

    def remove(self, *paths: str) -> MergePlan:
        return self._commit((), frozenset(paths))

    def tidy(self, *, idle: bool = True) -> MergePlan | None:
        """A background commit, if there is something for it to do."""
        plan = background_change(self.manifests, self.policy, idle=idle)
        if plan is not None:
            self.commits += 1
            self._replace(self._merge(plan))
        return plan

    def _commit(self, files: Sequence[ContentFile], gone: frozenset[str]) -> MergePlan:
        self.commits += 1
        before = [m for m in self.manifests if m.added_files_count or m.existing_files_count]
        touched = {m.manifest_path for m in before if any(e.file.file_path in gone for e in self.live([m]))}
        kept = (m for m in before if m.manifest_path not in touched)
        plan = plan_merge(kept, self.policy, budget=self.budget)
        merged = self._merge(plan)
        self.manifests = [self._rewrite(m, gone) if m.manifest_path in touched else m for m in before]
        self._replace(merged)
        for content, spec_id in sorted({(self._content(f), f.spec_id) for f in files}, reverse=True):
            mine = [f for f in files if (self._content(f), f.spec_id) == (content, spec_id)]
            like = listed("", self._number, self._snapshot_id, spec_id, content)
            new = [NewEntry(EntryStatus.ADDED, f, self._snapshot_id, None, None) for f in mine]
            self.manifests.insert(0, self.keeper.write(new, like))
        self._number_rows()
        self.ledger = {path: known for path, known in self.ledger.items() if path not in gone}
        for entry in self.live(m for m in self.manifests if m.added_snapshot_id == self._snapshot_id):
            self.ledger.setdefault(entry.file.file_path, facts(entry))
        return plan

    @property
    def _snapshot_id(self) -> int:
        return 7000 + self.commits

    @property
    def _number(self) -> int:
        return 0 if self.keeper.version == 1 else self.commits

    @staticmethod
    def _content(one: ContentFile) -> ManifestContent:
        return DATA if one.content is FileContent.DATA else DELETES

    def _merge(self, plan: MergePlan) -> Merged:
        running = merge(plan, table(), snapshot_id=self._snapshot_id, sequence_number=self._number)
        try:
            effect = next(running)
            while True:
                effect = running.send(self.keeper.merge(effect))
        except StopIteration as done:
            merged: Merged = done.value
        self.entries_merged += merged.entries_processed
        return merged

    def _replace(self, merged: Merged) -> None:
        found = [merged.replaced.get(m.manifest_path, m) for m in self.manifests]
        self.manifests = [m for m in found if m is not None]
        self._number_rows()

    def _rewrite(self, manifest: ManifestFile, gone: frozenset[str]) -> ManifestFile:
        entries = []
        for entry in self.live([manifest]):
            is_gone = entry.file.file_path in gone
            status = EntryStatus.DELETED if is_gone else EntryStatus.EXISTING
            snapshot_id = self._snapshot_id if is_gone else entry.snapshot_id
            numbers = (entry.data_sequence_number, entry.file_sequence_number)
            entries.append(NewEntry(status, entry.file, snapshot_id, *numbers))
        like = listed("", self._number, self._snapshot_id, manifest.partition_spec_id, manifest.content)
        return self.keeper.write(entries, like)

    def _number_rows(self) -> None:
        """Row ids for data manifests that have none yet (spec v3), as `core.plan` gives them."""
        for n, manifest in enumerate(self.manifests):
            if self.keeper.version >= 3 and manifest.content is DATA and manifest.first_row_id is None:
                self.manifests[n] = replace(manifest, first_row_id=self.next_row_id)
                self.next_row_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
