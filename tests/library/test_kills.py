"""A writer that dies before or after any of its steps: exactly once when it comes back, and nothing live is lost.

A step is whatever reaches outside: a file opened for reading or writing, a file deleted, the row loaded or swapped. The
clock jumps in between, forwards and backwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.io import FileIO, InputFile, OutputFile

from headgate.library.adapters import Heard
from headgate.library.handle import Handle
from headgate.library.policy import Clock, Event, Observer, Policy, RetryBudget
from headgate.library.roads import SqlRoad
from headgate.library.sql_rows import SqlRow
from headgate.library.table import Table
from tests.library.lake import NAME, Lake, rivals, rows

_JUMPS_MS = (0, 90_000, -90_000, 5, -3_600_000, 3_600_000)
_START_MS = 1_800_000_000_000


class Killed(BaseException):
    """The process is gone: nobody catches this."""


class Steps:
    """Counts steps, and kills at the one that it was told."""

    def __init__(self, fatal: int | None, *, before: bool) -> None:
        self._fatal, self._before = fatal, before
        self.taken = 0

    def take(self, do: Callable[[], Any]) -> Any:
        """One step."""
        self.taken += 1
        dies = self.taken == self._fatal
        if dies and self._before:
            raise Killed
        done = do()
        if dies:
            raise Killed
        return done


class SteppedIO(FileIO):
    """A FileIO whose every use is a step."""

    def __init__(self, real: FileIO, steps: Steps) -> None:
        super().__init__(real.properties)
        self._real, self._steps = real, steps

    def new_input(self, location: str) -> InputFile:
        """See `FileIO`."""
        found: InputFile = self._steps.take(lambda: self._real.new_input(location))
        return found

    def new_output(self, location: str) -> OutputFile:
        """See `FileIO`."""
        found: OutputFile = self._steps.take(lambda: self._real.new_output(location))
        return found

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See `FileIO`."""
        self._steps.take(lambda: self._real.delete(location))


class SteppedRow:
    """A row whose every use is a step."""

    def __init__(self, row: SqlRow, steps: Steps) -> None:
        self._row, self._steps = row, steps

    def load(self) -> str | None:
        """See `Row`."""
        found: str | None = self._steps.take(self._row.load)
        return found

    def swap(self, *, new: str, old: str) -> Heard | None:
        """See `Row`."""
        found: Heard | None = self._steps.take(lambda: self._row.swap(new=new, old=old))
        return found


def jumping_clock() -> Clock:
    """A wall clock that jumps with every look."""
    looks = [0]

    def now_ms() -> int:
        looks[0] += 1
        return _START_MS + _JUMPS_MS[looks[0] % len(_JUMPS_MS)]

    return Clock(now_ms=now_ms, sleep_s=lambda _: None)


def open_stepped(lake: Lake, steps: Steps, observer: Observer | None) -> Table:
    """A table whose every step is counted."""
    catalog = lake.connect_sql()
    identifier = tuple(NAME.split("."))
    row = SteppedRow(SqlRow(catalog, identifier), steps)
    io = SteppedIO(catalog.load_table(NAME).io, steps)
    policy = Policy(clock=jumping_clock(), budget=RetryBudget(), observer=observer)
    return Table(Handle(SqlRoad(row, identifier, io), policy))


def append(table: Table) -> None:
    """One write of rows."""
    table.append(rows(2), key="k")


def delete(table: Table) -> None:
    """One copy-on-write."""
    table.delete("part = 'a' and id = 1", key="k")


def transact(table: Table) -> None:
    """Several writes as a unit."""
    with table.transaction(key="k") as transaction:
        transaction.append(rows(2))
        transaction.delete("part = 'a' and id = 1")
        transaction.set_properties({"done": "yes"})


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("write", "wanted"),
    [(append, [1, 2, 3, 9]), (delete, [3, 9]), (transact, [2, 3, 9])],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_a_writer_that_died_at_any_step_comes_back_and_lands_once(
    lake: Lake, write: Callable[[Table], None], wanted: list[int], before: bool
) -> None:
    number = 0
    while True:
        number += 1
        name = f"db.t{number}"
        assert number < 200
        lake.create(NAME)
        rival = lake.open()
        rival.append(rows(1, 3))
        observer = rivals(lambda rival=rival: rival.append(rows(9, part="b")))
        steps = Steps(number, before=before)
        try:
            write(open_stepped(lake, steps, observer))
            died = False
        except Killed:
            died = True
        if not any(row["id"] == 9 for row in lake.read()):
            rival.append(rows(9, part="b"))
        lake.audit()  # a killed writer may leave files that nobody names, never the other way round
        write(open_stepped(lake, Steps(None, before=True), None))
        assert lake.ids() == wanted, (number, before)
        lake.audit()
        lake.catalog.rename_table(NAME, name)
        if not died:
            return


def test_an_observer_that_raises_kills_the_commit_and_loses_nothing(lake: Lake) -> None:
    lake.create()

    def fail(event: Event) -> None:
        raise Killed

    table = lake.open()
    table.append(rows(1))
    with pytest.raises(Killed):
        open_stepped(lake, Steps(None, before=True), fail).append(rows(2))
    assert lake.ids() == [1]
