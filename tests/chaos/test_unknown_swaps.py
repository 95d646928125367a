"""COMMIT failed and nobody knows: the service looks, answers what is true, and deletes nothing that lives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.errors import BadInput, CommitUnknown, HeadgateError, NotFound, Overloaded, StorageFailed
from headgate.store.base import Entry, EntryId, KeyRecord, Levels, Operation, Refused, Store
from headgate.store.memory import MemoryStore
from tests.chaos.raw_commits import build_commit, build_transaction, count_events, path_of, snapshot_ids
from tests.chaos.rest import NS, SCHEMA, Call, table_path
from tests.service.app_client import AppClient, app_client

Do = Callable[[], None]


class UnsureStore:
    """A store whose next writes end as they are told to; everything else is the real store's."""

    def __init__(self, store: Store) -> None:
        self.real = store
        self.endings: list[Callable[[Do], None]] = []
        self.after_key: list[Do] = []  # run between the look for a key and whatever comes next
        self.after_heads: list[Do] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        """See `Store`."""
        if not self.endings:
            return self.real.write(operations)
        self.endings.pop(0)(lambda: self._apply(operations))
        raise CommitUnknown("COMMIT failed: the connection is gone; look for the key")

    def _apply(self, operations: Sequence[Operation]) -> None:
        self.real.write(operations)

    def load_key(self, principal: str, key: str) -> KeyRecord | None:
        """See `Store`."""
        found = self.real.load_key(principal, key)
        _run_one(self.after_key)
        return found

    def load_entries(
        self,
        names: Sequence[tuple[Levels, str]],
        *,
        known: Mapping[EntryId, tuple[int, int, int]] | None = None,
    ) -> list[Entry | None]:
        """See `Store`."""
        found = self.real.load_entries(names, known=known)
        if threading.current_thread().name != "headgate-housekeeper":  # it is the commit that looks
            _run_one(self.after_heads)
        return found


def _run_one(actions: list[Do]) -> None:
    if actions:
        actions.pop(0)()


def lands(apply: Do) -> None:
    """The transaction is in, the answer is lost."""
    apply()


def fails(_: Do) -> None:
    """The transaction is not in."""


@pytest.fixture
def store() -> UnsureStore:
    return UnsureStore(MemoryStore())


@pytest.fixture(params=[1 << 20, 0], ids=["inline", "checkpointed"])
def client(request: pytest.FixtureRequest, tmp_path: Path, store: UnsureStore) -> Iterator[AppClient]:
    given: Any = store
    with app_client(
        tmp_path, store=given, metadata_inline_bytes=request.param, checkpoint_interval_s=0.01
    ) as client:
        client.services.housekeeper.start()
        assert client.post("/v1/namespaces", {"namespace": [NS]}).status_code == 200
        yield client


def ask(client: AppClient, call: Call) -> httpx.Response:
    return client.request(call.method, call.path, call.body, headers={"Idempotency-Key": call.key})


def create(client: AppClient, name: str) -> dict[str, Any]:
    made = client.post(f"/v1/namespaces/{NS}/tables", {"name": name, "schema": SCHEMA})
    metadata: dict[str, Any] = made.json()["metadata"]
    return metadata


def load(client: AppClient, name: str) -> dict[str, Any]:
    metadata: dict[str, Any] = client.get(table_path(name)).json()["metadata"]
    return metadata


def every_file_is_there(client: AppClient, *names: str) -> None:
    """The metadata file of each head is on the disk, at once or as soon as its checkpoint is written."""
    client.services.housekeeper.close()
    for name in names:
        found = client.get(table_path(name))
        assert found.status_code == 200, found.text
        assert path_of(found.json()["metadata-location"]).exists(), name
        assert all(path_of(one["metadata-file"]).exists() for one in found.json()["metadata"]["metadata-log"])


@pytest.mark.parametrize("endings", [[lands], [fails], [fails, fails, lands], [fails] * 5], ids=len)
def test_a_commit_of_unknown_outcome_is_answered_200_and_is_there_once(
    client: AppClient, store: UnsureStore, endings: list[Callable[[Do], None]]
) -> None:
    commit = build_commit("t", create(client, "t"))
    store.endings = list(endings)
    call = commit.call()
    for _ in range(2):
        answer = ask(client, call)
        assert answer.status_code == 200, answer.text
        assert answer.json()["metadata"]["current-snapshot-id"] == commit.snapshot_id
    assert snapshot_ids(load(client, "t")) == [commit.snapshot_id]
    assert count_events(store.real)[call.key] == 1
    every_file_is_there(client, "t")


@pytest.mark.parametrize("ending", [lands, fails])
def test_a_transaction_of_unknown_outcome_is_whole_and_there_once(
    client: AppClient, store: UnsureStore, ending: Callable[[Do], None]
) -> None:
    commits = [build_commit(name, create(client, name)) for name in ("a", "b")]
    store.endings = [ending]
    call = build_transaction(commits)
    assert [ask(client, call).status_code for _ in range(2)] == [204, 204]
    assert [snapshot_ids(load(client, commit.table)) for commit in commits] == [
        [commit.snapshot_id] for commit in commits
    ]
    assert count_events(store.real)[call.key] == 2
    every_file_is_there(client, "a", "b")


@pytest.mark.parametrize("ending", [lands, fails])
@pytest.mark.parametrize("change", ["create", "rename", "drop", "register"])
def test_another_change_of_unknown_outcome_is_reported_so_and_made_once_when_asked_again(
    client: AppClient, store: UnsureStore, change: str, ending: Callable[[Do], None]
) -> None:
    create(client, "t")
    place = client.get(table_path("t")).json()["metadata-location"]
    if change == "register":
        assert client.delete(table_path("t")).status_code == 204
    calls = {
        "create": Call("POST", f"/v1/namespaces/{NS}/tables", {"name": "u", "schema": SCHEMA}),
        "rename": Call("POST", "/v1/tables/rename", {"source": ident("t"), "destination": ident("u")}),
        "drop": Call("DELETE", table_path("t")),
        "register": Call("POST", f"/v1/namespaces/{NS}/register", {"name": "u", "metadata-location": place}),
    }
    store.endings = [ending]
    first = ask(client, calls[change])
    assert (first.status_code, first.json()["error"]["type"]) == (500, "CommitStateUnknownException")
    again = [ask(client, calls[change]) for _ in range(2)]
    assert {answer.status_code for answer in again} == {200 if change in ("create", "register") else 204}
    assert count_events(store.real)[calls[change].key] == 1
    assert path_of(place).exists()
    every_file_is_there(client, *{"create": ("t", "u"), "drop": ()}.get(change, ("u",)))


def ident(name: str) -> dict[str, Any]:
    return {"namespace": [NS], "name": name}


@pytest.mark.parametrize("moment", ["after_key", "after_heads"])
def test_a_commit_that_lands_while_the_service_looks_for_it_keeps_its_file(
    client: AppClient, store: UnsureStore, moment: str
) -> None:
    commit = build_commit("t", create(client, "t"))
    call = commit.call()

    def lands_later(apply: Do) -> None:
        getattr(store, moment).append(apply)

    store.endings = [lands_later]
    answer = ask(client, call)
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata"]["current-snapshot-id"] == commit.snapshot_id
    assert snapshot_ids(load(client, "t")) == [commit.snapshot_id]
    every_file_is_there(client, "t")


def test_a_create_that_lands_while_the_service_looks_for_it_keeps_its_file(
    client: AppClient, store: UnsureStore
) -> None:
    staged = {"name": "t", "schema": SCHEMA, "stage-create": True}
    metadata = client.post(f"/v1/namespaces/{NS}/tables", staged).json()["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "set-location", "location": metadata["location"]},
        {"action": "add-schema", "schema": metadata["schemas"][0], "last-column-id": 1},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]
    call = Call("POST", table_path("t"), {"requirements": [{"type": "assert-create"}], "updates": updates})
    store.endings = [store.after_key.append]
    answer = ask(client, call)
    assert answer.status_code == 200, answer.text
    every_file_is_there(client, "t")


FAILURES = [
    StorageFailed("the database is gone"),
    Overloaded("the database is busy"),
    NotFound("no such file", kind="file"),
    BadInput("not a manifest"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.code)
def test_a_failure_after_an_unknown_swap_is_unknown_and_never_a_sure_refusal(
    client: AppClient, store: UnsureStore, failure: HeadgateError
) -> None:
    commit = build_commit("t", create(client, "t"))
    call = commit.call()

    def fail() -> None:
        raise failure

    def lands_and_goes(apply: Do) -> None:
        apply()
        store.after_heads.append(fail)

    store.endings = [lands_and_goes]
    first = ask(client, call)
    assert (first.status_code, first.json()["error"]["type"]) == (500, "CommitStateUnknownException")
    assert ask(client, call).status_code == 200
    assert snapshot_ids(load(client, "t")) == [commit.snapshot_id]
    every_file_is_there(client, "t")


def test_a_refusal_stored_by_a_twin_with_the_same_key_is_not_taken_for_a_commit(
    client: AppClient, store: UnsureStore, tmp_path: Path
) -> None:
    metadata = create(client, "t")
    ours, theirs = build_commit("t", metadata), build_commit("t", metadata)
    call = ours.call()
    twin: list[httpx.Response] = []
    with app_client(tmp_path, store=store.real) as replica:  # this one's gate is busy with the first request

        def they_win_and_the_twin_is_refused(_: Do) -> None:
            assert ask(replica, theirs.call()).status_code == 200
            twin.append(ask(replica, call))

        store.endings = [they_win_and_the_twin_is_refused]
        answer = ask(client, call)
        assert [twin[0].status_code, answer.status_code] == [409, 409], answer.text
        assert snapshot_ids(load(client, "t")) == [theirs.snapshot_id]
        assert ask(client, call).status_code == 409


def test_the_same_request_from_many_threads_at_once_commits_once(
    client: AppClient, store: UnsureStore
) -> None:
    commit = build_commit("t", create(client, "t"))
    call = commit.call()
    start = threading.Barrier(8)

    def work(_: int) -> int:
        start.wait()
        return ask(client, call).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(8))) == {200}
    assert snapshot_ids(load(client, "t")) == [commit.snapshot_id]
    assert count_events(store.real)[call.key] == 1
    every_file_is_there(client, "t")


def test_a_table_renamed_before_its_checkpoint_gets_its_file_under_the_new_name(
    tmp_path: Path, store: UnsureStore
) -> None:
    given: Any = store
    with app_client(tmp_path, store=given, metadata_inline_bytes=0, checkpoint_interval_s=3600) as client:
        assert client.post("/v1/namespaces", {"namespace": [NS]}).status_code == 200
        commit = build_commit("t", create(client, "t"))
        assert ask(client, commit.call()).status_code == 200
        assert (
            client.post("/v1/tables/rename", {"source": ident("t"), "destination": ident("u")}).status_code
            == 204
        )
        every_file_is_there(client, "u")
