"""Commits that are known to have landed are answered so, whatever became of their key and of those beside them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import CommitUnknown, HeadgateError, Overloaded, StorageFailed
from headgate.service import jobs
from headgate.store.base import Operation, Refused, SwapEntry
from headgate.store.memory import MemoryStore
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import change, data_file, live_paths
from tests.service.table_calls import commit, created, load, make_namespace, path, ref, snapshot, touch

KEY = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
OTHER = "017f22e2-79b0-7cc3-98c4-dc0c0c073990"
NOTHING_YET = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}]
WAIT_S = 20.0


class Forgetful(MemoryStore):
    """Its next swap lands unheard, and a replica whose clock is ahead forgets the key."""

    forgets = False
    fails_afterwards = False

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        if self.fails_afterwards and not self.forgets:
            raise StorageFailed("the database is away")
        done = super().write(operations)
        if self.forgets and any(isinstance(one, SwapEntry) for one in operations):
            self.forgets = False
            self.expire_keys(before_ms=1 << 60, limit=10_000)
            raise CommitUnknown("the connection broke after COMMIT")
        return done


class Hooked(MemoryStore):
    """Something else happens before its next swap."""

    before: Callable[[], object] | None = None

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        if self.before is not None and any(isinstance(one, SwapEntry) for one in operations):
            before, self.before = self.before, None
            before()
        return super().write(operations)


class Dropping(MemoryStore):
    """Somebody drops or renames the table as soon as its next swap has landed."""

    afterwards: Callable[[], object] | None = None

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        done = super().write(operations)
        if self.afterwards is not None and any(isinstance(one, SwapEntry) for one in operations):
            afterwards, self.afterwards = self.afterwards, None
            afterwards()
        return done


class Away(MemoryStore):
    """It makes no swap while it is away."""

    error: HeadgateError | None = None

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        if self.error is not None and any(isinstance(one, SwapEntry) for one in operations):
            raise self.error
        return super().write(operations)


def location_of(client: AppClient) -> str:
    make_namespace(client)
    return str(created(client)["metadata"]["location"])


def append(location: str, name: str) -> dict[str, Any]:
    return change("append", add_data_files=[data_file(f"{location}/data/{name}.parquet")])


def plain_append(client: AppClient, location: str) -> tuple[dict[str, Any], ...]:
    return snapshot(client, touch(f"{location}/metadata/snap-1.avro"), id=1), ref(1)


@pytest.mark.parametrize("key", [None, KEY])
def test_a_commit_that_is_there_without_its_key_is_answered_and_again(
    tmp_path: Path, key: str | None
) -> None:
    store = Forgetful()
    with app_client(tmp_path, store=store) as client:
        location = location_of(client)
        store.forgets = True
        first = commit(client, append(location, "1"), key=key)
        assert first.status_code == 200, first.text
        if key is not None:  # the same request is the same commit again
            assert commit(client, append(location, "1"), key=key).status_code == 200
        assert len(live_paths(client, "t")) == 1


def test_a_commit_that_is_there_is_unknown_while_its_verdict_cannot_be_stored(tmp_path: Path) -> None:
    store = Forgetful()
    with app_client(tmp_path, store=store) as client:
        location = location_of(client)
        store.forgets, store.fails_afterwards = True, True
        first = commit(client, append(location, "1"), key=KEY)
        assert (first.status_code, first.json()["error"]["type"]) == (500, "CommitStateUnknownException")
        store.fails_afterwards = False
        assert len(live_paths(client, "t")) == 1


def test_a_plain_commit_that_landed_under_another_key_is_answered_under_its_own(tmp_path: Path) -> None:
    store = Hooked()
    with app_client(tmp_path, store=store) as one, app_client(tmp_path, store=store) as two:
        updates = plain_append(one, location_of(one))
        statuses: list[int] = []
        store.before = lambda: statuses.append(
            commit(two, *updates, requirements=NOTHING_YET, key=OTHER).status_code
        )
        mine = commit(one, *updates, requirements=NOTHING_YET, key=KEY)
        assert (mine.status_code, statuses) == (200, [200])
        assert commit(one, *updates, requirements=NOTHING_YET, key=KEY).status_code == 200


def test_a_job_whose_commit_landed_under_another_key_keeps_its_verdict(tmp_path: Path) -> None:
    store = Hooked()
    with app_client(tmp_path, store=store) as one, app_client(tmp_path, store=store) as two:
        updates = plain_append(one, location_of(one))
        body = {"requirements": NOTHING_YET, "updates": list(updates)}
        accepted = one.post(path(), body, headers={"Idempotency-Key": KEY, "Prefer": "respond-async"})
        assert accepted.status_code == 202
        store.before = lambda: commit(two, *updates, requirements=NOTHING_YET, key=OTHER)
        assert jobs.run_due(one.services)
        assert one.get(f"/v1/commits/{KEY}").status_code == 200


@pytest.mark.parametrize("error", [Overloaded("busy; nothing was written"), StorageFailed("away")])
def test_a_member_that_landed_before_is_told_so_though_the_swap_of_the_others_fails(
    tmp_path: Path, error: HeadgateError
) -> None:
    store = Away()
    with app_client(tmp_path, store=store) as client:
        location = location_of(client)
        assert commit(client, append(location, "a"), key=KEY).status_code == 200
        store.error = error
        statuses: dict[str, int] = {}

        def send(name: str, key: str) -> None:
            statuses[name] = commit(client, append(location, name), key=key).status_code

        threads = [threading.Thread(target=send, args=pair) for pair in (("a", KEY), ("b", OTHER))]
        gates, is_queued = client.services.gates, threading.Event()
        with gates.hold([(("a",), "t")]):
            for depth, thread in enumerate(threads, 1):
                thread.start()
                for _ in range(int(WAIT_S * 100)):
                    if gates.depth >= depth:
                        break
                    is_queued.wait(0.01)
            assert gates.depth == len(threads)
        for thread in threads:
            thread.join(WAIT_S)
        assert statuses["a"] == 200
        assert statuses["b"] in (429, 503)


def test_a_register_over_a_table_that_goes_right_afterwards_is_not_said_to_miss_it(tmp_path: Path) -> None:
    store = Dropping()
    with app_client(tmp_path, store=store) as client:
        location_of(client)
        body = {"name": "t", "metadata-location": load(client)["metadata-location"], "overwrite": True}
        store.afterwards = lambda: client.delete(path())
        gone = client.post("/v1/namespaces/a/register", body)
        assert (gone.status_code, gone.json()["error"]["type"]) == (500, "CommitStateUnknownException")
        assert "landed" in gone.json()["error"]["message"]
        assert client.get(path()).status_code == 404


def test_a_register_over_a_table_that_is_renamed_right_afterwards_is_answered(tmp_path: Path) -> None:
    store = Dropping()
    with app_client(tmp_path, store=store) as client:
        location_of(client)
        location = load(client)["metadata-location"]
        names = [{"namespace": ["a"], "name": name} for name in ("t", "u")]
        rename = {"source": names[0], "destination": names[1]}
        store.afterwards = lambda: client.post("/v1/tables/rename", rename)
        body = {"name": "t", "metadata-location": location, "overwrite": True}
        done = client.post("/v1/namespaces/a/register", body)
        assert (done.status_code, done.json()["metadata-location"]) == (200, location)
        assert load(client, "u")["metadata-location"] == location
