"""Ids of a service are its own, also when several services were forked from one process."""

from __future__ import annotations

import multiprocessing
import time
from uuid import UUID

from headgate.service.placement import default_location
from headgate.service.services import fresh_uuid


def test_an_id_is_a_uuid_of_version_seven() -> None:
    made = UUID(fresh_uuid())
    assert (made.version, str(made)) == (7, str(made).lower())


def test_ids_begin_with_their_time_so_that_those_of_one_group_are_neighbours() -> None:
    before_ms = time.time_ns() // 1_000_000
    times_ms = [UUID(fresh_uuid()).int >> 80 for _ in range(100)]
    assert times_ms == sorted(times_ms)
    assert before_ms <= times_ms[0] <= times_ms[-1] <= time.time_ns() // 1_000_000


def test_tables_of_one_name_made_at_one_time_have_places_of_their_own() -> None:
    """A table that was renamed keeps its place, and its name is free for another at once."""
    places = {default_location("file:///lake", ("a",), "t", fresh_uuid(), {}) for _ in range(100)}
    assert len(places) == 100


def test_processes_forked_from_one_make_different_ids() -> None:
    made = [fresh_uuid()]
    with multiprocessing.get_context("fork").Pool(3, maxtasksperchild=1) as pool:
        made += pool.map(_make, range(3), chunksize=1)
    assert len({id_[14:] for id_ in made}) == 4  # but for the time


def _make(_: int) -> str:
    return fresh_uuid()
