"""What the client sends again, under which key, and what it reports when nothing is sure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from tools.service_process import find_free_port

from headgate.client import HeadgateClient
from headgate.client.keys import new_key
from headgate.client.resend import Time
from headgate.core.backoff import BackoffPolicy
from headgate.errors import (
    BadInput,
    CommitRefused,
    CommitUnknown,
    ConflictFound,
    Diverged,
    Forbidden,
    HeadgateError,
    NotFound,
    Overloaded,
    StorageFailed,
    TooLarge,
    Unauthenticated,
)
from headgate.service.idempotency import parse_key
from tests.client.scripted_server import HANG_UP, HOST, Script, Told, error, scripted

LANDED = Told(200, {"metadata-location": "m", "snapshot-id": 7, "sequence-number": 3, "snapshots": []})
LOST = Told(HANG_UP)
FILE = {"content": "data", "file-path": "f", "file-format": "parquet", "spec-id": 0, "partition": []}
BRIEF = BackoffPolicy(retries_max=3, wait_min_ms=100, wait_max_ms=1000, total_max_ms=60_000)


@dataclass
class World:
    """Time that passes only when somebody waits."""

    waits_s: list[float] = field(default_factory=list)
    now_s: float = 0.0

    def wait(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self.now_s += seconds

    def as_time(self) -> Time:
        return Time(now_s=lambda: self.now_s, wait_s=self.wait, draw=lambda: 0.5)


@contextmanager
def client_of(*answers: Told, **options: Any) -> Iterator[tuple[HeadgateClient, Script, World]]:
    world = World()
    with (
        scripted(answers) as script,
        HeadgateClient(
            script.uri, retry=options.pop("retry", BRIEF), timeout_s=5, world=world.as_time(), **options
        ) as client,
    ):
        yield client, script, world


def test_a_lost_answer_is_asked_for_again_under_the_same_key() -> None:
    with client_of(LOST, LOST, LANDED) as (client, script, _):
        done = client.table("a.t").append([FILE])
    assert (done.snapshot_id, done.sequence_number, done.metadata_location, done.sent) == (7, 3, "m", 3)
    assert set(script.keys()) == {done.key}
    assert len({one.body for one in script.heard}) == 1


def test_half_an_answer_is_a_lost_one() -> None:
    half = Told(200, LANDED.body, is_cut=True)
    with client_of(half, LANDED) as (client, script, _):
        assert client.table("a.t").append([FILE]).sent == 2
    assert len(set(script.keys())) == 1


def test_every_commit_has_a_key_of_its_own_that_the_service_accepts() -> None:
    with client_of(LANDED) as (client, script, _):
        done = [client.table("a.t").append([FILE]).key for _ in range(3)]
    assert script.keys() == done
    assert len(set(done)) == 3
    assert [parse_key(key) for key in done] == done


def test_a_thousand_keys_are_all_different_and_valid() -> None:
    keys = [new_key() for _ in range(1000)]
    assert len({parse_key(key) for key in keys}) == 1000


def test_a_server_error_is_unknown_and_asked_about_again() -> None:
    unknown = error(500, "commit-unknown", "probe")
    with client_of(unknown, Told(502), LANDED) as (client, script, _):
        assert client.table("a.t").append([FILE]).sent == 3
    assert len(set(script.keys())) == 1


def test_an_outcome_that_stays_unknown_is_reported_with_its_key() -> None:
    with client_of(LOST) as (client, script, _), pytest.raises(CommitUnknown) as caught:
        client.table("a.t").append([FILE])
    assert len(script.heard) == BRIEF.retries_max + 1
    assert caught.value.evidence["key"] == script.keys()[0]


def test_an_earlier_doubt_is_not_forgotten_over_a_later_refusal_to_serve() -> None:
    overloaded = error(429, "overloaded", "later")
    with client_of(LOST, overloaded) as (client, _, _), pytest.raises(CommitUnknown):
        client.table("a.t").append([FILE])


def test_an_earlier_doubt_is_not_forgotten_over_a_token_that_ended() -> None:
    ended = error(401, "unauthenticated", "never")
    with client_of(LOST, ended, token="x") as (client, _, _), pytest.raises(CommitUnknown):
        client.table("a.t").append([FILE])


def test_an_earlier_doubt_is_not_forgotten_over_the_page_of_a_proxy() -> None:
    gone = Told(404, "404 page not found")
    with client_of(LOST, gone) as (client, _, _), pytest.raises(CommitUnknown):
        client.table("a.t").append([FILE])


def test_an_earlier_doubt_is_not_forgotten_over_a_token_that_cannot_be_had() -> None:
    token, gone = Told(200, {"access_token": "x", "token_type": "bearer"}), Told(404, "404 page not found")
    ended = error(401, "unauthenticated", "the token has ended")
    with (
        client_of(token, LOST, ended, gone, credential=("me", "secret")) as (client, _, _),
        pytest.raises(CommitUnknown),
    ):
        client.table("a.t").append([FILE])


def test_a_service_that_asks_for_no_wait_is_not_asked_without_a_pause() -> None:
    busy = Told(503, error(503, "overloaded", "later").body, {"Retry-After": "0"})
    with client_of(*[busy] * 4) as (client, _, world), pytest.raises(Overloaded):
        client.table("a.t").append([FILE])
    assert len(world.waits_s) == BRIEF.retries_max
    assert min(world.waits_s) > 0


def test_a_success_that_is_some_proxy_s_page_is_unknown() -> None:
    key = new_key()
    with (
        client_of(Told(200, "<html>welcome</html>")) as (client, _, _),
        pytest.raises(CommitUnknown) as caught,
    ):
        client.table("a.t").append([FILE], key=key)
    assert caught.value.evidence["key"] == key


def test_a_verdict_after_a_lost_answer_is_the_verdict() -> None:
    with (
        client_of(LOST, error(409, "conflict-found", "never")) as (client, _, _),
        pytest.raises(ConflictFound),
    ):
        client.table("a.t").append([FILE])


def test_a_service_that_is_not_there_leaves_nothing_in_doubt() -> None:
    world = World()
    client = HeadgateClient(f"http://{HOST}:{find_free_port()}", retry=BRIEF, world=world.as_time())
    with pytest.raises(StorageFailed):
        client.table("a.t").append([FILE])
    assert len(world.waits_s) == BRIEF.retries_max


def test_a_commit_that_never_left_names_its_key_as_one_that_did_nothing() -> None:
    client = HeadgateClient(f"http://{HOST}:{find_free_port()}", retry=BRIEF, world=World().as_time())
    key = new_key()
    with pytest.raises(StorageFailed) as caught:
        client.table("a.t").append([FILE], key=key)
    assert caught.value.evidence["key"] == key


def test_a_commit_is_sent_for_two_minutes_and_a_question_for_seconds() -> None:
    """The work behind a commit is done; who only asks finds out soon that the address is wrong."""
    waited: list[float] = []
    for ask in ("load", "append"):
        world = World()
        client = HeadgateClient(f"http://{HOST}:{find_free_port()}", world=world.as_time())
        table = client.table("a.t")
        with pytest.raises(StorageFailed):
            table.load() if ask == "load" else table.append([FILE], key=new_key())
        waited.append(world.now_s)
    assert 5 < waited[0] < 15
    assert 100 < waited[1] <= 120


@pytest.mark.parametrize("status", [429, 503])
def test_a_wait_that_the_service_asks_for_is_kept(status: int) -> None:
    busy = Told(status, error(status, "overloaded", "later").body, {"Retry-After": "7"})
    with client_of(busy, LANDED) as (client, _, world):
        client.table("a.t").append([FILE])
    assert len(world.waits_s) == 1
    assert 7 <= world.waits_s[0] <= 7.1


def test_a_wait_beyond_the_bound_is_not_begun() -> None:
    busy = Told(429, error(429, "overloaded", "later").body, {"Retry-After": "3600"})
    with client_of(busy) as (client, _, world), pytest.raises(Overloaded) as caught:
        client.table("a.t").append([FILE])
    assert world.waits_s == []
    assert caught.value.retry_after_s == 3600


def test_waits_grow_and_stay_within_the_total() -> None:
    policy = BackoffPolicy(retries_max=50, wait_min_ms=100, wait_max_ms=2_000, total_max_ms=10_000)
    with client_of(Told(500), retry=policy) as (client, _, world), pytest.raises(CommitUnknown):
        client.table("a.t").append([FILE])
    assert world.waits_s[:3] == [0.05, 0.1, 0.2]
    assert sum(world.waits_s) <= 10


def test_a_connection_that_was_kept_too_long_costs_no_wait() -> None:
    with client_of(LANDED, LOST, LANDED) as (client, script, world):
        client.table("a.t").append([FILE])
        client.table("a.t").append([FILE])
    assert len(script.heard) == 3
    assert world.waits_s == [0.0]


def test_a_lost_race_of_a_blind_append_is_run_again_under_a_new_key() -> None:
    lost_race = error(409, "commit-refused", "refresh")
    table = Told(200, {"metadata-location": "m", "metadata": {"table-uuid": "u"}})
    with client_of(lost_race, table, LANDED) as (client, script, _):
        client.table("a.t").append([FILE])
    assert [one.method for one in script.heard] == ["POST", "GET", "POST"]
    first, _, second = script.keys()
    assert first != second


def test_a_table_that_was_replaced_meanwhile_gets_nothing() -> None:
    def table(uuid: str) -> Told:
        return Told(200, {"metadata-location": "m", "metadata": {"table-uuid": uuid}})

    lost_race = error(409, "commit-refused", "refresh")
    with client_of(table("old"), lost_race, table("new"), LANDED) as (client, script, _):
        handle = client.table("a.t")
        handle.load()
        with pytest.raises(CommitRefused, match="another table"):
            handle.append([FILE])
    assert len(script.heard) == 3


@pytest.mark.parametrize("options", [{"base_snapshot_id": 5}, {"key": new_key()}])
def test_a_change_with_a_base_or_key_of_its_own_is_not_run_again(options: dict[str, Any]) -> None:
    lost_race = error(409, "commit-refused", "refresh")
    with client_of(lost_race) as (client, script, _), pytest.raises(CommitRefused):
        client.table("a.t").overwrite(add=[FILE], remove=["old"], isolation="snapshot", **options)
    assert len(script.heard) == 1


REFUSALS: list[tuple[Told, type[HeadgateError]]] = [
    (error(400, "bad-input", "never", field="updates[0].branch"), BadInput),
    (error(400, "too-large", "never"), TooLarge),
    (error(413, "body-too-large", "never"), TooLarge),
    (error(403, "forbidden", "never"), Forbidden),
    (error(401, "unauthenticated", "never"), Unauthenticated),
    (error(404, "not-found", "never", type="NoSuchTableException"), NotFound),
    (error(409, "diverged", "never", conflict={"rule": "unknown-history"}), Diverged),
    (Told(404, {"not": "ours"}), NotFound),
    (Told(301), BadInput),
]


@pytest.mark.parametrize(("told", "kind"), REFUSALS)
def test_a_refusal_is_raised_at_once_as_the_error_it_is(told: Told, kind: type[HeadgateError]) -> None:
    with client_of(told) as (client, script, _), pytest.raises(HeadgateError) as caught:
        client.table("a.t").append([FILE])
    assert type(caught.value) is kind
    assert len(script.heard) == 1


def test_a_refusal_keeps_its_field_kind_and_evidence() -> None:
    conflict = {
        "rule": "added-data-files",
        "theirs": {"snapshot-id": 5},
        "files": ["f"],
        "next": "read again",
    }
    cases = [
        error(400, "bad-input", "never", field="updates[0].branch", rule="malformed-operation"),
        error(404, "not-found", "never", type="NoSuchTableException"),
        error(409, "conflict-found", "never", conflict=conflict),
    ]
    found: list[Any] = []
    for told in cases:
        with client_of(told) as (client, _, _), pytest.raises(HeadgateError) as caught:
            client.table("a.t").append([FILE])
        found.append(caught.value)
    bad, missing, refused = found
    assert (bad.field, bad.evidence) == ("updates[0].branch", {"rule": "malformed-operation"})
    assert missing.kind == "table"
    assert refused.evidence == conflict


def test_tokens_are_fetched_once_and_again_when_they_end_or_are_refused() -> None:
    granted = Told(200, {"access_token": "one", "expires_in": 100})
    again = Told(200, {"access_token": "two", "expires_in": 100})
    third = Told(200, {"access_token": "three"})
    refused = error(401, "unauthenticated", "never")
    answers = (granted, LANDED, LANDED, again, LANDED, refused, third, LANDED)
    with client_of(*answers, credential=("i:d", "s/t")) as (client, script, world):
        table = client.table("a.t")
        table.append([FILE])
        table.append([FILE])
        world.now_s += 80  # within the margin before its end
        table.append([FILE])
        table.append([FILE])
    asked = [one for one in script.heard if one.path == "/v1/oauth/tokens"]
    assert len(asked) == 3
    bearers = [one.header("authorization") for one in script.heard if one not in asked]
    assert bearers == ["Bearer one", "Bearer one", "Bearer two", "Bearer two", "Bearer three"]


def test_wrong_credentials_are_reported_and_not_tried_again() -> None:
    denied = Told(401, {"error": "invalid_client", "error_description": "unknown"})
    with (
        client_of(denied, credential=("id", "wrong")) as (client, script, _),
        pytest.raises(Unauthenticated, match="invalid_client"),
    ):
        client.table("a.t").append([FILE])
    assert len(script.heard) == 1


def test_a_read_that_fails_leaves_nothing_in_doubt() -> None:
    with client_of(Told(500)) as (client, _, _), pytest.raises(StorageFailed):
        client.table("a.t").load()


@pytest.mark.parametrize(
    "uri", ["ftp://x", "localhost:8181", "http://", "http://user:secret@host", "http://host/?a=b"]
)
def test_an_address_that_cannot_be_meant_is_refused(uri: str) -> None:
    with pytest.raises(BadInput) as caught:
        HeadgateClient(uri)
    assert caught.value.field == "uri"


@pytest.mark.parametrize("name", ["t", "", "a..t", ".t", ["t"], ["a", ""]])
def test_a_name_without_namespace_is_refused(name: Any) -> None:
    with pytest.raises(BadInput):
        HeadgateClient("http://127.0.0.1:1").table(name)


def test_levels_and_names_are_escaped_in_the_path() -> None:
    with client_of(LANDED) as (client, script, _):
        client.table("a.b.t").append([FILE])
        client.table(["x/y", "t.1 %"]).append([FILE])
    paths = [one.path for one in script.heard]
    assert paths == ["/v1/namespaces/a%1Fb/tables/t", "/v1/namespaces/x%2Fy/tables/t.1%20%25"]
