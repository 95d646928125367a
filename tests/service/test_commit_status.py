"""GET /v1/commits/{key}: what became of a commit. And a refusal that names the other commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.errors import StorageFailed
from headgate.store.base import EntryId, StoredEvent
from headgate.store.memory import MemoryStore
from headgate.store.sqlite import SqliteStore
from tests.format.manifest_files import SNAPSHOT_ID
from tests.service.app_client import AppClient, app_client, bearer
from tests.service.table_calls import (
    KEY,
    OTHER_KEY,
    commit,
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
from tests.service.test_feed import change

COMMITS = "/v1/commits"
NOTHING_ADDED = [{"type": "not-allowed-added-data-files"}]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    with app_client(tmp_path, store=SqliteStore(tmp_path / "catalog.db")) as found:
        make_namespace(found)
        created(found)
        yield found


def verdict(client: AppClient, key: str = KEY) -> dict[str, Any]:
    answer = client.get(f"{COMMITS}/{key}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def with_key(key: str = KEY) -> dict[str, str]:
    return {"Idempotency-Key": key}


def conflicting(client: AppClient, **options: Any) -> httpx.Response:
    """A change from the beginning that allows nobody else's data."""
    base = load(client)["metadata"]["snapshots"][0]["snapshot-id"]
    validations = {"base_snapshot_id": base, "commit_validations": NOTHING_ADDED}
    return change(client, "overwrite", add=("mine.parquet",), **validations, **options)


# --- the verdict -----------------------------------------------------------------------------------------


def test_a_committed_key_tells_the_table_its_snapshot_and_its_metadata(client: AppClient) -> None:
    answer = change(client, add=("a.parquet",), headers=with_key())
    landed = answer.json()
    id_ = landed["metadata"]["current-snapshot-id"]
    assert change(client, add=("later.parquet",)).status_code == 200
    assert verdict(client) == {
        "key": KEY,
        "status": "committed",
        "http-status": 200,
        "created-at-ms": client.clock(),
        "table": {"namespace": ["a"], "name": "t"},
        "metadata-location": landed["metadata-location"],
        "snapshot-id": id_,
        "snapshot-ids": [id_],
    }


def test_a_refused_key_tells_the_error_with_its_conflict(client: AppClient) -> None:
    for name in ("a.parquet", "b.parquet"):
        assert change(client, add=(name,)).status_code == 200
    refused = conflicting(client, headers=with_key())
    assert refused.status_code == 409
    found = verdict(client)
    assert (found["status"], found["http-status"]) == ("refused", 409)
    assert found["error"] == error_of(refused)
    assert found["error"]["conflict"]["rule"] == "added-data-files"


def test_a_transaction_tells_every_table(client: AppClient) -> None:
    created(client, "u")
    changes = [
        {
            "identifier": {"namespace": ["a"], "name": name},
            "requirements": [],
            "updates": [set_properties(x="1")],
        }
        for name in ("t", "u")
    ]
    answer = client.post("/v1/transactions/commit", {"table-changes": changes}, headers=with_key())
    assert answer.status_code == 204
    found = verdict(client)
    assert (found["status"], found["http-status"]) == ("committed", 204)
    assert [(table["table"]["name"], table["snapshot-id"]) for table in found["tables"]] == [
        ("t", None),
        ("u", None),
    ]


def test_a_commit_that_changed_nothing_is_committed_all_the_same(client: AppClient) -> None:
    answer = client.post(path(), {"requirements": [], "updates": []}, headers=with_key())
    assert answer.status_code == 200
    found = verdict(client)
    assert (found["status"], found["tables"]) == ("committed", [])


def test_other_operations_have_verdicts_too(client: AppClient) -> None:
    assert client.delete(path(), headers=with_key()).status_code == 204
    assert verdict(client)["status"] == "committed"


def test_a_key_that_nobody_used_is_not_found_and_one_that_is_none_is_refused(client: AppClient) -> None:
    answer = client.get(f"{COMMITS}/{KEY}")
    assert answer.status_code == 404
    assert "unknown, or still running" in error_of(answer)["message"]
    answer = client.get(f"{COMMITS}/not-a-key")
    assert (answer.status_code, field_of(answer)) == (400, "Idempotency-Key")


def test_a_verdict_is_told_to_the_principal_who_sent_the_commit_only(tmp_path: Path) -> None:
    with app_client(tmp_path, auth="on") as client:
        tokens = {
            name: bearer(client.token(name, client.add_principal(name, "admin"))) for name in ("ann", "bob")
        }
        body = {"namespace": ["a"]}
        answer = client.post("/v1/namespaces", body, headers={**tokens["ann"], **with_key()})
        assert answer.status_code == 200
        assert client.get(f"{COMMITS}/{KEY}", headers=tokens["ann"]).json()["status"] == "committed"
        assert client.get(f"{COMMITS}/{KEY}", headers=tokens["bob"]).status_code == 404


# --- who it was ------------------------------------------------------------------------------------------


def test_a_conflict_names_who_committed_and_under_which_key(tmp_path: Path) -> None:
    with app_client(tmp_path, auth="on") as client:
        ann = bearer(client.token("ann", client.add_principal("ann", "admin")))
        bob = bearer(client.token("bob", client.add_principal("bob", "modify")))
        make = {"headers": ann}
        assert client.post("/v1/namespaces", {"namespace": ["a"]}, **make).status_code == 200
        schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
        made = client.post("/v1/namespaces/a/tables", {"name": "t", "schema": schema}, **make).json()
        place = made["metadata"]["location"]

        def send(headers: dict[str, str], name: str, **fields: Any) -> httpx.Response:
            file = {
                "content": "data",
                "file-path": f"{place}/data/{name}",
                "file-format": "parquet",
                "spec-id": 0,
                "partition": [],
                "file-size-in-bytes": 1,
                "record-count": 1,
            }
            update = {"action": "overwrite", "add-data-files": [file], **fields}
            return client.post(path(), {"requirements": [], "updates": [update]}, headers=headers)

        first = send(ann, "1.parquet").json()["metadata"]["current-snapshot-id"]
        theirs = send({**bob, **with_key(OTHER_KEY)}, "2.parquet").json()["metadata"]["snapshots"][-1]
        fields = {"base-snapshot-id": first, "commit-validations": NOTHING_ADDED}
        refused = send(ann, "3.parquet", **fields)
        assert refused.status_code == 409
        assert error_of(refused)["conflict"]["theirs"] == {
            "snapshot-id": theirs["snapshot-id"],
            "operation": "overwrite",
            "timestamp-ms": theirs["timestamp-ms"],
            "committed-by": "bob",
            "key": OTHER_KEY,
        }


def test_a_plain_commit_of_another_engine_is_named_too(client: AppClient) -> None:
    assert change(client, add=("a.parquet",)).status_code == 200
    metadata = load(client)["metadata"]
    manifest_list = write_data(f"{metadata['location']}/metadata", ["x.parquet"])
    parent = {"parent_snapshot_id": metadata["current-snapshot-id"]}
    theirs = snapshot(client, manifest_list, id=SNAPSHOT_ID, **parent)
    assert commit(client, theirs, ref(SNAPSHOT_ID), key=OTHER_KEY).status_code == 200
    refused = error_of(conflicting(client))["conflict"]["theirs"]
    assert (refused["snapshot-id"], refused["committed-by"]) == (SNAPSHOT_ID, "anonymous")
    assert refused["key"] == OTHER_KEY


def test_a_store_that_does_not_answer_costs_the_names_not_the_verdict(tmp_path: Path) -> None:
    class Forgetful(MemoryStore):
        def find_snapshot_event(self, id: EntryId, snapshot_id: int) -> StoredEvent | None:
            raise StorageFailed("no answer")

    with app_client(tmp_path, store=Forgetful()) as client:
        make_namespace(client)
        created(client)
        for name in ("a.parquet", "b.parquet"):
            assert change(client, add=(name,)).status_code == 200
        refused = conflicting(client)
        assert refused.status_code == 409
        theirs = error_of(refused)["conflict"]["theirs"]
        assert (theirs["committed-by"], theirs["key"]) == (None, None)
