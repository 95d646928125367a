"""A table and its manifests in memory: drives the core's effects without a byte of Avro, for replays and properties."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.core.build import Appended, AppendFiles, WriteManifest, WriteManifestList, list_next
from headgate.core.live import FindLive, FoundLive
from headgate.core.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile, NewEntry
from headgate.core.manifest_list import ManifestList
from headgate.core.manifest_merge import AddedTwice, MergeManifests
from headgate.core.merged_entries import merge_entries
from headgate.core.taken import partition_of
from headgate.core.window import (
    ManifestChanges,
    OwnManifests,
    ReadChanges,
    ReadManifest,
    ReadManifestList,
    ReadOwn,
    find_changes,
    find_list,
    find_own,
)


@dataclass
class MemoryWorld:
    """Manifest lists and manifests by path."""

    lists: dict[str, ManifestList] = field(default_factory=dict)
    manifests: dict[str, tuple[NewEntry, ...]] = field(default_factory=dict)
    made: int = 0
    at_once: bool = False  # whether appends are made in one step where that is asked for

    def drive(self, conversation: Generator[Any, Any, Any]) -> Any:
        """Answer every effect until the conversation ends."""
        reply: Any = None
        while True:
            try:
                effect = conversation.send(reply)
            except StopIteration as stop:
                return stop.value
            reply = self.answer(effect)

    def answer(self, effect: Any) -> Any:
        """One effect."""
        match effect:
            case ReadManifestList():
                return self.lists[effect.location]
            case ReadOwn():
                return OwnManifests(tuple(find_own(self.lists[find_list(s)], s) for s in effect.snapshots))
            case ReadChanges():
                return ManifestChanges(tuple(find_changes(self.entries(m), m) for m in effect.manifests))
            case ReadManifest():
                return self.entries(effect.manifest)
            case FindLive():
                return FoundLive(
                    tuple(
                        (manifest, entry)
                        for manifest in effect.manifests
                        if effect.content in (None, manifest.content)
                        for entry in self.entries(manifest)
                        if entry.is_live and entry.file.file_path in effect.paths
                    )
                )
            case WriteManifest():
                return self._write_manifest(effect)
            case MergeManifests():
                return self._merge(effect)
            case WriteManifestList():
                path = self._path("list")
                self.lists[path] = effect.manifests
                return path
            case AppendFiles():
                return self._append(effect) if self.at_once else None
        raise AssertionError(f"unknown effect {effect}")

    def entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """Entries with numbers and row ids inherited, as a reader of the file would see them."""
        found = []
        row_id = manifest.first_row_id
        for entry in self.manifests[manifest.manifest_path]:
            file = entry.file
            inherits = manifest.content is ManifestContent.DATA and file.first_row_id is None
            if inherits and row_id is not None and entry.status is not EntryStatus.DELETED:
                file = replace(file, first_row_id=row_id)
                row_id += file.record_count
            sequence = manifest.sequence_number
            found.append(
                ManifestEntry(
                    entry.status,
                    entry.snapshot_id,
                    sequence if entry.data_sequence_number is None else entry.data_sequence_number,
                    sequence if entry.file_sequence_number is None else entry.file_sequence_number,
                    file,
                )
            )
        return tuple(found)

    def _merge(self, effect: MergeManifests) -> ManifestFile | AddedTwice | None:
        merged = merge_entries(
            [self.entries(manifest) for manifest in effect.manifests], snapshot_id=effect.snapshot_id
        )
        if isinstance(merged, AddedTwice):
            return merged
        entries = tuple(entry for part in merged for entry in part)
        if not entries:
            return None
        return self._write_manifest(
            WriteManifest(
                entries,
                effect.spec_id,
                effect.content,
                effect.snapshot_id,
                effect.sequence_number,
                effect.table,
            )
        )

    def _append(self, effect: AppendFiles) -> Appended | None:
        paths = frozenset(file.file_path for file in effect.files)
        if self.answer(FindLive(effect.manifests, paths)).of:
            return None
        entries = tuple(
            NewEntry(EntryStatus.ADDED, file, effect.snapshot_id, None, None) for file in effect.files
        )
        ids = (effect.snapshot_id, effect.sequence_number)
        manifest = self._write_manifest(
            WriteManifest(entries, effect.spec_id, ManifestContent.DATA, *ids, effect.table)
        )
        listed, next_row_id = list_next(
            effect.manifests, (manifest,), effect.table.envelope, rest=effect.rest
        )
        path = self._path("list")
        self.lists[path] = listed
        return Appended(manifest.manifest_path, path, next_row_id)

    def _write_manifest(self, effect: WriteManifest) -> ManifestFile:
        path = self._path("manifest")
        self.manifests[path] = effect.entries
        counts = {status: [e.file for e in effect.entries if e.status is status] for status in EntryStatus}
        live = [e for e in effect.entries if e.status is not EntryStatus.DELETED]
        numbers = [
            effect.sequence_number if e.data_sequence_number is None else e.data_sequence_number for e in live
        ]
        assert all(partition_of(e.file)[0] == effect.spec_id for e in effect.entries)
        return ManifestFile(
            manifest_path=path,
            manifest_length=1,
            partition_spec_id=effect.spec_id,
            content=effect.content,
            sequence_number=effect.sequence_number,
            min_sequence_number=min(numbers, default=effect.sequence_number),
            added_snapshot_id=effect.snapshot_id,
            added_files_count=len(counts[EntryStatus.ADDED]),
            existing_files_count=len(counts[EntryStatus.EXISTING]),
            deleted_files_count=len(counts[EntryStatus.DELETED]),
            added_rows_count=sum(f.record_count for f in counts[EntryStatus.ADDED]),
            existing_rows_count=sum(f.record_count for f in counts[EntryStatus.EXISTING]),
            deleted_rows_count=sum(f.record_count for f in counts[EntryStatus.DELETED]),
        )

    def _path(self, kind: str) -> str:
        self.made += 1
        return f"mem://{kind}/{self.made}"
