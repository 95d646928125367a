"""What a change does to the files that are live at the head: which go, which manifests must be written anew.

Read by effects, pruned by partition summaries; `FindLive` lets a driver answer from an index of paths. Rules of
Java's filter of manifests: a file of which every row matches the row filter goes, one that only some rows of
match refuses the change; deletion vectors go with their data file; when data goes, delete files older than all
remaining data go too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pyiceberg.expressions.visitors import inclusive_projection, manifest_evaluator

from headgate.core.conflicts import Finding
from headgate.core.filters import RowFilter
from headgate.core.iceberg import to_schema, to_spec
from headgate.core.intake import Change, Identity, partition_of
from headgate.core.manifest import ContentFile, FileContent, ManifestContent, ManifestEntry, ManifestFile
from headgate.core.partitioning import is_unpartitioned
from headgate.core.table import TableMetadata
from headgate.core.window import ReadEffect, ReadReply, read_entries
from headgate.errors import BadInput

_DATA, _DELETES = ManifestContent.DATA, ManifestContent.DELETES


@dataclass(frozen=True, slots=True)
class FindLive:
    """Which of these paths are live in these manifests? Answered by a tuple of (manifest, entry)."""

    manifests: tuple[ManifestFile, ...]
    paths: frozenset[str]


FoundLive = tuple[tuple[ManifestFile, ManifestEntry], ...]
LiveEffect = ReadEffect | FindLive
LiveReply = ReadReply | FoundLive


@dataclass(slots=True)
class Removal:
    """What goes: entries by manifest path, in the order found."""

    entries: dict[str, list[ManifestEntry]] = field(default_factory=dict)
    manifests: dict[str, ManifestFile] = field(default_factory=dict)
    _marks: set[tuple[str, Identity, int]] = field(default_factory=set)

    def add(self, manifest: ManifestFile, entry: ManifestEntry) -> None:
        """Mark an entry as removed, once."""
        self.manifests[manifest.manifest_path] = manifest
        mark = (manifest.manifest_path, entry.file.identity, entry.data_sequence_number)
        if mark not in self._marks:
            self._marks.add(mark)
            self.entries.setdefault(manifest.manifest_path, []).append(entry)

    def files(self) -> list[ContentFile]:
        """Everything that goes."""
        return [entry.file for entries in self.entries.values() for entry in entries]


@dataclass(frozen=True, slots=True)
class LiveChange:
    """What a change removes from the head, data and deletes apart."""

    data: Removal
    deletes: Removal


def has_live_files(manifest: ManifestFile) -> bool:
    """Whether a manifest may hold live files; counts may be unknown in v1."""
    counts = (manifest.added_files_count, manifest.existing_files_count)
    return None in counts or any(counts)


def find_live(
    manifests: Iterable[ManifestFile], paths: Iterable[str]
) -> Generator[LiveEffect, LiveReply, FoundLive]:
    """Live entries of these paths."""
    wanted = frozenset(paths)
    candidates = tuple(manifest for manifest in manifests if has_live_files(manifest))
    if not wanted or not candidates:
        return ()
    reply = yield FindLive(candidates, wanted)
    return tuple(item for item in reply if isinstance(item, tuple))


def find_removals(
    change: Change, table: TableMetadata, manifests: tuple[ManifestFile, ...]
) -> Generator[LiveEffect, LiveReply, LiveChange | Finding]:
    """What the change removes from these manifests, or why it may not."""
    data_manifests = tuple(m for m in manifests if m.content is _DATA)
    delete_manifests = tuple(m for m in manifests if m.content is _DELETES)
    data, deletes = Removal(), Removal()
    for manifest, entry in (yield from find_live(data_manifests, change.removed_data)):
        data.add(manifest, entry)
    for manifest in data_manifests:
        finding = yield from _scan(change, table, manifest, data)
        if finding is not None:
            return finding
    yield from _remove_deletes(change, table, data, data_manifests, delete_manifests, deletes)
    return LiveChange(data, deletes)


def _scan(
    change: Change,
    table: TableMetadata,
    manifest: ManifestFile,
    into: Removal,
    data_specs: frozenset[int] = frozenset(),
) -> Generator[LiveEffect, LiveReply, Finding | None]:
    """Removals by row filter and by partition in one manifest; `data_specs` are those that live data has."""
    row_filter = change.row_filter
    by_filter = row_filter is not None and may_hold_matches(manifest, row_filter, table)
    by_partition = any(spec_id == manifest.partition_spec_id for spec_id, _ in change.drop_partitions)
    if not has_live_files(manifest) or not (by_filter or by_partition):
        return None
    is_data = manifest.content is _DATA
    spec = table.find_spec(manifest.partition_spec_id)
    reaches_others = is_unpartitioned(spec) and bool(data_specs - {spec.spec_id})
    for entry in (yield from read_entries(manifest)):
        if not entry.is_live:
            continue
        marked = partition_of(entry.file) in change.drop_partitions
        if marked and reaches_others and entry.file.content is FileContent.EQUALITY_DELETES:
            marked = False  # it concerns data of other specs too; only its age can make it needless
        if is_data and entry.file.file_path in change.removed_data:
            continue  # removed by its path already
        if not marked and row_filter is not None and row_filter.some_rows_match(entry.file):
            marked = row_filter.all_rows_match(entry.file)
            if not marked and is_data:
                text = f"some, but not all, rows of a file match the filter: {entry.file.file_path}"
                return Finding(
                    "partial-row-filter-match",
                    text,
                    None,
                    (entry.file.file_path,),
                    row_filter.raw,
                )
        if marked:
            into.add(manifest, entry)
    return None


def _remove_deletes(
    change: Change,
    table: TableMetadata,
    data: Removal,
    data_manifests: tuple[ManifestFile, ...],
    delete_manifests: tuple[ManifestFile, ...],
    into: Removal,
) -> Generator[LiveEffect, LiveReply, None]:
    wanted = change.removed_deletes
    vectors: Counter[str] = Counter()
    for manifest, entry in (yield from find_live(delete_manifests, (path for path, _ in wanted))):
        if not is_wanted(entry.file, wanted):
            continue
        into.add(manifest, entry)
        vectors[entry.file.file_path] += entry.file.is_dv
        if vectors[entry.file.file_path] > 1 and (entry.file.file_path, None) in wanted:
            raise BadInput(
                f"the file holds several deletion vectors; say which by content-offset: {entry.file.file_path}",
                field="remove-delete-files",
                rule="malformed-operation",
            )
    data_specs = frozenset(m.partition_spec_id for m in data_manifests if has_live_files(m))
    for manifest in delete_manifests:
        yield from _scan(change, table, manifest, into, data_specs)
    gone = {file.file_path for file in data.files()}
    if not gone and not into.entries:
        return
    floor = yield from _oldest_data(table, data, data_manifests)
    if change.added_data and change.data_sequence_number is not None:
        # What we add is as old as it says: deletes of the window must still reach it.
        floor = min(floor, change.data_sequence_number)
    for manifest in delete_manifests:
        if not has_live_files(manifest):
            continue
        for entry in (yield from read_entries(manifest)):
            dangling = entry.file.is_dv and entry.file.referenced_data_file in gone
            if entry.is_live and (dangling or 0 < entry.data_sequence_number < floor):
                into.add(manifest, entry)


def is_wanted(file: ContentFile, wanted: frozenset[Identity]) -> bool:
    """Whether a delete file is among those to remove, by its path or by path and offset."""
    return (file.file_path, file.content_offset) in wanted or (file.file_path, None) in wanted


def _oldest_data(
    table: TableMetadata, data: Removal, manifests: tuple[ManifestFile, ...]
) -> Generator[LiveEffect, LiveReply, int]:
    """The smallest sequence number of the data that stays; the table's last one when none stays."""
    oldest = table.envelope.last_sequence_number
    for manifest in manifests:
        if manifest.manifest_path not in data.entries:
            if has_live_files(manifest):
                oldest = min(oldest, manifest.min_sequence_number)
            continue
        gone = {entry.file.file_path for entry in data.entries[manifest.manifest_path]}
        for entry in (yield from read_entries(manifest)):
            if entry.is_live and entry.file.file_path not in gone:
                oldest = min(oldest, entry.data_sequence_number)
    return oldest


def may_hold_matches(manifest: ManifestFile, row_filter: RowFilter, table: TableMetadata) -> bool:
    """Whether the partition summaries of a manifest leave room for a file that matches."""
    if manifest.partitions is None:
        return True
    spec = table.find_spec(manifest.partition_spec_id)
    # PyIceberg looks at these attributes of a manifest only.
    seen: Any = SimpleNamespace(partitions=list(manifest.partitions))
    schema = to_schema(table.schema())
    projected = inclusive_projection(schema, to_spec(spec))(row_filter.expression)
    evaluate = manifest_evaluator(to_spec(spec), schema, projected)
    return bool(evaluate(seen))
