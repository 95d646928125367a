"""Metadata files of a table, written with the commit or as checkpoints: what enters the log, what is deleted, gzip."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from headgate.format.table_metadata import decode_metadata
from tests.service.app_client import AppClient, app_client
from tests.service.table_calls import (
    append,
    commit,
    committed,
    created,
    load,
    local,
    make_namespace,
    path,
    set_properties,
)

CODEC = "write.metadata.compression-codec"
DELETING = "write.metadata.delete-after-commit.enabled"
KEPT_MAX = "write.metadata.previous-versions-max"


@pytest.fixture(params=[65536, 0], ids=["with-each-commit", "as-checkpoints"])
def client(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[AppClient]:
    """A service that writes metadata files before each commit, and one that leaves them to checkpoints."""
    with app_client(tmp_path, metadata_inline_bytes=request.param, checkpoint_interval_s=3600) as made:
        make_namespace(made)
        yield made


@pytest.fixture
def late(tmp_path: Path) -> Iterator[AppClient]:
    """A service whose metadata files are written only when somebody loads the table."""
    with app_client(tmp_path, metadata_inline_bytes=0, checkpoint_interval_s=3600) as made:
        make_namespace(made)
        yield made


def files_of(answer: dict[str, Any]) -> set[str]:
    """The metadata files that are on disk."""
    folder = local(answer["metadata"]["location"]) / "metadata"
    return {f"file://{file}" for file in folder.glob("*.metadata.json")}


def log_of(answer: dict[str, Any]) -> list[str]:
    return [entry["metadata-file"] for entry in answer["metadata"].get("metadata-log", [])]


def step(client: AppClient, n: int) -> dict[str, Any]:
    """A commit, and a load that has its file written."""
    committed(client, set_properties(step=str(n)))
    return load(client)


# --- the log -----------------------------------------------------------------------------------------------------


def test_every_file_that_was_written_is_in_the_log_or_is_the_heads(client: AppClient) -> None:
    created(client)
    for n in range(4):
        last = step(client, n)
    assert files_of(last) == {*log_of(last), last["metadata-location"]}
    assert len(log_of(last)) == 4


def test_commits_without_a_file_are_not_in_the_log(late: AppClient) -> None:
    first = created(late)["metadata-location"]
    for n in range(5):
        committed(late, set_properties(step=str(n)))
    answer = load(late)  # one file for five commits
    assert log_of(answer) == [first]
    assert files_of(answer) == {first, answer["metadata-location"]}
    committed(late, set_properties(step="more"))
    assert log_of(load(late)) == [first, answer["metadata-location"]]


def test_every_file_of_the_log_can_be_read(client: AppClient) -> None:
    created(client, properties={KEPT_MAX: "3", DELETING: "true"})
    for n in range(6):
        last = step(client, n)
    assert len(log_of(last)) == 3
    for n, place in enumerate(log_of(last)):
        found = decode_metadata(local(place).read_bytes(), location=place, uuid="")
        assert found.envelope.properties["step"] == str(n + 2)


# --- deletion ----------------------------------------------------------------------------------------------------


def test_what_falls_off_the_log_is_deleted_and_nothing_else(client: AppClient) -> None:
    created(client, properties={KEPT_MAX: "2", DELETING: "true"})
    for n in range(6):
        last = step(client, n)
        assert files_of(last) == {*log_of(last), last["metadata-location"]}
    assert len(log_of(last)) == 2


def test_a_smaller_number_deletes_what_it_leaves_out_at_once(client: AppClient) -> None:
    created(client, properties={KEPT_MAX: "5", DELETING: "true"})
    for n in range(6):
        last = step(client, n)
    assert len(files_of(last)) == 6
    committed(client, {"action": "set-properties", "updates": {KEPT_MAX: "1"}})
    last = load(client)
    assert files_of(last) == {*log_of(last), last["metadata-location"]}
    assert len(log_of(last)) == 1


def test_files_stay_when_the_log_is_short_and_deletion_is_not_asked_for(client: AppClient) -> None:
    created(client, properties={KEPT_MAX: "1"})
    for n in range(4):
        last = step(client, n)
    assert len(log_of(last)) == 1
    assert len(files_of(last)) == 5


def test_a_commit_that_is_refused_deletes_nothing(client: AppClient) -> None:
    created(client, properties={KEPT_MAX: "1", DELETING: "true"})
    last = step(client, 1)
    before = files_of(last)
    wrong = [{"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}]
    for n in range(3):
        assert commit(client, set_properties(step=f"x{n}"), requirements=wrong).status_code == 409
    assert files_of(last) == before


def test_a_dropped_tables_last_file_outlives_the_log(late: AppClient) -> None:
    created(late, properties={KEPT_MAX: "1", DELETING: "true"})
    for n in (1, 2, 3):
        assert append(late, id=n).status_code == 200
    last = load(late)
    committed(late, set_properties(step="last"))
    assert late.delete(path()).status_code == 204
    (newest,) = files_of(last) - {*log_of(last), last["metadata-location"]}
    found = decode_metadata(local(newest).read_bytes(), location=newest, uuid="")
    assert found.envelope.properties["step"] == "last"
    assert len(found.snapshots) == 3


# --- gzip --------------------------------------------------------------------------------------------------------


def test_a_table_that_asks_for_gzip_has_all_its_files_so(client: AppClient) -> None:
    created(client, properties={CODEC: "gzip"})
    for n in (1, 2, 3):
        assert append(client, id=n).status_code == 200
        last = load(client)
        assert last["metadata-location"].endswith(".gz.metadata.json")
        data = local(last["metadata-location"]).read_bytes()
        assert json.loads(gzip.decompress(data)) == last["metadata"]
    assert all(place.endswith(".gz.metadata.json") for place in log_of(last))
    assert files_of(last) == {*log_of(last), last["metadata-location"]}


def test_a_table_may_begin_and_cease_to_ask_for_gzip(client: AppClient) -> None:
    created(client)
    committed(client, {"action": "set-properties", "updates": {CODEC: "gzip"}})
    packed = load(client)["metadata-location"]
    assert packed.endswith(".gz.metadata.json")
    committed(client, {"action": "remove-properties", "removals": [CODEC]})
    plain = load(client)["metadata-location"]
    assert not plain.endswith(".gz.metadata.json")
    assert local(packed).read_bytes().startswith(b"\x1f\x8b")
    assert json.loads(local(plain).read_bytes())["location"]


def test_a_foreign_reader_reads_the_gzipped_file(client: AppClient) -> None:
    created(client, properties={CODEC: "gzip"})
    assert append(client, id=1).status_code == 200
    place = load(client)["metadata-location"]
    found = StaticTable.from_metadata(place)
    assert [s.snapshot_id for s in found.snapshots()] == [1]


def test_a_staged_creation_writes_its_first_file_gzipped(client: AppClient) -> None:
    staged = created(client, "s", stage_create=True, properties={CODEC: "gzip"})["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": staged["schemas"][0], "last-column-id": 1},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": staged["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
        {"action": "set-properties", "updates": {CODEC: "gzip"}},
    ]
    answer = commit(client, *updates, name="s", requirements=[{"type": "assert-create"}])
    assert answer.status_code == 200, answer.text
    place = answer.json()["metadata-location"]
    assert place.endswith(".gz.metadata.json")
    assert gzip.decompress(local(place).read_bytes())


def test_old_gzipped_files_are_deleted_when_the_table_asks(client: AppClient) -> None:
    created(client, properties={CODEC: "gzip", KEPT_MAX: "1", DELETING: "true"})
    for n in range(4):
        last = step(client, n)
    assert files_of(last) == {*log_of(last), last["metadata-location"]}
    assert len(files_of(last)) == 2
