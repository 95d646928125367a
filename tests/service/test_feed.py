"""The change feed over HTTP: in order, nothing skipped, whoever committed; waiting for it; file-level changes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.store.base import EntryId
from headgate.store.sqlite import SqliteStore
from tests.format.manifest_files import SNAPSHOT_ID
from tests.service.app_client import AppClient, app_client, bearer
from tests.service.table_calls import (
    KEY,
    append,
    commit,
    committed,
    created,
    error_of,
    field_of,
    load,
    make_namespace,
    path,
    ref,
    set_properties,
    snapshot,
    write_data,
)

EVENTS = "/v1/events"
Wire = dict[str, Any]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    with app_client(tmp_path, store=SqliteStore(tmp_path / "catalog.db")) as found:
        make_namespace(found)
        yield found


def feed(client: AppClient, token: str | None = None, **fields: Any) -> Wire:
    """One page of the catalog's feed."""
    body = {"continuation-token": token, **{k.replace("_", "-"): v for k, v in fields.items()}}
    answer = client.post(EVENTS, body)
    assert answer.status_code == 200, answer.text
    found: Wire = answer.json()
    return found


def table_feed(client: AppClient, name: str = "t", **query: Any) -> Wire:
    """One page of a table's feed."""
    answer = client.get(f"{path(name)}/events", params={k.replace("_", "-"): v for k, v in query.items()})
    assert answer.status_code == 200, answer.text
    found: Wire = answer.json()
    return found


def types_of(page: Wire) -> list[str]:
    operations = [event["operation"] for event in page["events"]]
    return [operation.get("custom-type", operation["operation-type"]) for operation in operations]


def file(place: str, name: str, **fields: Any) -> Wire:
    return {
        "content": "data",
        "file-path": f"{place}/data/{name}",
        "file-format": "parquet",
        "spec-id": 0,
        "partition": [],
        "file-size-in-bytes": 100,
        "record-count": 10,
        **fields,
    }


def change(client: AppClient, action: str = "append", *, name: str = "t", **fields: Any) -> httpx.Response:
    """A fine-grained commit; `add` and `remove` are names of data files."""
    place = load(client, name)["metadata"]["location"]
    update = {
        "action": action,
        "add-data-files": [file(place, one) for one in fields.pop("add", ())],
        "remove-data-files": [f"{place}/data/{one}" for one in fields.pop("remove", ())],
    }
    options = {"headers": fields.pop("headers")} if "headers" in fields else {}
    update |= {k.replace("_", "-"): v for k, v in fields.items()}
    return client.post(path(name), {"requirements": [], "updates": [update]}, **options)


# --- the feed of the catalog -----------------------------------------------------------------------------


def test_a_fine_grained_commit_is_an_event_that_says_who_when_what_and_under_which_key(
    client: AppClient,
) -> None:
    made = created(client)
    answer = change(client, add=("a.parquet",), headers={"Idempotency-Key": KEY})
    assert answer.status_code == 200, answer.text
    metadata = answer.json()["metadata"]
    (added,) = metadata["snapshots"]
    event = feed(client)["events"][-1]
    assert event == {
        "event-id": event["event-id"],
        "request-id": KEY,
        "request-event-count": 1,
        "timestamp-ms": client.clock(),
        "actor": {"principal": "anonymous"},
        "key": KEY,
        "operation": {
            "operation-type": "update-table",
            "identifier": {"namespace": ["a"], "name": "t"},
            "table-uuid": made["metadata"]["table-uuid"],
            "metadata-location": answer.json()["metadata-location"],
            "snapshot-id": added["snapshot-id"],
            "action": "append",
            "added-snapshots": [{"snapshot-id": added["snapshot-id"], "operation": "append"}],
            "updates": [
                {"action": "add-snapshot", "snapshot": added},
                {
                    "action": "set-snapshot-ref",
                    "ref-name": "main",
                    "snapshot-id": added["snapshot-id"],
                    "type": "branch",
                },
            ],
        },
    }


def test_every_kind_of_change_is_in_the_feed_in_the_words_of_the_proposal(client: AppClient) -> None:
    made = created(client)
    committed(client, set_properties(x="1"))
    assert append(client).status_code == 200
    names = {"source": {"namespace": ["a"], "name": "t"}, "destination": {"namespace": ["a"], "name": "u"}}
    assert client.post("/v1/tables/rename", names).status_code == 204
    location = load(client, "u")["metadata-location"]
    assert client.post(f"{path('u')}/unregister").status_code == 200
    again = {"name": "v", "metadata-location": location}
    assert client.post("/v1/namespaces/a/register", again).status_code == 200
    assert client.delete(path("v")).status_code == 204
    assert client.post("/v1/namespaces/a/properties", {"updates": {"p": "1"}}).status_code == 200
    assert client.delete("/v1/namespaces/a").status_code == 204
    page = feed(client)
    assert types_of(page) == [
        *("create-namespace", "create-table", "update-table", "update-table", "rename-table"),
        *("x-unregister-table", "register-table", "drop-table", "update-namespace-properties"),
        "drop-namespace",
    ]
    operations = [event["operation"] for event in page["events"]]
    assert operations[2]["updates"] == [set_properties(x="1")]
    assert operations[4] == {
        "operation-type": "rename-table",
        **names,
        "table-uuid": made["metadata"]["table-uuid"],
    }
    assert operations[7]["purge"] is False
    assert operations[8]["updated"] == ["p"]
    assert operations[9]["namespace"] == ["a"]


def test_a_consumer_that_goes_from_page_to_page_sees_everything_once(client: AppClient) -> None:
    created(client)
    for at in range(6):
        committed(client, set_properties(at=str(at)))
    seen: list[str] = []
    token = None
    while page := feed(client, token, page_size=3):
        token = page["continuation-token"]
        seen += [event["event-id"] for event in page["events"]]
        if not page["events"]:
            break
    assert seen == [event["event-id"] for event in feed(client)["events"]]
    assert len(set(seen)) == len(seen) == 8
    committed(client, set_properties(at="later"))
    page = feed(client, token)
    assert len(page["events"]) == 1
    assert page["highest-processed-timestamp-ms"] == client.clock()


def test_the_events_of_one_transaction_share_its_request_and_say_how_many_they_are(client: AppClient) -> None:
    for name in ("t", "u"):
        created(client, name)
    body = {
        "table-changes": [
            {
                "identifier": {"namespace": ["a"], "name": name},
                "requirements": [],
                "updates": [set_properties(x="1")],
            }
            for name in ("t", "u")
        ]
    }
    assert client.post("/v1/transactions/commit", body).status_code == 204
    both = feed(client)["events"][-2:]
    assert [event["operation"]["identifier"]["name"] for event in both] == ["t", "u"]
    assert {event["request-event-count"] for event in both} == {2}
    assert len({event["request-id"] for event in both}) == 1


def test_filters_leave_events_out_and_still_move_the_cursor(client: AppClient) -> None:
    uuid = created(client)["metadata"]["table-uuid"]
    make_namespace(client, "b")
    created(client, "t", namespace="b")
    committed(client, set_properties(x="1"))
    client.clock.pass_s(1)
    assert change(client, add=("a.parquet",)).status_code == 200
    everything = feed(client)["continuation-token"]
    cases: list[tuple[Wire, list[str]]] = [
        ({"operation_types": ["update-table"]}, ["update-table", "update-table"]),
        ({"object_types": ["namespace"]}, ["create-namespace", "create-namespace"]),
        ({"catalog_objects_by_name": [["b"]]}, ["create-namespace", "create-table"]),
        ({"catalog_objects_by_name": [["b", "t"]]}, ["create-table"]),
        (
            {"catalog_objects_by_id": [{"uuid": uuid, "type": "table"}]},
            ["create-table", "update-table", "update-table"],
        ),
        ({"after_timestamp_ms": client.clock()}, ["update-table"]),
        ({"object_types": ["view"]}, []),
        ({"object_types": ["table"], "operation_types": ["create-table"]}, ["create-table", "create-table"]),
    ]
    for filters, types in cases:
        page = feed(client, **filters)
        assert types_of(page) == types, filters
        assert page["continuation-token"] == everything


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"continuation-token": "made up"}, "continuation-token"),
        ({"continuation-token": "AAAA"}, "continuation-token"),
        ({"continuation-token": 7}, "continuation-token"),
        ({"page-size": 0}, "page-size"),
        ({"page-size": "9"}, "page-size"),
        ({"wait-ms": -1}, "wait-ms"),
        ({"wait-ms": 30_001}, "wait-ms"),
        ({"object-types": ["warehouse"]}, "object-types"),
        ({"custom-filters": {"x": 1}}, "custom-filters"),
        ({"catalog-objects-by-id": [{"type": "table"}]}, "catalog-objects-by-id[0].uuid"),
    ],
)
def test_a_bad_question_names_its_field(client: AppClient, body: Wire, field: str) -> None:
    answer = client.post(EVENTS, body)
    assert answer.status_code == 400
    assert field_of(answer) == field


def test_a_reader_may_read_the_feed_and_nobody_without_a_token(tmp_path: Path) -> None:
    with app_client(tmp_path, auth="on") as client:
        token = client.token("ann", client.add_principal("ann", "read"))
        assert client.post(EVENTS, {}).status_code == 401
        assert client.post(EVENTS, {}, headers=bearer(token)).status_code == 200


# --- the feed of one table -------------------------------------------------------------------------------


def test_a_rename_does_not_cut_the_feed_of_a_table(client: AppClient) -> None:
    created(client)
    created(client, "other")
    committed(client, set_properties(x="1"))
    before = table_feed(client, limit=1)
    names = {"source": {"namespace": ["a"], "name": "t"}, "destination": {"namespace": ["a"], "name": "u"}}
    assert client.post("/v1/tables/rename", names).status_code == 204
    committed(client, set_properties(x="2"), name="u")
    assert types_of(before) == ["create-table"]
    after = table_feed(client, "u", cursor=before["continuation-token"])
    assert types_of(after) == ["update-table", "rename-table", "update-table"]
    assert client.get(f"{path('t')}/events").status_code == 404


def test_a_new_table_of_an_old_name_has_a_feed_of_its_own(client: AppClient) -> None:
    created(client)
    old = table_feed(client)["continuation-token"]
    assert client.delete(path()).status_code == 204
    created(client)
    assert types_of(table_feed(client)) == ["create-table"]
    answer = client.get(f"{path()}/events", params={"cursor": old})
    assert (answer.status_code, field_of(answer)) == (400, "cursor")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"wait-ms": "1e3"}, "wait-ms"),
        ({"cursor": "x"}, "cursor"),
    ],
)
def test_a_bad_query_names_its_parameter(client: AppClient, query: dict[str, str], field: str) -> None:
    created(client)
    answer = client.get(f"{path()}/events", params=query)
    assert (answer.status_code, field_of(answer)) == (400, field)


# --- waiting ---------------------------------------------------------------------------------------------


def test_waiters_hold_no_worker_and_are_answered_by_the_next_commit(tmp_path: Path) -> None:
    with app_client(tmp_path, workers=1) as client, ThreadPoolExecutor(4) as threads:
        make_namespace(client)
        created(client)
        created(client, "other")
        token = feed(client)["continuation-token"]
        cursor = table_feed(client)["continuation-token"]
        waiting = [threads.submit(feed, client, token, wait_ms=20_000) for _ in range(2)]
        of_table = threads.submit(table_feed, client, cursor=cursor, wait_ms=20_000)
        committed(client, set_properties(x="1"), name="other")
        assert [types_of(page.result(30)) for page in waiting] == [["update-table"]] * 2
        assert not of_table.done()
        committed(client, set_properties(x="1"))
        assert types_of(of_table.result(30)) == ["update-table"]


def test_a_wait_that_nothing_ends_answers_with_the_same_cursor(client: AppClient) -> None:
    created(client)
    token = feed(client)["continuation-token"]
    page = feed(client, token, wait_ms=120)
    assert page["events"] == []
    assert page["continuation-token"] == token


def test_there_is_no_waiting_when_there_is_something_to_tell(client: AppClient) -> None:
    assert types_of(feed(client, wait_ms=30_000)) == ["create-namespace"]


def test_waiters_over_their_number_are_told_to_come_later(tmp_path: Path) -> None:
    with app_client(tmp_path, waiters_max=0) as client:
        answer = client.post(EVENTS, {"wait-ms": 1000})
        assert answer.status_code == 429
        assert answer.headers["retry-after"]
        assert client.post(EVENTS, {}).status_code == 200


# --- transactions that commit out of order ----------------------------------------------------------------


@pytest.mark.postgres
def test_nothing_is_skipped_when_transactions_commit_out_of_order(
    tmp_path: Path, postgres_fresh_url: str
) -> None:
    import psycopg

    from headgate.store import postgres_write
    from headgate.store.postgres import PostgresStore
    from tests.store.builders import put_event

    store = PostgresStore(postgres_fresh_url)
    with app_client(tmp_path, store=store) as client, ThreadPoolExecutor(1) as threads:
        make_namespace(client)
        created(client)
        id_ = client.services.store.read_events(after=0, limit=9)[-1].event.entry_id
        token = feed(client)["continuation-token"]
        cursor = table_feed(client)["continuation-token"]
        with psycopg.connect(postgres_fresh_url, autocommit=True) as slow:
            slow.execute("BEGIN")
            assert postgres_write.apply(slow, [put_event("drop-view", id=EntryId(str(id_)))]) is None
            committed(client, set_properties(x="1"))  # begun later, and committed first
            early = feed(client, token, wait_ms=100)
            assert early["events"] == []
            assert table_feed(client, cursor=cursor)["events"] == []
            waiting = threads.submit(feed, client, early["continuation-token"], wait_ms=20_000)
            slow.execute("COMMIT")
        assert types_of(waiting.result(30)) == ["drop-view", "update-table"]
        assert types_of(table_feed(client, cursor=cursor)) == ["drop-view", "update-table"]


# --- the files of one snapshot ---------------------------------------------------------------------------


def changes(client: AppClient, snapshot_id: object, **query: Any) -> Wire:
    answer = client.get(f"{path()}/snapshots/{snapshot_id}/changes", params=query)
    assert answer.status_code == 200, answer.text
    found: Wire = answer.json()
    return found


def names_in(page: Wire) -> dict[str, list[str]]:
    lists = {name: files for name, files in page.items() if name.endswith("-files")}
    return {name: [Path(one["file-path"]).name for one in files] for name, files in lists.items() if files}


def test_the_files_of_a_fine_grained_commit_are_told_as_they_were_sent(client: AppClient) -> None:
    created(client)
    assert change(client, add=("a.parquet", "b.parquet")).status_code == 200
    assert change(client, "overwrite", add=("c.parquet",), remove=("a.parquet",)).status_code == 200
    first, second = (event["operation"]["snapshot-id"] for event in feed(client)["events"][-2:])
    place = load(client)["metadata"]["location"]
    page = changes(client, first)
    assert page["added-data-files"] == [file(place, "a.parquet"), file(place, "b.parquet")]
    assert (page["snapshot-id"], page["parent-snapshot-id"], page["action"]) == (first, None, "append")
    assert page["next-page-token"] is None
    page = changes(client, second)
    assert names_in(page) == {"added-data-files": ["c.parquet"], "removed-data-files": ["a.parquet"]}
    assert (page["parent-snapshot-id"], page["sequence-number"]) == (first, 2)


def test_the_files_of_another_engines_commit_are_read_from_its_manifests(client: AppClient) -> None:
    folder = f"{created(client)['metadata']['location']}/metadata"
    manifest_list = write_data(folder, ["x.parquet", "y.parquet"])
    assert (
        commit(client, snapshot(client, manifest_list, id=SNAPSHOT_ID), ref(SNAPSHOT_ID)).status_code == 200
    )
    assert names_in(changes(client, SNAPSHOT_ID)) == {"added-data-files": ["x.parquet", "y.parquet"]}
    assert change(client, add=("z.parquet",)).status_code == 200
    ours = feed(client)["events"][-1]["operation"]["snapshot-id"]
    assert names_in(changes(client, ours)) == {"added-data-files": ["z.parquet"]}


def test_pages_of_files_come_in_a_stable_order_and_miss_none(client: AppClient) -> None:
    created(client)
    files = tuple(f"{at:02d}.parquet" for at in range(7))
    assert change(client, add=files).status_code == 200
    assert change(client, "overwrite", add=("new.parquet",), remove=files[:5]).status_code == 200
    overwritten = feed(client)["events"][-1]["operation"]["snapshot-id"]
    whole = names_in(changes(client, overwritten))
    found: dict[str, list[str]] = {}
    cursor, pages = "", 0
    while cursor is not None:
        page = changes(client, overwritten, limit=2, cursor=cursor)
        for name, paths in names_in(page).items():
            found.setdefault(name, []).extend(paths)
        cursor, pages = page["next-page-token"], pages + 1
    assert (found, pages) == (whole, 3)
    assert whole == {"added-data-files": ["new.parquet"], "removed-data-files": list(files[:5])}


def test_a_snapshot_that_is_not_there_and_a_cursor_of_another_are_refused(client: AppClient) -> None:
    created(client)
    for name in "ab":
        assert change(client, add=(f"{name}1.parquet", f"{name}2.parquet")).status_code == 200
    first, second = (event["operation"]["snapshot-id"] for event in feed(client)["events"][-2:])
    cursor = changes(client, first, limit=1)["next-page-token"]
    answer = client.get(f"{path()}/snapshots/{second}/changes", params={"cursor": cursor})
    assert (answer.status_code, field_of(answer)) == (400, "cursor")
    answer = client.get(f"{path()}/snapshots/77/changes")
    assert (answer.status_code, error_of(answer)["type"]) == (404, "NotFoundException")
    for text in ("x", "1.5", "9" * 20, "--1", "²"):
        answer = client.get(f"{path()}/snapshots/{text}/changes")
        assert (answer.status_code, field_of(answer)) == (400, "snapshot-id"), text


def test_updates_too_large_for_an_event_are_left_out_and_said_to_be(client: AppClient) -> None:
    created(client)
    committed(client, set_properties(x="y" * 70_000))
    operation = feed(client)["events"][-1]["operation"]
    assert (operation["updates"], operation["updates-omitted"]) == ([], True)
