"""Namespaces over HTTP: what clients see, message by message."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.store.base import Store
from headgate.store.memory import MemoryStore
from headgate.store.sqlite import SqliteStore
from tests.service.app_client import AppClient, app_client


@pytest.fixture(params=["memory", "sqlite"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AppClient]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(str(tmp_path / "catalog.db"))
    with app_client(tmp_path, store=store, page_size_max=3) as made:
        yield made


def make(client: AppClient, *levels: str, **properties: str) -> None:
    answer = client.post("/v1/namespaces", {"namespace": list(levels), "properties": properties})
    assert answer.status_code == 200, answer.text


def error_of(answer: object) -> tuple[int, str, str]:
    body = answer.json()["error"]  # type: ignore[attr-defined]
    return body["code"], body["type"], body["message"]


def test_a_created_namespace_can_be_loaded_with_its_properties(client: AppClient) -> None:
    make(client, "a", owner="x")
    answer = client.get("/v1/namespaces/a")
    assert answer.json() == {"namespace": ["a"], "properties": {"owner": "x"}}
    assert client.head("/v1/namespaces/a").status_code == 204


def test_creating_it_twice_is_a_conflict(client: AppClient) -> None:
    make(client, "a")
    answer = client.post("/v1/namespaces", {"namespace": ["a"]})
    assert error_of(answer) == (409, "AlreadyExistsException", "Namespace already exists: a")


def test_a_parent_must_exist_and_is_named_when_missing(client: AppClient) -> None:
    answer = client.post("/v1/namespaces", {"namespace": ["p", "c"]})
    assert error_of(answer) == (404, "NoSuchNamespaceException", "Namespace does not exist: p")


@pytest.mark.parametrize("path", ["db%1Ft", "db%1Ft%1Ffiles", "%00", "a%2Fb", "%1F", "a" * 600, "%22"])
def test_a_probe_for_any_name_is_not_found_and_never_bad(client: AppClient, path: str) -> None:
    assert client.get(f"/v1/namespaces/{path}").status_code == 404
    assert client.head(f"/v1/namespaces/{path}").status_code == 404
    assert client.delete(f"/v1/namespaces/{path}").json()["error"]["type"] == "NoSuchNamespaceException"


def test_segments_are_decoded_once_and_after_splitting(client: AppClient) -> None:
    make(client, "a b.c")
    for path in ("a%20b.c", "a+b.c"):
        assert client.get(f"/v1/namespaces/{path}").json()["namespace"] == ["a b.c"]
    assert client.get("/v1/namespaces/a%2520b.c").status_code == 404


def test_a_path_that_is_not_utf8_is_refused(client: AppClient) -> None:
    assert client.get("/v1/namespaces/%ff").status_code == 400


def test_a_namespace_that_holds_another_is_not_dropped(client: AppClient) -> None:
    make(client, "p")
    make(client, "p", "c")
    assert error_of(client.delete("/v1/namespaces/p")) == (
        409,
        "NamespaceNotEmptyException",
        "Namespace is not empty: p",
    )
    assert client.delete("/v1/namespaces/p%1Fc").status_code == 204
    assert client.delete("/v1/namespaces/p").status_code == 204
    assert error_of(client.delete("/v1/namespaces/p"))[0] == 404


def test_children_are_listed_one_level_deep(client: AppClient) -> None:
    make(client, "p")
    make(client, "p", "c")
    make(client, "p", "c", "d")
    assert client.get("/v1/namespaces").json() == {"namespaces": [["p"]], "next-page-token": None}
    assert client.get("/v1/namespaces?parent=").json()["namespaces"] == [["p"]]
    assert client.get("/v1/namespaces?parent=p").json()["namespaces"] == [["p", "c"]]
    assert client.get("/v1/namespaces?parent=p%1Fc").json()["namespaces"] == [["p", "c", "d"]]
    answer = client.get("/v1/namespaces?parent=non-existing")
    assert error_of(answer) == (404, "NoSuchNamespaceException", "Namespace does not exist: non-existing")


def test_pages_cover_everything_once_in_order(client: AppClient) -> None:
    names = [f"n{number}" for number in range(8)]
    for name in names:
        make(client, name)
    seen, token = [], ""
    for _ in range(10):
        page = client.get("/v1/namespaces", params={"pageToken": token, "pageSize": "2"}).json()
        assert len(page["namespaces"]) <= 2
        seen += [levels[0] for levels in page["namespaces"]]
        token = page["next-page-token"]
        if token is None:
            break
    assert seen == names


def test_an_empty_token_begins_a_page_of_the_largest_size(client: AppClient) -> None:
    for number in range(4):
        make(client, f"n{number}")
    page = client.get("/v1/namespaces?pageToken=").json()
    assert len(page["namespaces"]) == 3
    assert page["next-page-token"]


def test_without_a_token_everything_comes_at_once(client: AppClient) -> None:
    for number in range(7):
        make(client, f"n{number}")
    page = client.get("/v1/namespaces?pageSize=2").json()
    assert len(page["namespaces"]) == 7
    assert page["next-page-token"] is None


@pytest.mark.parametrize("token", ["garbage", "!!!", "AAAAAAAAAAAAAAAA", "é", "%00"])
def test_a_made_up_page_token_is_refused(client: AppClient, token: str) -> None:
    answer = client.get("/v1/namespaces", params={"pageToken": token})
    assert error_of(answer)[0] == 400
    assert answer.json()["error"]["headgate"]["field"] == "pageToken"


def test_a_page_token_of_another_listing_is_refused(client: AppClient) -> None:
    for name in ("a", "b"):
        make(client, name)
    token = client.get("/v1/namespaces?pageToken=&pageSize=1").json()["next-page-token"]
    assert client.get("/v1/namespaces", params={"pageToken": token, "parent": "a"}).status_code == 400


@pytest.mark.parametrize("size", ["0", "-1", "x", "1.5", "99999999999"])
def test_a_page_size_that_is_no_count_is_refused(client: AppClient, size: str) -> None:
    assert client.get(f"/v1/namespaces?pageToken=&pageSize={size}").status_code == 400


def test_properties_are_set_and_removed_at_once(client: AppClient) -> None:
    make(client, "a", old="1", kept="2")
    answer = client.post(
        "/v1/namespaces/a/properties", {"removals": ["old", "none"], "updates": {"new": "3"}}
    )
    assert answer.json() == {"updated": ["new"], "removed": ["old"], "missing": ["none"]}
    assert client.get("/v1/namespaces/a").json()["properties"] == {"kept": "2", "new": "3"}


def test_a_key_both_set_and_removed_is_unprocessable(client: AppClient) -> None:
    make(client, "a")
    answer = client.post("/v1/namespaces/a/properties", {"removals": ["k"], "updates": {"k": "v"}})
    assert error_of(answer)[:2] == (422, "UnprocessableEntityException")


def test_properties_of_a_missing_namespace_are_not_found(client: AppClient) -> None:
    answer = client.post("/v1/namespaces/a/properties", {"updates": {"k": "v"}})
    assert error_of(answer) == (404, "NoSuchNamespaceException", "Namespace does not exist: a")


def test_concurrent_updates_of_properties_all_land(client: AppClient) -> None:
    make(client, "a")
    threads = [
        threading.Thread(
            target=client.post, args=("/v1/namespaces/a/properties", {"updates": {f"k{n}": "v"}})
        )
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(client.get("/v1/namespaces/a").json()["properties"]) == 6


@pytest.mark.parametrize("location", ["s3://elsewhere/x", "file:///etc", "http://169.254.169.254/", "../x"])
def test_a_location_outside_the_warehouse_is_refused(client: AppClient, location: str) -> None:
    body = {"namespace": ["a"], "properties": {"location": location}}
    assert client.post("/v1/namespaces", body).status_code == 400
    make(client, "a")
    changed = client.post("/v1/namespaces/a/properties", {"updates": {"location": location}})
    assert changed.json()["error"]["headgate"]["field"] == "properties.location"
    assert client.get("/v1/namespaces/a").json()["properties"] == {}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "namespace"),
        ({"namespace": "a"}, "namespace"),
        ({"namespace": []}, "namespace"),
        ({"namespace": ["a", 1]}, "namespace[1]"),
        ({"namespace": ["a/b"]}, "namespace[0]"),
        ({"namespace": ["a"], "properties": {"k": 1}}, "properties[...]"),
    ],
)
def test_a_bad_creation_names_its_field(client: AppClient, body: object, field: str) -> None:
    answer = client.post("/v1/namespaces", body)
    assert error_of(answer)[0] == 400
    assert answer.json()["error"]["headgate"]["field"] == field


def test_changes_leave_events_in_the_outbox(client: AppClient) -> None:
    make(client, "a")
    client.post("/v1/namespaces/a/properties", {"updates": {"k": "v"}})
    client.delete("/v1/namespaces/a")
    kinds = [stored.event.kind for stored in client.services.store.read_events(after=0, limit=10)]
    assert kinds == ["create-namespace", "update-namespace", "drop-namespace"]
