"""Catalogs and rows whose swaps end as they are told to: lost replies, busy databases, loads that fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy.exc import OperationalError

from headgate.library.adapters import Heard
from headgate.library.handle import Handle
from headgate.library.policy import Policy
from headgate.library.roads import CatalogRoad, SqlRoad
from headgate.library.sql_rows import SqlRow
from headgate.library.table import Table
from tests.library.lake import NAME, Lake, quick

Ending = Callable[[Callable[[], Heard | None]], Heard | None]


def landed_unheard(swap: Callable[[], Heard | None]) -> Heard | None:
    """It lands, and its answer is lost."""
    swap()
    return Heard.UNKNOWN


def landed_as_lost(swap: Callable[[], Heard | None]) -> Heard | None:
    """It lands, and what is heard is that somebody else was first."""
    swap()
    return Heard.LOST


def not_landed_unheard(swap: Callable[[], Heard | None]) -> Heard | None:
    """It does not land, and nobody is told."""
    return Heard.UNKNOWN


def busy(swap: Callable[[], Heard | None]) -> Heard | None:
    """The database is locked."""
    raise OperationalError("UPDATE", {}, Exception("database is locked"))


class UnsureRow:
    """A row whose next swaps and loads end as they are told to."""

    def __init__(self, row: SqlRow, endings: Sequence[Ending] = (), failing_loads: int = 0) -> None:
        self._row, self._endings, self.failing_loads = row, list(endings), failing_loads
        self.after_swap: Callable[[], None] = lambda: None

    def load(self) -> str | None:
        """See `Row`."""
        if self.failing_loads:
            self.failing_loads -= 1
            raise OperationalError("SELECT", {}, Exception("database is locked"))
        return self._row.load()

    def swap(self, *, new: str, old: str) -> Heard | None:
        """See `Row`."""
        if not self._endings:
            return self._row.swap(new=new, old=old)
        try:
            return self._endings.pop(0)(lambda: self._row.swap(new=new, old=old))
        finally:
            self.after_swap()


def open_unsure(
    lake: Lake, *endings: Ending, policy: Policy | None = None, name: str = NAME
) -> tuple[Table, UnsureRow]:
    """A table of the library over such a row."""
    catalog = lake.connect_sql()
    identifier = tuple(lake.full_name(name).split("."))
    row = UnsureRow(SqlRow(catalog, identifier), endings)
    road = SqlRoad(row, identifier, catalog.load_table(identifier).io)
    return Table(Handle(road, policy or quick())), row


# --- catalogs that are reached by PyIceberg's own calls -------------------------------------------------------

Do = Callable[[], Any]
CommitEnding = Callable[[Do], Any]


def lands(commit: Do) -> Any:
    """It lands, and says so."""
    return commit()


def lands_then(error: Exception) -> CommitEnding:
    """It lands, and this is what is heard."""

    def end(commit: Do) -> Any:
        commit()
        raise error

    return end


def ends_in(error: Exception) -> CommitEnding:
    """It does not land, and this is what is heard."""

    def end(commit: Do) -> Any:
        raise error

    return end


class UnsureCatalog:
    """A catalog whose next commits end as they are told to; everything else is the real one's."""

    def __init__(self, real: Any, endings: tuple[CommitEnding, ...]) -> None:
        self._real, self._endings = real, list(endings)
        self.after_commit: Do = lambda: None
        self.load_error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def load_table(self, *arguments: Any) -> Any:
        """See `Catalog`."""
        if self.load_error is not None:
            raise self.load_error
        return self._real.load_table(*arguments)

    def commit_table(self, *arguments: Any) -> Any:
        """See `Catalog`."""
        if not self._endings:
            return self._real.commit_table(*arguments)
        try:
            return self._endings.pop(0)(lambda: self._real.commit_table(*arguments))
        finally:
            self.after_commit()


def open_unsure_catalog(
    lake: Lake, *endings: CommitEnding, policy: Policy | None = None
) -> tuple[Table, UnsureCatalog]:
    """A table of the library over such a catalog."""
    identifier = tuple(lake.full_name(NAME).split("."))
    catalog: Any = UnsureCatalog(lake.connect(), endings)
    io = catalog.load_table(identifier).io
    return Table(Handle(CatalogRoad(catalog, identifier, io), policy or quick())), catalog
