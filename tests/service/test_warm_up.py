"""What is read ahead at start, and that nothing depends on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import StorageFailed
from headgate.format.footprints import encode_footprint
from headgate.service.warm_up import warm_up
from headgate.store.base import Store
from headgate.store.open import open_store
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import change, commit_change, data_file, head_id
from tests.service.table_calls import append, created, load, local, make_namespace


def _fill(client: AppClient, *names: str, commits: int = 5) -> None:
    make_namespace(client, "a")
    for name in names:
        location = created(client, name)["metadata"]["location"]
        for number in range(commits):
            update = change("append", add_data_files=[data_file(f"{location}/data/{number}.parquet")])
            assert commit_change(client, update, name=name).status_code == 200


class _Counting:
    """Counts how often a store is asked for footprints."""

    def __init__(self, store: Store) -> None:
        self._store, self.footprints = store, 0

    def load_footprints(self, *words: object) -> object:
        self.footprints += 1
        return self._store.load_footprints(*words)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def _open(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path}/catalog.db")


def _judge(client: AppClient, name: str, base: int | None) -> int:
    """A change that must know what the whole window brought."""
    check = {"type": "not-allowed-added-data-files", "filter": {"type": "eq", "term": "id", "value": -1}}
    location = client.get(f"/v1/namespaces/a/tables/{name}").json()["metadata"]["location"]
    update = change(
        "overwrite",
        add_data_files=[data_file(f"{location}/data/judged.parquet")],
        base_snapshot_id=base,
        commit_validations=[check],
    )
    return commit_change(client, update, name=name).status_code


def test_after_a_warm_up_a_window_is_judged_without_asking_the_store_for_what_it_brought(
    tmp_path: Path,
) -> None:
    with app_client(tmp_path, store=_open(tmp_path)) as client:
        _fill(client, "t", commits=1)
        base = head_id(client, "t")
        location = client.get("/v1/namespaces/a/tables/t").json()["metadata"]["location"]
        for number in range(10):
            update = change("append", add_data_files=[data_file(f"{location}/data/w{number}.parquet")])
            assert commit_change(client, update).status_code == 200
    asked = {}
    for budget_s in (0.0, 5.0):
        counting = _Counting(_open(tmp_path))
        with app_client(tmp_path, store=counting) as client:  # type: ignore[arg-type]
            assert warm_up(client.services, budget_s=budget_s) == (1 if budget_s else 0)
            before = counting.footprints
            _judge(client, "t", base)
            asked[budget_s] = counting.footprints - before
    assert asked[0.0] > 0
    assert asked[5.0] == 0


def test_a_table_that_cannot_be_read_is_no_obstacle_to_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with app_client(tmp_path, store=_open(tmp_path)) as client:
        _fill(client, "t")
        created(client, "empty")
        created(client, "broken")
        append(client, name="broken")  # whose manifest list was never written
    with app_client(tmp_path, store=_open(tmp_path)) as client:
        assert warm_up(client.services, budget_s=5.0) == 2
    assert [record.fields["table"] for record in caplog.records] == ["a.broken"]  # type: ignore[attr-defined]


def test_a_damaged_footprint_is_no_obstacle_to_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with app_client(tmp_path, store=_open(tmp_path)) as client:
        _fill(client, "t")
    with app_client(tmp_path, store=_open(tmp_path)) as client:
        whole = encode_footprint([])
        damaged = whole[:2] + b"\xc1"
        monkeypatch.setattr(
            client.services.store, "load_footprints", lambda _, ids: dict.fromkeys(ids, damaged)
        )
        assert warm_up(client.services, budget_s=5.0) == 0


def test_a_store_that_fails_at_start_fails_no_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with app_client(tmp_path) as client:
        _fill(client, "t")

        def fail(**_: object) -> object:
            raise StorageFailed("the database is away")

        monkeypatch.setattr(client.services.store, "recent_tables", fail)
        assert warm_up(client.services, budget_s=5.0) == 0


def test_what_is_judged_for_practice_reads_no_manifest(tmp_path: Path) -> None:
    with app_client(tmp_path, store=_open(tmp_path)) as client:
        _fill(client, "t", commits=2)
        metadata = load(client)["metadata"]
        location = metadata["location"]
        many = [data_file(f"{location}/data/many-{number}.parquet") for number in range(50)]
        assert (
            commit_change(client, change("append", add_data_files=many)).status_code == 200
        )  # no footprint holds them
        lists = {local(one["manifest-list"]) for one in load(client)["metadata"]["snapshots"]}
        manifests = [file for file in (local(location) / "metadata").glob("*.avro") if file not in lists]
        assert len(manifests) == 3
    for file in manifests:
        file.unlink()
    with app_client(tmp_path, store=_open(tmp_path)) as client:
        assert warm_up(client.services, budget_s=5.0) == 1


@pytest.mark.parametrize("type_", ["long", "string", "double"])
def test_a_table_is_read_ahead_whatever_its_columns_are(tmp_path: Path, type_: str) -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "it", "required": False, "type": type_}]}
    with app_client(tmp_path, store=_open(tmp_path)) as client:
        make_namespace(client, "a")
        location = created(client, schema=schema)["metadata"]["location"]
        for number in range(3):
            update = change("append", add_data_files=[data_file(f"{location}/data/{number}.parquet")])
            assert commit_change(client, update).status_code == 200
    with app_client(tmp_path, store=_open(tmp_path)) as client:
        assert warm_up(client.services, budget_s=5.0) == 1
