"""A process that writes to a store until it is killed: `python -m tests.store.writer_process URL MODE`.

`hold` stops right before COMMIT, with every lock taken; `race` swaps tables a and b together without end; `group`
swaps many tables from as many threads, so that their commits share transactions. All print a line when there is
something to kill.
"""

from __future__ import annotations

import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from headgate.store.base import PutFootprint, Store
from headgate.store.open import open_store
from headgate.store.postgres import PostgresStore
from headgate.store.sqlite import SqliteStore
from tests.store.builders import Catalog, added, item, put_event, put_file, put_key, swap


def say(line: str) -> None:
    sys.stdout.write(line + "\n")  # one call, so that the lines of two threads do not mix
    sys.stdout.flush()


def hold() -> None:
    say("holding")
    sys.stdin.read()


class HoldingSqlite(sqlite3.Connection):
    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and is_armed:
            hold()
        return super().execute(sql, *parameters)


class HoldingPostgres(psycopg.Connection[tuple[Any, ...]]):
    def execute(self, query: Any, *parameters: Any, **options: Any) -> Any:
        if query == "COMMIT" and is_armed:
            hold()
        return super().execute(query, *parameters, **options)


is_armed = False

GROUP = tuple(f"t{number}" for number in range(6))


def open_holding(url: str) -> Store:
    if url.startswith("postgresql"):
        return PostgresStore(url, connection_class=HoldingPostgres)

    def connect(path: str) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=HoldingSqlite)

    return SqliteStore(url.removeprefix("sqlite:///"), connect=connect)


def swap_both(catalog: Catalog, *, key: str) -> None:
    headers = [catalog.header(name) for name in ("a", "b")]
    at = headers[0].version - 1
    swaps = [swap(header, snapshots=added(item(at, tag=at))) for header in headers]
    catalog.must(swaps[0], put_key(key), put_event("both", key=key), swaps[1])


def swap_one(catalog: Catalog, name: str) -> str:
    """One commit with all that belongs to it; its key."""
    header = catalog.header(name)
    at = header.version - 1
    key = f"{name}-{header.version}"
    catalog.must(
        swap(header, snapshots=added(item(at, tag=at))),
        put_key(key),
        put_event(name, key=key, id=header.id, snapshot_ids=(at,)),
        PutFootprint(header.id, at, key.encode()),
        put_file(key),
    )
    return key


def swap_without_end(catalog: Catalog, name: str) -> None:
    for _ in range(1_000_000):
        say(swap_one(catalog, name))


def main() -> None:
    global is_armed  # noqa: PLW0603 - the one switch of a small process
    url, mode = sys.argv[1:]
    if mode == "hold":
        catalog = Catalog(open_holding(url))
        is_armed = True
        swap_both(catalog, key="held")
        return
    catalog = Catalog(open_store(url))
    if mode == "group":
        with ThreadPoolExecutor(len(GROUP)) as pool:
            list(pool.map(lambda name: swap_without_end(catalog, name), GROUP))
        return
    for count in range(1_000_000):
        swap_both(catalog, key=f"race-{count}")
        say(str(count))


if __name__ == "__main__":
    main()
