"""Turns of several replicas at one entry, by PostgreSQL's advisory locks.

Theory. A turn is a session's lock: who waits for it queues in the database, first come, first served, and a process
that dies loses it with its connection. Each turn, held or waited for, needs a connection; they are few, and apart
from those of reads and writes, so that turns never starve these. Whoever finds none free goes on without a turn.

A courtesy: nothing here raises, and nothing is correct because of it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg

from headgate.store.base import EntryId
from headgate.store.postgres_upkeep import Connection

_CONNECTIONS_MAX = 8


class Turns:
    """The connections that hold turns. `connect` opens one."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._count = 0
        self._closed = False

    @contextmanager
    def take(self, id: EntryId, *, timeout_s: float) -> Iterator[bool]:
        """Wait for the turn; False when it did not come in time, or cannot be known."""
        db = self._borrow()
        if db is None:
            yield False
            return
        try:
            yield _take(db, _number_of(id), timeout_s=timeout_s)
        finally:
            _give(db)
            self._return(db)

    def close(self) -> None:
        """Let go of connections. Safe to call twice."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    def _borrow(self) -> Connection | None:
        with self._lock:
            if self._closed:
                return None
            if self._idle:
                return self._idle.pop()
            if self._count == _CONNECTIONS_MAX:
                return None
            self._count += 1
        db: Connection | None = None
        try:
            with suppress(psycopg.Error):
                db = self._connect()
        finally:
            if db is None:
                self._forget()
        return db

    def _return(self, db: Connection) -> None:
        with self._lock:
            if not self._closed and not db.closed:
                self._idle.append(db)
                return
        db.close()
        self._forget()

    def _forget(self) -> None:
        with self._lock:
            self._count -= 1


def _number_of(id: EntryId) -> int:
    digest = hashlib.blake2b(id.encode(), digest_size=8, person=b"headgate turn").digest()
    return int.from_bytes(digest, "big", signed=True)


# A list of columns is computed from the left: the timeout is set before the wait.
_TAKE = "SELECT set_config('lock_timeout', %s, false), pg_advisory_lock(%s)"


def _take(db: Connection, number: int, *, timeout_s: float) -> bool:
    try:
        db.execute(_TAKE, (f"{max(1, round(timeout_s * 1000))}ms", number))  # 0 would be without end
    except psycopg.Error:
        return False
    return True


# All of the session's, which are one or none. One that is granted as its wait ends in an error would stay otherwise.
_GIVE = "SELECT pg_advisory_unlock_all()"


def _give(db: Connection) -> None:
    try:
        db.execute(_GIVE)
    except psycopg.Error:
        db.close()  # and with it goes the lock
