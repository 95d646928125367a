"""The catalog's state in one SQLite file: one writer at a time, readers never wait for it.

Theory. WAL with synchronous=FULL: a COMMIT that returned is on the disk (NORMAL lost acknowledged commits in
508 of 600 replayed power cuts, FULL in none). All writes of a process go through one connection behind a
lock, and begin with BEGIN IMMEDIATE, so that other processes' writers are met there and nowhere later: BUSY
before COMMIT means that nothing happened, and waiting is safe. An error of COMMIT itself is unknown: the
connection is thrown away, and nobody guesses. Reads use other connections, each a view of one moment.

Writes that arrive while another is under way share the next transaction (see `group`), each behind a savepoint:
what is refused or fails is taken back alone. Nobody is answered before COMMIT, not even with a refusal: it may rest
on what a neighbour wrote. So what breaks the transaction, or its COMMIT, is the outcome of all of them.

What commits add is staged, and moved by the next write of another shape (see `sqlite_staged`).

Never lets a `sqlite3.Error` out.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from headgate.errors import (
    BadInput,
    InvariantBroken,
    StorageFailed,
)
from headgate.store import sqlite_facts, sqlite_journal, sqlite_read, sqlite_upkeep, sqlite_write
from headgate.store.base import (
    DoomedFile,
    Entry,
    EntryHeader,
    EntryId,
    Job,
    JournalledFile,
    KeyRecord,
    Kind,
    Levels,
    Namespace,
    Operation,
    Principal,
    Refused,
    StoredEvent,
)
from headgate.store.migrate import LOAD_VERSION
from headgate.store.sqlite_claim import Claim
from headgate.store.sqlite_connect import (
    READER_PRAGMAS,
    WRITER_PRAGMAS,
    Connect,
    connect_sqlite,
    migrate,
    set_up,
    translate,
)
from headgate.store.sqlite_staged import ROWS_MAX, Staged
from headgate.store.sqlite_writer import SqliteWriter

T = TypeVar("T")

_IDLE_READERS_MAX = 8
_BUSY_S = 0.02  # who has written within this time may be expected to write again
_RIDE_S = 0.2  # so long files that are to be dropped wait for the writes of others
_HEADERS_A_PAGE = 500


class SqliteStore:
    """`Store` on a file. `connect` is the seam where tests break a connection."""

    is_near = True

    def __init__(
        self,
        path: str | Path,
        *,
        busy_timeout_ms: int = 10_000,
        connect: Connect = connect_sqlite,
        staged_max: int = ROWS_MAX,
    ) -> None:
        self._path = str(path)
        self._busy_timeout_ms = busy_timeout_ms
        self._connect = connect
        self._staged = Staged(rows_max=staged_max)
        self._writer = SqliteWriter(
            partial(self._open, WRITER_PRAGMAS),
            self._staged,
            path=self._path,
            wait_max_s=busy_timeout_ms / 1000,
        )
        self._readers_lock = threading.Lock()
        self._idle_readers: list[sqlite3.Connection] = []
        self._closed = False
        self._claim = Claim(self._path)
        if not Path(self._path).absolute().parent.is_dir():
            raise BadInput(f"the directory of the database does not exist: {self._path}", field="database")
        self._writer.submit(self._migrate)

    # --- the one write ---------------------------------------------------------------------------------

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        """Apply all of them in one durable transaction, or none."""
        return self._writer.submit(lambda db: self._staged.write(db, operations))

    def at_once(self) -> AbstractContextManager[None]:
        """While it lasts, a write of this thread that would have to wait long for another's raises WouldWait instead."""
        return self._writer.hurry

    def _migrate(self, db: sqlite3.Connection) -> None:
        migrate(db)
        self._staged.move(db)

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a write transaction in which no row is staged."""

        def move_and_work(db: sqlite3.Connection) -> T:
            self._staged.move(db)
            return work(db)

        return self._writer.submit(move_and_work)

    # --- connections -----------------------------------------------------------------------------------

    def _open(self, pragmas: Sequence[str]) -> sqlite3.Connection:
        if self._closed:
            raise StorageFailed("the store is closed")
        return set_up(self._connect(self._path), self._path, pragmas, busy_timeout_ms=self._busy_timeout_ms)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for one read; goes back to the pool unless it failed."""
        try:
            with self._readers_lock:
                db = self._idle_readers.pop() if self._idle_readers else None
            if db is None:
                db = self._open(READER_PRAGMAS)
        except sqlite3.Error as error:
            raise translate(error) from error
        try:
            yield db
        except BaseException as error:
            db.close()
            if isinstance(error, sqlite3.Error):
                raise translate(error) from error
            raise
        with self._readers_lock:
            if not self._closed and len(self._idle_readers) < _IDLE_READERS_MAX:
                self._idle_readers.append(db)
                return
        db.close()

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        with self._reading() as db:
            return query(db)

    @property
    def writes_waiting(self) -> int:
        """How many writes wait to share the next transaction."""
        return self._writer.waiting

    def ping(self) -> None:
        """Raise StorageFailed unless the database answers."""
        self._read(lambda db: db.execute(LOAD_VERSION).fetchone())

    def close(self) -> None:
        """Let go of connections. Safe to call twice."""
        with self._writer.lock, self._readers_lock:
            self._closed = True
            for db in self._idle_readers:
                db.close()
            self._idle_readers.clear()
            self._writer.discard()
            self._claim.end()

    # --- reads: see the functions of the same names in `sqlite_read` --------------------------------------

    def load_namespace(self, levels: Levels) -> Namespace | None:
        """One namespace, or None."""
        return self._read(lambda db: sqlite_read.load_namespace(db, levels))

    def list_namespaces(self, parent: Levels, *, after: str | None, limit: int) -> list[Levels]:
        """Direct children of `parent` (the root is `()`), by name; names greater than `after`."""
        return self._read(lambda db: sqlite_read.list_namespaces(db, parent, after, limit))

    def load_header(self, namespace: Levels, name: str) -> EntryHeader | None:
        """The header of the table or view at this name."""
        return self._read(lambda db: sqlite_read.load_header(db, namespace, name))

    def load_header_by_id(self, id: EntryId) -> EntryHeader | None:
        """The header of an entry, whatever its name is now."""
        return self._read(lambda db: sqlite_read.load_header_by_id(db, id))

    def load_entries(
        self,
        names: Sequence[tuple[Levels, str]],
        *,
        known: Mapping[EntryId, tuple[int, int, int]] | None = None,
    ) -> list[Entry | None]:
        """Heads of several entries, read at one point in time, in the order asked."""
        return self._read(lambda db: sqlite_read.load_entries(db, names, known))

    def list_entries(self, namespace: Levels, kind: Kind, *, after: str | None, limit: int) -> list[str]:
        """Names in a namespace, sorted; names greater than `after`."""
        return self._read(lambda db: sqlite_read.list_entries(db, namespace, kind, after, limit))

    def stale_checkpoints(self, *, limit: int) -> list[EntryHeader]:
        """Tables whose newest metadata file is behind their head."""
        return self._read(lambda db: sqlite_read.stale_checkpoints(db, limit))

    def recent_tables(self, *, limit: int) -> list[EntryHeader]:
        """Tables of which the newest events tell, the latest first; only so many events are looked at."""
        return self._read(lambda db: sqlite_read.recent_tables(db, limit))

    def iter_headers(self) -> Iterator[EntryHeader]:
        """Every entry, by namespace and name; page by page, so no transaction stays open between two."""
        after: tuple[Levels, str] = ((), "")
        while page := self._page_after(after):
            yield from page
            after = (page[-1].namespace, page[-1].name)

    def _page_after(self, after: tuple[Levels, str]) -> list[EntryHeader]:
        return self._read(lambda db: sqlite_read.page_of_headers(db, after, _HEADERS_A_PAGE))

    def load_key(self, principal: str, key: str) -> KeyRecord | None:
        """The verdict stored under a key."""
        return self._read(lambda db: sqlite_read.load_key(db, principal, key))

    def load_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], KeyRecord]:
        """The verdicts stored under these (principal, key) pairs, of those that are there."""
        return self._read(lambda db: sqlite_read.load_keys(db, keys))

    def read_events(self, *, after: int, limit: int) -> list[StoredEvent]:
        """Outbox rows after a sequence, in order, never skipping one that commits later."""
        return self._read(lambda db: sqlite_read.read_events(db, after, limit))

    def read_entry_events(self, id: EntryId, *, after: int, limit: int) -> list[StoredEvent]:
        """As `read_events`, of one entry, whatever its names were."""
        return self._read(lambda db: sqlite_read.read_entry_events(db, id, after, limit))

    def find_snapshot_event(self, id: EntryId, snapshot_id: int) -> StoredEvent | None:
        """The newest event that brought this snapshot of an entry; seen as soon as it is committed."""
        return self._read(lambda db: sqlite_read.find_snapshot_event(db, id, snapshot_id))

    def load_principal(self, client_id: str) -> Principal | None:
        """One principal, or None."""
        return self._read(lambda db: sqlite_read.load_principal(db, client_id))

    def list_principals(self) -> list[Principal]:
        """All of them, by client id."""
        return self._read(sqlite_read.list_principals)

    # --- journalled files, footprints, jobs, doomed files: see `sqlite_upkeep`, `sqlite_facts` ---------------------------

    @contextmanager
    def turn(self, id: EntryId, *, timeout_s: float) -> Iterator[bool]:
        """There is one gate in one process: nobody to take turns with."""
        yield True

    def claim(self) -> bool | None:
        """Whether this process holds the lock beside the file."""
        return self._claim.take()

    def read_journal(self, *, before_ms: int, limit: int) -> list[JournalledFile]:
        """Files that may not be durable yet, put before this time, in the order they were put."""
        return self._read(lambda db: sqlite_journal.read_journal(db, before_ms, limit))

    def drop_files(self, locations: Sequence[str]) -> None:
        """These files are durable, or not wanted any more."""
        if time.monotonic() - self._writer.written_at > _BUSY_S:  # nobody writes, so nobody will before long
            self._writer.submit(lambda db: self._staged.drop_files(db, locations))
            return
        ride = self._staged.rides.begin(locations)
        try:
            if not ride.arrived.wait(_RIDE_S):
                self._writer.submit(lambda db: self._staged.finish_ride(db, ride))
        finally:
            self._staged.rides.end(ride)

    def load_footprints(self, id: EntryId, snapshot_ids: Sequence[int]) -> dict[int, bytes]:
        """What these snapshots brought, of those that it is known of."""
        return self._read(lambda db: sqlite_facts.load_footprints(db, id, snapshot_ids))

    def load_job(self, principal: str, id: str) -> Job | None:
        """A job that is not done yet."""
        return self._read(lambda db: sqlite_upkeep.load_job(db, principal, id))

    def claim_jobs(self, *, owner: str, now_ms: int, lease_ms: int, limit: int) -> list[Job]:
        """Jobs that are due and that nobody holds, in the order they were put; held until the lease ends."""
        if not self._read(lambda db: sqlite_upkeep.has_free_job(db, now_ms)):
            return []  # without asking for the write lock
        return self._transact(lambda db: sqlite_upkeep.claim_jobs(db, owner, now_ms, lease_ms, limit))

    def count_jobs(self) -> int:
        """How many are not done yet."""
        return self._read(sqlite_upkeep.count_jobs)

    def read_doomed(self, *, now_ms: int, limit: int) -> list[DoomedFile]:
        """Files whose grace time is over, oldest first."""
        return self._read(lambda db: sqlite_upkeep.read_doomed(db, now_ms, limit))

    def drop_doomed(self, locations: Sequence[str]) -> None:
        """These are deleted, or in use again."""
        self._transact(lambda db: sqlite_upkeep.drop_doomed(db, locations))

    # --- writes outside the log of commits -------------------------------------------------------------

    def expire_keys(self, *, before_ms: int, limit: int) -> int:
        """Forget keys older than this; returns how many."""
        return self._transact(lambda db: sqlite_write.expire_keys(db, before_ms, limit))

    def put_principal(self, principal: Principal) -> None:
        """Create or replace a principal."""
        self._transact(lambda db: sqlite_write.put_principal(db, principal))

    def drop_principal(self, client_id: str) -> bool:
        """False when there was none."""
        return self._transact(lambda db: sqlite_write.drop_principal(db, client_id))

    def load_secret(self, name: str, *, create: bytes) -> bytes:
        """A secret shared by all replicas; stored as `create` if there was none."""
        if (secret := self._read(lambda db: sqlite_read.load_secret(db, name))) is None:
            self._transact(lambda db: sqlite_write.create_secret(db, name, create))
            secret = self._read(lambda db: sqlite_read.load_secret(db, name))
        if secret is None:
            raise InvariantBroken("a secret that was just stored is there")
        return secret
