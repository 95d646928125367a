"""What expired snapshots leave behind, and the proof before it is deleted: by example, and over any history."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.expire import Terms, build_expiry, find_expired
from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from headgate.core.manifest_list import ManifestList
from headgate.core.reach import FindPaths, Proof, ReachEffect, ReachReply, find_left_behind
from headgate.core.table import SnapshotRef, TableMetadata, append_snapshot
from headgate.core.window import ReadManifest, ReadManifestList
from tests.core.builders import (
    T0,
    commit,
    metadata_file,
    partition_statistics,
    point,
    snapshot,
    statistics,
    table,
)

ADDED, EXISTING, DELETED = EntryStatus.ADDED, EntryStatus.EXISTING, EntryStatus.DELETED
_T = TypeVar("_T")


def content(path: str) -> ContentFile:
    return ContentFile(FileContent.DATA, path, "PARQUET", 0, (), 1, 1)


@dataclass
class World:
    """A table whose files are dictionaries. Every step makes one snapshot, a second after the one before."""

    table: TableMetadata = field(default_factory=table)
    lists: dict[str, tuple[ManifestFile, ...]] = field(default_factory=dict)
    manifests: dict[str, tuple[ManifestEntry, ...]] = field(default_factory=dict)
    contents: set[str] = field(default_factory=set)
    reads: list[str] = field(default_factory=list)
    steps: int = 0
    written: int = 0

    # --- steps -----------------------------------------------------------------------------------------------

    def append(self, *paths: str, branch: str | None = "main", onto: int | None = None) -> int:
        """Add files; without a branch the snapshot is only staged."""
        base = self.head(branch or "main") if onto is None else onto
        new = self.write([(ADDED, path) for path in paths])
        return self.publish(base, (*self.list_of(base), new), branch)

    def remove(self, *paths: str, branch: str = "main") -> int:
        """Rewrite the manifests that hold the files, as engines do: the rest is carried, the removal recorded."""
        base, kept = self.head(branch), list[ManifestFile]()
        for manifest in self.list_of(base):
            live = self.live_in(manifest)
            if not live & set(paths):
                kept.append(manifest)
                continue
            entries = [(DELETED if path in paths else EXISTING, path) for path in sorted(live)]
            kept.append(self.write(entries))
        return self.publish(base, tuple(kept), branch)

    def merge(self, *, branch: str = "main") -> int:
        """All manifests become one; records of removals are dropped."""
        base = self.head(branch)
        live = sorted({path for manifest in self.list_of(base) for path in self.live_in(manifest)})
        return self.publish(base, (self.write([(EXISTING, path) for path in live]),), branch)

    def drop_all(self, *, branch: str = "main") -> int:
        """A truncation that records nothing."""
        return self.publish(self.head(branch), (), branch)

    # --- what there is -----------------------------------------------------------------------------------------

    def head(self, branch: str) -> int | None:
        ref = self.table.envelope.refs.get(branch)
        return None if ref is None else ref.snapshot_id

    def list_of(self, id_: int | None) -> tuple[ManifestFile, ...]:
        found = None if id_ is None else self.table.find_snapshot(id_)
        return () if found is None else self.lists[str(found.manifest_list)]

    def live_in(self, manifest: ManifestFile) -> set[str]:
        entries = self.manifests[manifest.manifest_path]
        return {entry.file.file_path for entry in entries if entry.is_live}

    def reached(self) -> set[str]:
        """Every file that any snapshot of the table reaches, looked up without cleverness."""
        found: set[str] = set()
        for each in self.table.iter_snapshots():
            found.add(str(each.manifest_list))
            for manifest in self.lists[str(each.manifest_list)]:
                found |= {manifest.manifest_path, *self.live_in(manifest)}
        return found

    def files(self) -> set[str]:
        return {*self.lists, *self.manifests, *self.contents}

    def write(self, entries: list[tuple[EntryStatus, str]]) -> ManifestFile:
        id_ = self.steps + 1
        path = f"file:///t/m{self.written}.avro"
        self.written += 1
        self.manifests[path] = tuple(
            ManifestEntry(status, id_, id_, id_, content(name)) for status, name in entries
        )
        self.contents |= {name for _, name in entries}
        count = {status: sum(s is status for s, _ in entries) for status in EntryStatus}
        return ManifestFile(
            manifest_path=path,
            manifest_length=1,
            partition_spec_id=0,
            content=ManifestContent.DATA,
            sequence_number=id_,
            min_sequence_number=id_,
            added_snapshot_id=id_,
            added_files_count=count[ADDED],
            existing_files_count=count[EXISTING],
            deleted_files_count=count[DELETED],
        )

    def publish(self, base: int | None, manifests: tuple[ManifestFile, ...], branch: str | None) -> int:
        self.steps += 1
        made = snapshot(self.steps, parent_snapshot_id=base)
        self.lists[str(made.manifest_list)] = manifests
        refs = dict(self.table.envelope.refs)
        if branch is not None:
            refs[branch] = SnapshotRef(snapshot_id=made.snapshot_id, type="branch")
        self.set_refs(refs)
        log = append_snapshot(self.table.snapshots, made)
        self.table = TableMetadata(self.table.envelope, log, self.table.history)
        return made.snapshot_id

    def set_refs(self, refs: dict[str, SnapshotRef]) -> None:
        main = refs.get("main")
        envelope = msgspec.structs.replace(
            self.table.envelope,
            refs=refs,
            current_snapshot_id=None if main is None else main.snapshot_id,
            last_sequence_number=self.steps,
        )
        self.table = TableMetadata(envelope, self.table.snapshots, self.table.history)

    # --- expiry ------------------------------------------------------------------------------------------------

    def run(self, conversation: Generator[ReachEffect, ReachReply, _T]) -> _T:
        try:
            effect = next(conversation)
            while True:
                effect = conversation.send(self.answer(effect))
        except StopIteration as stop:
            value: _T = stop.value
            return value

    def answer(self, effect: ReachEffect) -> ReachReply:
        match effect:
            case ReadManifestList(location=location):
                self.reads.append(location)
                return ManifestList.of(self.lists[location])
            case ReadManifest(manifest=manifest):
                self.reads.append(manifest.manifest_path)
                return self.manifests[manifest.manifest_path]
            case FindPaths(manifest=manifest, paths=paths):
                self.reads.append(manifest.manifest_path)
                return paths & self.live_in(manifest)
            case _:
                raise AssertionError(effect)

    def expire(self, terms: Terms) -> set[str]:
        """Let go what the terms let go, and return what it leaves behind."""
        found = find_expired(self.table, terms, now_ms=T0 + self.steps * 1000)
        if found is None:
            return set()
        left = self.run(find_left_behind(self.table, found.snapshot_ids)).files
        self.table = commit(self.table, *build_expiry(self.table, found)[1])
        assert len(left) == len(set(left))
        return set(left)

    def sweep(self, suspects: set[str]) -> set[str]:
        """Delete what is proved to be unused, and return it."""
        proof = Proof(suspects)
        self.run(proof.look(self.table))
        gone = set(proof.unreached())
        self.contents -= gone
        for files in (self.lists, self.manifests):
            for path in gone & files.keys():
                del files[path]
        return gone


LAST = Terms(snapshots_max=1, snapshot_age_max_ms=10**9)
AT_ONCE = Terms(snapshot_age_max_ms=0)


# --- what is left behind ---------------------------------------------------------------------------------------


def test_appends_leave_only_their_lists_behind() -> None:
    world = World()
    for n in range(5):
        world.append(f"f{n}")
    lists = set(world.lists)
    assert world.expire(LAST) == lists - {"file:///warehouse/db/t/metadata/snap-5.avro"}


def test_a_removed_file_is_left_behind_with_the_manifest_that_held_it() -> None:
    world = World()
    world.append("a", "b")
    world.remove("a")
    first = "file:///warehouse/db/t/metadata/snap-1.avro"
    assert world.expire(LAST) == {"a", "file:///t/m0.avro", first}


def test_files_that_a_merge_carried_are_not_suspected() -> None:
    world = World()
    for n in range(4):
        world.append(f"f{n}")
    world.merge()
    assert not world.expire(LAST) & {"f0", "f1", "f2", "f3"}


def test_a_file_removed_by_an_expired_snapshot_is_left_behind_too() -> None:
    world = World()
    world.append("a", "b")
    world.remove("a")
    world.append("c")
    assert "a" in world.expire(LAST)


def test_a_file_dropped_without_a_record_is_left_behind() -> None:
    world = World()
    world.append("a")
    world.drop_all()
    assert "a" in world.expire(LAST)


def test_what_a_tag_still_reaches_is_not_suspected() -> None:
    world = World()
    world.append("a", "b")
    world.table = commit(world.table, point("v1", 1, "tag"))
    world.remove("a")
    world.append("c")
    left = world.expire(LAST)
    assert not left & {"a", "file:///t/m0.avro"}
    assert left  # the snapshot between them


def test_a_snapshot_is_forgotten_when_no_manifest_that_it_brought_is_left() -> None:
    world = World()
    for n in range(4):
        world.append(f"f{n}")
    assert world.run(find_left_behind(world.table, (1, 2))).forgotten == ()
    world.expire(Terms(snapshots_max=2))
    world.merge()
    world.append("more")
    assert world.run(find_left_behind(world.table, (3, 4))).forgotten == (1, 2, 3, 4)
    assert world.run(find_left_behind(world.table, (3, 4, 5))).forgotten == (1, 2, 3, 4)


def test_statistics_of_the_expired_are_left_behind_unless_another_snapshot_uses_them() -> None:
    world = World()
    world.append("a")
    world.append("b")
    envelope = msgspec.structs.replace(
        world.table.envelope,
        statistics=(statistics(1, "one.puffin"), statistics(2, "two.puffin")),
        partition_statistics=(partition_statistics(1, "both.bin"), partition_statistics(2, "both.bin")),
    )
    world.table = TableMetadata(envelope, world.table.snapshots, world.table.history)
    left = world.expire(LAST)
    assert "one.puffin" in left
    assert not left & {"two.puffin", "both.bin"}


def test_finding_what_is_left_behind_does_not_read_the_rest_of_a_long_history() -> None:
    world = World()
    for n in range(200):
        world.append(f"f{n}")
    world.reads.clear()
    world.expire(Terms(snapshot_age_max_ms=190_000))
    assert len(world.reads) < 30  # nine expired, their neighbours, and the head


def test_a_snapshot_of_v1_without_a_list_leaves_nothing_behind() -> None:
    world = World()
    made = snapshot(1, manifest_list=None, manifests=("file:///t/m0.avro",))
    log = append_snapshot(world.table.snapshots, made)
    world.table = TableMetadata(world.table.envelope, log, world.table.history)
    world.steps = 1
    world.append("b")
    assert world.run(find_left_behind(world.table, (1,))).files == ()


# --- the proof -----------------------------------------------------------------------------------------------------


def unreached(world: World, *suspects: str) -> set[str]:
    proof = Proof(suspects)
    world.run(proof.look(world.table))
    return set(proof.unreached())


def test_a_file_that_a_cherry_pick_published_again_is_in_use() -> None:
    world = World()
    world.append("a")
    world.append("picked", branch=None)
    world.append("picked")
    assert "picked" in world.expire(AT_ONCE)  # the staged snapshot is old, and nobody near it says otherwise
    assert unreached(world, "picked") == set()


def test_a_file_that_was_added_again_is_in_use() -> None:
    world = World()
    world.append("a")
    world.remove("a")
    left = world.expire(LAST)
    assert "a" in left
    world.append("a")
    gone = world.sweep(left)
    assert "a" not in gone
    assert gone == left - {"a"}


@pytest.mark.parametrize("used", ["file:///t/x", "file:/t/x", "/t/x"])
@pytest.mark.parametrize("suspect", ["file:///t/x", "file:/t/x", "/t/x"])
def test_a_file_is_in_use_under_whatever_spelling(used: str, suspect: str) -> None:
    world = World()
    world.append(used)
    assert unreached(world, suspect, "file:///t/y") == {"file:///t/y"}


def test_two_spellings_of_one_file_are_both_in_use_or_both_not() -> None:
    world = World()
    world.append("/t/x")
    assert unreached(world, "file:///t/x", "file:/t/x") == set()
    assert unreached(world, "file:///t/z", "file:/t/z") == {"file:///t/z", "file:/t/z"}


def test_lists_manifests_statistics_and_metadata_files_are_in_use_too() -> None:
    world = World()
    world.append("a")
    world.append("b")
    envelope = msgspec.structs.replace(
        world.table.envelope, statistics=(statistics(1, "one.puffin"),), metadata_log=(metadata_file(1),)
    )
    world.table = TableMetadata(envelope, world.table.snapshots, world.table.history)
    suspects = {*world.lists, *world.manifests, "one.puffin", metadata_file(1).metadata_file}
    assert unreached(world, *suspects, "other") == {"other"}


def test_a_file_that_is_only_recorded_as_removed_is_not_in_use() -> None:
    world = World()
    world.append("a", "b")
    world.remove("a")
    world.expire(LAST)
    assert unreached(world, "a", "b") == {"a"}


def test_a_table_that_nobody_can_read_uses_everything() -> None:
    world = World()
    made = snapshot(1, manifest_list=None, manifests=("file:///t/m0.avro",))
    log = append_snapshot(world.table.snapshots, made)
    world.table = TableMetadata(world.table.envelope, log, world.table.history)
    assert unreached(world, "x") == set()


def test_a_second_look_reads_only_what_is_new() -> None:
    world = World()
    for n in range(20):
        world.append(f"f{n}")
    proof = Proof(["x", "y"])
    world.run(proof.look(world.table))
    world.reads.clear()
    world.append("x")
    world.run(proof.look(world.table))
    assert proof.unreached() == {"y"}
    assert len(world.reads) == 2  # one list, one manifest


# --- any history ---------------------------------------------------------------------------------------------------

NAMES = st.sampled_from([f"f{n}" for n in range(8)])
BRANCHES = st.sampled_from(["main", "main", "side"])


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, str, str]]:
    kinds = ["append", "append", "remove", "merge", "truncate", "stage", "tag", "untag", "fork", "expire"]
    return draw(st.lists(st.tuples(st.sampled_from(kinds), BRANCHES, NAMES), min_size=3, max_size=30))


def live(world: World, branch: str) -> set[str]:
    return {path for manifest in world.list_of(world.head(branch)) for path in world.live_in(manifest)}


def take(world: World, step: tuple[str, str, str]) -> None:
    """One step, if it makes sense where the table stands; a file removed earlier may be added again."""
    kind, branch, name = step
    refs, here = dict(world.table.envelope.refs), world.head(branch)
    if kind == "append" and name not in live(world, branch):
        world.append(name, branch=branch)
    elif kind == "stage" and name not in live(world, "main"):
        world.append(name, branch=None)
    elif kind == "fork" and (main := world.head("main")) is not None:
        world.set_refs({**refs, "side": SnapshotRef(snapshot_id=main, type="branch")})
    elif kind == "untag":
        world.set_refs({n: ref for n, ref in refs.items() if ref.type == "branch"})
    elif here is None:
        return
    elif kind == "remove" and name in live(world, branch):
        world.remove(name, branch=branch)
    elif kind == "merge":
        world.merge(branch=branch)
    elif kind == "truncate":
        world.drop_all(branch=branch)
    elif kind == "tag":
        world.set_refs({**refs, f"tag-{name}": SnapshotRef(snapshot_id=here, type="tag")})


TERMS = st.builds(
    Terms,
    snapshot_age_max_ms=st.integers(0, 8).map(lambda s: s * 1000),
    snapshots_min=st.integers(1, 3),
    snapshots_max=st.none() | st.integers(1, 4),
)


@given(steps(), st.lists(TERMS, min_size=1, max_size=3), st.booleans())
def test_what_is_in_use_stays_and_what_is_not_goes_whatever_the_history(
    history: list[tuple[str, str, str]], terms: list[Terms], at_once: bool
) -> None:
    world, suspects, expiries = World(), set[str](), 0
    for step in history:
        if step[0] == "expire":
            suspects |= world.expire(terms[expiries % len(terms)])
            expiries += 1
        else:
            take(world, step)
        if at_once:
            world.sweep(suspects)
            suspects = set()
        assert world.reached() <= world.files()
    world.set_refs({name: ref for name, ref in world.table.envelope.refs.items() if name == "main"})
    suspects |= world.expire(LAST)
    suspects |= world.expire(AT_ONCE)
    world.sweep(suspects)
    assert world.files() == world.reached()
