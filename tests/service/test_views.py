"""Views over HTTP, in process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import CommitUnknown
from headgate.service.views import ATTEMPTS_MAX
from headgate.store.base import Kind, Operation, Reason, Refused, SwapEntry
from headgate.store.memory import MemoryStore
from tests.service.app_client import AppClient, app_client, bearer

VIEWS = "/v1/namespaces/ns/views"
ONE = f"{VIEWS}/v"
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [{"id": 3, "name": "id", "type": "int", "required": True}],
}
KEY = "01890a5d-ac96-7741-8b45-0123456789ab"


class StagedStore(MemoryStore):
    """A store whose next writes of swaps and creates can be met by an accident."""

    def __init__(self) -> None:
        super().__init__()
        self.accidents: list[Callable[[Callable[[], Refused | None]], Refused | None]] = []

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        """The write, or the accident."""
        if self.accidents:
            accident = self.accidents.pop(0)
            return accident(lambda: super(StagedStore, self).write(operations))
        return super().write(operations)


def lose_the_answer(write: Callable[[], Refused | None]) -> Refused | None:
    """It is applied, and nobody hears of it."""
    write()
    raise CommitUnknown("the connection broke after COMMIT")


def lose_the_request(write: Callable[[], Refused | None]) -> Refused | None:
    """It is not applied, and nobody can tell."""
    raise CommitUnknown("the connection broke at COMMIT")


@pytest.fixture
def store() -> StagedStore:
    return StagedStore()


@pytest.fixture
def client(tmp_path: Path, store: StagedStore) -> Iterator[AppClient]:
    with app_client(tmp_path, store=store) as made:
        made.post("/v1/namespaces", {"namespace": ["ns"]})
        yield made


def query(sql: str, dialect: str = "spark") -> dict[str, Any]:
    return {"type": "sql", "sql": sql, "dialect": dialect}


def version(**changes: Any) -> dict[str, Any]:
    return {
        "version-id": 1,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": 0,
        "summary": {},
        "representations": [query("select 1")],
        "default-namespace": ["ns"],
        **changes,
    }


def wanted(name: str = "v", **changes: Any) -> dict[str, Any]:
    return {"name": name, "schema": SCHEMA, "view-version": version(), "properties": {}, **changes}


def created(client: AppClient, name: str = "v", **changes: Any) -> dict[str, Any]:
    answer = client.post(VIEWS, wanted(name, **changes))
    assert answer.status_code == 200, answer.text
    loaded: dict[str, Any] = answer.json()
    return loaded


def replacement(sql: str, dialect: str = "spark", **changes: Any) -> dict[str, Any]:
    return {
        "updates": [
            {
                "action": "add-view-version",
                "view-version": version(representations=[query(sql, dialect)], **changes),
            },
            {"action": "set-current-view-version", "view-version-id": -1},
        ]
    }


def set_property(name: str, value: str) -> dict[str, Any]:
    return {"updates": [{"action": "set-properties", "updates": {name: value}}]}


def error_of(answer: Any) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return error


def files_of(client: AppClient) -> set[str]:
    folder = Path(client.services.settings.warehouse_location.removeprefix("file://"))
    return {f"file://{path}" for path in folder.rglob("*") if path.is_file()}


def events_of(client: AppClient) -> list[str]:
    kinds = [stored.event.kind for stored in client.services.store.read_events(after=0, limit=1000)]
    return [kind for kind in kinds if kind.endswith("-view")]


def put_table(client: AppClient, name: str) -> None:
    made = client.post("/v1/namespaces/ns/tables", {"name": name, "schema": SCHEMA})
    assert made.status_code == 200, made.text


# --- create and load ------------------------------------------------------------------------------------


def test_a_created_view_is_loaded_as_its_metadata_file_says(client: AppClient) -> None:
    made = created(client, properties={"comment": "x"})
    loaded = client.get(ONE).json()
    assert loaded == made
    assert (
        json.loads(client.services.files.read(made["metadata-location"], limit_bytes=10**6))
        == made["metadata"]
    )
    assert made["metadata"]["versions"][0]["schema-id"] == 0
    assert made["metadata"]["properties"] == {"comment": "x"}
    assert events_of(client) == ["create-view"]


def test_the_default_location_is_below_the_namespace_and_never_used_twice(client: AppClient) -> None:
    first = created(client)["metadata"]["location"]
    client.delete(ONE)
    second = created(client)["metadata"]["location"]
    place = client.services.settings.warehouse_location
    assert first.startswith(f"{place}/ns/v-")
    assert first != second


def test_the_location_of_the_namespace_is_the_parent_of_its_views(client: AppClient) -> None:
    place = f"{client.services.settings.warehouse_location}/elsewhere"
    client.post("/v1/namespaces", {"namespace": ["other"], "properties": {"location": place}})
    made = client.post("/v1/namespaces/other/views", wanted()).json()
    assert made["metadata"]["location"].startswith(f"{place}/v-")


def test_locations_are_kept_as_they_were_sent(client: AppClient, tmp_path: Path) -> None:
    sent, path = f"file:{tmp_path}/warehouse/a", f"file:{tmp_path}/warehouse/b"
    made = created(client, location=sent, properties={"write.metadata.path": path})
    assert made["metadata"]["location"] == sent
    assert made["metadata-location"].startswith(path + "/")
    assert client.post(ONE, replacement("select 2")).status_code == 200


def test_a_view_that_asks_for_gzip_has_gzipped_files(client: AppClient) -> None:
    made = created(client, properties={"write.metadata.compression-codec": "gzip"})
    assert made["metadata-location"].endswith(".gz.metadata.json")
    data = client.services.files.read(made["metadata-location"], limit_bytes=10**6)
    assert data.startswith(b"\x1f\x8b")


def test_a_name_is_taken_by_a_view_and_by_a_table(client: AppClient) -> None:
    created(client)
    put_table(client, "t")
    before = files_of(client)
    again, beside = client.post(VIEWS, wanted()), client.post(VIEWS, wanted("t"))
    assert (again.status_code, beside.status_code) == (409, 409)
    assert error_of(again)["message"] == "View already exists: ns.v"
    assert error_of(beside)["message"] == "Table with same name already exists: ns.t"
    assert error_of(again)["type"] == "AlreadyExistsException"
    assert files_of(client) == before


def test_a_view_needs_a_namespace(client: AppClient) -> None:
    answer = client.post("/v1/namespaces/nowhere/views", wanted())
    assert answer.status_code == 404
    assert error_of(answer)["type"] == "NoSuchNamespaceException"


def test_a_table_is_not_a_view_and_a_strange_name_does_not_exist(client: AppClient) -> None:
    put_table(client, "t")
    for path in (f"{VIEWS}/t", f"{VIEWS}/missing", f"{VIEWS}/a%00b", "/v1/namespaces/%00/views/v"):
        assert client.head(path).status_code == 404
        assert client.delete(path).status_code == 404
        answer = client.get(path)
        assert (answer.status_code, error_of(answer)["type"]) == (404, "NoSuchViewException")
        assert error_of(answer)["message"].startswith("View does not exist: ")


def test_listing_is_by_name_in_pages_and_without_tables(client: AppClient) -> None:
    put_table(client, "a")
    for name in ("c", "b", "d"):
        created(client, name)
    everything = client.get(VIEWS).json()
    assert [item["name"] for item in everything["identifiers"]] == ["b", "c", "d"]
    first = client.get(f"{VIEWS}?pageToken=&pageSize=2").json()
    assert [item["name"] for item in first["identifiers"]] == ["b", "c"]
    rest = client.get(f"{VIEWS}?pageSize=2&pageToken={first['next-page-token']}").json()
    assert rest["identifiers"] == [{"namespace": ["ns"], "name": "d"}]
    assert rest.get("next-page-token") is None
    assert client.get("/v1/namespaces/nowhere/views").status_code == 404


# --- bad input: the field is named, and nothing is written ----------------------------------------------

_TWO = [query("select 1", "trino"), query("select 2", "Trino")]

BAD_CREATES: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name"),
    ({"name": "a/b"}, "name"),
    ({"name": 7}, "name"),
    ({"schema": {"type": "struct"}}, "schema.fields"),
    (
        {"schema": {"type": "struct", "fields": [{**SCHEMA["fields"][0], "type": "blob"}]}},
        "schema.fields.type",
    ),
    ({"location": ""}, "location"),
    ({"location": "file:///etc"}, "location"),
    ({"location": "s3://other/v"}, "location"),
    ({"location": "file:///tmp/../etc/v"}, "location"),
    ({"properties": {"write.metadata.path": "file:///etc"}}, "properties.write.metadata.path"),
    ({"properties": {"version.history.num-entries": "0"}}, "properties.version.history.num-entries"),
    ({"properties": {"a": 1}}, "properties[...]"),
    ({"view-version": version(representations=_TWO)}, "view-version.representations.dialect"),
    ({"view-version": version(representations=[])}, "view-version.representations"),
    ({"view-version": version(representations=[{"type": "x"}])}, "view-version.representations[0].type"),
    ({"view-version": version(**{"timestamp-ms": -1})}, "view-version.timestamp-ms"),
    ({"view-version": version(**{"timestamp-ms": 2**62})}, "view-version.timestamp-ms"),
    ({"view-version": version(**{"version-id": 2**31})}, "view-version.version-id"),
    ({"view-version": version(**{"default-namespace": None})}, "view-version.default-namespace"),
]


@pytest.mark.parametrize(("changes", "field"), BAD_CREATES, ids=[field for _, field in BAD_CREATES])
def test_a_bad_create_names_its_field_and_writes_nothing(
    client: AppClient, changes: dict[str, Any], field: str
) -> None:
    answer = client.post(VIEWS, wanted(**changes))
    assert answer.status_code == 400, answer.text
    assert error_of(answer)["headgate"]["field"] == field
    assert files_of(client) == set()
    assert events_of(client) == []


BAD_COMMITS: list[tuple[dict[str, Any], str]] = [
    ({}, "updates"),
    ({"updates": [{"action": "add-snapshot", "snapshot": {}}]}, "updates[0].action"),
    ({"updates": [], "requirements": [{"type": "assert-create"}]}, "requirements[0].type"),
    ({"updates": [], "identifier": {"namespace": ["ns"], "name": "other"}}, "identifier"),
    ({"updates": [{"action": "set-location", "location": "file:///etc"}]}, "updates.location"),
    (set_property("write.metadata.path", "file:///etc"), "properties.write.metadata.path"),
    ({"updates": [{"action": "assign-uuid", "uuid": "other"}]}, "updates.uuid"),
    ({"updates": [{"action": "set-current-view-version", "view-version-id": 9}]}, "updates.view-version-id"),
    (replacement("select 2", "spark", **{"schema-id": 9}), "updates.view-version.schema-id"),
    (replacement("select 2", dialect="trino"), "updates.view-version.representations"),
]


@pytest.mark.parametrize(("body", "field"), BAD_COMMITS, ids=[field for _, field in BAD_COMMITS])
def test_a_bad_commit_names_its_field_and_writes_nothing(
    client: AppClient, body: dict[str, Any], field: str
) -> None:
    made, before = created(client), files_of(client)
    answer = client.post(ONE, body)
    assert answer.status_code == 400, answer.text
    assert error_of(answer)["headgate"]["field"] == field
    assert files_of(client) == before
    assert client.get(ONE).json() == made
    assert events_of(client) == ["create-view"]


# --- replace --------------------------------------------------------------------------------------------


def test_a_replace_publishes_a_new_version_and_a_new_file(client: AppClient) -> None:
    made = created(client)
    answer = client.post(
        ONE,
        {
            **replacement("select 2"),
            "requirements": [{"type": "assert-view-uuid", "uuid": made["metadata"]["view-uuid"]}],
            "identifier": {"namespace": ["ns"], "name": "v"},
        },
    ).json()
    assert answer["metadata"]["current-version-id"] == 2
    assert answer["metadata-location"] != made["metadata-location"]
    assert client.get(ONE).json() == answer
    assert events_of(client) == ["create-view", "replace-view"]


def test_a_requirement_that_fails_is_a_conflict_and_writes_nothing(client: AppClient) -> None:
    created(client)
    before = files_of(client)
    body = {**replacement("select 2"), "requirements": [{"type": "assert-view-uuid", "uuid": "other"}]}
    answer = client.post(ONE, body)
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitFailedException")
    assert "view UUID does not match" in error_of(answer)["message"]
    assert files_of(client) == before


def test_a_commit_that_changes_nothing_writes_no_file_and_no_event(client: AppClient) -> None:
    made, before = created(client, properties={"a": "1"}), files_of(client)
    assert client.post(ONE, set_property("a", "1")).json() == made
    assert files_of(client) == before
    assert events_of(client) == ["create-view"]


def test_a_commit_to_a_missing_view_is_not_found(client: AppClient) -> None:
    answer = client.post(ONE, replacement("select 2"))
    assert (answer.status_code, error_of(answer)["message"]) == (404, "View does not exist: ns.v")


def test_a_lost_swap_is_applied_to_the_new_head_and_its_file_is_deleted(
    client: AppClient, store: StagedStore
) -> None:
    created(client)

    def overtake(write: Callable[[], Refused | None]) -> Refused | None:
        assert client.services.store is store
        rival = client.get(ONE).json()["metadata"]
        header = store.load_header(("ns",), "v")
        assert header is not None
        rival["properties"] = {"theirs": "1"}
        swap = SwapEntry(
            id=header.id,
            expected_version=header.version,
            uuid=header.uuid,
            location=header.location,
            metadata_location=header.metadata_location,
            checkpointed=True,
            envelope=json.dumps(rival).encode(),
        )
        assert MemoryStore.write(store, (swap,)) is None
        return write()

    before = files_of(client)
    store.accidents = [overtake, overtake]
    answer = client.post(ONE, set_property("ours", "1"))
    assert answer.status_code == 200
    assert answer.json()["metadata"]["properties"] == {"ours": "1", "theirs": "1"}
    assert files_of(client) - before == {answer.json()["metadata-location"]}


def test_a_refusal_alone_deletes_nothing(client: AppClient, store: StagedStore) -> None:
    created(client)
    before = files_of(client)
    store.accidents = [lambda write: Refused(0, Reason.ENTRY_CHANGED)]  # the head it names still stands
    assert client.post(ONE, set_property("a", "1")).status_code == 200
    assert len(files_of(client)) == len(before) + 2


def test_a_refusal_of_a_swap_that_landed_is_a_success(client: AppClient, store: StagedStore) -> None:
    def land_once_and_be_refused_once(write: Callable[[], Refused | None]) -> Refused | None:
        assert write() is None
        return write()

    created(client)
    store.accidents = [land_once_and_be_refused_once]
    answer = client.post(ONE, set_property("a", "1"))
    assert answer.status_code == 200
    assert client.get(ONE).json() == answer.json()
    assert answer.json()["metadata-location"] in files_of(client)


def test_a_view_that_never_holds_still_is_a_conflict(client: AppClient, store: StagedStore) -> None:
    made = created(client)
    store.accidents = [lambda write: Refused(0, Reason.ENTRY_CHANGED)] * ATTEMPTS_MAX
    answer = client.post(ONE, set_property("a", "1"))
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitFailedException")
    assert error_of(answer)["message"].startswith("Cannot commit")
    assert client.get(ONE).json() == made


def test_a_view_made_anew_meanwhile_is_not_committed_to(client: AppClient, store: StagedStore) -> None:
    def make_anew(write: Callable[[], Refused | None]) -> Refused | None:
        client.delete(ONE)
        created(client)
        return Refused(0, Reason.ENTRY_CHANGED)

    created(client)
    store.accidents = [make_anew]
    answer = client.post(ONE, set_property("a", "1"))
    assert answer.status_code == 409
    assert client.get(ONE).json()["metadata"].get("properties") is None


def test_concurrent_commits_are_all_kept(tmp_path: Path) -> None:
    with app_client(tmp_path) as client:
        client.post("/v1/namespaces", {"namespace": ["ns"]})
        created(client)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: client.post(ONE, set_property(f"p{i}", "1")), range(24)))
        assert {answer.status_code for answer in answers} == {200}
        loaded = client.get(ONE).json()
        assert loaded["metadata"]["properties"] == {f"p{i}": "1" for i in range(24)}
        assert len(files_of(client)) == 25
        assert loaded["metadata-location"] in files_of(client)


# --- keys and unknown outcomes --------------------------------------------------------------------------


def test_a_repeated_key_gets_the_first_answer_though_the_view_moved_on(client: AppClient) -> None:
    created(client)
    key = {"Idempotency-Key": KEY}
    first = client.post(ONE, set_property("a", "1"), headers=key).json()
    client.post(ONE, set_property("a", "2"))
    assert client.post(ONE, set_property("a", "1"), headers=key).json() == first
    assert client.get(ONE).json()["metadata"]["properties"] == {"a": "2"}


def test_a_repeated_key_of_a_commit_that_changed_nothing_still_changes_nothing(client: AppClient) -> None:
    made = created(client, properties={"a": "1"})
    key = {"Idempotency-Key": KEY}
    assert client.post(ONE, set_property("a", "1"), headers=key).json() == made
    client.post(ONE, set_property("a", "2"))
    assert client.post(ONE, set_property("a", "1"), headers=key).json() == made
    assert client.get(ONE).json()["metadata"]["properties"] == {"a": "2"}


def test_two_requests_with_one_key_at_once_get_one_answer(client: AppClient, store: StagedStore) -> None:
    answers: list[Any] = []

    def be_first(write: Callable[[], Refused | None]) -> Refused | None:
        answers.append(client.post(ONE, set_property("a", "1"), headers={"Idempotency-Key": KEY}))
        return write()

    created(client)
    store.accidents = [be_first]
    second = client.post(ONE, set_property("a", "1"), headers={"Idempotency-Key": KEY})
    assert second.json() == answers[0].json()
    assert len(files_of(client)) == 2  # of the creation, and of the first commit
    assert events_of(client) == ["create-view", "replace-view"]


@pytest.mark.parametrize("method", ["create", "register", "drop", "rename"])
def test_every_change_answers_a_repeated_key_as_at_first(client: AppClient, method: str) -> None:
    key = {"Idempotency-Key": KEY}
    place = created(client, "w")["metadata-location"]
    ask: dict[str, Callable[[], Any]] = {
        "create": lambda: client.post(VIEWS, wanted(), headers=key),
        "register": lambda: client.post(
            "/v1/namespaces/ns/register-view", {"name": "v", "metadata-location": place}, headers=key
        ),
        "drop": lambda: client.delete(f"{VIEWS}/w", headers=key),
        "rename": lambda: client.post("/v1/views/rename", rename("w", "v"), headers=key),
    }
    first, again = ask[method](), ask[method]()
    assert first.status_code in (200, 204)
    assert (again.status_code, again.content) == (first.status_code, first.content)


def test_a_commit_whose_answer_was_lost_is_found_by_its_key(client: AppClient, store: StagedStore) -> None:
    created(client)
    store.accidents = [lose_the_answer]
    answer = client.post(ONE, set_property("a", "1"))  # the client sent no key; the service made one
    assert answer.status_code == 200
    assert client.get(ONE).json() == answer.json()


def test_an_unknown_outcome_is_told_and_nothing_is_deleted(client: AppClient, store: StagedStore) -> None:
    made, before = created(client), files_of(client)
    store.accidents = [lose_the_request]
    answer = client.post(ONE, set_property("a", "1"))
    assert (answer.status_code, error_of(answer)["type"]) == (500, "CommitStateUnknownException")
    assert len(files_of(client)) == len(before) + 1
    assert client.get(ONE).json() == made


def test_an_unknown_create_is_told_and_nothing_is_deleted(client: AppClient, store: StagedStore) -> None:
    store.accidents = [lose_the_request]
    answer = client.post(VIEWS, wanted())
    assert (answer.status_code, error_of(answer)["type"]) == (500, "CommitStateUnknownException")
    assert len(files_of(client)) == 1
    assert client.head(ONE).status_code == 404


def test_a_create_that_lost_the_name_deletes_only_its_own_file(client: AppClient, store: StagedStore) -> None:
    def overtake(write: Callable[[], Refused | None]) -> Refused | None:
        assert client.post(VIEWS, wanted()).status_code == 200
        return write()

    store.accidents = [overtake]
    answer = client.post(VIEWS, wanted())
    assert error_of(answer)["message"] == "View already exists: ns.v"
    assert files_of(client) == {client.get(ONE).json()["metadata-location"]}


# --- drop, rename, register -----------------------------------------------------------------------------


def rename(source: str, name: str, namespace: str = "ns") -> dict[str, Any]:
    return {
        "source": {"namespace": ["ns"], "name": source},
        "destination": {"namespace": [namespace], "name": name},
    }


def test_a_dropped_view_is_gone_and_its_file_stays(client: AppClient) -> None:
    place = created(client)["metadata-location"]
    assert client.delete(ONE).status_code == 204
    assert client.head(ONE).status_code == 404
    assert client.delete(ONE).status_code == 404
    assert client.services.files.exists(place)
    assert events_of(client) == ["create-view", "drop-view"]


def test_a_renamed_view_keeps_its_metadata(client: AppClient) -> None:
    client.post("/v1/namespaces", {"namespace": ["other"]})
    made = created(client)
    assert client.post("/v1/views/rename", rename("v", "w", "other")).status_code == 204
    assert client.head(ONE).status_code == 404
    assert client.get("/v1/namespaces/other/views/w").json() == made
    assert events_of(client) == ["create-view", "rename-view"]


def test_a_rename_onto_itself_is_no_change(client: AppClient) -> None:
    created(client)
    assert client.post("/v1/views/rename", rename("v", "v")).status_code == 204
    assert events_of(client) == ["create-view"]


def test_a_rename_is_refused_with_the_reason(client: AppClient) -> None:
    created(client)
    created(client, "w")
    put_table(client, "t")
    cases = [
        (rename("v", "w"), 409, "Cannot rename ns.v to ns.w. View already exists"),
        (rename("v", "t"), 409, "Cannot rename ns.v to ns.t. Table already exists"),
        (rename("v", "x", "nowhere"), 404, "Namespace does not exist: nowhere"),
        (rename("missing", "x"), 404, "View does not exist: ns.missing"),
        (rename("t", "x"), 404, "View does not exist: ns.t"),
    ]
    for body, status, message in cases:
        answer = client.post("/v1/views/rename", body)
        assert (answer.status_code, error_of(answer)["message"]) == (status, message)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "source"),
        (rename("v", "a/b"), "destination.name"),
        (rename("v", "w", ""), "destination.namespace[0]"),
    ],
)
def test_a_bad_rename_names_its_field(client: AppClient, body: dict[str, Any], field: str) -> None:
    created(client)
    answer = client.post("/v1/views/rename", body)
    assert (answer.status_code, error_of(answer)["headgate"]["field"]) == (400, field)
    assert client.head(ONE).status_code == 204


REGISTER = "/v1/namespaces/ns/register-view"


def test_a_dropped_view_is_registered_again_and_goes_on(client: AppClient) -> None:
    made = created(client)
    client.delete(ONE)
    again = client.post(REGISTER, {"name": "v", "metadata-location": made["metadata-location"]})
    assert again.json() == made
    assert client.post(ONE, replacement("select 2")).json()["metadata"]["current-version-id"] == 2
    assert "register-view" in events_of(client)


def test_registering_a_taken_name_is_refused(client: AppClient) -> None:
    place = created(client)["metadata-location"]
    put_table(client, "t")
    for name, message in (
        ("v", "View already exists: ns.v"),
        ("t", "Table with same name already exists: ns.t"),
    ):
        answer = client.post(REGISTER, {"name": name, "metadata-location": place})
        assert (answer.status_code, error_of(answer)["message"]) == (409, message)


def test_a_bad_registration_names_its_field_and_changes_nothing(client: AppClient) -> None:
    made = created(client)
    place = client.services.settings.warehouse_location
    files = client.services.files
    files.write_new(f"{place}/garbage.json", (b"{}",))
    outside = {**made["metadata"], "location": "file:///etc"}
    files.write_new(f"{place}/outside.json", (json.dumps(outside).encode(),))
    astray = {**made["metadata"], "properties": {"write.metadata.path": "s3://elsewhere/x"}}
    files.write_new(f"{place}/astray.json", (json.dumps(astray).encode(),))
    cases = [
        ("file:///etc/passwd", "metadata-location"),
        (f"{place}/missing.json", "metadata-location"),
        (f"{place}/garbage.json", "metadata-location"),
        (f"{place}/outside.json", "metadata.location"),
        (f"{place}/astray.json", "properties.write.metadata.path"),
    ]
    for location, field in cases:
        answer = client.post(REGISTER, {"name": "w", "metadata-location": location})
        assert (answer.status_code, error_of(answer)["headgate"]["field"]) == (400, field)
    assert client.services.store.list_entries(("ns",), Kind.VIEW, after=None, limit=10) == ["v"]


def test_a_namespace_with_a_view_is_not_dropped(client: AppClient) -> None:
    created(client)
    assert client.delete("/v1/namespaces/ns").status_code == 409
    client.delete(ONE)
    assert client.delete("/v1/namespaces/ns").status_code == 204


def test_who_may_only_modify_tables_may_read_views_and_change_none(tmp_path: Path) -> None:
    with app_client(tmp_path, auth="on") as client:
        admin = bearer(client.token("root", client.add_principal("root", "admin")))
        client.post("/v1/namespaces", {"namespace": ["ns"]}, headers=admin)
        client.post(VIEWS, wanted(), headers=admin)
        user = bearer(client.token("user", client.add_principal("user", "modify")))
        assert client.get(ONE, headers=user).status_code == 200
        assert client.post(VIEWS, wanted("w"), headers=user).status_code == 403
        assert client.post(ONE, replacement("select 2"), headers=user).status_code == 403
        assert client.delete(ONE, headers=user).status_code == 403
        assert client.post("/v1/views/rename", rename("v", "w"), headers=user).status_code == 403
