"""A replica whose swaps another one wins, again and again: a change that commutes is tried for as long as there is time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from headgate.store.base import EntryId, Operation, Refused, Store, SwapEntry
from headgate.store.memory import MemoryStore
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import change, commit_change, data_file, live_paths
from tests.service.job_calls import with_table
from tests.service.table_calls import SCHEMA, load

LOSSES = 25  # more than a conversation has attempts by itself


class Contested:
    """A store before each of whose swaps somebody else has a turn."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.before: Callable[[], None] = lambda: None
        self.turns: list[EntryId] = []  # that are held
        self.refuses_turns = False

    @contextmanager
    def turn(self, id: EntryId, *, timeout_s: float) -> Iterator[bool]:
        if self.refuses_turns:
            yield False
            return
        self.turns.append(id)
        try:
            yield True
        finally:
            self.turns.remove(id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        if any(isinstance(one, SwapEntry) for one in operations):
            self.before()
        return self._store.write(operations)


@contextmanager
def replicas(tmp_path: Path, **settings: Any) -> Iterator[tuple[AppClient, AppClient, Contested]]:
    inner = MemoryStore()
    contested = Contested(inner)
    with (
        app_client(tmp_path, store=inner) as winner,
        app_client(tmp_path, store=cast("Store", contested), **settings) as loser,
    ):
        with_table(winner)
        yield winner, loser, contested
    assert not contested.turns  # once the gates are closed


def append(client: AppClient, location: str, name: str) -> Any:
    return commit_change(client, change("append", add_data_files=[data_file(f"{location}/data/{name}")]))


@pytest.fixture
def names() -> Iterator[str]:
    return iter([f"theirs-{number:03}.parquet" for number in range(10_000)])


def test_an_append_that_lost_more_races_than_a_conversation_tries_lands_once(
    tmp_path: Path, names: Iterator[str]
) -> None:
    with replicas(tmp_path) as (winner, loser, contested):
        location, won = load(winner, "t")["metadata"]["location"], list[str]()

        def win() -> None:
            if len(won) < LOSSES:
                won.append(next(names))
                assert append(winner, location, won[-1]).status_code == 200

        contested.before = win
        answer = append(loser, location, "ours.parquet")
        assert answer.status_code == 200, answer.text
        assert live_paths(winner, "t") == sorted([*won, "ours.parquet"])
        assert len(won) == LOSSES


def test_an_append_that_loses_every_race_is_refused_when_its_time_is_up_and_leaves_nothing(
    tmp_path: Path, names: Iterator[str]
) -> None:
    with replicas(tmp_path, request_timeout_s=2) as (winner, loser, contested):
        location, won = load(winner, "t")["metadata"]["location"], list[str]()

        def win() -> None:
            won.append(next(names))
            assert append(winner, location, won[-1]).status_code == 200

        contested.before = win
        answer = append(loser, location, "ours.parquet")
        assert answer.status_code == 409
        assert "until time was up" in answer.json()["error"]["message"]
        contested.before = lambda: None
        assert live_paths(winner, "t") == sorted(won)


def test_who_knows_nothing_of_a_table_and_loses_a_race_has_its_turn_before_the_next(
    tmp_path: Path, names: Iterator[str]
) -> None:
    with replicas(tmp_path) as (winner, loser, contested):
        location, won = load(winner, "t")["metadata"]["location"], list[str]()

        def win() -> None:
            if not contested.turns:  # as one who takes his turns, and is waited for by who has none
                won.append(next(names))
                assert append(winner, location, won[-1]).status_code == 200

        contested.before = win
        assert append(loser, location, "ours.parquet").status_code == 200
        assert len(won) == 1
        assert append(loser, location, "another.parquet").status_code == 200
        assert len(won) == 1


def test_who_waited_for_a_turn_in_vain_and_loses_a_race_asks_for_it_again(
    tmp_path: Path, names: Iterator[str]
) -> None:
    with replicas(tmp_path) as (winner, loser, contested):
        location, won = load(winner, "t")["metadata"]["location"], list[str]()
        assert append(loser, location, "known.parquet").status_code == 200
        contested.refuses_turns = True

        def win() -> None:
            if not contested.turns:
                won.append(next(names))
                assert append(winner, location, won[-1]).status_code == 200
                contested.refuses_turns = len(won) < 3

        contested.before = win
        assert append(loser, location, "ours.parquet").status_code == 200
        assert len(won) == 3


def test_a_commit_of_several_tables_that_loses_a_race_has_the_turns_of_all_before_the_next(
    tmp_path: Path, names: Iterator[str]
) -> None:
    with replicas(tmp_path) as (winner, loser, contested):
        created = winner.post("/v1/namespaces/a/tables", json={"name": "u", "schema": SCHEMA})
        assert created.status_code == 200, created.text
        location, won = load(winner, "t")["metadata"]["location"], list[str]()

        def win() -> None:
            if len(contested.turns) < 2:
                won.append(next(names))
                assert append(winner, location, won[-1]).status_code == 200

        contested.before = win
        changes = [
            {
                "identifier": {"namespace": ["a"], "name": name},
                "requirements": [],
                "updates": [{"action": "set-properties", "updates": {"owner": "me"}}],
            }
            for name in ("u", "t")
        ]
        answer = loser.post("/v1/transactions/commit", json={"table-changes": changes})
        assert answer.status_code == 204, answer.text
        assert len(won) == 1
