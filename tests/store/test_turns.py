"""Taking turns at an entry: with oneself always, with other processes by PostgreSQL's locks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from headgate.store.base import Store
from headgate.store.postgres import PostgresStore
from tests.store.builders import Catalog, namespace, new_id

LONG_S = 30.0
SHORT_S = 0.01


def test_a_turn_that_nobody_else_wants_is_ours_again_and_again(store: Store) -> None:
    id = new_id()
    for _ in range(3):
        with store.turn(id, timeout_s=SHORT_S) as ours:
            assert ours


def test_turns_at_different_entries_do_not_meet(store: Store) -> None:
    with store.turn(new_id(), timeout_s=SHORT_S) as one, store.turn(new_id(), timeout_s=SHORT_S) as other:
        assert one
        assert other


def test_an_error_in_a_turn_ends_it(store: Store) -> None:
    id = new_id()
    with pytest.raises(KeyError), store.turn(id, timeout_s=SHORT_S):
        raise KeyError
    with store.turn(id, timeout_s=SHORT_S) as ours:
        assert ours


# --- two replicas on PostgreSQL --------------------------------------------------------------------------


@pytest.fixture
def replicas(emptied_postgres_url: str) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    stores = PostgresStore(emptied_postgres_url), PostgresStore(emptied_postgres_url)
    yield stores
    for store in stores:
        store.close()


@pytest.mark.postgres
@pytest.mark.parametrize("timeout_s", [SHORT_S, 0.0])
def test_a_turn_that_another_has_does_not_come_in_time_and_then_does(
    replicas: tuple[PostgresStore, PostgresStore], timeout_s: float
) -> None:
    one, other = replicas
    id = new_id()
    with one.turn(id, timeout_s=LONG_S) as ours:
        assert ours
        with other.turn(id, timeout_s=timeout_s) as theirs:
            assert not theirs
    with other.turn(id, timeout_s=LONG_S) as theirs:
        assert theirs


@pytest.mark.postgres
def test_who_waits_gets_the_turn_when_it_ends(replicas: tuple[PostgresStore, PostgresStore]) -> None:
    one, other = replicas
    id = new_id()
    inside: list[str] = []
    asked = threading.Event()

    def wait() -> None:
        asked.set()
        with other.turn(id, timeout_s=LONG_S) as theirs:
            inside.append(f"other {theirs}")

    with one.turn(id, timeout_s=LONG_S):
        waiter = threading.Thread(target=wait)
        waiter.start()
        assert asked.wait(LONG_S)
        inside.append("one")
    waiter.join(LONG_S)
    assert inside == ["one", "other True"]


@pytest.mark.postgres
def test_more_turns_than_connections_are_not_waited_for_and_reads_and_writes_go_on(
    replicas: tuple[PostgresStore, PostgresStore],
) -> None:
    store, _ = replicas
    with ExitStack() as stack:
        turns = [stack.enter_context(store.turn(new_id(), timeout_s=LONG_S)) for _ in range(12)]
        assert turns == [True] * 8 + [False] * 4
        Catalog(store).must(namespace("a"))
        assert store.load_namespace(("a",)) is not None
    with store.turn(new_id(), timeout_s=LONG_S) as ours:
        assert ours


@pytest.mark.postgres
def test_a_lost_connection_costs_the_turn_and_the_next_one_has_a_new_connection(
    replicas: tuple[PostgresStore, PostgresStore], emptied_postgres_url: str
) -> None:
    one, other = replicas
    id = new_id()

    def end_all_connections() -> None:
        with psycopg.connect(emptied_postgres_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    with one.turn(id, timeout_s=LONG_S) as ours:
        assert ours
        end_all_connections()
        with other.turn(id, timeout_s=LONG_S) as theirs:
            assert theirs
            end_all_connections()
    with other.turn(id, timeout_s=LONG_S) as theirs:
        assert theirs
    end_all_connections()
    with other.turn(id, timeout_s=LONG_S) as theirs:
        assert not theirs
    with other.turn(id, timeout_s=LONG_S) as theirs:
        assert theirs


@pytest.mark.postgres
def test_a_turn_from_a_server_that_is_gone_or_a_store_that_is_closed_is_not_ours(
    emptied_postgres_url: str,
) -> None:
    class Refusing(psycopg.Connection[tuple[Any, ...]]):
        connects = True

        @classmethod
        def connect(cls, *parameters: Any, **options: Any) -> Any:
            if not cls.connects:
                raise psycopg.OperationalError("connection refused")
            return super().connect(*parameters, **options)

    store = PostgresStore(emptied_postgres_url, connection_class=Refusing)
    Refusing.connects = False
    for _ in range(20):
        with store.turn(new_id(), timeout_s=LONG_S) as ours:
            assert not ours
    Refusing.connects = True
    with store.turn(new_id(), timeout_s=LONG_S) as ours:
        assert ours
    store.close()
    with store.turn(new_id(), timeout_s=LONG_S) as ours:
        assert not ours
