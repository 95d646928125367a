"""A writer that dies before or after any of its steps: exactly once when it comes back, and nothing live is lost.

The clock jumps in between, forwards and backwards.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.library.policy import Event
from headgate.library.table import Table
from tests.library.lake import Lake, append, delete, rivals, rows, transact
from tests.library.stepped import Killed, Steps, open_stepped


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("road", "write", "wanted"),
    [
        ("sql", append, [1, 2, 3, 9]),
        ("sql", delete, [3, 9]),
        ("sql", transact, [2, 3, 9]),
        ("postgres", transact, [2, 3, 9]),
        ("reference", transact, [2, 3, 9]),
    ],
    ids=lambda value: getattr(value, "__name__", value if isinstance(value, str) else ""),
)
def test_a_writer_that_died_at_any_step_comes_back_and_lands_once(
    lake: Lake, road: str, write: Callable[[Table], None], wanted: list[int], before: bool
) -> None:
    for number in range(1, 200):
        name = f"db.t{number}"
        lake.create(name)
        rival = lake.open(name)
        rival.append(rows(1, 3))
        observer = rivals(lambda rival=rival: rival.append(rows(9, part="b")))
        steps = Steps(number, before=before)
        try:
            write(open_stepped(lake, steps, observer, name, road))
            died = False
        except Killed:
            died = True
        if not any(row["id"] == 9 for row in lake.read(name)):
            rival.append(rows(9, part="b"))
        lake.audit(name)  # a killed writer may leave files that nobody names, never the other way round
        write(open_stepped(lake, Steps(None, before=True), None, name, road))
        assert lake.ids(name) == wanted, (number, before)
        lake.audit(name)
        lake.close()
        if not died:
            assert number > 10
            return
    raise AssertionError("the writer never came to its end")


def test_an_observer_that_raises_kills_the_commit_and_loses_nothing(lake: Lake) -> None:
    lake.create()

    def fail(event: Event) -> None:
        raise Killed

    table = lake.open()
    table.append(rows(1))
    with pytest.raises(Killed):
        open_stepped(lake, Steps(None, before=True), fail).append(rows(2))
    assert lake.ids() == [1]
