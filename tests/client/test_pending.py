"""Changes that are made later: the client's side of asynchronous commits and streamed appends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from tools.service_process import Service, running_service

from headgate.client import HeadgateClient, TableClient
from headgate.client.keys import new_key
from headgate.client.resend import Time
from headgate.core.isolation import Wire
from headgate.errors import BadInput, CommitUnknown, ConflictFound, NotFound, QueueFull
from tests.client.scripted_server import HANG_UP, Told, error, scripted
from tests.client.test_table import data, new_table, post

PENDING = Told(200, {"status": "pending"})
LANDED = {"status": "committed", "snapshot-id": 7, "metadata-location": "file:///m"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running_service(tmp_path_factory.mktemp("pending"), options=["--stream-linger-ms", "50"]) as running:
        post(running, "/v1/namespaces", {"namespace": ["lake", "raw"]}, parent=["lake"])
        yield running


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[HeadgateClient]:
    with HeadgateClient(service.uri, timeout_s=30) as connected:
        yield connected


@pytest.fixture
def table(service: Service, client: HeadgateClient) -> TableClient:
    return new_table(service, client)


def test_a_change_made_later_lands(table: TableClient) -> None:
    landed = table.later().append([data(table, "a")]).wait()
    loaded = table.load()
    assert (landed.snapshot_id, landed.metadata_location) == (loaded.snapshot_id(), loaded.metadata_location)


def test_every_change_of_a_table_may_be_made_later(table: TableClient) -> None:
    old, new = data(table, "old"), data(table, "new")
    base = table.later().append([old]).wait().snapshot_id
    landed = table.later().overwrite(add=[new], remove=[old], base_snapshot_id=base).wait()
    assert table.load().snapshot_id() == landed.snapshot_id != base


def test_streamed_files_land_and_their_key_finds_them_from_elsewhere(
    client: HeadgateClient, table: TableClient
) -> None:
    key = new_key()
    file = data(table, "a")
    for _ in range(2):
        assert table.stream([file], summary={"job": "7"}, key=key).key == key
    landed = client.pending(key).wait()
    snapshot = table.load(all_snapshots=True).metadata["snapshots"]
    assert [(one["snapshot-id"], one["summary"]["job"]) for one in snapshot] == [(landed.snapshot_id, "7")]


def test_a_refusal_is_raised_by_who_waits_with_its_evidence(table: TableClient) -> None:
    file = data(table, "a")
    first, second = table.stream([file]), table.stream([file])
    refused = []
    for one in (first, second):
        try:
            one.wait()
        except ConflictFound as conflict:
            refused.append(conflict.evidence["files"])
    assert refused == [[file["file-path"]]]


def test_what_is_wrong_already_is_raised_at_once(table: TableClient) -> None:
    bad: Wire = {**data(table, "a"), "spec-id": 9}
    with pytest.raises(BadInput) as caught:
        table.stream([bad])
    assert caught.value.field == "files[0].spec-id"
    with pytest.raises(NotFound):
        table.stream([data(table, "a")], branch="none")


def test_a_key_that_nobody_acknowledged_is_not_found(client: HeadgateClient) -> None:
    with pytest.raises(NotFound):
        client.pending(new_key()).look()


# --- against a script ------------------------------------------------------------------------------------


def test_an_acknowledgement_that_was_lost_is_asked_for_again_under_its_key() -> None:
    answers = [
        Told(HANG_UP),
        error(503, "queue-full", "later"),
        Told(202, {"status": "pending"}),
        Told(200, LANDED),
    ]
    with scripted(answers) as script, HeadgateClient(script.uri, world=no_waiting()) as client:
        pending = client.table("a.t").later().append([])
        assert pending.wait().snapshot_id == 7
        assert script.keys()[:3] == [pending.key] * 3
        assert {one.header("prefer") for one in script.heard[:3]} == {"respond-async"}
        assert script.heard[3].path.startswith(f"/v1/commits/{pending.key}?wait=")


def test_a_full_queue_is_reported_as_such_when_it_stays_full() -> None:
    answers = [error(503, "queue-full", "later")]
    clock = count(0, 3)
    world = Time(now_s=lambda: float(next(clock)), wait_s=lambda _: None, draw=lambda: 0.0)
    with scripted(answers) as script, HeadgateClient(script.uri, world=world) as client:
        with pytest.raises(QueueFull):
            client.table("a.t").stream([])
        assert len(script.heard) > 2


def test_who_waits_asks_again_while_it_is_pending_and_gives_up_at_last() -> None:
    with scripted([PENDING]) as script:
        clock = iter(range(0, 1000, 3))
        world = Time(now_s=lambda: float(next(clock)), wait_s=lambda _: None, draw=lambda: 0.0)
        with HeadgateClient(script.uri, world=world) as client:
            with pytest.raises(CommitUnknown) as caught:
                client.pending("k").wait(timeout_s=60)
            assert caught.value.evidence["key"] == "k"
            assert len(script.heard) > 2
            assert client.pending("k").look() is None


def no_waiting() -> Time:
    return Time(wait_s=lambda _: None, draw=lambda: 0.0)
