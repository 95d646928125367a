"""Upkeep of a table: snapshots that may go, and files that nobody reaches. Deletes only what a load has proved unused.

What is reachable is judged by `core.reach`, as the service does: all snapshots, all kinds of files (data, deletes,
manifests, lists, statistics, metadata), under every spelling of a location, and once more right before anything is
deleted. A file that no snapshot names may be one that a writer is about to commit, so only old ones are orphans.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec
from pyarrow.fs import FileInfo, FileSelector, FileType

from headgate.core.expire import GC_ENABLED, Expiry, Terms, build_expiry, find_expired, read_terms
from headgate.core.locations import find_spellings
from headgate.core.manifest import ManifestEntry, ManifestFile
from headgate.core.manifest_list import ManifestList
from headgate.core.reach import FindPaths, Proof, ReachEffect, ReachReply, find_left_behind
from headgate.core.table import TableMetadata
from headgate.core.window import (
    ManifestChanges,
    OwnManifests,
    ReadChanges,
    ReadManifest,
    ReadManifestList,
    ReadOwn,
    find_list,
    find_own,
)
from headgate.errors import BadInput
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.format.table_metadata import decode_metadata
from headgate.spark.lake import LakeTable, TableState
from headgate.spark.scan_plan import read_location

ORPHAN_AGE = timedelta(days=3)
ORPHAN_AGE_MIN = timedelta(days=1)
_ROUNDS_MAX = 100
_T = TypeVar("_T")


@dataclass(frozen=True)
class Expired:
    """Snapshots that went, and files that went with them."""

    snapshot_ids: tuple[int, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class Orphans:
    """Files that nothing reaches; deleted, unless it was a dry run."""

    files: tuple[str, ...]
    size_bytes: int
    are_deleted: bool


def expire(
    table: LakeTable,
    *,
    older_than: timedelta | None = None,
    keep: int | None = None,
    delete_files: bool = True,
    now_ms: int | None = None,
) -> Expired:
    """Let snapshots of a table go that are older than a time, but the last `keep` of every branch.

    What is not said is taken from the table's own properties. Files that only these snapshots reached are deleted.
    """
    if keep is not None and keep < 1:
        raise BadInput(f"keep: expected at least 1, got {keep}", field="keep")
    if older_than is not None and older_than < timedelta(0):
        raise BadInput(f"older_than: expected a time in the past, got {older_than}", field="older_than")
    now = int(time.time() * 1000) if now_ms is None else now_ms
    ids: list[int] = []
    files: list[str] = []
    for _ in range(_ROUNDS_MAX):
        state = table.load(all_snapshots=True)
        _check_gc(state)
        metadata = _metadata(state)
        found = find_expired(metadata, _terms(state, older_than, keep), now_ms=now)
        if found is None:
            break
        reader = _Reader(state)
        left = reader.run(find_left_behind(metadata, frozenset(found.snapshot_ids)))
        _commit(table, metadata, found)
        ids += found.snapshot_ids
        if delete_files:
            files += _delete_unreached(table, left.files, reader)
    return Expired(tuple(ids), tuple(files))


def remove_orphans(
    table: LakeTable,
    *,
    older_than: timedelta = ORPHAN_AGE,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Orphans:
    """Delete files below the table's locations that nothing reaches and that are older than a time.

    Less than a day is refused: jobs write their files first and commit them later, and nobody can tell such files
    from orphans but by their age.
    """
    if older_than < ORPHAN_AGE_MIN:
        raise BadInput(
            f"older_than: expected at least {ORPHAN_AGE_MIN}, got {older_than}: files of a job that still runs "
            "look like orphans",
            field="older_than",
        )
    state = table.load(all_snapshots=True)
    _check_gc(state)
    before = (now.timestamp() if now else time.time()) - older_than.total_seconds()
    found = {_located(location, path, info): info for location, path, info in _listed(state)}
    old = {
        name: info
        for name, info in found.items()
        if info.mtime is not None and info.mtime.timestamp() < before
    }
    reader = _Reader(state)
    unreached = _find_unreached(Proof(old), state, reader)
    if not dry_run:
        unreached = _delete_unreached(table, unreached, reader)
    return Orphans(tuple(unreached), sum(old[name].size or 0 for name in unreached), are_deleted=not dry_run)


# --- what goes ----------------------------------------------------------------------------------------------


def _terms(state: TableState, older_than: timedelta | None, keep: int | None) -> Terms:
    terms = read_terms(state.properties)
    if older_than is not None:
        age_ms = int(older_than.total_seconds() * 1000)
        terms = Terms(age_ms, terms.snapshots_min, terms.ref_age_max_ms, terms.snapshots_max)
    if keep is not None:
        terms = Terms(terms.snapshot_age_max_ms, keep, terms.ref_age_max_ms, terms.snapshots_max)
    return terms


def _commit(table: LakeTable, metadata: TableMetadata, expiry: Expiry) -> None:
    requirements, updates = build_expiry(metadata, expiry)
    table.client.commit(
        [msgspec.to_builtins(update) for update in updates],
        requirements=[msgspec.to_builtins(requirement) for requirement in requirements],
    )


def _delete_unreached(table: LakeTable, suspects: Iterable[str], reader: _Reader) -> list[str]:
    """Delete those of the suspects that the table as it is now does not reach."""
    proof = Proof(suspects)
    _find_unreached(proof, table.load(all_snapshots=True), reader)
    # The first look may have taken minutes. A second one sees what was committed meanwhile, and takes moments.
    state = table.load(all_snapshots=True)
    _check_gc(state)
    unreached = [name for name in _find_unreached(proof, state, reader) if _is_inside(state, name)]
    for name in unreached:
        filesystem, path = state.filesystem(name)
        if filesystem.get_file_info(path).type is FileType.File:
            filesystem.delete_file(path)
    return unreached


def _find_unreached(proof: Proof, state: TableState, reader: _Reader) -> list[str]:
    reader.run(proof.look(_metadata(state)))
    return sorted(proof.unreached() - {state.loaded.metadata_location})


def _check_gc(state: TableState) -> None:
    if state.properties.get(GC_ENABLED, "true").lower() == "false":
        raise BadInput(
            f"{state.table.name}: {GC_ENABLED} is false, so its files may belong to others too",
            field=GC_ENABLED,
        )


def _metadata(state: TableState) -> TableMetadata:
    location, uuid = state.loaded.metadata_location, str(state.raw["table-uuid"])
    return decode_metadata(msgspec.json.encode(state.raw), location=location, uuid=uuid)


# --- files --------------------------------------------------------------------------------------------------


def _locations(state: TableState) -> list[str]:
    """Where files of the table are, none inside another."""
    own = [state.location, state.data_location]
    own += [state.properties[name] for name in ("write.metadata.path",) if name in state.properties]
    found: list[str] = []
    for location in sorted({one.rstrip("/") for one in own}):
        if not any(location.startswith(f"{outer}/") for outer in found):
            found.append(location)
    return found


def _listed(state: TableState) -> Iterable[tuple[str, str, FileInfo]]:
    """Every file below the table's locations: the location, its path in the file system, and the file."""
    for location in _locations(state):
        filesystem, path = state.filesystem(location)
        selector = FileSelector(path, recursive=True, allow_not_found=True)
        for info in filesystem.get_file_info(selector):
            if info.type is FileType.File:
                yield location, path, info


def _located(location: str, path: str, info: FileInfo) -> str:
    return f"{location}{info.path.removeprefix(path.rstrip('/'))}"


def _is_inside(state: TableState, name: str) -> bool:
    """Whether a file is the table's own: what lies elsewhere may be somebody's."""
    spellings = find_spellings(name)  # the Iceberg jar says `file:/` where we say `file:///`
    return any(one.startswith(f"{location}/") for one in spellings for location in _locations(state))


class _Reader:
    """Carries out the reads of `core.reach`; a manifest is read once."""

    def __init__(self, state: TableState) -> None:
        self._state = state
        self._entries: dict[str, tuple[ManifestEntry, ...]] = {}

    def run(self, conversation: Generator[ReachEffect, ReachReply, _T]) -> _T:
        """Drive a conversation to its end."""
        try:
            effect = next(conversation)
            while True:
                effect = conversation.send(self._carry_out(effect))
        except StopIteration as stop:
            found: _T = stop.value
            return found

    def _carry_out(self, effect: ReachEffect) -> ReachReply:
        match effect:
            case ReadManifestList(location=location):
                return self._list(location)
            case ReadManifest(manifest=manifest):
                return self._read(manifest)
            case FindPaths(manifest=manifest, paths=paths):
                live = (entry.file.file_path for entry in self._read(manifest) if entry.is_live)
                return paths.intersection(live)
            case ReadOwn(snapshots=snapshots):
                return OwnManifests(tuple(find_own(self._list(find_list(s)), s) for s in snapshots))
            case ReadChanges(manifests=manifests):
                return ManifestChanges(tuple(map(self._read, manifests)))

    def _list(self, location: str) -> ManifestList:
        return ManifestList.of(decode_manifest_list(read_location(self._state, location), location=location))

    def _read(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        path = manifest.manifest_path
        if path not in self._entries:
            entries = decode_manifest(read_location(self._state, path), manifest, location=path)
            self._entries[path] = tuple(entries)
        return self._entries[path]
