"""The index of paths: never silent about a manifest that lists a path, and bounded."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.format.footprints import HASH_BYTES, hash_paths
from headgate.service.path_index import PathIndex

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
