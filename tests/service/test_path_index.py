"""The index of paths: never silent about a manifest that lists a path, and bounded."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.format.footprints import HASH_BYTES, hash_paths
from headgate.service.path_index import PathIndex, merge, sort_hashes

_paths = st.integers(0, 30).map("path-{}".format)


@given(st.lists(st.lists(_paths, max_size=6), max_size=30), st.sets(_paths))
def test_every_manifest_that_lists_a_path_is_found(listed: list[list[str]], wanted: set[str]) -> None:
    index = PathIndex()
    for number, paths in enumerate(listed):
        index.add(f"m{number}", hash_paths(paths))
    found = index.find(wanted)
    for path in wanted:
        holders = {f"m{number}" for number, paths in enumerate(listed) if path in paths}
        assert holders == set(found.get(path, ()))


def test_paths_are_found_when_there_are_more_than_one_array_holds() -> None:
    index = PathIndex()
    for number in range(100):
        index.add(f"m{number}", hash_paths(f"{number}/{at}" for at in range(1000)))
    assert len(index) == 100
    for number in (0, 41, 99):
        assert index.find([f"{number}/0", f"{number}/999", "other"]) == {
            f"{number}/0": [f"m{number}"],
            f"{number}/999": [f"m{number}"],
        }
    assert 8 * 100_000 <= index.size_bytes < 16 * 100_000


def test_arrays_are_merged_in_little_more_memory_than_they_take() -> None:
    count = 64 * 4096
    hashes = random.Random(1).randbytes(count * HASH_BYTES)
    index = PathIndex()
    tracemalloc.start()
    try:
        for number in range(64):
            index.add(f"m{number}", hashes[number * 4096 * HASH_BYTES : (number + 1) * 4096 * HASH_BYTES])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 8 * count <= index.size_bytes < 9 * count
    assert peak_bytes < 16 * count  # as objects of Python, what is merged alone took 20


def test_a_manifest_is_counted_once_and_forgotten_with_all_others() -> None:
    index = PathIndex()
    index.add("m", hash_paths(["a"]))
    size_bytes = index.size_bytes
    index.add("m", hash_paths(["a"]))
    assert index.size_bytes == size_bytes
    assert "m" in index
    index.clear()
    assert "m" not in index
    assert (len(index), index.size_bytes, index.find(["a"])) == (0, 0, {})


def test_an_index_that_has_run_out_of_ordinals_says_that_it_was_emptied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.service.path_index._ORDINAL_BITS", 2)
    index = PathIndex()
    assert not any(index.add(f"m{number}", hash_paths(["a"])) for number in range(4))
    assert index.add("m4", hash_paths(["a"]))
    assert index.find(["a"]) == {"a": ["m4"]}
    assert not index.add("m4", hash_paths(["a"]))


# --- what is done beside the lock -------------------------------------------------------------------------


def put(index: PathIndex, manifest_path: str, hashes: bytes) -> None:
    """As `add`, in the steps that a large manifest takes."""
    ordinal, _ = index.reserve(manifest_path)
    index.put(manifest_path, ordinal, sort_hashes(hashes, ordinal))


@given(st.lists(st.tuples(st.lists(_paths, max_size=6), st.booleans()), max_size=30), st.sets(_paths))
def test_manifests_that_are_put_are_found_as_those_that_are_added(
    listed: list[tuple[list[str], bool]], wanted: set[str]
) -> None:
    index, other = PathIndex(), PathIndex()
    for number, (paths, is_put) in enumerate(listed):
        other.add(f"m{number}", hash_paths(paths))
        (put if is_put else PathIndex.add)(index, f"m{number}", hash_paths(paths))
    found = other.find(wanted)
    assert {path: sorted(places) for path, places in index.find(wanted).items()} == {
        path: sorted(places) for path, places in found.items()
    }
    assert all(index.may_hold(hash_paths([path])) is (path in found) for path in wanted)


def test_many_hashes_are_sorted_as_one_array() -> None:
    hashes = random.Random(1).randbytes(20_000 * HASH_BYTES)
    numbers = sort_hashes(hashes, 7)
    assert list(numbers) == sorted(
        int.from_bytes(hashes[at : at + 5], "big") << 24 | 7 for at in range(0, 100_000, 5)
    )


def test_a_crowd_of_arrays_is_replaced_once_and_everything_in_it_is_found_before_and_after() -> None:
    index = PathIndex()
    for number in range(8):
        put(index, f"m{number}", hash_paths([f"{number}/{at}" for at in range(10)]))
    wanted = {f"{number}/9": [f"m{number}"] for number in range(8)}
    crowd = index.find_crowd()
    assert len(crowd) == 8
    assert index.find(wanted) == wanted
    assert index.replace(crowd, merge(crowd))
    assert index.find(wanted) == wanted
    assert not index.find_crowd()
    assert not index.replace(crowd, merge(crowd))


def test_a_manifest_that_was_added_meanwhile_is_not_put_twice() -> None:
    index = PathIndex()
    ordinal, _ = index.reserve("m")
    index.add("m", hash_paths(["a"]))
    size_bytes = index.size_bytes
    index.put("m", ordinal, sort_hashes(hash_paths(["a"]), ordinal))
    assert (index.size_bytes, index.find(["a"])) == (size_bytes, {"a": ["m"]})


def test_a_number_that_there_is_no_room_for_is_given_when_all_others_were_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.service.path_index._ORDINAL_BITS", 2)
    index = PathIndex()
    for number in range(4):
        put(index, f"m{number}", hash_paths(["a"]))
    ordinal, is_emptied = index.reserve("m4")
    assert (ordinal, is_emptied, len(index)) == (0, True, 1)
    index.put("m4", ordinal, sort_hashes(hash_paths(["a"]), ordinal))
    assert index.find(["a"]) == {"a": ["m4"]}


def test_who_adds_a_few_paths_never_makes_one_array_of_very_many() -> None:
    index, size = PathIndex(), 4096 * HASH_BYTES
    hashes = random.Random(1).randbytes(200 * size)
    for at in range(0, len(hashes), size):
        index.add(f"m{at}", hashes[at : at + size])
        if crowd := index.find_crowd():
            break
    else:
        pytest.fail("every crowd was made one at once")
    assert sum(map(len, crowd)) > 1 << 16
    assert index.replace(crowd, merge(crowd))
    assert all(
        index.may_hold(hashes[place : place + HASH_BYTES]) for place in range(0, at + size, HASH_BYTES)
    )
