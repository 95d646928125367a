"""Turns of several writers at one table of a SqlCatalog, so that they queue for its head instead of racing for it.

Theory. Of writers that race, one wins and the others have built and written for nothing. Whoever has the turn loads,
builds and swaps undisturbed by others that take turns; those that take none still win or lose by the swap alone. A
courtesy, therefore: nothing is correct because of it, nothing here raises, and whoever gets no turn in time goes on
without one. A process that dies loses its turn with its file or its connection.

PostgreSQL queues by advisory locks, first come, first served. SQLite has no such locks, but all its writers are on one
machine: they lock a file of the temporary folder. The database file itself must not be touched: closing it anywhere
in a process ends SQLite's own locks of that process on it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol
from weakref import WeakKeyDictionary

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.typedef import Identifier
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from headgate.library.roads import Turner

try:
    import fcntl
except ImportError:  # not on Windows: no turns there
    fcntl = None  # type: ignore[assignment]

_SLOTS_MAX = 4  # of the 15 connections that a catalog's engine opens; the others are left for loads and swaps
_HELD = threading.local()


class Turns(Protocol):
    """Turns at one table."""

    @property
    def name(self) -> str:
        """The same for everybody who takes turns with us."""

    def wait(self, timeout_s: float) -> Iterator[bool]:
        """Wait for the turn; a generator that yields whether it is ours, once, and then ends it."""


def find_turner(catalog: SqlCatalog, identifier: Identifier) -> Turner | None:
    """How a writer of this table takes its turn; None where it cannot, or need not."""
    turns = find_turns(catalog, identifier)
    return None if turns is None else partial(take_turn, turns)


def find_turns(catalog: SqlCatalog, identifier: Identifier) -> Turns | None:
    """Where writers of this table queue."""
    url, names = catalog.engine.url, (catalog.name, *identifier)
    match url.get_backend_name():
        case "postgresql":
            return DatabaseTurns(catalog.engine, _name_of(*names))  # the locks are the database's own
        case "sqlite" if fcntl is not None and url.database and url.database != ":memory:":
            return FileTurns(_name_of(os.path.realpath(url.database), *names))
    return None


@contextmanager
def take_turn(turns: Turns, timeout_s: float) -> Iterator[bool]:
    """Wait for the turn, and end it when the block ends; False when it did not come in time."""
    held: set[str] = _HELD.__dict__.setdefault("names", set())
    # Who commits to a table in the middle of a commit to it would wait for himself.
    if timeout_s <= 0 or turns.name in held:
        yield False
        return
    with contextmanager(turns.wait)(timeout_s) as is_ours:
        held.add(turns.name)
        try:
            yield is_ours
        finally:
            held.discard(turns.name)


def _name_of(*words: str) -> str:
    return hashlib.blake2b("\0".join(words).encode(), digest_size=8, person=b"headgate turn").hexdigest()


# --- SQLite -------------------------------------------------------------------------------------------------


class FileTurns:
    """Turns by the lock of a file that only this user can open."""

    def __init__(self, name: str) -> None:
        self.name = name

    def wait(self, timeout_s: float) -> Iterator[bool]:
        """See `Turns`."""
        file = _open_file(self.name)
        if file is None:
            yield False
            return
        claim = _Claim(file)
        try:
            yield claim.take(timeout_s)
        finally:
            claim.end()


def _open_file(name: str) -> int | None:
    folder = Path(tempfile.gettempdir()) / f"headgate-turns-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.lstat().st_uid != os.getuid():  # somebody else made it: what is in it is his
            return None
        return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


_WAITING_MAX = 64  # threads of a process that the system keeps waiting for a lock


class _Claim:
    """One open lock file, closed when its lock is no longer wanted: at the end of the turn, or when it comes too late.

    The system queues who waits for a lock, wakes him at once and knows no timeout: a thread waits in his place, and stays
    behind if he gives up. They are few: beyond a number nobody waits, since somebody must be hanging.
    """

    _waiting = threading.BoundedSemaphore(_WAITING_MAX)

    def __init__(self, file: int) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._answer: SimpleQueue[bool] = SimpleQueue()
        self._is_waiting = self._is_ended = False

    def take(self, timeout_s: float) -> bool:
        """Wait for the lock; False when it did not come in time, or the file system has none."""
        found = self._try(fcntl.LOCK_NB)
        if found is not None:
            return found
        if not self._waiting.acquire(blocking=False):
            return False
        self._is_waiting = True
        threading.Thread(target=self._wait, name="headgate-turn", daemon=True).start()
        try:
            return self._answer.get(timeout=timeout_s)
        except Empty:
            return False

    def end(self) -> None:
        """The lock is not wanted any more."""
        with self._lock:
            self._is_ended = True
            if not self._is_waiting:
                self._close()

    def _wait(self) -> None:
        found = bool(self._try(0))
        with self._lock:
            self._is_waiting = False
            if self._is_ended:
                self._close()
        self._waiting.release()
        self._answer.put(found)

    def _close(self) -> None:
        # Closing alone would leave the lock to a process that was forked meanwhile.
        with suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)
        os.close(self._file)

    def _try(self, mode: int) -> bool | None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | mode)
        except BlockingIOError:
            return None
        except OSError:  # a file system without locks
            return False
        return True


# --- PostgreSQL ---------------------------------------------------------------------------------------------

# A list of columns is computed from the left: the timeout is set before the wait, and for this statement alone.
_TAKE = text("SELECT set_config('lock_timeout', :timeout, true), pg_advisory_lock(:number)")
# All of the session's, which are one or none. One that is granted as its wait ends in an error would stay otherwise.
_GIVE = text("SELECT pg_advisory_unlock_all()")

_SLOTS: WeakKeyDictionary[Engine, threading.BoundedSemaphore] = WeakKeyDictionary()
_SLOTS_LOCK = threading.Lock()


class DatabaseTurns:
    """Turns by an advisory lock of the database."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.name = name
        self._engine = engine
        self._number = int.from_bytes(bytes.fromhex(name), "big", signed=True)
        with _SLOTS_LOCK:
            self._slots = _SLOTS.setdefault(engine, threading.BoundedSemaphore(_SLOTS_MAX))

    def wait(self, timeout_s: float) -> Iterator[bool]:
        """See `Turns`."""
        until_s = time.monotonic() + timeout_s
        if not self._slots.acquire(timeout=timeout_s):
            yield False
            return
        try:
            yield from self._wait(until_s - time.monotonic())
        finally:
            self._slots.release()

    def _wait(self, timeout_s: float) -> Iterator[bool]:
        try:
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        except SQLAlchemyError:
            yield False
            return
        with connection:
            try:
                yield self._take(connection, timeout_s)
            finally:
                _give(connection)

    def _take(self, connection: Connection, timeout_s: float) -> bool:
        timeout = f"{max(1, round(timeout_s * 1000))}ms"  # 0 would be without end
        try:
            connection.execute(_TAKE, {"timeout": timeout, "number": self._number})
        except SQLAlchemyError:
            return False
        return True


def _give(connection: Connection) -> None:
    try:
        connection.execute(_GIVE)
    except SQLAlchemyError:
        connection.invalidate()  # and with it goes the lock
