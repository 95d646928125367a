"""Requests and replies lost at every point of the loop, 503s, and a clock that jumps: there once, and nothing live goes.

The reference server and Headgate are reached through a proxy that hangs up or says 503, PostgreSQL through one that
cuts the connection. A rival commits meanwhile, so that every loop has a lost race in it too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from headgate.errors import BadInput
from headgate.library import Clock
from headgate.library.policy import Policy, RetryBudget
from headgate.library.table import Table
from tests.chaos.unsafe_proxy import Fate
from tests.library.faults import Cuts, Faults, cut_postgres, faulty_http
from tests.library.lake import Lake, append, jumping_clock, quick, rivals, rows, transact

_POINTS_MAX = 60
Arm = Callable[[int], None]


def write_through(
    lake: Lake, road: str, version: int, uri: str, arm: Arm, write: Callable[[Table, str | None], None]
) -> Callable[[int], str]:
    """A function that makes the write with a fault at one point, and returns the name of the table."""

    def at(number: int) -> str:
        name = f"db.t{number}"
        lake.create(name, version=version)
        rival = lake.open(name)
        rival.append(rows(1, 3))
        observer = rivals(lambda: rival.append(rows(9, part="b")))
        policy = Policy(clock=jumping_clock(road), budget=RetryBudget(), observer=observer)
        table = lake.open(name, road=road, uri=uri, policy=policy)
        arm(number)
        write(table, None)  # there is one writer, which gets its answer in the end
        return name

    return at


@pytest.mark.parametrize(
    ("road", "version", "fate"),
    [
        ("reference", 1, Fate.LOSE_ANSWER),
        ("reference", 1, Fate.MISLEAD),
        ("reference", 2, Fate.LOSE_REQUEST),
        ("reference", 2, Fate.LOSE_ANSWER),
        ("reference", 2, Fate.LOSE_REST),
        ("reference", 2, Fate.REFUSE),
        ("reference", 2, Fate.MISLEAD),
        ("reference", 3, Fate.LOSE_ANSWER),
        ("reference", 3, Fate.MISLEAD),
        ("rest", 2, Fate.LOSE_ANSWER),
        ("sent", 2, Fate.LOSE_ANSWER),
    ],
)
def test_a_fault_at_any_request_to_a_rest_catalog_leaves_the_write_there_once(
    lake: Lake, road: str, version: int, fate: Fate
) -> None:
    faults = Faults()
    with faulty_http(lake, faults) as uri:
        at = write_through(lake, road, version, uri, lambda number: faults.arm(number, fate), transact)
        for number in range(1, _POINTS_MAX):
            name = at(number)
            assert lake.ids(name) == [2, 3, 9], number
            assert lake.metadata(name)["properties"]["done"] == "yes"
            lake.check(name)
            if not faults.met:
                assert number > 2  # a load and a commit, at least
                return
    raise AssertionError("the writer never came to its end")


@pytest.mark.parametrize(("road", "version"), [("reference", 2)])
def test_a_clock_that_the_reference_server_does_not_believe_is_a_refusal_that_leaves_nothing(
    lake: Lake, road: str, version: int
) -> None:
    lake.create(version=version)
    lake.open().append(rows(1, 3))
    before = lake.metadata()
    table = lake.open(road=road, policy=quick(clock=Clock(now_ms=lambda: 4_000_000_000_000)))
    with pytest.raises(BadInput, match="timestamp"):
        transact(table)
    assert lake.metadata() == before
    lake.check()


@pytest.mark.parametrize(
    ("road", "version", "before"), [("postgres", 2, True), ("postgres", 2, False), ("postgres", 3, False)]
)
def test_a_connection_to_postgres_that_is_cut_at_any_message_leaves_the_write_there_once(
    lake: Lake, road: str, version: int, before: bool
) -> None:
    cuts = Cuts()
    write = transact if version == 2 else append
    wanted = [2, 3, 9] if version == 2 else [1, 2, 3, 9]
    with ExitStack() as stack:
        uri = stack.enter_context(cut_postgres(lake, cuts))
        stack.callback(lake.close)  # connections go before their proxy does
        at = write_through(lake, road, version, uri, lambda number: cuts.arm(number, before=before), write)
        for number in range(1, _POINTS_MAX):
            name = at(number)
            assert lake.ids(name) == wanted, number
            lake.check(name)
            lake.close()
            if not cuts.met:
                assert number > 6
                return
    raise AssertionError("the writer never came to its end")
