"""What the store of manifests counts, remembers, and need not open."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest
from msgspec.structs import replace

from headgate.core.build import AppendFiles, WriteManifest
from headgate.core.live import FindLive
from headgate.core.manifest import EntryStatus, ManifestContent, ManifestFile, Metrics, NewEntry
from headgate.core.manifest_list import ManifestList
from headgate.core.table import Snapshot
from headgate.errors import BadInput
from headgate.files.base import FileInfo
from headgate.format.footprints import decode_footprint, encode_footprint, hash_paths
from headgate.format.manifest_encode import encode_manifest
from headgate.service.manifest_store import LoadFootprints, ManifestStore
from tests.core.builders import table
from tests.format.entries import SNAPSHOT_ID, added, file, kept, listed, spec_of

_LIMIT = 1_000_000


class _Racing:
    """Files in which another reader of the same manifest is always a little faster."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.rival: tuple[ManifestStore, ManifestFile] | None = None

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        rival, self.rival = self.rival, None
        if rival is not None:
            rival[0].read_entries(rival[1])
        return self._data

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        raise AssertionError("nothing is written")

    is_soft = False

    def write_soft(self, location: str, parts: Iterable[bytes]) -> None:
        raise AssertionError("nothing is written")

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]], *, keeps: bool = False) -> None:
        raise AssertionError("nothing is written")

    def sync(self, locations: Iterable[str]) -> None:
        return None

    def restore(self, location: str, data: bytes) -> None:
        raise AssertionError("nothing is written")

    def exists(self, location: str) -> bool:
        return True

    def delete(self, locations: Iterable[str]) -> int:
        return 0

    def list(self, prefix: str) -> Iterator[FileInfo]:
        return iter(())

    def check(self) -> None:
        return None


def test_a_manifest_that_two_threads_read_at_once_counts_once() -> None:
    spec, schema = spec_of()
    content = ManifestContent.DATA
    encoded = encode_manifest([added(file())], spec=spec, schema=schema, format_version=2, content=content)
    manifest = listed(encoded, content)
    alone = ManifestStore(_Racing(encoded.data), limit_bytes=_LIMIT, new_uuid=str)
    alone.read_entries(manifest)
    files = _Racing(encoded.data)
    store = ManifestStore(files, limit_bytes=_LIMIT, new_uuid=str)
    files.rival = (store, manifest)
    assert store.read_entries(manifest) == alone.read_entries(manifest)
    assert store.size_bytes == alone.size_bytes


@pytest.mark.parametrize("columns", [0, 10, 300])
def test_a_manifest_counts_about_what_it_takes_in_memory_however_wide_the_table_is(columns: int) -> None:
    spec, schema = spec_of()
    entries = wide_entries(columns)
    content = ManifestContent.DATA
    encoded = encode_manifest(entries, spec=spec, schema=schema, format_version=2, content=content)
    store = ManifestStore(_Racing(encoded.data), limit_bytes=1 << 30, new_uuid=str)
    tracemalloc.start()
    try:
        store.read_entries(listed(encoded, content))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes / 1.5 < store.size_bytes < held_bytes * 2.5


@pytest.mark.parametrize("columns", [0, 10, 300])
def test_a_manifest_written_here_counts_about_what_it_takes_in_memory_too(columns: int) -> None:
    files = _Kept(b"")
    store = ManifestStore(files, limit_bytes=1 << 30, new_uuid=str)
    tracemalloc.start()
    try:
        _rewrite(store, files, wide_entries(columns, spec_id=0))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes / 1.5 < store.size_bytes < held_bytes * 2.5


def wide_entries(columns: int, **fields: int) -> list[NewEntry]:
    """Fifty files with statistics of so many columns, no two of which share anything."""
    ids = range(1, columns + 1)

    def wide(n: int) -> Metrics:
        counts = [{id_: 1000 + n + id_ for id_ in ids} for _ in range(3)]
        bounds = [{id_: (n * 10_000 + id_).to_bytes(8, "little") for id_ in ids} for _ in range(2)]
        return Metrics(*counts, None, *bounds)

    names = [f"file:///warehouse/a/t/data/{n}.parquet" for n in range(50)]
    return [added(file(name, metrics=wide(n), **fields)) for n, name in enumerate(names)]


def test_a_bound_counts_by_its_length() -> None:
    spec, schema = spec_of()
    content = ManifestContent.DATA
    sizes = []
    for length in (1, 100_001):
        one = file(metrics=Metrics(lower_bounds={1: b"x" * length}))
        encoded = encode_manifest([added(one)], spec=spec, schema=schema, format_version=2, content=content)
        store = ManifestStore(_Racing(encoded.data), limit_bytes=_LIMIT, new_uuid=str)
        store.read_entries(listed(encoded, content))
        sizes.append(store.size_bytes)
    assert sizes[1] - sizes[0] == 100_000


def _no_footprints(snapshot_ids: Sequence[int]) -> dict[int, bytes]:
    return {}


def test_of_many_paths_those_that_are_live_are_found() -> None:
    spec, schema = spec_of()
    content = ManifestContent.DATA
    entries = [added(file(name)) for name in ("a", "b", "c")]
    encoded = encode_manifest(entries, spec=spec, schema=schema, format_version=2, content=content)
    store = ManifestStore(_Racing(encoded.data), limit_bytes=_LIMIT, new_uuid=str)
    manifests = ManifestList.of((listed(encoded, content),))
    many = frozenset({"c", "a", *map(str, range(1000))})
    found = store.find_live(FindLive(manifests, many), _no_footprints)
    assert [entry.file.file_path for _, entry in found.of] == ["a", "c"]
    few = store.find_live(FindLive(manifests, frozenset({"b"})), _no_footprints)
    assert [entry.file.file_path for _, entry in few.of] == ["b"]
    assert not store.find_live(FindLive(manifests, frozenset({"d"})), _no_footprints).of


def _manifest_of(*entries: NewEntry) -> tuple[bytes, ManifestFile]:
    spec, schema = spec_of()
    content = ManifestContent.DATA
    encoded = encode_manifest(entries, spec=spec, schema=schema, format_version=2, content=content)
    return encoded.data, listed(encoded, content)


def _snapshot() -> Snapshot:
    return Snapshot(snapshot_id=SNAPSHOT_ID, timestamp_ms=1, manifest_list="list.avro")


class _Closed(_Racing):
    """Files of which none may be opened."""

    def __init__(self) -> None:
        super().__init__(b"")

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        raise AssertionError(f"{location} is opened")


def test_a_window_is_known_from_footprints_without_opening_a_file() -> None:
    data, manifest = _manifest_of(added(file("a")))
    entries = ManifestStore(_Racing(data), limit_bytes=_LIMIT, new_uuid=str).read_entries(manifest)
    body = encode_footprint([(manifest, hash_paths(["a"]), entries)])
    store = ManifestStore(_Closed(), limit_bytes=_LIMIT, new_uuid=str)
    own = store.read_own((_snapshot(),), lambda ids: {SNAPSHOT_ID: body})
    assert own.of == ((manifest,),)
    assert store.read_changes((manifest,)).of == (entries,)
    assert store.size_bytes > 0
    # The second time nobody asks for footprints either.
    assert store.read_own((_snapshot(),), _no_footprints).of == own.of
    assert store.read_changes((manifest,)).of == (entries,)


def test_what_is_remembered_of_thousands_of_snapshots_takes_no_more_than_the_bound() -> None:
    data, manifest = _manifest_of(added(file("a")))
    entries = ManifestStore(_Racing(data), limit_bytes=_LIMIT, new_uuid=str).read_entries(manifest)
    limit_bytes = 4 << 20
    store = ManifestStore(_Closed(), limit_bytes=limit_bytes, new_uuid=str)

    def commit(number: int) -> None:
        path = f"file:///warehouse/namespace/table-0123456789abcdef/metadata/{number}-m-0123456789.avro"
        own = replace(manifest, manifest_path=path, added_snapshot_id=number)
        body = encode_footprint([(own, hash_paths(["a"]), entries)])
        snapshot = Snapshot(snapshot_id=number, timestamp_ms=1, manifest_list=f"{path}.list")
        store.read_own((snapshot,), lambda ids: {number: body})
        store.read_changes((own,))

    tracemalloc.start()
    try:
        for number in range(20_000):
            commit(number)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert store.size_bytes <= limit_bytes
    assert held_bytes < 1.5 * limit_bytes


def test_a_rewritten_manifest_tells_what_its_own_snapshot_did_and_no_more() -> None:
    data, manifest = _manifest_of(added(file("a")), kept(file("b")))
    store = ManifestStore(_Racing(data), limit_bytes=_LIMIT, new_uuid=str)
    (changes,) = store.read_changes((manifest,)).of
    assert [(entry.file.file_path, entry.status) for entry in changes] == [("a", EntryStatus.ADDED)]


class _Kept(_Racing):
    """Files in which what was written last is what is read."""

    def write(self, location: str, data: bytes) -> None:
        self._data = data


def _rewrite(store: ManifestStore, files: _Kept, entries: Sequence[NewEntry]) -> ManifestFile:
    wanted = WriteManifest(tuple(entries), 0, ManifestContent.DATA, SNAPSHOT_ID, 9, table())
    return store.write_manifest(wanted, files.write)


def test_a_manifest_written_anew_reads_the_same_whether_its_files_were_encoded_before_or_not() -> None:
    files = _Kept(b"")
    store = ManifestStore(files, limit_bytes=_LIMIT, new_uuid=str)
    entries = [kept(file(name, spec_id=0)) for name in ("a", "b", "c")]
    _rewrite(store, files, entries)
    gone = NewEntry(EntryStatus.DELETED, entries[1].file, SNAPSHOT_ID, 3, 3)
    again = _rewrite(store, files, (entries[0], gone, entries[2]))
    fresh = ManifestStore(files, limit_bytes=_LIMIT, new_uuid=str)
    (changes,) = store.read_changes((again,)).of
    assert [(entry.file.file_path, entry.status) for entry in changes] == [("b", EntryStatus.DELETED)]
    assert fresh.read_changes((again,)).of == (changes,)
    assert fresh.read_entries(again) == store.read_entries(again)


class _Interrupted(ManifestStore):
    """Something happens once, between the moment at which a list is indexed and the look into the index."""

    then: Callable[[], None] | None = None

    def _index(self, manifests: ManifestList, footprints: LoadFootprints) -> None:
        super()._index(manifests, footprints)
        then, self.then = self.then, None
        if then is not None:
            then()


def _named(name: str, *paths: str) -> tuple[ManifestFile, bytes]:
    """A manifest of these files, and the footprint of its snapshot."""
    data, manifest = _manifest_of(*(added(file(path)) for path in paths))
    own = replace(manifest, manifest_path=name, added_snapshot_id=len(name))
    entries = ManifestStore(_Racing(data), limit_bytes=_LIMIT, new_uuid=str).read_entries(own)
    return own, encode_footprint([(own, hash_paths(paths), entries)])


@pytest.mark.parametrize("when", ["before the look", "while files are read"])
def test_a_path_is_found_though_another_table_empties_the_index_meanwhile(when: str) -> None:
    data, _ = _manifest_of(added(file("a")))
    store = _Interrupted(_Racing(data), limit_bytes=4000, new_uuid=str)
    first, first_body = _named("first", "a")
    second, second_body = _named("second", "b")
    large, large_body = _named("large", *map(str, range(20)))
    base = ManifestList.of((first,))
    store.find_live(FindLive(base, frozenset({"a"})), lambda _: {first.added_snapshot_id: first_body})

    def empty() -> None:
        for _ in range(2):  # the first fills the index over its limit, the second finds it so
            theirs = FindLive(ManifestList.of((large,)), frozenset({"z"}))
            store.find_live(theirs, lambda _: {large.added_snapshot_id: large_body})

    def footprints(snapshot_ids: Sequence[int]) -> dict[int, bytes]:
        if when == "while files are read" and second.added_snapshot_id in snapshot_ids and not emptied:
            emptied.append(True)
            empty()
        return {first.added_snapshot_id: first_body, second.added_snapshot_id: second_body}

    emptied: list[bool] = []
    if when == "before the look":
        store.then = empty
    found = store.find_live(FindLive(base.next((second,)), frozenset({"a"})), footprints)
    assert [(manifest.manifest_path, entry.file.file_path) for manifest, entry in found.of] == [
        ("first", "a")
    ]


def test_a_path_is_found_though_the_index_runs_out_of_ordinals_while_it_fills(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.service.path_index._ORDINAL_BITS", 2)
    data, _ = _manifest_of(added(file("a")))
    store = ManifestStore(_Racing(data), limit_bytes=_LIMIT, new_uuid=str)
    known = {name: _named(name * at, name) for at, name in enumerate("abcde", 1)}
    bodies = {manifest.added_snapshot_id: body for manifest, body in known.values()}
    base = ManifestList.of([known[name][0] for name in ("a", "b", "c")])
    store.find_live(FindLive(base, frozenset({"x"})), lambda _: bodies)
    others = ManifestList.of([known[name][0] for name in ("d", "e")])
    store.find_live(FindLive(others, frozenset({"x"})), lambda _: bodies)
    found = store.find_live(FindLive(base, frozenset({"a"})), lambda _: bodies)
    assert [manifest.manifest_path for manifest, _ in found.of] == ["a"]


def make_append(manifests: ManifestList, *paths: str) -> AppendFiles:
    """A blind append of files with these paths to an unpartitioned table whose head lists these manifests."""
    empty = table()
    spec_id = empty.envelope.default_spec_id
    files = tuple(replace(file(path), spec_id=spec_id, partition=()) for path in paths)
    parent = Snapshot(snapshot_id=1, timestamp_ms=1, manifest_list="s3://b/list.avro")
    return AppendFiles(files, spec_id, 7, 2, parent, manifests, None, empty)


def test_an_append_in_one_step_writes_a_manifest_and_a_list_and_then_its_path_may_be_live() -> None:
    put: list[str] = []
    store = ManifestStore(_Racing(b""), limit_bytes=_LIMIT, new_uuid=lambda: "u")
    made = store.append(make_append(ManifestList(), "s3://b/new.parquet"), lambda path, *_: put.append(path))
    assert made is not None
    assert put == [made.manifest, made.manifest_list]
    again = make_append(store.read_list(made.manifest_list), "s3://b/new.parquet")
    assert store.append(again, lambda path, *_: put.append(path)) is None
    assert len(put) == 2


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 3])
def test_the_footprint_of_an_append_is_the_same_when_it_is_asked_for_again(version: int, count: int) -> None:
    store = ManifestStore(_Closed(), limit_bytes=_LIMIT, new_uuid=lambda: "u")
    paths = [f"s3://b/{number}.parquet" for number in range(count)]
    wanted = make_append(ManifestList(), *paths)
    if version != 2:
        wanted = replace(wanted, table=table(version=version), sequence_number=0 if version == 1 else 2)
    made = store.append(wanted, lambda *_: None)
    assert made is not None
    snapshot = Snapshot(snapshot_id=7, timestamp_ms=1, manifest_list=made.manifest_list)
    first, again = store.footprint(snapshot), store.footprint(snapshot)
    assert first is not None
    assert first == again
    (own,) = decode_footprint(first) or ()
    (manifest,) = store.read_list(made.manifest_list)
    assert own.manifest == manifest
    assert own.hashes == hash_paths(paths)
    assert own.entries() == store.read_entries(manifest) == store.read_changes((manifest,)).of[0]


def test_footprints_that_nobody_asks_for_are_forgotten_but_can_be_made_again() -> None:
    names = map(str, range(10**6))
    store = ManifestStore(_Closed(), limit_bytes=1 << 30, new_uuid=lambda: next(names))
    snapshots, listed = [], ManifestList()
    for number in range(1100):
        made = store.append(make_append(listed, f"s3://b/{number}.parquet"), lambda *_: None)
        assert made is not None
        listed = store.read_list(made.manifest_list)
        snapshots.append(Snapshot(snapshot_id=7, timestamp_ms=1, manifest_list=made.manifest_list))
    for number in (0, 1099):
        (own,) = decode_footprint(store.footprint(snapshots[number]) or b"") or ()
        assert own.hashes == hash_paths([f"s3://b/{number}.parquet"])


def test_an_append_that_another_list_numbers_otherwise_is_read_from_its_file() -> None:
    files = _Kept(b"")
    store = ManifestStore(files, limit_bytes=_LIMIT, new_uuid=lambda: "u")
    put: dict[str, bytes] = {}
    made = store.append(
        make_append(ManifestList(), "s3://b/a"), lambda path, data, *_: put.update({path: data})
    )
    assert made is not None
    (manifest,) = store.read_list(made.manifest_list)
    files.write(made.manifest, put[made.manifest])
    other = replace(manifest, sequence_number=5)
    assert [entry.data_sequence_number for entry in store.read_entries(manifest)] == [2]
    assert [entry.data_sequence_number for entry in store.read_entries(other)] == [5]


def test_an_append_whose_list_cannot_be_encoded_writes_nothing() -> None:
    """Counts that v1 left out are required by v2: its list is refused when its manifest is encoded already."""
    put: list[str] = []
    store = ManifestStore(_Racing(b""), limit_bytes=_LIMIT, new_uuid=lambda: "u")
    uncounted = ManifestFile("s3://b/old.avro", 1, 0, ManifestContent.DATA, 0, 0, 1)
    older = ManifestList.of([uncounted])
    store.find_live(
        FindLive(older, frozenset({"s3://b/none"})), lambda _: {1: encode_footprint([(uncounted, b"", ())])}
    )
    with pytest.raises(BadInput, match="left out counts"):
        store.append(make_append(older, "s3://b/new.parquet"), lambda path, *_: put.append(path))
    assert put == []
