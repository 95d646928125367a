"""Refusals that depend on more than one commit: specs that changed, odd statistics, and the evidence on the wire."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import Wire, change, commit_change, data_file, head_id, live_paths
from tests.service.table_calls import committed, created, field_of, load, make_namespace

ID = {"id": 1, "name": "id", "type": "long", "required": False}
P = {"id": 2, "name": "p", "type": "int", "required": False}
Q = {"id": 3, "name": "q", "type": "string", "required": False}
PATH_ID = 2147483546


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    with app_client(tmp_path) as opened:
        make_namespace(opened)
        yield opened


def _schema(*fields: Wire) -> Wire:
    return {"type": "struct", "fields": list(fields)}


def _spec(*fields: tuple[int, str], spec_id: int = 0) -> Wire:
    names = {1: "id", 2: "p", 3: "q"}
    made = [
        {
            "name": names[source] if transform == "identity" else f"{names[source]}_{transform}",
            "transform": transform,
            "source-id": source,
            "field-id": 1000 + i,
        }
        for i, (source, transform) in enumerate(fields)
    ]
    return {"spec-id": spec_id, "fields": made}


def _make(client: AppClient, *, schema: Wire, spec: Wire, version: int = 2) -> str:
    fields: Wire = {"partition-spec": spec, "properties": {"format-version": str(version)}}
    created(client, schema=schema, **fields)
    return str(load(client)["metadata"]["location"])


def _set_spec(client: AppClient, spec: Wire) -> None:
    committed(client, {"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1})


def _set_schema(client: AppClient, schema: Wire) -> None:
    committed(
        client,
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
    )


def _done(client: AppClient, update: Wire) -> None:
    answer = commit_change(client, update)
    assert answer.status_code == 200, answer.text


def _compaction(client: AppClient, folder: str, base: int | None, **more: Any) -> Any:
    check = {"type": "not-allowed-new-deletes-for-data-files", "file-paths": [f"{folder}/data/a"]}
    added = [data_file(f"{folder}/data/b", **more)]
    return commit_change(
        client,
        change(
            "replace",
            base_snapshot_id=base,
            remove_data_files=[f"{folder}/data/a"],
            add_data_files=added,
            commit_validations=[check],
        ),
    )


def _rule_of(answer: Any) -> object:
    return answer.json()["error"]["conflict"]["rule"]


@pytest.mark.parametrize("voids", [(), ((2, "void"),)], ids=["no fields", "only void fields"])
def test_an_equality_delete_of_a_spec_that_divides_nothing_is_seen_by_every_compaction(
    client: AppClient, voids: tuple[tuple[int, str], ...]
) -> None:
    folder = _make(client, schema=_schema(ID, P), spec=_spec((2, "identity")))
    _done(client, change("append", add_data_files=[data_file(f"{folder}/data/a", partition=[1])]))
    base = head_id(client, "t")
    _set_spec(client, _spec(*voids, spec_id=1))
    keys = data_file(f"{folder}/data/e", spec_id=1, partition=[None] * len(voids))
    keys |= {"content": "equality-deletes", "equality-ids": [1]}
    _done(client, change("delete", add_delete_files=[keys]))
    refused = _compaction(client, folder, base, partition=[1])
    assert (refused.status_code, _rule_of(refused)) == (409, "new-deletes-for-data-files")


def test_an_equality_delete_of_nan_is_seen_by_a_compaction_of_nan(client: AppClient) -> None:
    real = {"id": 1, "name": "d", "type": "double", "required": False}
    folder = _make(client, schema=_schema(real), spec=_spec())

    def facts(low: float, high: float) -> Wire:
        def of(value: object) -> Wire:
            return {"keys": [1], "values": [value]}

        return {
            "record_count": 3,
            "value_counts": of(3),
            "null_value_counts": of(0),
            "nan_value_counts": of(1),
            "lower_bounds": of(struct.pack("<d", low).hex()),
            "upper_bounds": of(struct.pack("<d", high).hex()),
        }

    _done(client, change("append", add_data_files=[data_file(f"{folder}/data/a", **facts(1, 2))]))
    base = head_id(client, "t")
    keys = data_file(f"{folder}/data/e", **facts(5, 5))
    keys |= {"content": "equality-deletes", "equality-ids": [1]}
    _done(client, change("delete", add_delete_files=[keys]))
    refused = _compaction(client, folder, base, record_count=3)
    assert (refused.status_code, _rule_of(refused)) == (409, "new-deletes-for-data-files")


def test_path_bounds_of_position_deletes_are_text(client: AppClient) -> None:
    folder = _make(client, schema=_schema(ID), spec=_spec())
    _done(client, change("append", add_data_files=[data_file(f"{folder}/data/a")]))
    bounds = {"keys": [PATH_ID], "values": ["ff"]}
    positions = data_file(f"{folder}/data/p", lower_bounds=bounds, upper_bounds=bounds)
    positions |= {"content": "position-deletes"}
    refused = commit_change(client, change("delete", add_delete_files=[positions]))
    assert refused.status_code == 400
    assert field_of(refused) == "updates[0].add-delete-files[0].lower-bounds"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_files_of_a_spec_whose_source_was_dropped_can_still_be_changed(
    client: AppClient, version: int
) -> None:
    by_both = _spec((2, "identity"), (3, "identity"))
    folder = _make(client, schema=_schema(ID, P, Q), spec=by_both, version=version)
    old = [data_file(f"{folder}/data/{n}", partition=[n, text]) for n, text in enumerate("xyzx")]
    _done(client, change("append", add_data_files=old))
    _set_spec(client, {"spec-id": 1, "fields": _spec((2, "void"), (3, "void"))["fields"]})
    _set_schema(client, _schema(ID, Q))

    late = data_file(f"{folder}/data/late", partition=[9, "x"])
    _done(client, change("append", add_data_files=[late]))
    assert live_paths(client, "t") == ["0", "1", "2", "3", "late"]
    _done(client, change("delete", remove_data_files=[f"{folder}/data/0"]))
    _done(client, change("delete", drop_partitions=[{"spec-id": 0, "partition": [1, "y"]}]))
    assert live_paths(client, "t") == ["2", "3", "late"]
    of_x = {"type": "eq", "term": "q", "value": "x"}
    _done(client, change("delete", delete_row_filter=of_x))
    assert live_paths(client, "t") == ["2"]
    _done(client, change("delete", delete_row_filter=True))
    assert live_paths(client, "t") == []


SCOPES: list[tuple[Wire, object]] = [
    ({"filter": {"type": "eq", "term": "p", "value": 1}}, {"type": "eq", "term": "p", "value": 1}),
    ({"filter": True}, True),
    ({}, None),
    (
        {"partitions": [{"spec-id": 0, "partition": [1]}]},
        {"partitions": [{"spec-id": 0, "partition": [1]}]},
    ),
    ({"filter": {"type": "in", "term": "p", "values": [1, *range(10_000, 13_000)]}}, None),
]


@pytest.mark.parametrize(
    ("scope", "shown"), SCOPES, ids=["a filter", "everything", "no filter", "partitions", "a large filter"]
)
def test_the_filter_of_a_conflict_is_what_the_client_sent_unless_it_is_large(
    client: AppClient, scope: Wire, shown: object
) -> None:
    folder = _make(client, schema=_schema(ID, P), spec=_spec((2, "identity")))
    _done(client, change("append", add_data_files=[data_file(f"{folder}/data/a", partition=[1])]))
    check = {"type": "not-allowed-added-data-files", **scope}
    ours = change(
        "append", add_data_files=[data_file(f"{folder}/data/b", partition=[1])], commit_validations=[check]
    )
    refused = commit_change(client, ours)
    assert refused.status_code == 409
    assert refused.json()["error"]["conflict"]["filter"] == shown
