"""Changes that once went wrong: rows lost, brought back or doubled, and requests that crashed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import Wire, change, commit_change, data_file, head_id, live_paths
from tests.service.table_calls import created, load, make_namespace

_SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "p", "type": "int", "required": False},
        {"id": 3, "name": "d", "type": "double", "required": False},
    ],
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    with app_client(tmp_path) as made:
        make_namespace(made)
        yield made


def _partitioned(client: AppClient, column: int, name: str) -> str:
    spec = {"fields": [{"name": name, "transform": "identity", "source-id": column, "field-id": 1000}]}
    body = {"name": "t", "schema": _SCHEMA, "partition-spec": spec}
    assert client.post("/v1/namespaces/a/tables", body).status_code == 200
    return _data(client)


def _data(client: AppClient) -> str:
    return f"{load(client, 't')['metadata']['location']}/data"


def _vector(path: str, offset: int, target: str) -> Wire:
    return {
        **data_file(path, record_count=1, file_format="puffin"),
        "content": "position-deletes",
        "content-offset": offset,
        "content-size-in-bytes": 10,
        "referenced-data-file": target,
    }


def _refused(answer: Any, status: int) -> Wire:
    assert answer.status_code == status, answer.text
    error: Wire = answer.json()["error"]
    return error


@pytest.mark.parametrize(
    "sneaky", [{"delete_row_filter": True}, {"drop_partitions": [{"spec-id": 0, "partition": []}]}]
)
def test_a_rewrite_of_manifests_removes_no_files(client: AppClient, sneaky: Wire) -> None:
    created(client)
    data = _data(client)
    commit_change(client, change("append", add_data_files=[data_file(f"{data}/a.parquet")]))
    _refused(commit_change(client, change("replace", rewrite_manifests=True, **sneaky)), 400)
    assert live_paths(client, "t") == ["a.parquet"]


def test_overlapping_compactions_do_not_both_land_even_without_a_validation(client: AppClient) -> None:
    created(client)
    data = _data(client)
    a, b = f"{data}/a.parquet", f"{data}/b.parquet"
    commit_change(client, change("append", add_data_files=[data_file(a), data_file(b)]))
    theirs = change(
        "replace", remove_data_files=[a], add_data_files=[data_file(f"{data}/a2.parquet", record_count=5)]
    )
    assert commit_change(client, theirs).status_code == 200
    ours = change(
        "replace", remove_data_files=[a, b], add_data_files=[data_file(f"{data}/c.parquet", record_count=10)]
    )
    assert _refused(commit_change(client, ours), 409)["conflict"]["rule"] == "missing-required-removes"
    assert live_paths(client, "t") == ["a2.parquet", "b.parquet"]


def test_a_path_that_holds_several_deletion_vectors_does_not_name_one(client: AppClient) -> None:
    created(client, properties={"format-version": "3"})
    data = _data(client)
    a, b, puffin = f"{data}/a.parquet", f"{data}/b.parquet", f"{data}/p.puffin"
    commit_change(client, change("append", add_data_files=[data_file(a), data_file(b)]))
    both = [_vector(puffin, 4, a), _vector(puffin, 14, b)]
    assert commit_change(client, change("delete", add_delete_files=both)).status_code == 200
    renewed = [_vector(f"{data}/q.puffin", 4, a)]
    by_path = change("delete", remove_delete_files=[puffin], add_delete_files=renewed)
    error = _refused(commit_change(client, by_path), 400)
    assert error["headgate"]["field"] == "remove-delete-files"
    named = change(
        "delete", remove_delete_files=[{"file-path": puffin, "content-offset": 4}], add_delete_files=renewed
    )
    assert commit_change(client, named).status_code == 200
    assert live_paths(client, "t") == ["a.parquet", "b.parquet", "p.puffin", "q.puffin"]


def test_one_blob_is_no_vector_for_two_data_files(client: AppClient) -> None:
    created(client, properties={"format-version": "3"})
    data = _data(client)
    a, b, puffin = f"{data}/a.parquet", f"{data}/b.parquet", f"{data}/p.puffin"
    commit_change(client, change("append", add_data_files=[data_file(a), data_file(b)]))
    commit_change(client, change("delete", add_delete_files=[_vector(puffin, 4, a)]))
    again = commit_change(client, change("delete", add_delete_files=[_vector(puffin, 4, b)]))
    assert _refused(again, 409)["conflict"]["rule"] == "already-live"


def test_dropping_the_unpartitioned_files_keeps_deletes_that_reach_other_specs(client: AppClient) -> None:
    created(client)
    data = _data(client)
    column = load(client, "t")["metadata"]["schemas"][0]["fields"][0]["id"]
    spec = {"fields": [{"name": "part", "transform": "identity", "source-id": column, "field-id": 1000}]}
    more = [{"action": "add-spec", "spec": spec}]
    body = {"requirements": [], "updates": more}
    assert client.post("/v1/namespaces/a/tables/t", body).status_code == 200
    old, other = data_file(f"{data}/old.parquet"), data_file(f"{data}/x.parquet", spec_id=1, partition=[1])
    assert commit_change(client, change("append", add_data_files=[old, other])).status_code == 200
    deletes = {**data_file(f"{data}/eq.parquet"), "content": "equality-deletes", "equality-ids": [column]}
    assert commit_change(client, change("delete", add_delete_files=[deletes])).status_code == 200
    renewed = change(
        "overwrite",
        drop_partitions=[{"spec-id": 0, "partition": []}],
        add_data_files=[data_file(f"{data}/new.parquet")],
    )
    assert commit_change(client, renewed).status_code == 200
    assert live_paths(client, "t") == ["eq.parquet", "new.parquet", "x.parquet"]


def test_a_partition_overwrite_sees_an_equality_delete_that_reaches_every_spec(client: AppClient) -> None:
    data = _partitioned(client, 2, "p")
    body = {"requirements": [], "updates": [{"action": "add-spec", "spec": {"fields": []}}]}
    assert client.post("/v1/namespaces/a/tables/t", body).status_code == 200
    one = data_file(f"{data}/one.parquet", partition=[1])
    commit_change(client, change("append", add_data_files=[one]))
    base = head_id(client, "t")
    deletes = {
        **data_file(f"{data}/eq.parquet", spec_id=1),
        "content": "equality-deletes",
        "equality-ids": [1],
    }
    assert commit_change(client, change("delete", add_delete_files=[deletes])).status_code == 200
    partition = {"spec-id": 0, "partition": [1]}
    ours = change(
        "overwrite",
        base_snapshot_id=base,
        drop_partitions=[partition],
        add_data_files=[data_file(f"{data}/two.parquet", partition=[1])],
        commit_validations=[{"type": "not-allowed-added-delete-files", "partitions": [partition]}],
    )
    assert _refused(commit_change(client, ours), 409)["conflict"]["rule"] == "added-delete-files"


@pytest.mark.parametrize(("kind", "value"), [("gt-eq", 0), ("lt", 9), ("lt-eq", 1), ("gt", 0)])
def test_a_range_filter_passes_over_null_partitions(client: AppClient, kind: str, value: int) -> None:
    data = _partitioned(client, 2, "p")
    files = [
        data_file(f"{data}/one.parquet", partition=[1]),
        data_file(f"{data}/null.parquet", partition=[None]),
    ]
    assert commit_change(client, change("append", add_data_files=files)).status_code == 200
    row_filter = {"type": kind, "term": "p", "value": value}
    assert commit_change(client, change("delete", delete_row_filter=row_filter)).status_code == 200
    assert live_paths(client, "t") == ["null.parquet"]


def test_not_above_two_does_not_remove_a_partition_of_nan(client: AppClient) -> None:
    data = _partitioned(client, 3, "d")
    files = [
        data_file(f"{data}/nan.parquet", partition=["NaN"]),
        data_file(f"{data}/one.parquet", partition=[1.0]),
    ]
    assert commit_change(client, change("append", add_data_files=files)).status_code == 200
    row_filter = {"type": "not", "child": {"type": "gt", "term": "d", "value": 2.0}}
    assert commit_change(client, change("delete", delete_row_filter=row_filter)).status_code == 200
    assert live_paths(client, "t") == ["nan.parquet"]


def test_one_file_is_not_live_under_two_spellings(client: AppClient) -> None:
    created(client)
    data = _data(client)
    commit_change(client, change("append", add_data_files=[data_file(f"{data}/a.parquet")]))
    for spelling in (data.replace("file:///", "file:/"), data.removeprefix("file://")):
        again = change("append", add_data_files=[data_file(f"{spelling}/a.parquet")])
        assert _refused(commit_change(client, again), 409)["conflict"]["rule"] == "already-live"
    pair = [data_file(f"{data}/b.parquet"), data_file(f"{data.replace('file:///', 'file:/')}/b.parquet")]
    _refused(commit_change(client, change("append", add_data_files=pair)), 400)
    assert live_paths(client, "t") == ["a.parquet"]


def test_a_rewrite_does_not_make_rows_younger_than_its_base(client: AppClient) -> None:
    created(client)
    data = _data(client)
    commit_change(client, change("append", add_data_files=[data_file(f"{data}/a.parquet")]))
    base = head_id(client, "t")
    commit_change(client, change("append", add_data_files=[data_file(f"{data}/b.parquet")]))
    ours = change(
        "replace",
        base_snapshot_id=base,
        remove_data_files=[f"{data}/a.parquet"],
        add_data_files=[data_file(f"{data}/c.parquet")],
        add_data_files_sequence_number=2,
    )
    assert _refused(commit_change(client, ours), 400)["headgate"]["field"].endswith("sequence-number")
