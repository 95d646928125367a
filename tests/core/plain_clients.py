"""Unmodified engines as builders: a plain commit, with the snapshot and the manifests that its client wrote on its base.

An engine builds its snapshot on the table that it loaded, as `plan_change` does; `merged` then puts the manifests of
each spec together into one, as Java's and PyIceberg's merge append does: old entries as existing, own ones as added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from headgate.core.audit import Effect, Exists, ReadManifest, ReadManifestList, Reply, audit
from headgate.core.build import Plan, WriteManifest, WriteManifestList
from headgate.core.change import Append, ChangeUpdate
from headgate.core.client_snapshot import NotRebasable
from headgate.core.commit import TableCommit
from headgate.core.conflicts import Finding
from headgate.core.intake import take_in
from headgate.core.manifest import EntryStatus, ManifestContent, ManifestFile, NewEntry
from headgate.core.manifest_list import ManifestList
from headgate.core.plan import plan_change
from headgate.core.rebase import Rebased, rebase_commit
from headgate.core.table import MAIN, Snapshot, TableMetadata
from headgate.core.updates import (
    AddSnapshot,
    AssertRefSnapshotId,
    AssertTableUuid,
    SetProperties,
    SetSnapshotRef,
    TableRequirement,
    TableUpdate,
)
from headgate.format.table_metadata import encode_file
from tests.properties.lake import Lake, Row, Variant, new_lake
from tests.properties.operations import Operation

Rewrite = Callable[[tuple[NewEntry, ...]], tuple[NewEntry, ...]]


def rows(*ids: int, cat: str = "a") -> tuple[Row, ...]:
    return tuple(Row(f"r{id_}", id_, cat, 0) for id_ in ids)


def lake_of(version: int = 2, spec: str = "unpartitioned", rebase: str | None = "append,replace") -> Lake:
    """An empty table that lets the service rebase."""
    lake = new_lake(Variant(version, spec))
    if rebase is not None:
        lake.apply(SetProperties(updates={"headgate.rebase": rebase}))
    return lake


def append(lake: Lake, *ids: int, branch: str = MAIN) -> Append:
    """A change that adds one file with these rows (one for each partition)."""
    head = lake.table.envelope.refs.get(branch)
    base = None if head is None else head.snapshot_id
    return Append(add_data_files=lake.put_data(rows(*ids)), branch=branch, base_snapshot_id=base)


def win(lake: Lake, update: ChangeUpdate, *, key: str) -> Snapshot:
    """Another writer's commit, which lands."""
    done = lake.commit(update, key=key)
    assert isinstance(done, Snapshot), done
    return done


def written(lake: Lake, operation: Operation) -> ChangeUpdate:
    """The change that a writer makes of the head."""
    update = operation.write(lake, lake.head)
    assert update is not None
    return update


def build(lake: Lake, update: ChangeUpdate, *, table: TableMetadata, key: str) -> Snapshot:
    """The snapshot that an engine writes on the table that it loaded."""
    change = take_in(update, table, field="updates[0]")
    now_ms = table.envelope.last_updated_ms + 1
    planned = lake.world.drive(plan_change(change, table, seed=key, now_ms=now_ms))
    assert isinstance(planned, Plan), planned
    snapshot = planned.snapshot
    summary = {**snapshot.summary, "engine-name": "spark", "spark.app.id": key, "manifests-created": "1"}
    return msgspec.structs.replace(snapshot, summary=summary)


def send(
    lake: Lake,
    update: ChangeUpdate,
    *,
    table: TableMetadata | None = None,
    key: str = "client",
    branch: str = MAIN,
    merged: bool = False,
) -> TableCommit:
    """The plain commit of an engine that loaded `table`, which is the lake's own when left out."""
    loaded = lake.table if table is None else table
    snapshot = build(lake, update, table=loaded, key=key)
    if merged:
        snapshot = merge(lake, snapshot, loaded)
    return commit_of(snapshot, loaded, branch=branch)


def commit_of(snapshot: Snapshot, loaded: TableMetadata, *, branch: str = MAIN) -> TableCommit:
    """The request that Java and PyIceberg send for a snapshot."""
    ref = loaded.envelope.refs.get(branch)
    asserted = AssertRefSnapshotId(ref=branch, snapshot_id=None if ref is None else ref.snapshot_id)
    requirements: tuple[TableRequirement, ...] = (AssertTableUuid(uuid=loaded.envelope.table_uuid), asserted)
    moved = SetSnapshotRef(ref_name=branch, snapshot_id=snapshot.snapshot_id, type="branch")
    updates: tuple[TableUpdate, ...] = (AddSnapshot(snapshot=snapshot), moved)
    return TableCommit(((), "t"), requirements, updates)


def lost_race(
    version: int = 2, *, merged: bool = False, rebase: str | None = "append"
) -> tuple[Lake, TableCommit]:
    """Rows 1 and 2 are there; a client appends row 3; before its commit comes, somebody else appends row 4."""
    lake = lake_of(version, rebase=rebase)
    win(lake, append(lake, 1), key="first")
    win(lake, append(lake, 2), key="second")
    commit = send(lake, append(lake, 3), merged=merged)
    win(lake, append(lake, 4), key="winner")
    return lake, commit


def plain(commit: TableCommit) -> tuple[TableUpdate, ...]:
    """The updates of a commit, to be applied as sent."""
    return tuple(update for update in commit.updates if not isinstance(update, ChangeUpdate))


def head_of(lake: Lake) -> Snapshot:
    """The snapshot of main, which must be there."""
    head = None if lake.head is None else lake.table.find_snapshot(lake.head)
    assert head is not None
    return head


def snapshot_of(commit: TableCommit) -> Snapshot:
    """The snapshot that a plain commit adds."""
    added = commit.updates[0]
    assert isinstance(added, AddSnapshot)
    return added.snapshot


def with_snapshot(commit: TableCommit, **fields: object) -> TableCommit:
    """The same commit, its snapshot changed."""
    snapshot = msgspec.structs.replace(snapshot_of(commit), **fields)
    return replace(commit, updates=(AddSnapshot(snapshot=snapshot), *commit.updates[1:]))


def listed(lake: Lake, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """The manifests of a snapshot."""
    return tuple(lake.world.lists[str(snapshot.manifest_list)])


def own_manifests(lake: Lake, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """Those that the snapshot itself brought."""
    return tuple(m for m in listed(lake, snapshot) if m.added_snapshot_id == snapshot.snapshot_id)


def relist(lake: Lake, snapshot: Snapshot, manifests: tuple[ManifestFile, ...]) -> Snapshot:
    """The same snapshot with another manifest list."""
    effect = WriteManifestList(
        ManifestList.of(manifests),
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.sequence_number,
        snapshot.first_row_id,
        lake.table,
    )
    return msgspec.structs.replace(snapshot, manifest_list=lake.world.answer(effect))


def with_list(lake: Lake, commit: TableCommit, manifests: tuple[ManifestFile, ...]) -> TableCommit:
    """The same commit with another manifest list."""
    return with_snapshot(commit, manifest_list=relist(lake, snapshot_of(commit), manifests).manifest_list)


def rewrite_own(lake: Lake, commit: TableCommit, rewrite: Rewrite) -> TableCommit:
    """The same commit, the entries of its own manifests changed."""
    snapshot, manifests = snapshot_of(commit), []
    for manifest in listed(lake, snapshot):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            entries = rewrite(lake.world.manifests[manifest.manifest_path])
            manifests.append(_write(lake, entries, manifest, snapshot, lake.table))
        else:
            manifests.append(manifest)
    return with_list(lake, commit, tuple(manifests))


def merge(lake: Lake, snapshot: Snapshot, table: TableMetadata) -> Snapshot:
    """The same snapshot with one manifest for each spec and content."""
    groups: dict[tuple[int, ManifestContent], list[ManifestFile]] = {}
    for manifest in listed(lake, snapshot):
        groups.setdefault((manifest.partition_spec_id, manifest.content), []).append(manifest)
    made = []
    for group in groups.values():
        entries = tuple(e for manifest in group for e in _as_merged(lake, manifest, snapshot.snapshot_id))
        made.append(_write(lake, entries, group[0], snapshot, table))
    return relist(lake, snapshot, tuple(made))


def _as_merged(lake: Lake, manifest: ManifestFile, own_id: int) -> list[NewEntry]:
    found = []
    raw = lake.world.manifests[manifest.manifest_path]
    for entry, read in zip(raw, lake.world.entries(manifest), strict=True):
        if entry.snapshot_id == own_id and entry.status is not EntryStatus.EXISTING:
            found.append(entry)
        elif read.is_live:
            numbers = (read.data_sequence_number, read.file_sequence_number)
            found.append(NewEntry(EntryStatus.EXISTING, read.file, read.snapshot_id, *numbers))
    return found


def _write(
    lake: Lake, entries: tuple[NewEntry, ...], like: ManifestFile, snapshot: Snapshot, table: TableMetadata
) -> ManifestFile:
    effect = WriteManifest(
        entries, like.partition_spec_id, like.content, snapshot.snapshot_id, snapshot.sequence_number, table
    )
    made = lake.world.answer(effect)
    assert isinstance(made, ManifestFile)
    data = like.content is ManifestContent.DATA
    return replace(made, first_row_id=snapshot.first_row_id if data else None)


# --- the service's side -----------------------------------------------------------------------------------


def rebase(lake: Lake, commit: TableCommit, *, now_ms: int | None = None) -> Rebased | NotRebasable | Finding:
    """What the service makes of a plain commit at the lake's head."""
    at_ms = lake.table.envelope.last_updated_ms + 1 if now_ms is None else now_ms
    made: Rebased | NotRebasable | Finding = lake.world.drive(
        rebase_commit(commit, lake.table, now_ms=at_ms, seed="service")
    )
    return made


def land(lake: Lake, commit: TableCommit) -> Rebased:
    """Rebase a commit, which must work, and publish it."""
    made = rebase(lake, commit)
    assert isinstance(made, Rebased), made
    lake.apply(*made.updates)
    return made


def reason(made: Rebased | NotRebasable | Finding) -> str:
    """Why a commit was not rebased."""
    assert isinstance(made, NotRebasable), made
    return made.reason


def ids_of(lake: Lake, snapshot_id: int | None = None) -> list[int]:
    """The ids of the rows that a reader sees."""
    return sorted(seen.row.id for seen in lake.read(lake.head if snapshot_id is None else snapshot_id))


def find_faults(lake: Lake) -> list[str]:
    """What the structural audit finds in all snapshots of the table."""

    def answer(effect: Effect) -> Reply:
        match effect:
            case ReadManifestList():
                return tuple(lake.world.lists[effect.location])
            case ReadManifest():
                return lake.world.entries(effect.manifest)
            case Exists():
                return effect.location in lake.world.lists or effect.location in lake.world.manifests

    running = audit(msgspec.json.decode(b"".join(encode_file(lake.table))))
    try:
        effect = next(running)
        while True:
            effect = running.send(answer(effect))
    except StopIteration as done:
        return [str(finding) for finding in done.value.findings]
