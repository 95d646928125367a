"""Whether a store has to look for a manifest list that another snapshot names: not for those that were just made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headgate.store.base import Operation, Refused, SwapEntry
from headgate.store.sqlite import SqliteStore
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import change, commit_change, data_file
from tests.service.table_calls import commit, created, error_of, load, make_namespace, snapshot, touch


class Watched(SqliteStore):
    """Remembers what the swaps said of their tags."""

    said: list[bool]

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        """See `Store`."""
        self.said += [one.tags_are_new for one in operations if isinstance(one, SwapEntry)]
        return super().write(operations)


@pytest.fixture
def store(tmp_path: Path) -> Watched:
    made = Watched(tmp_path / "catalog.db")
    made.said = []
    return made


@pytest.fixture
def client(tmp_path: Path, store: Watched) -> Iterator[AppClient]:
    with app_client(tmp_path, store=store) as made:
        make_namespace(made)
        created(made)
        yield made


def append(client: AppClient, file: str) -> None:
    place = load(client)["metadata"]["location"]
    update = change("append", add_data_files=[data_file(f"{place}/data/{file}")])
    assert commit_change(client, update).status_code == 200


def test_the_list_of_an_append_is_new(client: AppClient, store: Watched) -> None:
    append(client, "one")
    assert store.said == [True]


def test_the_list_of_a_client_is_looked_for(client: AppClient, store: Watched) -> None:
    append(client, "one")
    metadata = load(client)["metadata"]
    fields = {"sequence": 2, "parent_snapshot_id": metadata["current-snapshot-id"]}
    theirs = touch(f"{metadata['location']}/metadata/theirs.avro")
    assert commit(client, snapshot(client, theirs, id=7, **fields)).status_code == 200
    assert store.said == [True, False]
    ours = metadata["snapshots"][0]["manifest-list"]
    refused = commit(client, snapshot(client, ours, id=8, **{**fields, "sequence": 3}))
    assert refused.status_code == 400, error_of(refused)
    assert len(load(client)["metadata"]["snapshots"]) == 2
