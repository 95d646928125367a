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

from headgate.core.conflicts import Finding
from headgate.core.manifest import ContentFile, FileContent, ManifestContent, ManifestEntry, ManifestFile
from headgate.core.manifest_list import ManifestList, has_live_files
from headgate.core.partitioning import is_unpartitioned
from headgate.core.table import TableMetadata
from headgate.core.taken import Change, Identity, partition_of
from headgate.core.value import Record
from headgate.core.window import ReadEffect, ReadReply, read_entries
from headgate.errors import BadInput, InvariantBroken

_DATA, _DELETES = ManifestContent.DATA, ManifestContent.DELETES


class FindLive(Record):
    """Which of these paths are live in these manifests, of one content or of both? Answered by `FoundLive`."""

    manifests: ManifestList
    paths: frozenset[str]
    content: ManifestContent | None = None


class FoundLive(Record):
    """The live entries that were asked for, each with its manifest."""

    of: tuple[tuple[ManifestFile, ManifestEntry], ...] = ()


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


class LiveChange(Record):
    """What a change removes from the head, data and deletes apart."""

    data: Removal
    deletes: Removal


NOTHING = LiveChange(Removal(), Removal())


def find_live(
    manifests: ManifestList, paths: Iterable[str], content: ManifestContent | None = None
) -> Generator[LiveEffect, LiveReply, tuple[tuple[ManifestFile, ManifestEntry], ...]]:
    """Live entries of these paths."""
    wanted = frozenset(paths)
    if not wanted or manifests.length == len(manifests.dead):
        return ()
    reply = yield FindLive(manifests, wanted, content)
    if not isinstance(reply, FoundLive):
        raise InvariantBroken("invariant broken: live files were not answered")
    return reply.of


def find_removals(
    change: Change, table: TableMetadata, manifests: ManifestList, *, cleared_after: int | None = None
) -> Generator[LiveEffect, LiveReply, LiveChange | Finding]:
    """What the change removes from these manifests, or why it may not.

    Data of a sequence number above `cleared_after` is known not to match the row filter.
    """
    scans = change.row_filter is not None or bool(change.drop_partitions)
    if not scans and not change.removed_data and not change.removed_deletes:
        return NOTHING  # an append does not look at every manifest
    data, deletes = Removal(), Removal()
    for manifest, entry in (yield from find_live(manifests, change.removed_data, _DATA)):
        data.add(manifest, entry)
    if scans:
        for manifest in manifests.only(_DATA):
            if cleared_after is not None and manifest.min_sequence_number > cleared_after:
                continue
            finding = yield from _scan(change, table, manifest, data)
            if finding is not None:
                return finding
    yield from _remove_deletes(change, table, data, manifests, deletes)
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
    by_filter = row_filter is not None and row_filter.may_hold(manifest)
    by_partition = any(spec_id == manifest.partition_spec_id for spec_id, _ in change.drop_partitions)
    if not has_live_files(manifest) or not (by_filter or by_partition):
        return None
    is_data = manifest.content is _DATA
    spec = table.find_spec(manifest.partition_spec_id)
    reaches_others = is_unpartitioned(spec) and bool(data_specs - {spec.spec_id})
    for entry in (yield from read_entries(manifest)):
        if not entry.is_live:
            continue
        marked = bool(change.drop_partitions) and partition_of(entry.file) in change.drop_partitions
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
    manifests: ManifestList,
    into: Removal,
) -> Generator[LiveEffect, LiveReply, None]:
    if not manifests.deletes:
        return
    wanted, delete_manifests = change.removed_deletes, manifests.deletes
    data_manifests = tuple(manifests.only(_DATA))
    vectors: Counter[str] = Counter()
    for manifest, entry in (yield from find_live(manifests, (path for path, _ in wanted), _DELETES)):
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
