"""The index of live paths: what it says at once is never wrong, and it says so only of lists that it holds."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.live import FindLive
from headgate.core.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from headgate.core.manifest_list import ManifestList
from headgate.format.footprints import hash_paths
from headgate.service.live_paths import LivePaths
from headgate.service.path_index import PathIndex, sort_hashes
from tests.format.entries import file

ROOMY = 1 << 30
WAIT_S = 10
_paths = st.integers(0, 30).map("s3://b/t/data/{}.parquet".format)
_manifests = st.lists(st.lists(_paths, max_size=4), max_size=12)
_content = st.sampled_from([None, *ManifestContent])


def manifest(number: int, paths: Sequence[str]) -> ManifestFile:
    """A manifest of these paths, as a list names it; one without paths has no live files."""
    return ManifestFile(
        manifest_path=f"m{number}.avro",
        manifest_length=1,
        partition_spec_id=3,
        content=ManifestContent.DATA,
        sequence_number=number,
        min_sequence_number=number,
        added_snapshot_id=number,
        added_files_count=len(paths),
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=5 * len(paths),
        existing_rows_count=0,
        deleted_rows_count=0,
    )


class Index:
    """An index over manifests that are told here, and how many of them it had to read."""

    def __init__(self, listed: Sequence[Sequence[str]], *, limit_bytes: int = ROOMY) -> None:
        self._listed = {f"m{number}.avro": paths for number, paths in enumerate(listed)}
        manifests = [manifest(number, paths) for number, paths in enumerate(listed)]
        self.list = ManifestList.of(manifests)
        self.reads = 0
        self.paths = LivePaths(limit_bytes=limit_bytes, read_entries=self._read)

    def _read(self, one: ManifestFile) -> tuple[ManifestEntry, ...]:
        self.reads += 1
        paths = self._listed.get(one.manifest_path, ())
        return tuple([ManifestEntry(EntryStatus.ADDED, 1, 1, 1, file(path)) for path in paths])

    def wanted(self, *paths: str, content: ManifestContent | None = None) -> FindLive:
        """A question about the whole list."""
        return FindLive(self.list, frozenset(paths), content)

    def holds_none(self, wanted: FindLive) -> bool:
        """What it says at once."""
        return self.paths.holds_none(wanted.manifests, hash_paths(wanted.paths))

    def find(self, *paths: str) -> dict[str, list[str]]:
        """Ask, and fill the index with what it lacks."""
        return self.paths.look_up(self.wanted(*paths), no_footprints)

    def write(self, number: int, *paths: str) -> None:
        """A commit adds a manifest that was written here, in front of the list."""
        one = manifest(number, paths)
        self._listed[one.manifest_path] = paths
        self.paths.add(one.manifest_path, hash_paths(paths))
        self.list = self.list.next([one])

    def append(self, number: int, *paths: str) -> None:
        """The same in one step."""
        one, parent = manifest(number, paths), self.list
        self._listed[one.manifest_path] = paths
        self.list = parent.next([one])
        self.paths.append(self.list, one.manifest_path, hash_paths(paths), parent=parent)


def no_footprints(snapshot_ids: Sequence[int]) -> Mapping[int, bytes]:
    """A store without any."""
    return {}


# --- what it says is so -----------------------------------------------------------------------------------


@given(_manifests, _manifests, st.sets(_paths), _content, st.booleans())
def test_paths_that_are_none_at_once_are_found_nowhere(
    listed: list[list[str]],
    written: list[list[str]],
    wanted: set[str],
    content: ManifestContent | None,
    is_filled: bool,
) -> None:
    index = Index(listed)
    if is_filled:
        index.find()
    for number, paths in enumerate(written, len(listed)):
        index.write(number, *paths)
    says_none = index.holds_none(index.wanted(*wanted, content=content))
    lists_them = {path for paths in (*listed, *written) for path in paths}
    assert not (says_none and wanted & lists_them)
    assert not (says_none and index.find(*wanted))


@given(_manifests, st.sets(_paths, min_size=1))
def test_a_list_that_is_indexed_is_answered_at_once_and_exactly(
    listed: list[list[str]], wanted: set[str]
) -> None:
    index = Index(listed)
    index.find()
    reads = index.reads
    for path in wanted:
        is_written = any(path in paths for paths in listed)
        assert index.holds_none(index.wanted(path)) is not is_written
    assert index.holds_none(index.wanted(*wanted)) is not any(wanted & set(p) for p in listed)
    assert index.reads == reads


@given(_manifests, st.lists(st.lists(_paths, min_size=1, max_size=4), min_size=1, max_size=12))
def test_what_is_written_here_is_answered_at_once_without_a_look(
    listed: list[list[str]], written: list[list[str]]
) -> None:
    index = Index(listed)
    index.find()
    for number, paths in enumerate(written, len(listed)):
        index.write(number, *paths)
        assert index.holds_none(index.wanted("s3://b/t/data/never.parquet"))
        assert not index.holds_none(index.wanted("s3://b/t/data/never.parquet", paths[-1]))


@given(
    _manifests,
    st.lists(st.lists(_paths, min_size=1, max_size=4), max_size=40),
    st.sets(_paths),
    st.booleans(),
)
def test_appends_in_one_step_are_answered_as_any_others(
    listed: list[list[str]], written: list[list[str]], wanted: set[str], is_filled: bool
) -> None:
    index, other = Index(listed), Index(listed)
    if is_filled:
        index.find()
        other.find()
    for number, paths in enumerate(written, len(listed)):
        index.append(number, *paths)
        other.write(number, *paths)
    assert index.holds_none(index.wanted(*wanted)) is other.holds_none(other.wanted(*wanted))
    assert index.find(*wanted) == other.find(*wanted)
    assert index.reads == other.reads


def test_an_append_to_a_list_that_is_not_all_there_does_not_make_it_so() -> None:
    index = Index([["a"]])
    index.append(1, "b")
    assert not index.holds_none(index.wanted("never"))
    assert not index.holds_none(index.wanted("a"))
    assert index.find("a", "b") == {"a": ["m0.avro"], "b": ["m1.avro"]}


def test_an_append_after_the_index_was_emptied_is_not_known_to_be_all_there() -> None:
    index = Index([["a"]], limit_bytes=1000)
    index.find()
    assert index.holds_none(index.wanted("never"))  # now the list itself is noted
    index.paths.add("of another table.avro", hash_paths(f"other{n}" for n in range(100)))
    another = ManifestList.of([manifest(9, ["b"])])
    index.paths.look_up(FindLive(another, frozenset({"b"})), no_footprints)  # another table empties it
    index.append(1, "c")
    assert not index.holds_none(index.wanted("a"))
    assert not index.holds_none(index.wanted("never"))
    assert index.find("a", "c") == {"a": ["m0.avro"], "c": ["m1.avro"]}


# --- when it does not know --------------------------------------------------------------------------------


def test_a_list_that_was_not_looked_through_may_hold_anything() -> None:
    index = Index([["a"]])
    assert not index.holds_none(index.wanted("never"))
    index.find("a")
    assert index.holds_none(index.wanted("never"))


def test_one_manifest_that_is_not_indexed_is_enough_to_look_closer() -> None:
    index = Index([["a"]])
    index.find()
    index.list = index.list.next([manifest(7, ["of another replica"])])
    assert not index.holds_none(index.wanted("never"))


def test_a_list_of_nothing_holds_none_from_the_beginning() -> None:
    index = Index([])
    assert index.holds_none(index.wanted("a"))


def test_an_index_over_its_limit_knows_nothing_at_once_and_again_when_it_was_emptied() -> None:
    index = Index([["a"]], limit_bytes=1000)
    index.find()
    assert index.holds_none(index.wanted("never"))
    index.paths.add("of another table.avro", hash_paths(f"other{n}" for n in range(100)))
    assert index.paths.size_bytes > 1000
    assert not index.holds_none(index.wanted("never"))
    assert index.find("a", "never") == {"a": ["m0.avro"]}
    assert index.reads == 2  # it was emptied, so this was read again
    assert index.holds_none(index.wanted("never"))
    assert not index.holds_none(index.wanted("a"))


def test_what_was_indexed_before_it_was_emptied_is_not_known_after() -> None:
    index = Index([["a"]], limit_bytes=1000)
    index.find()
    index.paths.add("of another table.avro", hash_paths(f"other{n}" for n in range(100)))
    another = ManifestList.of([manifest(9, ["b"])])
    index.paths.look_up(FindLive(another, frozenset({"b"})), no_footprints)  # another table empties it
    assert index.paths.size_bytes < 1000
    assert not index.holds_none(index.wanted("a"))
    assert not index.holds_none(index.wanted("never"))


def test_who_asks_while_the_index_is_in_use_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index([["a"]])
    index.find()
    begun, let_go = threading.Event(), threading.Event()
    add = PathIndex.add

    def slow(self: PathIndex, manifest_path: str, hashes: bytes) -> bool:
        begun.set()
        assert let_go.wait(WAIT_S)
        return add(self, manifest_path, hashes)

    monkeypatch.setattr(PathIndex, "add", slow)
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(index.paths.add, "other.avro", b"")
        assert begun.wait(WAIT_S)
        assert not index.holds_none(index.wanted("nowhere"))
        let_go.set()
        adding.result(WAIT_S)
    assert index.holds_none(index.wanted("nowhere"))


# --- manifests of many paths -------------------------------------------------------------------------------


def test_nobody_is_kept_waiting_while_a_manifest_of_many_paths_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = Index([["a"]])
    index.find()
    begun, let_go = threading.Event(), threading.Event()

    def slow(hashes: bytes, ordinal: int) -> array[int]:
        begun.set()
        assert let_go.wait(WAIT_S)
        return sort_hashes(hashes, ordinal)

    monkeypatch.setattr("headgate.service.live_paths.sort_hashes", slow)
    large = hash_paths(f"large{n}" for n in range(5000))
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(index.paths.add, "large.avro", large)
        assert begun.wait(WAIT_S)
        assert index.holds_none(index.wanted("nowhere"))
        index.append(1, "b")  # would wait for ever if it had to
        assert not index.holds_none(index.wanted("b"))
        let_go.set()
        adding.result(WAIT_S)
    assert not index.holds_none(index.wanted("large4999"))


def test_many_manifests_of_many_paths_are_found_whoever_adds_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.service.live_paths.AT_ONCE_BYTES", 10)
    listed = [[f"{number}/{at}" for at in range(number % 9)] for number in range(60)]
    index = Index(listed)
    with ThreadPoolExecutor(4) as pool:
        for number, paths in enumerate(listed):
            pool.submit(index.paths.add, f"m{number}.avro", hash_paths(paths))
            pool.submit(index.paths.add, f"other{number}.avro", hash_paths(f"o{at}" for at in range(3)))
    wanted = {path: [f"m{number}.avro"] for number, paths in enumerate(listed) for path in paths}
    assert index.find(*wanted) == wanted
    assert index.reads == 0
    assert index.holds_none(index.wanted("never"))


def test_an_index_that_is_emptied_while_a_manifest_is_sorted_does_not_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = Index([["a"]], limit_bytes=60_000)
    index.paths.add("old.avro", hash_paths(f"old{n}" for n in range(4000)))
    another = FindLive(ManifestList.of([manifest(9, ["b"])]), frozenset({"b"}), None)

    def emptied(hashes: bytes, ordinal: int) -> array[int]:
        index.paths.look_up(another, no_footprints)  # another table empties it
        return sort_hashes(hashes, ordinal)

    monkeypatch.setattr("headgate.service.live_paths.sort_hashes", emptied)
    index.paths.add("large.avro", hash_paths(f"large{n}" for n in range(5000)))
    assert index.paths.size_bytes < 1000
    assert index.find("a") == {"a": ["m0.avro"]}
