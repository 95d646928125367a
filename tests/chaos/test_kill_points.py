"""kill -9 at every step of every change: all of it or nothing, and the same request again makes it exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate.store.base import Store
from headgate.store.open import open_store
from tests.chaos.crashing_service import Child, Cradle, Crash
from tests.chaos.raw_commits import (
    build_commit,
    build_transaction,
    count_events,
    must_be_sound,
    path_of,
    snapshot_ids,
)
from tests.chaos.rest import (
    NS,
    SCHEMA,
    Call,
    LostAnswerError,
    create_namespace,
    create_table,
    find_table,
    must,
    send,
    settle,
    table_path,
)

DATABASES = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
NEXT_COMMIT_S_MAX = 10.0
CHECKPOINT_S_MAX = 20.0
BYSTANDER = "bystander"


@dataclass(frozen=True)
class Change:
    """A request to be killed in; `found` looks what of it is there, one fact a table; `live` tables stay behind.

    `also` looks at what else must hold when it is there at last; it is told whether the first try had landed.
    """

    call: Call
    found: Callable[[int], list[bool]]
    live: tuple[str, ...]
    events: int = 1
    also: Callable[[int, bool], None] = lambda port, landed: None


def committed_table(port: int, name: str) -> dict[str, Any]:
    """A table with one snapshot."""
    commit = build_commit(name, create_table(port, name))
    metadata: dict[str, Any] = must(settle([port], commit.call()).answer)["metadata"]
    return metadata


def has(port: int, table: str, snapshot_id: int) -> bool:
    found = find_table(port, table)
    ids = [] if found is None else snapshot_ids(found["metadata"])
    assert ids.count(snapshot_id) <= 1
    return snapshot_id in ids


def plan_commit(port: int, name: str) -> Change:
    commit = build_commit(name, committed_table(port, name))
    return Change(commit.call(), lambda port: [has(port, name, commit.snapshot_id)], (name,))


def plan_transaction(port: int, name: str) -> Change:
    names = (f"{name}_a", f"{name}_b")
    commits = [build_commit(one, committed_table(port, one)) for one in names]
    return Change(
        build_transaction(commits),
        lambda port: [has(port, commit.table, commit.snapshot_id) for commit in commits],
        names,
        events=2,
    )


def plan_create(port: int, name: str) -> Change:
    call = Call("POST", f"/v1/namespaces/{NS}/tables", {"name": name, "schema": SCHEMA})
    return Change(call, lambda port: [find_table(port, name) is not None], (name,))


def plan_create_by_commit(port: int, name: str) -> Change:
    staged = {"name": name, "schema": SCHEMA, "stage-create": True}
    metadata = must(send(port, "POST", f"/v1/namespaces/{NS}/tables", staged))["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "set-location", "location": metadata["location"]},
        {"action": "add-schema", "schema": metadata["schemas"][0], "last-column-id": 1},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]
    commit = build_commit(name, metadata)
    body = {"requirements": [{"type": "assert-create"}], "updates": [*updates, *commit.body["updates"]]}
    return Change(
        Call("POST", table_path(name), body), lambda port: [has(port, name, commit.snapshot_id)], (name,)
    )


def plan_rename(port: int, name: str) -> Change:
    committed_table(port, name)
    ends = {
        "source": {"namespace": [NS], "name": name},
        "destination": {"namespace": [NS], "name": f"{name}_new"},
    }

    def found(port: int) -> list[bool]:
        return [find_table(port, name) is None, find_table(port, f"{name}_new") is not None]

    return Change(Call("POST", "/v1/tables/rename", ends), found, (f"{name}_new",))


def plan_drop(port: int, name: str) -> Change:
    committed_table(port, name)
    location = path_of(must(send(port, "GET", table_path(name)))["metadata-location"])

    def found(port: int) -> list[bool]:
        assert location.exists()  # a drop without purge keeps every file
        return [find_table(port, name) is None]

    return Change(Call("DELETE", table_path(name)), found, ())


def plan_purge(port: int, name: str) -> Change:
    committed_table(port, name)
    return Change(
        Call("DELETE", f"{table_path(name)}?purgeRequested=true"),
        lambda port: [find_table(port, name) is None],
        (),
    )


def plan_register(port: int, name: str) -> Change:
    snapshot_id = committed_table(port, name)["current-snapshot-id"]
    location = must(send(port, "GET", table_path(name)))["metadata-location"]
    must(send(port, "DELETE", table_path(name)))
    call = Call("POST", f"/v1/namespaces/{NS}/register", {"name": name, "metadata-location": location})
    return Change(call, lambda port: [has(port, name, snapshot_id)], (name,))


STORE_STEPS = "write.before.1 COMMIT.before.1 | COMMIT.after.1 write.after.1"
# Each change with its steps; what is killed before the bar has not happened, what is killed after it has. Here a
# commit has its metadata file written before the swap.
CHANGES: dict[str, tuple[Callable[[int, str], Change], str]] = {
    "commit": (plan_commit, f"write_new.before.1 write_new.after.1 {STORE_STEPS}"),
    "transaction": (
        plan_transaction,
        f"write_new.before.1 write_new.after.1 write_new.after.2 {STORE_STEPS}",
    ),
    "create": (plan_create, f"write_new.before.1 write_new.after.1 {STORE_STEPS}"),
    "create-by-commit": (plan_create_by_commit, f"write_new.before.1 write_new.after.1 {STORE_STEPS}"),
    "rename": (plan_rename, STORE_STEPS),
    "drop": (plan_drop, STORE_STEPS),
    "purge": (plan_purge, STORE_STEPS),
    "register": (plan_register, STORE_STEPS),
}
# Without that, the metadata file is written after the commit: its steps come after the bar.
CHECKPOINTED = (
    f"{STORE_STEPS} write_new.before.1 write_new.after.1 write.before.2 COMMIT.before.2 write.after.2"
)
LARGE_CHANGES: dict[str, tuple[Callable[[int, str], Change], str]] = {
    "commit": (plan_commit, CHECKPOINTED),
    "transaction": (plan_transaction, f"{CHECKPOINTED} write_new.after.2"),
    "rename": (plan_rename, STORE_STEPS),
}


@dataclass(frozen=True)
class Lake:
    """Services that come and go over one database."""

    cradle: Cradle
    store: Store


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    return str(request.getfixturevalue("postgres_fresh_url"))


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    store = open_store(database)
    yield store
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_a_kill_at_any_step_leaves_all_or_nothing(
    name: str, tmp_path: Path, database: str, store: Store
) -> None:
    options = ("--metadata-inline-bytes", "65536")
    kill_at_each_step(*CHANGES[name], Lake(Cradle(tmp_path, database, options), store))


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE_CHANGES)
def test_a_kill_around_a_checkpoint_loses_no_commit_and_the_file_comes_back(
    name: str, tmp_path: Path, database: str, store: Store
) -> None:
    options = ("--checkpoint-interval-s", "0.05", "--metadata-inline-bytes", "0")
    kill_at_each_step(*LARGE_CHANGES[name], Lake(Cradle(tmp_path, database, options), store))


def kill_at_each_step(plan: Callable[[int, str], Change], steps: str, lake: Lake) -> None:
    """One life after the other over the same database: plan, be killed, come back, look, ask again."""
    child = lake.cradle.start()
    create_namespace(child.port)
    committed_table(child.port, BYSTANDER)
    landed = False
    try:
        for number, step in enumerate(steps.split()):
            if step == "|":
                landed = True
                continue
            change = plan(child.port, f"t{number}")
            wait_for_files(lake.store)
            child.stop()
            kill_in(lake, change, Crash.parse(step))
            child = lake.cradle.start()
            came_through(child, lake.store, change, landed=landed, step=step)
    finally:
        child.stop()


def kill_in(lake: Lake, change: Change, crash: Crash) -> None:
    doomed = lake.cradle.start(crash)
    with suppress(LostAnswerError):  # the usual end; a step behind the answer may let it through
        send(doomed.port, change.call.method, change.call.path, change.call.body, key=change.call.key)
    doomed.wait_for_crash()


def came_through(child: Child, store: Store, change: Change, *, landed: bool, step: str) -> None:
    assert set(change.found(child.port)) == {landed}, step
    assert count_events(store).get(change.call.key, 0) == (change.events if landed else 0), step
    for _ in range(2):
        again = settle([child.port], change.call)
        assert again.answer.is_success, (step, again)
        assert again.elapsed_s < NEXT_COMMIT_S_MAX, step
    assert set(change.found(child.port)) == {True}, step
    assert count_events(store)[change.call.key] == change.events, step
    wait_for_files(store)
    for table in (*change.live, BYSTANDER):
        must_be_sound(child.uri, table)
    change.also(child.port, landed)


def wait_for_files(store: Store) -> None:
    """Every table's metadata file is written up to its head, within seconds, and is there."""
    deadline = time.monotonic() + CHECKPOINT_S_MAX
    while stale := store.stale_checkpoints(limit=100):
        assert time.monotonic() < deadline, f"not written: {[header.name for header in stale]}"
        time.sleep(0.02)
    for header in store.iter_headers():
        assert path_of(header.metadata_location).exists(), header
