"""What a client's snapshot does to its base, told from the manifests that the client wrote for it.

Nothing is believed that can be read: every manifest of the client's own is read, and what it carries over or leaves
out must be what the base had. A manifest that can stand on any head as it is (nothing but the files that this snapshot
adds, no stale number) is kept, so that nothing is written twice and the client's clean-up finds it in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace

from headgate.core.intake import FILES_MAX
from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from headgate.core.manifest_list import ManifestList, has_live_files
from headgate.core.table import Snapshot, TableMetadata
from headgate.core.taken import Identity
from headgate.core.window import ReadEffect, ReadReply, find_own, read_entries, read_manifests
from headgate.errors import BadInput, NotFound, Unsupported

_DATA, _DELETES = ManifestContent.DATA, ManifestContent.DELETES


@dataclass(frozen=True, slots=True)
class NotRebasable:
    """Why a commit is left as it was sent: the ordinary rules answer it."""

    reason: str


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """What the client's commit adds and removes. A number is None when files take that of their commit."""

    added_data: tuple[ContentFile, ...]
    added_deletes: tuple[ContentFile, ...]
    removed_data: frozenset[str]
    removed_deletes: frozenset[Identity]
    data_sequence_number: int | None
    delete_sequence_number: int | None
    kept: tuple[
        ManifestFile, ...
    ]  # hold all added files of their spec and content, and may be listed as they are
    left_over: tuple[str, ...]  # manifests that belong to no snapshot once the commit is rebased


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What the head gives out next: an entry that shows these has none of its own."""

    sequence: int
    row_id: int | None


@dataclass(slots=True)
class _Found:
    """What the client's own manifests hold, by what happened to it."""

    added: list[ManifestEntry] = field(default_factory=list)
    removed: list[ManifestEntry] = field(default_factory=list)
    carried: list[ManifestEntry] = field(default_factory=list)
    adding: list[tuple[int, ManifestContent]] = field(
        default_factory=list
    )  # spec and content of each that adds
    keepable: list[ManifestFile] = field(default_factory=list)


Reading = Generator[ReadEffect, ReadReply, "ClientFiles | NotRebasable"]


def read_client_files(snapshot: Snapshot, base: Snapshot | None, table: TableMetadata) -> Reading:
    """What a snapshot that a client built on `base` adds and removes, or what is odd about it."""
    try:
        return (yield from _read(snapshot, base, table))
    except (BadInput, NotFound, Unsupported) as error:
        return NotRebasable(f"the client's manifests cannot be read: {error.message}")


def _read(snapshot: Snapshot, base: Snapshot | None, table: TableMetadata) -> Reading:
    listed = yield from read_manifests(snapshot)
    before = ManifestList() if base is None else (yield from read_manifests(base))
    own = find_own(listed, snapshot)
    if (odd := _find_list_fault(listed, own, before, table)) is not None:
        return NotRebasable(odd)
    numbers = _next_numbers(table)
    found = _Found()
    for manifest in own:
        # Read as it would be listed on the head: whatever then differs from the head's numbers was written by the client.
        row_id = numbers.row_id if manifest.content is _DATA else None
        header = replace(manifest, sequence_number=numbers.sequence, first_row_id=row_id)
        entries = yield from read_entries(header)
        if (odd := _sort(header, entries, snapshot, found)) is not None:
            return NotRebasable(odd)
    stays = {manifest.manifest_path for manifest in listed}
    left_out: list[ManifestEntry] = []
    for manifest in before:
        if manifest.manifest_path not in stays and has_live_files(manifest):
            left_out.extend(e for e in (yield from read_entries(manifest)) if e.is_live)
    if _count(left_out) != _count((*found.carried, *found.removed)):
        return NotRebasable("files of the base are missing from the snapshot, or others are in their place")
    return _conclude(found, own, snapshot, numbers)


def _next_numbers(table: TableMetadata) -> _Numbers:
    envelope = table.envelope
    sequence = 0 if envelope.format_version == 1 else envelope.last_sequence_number + 1
    return _Numbers(sequence, (envelope.next_row_id or 0) if envelope.format_version >= 3 else None)


def _find_list_fault(
    listed: ManifestList, own: tuple[ManifestFile, ...], before: ManifestList, table: TableMetadata
) -> str | None:
    """What the manifest list says that cannot be, or that we cannot handle."""
    if len({manifest.manifest_path for manifest in listed}) != len(listed):
        return "a manifest is listed twice"
    ours = {manifest.manifest_path for manifest in own}
    known = {manifest.manifest_path: manifest for manifest in before}
    for manifest in listed:
        there = known.get(manifest.manifest_path)
        if (there is None) != (manifest.manifest_path in ours) or not _agree(manifest, there):
            return f"the snapshot lists a manifest otherwise than its base does: {manifest.manifest_path}"
    specs = {spec.spec_id for spec in table.envelope.partition_specs}
    for manifest in own:
        if manifest.partition_spec_id not in specs:
            return f"a manifest has partition spec {manifest.partition_spec_id}, which is unknown"
        if manifest.key_metadata is not None:
            return "a manifest is encrypted"
    if sum(manifest.added_files_count or 0 for manifest in own) > FILES_MAX:
        return f"more than {FILES_MAX} files are added"
    return None


def _agree(manifest: ManifestFile, there: ManifestFile | None) -> bool:
    """Whether two lists say the same of a manifest; row ids may be given to it later (v3, upgrades)."""
    return there is None or (
        manifest.content is there.content
        and manifest.partition_spec_id == there.partition_spec_id
        and manifest.sequence_number == there.sequence_number
        and manifest.added_snapshot_id == there.added_snapshot_id
    )


def _sort(
    header: ManifestFile, entries: tuple[ManifestEntry, ...], snapshot: Snapshot, found: _Found
) -> str | None:
    """Put the entries of one of the client's manifests where they belong; what is odd about them, if anything is."""
    if not _claims_hold(header, entries):
        return f"the manifest list miscounts the files of {header.manifest_path}"
    keeps, row_id = bool(entries), header.first_row_id
    for entry in entries:
        if entry.status is EntryStatus.EXISTING:
            found.carried.append(entry)
        elif entry.snapshot_id == snapshot.snapshot_id:
            (found.added if entry.is_live else found.removed).append(entry)
        elif entry.is_live:
            return f"a manifest adds files for snapshot {entry.snapshot_id}"
        # What is left was removed by an older commit and is only remembered.
        keeps = (
            keeps
            and entry.status is EntryStatus.ADDED
            and entry.file_sequence_number == header.sequence_number
        )
        keeps = keeps and not _repeats_number(entry, snapshot, header.sequence_number)
        if not entry.is_live or row_id is None:
            continue
        if entry.file.first_row_id == row_id:
            row_id += entry.file.record_count
        elif entry.status is EntryStatus.ADDED:
            return f"an added file has row ids already: {entry.file.file_path}"
    if any(entry.status is EntryStatus.ADDED for entry in entries):
        found.adding.append(_kind(header))
    if keeps:
        found.keepable.append(_as_listed(header, entries))
    return None


def _kind(manifest: ManifestFile) -> tuple[int, ManifestContent]:
    return manifest.partition_spec_id, manifest.content


def _claims_hold(manifest: ManifestFile, entries: tuple[ManifestEntry, ...]) -> bool:
    """Whether the list tells the truth about a manifest, as far as it tells: readers plan by these counts."""
    for status, files, rows in (
        (EntryStatus.ADDED, manifest.added_files_count, manifest.added_rows_count),
        (EntryStatus.EXISTING, manifest.existing_files_count, manifest.existing_rows_count),
        (EntryStatus.DELETED, manifest.deleted_files_count, manifest.deleted_rows_count),
    ):
        counts = [entry.file.record_count for entry in entries if entry.status is status]
        if files not in (None, len(counts)) or rows not in (None, sum(counts)):
            return False
    return True


def _repeats_number(entry: ManifestEntry, snapshot: Snapshot, sequence: int) -> bool:
    """Whether the client wrote its own commit's number into the entry, which says no more than inheriting it."""
    return entry.data_sequence_number == snapshot.sequence_number != sequence


def _as_listed(header: ManifestFile, entries: tuple[ManifestEntry, ...]) -> ManifestFile:
    """A kept manifest, numbered by the head; row ids are given to it when its place in the list is known."""
    return replace(
        header,
        min_sequence_number=min(entry.data_sequence_number for entry in entries),
        first_row_id=None,
        added_files_count=len(entries),
        added_rows_count=sum(entry.file.record_count for entry in entries),
        existing_files_count=0,
        existing_rows_count=0,
        deleted_files_count=0,
        deleted_rows_count=0,
    )


def _count(entries: Iterable[ManifestEntry]) -> Counter[tuple[Identity, int]]:
    return Counter((entry.file.identity, entry.data_sequence_number) for entry in entries)


def _conclude(
    found: _Found, own: tuple[ManifestFile, ...], snapshot: Snapshot, numbers: _Numbers
) -> ClientFiles | NotRebasable:
    added: dict[ManifestContent, list[ContentFile]] = {_DATA: [], _DELETES: []}
    ages: dict[ManifestContent, set[int | None]] = {_DATA: set(), _DELETES: set()}
    for entry in found.added:
        content = _DATA if entry.file.content is FileContent.DATA else _DELETES
        fresh = (numbers.sequence, snapshot.sequence_number)
        ages[content].add(None if entry.data_sequence_number in fresh else entry.data_sequence_number)
        added[content].append(replace(entry.file, first_row_id=None))
    if any(len(found_ages) > 1 for found_ages in ages.values()):
        return NotRebasable("added files have several sequence numbers of their own")
    removed = [entry.file for entry in found.removed]
    # A plan has one manifest for each spec and content. Several of a client's are put together into one.
    kept = tuple(manifest for manifest in found.keepable if found.adding.count(_kind(manifest)) == 1)
    kept_paths = {manifest.manifest_path for manifest in kept}
    return ClientFiles(
        added_data=tuple(added[_DATA]),
        added_deletes=tuple(added[_DELETES]),
        removed_data=frozenset(file.file_path for file in removed if file.content is FileContent.DATA),
        removed_deletes=frozenset(file.identity for file in removed if file.content is not FileContent.DATA),
        data_sequence_number=next(iter(ages[_DATA]), None),
        delete_sequence_number=next(iter(ages[_DELETES]), None),
        kept=kept,
        left_over=tuple(m.manifest_path for m in own if m.manifest_path not in kept_paths),
    )
