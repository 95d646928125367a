"""What a bench does when the host of its machine gives time to others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.stolen import measure, measure_quietly, read_ticks


def clock(*stolen: int) -> Callable[[], tuple[int, int]]:
    """Each measurement takes 100 ticks, of which others have these."""
    ticks: Iterator[tuple[int, int]] = iter(
        [
            at
            for n, _ in enumerate(stolen)
            for at in ((sum(stolen[:n]), n * 100), (sum(stolen[: n + 1]), (n + 1) * 100))
        ]
    )
    return lambda: next(ticks)


def counter() -> Callable[[], int]:
    """1, 2, 3: which measurement it was."""
    numbers = iter(range(1, 100))
    return lambda: next(numbers)


def test_the_share_of_a_measurement_is_what_was_stolen_meanwhile_of_all_there_was() -> None:
    taken = measure(counter(), read=clock(25))
    assert (taken.found, taken.stolen) == (1, 0.25)


def test_a_quiet_measurement_is_not_taken_again() -> None:
    (taken,) = measure_quietly(counter(), read=clock(3, 0), pause_s=0)
    assert taken.found == 1


def test_a_disturbed_measurement_is_taken_again_until_one_is_quiet() -> None:
    (taken,) = measure_quietly(counter(), read=clock(20, 10, 1, 0), pause_s=0)
    assert (taken.found, taken.stolen) == (3, 0.01)


def test_where_no_measurement_is_quiet_the_quietest_counts_and_says_what_was_stolen() -> None:
    (taken,) = measure_quietly(counter(), read=clock(20, 10, 30, 40), tries_max=4, pause_s=0)
    assert (taken.found, taken.stolen) == (2, 0.1)


def test_of_several_that_are_wanted_the_disturbed_ones_are_left_out() -> None:
    taken = measure_quietly(counter(), wanted=3, read=clock(0, 50, 1, 50, 2), tries_max=9, pause_s=0)
    assert sorted(one.found for one in taken) == [1, 3, 5]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cpu  10 0 20 60 5 0 1 4 7 8\ncpu0 1 1 1\n", (4, 100)),  # guests' time is in the user's already
        ("cpu  10 0 20 60\n", (0, 90)),  # a kernel that does not tell
    ],
)
def test_stolen_ticks_are_read_from_the_first_line(tmp_path: Path, text: str, found: tuple[int, int]) -> None:
    stat = tmp_path / "stat"
    stat.write_text(text)
    assert read_ticks(stat) == found


def test_where_the_system_tells_nothing_nothing_was_stolen(tmp_path: Path) -> None:
    assert read_ticks(tmp_path / "absent") == (0, 0)
    assert measure(counter(), read=lambda: (0, 0)).stolen == 0
