"""Catalogs that are reached by PyIceberg's own calls: lost replies, 503s, stale numbers and refusals, exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import (
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from pyiceberg.types import StringType

from headgate.errors import CommitUnknown, Forbidden, NotFound
from headgate.library.handle import Handle
from headgate.library.policy import Policy
from headgate.library.roads import CatalogRoad
from headgate.library.table import Table
from tests.library.lake import NAME, Lake, live_files, quick, rows

both = pytest.mark.parametrize(
    ("road", "version"), [("catalog", 1), ("catalog", 2), ("rest", 2), ("rest", 3)]
)
Do = Callable[[], Any]
Ending = Callable[[Do], Any]


class UnsureCatalog:
    """A catalog whose next commits end as they are told to; everything else is the real one's."""

    def __init__(self, real: Any, endings: tuple[Ending, ...]) -> None:
        self._real, self._endings = real, list(endings)
        self.after_commit: Do = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def commit_table(self, *arguments: Any) -> Any:
        """See `Catalog`."""
        if not self._endings:
            return self._real.commit_table(*arguments)
        try:
            return self._endings.pop(0)(lambda: self._real.commit_table(*arguments))
        finally:
            self.after_commit()


def open_unsure(lake: Lake, *endings: Ending, policy: Policy | None = None) -> tuple[Table, UnsureCatalog]:
    """A table of the library over such a catalog."""
    identifier = tuple(lake.full_name(NAME).split("."))
    catalog: Any = UnsureCatalog(lake.connect(), endings)
    io = catalog.load_table(identifier).io
    return Table(Handle(CatalogRoad(catalog, identifier, io), policy or quick())), catalog


def lands_then(error: Exception) -> Ending:
    """It lands, and this is what is heard."""

    def end(commit: Do) -> Any:
        commit()
        raise error

    return end


def ends_in(error: Exception) -> Ending:
    """It does not land, and this is what is heard."""

    def end(commit: Do) -> Any:
        raise error

    return end


def check(lake: Lake) -> None:
    """Sound, and nothing left but what PyIceberg's commits leave."""
    lake.check(ignore_metadata=True)


@both
@pytest.mark.parametrize(
    "ending",
    [
        lands_then(CommitStateUnknownException("500")),
        lands_then(ServiceUnavailableError("503")),
        lands_then(TimeoutError()),
        lands_then(ValueError("the answer cannot be read")),
        ends_in(CommitStateUnknownException("500")),
        ends_in(ServiceUnavailableError("503")),
        ends_in(TooManyRequestsError("429")),
        ends_in(ValueError("sequence number")),
    ],
    ids=["500+", "503+", "timeout+", "garbage+", "500", "503", "429", "stale"],
)
def test_whatever_is_heard_the_rows_are_there_once(
    lake: Lake, road: str, version: int, ending: Ending
) -> None:
    lake.create(version=version)
    lake.open().append(rows(1))
    table, _ = open_unsure(lake, ending, ending)
    table.append(rows(2))
    assert lake.ids() == [1, 2]
    check(lake)


@both
def test_files_of_a_commit_that_landed_and_expired_are_not_deleted(
    lake: Lake, road: str, version: int
) -> None:
    lake.create(version=version)
    lake.open().append(rows(1))
    rival = lake.open()
    table, catalog = open_unsure(
        lake, lands_then(CommitStateUnknownException("500")), policy=quick(retries_max=0)
    )

    def expire() -> None:
        ours = lake.metadata()["current-snapshot-id"]
        rival.append(rows(7))
        rival.commit([{"action": "remove-snapshots", "snapshot-ids": [ours]}])

    catalog.after_commit = expire
    with pytest.raises(CommitUnknown):  # nobody can tell any more
        table.append(rows(2))
    assert lake.ids() == [1, 2, 7]
    assert len(live_files(lake)) == 3


@both
def test_a_schema_whose_reply_was_lost_is_not_added_twice(lake: Lake, road: str, version: int) -> None:
    lake.create(version=version)
    table, _ = open_unsure(lake, lands_then(CommitStateUnknownException("500")))
    with table.transaction() as transaction, transaction.update_schema() as update:
        update.add_column("more", StringType())
    assert len(lake.metadata()["schemas"]) == 2


@both
def test_a_refusal_leaves_nothing_and_is_not_tried_again(lake: Lake, road: str, version: int) -> None:
    lake.create(version=version)
    table, _ = open_unsure(lake, *[ends_in(ForbiddenError("403"))] * 2)
    with pytest.raises(Forbidden):
        table.append(rows(1))
    assert {path for path in lake.find_orphans() if not path.endswith(".json")} == set()


@both
def test_a_table_that_was_dropped_meanwhile_is_not_found(lake: Lake, road: str, version: int) -> None:
    lake.create(version=version)
    table, _ = open_unsure(lake, ends_in(NoSuchTableError("gone")))
    with pytest.raises(NotFound):
        table.append(rows(1))
