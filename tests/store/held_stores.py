"""Stores whose COMMIT can be held or broken, so that a test decides which writes share a transaction."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from headgate.store.base import Operation, Refused
from headgate.store.postgres import PostgresStore
from headgate.store.sqlite import SqliteStore
from tests.store.builders import Catalog, put_key

LONG_S = 30.0


@dataclass
class Switch:
    """What the connections of one store do; `commits` counts what they were asked to commit."""

    holds: bool = False
    fails: str = ""  # the COMMIT after the held one: `before` or `after` it landed
    breaks: str = ""  # a statement with this text takes the whole transaction down, once
    commits: int = 0
    held: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def on_commit(self) -> str:
        """Count it, and wait if it is to be held; how it is to fail."""
        self.commits += 1
        if self.holds:
            self.holds = False
            self.held.set()
            assert self.go.wait(LONG_S)
            return ""
        fails, self.fails = self.fails, ""
        return fails

    def is_broken_by(self, statement: str) -> bool:
        if not self.breaks or self.breaks not in statement:
            return False
        self.breaks = ""
        return True


class SwitchedSqlite(sqlite3.Connection):
    switch: Switch

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if self.switch.is_broken_by(sql):
            super().execute("ROLLBACK")
            raise sqlite3.OperationalError("disk I/O error")
        fails = self.switch.on_commit() if sql == "COMMIT" else ""
        if fails == "before":
            raise sqlite3.OperationalError("disk I/O error")
        cursor = super().execute(sql, *parameters)
        if fails == "after":
            raise sqlite3.OperationalError("disk I/O error")
        return cursor

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        if self.switch.is_broken_by(sql):
            super().execute("ROLLBACK")
            raise sqlite3.OperationalError("disk I/O error")
        return super().executemany(sql, rows)


class SwitchedPostgres(psycopg.Connection[tuple[Any, ...]]):
    switch: Switch

    def execute(self, query: Any, *parameters: Any, **options: Any) -> Any:
        fails = self.switch.on_commit() if query == "COMMIT" else ""
        if fails == "after":
            super().execute(query, *parameters, **options)
        if fails or self.switch.is_broken_by(query):
            self.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return super().execute(query, *parameters, **options)


class HeldStore:
    """A store with one place to write at, its switch, and threads that write."""

    def __init__(self, store: SqliteStore | PostgresStore, switch: Switch) -> None:
        self.store, self.switch = store, switch
        self.catalog = Catalog(store)
        self._pool = ThreadPoolExecutor(32)

    def start_behind_a_held_write(self, *writes: list[Operation]) -> list[Future[Refused | None]]:
        """A write of the key `first` stands before its COMMIT; these queue behind it, in order."""
        self.switch.holds = True
        futures = [self._pool.submit(self.store.write, [put_key("first")])]
        assert self.switch.held.wait(LONG_S)
        for count, write in enumerate(writes, 1):
            futures.append(self._pool.submit(self.store.write, write))
            self._wait_until_queued(count)
        self.switch.commits = 0
        return futures[1:]

    def _wait_until_queued(self, count: int) -> None:
        pause = threading.Event()
        for _ in range(30_000):
            if self.store.writes_waiting >= count:
                return
            pause.wait(0.001)
        raise AssertionError(f"{self.store.writes_waiting} of {count} wait")

    def write_together(self, *writes: list[Operation]) -> list[Refused | BaseException | None]:
        """Have these share a transaction; what became of each."""
        futures = self.start_behind_a_held_write(*writes)
        self.switch.go.set()
        return [future.exception(LONG_S) or future.result() for future in futures]

    def close(self) -> None:
        self.switch.go.set()
        self._pool.shutdown()
        self.store.close()


def open_held_sqlite(path: Path) -> HeldStore:
    switch = Switch()

    def connect(path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=SwitchedSqlite)
        db.switch = switch
        return db

    return HeldStore(SqliteStore(path, connect=connect), switch)


def open_held_postgres(url: str) -> HeldStore:
    switch = Switch()
    kind = type("Switched", (SwitchedPostgres,), {"switch": switch})
    # Of two connections one is left for reads: there is one place to write at.
    return HeldStore(PostgresStore(url, connections_max=2, connection_class=kind), switch)
