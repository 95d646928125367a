"""Ids of a service are its own, also when several services were forked from one process."""

from __future__ import annotations

import multiprocessing
from uuid import UUID

from headgate.service.services import random_uuid


def test_an_id_is_a_uuid_of_version_four() -> None:
    made = UUID(random_uuid())
    assert (made.version, str(made)) == (4, str(made).lower())


def test_processes_forked_from_one_make_different_ids() -> None:
    made = [random_uuid()]
    with multiprocessing.get_context("fork").Pool(3, maxtasksperchild=1) as pool:
        made += pool.map(_make, range(3), chunksize=1)
    assert len(set(made)) == 4


def _make(_: int) -> str:
    return random_uuid()
