"""Which files a compaction takes, without Spark."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from headgate.errors import BadInput
from headgate.spark.compact_groups import Candidate, Sizing, find_dangling, find_groups

_SIZING = Sizing(target_bytes=100, files_min=3)


def _file(path: str, size_bytes: int = 10, *, place: str = "p", **more: int | bool) -> Candidate:
    return Candidate(path, place, size_bytes, rows=10, **more)  # type: ignore[arg-type]


def _paths(files: list[Candidate], sizing: Sizing = _SIZING) -> list[tuple[str, ...]]:
    return [group.paths for group in find_groups(files, sizing)]


def test_small_files_of_one_partition_are_grouped_and_no_others() -> None:
    files = [_file(name, place=place) for name, place in ("ax", "ay", "bx", "cx", "by", "cz")]
    assert _paths([_file(f"{f.path}{f.place}", place=str(f.place)) for f in files]) == [("ax", "bx", "cx")]


def test_files_of_the_right_size_are_left_alone() -> None:
    assert _paths([_file(name, 100) for name in "abcdef"]) == []


def test_too_few_small_files_are_left_alone_until_they_fill_a_file() -> None:
    assert _paths([_file("a"), _file("b")]) == []
    assert _paths([_file("a", 60), _file("b", 60)]) == [("a", "b")]


def test_a_file_that_is_much_too_large_is_cut() -> None:
    assert _paths([_file("a", 181)]) == [("a",)]
    assert _paths([_file("a", 179)]) == []


def test_a_file_that_lost_many_rows_is_rewritten_alone() -> None:
    assert _paths([_file("a", 100, deleted_rows=3)]) == [("a",)]
    assert _paths([_file("a", 100, deleted_rows=2)]) == []


def test_a_file_of_an_old_partition_spec_is_rewritten() -> None:
    assert _paths([_file("a", 100, is_misplaced=True)]) == [("a",)]


def test_no_group_is_larger_than_its_bound() -> None:
    sizing = Sizing(target_bytes=100, files_min=2, group_bytes_max=35)
    assert _paths([_file(name) for name in "abcdefg"], sizing) == [("a", "b", "c"), ("d", "e", "f")]


def test_all_files_are_taken_when_all_are_asked_for() -> None:
    assert _paths([_file("a", 100), _file("b", 100)], Sizing(target_bytes=100, takes_all=True)) == [
        ("a", "b")
    ]


@pytest.mark.parametrize(
    ("size_bytes", "files"), [(1, 1), (99, 1), (100, 1), (110, 1), (111, 2), (176, 2), (320, 3), (1000, 10)]
)
def test_a_small_last_file_is_avoided_where_the_others_can_take_its_rows(size_bytes: int, files: int) -> None:
    assert Sizing(target_bytes=100).files_out(size_bytes) == files


def test_a_delete_file_dangles_only_when_all_its_data_files_are_gone() -> None:
    applies_to: dict[Hashable, frozenset[str]] = {
        "one": frozenset({"a"}),
        "two": frozenset({"a", "b"}),
        "shared": frozenset({"a", "c"}),
        "other": frozenset({"c"}),
    }
    dangling = find_dangling(applies_to, removed=frozenset({"a"}), gone=frozenset({"b"}))
    assert dangling == ("one", "two")


@pytest.mark.parametrize("field", ["target_bytes", "files_min", "group_bytes_max", "delete_ratio"])
def test_a_bound_that_means_nothing_is_refused_by_name(field: str) -> None:
    with pytest.raises(BadInput, match=field):
        Sizing(**{field: 0})  # type: ignore[arg-type]
