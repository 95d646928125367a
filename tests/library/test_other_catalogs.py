"""Catalogs that are reached by PyIceberg's own calls: lost replies, 503s, stale numbers and refusals, exactly once."""

from __future__ import annotations

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
from tests.library.lake import Lake, live_files, quick, rows
from tests.library.unsure import CommitEnding, ends_in, lands_then, open_unsure_catalog

both = pytest.mark.parametrize(
    ("road", "version"), [("catalog", 1), ("catalog", 2), ("rest", 2), ("rest", 3), ("reference", 2)]
)


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
    lake: Lake, road: str, version: int, ending: CommitEnding
) -> None:
    lake.create(version=version)
    lake.open().append(rows(1))
    table, _ = open_unsure_catalog(lake, ending, ending)
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
    table, catalog = open_unsure_catalog(
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
    table, _ = open_unsure_catalog(lake, lands_then(CommitStateUnknownException("500")))
    with table.transaction() as transaction, transaction.update_schema() as update:
        update.add_column("more", StringType())
    assert len(lake.metadata()["schemas"]) == 2


@both
def test_a_refusal_leaves_nothing_and_is_not_tried_again(lake: Lake, road: str, version: int) -> None:
    lake.create(version=version)
    table, _ = open_unsure_catalog(lake, *[ends_in(ForbiddenError("403"))] * 2)
    with pytest.raises(Forbidden):
        table.append(rows(1))
    assert {path for path in lake.find_orphans() if not path.endswith(".json")} == set()


@both
def test_a_table_that_was_dropped_meanwhile_is_not_found(lake: Lake, road: str, version: int) -> None:
    lake.create(version=version)
    table, _ = open_unsure_catalog(lake, ends_in(NoSuchTableError("gone")))
    with pytest.raises(NotFound):
        table.append(rows(1))
