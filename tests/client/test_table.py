"""The client's verbs against a real service process: what they commit, and what they are refused for."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tools.service_process import HOST, Service, running_service

from headgate.client import HeadgateClient, TableClient
from headgate.client.keys import new_key
from headgate.errors import BadInput, ConflictFound, Diverged, NotFound

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "cat", "type": "string", "required": False},
    ],
}
SPEC = {"spec-id": 0, "fields": [{"source-id": 2, "field-id": 1000, "name": "cat", "transform": "identity"}]}
IS_A = {"type": "eq", "term": "cat", "value": "a"}
_numbers = count()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running_service(tmp_path_factory.mktemp("client")) as running:
        post(running, "/v1/namespaces", {"namespace": ["lake", "raw"]}, parent=["lake"])
        yield running


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[HeadgateClient]:
    with HeadgateClient(service.uri, timeout_s=20) as connected:
        yield connected


@pytest.fixture
def table(service: Service, client: HeadgateClient) -> TableClient:
    return new_table(service, client)


def post(service: Service, path: str, body: Any, *, parent: list[str] | None = None) -> Any:
    if parent is not None:
        post(service, path, {"namespace": parent})
    connection = http.client.HTTPConnection(HOST, service.port, timeout=20)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        return json.loads(text)
    finally:
        connection.close()


def new_table(service: Service, client: HeadgateClient, **properties: str) -> TableClient:
    name = f"t{next(_numbers)}"
    body = {"name": name, "schema": SCHEMA, "partition-spec": SPEC, "properties": properties}
    post(service, "/v1/namespaces/lake%1Fraw/tables", body)
    return client.table(f"lake.raw.{name}")


def data(table: TableClient, name: str, *, cat: str = "a", rows: int = 10) -> dict[str, Any]:
    """A data file that exists in words only; nothing reads it."""
    return {
        "content": "data",
        "file-path": f"{table.load().location}/data/{name}.parquet",
        "file-format": "parquet",
        "spec-id": 0,
        "partition": [cat],
        "file-size-in-bytes": 100,
        "record-count": rows,
    }


def deletes(table: TableClient, name: str, *, of: dict[str, Any]) -> dict[str, Any]:
    """A position delete file for one data file."""
    file = data(table, name, cat=of["partition"][0], rows=1)
    return {**file, "content": "position-deletes", "referenced-data-file": of["file-path"]}


def total(table: TableClient, branch: str = "main") -> tuple[str, str]:
    """Data files and delete files that are live at a branch's head."""
    loaded = table.load()
    head = loaded.snapshot_id(branch)
    summary = next(s for s in loaded.metadata["snapshots"] if s["snapshot-id"] == head)["summary"]
    return summary["total-data-files"], summary["total-delete-files"]


def test_an_append_is_the_head_and_says_which_snapshot_it_is(table: TableClient) -> None:
    done = table.append([data(table, "one"), data(table, "two", cat="b")], summary={"job": "etl"})
    loaded = table.load(all_snapshots=True)
    assert done.snapshot_id == loaded.snapshot_id()
    assert done.metadata_location == loaded.metadata_location
    assert (done.sequence_number, done.sent) == (1, 1)
    assert loaded.metadata["snapshots"][0]["summary"]["job"] == "etl"
    assert total(table) == ("2", "0")


def test_the_same_key_again_is_the_same_commit(table: TableClient) -> None:
    key, file = new_key(), data(table, "one")
    first = table.append([file], key=key)
    table.append([data(table, "two")])
    again = table.append([file], key=key)
    assert (again.snapshot_id, again.metadata_location) == (first.snapshot_id, first.metadata_location)
    assert total(table) == ("2", "0")


def test_a_branch_is_created_only_when_the_change_says_so(table: TableClient) -> None:
    table.append([data(table, "one")])
    with pytest.raises(NotFound):
        table.append([data(table, "two")], branch="audit")
    table.append([data(table, "two")], branch="audit", create_branch=True)
    assert total(table, "audit") == ("2", "0")
    assert total(table) == ("1", "0")


def test_a_staged_snapshot_moves_no_branch(table: TableClient) -> None:
    table.append([data(table, "one")])
    staged = table.append([data(table, "two")], stage_only=True)
    loaded = table.load(all_snapshots=True)
    assert staged.snapshot_id in {s["snapshot-id"] for s in loaded.metadata["snapshots"]}
    assert staged.snapshot_id != loaded.snapshot_id()


def test_a_serializable_overwrite_is_refused_when_rows_were_added_in_its_scope(table: TableClient) -> None:
    old = data(table, "old")
    base = table.append([old]).snapshot_id
    theirs = table.append([data(table, "theirs")])
    change = {"add": [data(table, "new")], "remove": [old], "base_snapshot_id": base, "conflict_filter": IS_A}
    with pytest.raises(ConflictFound) as caught:
        table.overwrite(**change)
    evidence: Any = caught.value.evidence
    assert evidence["rule"] == "added-data-files"
    assert evidence["theirs"]["snapshot-id"] == theirs.snapshot_id
    assert evidence["files"] == [data(table, "theirs")["file-path"]]
    table.overwrite(**change, isolation="snapshot")
    assert total(table) == ("2", "0")


def test_the_level_of_a_command_is_read_from_the_table(service: Service, client: HeadgateClient) -> None:
    table = new_table(service, client, **{"write.update.isolation-level": "snapshot"})
    old = data(table, "old")
    base = table.append([old]).snapshot_id
    table.append([data(table, "theirs")])
    change = {"add": [data(table, "new")], "remove": [old], "base_snapshot_id": base, "conflict_filter": IS_A}
    with pytest.raises(ConflictFound):
        table.overwrite(**change, command="merge")
    table.overwrite(**change, command="update")


def test_a_row_filter_replaces_every_file_inside_it(table: TableClient) -> None:
    base = table.append([data(table, "a1"), data(table, "a2"), data(table, "b", cat="b")]).snapshot_id
    table.overwrite(add=[data(table, "new")], row_filter=IS_A, base_snapshot_id=base)
    assert total(table) == ("2", "0")


def test_a_delete_takes_files_or_a_filter_and_not_both(table: TableClient) -> None:
    one = data(table, "one")
    table.append([one, data(table, "two", cat="b")])
    table.delete(remove=[one])
    assert total(table) == ("1", "0")
    with pytest.raises(ConflictFound):
        table.delete(remove=[one])
    table.delete(remove=[one["file-path"]], must_exist=False)
    table.delete(row_filter={"type": "eq", "term": "cat", "value": "b"})
    assert total(table) == ("0", "0")
    for wrong in ({}, {"remove": [one], "row_filter": True}):
        with pytest.raises(BadInput):
            table.delete(**wrong)


def test_a_compaction_is_refused_when_rows_of_its_files_were_deleted(table: TableClient) -> None:
    one, two = data(table, "one"), data(table, "two")
    base = table.append([one, two]).snapshot_id
    both = {"remove": [one, two], "add": [data(table, "both", rows=20)], "base_snapshot_id": base}
    table.row_delta(add_deletes=[deletes(table, "d", of=one)], base_snapshot_id=base)
    with pytest.raises(ConflictFound) as caught:
        table.replace(**both)
    assert caught.value.evidence["rule"] == "new-deletes-for-data-files"
    assert total(table) == ("2", "1")


def test_overlapping_compactions_cannot_both_land(table: TableClient) -> None:
    one, two = data(table, "one"), data(table, "two")
    base = table.append([one, two]).snapshot_id
    table.replace(remove=[one, two], add=[data(table, "both", rows=20)], base_snapshot_id=base)
    with pytest.raises(ConflictFound) as caught:
        table.replace(remove=[two], add=[data(table, "other")], base_snapshot_id=base)
    assert caught.value.evidence["rule"] == "missing-required-removes"


def test_a_row_delta_is_refused_when_its_data_file_was_rewritten(table: TableClient) -> None:
    one = data(table, "one")
    base = table.append([one]).snapshot_id
    table.replace(remove=[one], add=[data(table, "other")], base_snapshot_id=base)
    change = {"add_deletes": [deletes(table, "d", of=one)], "base_snapshot_id": base}
    with pytest.raises(ConflictFound) as caught:
        table.row_delta(**change)
    assert caught.value.evidence["rule"] == "missing-data-files"
    with pytest.raises(ConflictFound):
        table.row_delta(**change, add_data=[data(table, "new")], isolation="snapshot")


def test_an_update_by_row_delta_adds_rows_and_deletes(table: TableClient) -> None:
    one = data(table, "one")
    base = table.append([one]).snapshot_id
    done = table.row_delta(
        add_data=[data(table, "new")], add_deletes=[deletes(table, "d", of=one)], base_snapshot_id=base
    )
    assert total(table) == ("2", "1")
    old = deletes(table, "d", of=one)
    table.row_delta(
        add_deletes=[deletes(table, "d2", of=one)], remove_deletes=[old], base_snapshot_id=done.snapshot_id
    )
    assert total(table) == ("2", "1")


def test_a_dynamic_overwrite_replaces_the_partitions_of_its_files(table: TableClient) -> None:
    base = table.append([data(table, "a1"), data(table, "a2"), data(table, "b", cat="b")]).snapshot_id
    table.replace_partitions([data(table, "new"), data(table, "c", cat="c")], base_snapshot_id=base)
    assert total(table) == ("3", "0")
    with pytest.raises(ConflictFound):
        table.replace_partitions([data(table, "late")], base_snapshot_id=base)
    table.replace_partitions([data(table, "late")], isolation=None)
    with pytest.raises(BadInput):
        table.replace_partitions([])


def test_a_base_that_is_not_in_the_history_has_diverged(table: TableClient) -> None:
    table.append([data(table, "one")])
    with pytest.raises(Diverged):
        table.overwrite(add=[data(table, "two")], row_filter=IS_A, base_snapshot_id=123)


def test_plain_updates_go_along_with_changes(table: TableClient) -> None:
    uuid = table.load().metadata["table-uuid"]
    table.commit(
        [
            {"action": "set-properties", "updates": {"owner": "me"}},
            {"action": "append", "add-data-files": [data(table, "one")]},
        ],
        requirements=[{"type": "assert-table-uuid", "uuid": uuid}],
    )
    assert table.load().properties["owner"] == "me"
    assert total(table) == ("1", "0")


def test_an_unknown_level_or_a_bad_file_names_what_is_wrong(table: TableClient) -> None:
    with pytest.raises(BadInput) as caught:
        table.overwrite(add=[data(table, "x")], row_filter=True, isolation="read-committed")
    assert caught.value.field == "isolation"
    with pytest.raises(BadInput) as caught:
        table.append([{**data(table, "x"), "partition": []}])
    assert caught.value.field == "updates[0].add-data-files[0].partition"


def test_a_transaction_lands_in_all_tables_or_in_none(service: Service, client: HeadgateClient) -> None:
    one, two = new_table(service, client), new_table(service, client)
    names = [".".join(one.identifier), ".".join(two.identifier)]
    first = client.transaction()
    for name, table in zip(names, (one, two), strict=True):
        first.table(name).append([data(table, "x")])
    first.commit()
    assert total(one) == total(two) == ("1", "0")
    second = client.transaction()
    second.table(names[0]).append([data(one, "y")])
    second.table(names[1]).append([data(two, "x")])  # it is live already
    with pytest.raises(ConflictFound):
        second.commit()
    assert total(one) == total(two) == ("1", "0")
    with pytest.raises(BadInput):
        second.table(names[0]).append([data(one, "z")], key=new_key())


def test_write_skew_is_refused_when_transactions_say_what_they_read(
    service: Service, client: HeadgateClient
) -> None:
    one, two = new_table(service, client), new_table(service, client)
    bases = [table.append([data(table, "seed")]).snapshot_id for table in (one, two)]
    names = [".".join(one.identifier), ".".join(two.identifier)]
    reads_one, reads_two = client.transaction(), client.transaction()
    reads_one.table(names[0]).reads(base_snapshot_id=bases[0], row_filter=IS_A)
    reads_one.table(names[1]).append([data(two, "new")])
    reads_two.table(names[1]).reads(base_snapshot_id=bases[1], row_filter=IS_A)
    reads_two.table(names[0]).append([data(one, "new")])
    reads_one.commit()
    with pytest.raises(ConflictFound) as caught:
        reads_two.commit()
    assert caught.value.evidence["rule"] == "added-data-files"
    assert total(one) == ("1", "0")
    with pytest.raises(BadInput):
        reads_one.table(names[0]).reads(base_snapshot_id=None)
