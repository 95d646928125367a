"""Asynchronous commits: acknowledged durably, carried out once, their verdicts told to their owner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.errors import CommitUnknown, HeadgateError, Overloaded, StorageFailed
from headgate.service import jobs
from headgate.service.job_queue import Try
from headgate.service.tokens import hash_secret, new_secret
from headgate.store.base import Operation, Principal, Refused, SwapEntry
from headgate.store.memory import MemoryStore
from tests.service.app_client import AppClient, app_client, bearer
from tests.service.change_calls import NOTHING_ADDED, change, live_paths, table_change
from tests.service.job_calls import (
    ASYNC,
    COMMITS,
    World,
    accepted,
    append,
    commit_later,
    file_of,
    opener_of,
    pending,
    run,
    transact_later,
    verdict,
    with_table,
)
from tests.service.table_calls import (
    KEY,
    OTHER_KEY,
    commit,
    committed,
    created,
    error_of,
    field_of,
    load,
    path,
    picture_of,
    set_properties,
)

STORES = ("memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
HOUR_S = 3600.0


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    open_one = opener_of(request.param, tmp_path, lambda: str(request.getfixturevalue("postgres_fresh_url")))
    with World(tmp_path, open_one) as made:
        yield made


@pytest.fixture
def client(world: World) -> AppClient:
    return with_table(world.service())


def snapshots(client: AppClient, name: str = "t") -> int:
    return len(load(client, name)["metadata"]["snapshots"])


# --- to acknowledge --------------------------------------------------------------------------------------


def test_a_commit_is_acknowledged_first_and_carried_out_afterwards(client: AppClient) -> None:
    answer = commit_later(client, append(client, "a.parquet"))
    id_ = accepted(answer)
    assert answer.headers["preference-applied"] == "respond-async"
    assert answer.json() == {"id": id_, "status": "pending"}
    assert (snapshots(client), pending(client)) == (0, 1)
    told = verdict(client, id_)
    assert told == {
        "key": id_,
        "status": "pending",
        "created-at-ms": client.clock(),
        "due-at-ms": client.clock(),
    }
    assert run(client) == 1
    metadata = load(client)["metadata"]
    told = verdict(client, id_)
    assert (told["status"], told["snapshot-ids"]) == ("committed", [metadata["current-snapshot-id"]])
    assert told["metadata-location"] == load(client)["metadata-location"]
    assert (live_paths(client, "t"), pending(client), run(client)) == (["a.parquet"], 0, 0)


def test_two_requests_without_a_key_are_two_jobs(client: AppClient) -> None:
    ids = {accepted(commit_later(client, append(client, name))) for name in ("a.parquet", "b.parquet")}
    assert len(ids) == 2
    assert run(client) == 2
    assert live_paths(client, "t") == ["a.parquet", "b.parquet"]


def test_a_transaction_is_carried_out_as_a_whole(world: World) -> None:
    client = with_table(world.service(), "t", "u")
    changes = [table_change(name, append(client, "x.parquet", name)) for name in ("t", "u")]
    id_ = accepted(transact_later(client, *changes))
    assert run(client) == 1
    told = verdict(client, id_)
    assert (told["status"], [table["table"]["name"] for table in told["tables"]]) == ("committed", ["t", "u"])
    assert live_paths(client, "t") == live_paths(client, "u") == ["x.parquet"]


def test_plain_updates_and_the_creation_of_a_table_may_wait_too(client: AppClient) -> None:
    first = accepted(commit_later(client, set_properties(owner="me")))
    staged = created(client, "new", stage_create=True)["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "set-location", "location": staged["location"]},
        {"action": "add-schema", "schema": staged["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]
    body = {"requirements": [{"type": "assert-create"}], "updates": updates}
    second = accepted(client.post(path("new"), body, headers=ASYNC))
    assert run(client) == 2
    assert [verdict(client, id_)["status"] for id_ in (first, second)] == ["committed"] * 2
    assert load(client)["metadata"]["properties"]["owner"] == "me"
    assert load(client, "new")["metadata"]["table-uuid"] == staged["table-uuid"]


def test_a_commit_that_changes_nothing_gets_its_verdict_too(client: AppClient) -> None:
    id_ = accepted(commit_later(client))
    assert run(client) == 1
    assert (verdict(client, id_)["status"], pending(client)) == ("committed", 0)


# --- the key ---------------------------------------------------------------------------------------------


def test_the_key_is_the_id_and_the_same_request_again_is_the_same_job(client: AppClient) -> None:
    update = append(client, "a.parquet")
    for _ in range(3):
        assert accepted(commit_later(client, update, key=KEY)) == KEY
    assert (pending(client), run(client)) == (1, 1)
    again = commit_later(client, update, key=KEY)
    assert (again.status_code, again.json()["metadata"]) == (200, load(client)["metadata"])
    assert (snapshots(client), pending(client)) == (1, 0)


def test_a_key_of_a_pending_job_is_refused_for_another_request(client: AppClient) -> None:
    accepted(commit_later(client, append(client, "a.parquet"), key=KEY))
    answer = commit_later(client, append(client, "b.parquet"), key=KEY)
    assert (answer.status_code, field_of(answer)) == (400, "Idempotency-Key")
    # The refusal is the other request's: it is no verdict of the job.
    assert (run(client), verdict(client, KEY)["status"]) == (1, "committed")
    assert live_paths(client, "t") == ["a.parquet"]


def test_a_job_is_carried_out_although_its_key_was_used_for_another_request(client: AppClient) -> None:
    """Not by the rules; but what was acknowledged is not lost, and lands once."""
    accepted(commit_later(client, append(client, "a.parquet"), key=KEY))
    commit(client, append(client, "b.parquet"), key=KEY)
    job = client.services.store.load_job("anonymous", KEY)
    assert job is not None
    assert run(client) == 1
    assert pending(client) == 0
    # Once more, as after a crash that came before the job was dropped.
    assert jobs.carry_out(client.services, [Try(job, 2)]) == [True]
    assert live_paths(client, "t") == ["a.parquet", "b.parquet"]


def test_a_job_is_carried_out_although_a_bad_request_was_refused_under_its_key(client: AppClient) -> None:
    accepted(commit_later(client, append(client, "a.parquet"), key=KEY))
    headers = {"Idempotency-Key": KEY}
    answer = client.post(path(), {"requirements": [], "updates": "?"}, headers=headers)
    assert answer.status_code == 400
    assert (run(client), pending(client)) == (1, 0)
    assert live_paths(client, "t") == ["a.parquet"]


def test_one_key_sent_many_times_at_once_is_one_job(client: AppClient) -> None:
    update = append(client, "a.parquet")
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: commit_later(client, update, key=KEY), range(8)))
    assert {accepted(answer) for answer in answers} == {KEY}
    assert pending(client) == 1


def test_the_same_request_without_the_preference_gets_the_verdict_and_leaves_nothing_to_do(
    client: AppClient,
) -> None:
    update = append(client, "a.parquet")
    accepted(commit_later(client, update, key=KEY))
    assert commit(client, update, key=KEY).status_code == 200
    assert verdict(client, KEY)["status"] == "committed"
    assert (run(client), pending(client), snapshots(client)) == (1, 0, 1)


def test_a_verdict_lives_as_long_as_others_however_long_its_job_had_to_wait(client: AppClient) -> None:
    id_ = accepted(commit_later(client, append(client, "a.parquet")))
    client.clock.pass_s(48 * HOUR_S)
    store = client.services.store
    store.expire_keys(before_ms=client.clock() - 1000, limit=100)
    assert run(client) == 1
    store.expire_keys(before_ms=client.clock() - 1000, limit=100)
    assert verdict(client, id_)["status"] == "committed"
    client.clock.pass_s(2)
    store.expire_keys(before_ms=client.clock() - 1000, limit=100)
    assert client.get(f"{COMMITS}/{id_}").status_code == 404


# --- what is refused before it is acknowledged -----------------------------------------------------------


def in_fields(name: str, **fields: Any) -> Callable[[AppClient], httpx.Response]:
    return lambda client: commit_later(
        client, {"action": "append", "add-data-files": [file_of(client, name, **fields)]}
    )


BAD: dict[str, tuple[Callable[[AppClient], httpx.Response], int, str]] = {
    "no JSON of ours": (
        lambda client: client.post(path(), {"requirements": [], "updates": [{"action": "?"}]}, headers=ASYNC),
        400,
        "updates[0].action",
    ),
    "no such table": (
        lambda client: client.post(path("none"), {"requirements": [], "updates": []}, headers=ASYNC),
        404,
        "",
    ),
    "no name of a table": (
        lambda client: client.post(path("x\x1fy"), {"requirements": [], "updates": []}, headers=ASYNC),
        404,
        "",
    ),
    "another table in the body": (
        lambda client: commit_later(client, identifier={"namespace": ["a"], "name": "u"}),
        400,
        "identifier",
    ),
    "a partition too many": (in_fields("a", partition=[1]), 400, "updates[0].add-data-files[0].partition"),
    "no such spec": (in_fields("a", spec_id=7), 400, "updates[0].add-data-files[0].spec-id"),
    "another table's file": (
        lambda client: commit_later(
            client,
            {
                "action": "append",
                "add-data-files": [
                    {**file_of(client, "a"), "file-path": load(client)["metadata"]["location"] + "x/a"}
                ],
            },
        ),
        400,
        "updates[0].add-data-files[0].file-path",
    ),
    "no such branch": (
        lambda client: commit_later(client, append(client, "a", branch="b")),
        404,
        "updates[0].branch",
    ),
    "a requirement that fails": (
        lambda client: commit_later(client, requirements=[{"type": "assert-table-uuid", "uuid": KEY}]),
        409,
        "",
    ),
    "a plain update that does not apply": (
        lambda client: commit_later(client, {"action": "set-current-schema", "schema-id": 9}),
        400,
        "updates.schema-id",
    ),
    "a location outside": (
        lambda client: commit_later(client, {"action": "set-location", "location": "file:///etc"}),
        400,
        "updates.location",
    ),
    "too many changes": (
        lambda client: commit_later(client, *[append(client, f"{i}") for i in range(101)]),
        400,
        "updates",
    ),
    "a read set of a column that is not there": (
        lambda client: commit_later(
            client,
            commit_validations=[
                {"type": "not-allowed-added-data-files", "filter": {"type": "eq", "term": "x", "value": 1}}
            ],
        ),
        400,
        "commit-validations[0].filter",
    ),
    "a transaction of nothing": (transact_later, 400, "table-changes"),
    "a transaction with one bad table": (
        lambda client: transact_later(
            client, table_change("t", append(client, "a")), table_change("none", append(client, "b"))
        ),
        404,
        "",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_would_be_refused_now_is_refused_now(name: str, tmp_path: Path) -> None:
    send, status, field = BAD[name]
    with app_client(tmp_path) as client:
        with_table(client)
        before = picture_of(client.services.store)
        answer = send(client)
        assert (answer.status_code, field_of(answer)) == (status, field), answer.text
        assert (pending(client), picture_of(client.services.store)) == (0, before)


def test_a_refusal_before_the_acknowledgement_is_the_verdict_of_its_key(client: AppClient) -> None:
    update = change("append", add_data_files=[file_of(client, "a.parquet", spec_id=7)])
    first = commit_later(client, update, key=KEY)
    assert first.status_code == 400
    assert commit_later(client, update, key=KEY).content == first.content
    assert verdict(client, KEY)["error"] == error_of(first)


def test_a_full_queue_refuses_for_now_and_takes_in_again_when_it_is_shorter(world: World) -> None:
    client = with_table(world.service(jobs_max=2))
    for name in ("a.parquet", "b.parquet"):
        accepted(commit_later(client, append(client, name)))
    answer = commit_later(client, append(client, "c.parquet"), key=KEY)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert error_of(answer)["headgate"]["code"] == "queue-full"
    assert (pending(client), run(client)) == (2, 2)
    accepted(commit_later(client, append(client, "c.parquet"), key=KEY))


# --- who may ---------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[AppClient]:
    """A service that asks for tokens; `admin` made its table."""
    store, secret = MemoryStore(), new_secret()
    store.put_principal(Principal("admin", hash_secret(secret), "admin", 0))
    headers = {"Authorization": f"Bearer admin:{secret}"}
    with app_client(tmp_path, store=store, auth="on", headers=headers) as client:
        yield with_table(client)


def sign_in(client: AppClient, name: str, role: str) -> dict[str, str]:
    return bearer(client.token(name, client.add_principal(name, role)))


@pytest.mark.parametrize(
    ("role", "action", "status"),
    [
        ("read", "append", 403),
        ("insert", "append", 202),
        ("insert", "delete", 403),
        ("modify", "delete", 202),
        ("modify", "properties", 403),
        ("admin", "properties", 202),
    ],
)
def test_a_role_is_asked_for_before_the_acknowledgement(
    guarded: AppClient, role: str, action: str, status: int
) -> None:
    updates = {
        "append": append(guarded, "a.parquet"),
        "delete": {"action": "delete", "delete-row-filter": True},
        "properties": set_properties(x="1"),
    }
    headers = sign_in(guarded, "someone", role)
    answer = commit_later(guarded, updates[action], headers=headers)
    assert (answer.status_code, pending(guarded)) == (status, int(status == 202))


def test_a_job_is_told_to_its_owner_only_pending_and_done(guarded: AppClient) -> None:
    ann, bob = (sign_in(guarded, name, "insert") for name in ("ann", "bob"))
    id_ = accepted(commit_later(guarded, append(guarded, "a.parquet"), headers=ann))
    for status in ("pending", "committed"):
        assert verdict(guarded, id_, headers=ann)["status"] == status
        assert guarded.get(f"{COMMITS}/{id_}", headers=bob).status_code == 404
        run(guarded)


def test_one_key_of_two_principals_is_two_jobs(guarded: AppClient) -> None:
    for name in ("ann", "bob"):
        headers = sign_in(guarded, name, "insert")
        accepted(commit_later(guarded, append(guarded, f"{name}.parquet"), key=KEY, headers=headers))
    assert run(guarded) == 2
    assert live_paths(guarded, "t") == ["ann.parquet", "bob.parquet"]


def test_a_principal_that_is_gone_or_lost_its_role_has_its_jobs_refused(guarded: AppClient) -> None:
    ann, bob = (sign_in(guarded, name, "modify") for name in ("ann", "bob"))
    accepted(commit_later(guarded, append(guarded, "a.parquet"), key=KEY, headers=ann))
    accepted(commit_later(guarded, append(guarded, "b.parquet"), key=OTHER_KEY, headers=bob))
    guarded.services.store.drop_principal("ann")
    guarded.add_principal("bob", "read")
    assert run(guarded) == 2
    for name, key in (("ann", KEY), ("bob", OTHER_KEY)):
        record = guarded.services.store.load_key(name, key)
        assert record is not None
        assert record.status == 403
    assert verdict(guarded, OTHER_KEY, headers=bob)["error"]["type"] == "ForbiddenException"
    assert (snapshots(guarded), pending(guarded)) == (0, 0)


def test_a_role_that_grew_does_not_widen_an_acknowledged_request(guarded: AppClient) -> None:
    ann = sign_in(guarded, "ann", "insert")
    accepted(commit_later(guarded, append(guarded, "a.parquet"), key=KEY, headers=ann))
    job = guarded.services.store.load_job("ann", KEY)
    assert job is not None
    assert job.role == "insert"


# --- verdicts --------------------------------------------------------------------------------------------


def test_a_refusal_after_the_acknowledgement_is_told_with_its_evidence(client: AppClient) -> None:
    base = committed(client, append(client, "a.parquet"))["metadata"]["current-snapshot-id"]
    update = change(
        "overwrite",
        add_data_files=[file_of(client, "mine.parquet")],
        base_snapshot_id=base,
        commit_validations=[NOTHING_ADDED],
    )
    id_ = accepted(commit_later(client, update))
    theirs = commit(client, append(client, "theirs.parquet"), key=KEY).json()["metadata"]
    assert run(client) == 1
    told = verdict(client, id_)
    assert (told["status"], told["http-status"]) == ("refused", 409)
    conflict = told["error"]["conflict"]
    assert (conflict["rule"], conflict["theirs"]["key"]) == ("added-data-files", KEY)
    assert conflict["theirs"]["snapshot-id"] == theirs["current-snapshot-id"]
    assert (live_paths(client, "t"), pending(client)) == (["a.parquet", "theirs.parquet"], 0)


def test_a_table_that_was_dropped_meanwhile_refuses_the_job(client: AppClient) -> None:
    id_ = accepted(commit_later(client, append(client, "a.parquet")))
    assert client.delete(path()).status_code == 204
    assert run(client) == 1
    told = verdict(client, id_)
    assert (told["status"], told["error"]["type"]) == ("refused", "NoSuchTableException")
    assert pending(client) == 0


def test_a_transaction_that_is_refused_for_one_table_changes_none(world: World) -> None:
    client = with_table(world.service(), "t", "u")
    changes = [table_change(name, append(client, "x.parquet", name)) for name in ("t", "u")]
    id_ = accepted(transact_later(client, *changes))
    assert client.delete(path("u")).status_code == 204
    assert run(client) == 1
    assert (verdict(client, id_)["status"], snapshots(client)) == ("refused", 0)


@pytest.mark.parametrize("fate", ["committed", "refused"])
def test_who_waits_for_a_verdict_is_answered_when_it_is_there(fate: str, client: AppClient) -> None:
    id_ = accepted(commit_later(client, append(client, "a.parquet")))
    if fate == "refused":
        assert client.delete(path()).status_code == 204
    with ThreadPoolExecutor(2) as threads:
        waiting = [
            threads.submit(verdict, client, id_, params={"wait": "30"}),
            threads.submit(verdict, client, id_, headers={"Prefer": "wait=30"}),
        ]
        assert run(client) == 1
        assert [one.result()["status"] for one in waiting] == [fate, fate]


def test_who_will_not_wait_longer_is_told_that_it_is_pending(client: AppClient) -> None:
    id_ = accepted(commit_later(client, append(client, "a.parquet")))
    answer = client.get(f"{COMMITS}/{id_}", params={"wait": "1"})
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")
    assert answer.headers["retry-after"] == "1"
    for wrong in ("31", "-1", "x", "1.5"):
        answer = client.get(f"{COMMITS}/{id_}", params={"wait": wrong})
        assert (answer.status_code, field_of(answer)) == (400, "wait")


def test_what_became_of_jobs_is_counted(client: AppClient) -> None:
    accepted(commit_later(client, append(client, "a.parquet")))
    accepted(commit_later(client, append(client, "a.parquet")))  # live by then, whichever comes first
    assert run(client) == 2
    text = client.get("/metrics").text
    assert 'headgate_jobs_done_total{verdict="committed"} 1.0' in text
    assert 'headgate_jobs_done_total{verdict="refused"} 1.0' in text
    assert "headgate_jobs_pending" in text


# --- failures, restarts, replicas ------------------------------------------------------------------------


class Failing(MemoryStore):
    """Fails the next writes after the acknowledgement, one error each."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []
        self.lands = False

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        if self.errors:
            if self.lands:
                assert super().write(operations) is None
            raise self.errors.pop(0)
        return super().write(operations)


@pytest.mark.parametrize("error", [StorageFailed("down"), Overloaded("busy"), RuntimeError("a bug")])
def test_a_job_that_fails_for_now_is_kept_and_tried_again(error: Exception, tmp_path: Path) -> None:
    store = Failing()
    with app_client(tmp_path, store=store) as client:
        with_table(client)
        id_ = accepted(commit_later(client, append(client, "a.parquet")))
        store.errors = [error, error]
        for left in (1, 0):
            assert run(client) == 1
            assert (len(store.errors), verdict(client, id_)["status"]) == (left, "pending")
        assert run(client) == 1
        assert (verdict(client, id_)["status"], snapshots(client)) == ("committed", 1)


def test_a_commit_that_landed_unheard_is_not_made_twice(tmp_path: Path) -> None:
    store = Failing()
    with app_client(tmp_path, store=store) as client:
        with_table(client)
        id_ = accepted(commit_later(client, append(client, "a.parquet")))
        store.errors, store.lands = [CommitUnknown("no answer")], True
        assert run(client) == 1
        run(client)
        assert (verdict(client, id_)["status"], snapshots(client), pending(client)) == ("committed", 1, 0)


def test_the_next_life_of_a_service_carries_out_what_the_last_one_acknowledged(world: World) -> None:
    first = with_table(world.service())
    id_ = accepted(commit_later(first, append(first, "a.parquet")))
    second = world.service()
    assert run(second) == 1
    assert (verdict(second, id_)["status"], live_paths(second, "t")) == ("committed", ["a.parquet"])


def test_a_job_of_a_replica_that_died_is_taken_over_when_its_lease_is_over(world: World) -> None:
    client = with_table(world.service(job_lease_s=10))
    id_ = accepted(commit_later(client, append(client, "a.parquet")))
    store, clock = client.services.store, client.clock
    assert len(store.claim_jobs(owner="dead", now_ms=clock(), lease_ms=10_000, limit=9)) == 1
    clock.pass_s(9)
    assert (run(client), verdict(client, id_)["status"]) == (0, "pending")
    clock.pass_s(2)
    assert (run(client), verdict(client, id_)["status"]) == (1, "committed")


def test_a_job_that_two_replicas_carry_out_at_once_lands_once(world: World) -> None:
    first, second = with_table(world.service()), world.service()
    for round_ in range(5):
        id_ = accepted(commit_later(first, append(first, f"{round_}.parquet")))
        job = first.services.store.load_job("anonymous", id_)
        assert job is not None
        meet = threading.Barrier(2)

        def carry_out(client: AppClient, job: Any = job, meet: threading.Barrier = meet) -> list[bool]:
            meet.wait()
            return jobs.carry_out(client.services, [Try(job, 1)])

        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(carry_out, (first, second))) == [[True], [True]]
        assert verdict(second, id_)["status"] == "committed"
        assert (snapshots(first), pending(first)) == (round_ + 1, 0)
    assert live_paths(first, "t") == [f"{round_}.parquet" for round_ in range(5)]


def test_two_replicas_with_threads_share_many_jobs_and_lose_none(world: World) -> None:
    clients = [with_table(world.service(job_workers=2)), world.service(job_workers=2)]
    ids = [accepted(commit_later(clients[i % 2], append(clients[0], f"{i:02}.parquet"))) for i in range(24)]
    for client in clients:
        jobs.start(client.services)
    for id_ in ids:
        assert verdict(clients[0], id_, params={"wait": "30"})["status"] == "committed"
    assert live_paths(clients[0], "t") == [f"{i:02}.parquet" for i in range(24)]


def test_a_started_service_carries_out_a_new_job_by_itself(client: AppClient) -> None:
    jobs.start(client.services)
    for name in ("a.parquet", "b.parquet"):
        id_ = accepted(commit_later(client, append(client, name)))
        assert verdict(client, id_, params={"wait": "30"})["status"] == "committed"


def test_a_stopping_service_finishes_what_is_at_work_and_leaves_the_rest(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def write(self, operations: Sequence[Operation]) -> Refused | None:
            if any(isinstance(operation, SwapEntry) for operation in operations):
                begun.set()
                assert go_on.wait(30)
            return super().write(operations)

    store = Slow()
    with app_client(tmp_path, store=store, job_workers=1) as client:
        with_table(client)
        ids = [accepted(commit_later(client, append(client, f"{i}.parquet"))) for i in range(3)]
        jobs.start(client.services)
        assert begun.wait(30)
        with ThreadPoolExecutor(1) as threads:
            closing = threads.submit(client.services.jobs.close)
            go_on.set()
            closing.result(30)
        states = [verdict(client, id_)["status"] for id_ in ids]
        assert states.count("committed") == 3 - pending(client)
        assert states[0] == "committed"


def test_a_store_that_does_not_answer_for_a_while_stops_nobody(tmp_path: Path) -> None:
    class Away(MemoryStore):
        times = 3

        def claim_jobs(self, **named: Any) -> list[Any]:
            if self.times:
                self.times -= 1
                client.services.jobs.expect(0)
                raise error
            return super().claim_jobs(**named)

    error: HeadgateError = StorageFailed("away")
    with app_client(tmp_path, store=Away()) as client:
        with_table(client)
        id_ = accepted(commit_later(client, append(client, "a.parquet")))
        jobs.start(client.services)
        assert verdict(client, id_, params={"wait": "30"})["status"] == "committed"
