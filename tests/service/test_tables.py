"""Tables over HTTP: what every operation answers, leaves on disk, and says in the outbox."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.core.commit import Head
from headgate.errors import StorageFailed
from headgate.files.base import Files
from headgate.files.open import open_files
from headgate.service.table_lifecycle import purge_files
from tests.service.app_client import AppClient, app_client
from tests.service.table_calls import (
    KEY,
    OTHER_KEY,
    SCHEMA,
    append,
    commit,
    committed,
    create,
    created,
    error_of,
    field_of,
    files_below,
    load,
    local,
    make_namespace,
    path,
    picture_of,
    ref,
    set_properties,
    snapshot,
    touch,
    write_data,
)

VIEW = {
    "name": "v",
    "schema": {**SCHEMA, "schema-id": 0},
    "view-version": {
        "version-id": 1,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": 0,
        "summary": {},
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
        "default-namespace": ["a"],
    },
    "properties": {},
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    with app_client(tmp_path) as made:
        make_namespace(made)
        yield made


def drain(client: AppClient) -> None:
    """Wait for the purges that were asked for so far: two workers, so two tasks that meet prove it."""
    meet = threading.Barrier(3)
    for _ in range(2):
        client.services.background.submit(meet.wait)
    meet.wait(30)


def head_of(client: AppClient, name: str = "t") -> Head:
    (head,) = client.services.heads.load(((("a",), name),))
    assert head is not None
    return head


def only_files(location: str) -> set[str]:
    return {name for name, data in files_below(local(location)).items() if data is not None}


def event_kinds(client: AppClient) -> list[str]:
    return [stored.event.kind for stored in client.services.store.read_events(after=0, limit=1000)]


# --- create, load, list -------------------------------------------------------------------------------------


def test_a_created_table_is_loaded_as_it_was_answered(client: AppClient) -> None:
    made = created(client, properties={"owner": "me"})
    assert load(client) == made
    assert made["metadata"]["properties"]["owner"] == "me"
    assert made["metadata"]["format-version"] == 2
    assert json.loads(local(made["metadata-location"]).read_bytes()) == made["metadata"]
    assert client.head(path()).status_code == 204


def test_a_table_is_placed_below_its_namespace_in_a_folder_of_its_own(client: AppClient) -> None:
    first = created(client)["metadata"]["location"]
    client.delete(path())
    second = created(client)["metadata"]["location"]
    root = client.services.locations.roots[0]
    assert first.startswith(f"{root}/a/t-")
    assert first != second


def test_a_namespace_with_a_location_has_its_tables_below_it(client: AppClient) -> None:
    place = f"{client.services.locations.roots[0]}/elsewhere"
    make_namespace(client, "b", properties={"location": place})
    assert created(client, namespace="b")["metadata"]["location"].startswith(f"{place}/t-")


def test_a_table_that_exists_is_not_created_again(client: AppClient) -> None:
    created(client)
    before = files_below(local(client.services.locations.roots[0]))
    answer = create(client)
    assert (answer.status_code, error_of(answer)["type"]) == (409, "AlreadyExistsException")
    assert error_of(answer)["message"] == "Table already exists: a.t"
    assert files_below(local(client.services.locations.roots[0])) == before


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_a_table_that_is_not_there_is_missing_for_every_method(client: AppClient, method: str) -> None:
    answer = client.request(method, path("nothing"))
    assert answer.status_code == 404
    if method != "HEAD":
        assert error_of(answer)["type"] == "NoSuchTableException"


@pytest.mark.parametrize("name", ["a/b", "*", "x\ny", "%", "'", "x" * 300])
def test_a_name_that_no_table_can_have_is_missing_not_bad(client: AppClient, name: str) -> None:
    assert client.get(path(name)).status_code == 404
    assert commit(client, set_properties(x="y"), name=name).status_code == 404


def test_tables_are_listed_in_pages_that_join_to_the_whole(client: AppClient) -> None:
    names = [f"t{i:02}" for i in range(7)]
    for name in names:
        created(client, name)
    found: list[str] = []
    token: str | None = ""
    pages = 0
    while token is not None:
        page = client.get("/v1/namespaces/a/tables", params={"pageToken": token, "pageSize": "3"}).json()
        found += [one["name"] for one in page["identifiers"]]
        token, pages = page["next-page-token"], pages + 1
    assert (found, pages) == (names, 3)
    assert len(client.get("/v1/namespaces/a/tables").json()["identifiers"]) == 7


def test_a_page_token_of_another_listing_is_refused(client: AppClient) -> None:
    for i in range(3):
        created(client, f"t{i}")
    token = client.get("/v1/namespaces/a/tables?pageToken=&pageSize=1").json()["next-page-token"]
    make_namespace(client, "b")
    answer = client.get("/v1/namespaces/b/tables", params={"pageToken": token})
    assert (answer.status_code, field_of(answer)) == (400, "pageToken")


def test_an_etag_that_still_holds_saves_the_body(client: AppClient) -> None:
    created(client)
    etag = client.get(path()).headers["etag"]
    unchanged = client.get(path(), headers={"If-None-Match": etag})
    assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", etag)
    assert client.get(path() + "?snapshots=refs", headers={"If-None-Match": etag}).status_code == 200
    answer = commit(client, set_properties(x="y"))
    assert answer.headers["etag"] != etag
    changed = client.get(path(), headers={"If-None-Match": etag})
    assert (changed.status_code, changed.headers["etag"]) == (200, answer.headers["etag"])


def test_snapshots_refs_keeps_the_snapshots_that_refs_point_at(client: AppClient) -> None:
    created(client)
    for id in (1, 2, 3):
        assert append(client, id=id).status_code == 200
    committed(client, ref(1, name="first", type="tag"))
    whole = load(client)["metadata"]
    refs = load(client, params={"snapshots": "refs"})["metadata"]
    assert [s["snapshot-id"] for s in whole["snapshots"]] == [1, 2, 3]
    assert [s["snapshot-id"] for s in refs["snapshots"]] == [1, 3]
    assert {k: v for k, v in refs.items() if k != "snapshots"} == {
        k: v for k, v in whole.items() if k != "snapshots"
    }
    assert field_of(client.get(path() + "?snapshots=some")) == "snapshots"


# --- stage and commit ---------------------------------------------------------------------------------------


def staged_updates(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """What Java sends to create a staged table."""
    return [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": metadata["format-version"]},
        {"action": "add-schema", "schema": metadata["schemas"][0], "last-column-id": 1},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
        {"action": "set-properties", "updates": metadata["properties"]},
    ]


CREATES = [{"type": "assert-create"}]


def test_a_staged_table_exists_only_after_its_commit(client: AppClient) -> None:
    before = picture_of(client.services.store)
    staged = created(client, stage_create=True)
    assert "metadata-location" not in staged
    assert picture_of(client.services.store) == before
    assert files_below(local(client.services.locations.roots[0])) == {}
    assert client.get(path()).status_code == 404
    answer = commit(client, *staged_updates(staged["metadata"]), requirements=CREATES)
    assert answer.status_code == 200, answer.text
    assert load(client)["metadata"]["table-uuid"] == staged["metadata"]["table-uuid"]
    assert event_kinds(client) == ["create-namespace", "create-table"]


def test_of_two_commits_of_staged_tables_one_creates(client: AppClient) -> None:
    staged = [created(client, stage_create=True)["metadata"] for _ in range(2)]
    answers = [commit(client, *staged_updates(one), requirements=CREATES) for one in staged]
    assert [answer.status_code for answer in answers] == [200, 409]
    assert error_of(answers[1])["message"] == "Requirement failed: table already exists"
    assert load(client)["metadata"]["table-uuid"] == staged[0]["table-uuid"]


@pytest.mark.parametrize("name", ["x*", "x/y", "a'b", 'a"b', "x%", "x\\y", "x\x7f"])
def test_a_commit_that_creates_takes_only_names_that_a_create_takes(client: AppClient, name: str) -> None:
    staged = created(client, stage_create=True)["metadata"]
    before = picture_of(client.services.store)
    answer = commit(client, *staged_updates(staged), name=name, requirements=CREATES)
    assert answer.status_code == 400
    assert field_of(answer) == "name"
    assert picture_of(client.services.store) == before
    assert files_below(local(client.services.locations.roots[0])) == {}


def test_a_commit_changes_what_it_says_and_nothing_else(client: AppClient) -> None:
    before = created(client)["metadata"]
    client.clock.pass_s(5)
    after = committed(client, set_properties(owner="me"))["metadata"]
    expected = {
        **before,
        "properties": {**before["properties"], "owner": "me"},
        "last-updated-ms": client.clock(),
        "metadata-log": after["metadata-log"],
    }
    assert after == expected
    assert len(after["metadata-log"]) == 1
    assert load(client)["metadata"] == after


def test_a_commit_that_changes_nothing_leaves_the_head_where_it_is(client: AppClient) -> None:
    created(client)
    etag, events = client.get(path()).headers["etag"], event_kinds(client)
    answer = commit(client, {"action": "remove-properties", "removals": ["nothing"]})
    assert (answer.status_code, answer.headers["etag"]) == (200, etag)
    assert event_kinds(client) == events


def test_a_requirement_that_does_not_hold_is_a_conflict(client: AppClient) -> None:
    created(client)
    answer = commit(
        client,
        set_properties(x="y"),
        requirements=[{"type": "assert-table-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}],
    )
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitFailedException")
    assert error_of(answer)["message"].startswith("Requirement failed: UUID does not match")
    assert error_of(answer)["headgate"]["retry"] == "refresh"


def test_the_body_of_a_commit_may_name_its_own_table_only(client: AppClient) -> None:
    created(client)
    body = {"requirements": [], "updates": [set_properties(x="y")]}
    own = client.post(path(), {**body, "identifier": {"namespace": ["a"], "name": "t"}})
    other = client.post(path(), {**body, "identifier": {"namespace": ["a"], "name": "u"}})
    assert (own.status_code, other.status_code, field_of(other)) == (200, 400, "identifier")


# --- snapshots and refs -------------------------------------------------------------------------------------


def test_a_snapshot_becomes_the_head_of_its_branch(client: AppClient) -> None:
    created(client)
    assert append(client, id=1).status_code == 200
    metadata = load(client)["metadata"]
    assert metadata["current-snapshot-id"] == 1
    assert metadata["refs"]["main"] == {"snapshot-id": 1, "type": "branch"}
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == [1]
    assert metadata["last-sequence-number"] == 1


def test_a_stale_sequence_number_on_another_branch_is_a_conflict_to_retry(client: AppClient) -> None:
    made = created(client)
    append(client, id=1)
    committed(client, ref(1, name="audit"))
    assert append(client, id=2).status_code == 200
    file = touch(f"{made['metadata']['location']}/metadata/late.avro")
    late = snapshot(client, file, id=77, sequence=2, parent_snapshot_id=1)
    answer = commit(client, late, ref(77, name="audit"))
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitFailedException")
    assert error_of(answer)["headgate"]["retry"] == "refresh"
    late["snapshot"]["sequence-number"] = 3
    assert commit(client, late, ref(77, name="audit")).status_code == 200
    assert load(client)["metadata"]["current-snapshot-id"] == 2


def test_a_snapshot_that_a_ref_needs_is_not_removed(client: AppClient) -> None:
    created(client)
    for id in (1, 2):
        append(client, id=id)
    committed(client, ref(1, name="keep", type="tag"))
    remove = {"action": "remove-snapshots", "snapshot-ids": [1]}
    answer = commit(client, remove)
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitFailedException")
    assert "keep" in error_of(answer)["message"]
    both = commit(client, {"action": "remove-snapshot-ref", "ref-name": "keep"}, remove)
    assert both.status_code == 200
    assert [s["snapshot-id"] for s in load(client)["metadata"]["snapshots"]] == [2]


def test_a_manifest_list_is_the_list_of_one_snapshot(client: AppClient) -> None:
    made = created(client)
    append(client, id=1)
    used = f"{made['metadata']['location']}/metadata/snap-1.avro"
    answer = commit(client, snapshot(client, used, id=2, parent_snapshot_id=1), ref(2))
    assert (answer.status_code, field_of(answer)) == (400, "updates.snapshot.manifest-list")
    fresh = touch(f"{made['metadata']['location']}/metadata/twice.avro")
    twice = [snapshot(client, fresh, id=id, parent_snapshot_id=1) for id in (3, 4)]
    assert field_of(commit(client, *twice)) == "updates.snapshot.manifest-list"
    assert [s["snapshot-id"] for s in load(client)["metadata"]["snapshots"]] == [1]


def test_a_manifest_list_must_exist(client: AppClient) -> None:
    made = created(client)
    missing = f"{made['metadata']['location']}/metadata/missing.avro"
    answer = commit(client, snapshot(client, missing), ref())
    assert (answer.status_code, field_of(answer)) == (400, "updates.snapshot.manifest-list")
    local(made["metadata"]["location"]).joinpath("metadata/folder.avro").mkdir()
    folder = f"{made['metadata']['location']}/metadata/folder.avro"
    assert commit(client, snapshot(client, folder), ref()).status_code == 400


# --- locations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["t", "t/inner", "", "t/"])
def test_tables_do_not_overlap(client: AppClient, place: str) -> None:
    root = client.services.locations.roots[0]
    created(client, location=f"{root}/x/t")
    before = only_files(root)
    answer = create(client, "u", location=f"{root}/x/{place}".rstrip("/"))
    assert (answer.status_code, field_of(answer)) == (400, "location")
    assert only_files(root) == before
    assert create(client, "u", location=f"{root}/x/t2").status_code == 200


def test_a_table_does_not_move_onto_another(client: AppClient) -> None:
    root = client.services.locations.roots[0]
    created(client, location=f"{root}/x/t")
    created(client, "u", location=f"{root}/x/u")
    answer = commit(client, {"action": "set-location", "location": f"{root}/x/t/sub"}, name="u")
    assert (answer.status_code, field_of(answer)) == (400, "location")
    assert load(client, "u")["metadata"]["location"] == f"{root}/x/u"
    moved = commit(client, {"action": "set-location", "location": f"{root}/x/u2"}, name="u")
    assert moved.status_code == 200
    assert moved.json()["metadata-location"].startswith(f"{root}/x/u2/metadata/")


# --- metadata files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline_bytes", [0, 65536])
def test_the_metadata_log_names_files_that_exist(tmp_path: Path, inline_bytes: int) -> None:
    with app_client(tmp_path, metadata_inline_bytes=inline_bytes) as client:
        make_namespace(client)
        created(client)
        for i in range(6):
            committed(client, set_properties(step=str(i)))
            if i % 2:
                client.services.housekeeper.checkpoint(head_of(client))
            log = load(client)["metadata"]["metadata-log"]
            assert log
            assert all(local(entry["metadata-file"]).is_file() for entry in log)
            times = [entry["timestamp-ms"] for entry in log]
            assert times == sorted(times)


def test_metadata_that_is_not_written_with_its_commit_is_written_before_a_drop(tmp_path: Path) -> None:
    with app_client(tmp_path, metadata_inline_bytes=0) as client:
        make_namespace(client)
        created(client)
        made = committed(client, set_properties(x="y"))
        assert not local(made["metadata-location"]).exists()
        assert client.delete(path()).status_code == 204
        assert json.loads(local(made["metadata-location"]).read_bytes()) == made["metadata"]


def test_old_metadata_files_are_deleted_when_the_table_asks_for_it(client: AppClient) -> None:
    asked = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "2",
    }
    places = [created(client, properties=asked)["metadata-location"]]
    for i in range(5):
        places.append(committed(client, set_properties(step=str(i)))["metadata-location"])
    assert [local(place).is_file() for place in places] == [False, False, False, True, True, True]
    log = [entry["metadata-file"] for entry in load(client)["metadata"]["metadata-log"]]
    assert log == places[3:5]


def test_old_metadata_files_stay_unless_the_table_asks(client: AppClient) -> None:
    places = [created(client, properties={"write.metadata.previous-versions-max": "1"})["metadata-location"]]
    for i in range(3):
        places.append(committed(client, set_properties(step=str(i)))["metadata-location"])
    assert all(local(place).is_file() for place in places)


def test_a_log_that_names_anothers_file_does_not_delete_it(client: AppClient) -> None:
    victim = created(client, "victim")["metadata-location"]
    made = created(client)
    client.delete(path())
    metadata = {
        **made["metadata"],
        "metadata-log": [{"metadata-file": victim, "timestamp-ms": 1}],
        "properties": {
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "1",
        },
    }
    file = touch(f"{made['metadata']['location']}/metadata/x.metadata.json", json.dumps(metadata).encode())
    registered = client.post("/v1/namespaces/a/register", {"name": "t", "metadata-location": file})
    assert registered.status_code == 200, registered.text
    committed(client, set_properties(x="1"))
    committed(client, set_properties(x="2"))
    assert local(victim).is_file()
    assert load(client, "victim")


def test_a_metadata_path_of_the_tables_own_is_cleaned_and_anothers_is_not(client: AppClient) -> None:
    root = client.services.locations.roots[0]
    asked = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
        "write.metadata.path": f"{root}/apart",
    }
    places = [created(client, properties=asked)["metadata-location"]]
    for i in range(2):
        places.append(committed(client, set_properties(step=str(i)))["metadata-location"])
    assert [local(place).is_file() for place in places] == [False, True, True]
    created(client, "u", location=f"{root}/apart/u")
    committed(
        client, {"action": "set-properties", "updates": {"write.metadata.path": f"{root}/apart/u/metadata"}}
    )
    inside = [committed(client, set_properties(step=f"more {i}"))["metadata-location"] for i in range(4)]
    assert all(local(place).is_file() for place in inside)


class NoDeletes:
    """Files whose deletes fail, and nothing else."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def delete(self, locations: Iterable[str]) -> int:
        list(locations)
        raise StorageFailed("no deletes today")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


def test_a_commit_that_landed_is_answered_so_though_the_cleaning_fails(tmp_path: Path) -> None:
    files, _ = open_files(f"file://{tmp_path}/warehouse")
    with app_client(tmp_path, files=NoDeletes(files)) as client:
        make_namespace(client)
        asked = {
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "1",
        }
        created(client, properties=asked)
        for i in range(3):
            committed(client, set_properties(step=str(i)))
        assert load(client)["metadata"]["properties"]["step"] == "2"


def test_gzipped_metadata_is_written_and_read_back(client: AppClient) -> None:
    codec = {"write.metadata.compression-codec": "gzip"}
    made = created(client, properties=codec)
    assert made["metadata-location"].endswith(".gz.metadata.json")
    assert json.loads(gzip.decompress(local(made["metadata-location"]).read_bytes())) == made["metadata"]
    client.delete(path())
    body = {"name": "u", "metadata-location": made["metadata-location"]}
    assert client.post("/v1/namespaces/a/register", body).status_code == 200
    assert load(client, "u")["metadata"] == made["metadata"]


def test_a_metadata_file_that_vanished_is_reported_not_invented(client: AppClient) -> None:
    local(created(client)["metadata-location"]).unlink()
    answer = client.get(path())
    assert answer.status_code == 404
    assert error_of(answer)["message"].startswith("Failed to open input stream for file: ")


# --- rename -------------------------------------------------------------------------------------------------


def rename(client: AppClient, source: str, destination: str, *, to: str = "a") -> Any:
    body = {
        "source": {"namespace": ["a"], "name": source},
        "destination": {"namespace": [to], "name": destination},
    }
    return client.post("/v1/tables/rename", body)


def test_a_renamed_table_keeps_all_but_its_name(client: AppClient) -> None:
    made = created(client)
    make_namespace(client, "b")
    assert rename(client, "t", "u", to="b").status_code == 204
    assert client.get(path()).status_code == 404
    assert client.get(path("u", namespace="b")).json() == made
    answer = client.post(path("u", namespace="b"), {"requirements": [], "updates": [set_properties(x="y")]})
    assert answer.status_code == 200


def test_a_rename_onto_a_taken_name_is_refused(client: AppClient) -> None:
    for name in ("t", "u"):
        created(client, name)
    assert client.post("/v1/namespaces/a/views", VIEW).status_code == 200
    for name, what in (("u", "Table"), ("v", "View")):
        answer = rename(client, "t", name)
        assert answer.status_code == 409
        assert error_of(answer)["message"] == f"Cannot rename a.t to a.{name}. {what} already exists"


def test_a_rename_needs_its_source_and_a_namespace_to_go_to(client: AppClient) -> None:
    created(client)
    missing = rename(client, "nothing", "u")
    assert (missing.status_code, error_of(missing)["type"]) == (404, "NoSuchTableException")
    nowhere = rename(client, "t", "u", to="nowhere")
    assert (nowhere.status_code, error_of(nowhere)["type"]) == (404, "NoSuchNamespaceException")
    assert error_of(nowhere)["message"] == "Namespace does not exist: nowhere"


# --- views and tables share names ---------------------------------------------------------------------------


def test_a_table_and_a_view_do_not_share_a_name(client: AppClient) -> None:
    assert client.post("/v1/namespaces/a/views", VIEW).status_code == 200
    table = create(client, "v")
    assert (table.status_code, error_of(table)["type"]) == (409, "AlreadyExistsException")
    assert error_of(table)["message"] == "View with same name already exists: a.v"
    staged = create(client, "v", stage_create=True)
    assert error_of(staged)["message"] == "View with same name already exists: a.v"
    created(client, "t")
    view = client.post("/v1/namespaces/a/views", {**VIEW, "name": "t"})
    assert error_of(view)["message"] == "Table with same name already exists: a.t"
    assert client.get("/v1/namespaces/a/views/t").status_code == 404
    assert client.get(path("v")).status_code == 404
    metadata = created(client, "w", stage_create=True)["metadata"]
    late = commit(client, *staged_updates(metadata), name="v", requirements=CREATES)
    assert error_of(late)["message"] == "View with same name already exists: a.v"


# --- drop and purge -----------------------------------------------------------------------------------------


def test_a_dropped_table_leaves_its_files(client: AppClient) -> None:
    made = created(client)
    append(client)
    before = files_below(local(made["metadata"]["location"]))
    assert client.delete(path()).status_code == 204
    drain(client)
    assert files_below(local(made["metadata"]["location"])) == before


def purgeable(client: AppClient, name: str = "t", *, also: tuple[str, ...] = ()) -> str:
    """A table with two data files, and manifests that also name files that are not its own."""
    location: str = created(client, name)["metadata"]["location"]
    data = [touch(f"{location}/data/{i}.parquet") for i in range(2)]
    file = write_data(f"{location}/metadata", [*data, *also], id=1)
    assert commit(client, snapshot(client, file, id=1), ref(1), name=name).status_code == 200
    return location


def test_a_purge_removes_what_the_table_reaches(client: AppClient) -> None:
    location = purgeable(client)
    committed(client, set_properties(x="y"))
    assert client.delete(path() + "?purgeRequested=true").status_code == 204
    assert client.get(path()).status_code == 404
    drain(client)
    assert only_files(location) == set()


def test_a_purge_keeps_what_is_not_below_the_tables_own_folders(client: AppClient) -> None:
    other = purgeable(client, "other")
    root = client.services.locations.roots[0]
    loose = touch(f"{root}/loose.parquet")
    location = purgeable(client, also=(f"{other}/data/0.parquet", loose, "file:///etc/hostname"))
    stranger = touch(f"{location}/data/not-mine.parquet")
    client.delete(path() + "?purgeRequested=true")
    drain(client)
    assert local(f"{other}/data/0.parquet").is_file()
    assert local(loose).is_file()
    assert local(stranger).is_file()
    assert not local(f"{location}/data/0.parquet").exists()


def test_a_purge_keeps_another_tables_files_though_a_property_points_there(client: AppClient) -> None:
    other = purgeable(client, "other")
    purgeable(client, also=(f"{other}/data/0.parquet",))
    for name in ("write.data.path", "write.metadata.path"):
        update = {"action": "set-properties", "updates": {name: f"{other}/data"}}
        assert commit(client, update).status_code == 200
    client.delete(path() + "?purgeRequested=true")
    drain(client)
    assert local(f"{other}/data/0.parquet").is_file()


def test_a_view_above_a_table_does_not_keep_a_purge_from_its_work(client: AppClient) -> None:
    location = purgeable(client)
    for name, place in (("v", location.rsplit("/", 1)[0]), ("w", location)):
        assert (
            client.post("/v1/namespaces/a/views", {**VIEW, "name": name, "location": place}).status_code
            == 200
        )
    client.delete(path() + "?purgeRequested=true")
    drain(client)
    assert not local(f"{location}/data/0.parquet").exists()


def test_a_purge_keeps_a_table_that_was_registered_anew_at_its_place(client: AppClient) -> None:
    location = purgeable(client)
    head, place = head_of(client), load(client)["metadata-location"]
    client.delete(path())
    assert register(client, place, "again").status_code == 200
    before = files_below(local(location))
    purge_files(client.services, head)  # as a purge that comes late
    assert files_below(local(location)) == before


def test_a_table_without_garbage_collection_is_not_purged(client: AppClient) -> None:
    location = purgeable(client)
    committed(client, {"action": "set-properties", "updates": {"gc.enabled": "false"}})
    before = files_below(local(location))
    answer = client.delete(path() + "?purgeRequested=true")
    drain(client)
    assert (answer.status_code, field_of(answer)) == (400, "purgeRequested")
    assert files_below(local(location)) == before
    assert client.delete(path()).status_code == 204


def test_a_purge_of_a_manifest_that_cannot_be_read_removes_the_rest(client: AppClient) -> None:
    made = created(client)
    assert append(client).status_code == 200  # its manifest list is no Avro
    client.delete(path() + "?purgeRequested=true")
    drain(client)
    assert not local(made["metadata-location"]).exists()


# --- register and unregister --------------------------------------------------------------------------------


def register(client: AppClient, place: str, name: str = "t", **fields: Any) -> Any:
    return client.post("/v1/namespaces/a/register", {"name": name, "metadata-location": place, **fields})


def test_a_table_goes_to_another_catalog_and_comes_back(client: AppClient) -> None:
    created(client)
    append(client)
    before = load(client)
    gone = client.post(path() + "/unregister")
    assert gone.status_code == 200
    assert gone.json()["metadata-location"] == before["metadata-location"]
    assert client.get(path()).status_code == 404
    assert register(client, before["metadata-location"], "back").status_code == 200
    assert load(client, "back") == before
    assert append(client, id=2, name="back").status_code == 200


def test_a_taken_name_is_registered_over_only_when_asked(client: AppClient) -> None:
    first = created(client)
    committed(client, set_properties(x="y"))
    refused = register(client, first["metadata-location"])
    assert (refused.status_code, error_of(refused)["type"]) == (409, "AlreadyExistsException")
    replaced = register(client, first["metadata-location"], overwrite=True)
    assert replaced.status_code == 200, replaced.text
    assert load(client)["metadata"] == first["metadata"]
    assert load(client)["metadata-location"] == first["metadata-location"]


def test_a_manifest_list_stays_taken_after_a_register_over(client: AppClient) -> None:
    created(client)
    append(client, id=1)
    append(client, id=2)
    place = load(client)["metadata-location"]
    assert register(client, place, overwrite=True).status_code == 200
    used = load(client)["metadata"]["snapshots"][0]["manifest-list"]
    answer = commit(client, snapshot(client, used, id=3, parent_snapshot_id=2), ref(3))
    assert (answer.status_code, field_of(answer)) == (400, "updates.snapshot.manifest-list")
    assert append(client, id=3).status_code == 200
    assert [s["snapshot-id"] for s in load(client)["metadata"]["snapshots"]] == [1, 2, 3]


def test_snapshots_keep_their_ids_when_a_table_is_registered_over(client: AppClient) -> None:
    location = created(client)["metadata"]["location"]
    for sequence, id in enumerate((5, 1, 2), start=1):  # 1 and 2 are also places in the log
        file = touch(f"{location}/metadata/{id}.avro")
        parent = {} if sequence == 1 else {"parent_snapshot_id": 5}
        assert (
            commit(client, snapshot(client, file, id=id, sequence=sequence, **parent), ref(id)).status_code
            == 200
        )
    place = load(client)["metadata-location"]
    assert register(client, place, overwrite=True).status_code == 200
    for id in (5, 1, 2):
        committed(client, ref(id, name=f"tag{id}", type="tag"))
    committed(client, {"action": "remove-snapshot-ref", "ref-name": "tag1"})
    committed(client, {"action": "remove-snapshots", "snapshot-ids": [1]})
    assert [s["snapshot-id"] for s in load(client)["metadata"]["snapshots"]] == [5, 2]


def test_one_location_is_not_registered_under_two_names(client: AppClient) -> None:
    place = created(client)["metadata-location"]
    answer = register(client, place, "second")
    assert (answer.status_code, field_of(answer)) == (400, "location")


def test_a_view_is_not_registered_over(client: AppClient) -> None:
    client.post("/v1/namespaces/a/views", VIEW)
    place = created(client)["metadata-location"]
    client.delete(path())
    for fields in ({}, {"overwrite": True}):
        answer = register(client, place, "v", **fields)
        assert answer.status_code == 409
        assert error_of(answer)["message"] == "View with same name already exists: a.v"
    assert client.get("/v1/namespaces/a/views/v").status_code == 200


def test_a_metadata_file_that_is_missing_is_not_registered(client: AppClient) -> None:
    root = client.services.locations.roots[0]
    answer = register(client, f"{root}/nowhere/x.metadata.json")
    assert answer.status_code == 404
    assert error_of(answer)["message"].startswith("Failed to open input stream for file: ")


# --- transactions -------------------------------------------------------------------------------------------


def change(name: str, *updates: dict[str, Any], **fields: Any) -> dict[str, Any]:
    who = {"namespace": ["a"], "name": name}
    return {"identifier": who, "requirements": [], "updates": list(updates), **fields}


def transact(client: AppClient, *changes: dict[str, Any], **options: Any) -> Any:
    return client.post("/v1/transactions/commit", {"table-changes": list(changes)}, **options)


def test_a_transaction_changes_all_its_tables(client: AppClient) -> None:
    for name in ("t", "u"):
        created(client, name)
    answer = transact(client, *(change(name, set_properties(x="y")) for name in ("t", "u")))
    assert answer.status_code == 204
    assert all(load(client, name)["metadata"]["properties"]["x"] == "y" for name in ("t", "u"))
    assert event_kinds(client)[-2:] == ["commit-table", "commit-table"]


def test_a_transaction_may_create_a_table_beside_a_commit(client: AppClient) -> None:
    created(client)
    staged = created(client, "new", stage_create=True)["metadata"]
    new = change("new", *staged_updates(staged), requirements=CREATES)
    assert transact(client, change("t", set_properties(x="y")), new).status_code == 204
    assert load(client, "new")["metadata"]["table-uuid"] == staged["table-uuid"]


# --- keys ---------------------------------------------------------------------------------------------------


def test_a_repeated_create_under_its_key_is_the_same_table(client: AppClient) -> None:
    headers = {"Idempotency-Key": KEY}
    first, second = (create(client, headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    assert event_kinds(client).count("create-table") == 1


def test_a_repeated_commit_under_its_key_is_applied_once(client: AppClient) -> None:
    made = created(client)
    file = touch(f"{made['metadata']['location']}/metadata/s.avro")
    updates = (snapshot(client, file), ref())
    first, second = (commit(client, *updates, key=KEY) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["metadata"] == second.json()["metadata"]
    assert commit(client, *updates, key=OTHER_KEY).status_code == 400  # the snapshot is there
    assert event_kinds(client).count("commit-table") == 1


def test_a_key_used_for_another_commit_is_refused(client: AppClient) -> None:
    created(client)
    assert commit(client, set_properties(x="1"), key=KEY).status_code == 200
    answer = commit(client, set_properties(x="2"), key=KEY)
    assert (answer.status_code, field_of(answer)) == (400, "Idempotency-Key")
    assert load(client)["metadata"]["properties"]["x"] == "1"


def test_a_refusal_under_a_key_is_repeated_after_it_would_pass(client: AppClient) -> None:
    refused = commit(client, set_properties(x="1"), key=KEY)
    created(client)
    again = commit(client, set_properties(x="1"), key=KEY)
    assert (refused.status_code, again.content) == (404, refused.content)
    assert commit(client, set_properties(x="1"), key=OTHER_KEY).status_code == 200


def test_a_key_outlives_rename_and_drop(client: AppClient) -> None:
    created(client)
    commit(client, set_properties(x="1"), key=KEY)
    rename(client, "t", "u")
    renamed = commit(client, set_properties(x="1"), key=KEY)
    assert (renamed.status_code, renamed.json()["metadata"]["properties"]["x"]) == (200, "1")
    client.delete(path("u"))
    dropped = commit(client, set_properties(x="1"), key=KEY)
    assert (dropped.status_code, error_of(dropped)["type"]) == (500, "CommitStateUnknownException")
    assert "landed" in error_of(dropped)["message"]


def test_repeated_drops_unregisters_renames_and_transactions_are_answered_again(client: AppClient) -> None:
    for name in ("t", "u", "w"):
        created(client, name)
    body = {
        "source": {"namespace": ["a"], "name": "w"},
        "destination": {"namespace": ["a"], "name": "renamed"},
    }
    keys = [f"{KEY[:-1]}{i}" for i in range(4)]

    def ask(i: int) -> Any:
        headers = {"Idempotency-Key": keys[i]}
        if i == 0:
            return transact(client, change("t", set_properties(x="y")), headers=headers)
        if i == 1:
            return client.delete(path("t"), headers=headers)
        if i == 2:
            return client.post(path("u") + "/unregister", headers=headers)
        return client.post("/v1/tables/rename", body, headers=headers)

    first = [ask(i) for i in range(4)]
    events = event_kinds(client)
    again = [ask(i) for i in range(4)]
    assert [answer.status_code for answer in first] == [204, 204, 200, 204]
    assert [(a.status_code, a.content) for a in again] == [(a.status_code, a.content) for a in first]
    assert event_kinds(client) == events


def test_unregistered_metadata_is_replayed_from_a_gzipped_file(client: AppClient) -> None:
    created(client, properties={"write.metadata.compression-codec": "gzip"})
    headers = {"Idempotency-Key": KEY}
    first, again = (client.post(path() + "/unregister", headers=headers) for _ in range(2))
    assert (first.status_code, again.json()) == (200, first.json())


# --- the outbox ---------------------------------------------------------------------------------------------


def test_every_mutation_says_what_it_did_in_the_outbox(client: AppClient) -> None:
    made = created(client)
    append(client)
    rename(client, "t", "u")
    register(client, load(client, "u")["metadata-location"], "u", overwrite=True)
    client.post(path("u") + "/unregister")
    register(client, made["metadata-location"])
    client.delete(path())
    register(client, made["metadata-location"])
    client.delete(path() + "?purgeRequested=true")
    transact(client, change("nothing", set_properties(x="y")))  # refused: no event
    assert event_kinds(client) == [
        "create-namespace",
        "create-table",
        "commit-table",
        "rename-table",
        "register-table",
        "unregister-table",
        "register-table",
        "drop-table",
        "register-table",
        "purge-table",
    ]
    stored = client.services.store.read_events(after=0, limit=100)
    assert [one.sequence for one in stored] == sorted(one.sequence for one in stored)
    committed_event = json.loads(stored[2].event.payload)
    assert committed_event["added-snapshots"] == [{"snapshot-id": 1, "operation": "append"}]
    assert [update["action"] for update in committed_event["updates"]] == ["add-snapshot", "set-snapshot-ref"]
    ids = {one.event.entry_id for one in stored[1:6]}
    assert len(ids) == 1
