"""Tables whose every step outside is counted, so that a writer can be killed at any of them.

A step is whatever reaches outside: a file opened for reading or writing, a file deleted, the head loaded or swapped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.typedef import Identifier

from headgate.library.adapters import Heard
from headgate.library.handle import Handle
from headgate.library.policy import Observer, Policy, RetryBudget
from headgate.library.roads import CatalogRoad, SqlRoad
from headgate.library.sql_rows import SqlRow
from headgate.library.table import Table
from tests.library.lake import NAME, Lake, jumping_clock


class Killed(BaseException):
    """The process is gone: nobody catches this."""


def give_up() -> None:
    """Die as an exception that nobody catches."""
    raise Killed


def kill_process() -> None:
    """Die as the kernel has it: nothing of this process runs any more."""
    os.kill(os.getpid(), signal.SIGKILL)


class Steps:
    """Counts steps, and dies at the one that it was told."""

    def __init__(self, fatal: int | None, *, before: bool, die: Callable[[], None] = give_up) -> None:
        self._fatal, self._before, self._die = fatal, before, die
        self.taken = 0

    def take(self, do: Callable[[], Any]) -> Any:
        """One step."""
        self.taken += 1
        dies = self.taken == self._fatal
        if dies and self._before:
            self._die()
        done = do()
        if dies:
            self._die()
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


class SteppedCatalog:
    """A catalog whose every use is a step; tables themselves are opened without one."""

    def __init__(self, real: Catalog, steps: Steps) -> None:
        self._real, self._steps = real, steps

    def load_table(self, identifier: Identifier) -> Any:
        """See `Catalog`."""
        return self._steps.take(lambda: self._real.load_table(identifier))

    def commit_table(self, *arguments: Any) -> Any:
        """See `Catalog`."""
        return self._steps.take(lambda: self._real.commit_table(*arguments))


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


def open_stepped(
    lake: Lake, steps: Steps, observer: Observer | None, name: str = NAME, road: str = "sql"
) -> Table:
    """A table whose every step is counted."""
    catalog: Any = lake.connect()
    identifier = tuple(lake.full_name(name).split("."))
    io = SteppedIO(catalog.load_table(identifier).io, steps)
    policy = Policy(clock=jumping_clock(road), budget=RetryBudget(), observer=observer)
    stepped: Any = SteppedCatalog(catalog, steps)
    if road == "reference":
        return Table(Handle(CatalogRoad(stepped, identifier, io), policy))
    row = SteppedRow(SqlRow(catalog, identifier), steps)
    return Table(Handle(SqlRoad(row, identifier, io), policy))
