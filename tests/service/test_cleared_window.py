"""A delete by filter whose validation cleared the window: it looks at older manifests only, and misses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.store.sqlite import SqliteStore
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import (
    NOTHING_ADDED,
    Wire,
    change,
    commit_change,
    data_file,
    head_id,
    live_paths,
)
from tests.service.table_calls import created, load, local, make_namespace

_ONE = {"type": "eq", "term": "id", "value": 1}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    with app_client(tmp_path) as made:
        make_namespace(made)
        created(made)
        yield made


def _file(client: AppClient, name: str, number: int) -> Wire:
    """A file of which every row has this number."""
    location = load(client)["metadata"]["location"]
    bound = {"keys": [1], "values": [number.to_bytes(8, "little", signed=True).hex()]}
    counts = {"keys": [1], "values": [10]}
    nulls = {"keys": [1], "values": [0]}
    return data_file(
        f"{location}/data/{name}.parquet",
        lower_bounds=bound,
        upper_bounds=bound,
        value_counts=counts,
        null_value_counts=nulls,
    )


def _append(client: AppClient, name: str, number: int) -> None:
    answer = commit_change(client, change("append", add_data_files=[_file(client, name, number)]))
    assert answer.status_code == 200, answer.text


def _delete(client: AppClient, base: int | None, *validations: Wire) -> Any:
    wanted = change(
        "delete",
        base_snapshot_id=base,
        delete_row_filter=_ONE,
        commit_validations=[{**validation, "filter": _ONE} for validation in validations],
    )
    return commit_change(client, wanted)


def test_what_a_compaction_in_the_window_wrote_is_deleted_like_what_it_replaced(client: AppClient) -> None:
    _append(client, "old", 1)
    base = head_id(client, "t")
    location = load(client)["metadata"]["location"]
    compaction = change(
        "replace",
        remove_data_files=[f"{location}/data/old.parquet"],
        add_data_files=[_file(client, "compacted", 1)],
    )
    assert commit_change(client, compaction).status_code == 200
    _append(client, "other", 2)
    assert _delete(client, base, NOTHING_ADDED).status_code == 200
    assert live_paths(client, "t") == ["other.parquet"]


def test_without_the_validation_files_of_the_window_are_deleted_too(client: AppClient) -> None:
    _append(client, "old", 1)
    base = head_id(client, "t")
    _append(client, "new", 1)
    _append(client, "other", 2)
    assert _delete(client, base).status_code == 200
    assert live_paths(client, "t") == ["other.parquet"]


def test_with_the_validation_a_file_of_the_window_that_matches_refuses_the_delete(client: AppClient) -> None:
    _append(client, "old", 1)
    base = head_id(client, "t")
    _append(client, "new", 1)
    answer = _delete(client, base, NOTHING_ADDED)
    assert (answer.status_code, answer.json()["error"]["conflict"]["rule"]) == (409, "added-data-files")


def test_a_validation_by_another_filter_clears_nothing(client: AppClient) -> None:
    _append(client, "old", 1)
    base = head_id(client, "t")
    _append(client, "new", 1)
    wanted = change(
        "delete",
        base_snapshot_id=base,
        delete_row_filter=_ONE,
        commit_validations=[{**NOTHING_ADDED, "filter": {**_ONE, "value": 2}}],
    )
    assert commit_change(client, wanted).status_code == 200
    assert live_paths(client, "t") == []


def test_after_a_restart_manifests_that_footprints_know_are_not_opened(tmp_path: Path) -> None:
    with app_client(tmp_path, store=SqliteStore(tmp_path / "catalog.db")) as client:
        make_namespace(client)
        created(client)
        _append(client, "old", 1)
        base = head_id(client, "t")
        for number in (2, 3):
            _append(client, f"new{number}", number)
        metadata = load(client)["metadata"]
    folder = local(metadata["location"]) / "metadata"
    newer = [s["snapshot-id"] for s in metadata["snapshots"] if s["snapshot-id"] != base]
    for manifest in folder.glob("*-m-*.avro"):
        if any(manifest.name.startswith(str(id_)) for id_ in newer):
            manifest.write_bytes(b"nobody may read this")
    with app_client(tmp_path, store=SqliteStore(tmp_path / "catalog.db")) as client:
        assert _delete(client, base, NOTHING_ADDED).status_code == 200
