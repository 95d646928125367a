"""Write skew: each transaction reads one table and writes the other. With read sets, one of the two is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.store.memory import MemoryStore
from headgate.store.open import open_store
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import (
    NOTHING_ADDED,
    change,
    commit_change,
    data_file,
    head_id,
    live_paths,
    table_change,
    transact,
)
from tests.service.table_calls import (
    created,
    error_of,
    field_of,
    files_below,
    load,
    local,
    make_namespace,
    picture_of,
)

ROUNDS = 15
STORES = ("memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


@dataclass
class World:
    """Two replicas of a service over one store (one, when the store is in memory), with tables x and y."""

    clients: list[AppClient]
    places: dict[str, str]

    @property
    def client(self) -> AppClient:
        return self.clients[0]

    def append(self, table: str, file: str) -> dict[str, Any]:
        """An update that adds one file."""
        return change("append", add_data_files=[data_file(f"{self.places[table]}/data/{file}")])

    def read(self, table: str, **fields: Any) -> dict[str, Any]:
        """A read set of everything in the table as it is now."""
        base = head_id(self.client, table)
        return table_change(
            table, **{"base_snapshot_id": base, "commit_validations": [NOTHING_ADDED], **fields}
        )

    def reads_and_writes(self, reads: str, writes: str, file: str, *, says_so: bool = True) -> Any:
        """A transaction of the skew, built on the heads of this moment."""
        write = table_change(writes, self.append(writes, file))
        return [self.read(reads), write] if says_so else [write]

    def names(self, table: str) -> list[str]:
        return live_paths(self.client, table)


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        if request.param == "memory":
            stores: list[Any] = [MemoryStore()]
        else:
            url = f"sqlite:///{tmp_path / 'catalog.db'}"
            if request.param == "postgres":
                url = request.getfixturevalue("postgres_fresh_url")
            stores = [open_store(url), open_store(url)]
        clients = [stack.enter_context(app_client(tmp_path, store=store)) for store in stores]
        make_namespace(clients[0])
        places = {name: created(clients[0], name)["metadata"]["location"] for name in ("x", "y")}
        made = World(clients, places)
        for name in places:
            answer = commit_change(clients[0], made.append(name, "first"), name=name)
            assert answer.status_code == 200, answer.text
        yield made


def rule_of(answer: httpx.Response) -> str:
    return str(error_of(answer)["conflict"]["rule"])


def unchanged(world: World) -> tuple[object, object]:
    for name in ("x", "y"):  # a load has a metadata file written that is due; that is no change
        load(world.client, name)
    root = local(world.client.services.locations.roots[0])
    return picture_of(world.client.services.store), files_below(root)


# --- one after the other ---------------------------------------------------------------------------------


def test_the_second_of_two_skewed_transactions_is_refused_and_told_who_was_first(world: World) -> None:
    ours = world.reads_and_writes("x", "y", "ours")
    theirs = world.reads_and_writes("y", "x", "theirs")
    assert transact(world.client, *theirs).status_code == 204
    landed = head_id(world.client, "x")
    before = unchanged(world)
    refused = transact(world.clients[-1], *ours)
    assert refused.status_code == 409, refused.text
    conflict = error_of(refused)["conflict"]
    assert conflict["rule"] == "added-data-files"
    assert conflict["theirs"]["snapshot-id"] == landed
    assert conflict["files"] == [f"{world.places['x']}/data/theirs"]
    assert unchanged(world) == before
    assert (world.names("x"), world.names("y")) == (["first", "theirs"], ["first"])


def test_without_read_sets_both_skewed_transactions_commit(world: World) -> None:
    ours = world.reads_and_writes("x", "y", "ours", says_so=False)
    theirs = world.reads_and_writes("y", "x", "theirs", says_so=False)
    assert [transact(world.client, *one).status_code for one in (theirs, ours)] == [204, 204]
    assert (world.names("x"), world.names("y")) == (["first", "theirs"], ["first", "ours"])


def test_a_read_set_does_not_mind_writes_outside_its_filter(world: World) -> None:
    small = {"type": "lt", "term": "id", "value": 100}
    ours = [
        world.read("x", commit_validations=[{**NOTHING_ADDED, "filter": small}]),
        table_change("y", world.append("y", "ours")),
    ]
    bounds = {"keys": [1], "values": [(1000).to_bytes(8, "little").hex()]}
    far = data_file(f"{world.places['x']}/data/far", lower_bounds=bounds, upper_bounds=bounds)
    near = data_file(f"{world.places['x']}/data/near")  # without bounds: it may hold anything
    assert commit_change(world.client, change("append", add_data_files=[far]), name="x").status_code == 200
    assert transact(world.client, *ours).status_code == 204
    assert commit_change(world.client, change("append", add_data_files=[near]), name="x").status_code == 200
    assert rule_of(transact(world.client, *ours)) == "added-data-files"


# --- at once -----------------------------------------------------------------------------------------------


def race(world: World, *bodies: Any) -> list[httpx.Response]:
    """Send all at the same moment, each to another replica."""
    start = threading.Barrier(len(bodies))

    def send(number: int) -> httpx.Response:
        start.wait()
        return transact(world.clients[number % len(world.clients)], *bodies[number])

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(send, range(len(bodies))))


def test_of_two_skewed_transactions_at_once_exactly_one_commits_every_time(world: World) -> None:
    for number in range(ROUNDS):
        answers = race(
            world,
            world.reads_and_writes("x", "y", f"a{number}"),
            world.reads_and_writes("y", "x", f"b{number}"),
        )
        assert sorted(answer.status_code for answer in answers) == [204, 409], [a.text for a in answers]
        assert {rule_of(answer) for answer in answers if answer.status_code == 409} == {"added-data-files"}
    landed = (*world.names("x"), *world.names("y"))
    assert len(landed) == 2 + ROUNDS


def test_without_read_sets_two_skewed_transactions_at_once_both_commit(world: World) -> None:
    for number in range(5):
        answers = race(
            world,
            world.reads_and_writes("x", "y", f"a{number}", says_so=False),
            world.reads_and_writes("y", "x", f"b{number}", says_so=False),
        )
        assert [answer.status_code for answer in answers] == [204, 204]
    assert (len(world.names("x")), len(world.names("y"))) == (6, 6)


def test_of_a_ring_of_skewed_transactions_at_once_one_is_always_refused(world: World) -> None:
    """Three tables, each transaction reads one and writes the next: all three would be a cycle."""
    world.places["z"] = created(world.client, "z")["metadata"]["location"]
    assert commit_change(world.client, world.append("z", "first"), name="z").status_code == 200
    for number in range(10):
        ring = [
            world.reads_and_writes(reads, writes, f"{writes}{number}")
            for reads, writes in (("x", "y"), ("y", "z"), ("z", "x"))
        ]
        statuses = sorted(answer.status_code for answer in race(world, *ring))
        assert statuses in ([204, 204, 409], [204, 409, 409])


def test_a_requirement_on_a_table_that_is_not_changed_holds_until_the_commit(world: World) -> None:
    """The read set of plain clients: a table with requirements and no updates."""
    for number in range(ROUNDS):
        bodies = []
        for reads, writes in (("x", "y"), ("y", "x")):
            fence = {
                "type": "assert-ref-snapshot-id",
                "ref": "main",
                "snapshot-id": head_id(world.client, reads),
            }
            write = table_change(writes, world.append(writes, f"{writes}{number}"))
            bodies.append([table_change(reads, requirements=[fence]), write])
        assert sorted(answer.status_code for answer in race(world, *bodies)) == [204, 409]


# --- other read sets -----------------------------------------------------------------------------------------


def test_a_table_may_be_read_and_changed_in_one_transaction(world: World) -> None:
    stale = world.read("x", updates=[world.append("x", "ours")])
    fresh_y = table_change("y", world.append("y", "ours"))
    assert commit_change(world.client, world.append("x", "theirs"), name="x").status_code == 200
    before = unchanged(world)
    assert rule_of(transact(world.client, stale, fresh_y)) == "added-data-files"
    assert unchanged(world) == before
    fresh = world.read("x", updates=[world.append("x", "ours")])
    assert transact(world.client, fresh, fresh_y).status_code == 204
    assert world.names("x") == ["first", "ours", "theirs"]


def test_a_read_set_on_an_unknown_branch_is_refused_by_name(world: World) -> None:
    before = unchanged(world)
    refused = transact(
        world.client, table_change("y", world.append("y", "ours")), world.read("x", branch="nowhere")
    )
    assert (refused.status_code, field_of(refused)) == (404, "table-changes[1].branch")
    assert "nowhere" in error_of(refused)["message"]
    assert unchanged(world) == before


def test_a_read_set_on_a_branch_looks_at_that_branch_only(world: World) -> None:
    audit = {**world.append("x", "audited"), "branch": "audit", "create-branch": True}
    base = head_id(world.client, "x")
    assert commit_change(world.client, audit, name="x").status_code == 200

    def read(branch: str) -> httpx.Response:
        reads = world.read("x", base_snapshot_id=base, branch=branch)
        return transact(world.client, reads, table_change("y", world.append("y", f"read-{branch}")))

    assert read("main").status_code == 204
    assert rule_of(read("audit")) == "added-data-files"


@pytest.mark.parametrize("answer", [204, 409])
def test_validations_alone_are_answered_and_write_nothing(world: World, answer: int) -> None:
    reads = [world.read("x"), world.read("y")]
    if answer == 409:
        assert commit_change(world.client, world.append("y", "theirs"), name="y").status_code == 200
    before = unchanged(world)
    assert transact(world.client, *reads).status_code == answer
    assert unchanged(world) == before


def test_validations_alone_on_one_table_answer_with_the_table_as_it_is(world: World) -> None:
    before, head = unchanged(world), load(world.client, "x")["metadata-location"]
    body = {key: value for key, value in world.read("x").items() if key != "identifier"}
    answer = world.client.post("/v1/namespaces/a/tables/x", body)
    assert (answer.status_code, answer.json()["metadata-location"]) == (200, head)
    assert unchanged(world) == before


def test_files_that_a_transaction_read_must_still_be_live(world: World) -> None:
    first = f"{world.places['x']}/data/first"
    needs = [{"type": "required-data-files", "file-paths": [first]}]
    reads = world.read("x", commit_validations=needs)
    assert transact(world.client, reads, table_change("y", world.append("y", "one"))).status_code == 204
    removal = change("delete", remove_data_files=[first])
    assert commit_change(world.client, removal, name="x").status_code == 200
    before = unchanged(world)
    refused = transact(world.client, reads, table_change("y", world.append("y", "two")))
    assert (refused.status_code, rule_of(refused)) == (409, "missing-required-removes")
    assert error_of(refused)["conflict"]["files"] == [first]
    assert unchanged(world) == before


def test_a_read_set_from_a_base_that_is_gone_has_diverged(world: World) -> None:
    reads = world.read("x", base_snapshot_id=12345)
    refused = transact(world.client, reads, table_change("y", world.append("y", "ours")))
    assert (refused.status_code, rule_of(refused)) == (409, "unknown-history")
    assert error_of(refused)["headgate"]["code"] == "diverged"


def test_a_read_set_that_is_no_good_names_its_table_and_field(world: World) -> None:
    bad = {**NOTHING_ADDED, "filter": {"type": "eq", "term": "nope", "value": 1}}
    refused = transact(
        world.client,
        table_change("y", world.append("y", "ours")),
        world.read("x", commit_validations=[NOTHING_ADDED, bad]),
    )
    assert refused.status_code == 400
    assert field_of(refused) == "table-changes[1].commit-validations[1].filter"


def test_a_read_set_of_a_table_that_is_not_there_is_refused(world: World) -> None:
    gone = table_change("nope", commit_validations=[NOTHING_ADDED])
    before = unchanged(world)
    assert transact(world.client, table_change("y", world.append("y", "ours")), gone).status_code == 404
    assert unchanged(world) == before


def test_a_read_set_outlives_a_drop_of_its_table_by_no_moment(world: World) -> None:
    reads = world.read("x")
    assert world.client.delete("/v1/namespaces/a/tables/x").status_code == 204
    created(world.client, "x", location=f"{world.places['x']}-again")
    refused = transact(world.client, reads, table_change("y", world.append("y", "ours")))
    assert refused.status_code == 409, refused.text
    assert error_of(refused)["headgate"]["code"] == "diverged"
