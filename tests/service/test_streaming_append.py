"""Streamed appends: files acknowledged durably, committed together within the table's linger, each of them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from headgate.core.own_properties import STREAM_LINGER_MS
from headgate.service import jobs
from headgate.service.tokens import hash_secret, new_secret
from headgate.store.base import Principal
from headgate.store.memory import MemoryStore
from tests.service.app_client import AppClient, app_client, bearer
from tests.service.change_calls import change, live_paths
from tests.service.job_calls import (
    COMMITS,
    World,
    accepted,
    file_of,
    opener_of,
    pending,
    run,
    stream,
    verdict,
    with_table,
)
from tests.service.table_calls import (
    KEY,
    OTHER_KEY,
    commit,
    committed,
    create,
    created,
    error_of,
    field_of,
    load,
    path,
    picture_of,
    set_properties,
)

STORES = ("memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
LINGER_S = 1.0


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    open_one = opener_of(request.param, tmp_path, lambda: str(request.getfixturevalue("postgres_fresh_url")))
    with World(tmp_path, open_one) as made:
        yield made


@pytest.fixture
def client(world: World) -> AppClient:
    return with_table(world.service())


def run_after_linger(client: AppClient) -> int:
    client.clock.pass_s(LINGER_S)
    return run(client)


def due_at_ms(client: AppClient, id_: str) -> int:
    found: int = verdict(client, id_)["due-at-ms"]
    return found


# --- acknowledged, and committed within the linger -------------------------------------------------------


def test_files_are_acknowledged_at_once_and_committed_when_the_linger_is_over(client: AppClient) -> None:
    answer = stream(client, file_of(client, "a.parquet"), file_of(client, "b.parquet"))
    id_ = accepted(answer)
    body = answer.json()
    within_ms = body.pop("commit-within-ms")
    assert body == {"id": id_, "status": "acknowledged"}
    assert 0 < within_ms <= LINGER_S * 1000
    assert due_at_ms(client, id_) == client.clock() + within_ms
    client.clock.pass_s((within_ms - 1) / 1000)
    assert (run(client), verdict(client, id_)["status"]) == (0, "pending")
    client.clock.pass_s(0.001)
    assert (run(client), verdict(client, id_)["status"]) == (1, "committed")
    assert (live_paths(client, "t"), pending(client)) == (["a.parquet", "b.parquet"], 0)
    assert verdict(client, id_)["snapshot-id"] == load(client)["metadata"]["current-snapshot-id"]


def test_whoever_comes_within_one_linger_is_committed_at_the_same_time(client: AppClient) -> None:
    ids = [accepted(stream(client, file_of(client, "0.parquet")))]
    end_ms = due_at_ms(client, ids[0])
    while client.clock() + 200 < end_ms:
        client.clock.pass_s(0.2)
        ids.append(accepted(stream(client, file_of(client, f"{len(ids)}.parquet"))))
    assert {due_at_ms(client, id_) for id_ in ids} == {end_ms}
    client.clock.now_ms = end_ms
    late = accepted(stream(client, file_of(client, "late.parquet")))
    assert due_at_ms(client, late) == end_ms + LINGER_S * 1000
    assert run(client) == len(ids)
    assert live_paths(client, "t") == [f"{i}.parquet" for i in range(len(ids))]


def test_files_that_are_committed_at_the_same_time_share_a_snapshot(client: AppClient) -> None:
    first = accepted(stream(client, file_of(client, "0.parquet")))
    client.clock.now_ms = due_at_ms(client, first)  # a linger has just begun
    ids = [first, *(accepted(stream(client, file_of(client, f"{i}.parquet"))) for i in range(1, 5))]
    assert run_after_linger(client) == 5
    snapshots = load(client)["metadata"]["snapshots"]
    assert [one["summary"]["added-data-files"] for one in snapshots] == ["5"]
    assert [verdict(client, id_)["snapshot-ids"] for id_ in ids] == [[snapshots[0]["snapshot-id"]]] * 5


@pytest.mark.parametrize(
    ("property_", "setting", "linger_ms"),
    [
        (None, 250, 250),
        ("100", 250, 100),
        ("0", 250, 0),
        (None, 0, 0),
        ("999999", 250, 60_000),
        ("999999999999", 250, 60_000),
    ],
)
def test_the_table_says_how_long_files_linger_else_the_setting(
    property_: str | None, setting: int, linger_ms: int, tmp_path: Path
) -> None:
    with app_client(tmp_path, stream_linger_ms=setting) as client:
        with_table(client)
        if property_ is not None:
            update = {"action": "set-properties", "updates": {STREAM_LINGER_MS: property_}}
            assert commit(client, update).status_code == 200
        waits: list[int] = []
        for i in range(20):
            client.clock.pass_s(linger_ms * 0.37 / 1000)
            waits.append(stream(client, file_of(client, f"{i}.parquet")).json()["commit-within-ms"])
        assert max(waits) <= linger_ms
        assert linger_ms == 0 or (min(waits) > 0 and max(waits) > linger_ms / 2)


def test_a_branch_and_a_summary_are_those_of_the_request(client: AppClient) -> None:
    made = change("append", add_data_files=[file_of(client, "x.parquet")], branch="b", create_branch=True)
    assert commit(client, made).status_code == 200
    id_ = accepted(stream(client, file_of(client, "a.parquet"), branch="b", summary={"job": "7"}))
    assert run_after_linger(client) == 1
    metadata = load(client)["metadata"]
    newest = metadata["snapshots"][-1]
    assert (newest["summary"]["operation"], newest["summary"]["job"]) == ("append", "7")
    assert metadata["refs"]["b"]["snapshot-id"] == verdict(client, id_)["snapshot-id"]
    assert "main" not in metadata["refs"]


def test_a_started_service_commits_streamed_files_by_itself(world: World) -> None:
    client = with_table(world.service(stream_linger_ms=0))
    jobs.start(client.services)
    with ThreadPoolExecutor(8) as threads:
        files = [file_of(client, f"{i:02}.parquet") for i in range(30)]
        ids = [accepted(answer) for answer in threads.map(lambda file: stream(client, file), files)]
    for id_ in ids:
        assert verdict(client, id_, params={"wait": "30"})["status"] == "committed"
    assert live_paths(client, "t") == [f"{i:02}.parquet" for i in range(30)]


def test_the_next_life_of_a_service_commits_what_the_last_one_acknowledged(world: World) -> None:
    first = with_table(world.service())
    id_ = accepted(stream(first, file_of(first, "a.parquet")))
    second = world.service()
    second.clock.now_ms = first.clock()
    assert run_after_linger(second) == 1
    assert (verdict(second, id_)["status"], live_paths(second, "t")) == ("committed", ["a.parquet"])


# --- the key ---------------------------------------------------------------------------------------------


def test_a_repeat_is_the_same_job_and_afterwards_its_verdict(client: AppClient) -> None:
    file = file_of(client, "a.parquet")
    for _ in range(2):
        assert accepted(stream(client, file, key=KEY)) == KEY
    assert (pending(client), run_after_linger(client)) == (1, 1)
    again = stream(client, file, key=KEY)
    assert again.status_code == 200
    id_ = load(client)["metadata"]["current-snapshot-id"]
    assert (again.json()["id"], again.json()["status"]) == (KEY, "committed")
    assert again.json()["snapshot-ids"] == [id_]
    assert again.headers["location"] == f"{COMMITS}/{KEY}"
    assert (pending(client), len(load(client)["metadata"]["snapshots"])) == (0, 1)


def test_another_request_under_the_key_is_refused(client: AppClient) -> None:
    accepted(stream(client, file_of(client, "a.parquet"), key=KEY))
    answer = stream(client, file_of(client, "b.parquet"), key=KEY)
    assert (answer.status_code, field_of(answer)) == (400, "Idempotency-Key")
    assert run_after_linger(client) == 1
    assert live_paths(client, "t") == ["a.parquet"]


# --- what is refused at once -----------------------------------------------------------------------------

BAD: dict[str, tuple[Callable[[AppClient], httpx.Response], int, str]] = {
    "no files": (stream, 400, "files"),
    "no list": (lambda client: client.post(f"{path()}/append", {"files": 1}), 400, "files"),
    "a field that is not ours": (
        lambda client: stream(client, file_of(client, "a"), commit_validations=[]),
        400,
        "",  # of the whole body; the message names it
    ),
    "a partition too many": (
        lambda client: stream(client, file_of(client, "b"), file_of(client, "a", partition=[1])),
        400,
        "files[1].partition",
    ),
    "deletes": (
        lambda client: stream(client, file_of(client, "a", content="position-deletes")),
        400,
        "files[0].content",
    ),
    "a file twice": (
        lambda client: stream(client, file_of(client, "a"), file_of(client, "a")),
        400,
        "files[1].file-path",
    ),
    "a file elsewhere": (
        lambda client: stream(client, {**file_of(client, "a"), "file-path": "file:///etc/passwd"}),
        400,
        "files[0].file-path",
    ),
    "a count in the summary": (
        lambda client: stream(client, file_of(client, "a"), summary={"total-records": "1"}),
        400,
        "summary",
    ),
    "no such branch": (lambda client: stream(client, file_of(client, "a"), branch="b"), 404, "branch"),
    "no such table": (lambda client: stream(client, file_of(client, "a"), table="none"), 404, ""),
    "no name of a table": (lambda client: stream(client, file_of(client, "a"), table="x\x1fy"), 404, ""),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_before_they_are_acknowledged(name: str, tmp_path: Path) -> None:
    send, status, field = BAD[name]
    with app_client(tmp_path) as client:
        with_table(client)
        before = picture_of(client.services.store)
        answer = send(client)
        assert (answer.status_code, field_of(answer)) == (status, field), answer.text
        assert (pending(client), picture_of(client.services.store)) == (0, before)


def test_a_full_queue_refuses_files_for_now(world: World) -> None:
    client = with_table(world.service(jobs_max=1))
    accepted(stream(client, file_of(client, "a.parquet")))
    answer = stream(client, file_of(client, "b.parquet"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert run_after_linger(client) == 1
    accepted(stream(client, file_of(client, "b.parquet")))


def test_a_writer_needs_the_role_insert_and_no_more(tmp_path: Path) -> None:
    store, secret = MemoryStore(), new_secret()
    store.put_principal(Principal("admin", hash_secret(secret), "admin", 0))
    headers = {"Authorization": f"Bearer admin:{secret}"}
    with app_client(tmp_path, store=store, auth="on", headers=headers) as client:
        with_table(client)
        for role, status in (("read", 403), ("insert", 202)):
            mine = bearer(client.token(role, client.add_principal(role, role)))
            assert stream(client, file_of(client, f"{role}.parquet"), headers=mine).status_code == status
        assert run_after_linger(client) == 1
        assert live_paths(client, "t") == ["insert.parquet"]


# --- what is refused when it is committed ----------------------------------------------------------------


def test_a_file_that_is_live_by_then_is_refused_and_the_others_are_not(client: AppClient) -> None:
    twice, once = (accepted(stream(client, file_of(client, name))) for name in ("a.parquet", "b.parquet"))
    committed(client, change("append", add_data_files=[file_of(client, "a.parquet")]))
    assert run_after_linger(client) == 2
    told = verdict(client, twice)
    assert (told["status"], verdict(client, once)["status"]) == ("refused", "committed")
    assert "a.parquet" in told["error"]["message"] + str(told["error"].get("conflict"))
    assert live_paths(client, "t") == ["a.parquet", "b.parquet"]


def test_one_file_streamed_under_two_keys_is_added_once(client: AppClient) -> None:
    for key in (KEY, OTHER_KEY):
        accepted(stream(client, file_of(client, "a.parquet"), key=key))
    assert run_after_linger(client) == 2
    assert sorted(verdict(client, key)["status"] for key in (KEY, OTHER_KEY)) == ["committed", "refused"]
    assert live_paths(client, "t") == ["a.parquet"]


def test_files_follow_their_table_to_its_new_name(client: AppClient) -> None:
    id_ = accepted(stream(client, file_of(client, "a.parquet")))
    ends = {
        name: {"namespace": ["a"], "name": table} for name, table in (("source", "t"), ("destination", "u"))
    }
    assert client.post("/v1/tables/rename", ends).status_code == 204
    created(client, "t")
    assert run_after_linger(client) == 1
    assert verdict(client, id_)["table"]["name"] == "u"
    assert (live_paths(client, "u"), live_paths(client, "t")) == (["a.parquet"], [])


def test_a_table_made_anew_at_the_same_place_gets_no_files_of_the_old_one(client: AppClient) -> None:
    place = load(client)["metadata"]["location"]
    id_ = accepted(stream(client, file_of(client, "a.parquet")))
    assert client.delete(path()).status_code == 204
    assert create(client, location=place).status_code == 200
    assert run_after_linger(client) == 1
    told = verdict(client, id_)
    assert (told["status"], told["error"]["type"]) == ("refused", "NoSuchTableException")
    assert (live_paths(client, "t"), pending(client)) == ([], 0)


def test_a_spec_that_is_gone_by_then_is_named_as_the_request_names_it(client: AppClient) -> None:
    added = {"spec": {"fields": [{"source-id": 1, "field-id": 1000, "name": "id", "transform": "identity"}]}}
    committed(client, {"action": "add-spec", **added})
    id_ = accepted(stream(client, file_of(client, "a.parquet", spec_id=1, partition=[1])))
    committed(client, {"action": "remove-partition-specs", "spec-ids": [1]})
    assert run_after_linger(client) == 1
    assert verdict(client, id_)["error"]["headgate"]["field"] == "files[0].spec-id"


def test_a_refusal_at_once_names_the_field_for_programs_too(client: AppClient) -> None:
    answer = stream(client, file_of(client, "a.parquet", record_count=-1))
    assert error_of(answer)["headgate"]["field"] == "files[0].record-count"
    assert commit(client, set_properties(x="1")).status_code == 200  # the table is none the worse
