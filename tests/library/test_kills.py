"""A writer that is killed after any of its steps: exactly once when it comes back, and nothing live is lost.

After a step is before the next one. The clock jumps in between, forwards and backwards.
"""

from __future__ import annotations

import pytest

from headgate.library.policy import Event
from tests.library.killed_writer import WRITES, Writer, dies_at
from tests.library.lake import Lake, rows
from tests.library.stepped import Killed, Steps, open_stepped


@pytest.mark.slow
@pytest.mark.parametrize(
    ("road", "write", "wanted"),
    [
        ("sql", "append", [1, 2, 3, 9]),
        ("sql", "transact", [2, 3, 9]),
        ("postgres", "transact", [2, 3, 9]),
        ("reference", "transact", [2, 3, 9]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_writer_that_was_killed_at_any_step_comes_back_and_lands_once(
    lake: Lake, road: str, write: str, wanted: list[int]
) -> None:
    for number in range(1, 200):
        name = f"db.t{number}"
        lake.create(name)
        rival = lake.open(name)
        rival.append(rows(1, 3))
        writer = Writer((str(lake.folder), lake.uri, lake.namespace), name, road, write)
        died = dies_at(writer, number)
        if not any(row["id"] == 9 for row in lake.read(name)):
            rival.append(rows(9, part="b"))
        lake.audit(name)  # a killed writer may leave files that nobody names, never the other way round
        WRITES[write](open_stepped(lake, Steps(None, before=True), None, name, road))
        assert lake.ids(name) == wanted, number
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
