"""Catalogs that are reached by PyIceberg's own calls: lost replies, 503s, stale numbers and refusals, exactly once."""

from __future__ import annotations

import pytest
from botocore.exceptions import (  # type: ignore[import-untyped] # it has no types
    ClientError,
    EndpointConnectionError,
)
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from pyiceberg.types import StringType

from headgate.errors import BadInput, CommitUnknown, Diverged, Forbidden, NotFound, RequirementFailed
from headgate.library import roads
from tests.library.lake import Lake, live_files, quick, rivals, rows
from tests.library.unsure import CommitEnding, ends_in, lands, lands_then, open_unsure_catalog

both = pytest.mark.parametrize(
    ("road", "version"), [("catalog", 1), ("catalog", 2), ("rest", 2), ("rest", 3), ("reference", 2)]
)

few = pytest.mark.parametrize(("road", "version"), [("catalog", 1), ("catalog", 2), ("rest", 3)])


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


_HEARSAY = (
    CommitStateUnknownException("500"),
    CommitFailedException("409"),  # a resend below us met its own commit
    TooManyRequestsError("429"),
)


@few
@pytest.mark.parametrize("error", _HEARSAY, ids=["500", "409", "429"])
def test_a_commit_of_which_nobody_can_tell_is_never_sent_again(
    lake: Lake, road: str, version: int, error: Exception
) -> None:
    lake.create(version=version)
    lake.open().append(rows(1))
    rival = lake.open()
    table, catalog = open_unsure_catalog(lake, lands_then(error))

    def expire() -> None:
        ours = lake.metadata()["current-snapshot-id"]
        rival.append(rows(7))
        rival.commit([{"action": "remove-snapshots", "snapshot-ids": [ours]}])

    catalog.after_commit = expire
    with pytest.raises(CommitUnknown) as unknown:
        table.append(rows(2))
    assert unknown.value.evidence["key"]
    assert lake.ids() == [1, 2, 7]  # once, and every file of it is there


@few
@pytest.mark.parametrize("error", _HEARSAY, ids=["500", "409", "429"])
def test_a_commit_that_others_overtook_is_sent_again(
    lake: Lake, road: str, version: int, error: Exception
) -> None:
    lake.create(version=version)
    lake.open().append(rows(1))
    rival = lake.open()
    table, catalog = open_unsure_catalog(lake, *[ends_in(error)] * 2)

    def define() -> None:
        with rival.transaction() as transaction, transaction.update_schema() as update:
            update.add_column("more", StringType())

    def append() -> None:
        rival.append(rows(7))
        catalog.after_commit = define

    catalog.after_commit = append
    assert table.append(rows(2)).sent == 3
    assert lake.ids() == [1, 2, 7]


@few
@pytest.mark.parametrize(
    "error",
    [
        ClientError({"Error": {"Code": "ThrottlingException"}}, "UpdateTable"),
        ClientError({"Error": {"Code": "ExpiredTokenException"}}, "UpdateTable"),
        EndpointConnectionError(endpoint_url="http://x", error="refused"),
        ForbiddenError("403"),
    ],
    ids=["throttled", "expired", "gone", "403"],
)
def test_a_commit_that_landed_and_was_told_it_did_nothing_is_unknown_while_nobody_can_look(
    lake: Lake, road: str, version: int, error: Exception
) -> None:
    """AWS's client resends by itself: the first request lands, and what is heard is the answer to the second."""
    lake.create(version=version)
    lake.open().append(rows(1))
    table, catalog = open_unsure_catalog(lake, lands_then(error), policy=quick(retries_max=2))

    def go_away() -> None:
        catalog.load_error = error

    catalog.after_commit = go_away
    with pytest.raises(CommitUnknown) as unknown:
        table.append(rows(2))
    assert unknown.value.evidence["key"]
    assert lake.ids() == [1, 2]


@few
@pytest.mark.parametrize("is_readable_later", [True, False])
def test_a_commit_whose_answer_cannot_be_read_is_looked_up(
    lake: Lake, road: str, version: int, is_readable_later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create(version=version)
    lake.open().append(rows(1))
    table, catalog = open_unsure_catalog(lake, lands)
    real, failures = roads.skim_metadata, list[Exception]()

    def skim(text: bytes, *, location: str, uuid: str) -> object:
        if failures:
            raise failures.pop()
        return real(text, location=location, uuid=uuid)

    catalog.after_commit = lambda: failures.extend(
        [BadInput("unreadable")] * (1 if is_readable_later else 99)
    )
    with monkeypatch.context() as patched:
        patched.setattr(roads, "skim_metadata", skim)
        if is_readable_later:
            table.append(rows(2))
        else:
            with pytest.raises(CommitUnknown):
                table.append(rows(2))
    assert lake.ids() == [1, 2]


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


@few
def test_a_table_that_cannot_be_found_any_more_is_not_found_and_keeps_its_files(
    lake: Lake, road: str, version: int
) -> None:
    """It may have been renamed, after a commit whose resend met nobody."""
    lake.create(version=version)
    table, catalog = open_unsure_catalog(lake, lands_then(NoSuchTableError("gone")))

    def go_away() -> None:
        catalog.load_error = NoSuchTableError("gone")

    catalog.after_commit = go_away
    with pytest.raises(NotFound):
        table.append(rows(1))
    assert lake.ids() == [1]


@few
def test_a_transaction_whose_schema_lost_its_race_is_refused_with_its_rows(
    lake: Lake, road: str, version: int
) -> None:
    lake.create(version=version)
    lake.open().append(rows(1))
    rival = lake.open()

    def define() -> None:
        with rival.transaction() as theirs, theirs.update_schema() as update:
            update.add_column("theirs", StringType())

    transaction = lake.open(road=road, policy=quick(observer=rivals(define))).transaction()
    with transaction.update_schema() as update:
        update.add_column("ours", StringType())
    transaction.append(rows(2))
    with pytest.raises(RequirementFailed):
        transaction.commit()
    assert lake.ids() == [1]
    lake.audit()


@few
def test_a_delete_whose_base_was_rolled_back_has_diverged(lake: Lake, road: str, version: int) -> None:
    lake.create(version=version)
    lake.open().append(rows(1))
    first = lake.metadata()["current-snapshot-id"]
    lake.open().append(rows(2))
    rival = lake.open()
    back = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": first}
    table = lake.open(road=road, policy=quick(observer=rivals(lambda: rival.commit([back]))))
    with pytest.raises(Diverged):
        table.delete("id = 1")
    assert lake.ids() == [1]
    lake.audit()


@few
def test_a_transaction_of_which_one_snapshot_has_expired_is_known_by_the_other(
    lake: Lake, road: str, version: int
) -> None:
    lake.create(version=version)
    lake.open().append(rows(1))
    rival = lake.open()
    table, catalog = open_unsure_catalog(lake, lands_then(CommitStateUnknownException("500")))

    def expire() -> None:
        ours = lake.metadata()["snapshots"][-2]["snapshot-id"]
        rival.commit([{"action": "remove-snapshots", "snapshot-ids": [ours]}])

    catalog.after_commit = expire
    with table.transaction() as transaction:
        transaction.append(rows(2))
        transaction.append(rows(3))
    assert lake.ids() == [1, 2, 3]
    lake.audit()
