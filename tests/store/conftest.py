"""The stores under test: every contract test runs once with each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.store.base import Store
from headgate.store.memory import MemoryStore
from headgate.store.sqlite import SqliteStore
from tests.store.builders import Catalog

STORES = ("memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


@pytest.fixture(scope="session")
def migrated_postgres_url(postgres_url: str) -> str:
    from headgate.store.postgres import PostgresStore

    PostgresStore(postgres_url).close()
    return postgres_url


@pytest.fixture
def emptied_postgres_url(migrated_postgres_url: str) -> str:
    """A database with the schema and no rows."""
    import psycopg

    with psycopg.connect(migrated_postgres_url, autocommit=True) as connection:
        empty_postgres(connection)
    return migrated_postgres_url


def empty_postgres(connection: object) -> None:
    """Back to the state after migration. DELETE is quicker than TRUNCATE for a few rows."""
    for table in (
        "entry_log",
        "entries",
        "namespaces",
        "keys",
        "events",
        "event_snapshots",
        "journal",
        "footprints",
        "jobs",
        "doomed",
        "principals",
        "secrets",
    ):
        connection.execute(f"DELETE FROM {table}")  # type: ignore[attr-defined]
    connection.execute("UPDATE counters SET value = 1 WHERE name = 'namespace-version'")  # type: ignore[attr-defined]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = opener(request, tmp_path)()
    yield opened
    opened.close()


def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """How to open the store of this test's parameter, again and again."""
    match request.param:
        case "memory":
            return MemoryStore
        case "sqlite":
            return lambda: SqliteStore(tmp_path / "catalog.db")
        case _:
            from headgate.store.postgres import PostgresStore

            url = request.getfixturevalue("emptied_postgres_url")
            return lambda: PostgresStore(url)


@pytest.fixture
def catalog(store: Store) -> Catalog:
    return Catalog(store)
