"""The ids of snapshots: stable, free, and neighbours when their commits are."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.snapshot_ids import choose_snapshot_id
from headgate.core.table import TableMetadata, append_snapshot
from headgate.service.services import fresh_uuid
from tests.core.builders import snapshot, table

EMPTY = table(snapshots=0)
MOMENT = 1 << 47  # ids of one moment differ by less


def uuid7(at_ms: int, rest: int = 0) -> str:
    """A key that was made at this time."""
    return str(UUID(int=at_ms << 80 | 7 << 76 | 2 << 62 | rest))


def holding(made: TableMetadata, id_: int) -> TableMetadata:
    """The table with a snapshot of this id."""
    return replace(made, snapshots=append_snapshot(made.snapshots, snapshot(1, snapshot_id=id_)))


def test_an_id_is_the_same_for_every_attempt_and_another_for_another_key() -> None:
    keys = [fresh_uuid() for _ in range(100)]
    first = [choose_snapshot_id(f"{key}/db.t/0", EMPTY) for key in keys]
    assert first == [choose_snapshot_id(f"{key}/db.t/0", EMPTY) for key in keys]
    assert len({*first, *(choose_snapshot_id(f"{key}/db.t/1", EMPTY) for key in keys)}) == 200


@given(st.text(max_size=60))
def test_whatever_the_key_an_id_is_a_positive_long(key: str) -> None:
    assert 0 < choose_snapshot_id(key, EMPTY) < 2**63


def test_keys_of_one_moment_make_neighbours_and_later_keys_larger_ids() -> None:
    start = 1_763_337_600_000 // 64 * 64
    ids = [[choose_snapshot_id(uuid7(start + at, n), EMPTY) for n in range(50)] for at in (0, 63, 64)]
    assert max(ids[0] + ids[1]) - min(ids[0] + ids[1]) < MOMENT
    assert max(ids[0] + ids[1]) < min(ids[2])


def test_moments_begin_again_so_that_ids_of_years_are_spread_over_all_numbers() -> None:
    hour_ms = 3_600_000
    ids = [choose_snapshot_id(uuid7(at * hour_ms), EMPTY) for at in range(1, 2000)]
    eighths = {id_ >> 60 for id_ in ids}
    assert eighths == set(range(8))


@pytest.mark.parametrize("key", ["k", "0199e0f0-aaaa-4bbb-8ccc-121212121212", "stream 7", "0199e0f0aaaa7bbb"])
def test_a_key_that_does_not_tell_its_time_makes_an_id_of_nothing_but_its_hash(key: str) -> None:
    ids = {choose_snapshot_id(f"{key}/{n}", EMPTY) >> 60 for n in range(200)}
    assert ids == set(range(8))


def test_an_id_that_is_taken_is_left_for_another_of_the_same_moment() -> None:
    seed = f"{uuid7(1_763_337_600_000)}/db.t/0"
    taken = choose_snapshot_id(seed, EMPTY)
    found = choose_snapshot_id(seed, holding(EMPTY, taken))
    assert found != taken
    assert abs(found - taken) < MOMENT
