"""The catalog's state in PostgreSQL: many replicas of the service over one database.

Theory. A write is one READ COMMITTED transaction whose rows are guarded by locks and constraints (see
`postgres_write`). Whatever fails before COMMIT is sent did certainly not happen: lost races, deadlocks and
lost connections are run again here, a bounded number of times. An error of COMMIT, or a connection lost in
it, is unknown. Writes that arrive together share a transaction (see `postgres_group`).

The feed. Transactions commit out of the order in which they take numbers from a sequence, so a reader who
goes by such a number skips rows. An event's number is its transaction's id (and its place in it); a reader
takes only numbers below the oldest transaction still running: those have ended, and every later one is above.
A long transaction anywhere in the cluster therefore holds the feed back; it never makes it skip.

Never lets a `psycopg.Error` out, nor a password into a message.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from headgate.errors import HeadgateError, InvariantBroken, Overloaded, StorageFailed
from headgate.store import postgres_read, postgres_upkeep, postgres_write
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
from headgate.store.group import Group, Member, fail_all, tell_all
from headgate.store.migrate import LOAD_VERSION
from headgate.store.postgres_group import (
    BATCHES_MAX,
    MEMBERS_MAX,
    Outcome,
    Told,
    may_join,
    write_together,
)
from headgate.store.postgres_session import (
    commit,
    configure,
    conninfo_of,
    may_pass_later,
    migrate,
    translate,
)
from headgate.store.postgres_turns import Turns
from headgate.store.postgres_upkeep import Connection

T = TypeVar("T")

_ATTEMPTS_MAX = 20
_PAUSE_S, _PAUSE_MAX_S = 0.002, 0.2
_HEADERS_A_PAGE = 500


class PostgresStore:
    """`Store` on a PostgreSQL URL. `connection_class` is the seam where tests break a connection."""

    is_near = False

    def __init__(
        self,
        url: str,
        *,
        connections_max: int = 10,
        wait_max_s: float = 10.0,
        connection_class: type[Connection] = psycopg.Connection,
    ) -> None:
        self._wait_max_s = wait_max_s
        self._group: Group[Sequence[Operation], Outcome] = Group(
            self._write_together,
            members_max=MEMBERS_MAX,
            batches_max=max(1, min(BATCHES_MAX, connections_max - 1)),
            wait_max_s=wait_max_s,
        )
        self._turns = Turns(lambda: connection_class.connect(conninfo_of(url), autocommit=True))
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            conninfo_of(url),
            connection_class=connection_class,
            kwargs={"autocommit": True, "client_encoding": "utf8"},
            configure=configure,
            min_size=1,
            max_size=connections_max,
            timeout=wait_max_s,
            open=False,
        )
        try:
            # The pool would try in silence for as long as it may wait; this says at once what is wrong.
            psycopg.connect(conninfo_of(url)).close()
            self._pool.open()
            self._transact(migrate)
        except psycopg.Error as error:
            raise StorageFailed(f"cannot connect to PostgreSQL: {error}") from error
        except BaseException:
            self._pool.close()
            raise

    # --- the one write ---------------------------------------------------------------------------------

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        """Apply all of them in one durable transaction, or none."""
        if may_join(operations):
            outcome = self._group.submit(operations)
            if not isinstance(outcome, Told):
                return outcome
        return self._transact(lambda db: postgres_write.apply(db, operations))

    def at_once(self) -> AbstractContextManager[None]:
        """It is not near: a write waits all the same."""
        return nullcontext()

    def _write_together(self, members: Sequence[Member[Sequence[Operation], Outcome]]) -> None:
        try:
            db = self._take_connection()
            try:
                outcomes = write_together(db, [member.work for member in members])
            except psycopg.Error as error:
                if not db.closed and not may_pass_later(error):
                    raise translate(error) from error
                outcomes = [Told.WRITE_ALONE] * len(members)
            finally:
                self._give_back(db)
        except HeadgateError as error:
            fail_all(members, error)
        else:
            tell_all(members, outcomes)

    def _transact(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a write transaction; a `Refused` from it rolls back, anything else is committed."""

        def transaction(db: Connection) -> T:
            db.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            outcome = work(db)
            if isinstance(outcome, Refused):
                db.execute("ROLLBACK")
            else:
                commit(db)
            return outcome

        return self._run(transaction)

    def _run(self, body: Callable[[Connection], T]) -> T:
        """Run `body` with a connection, and again while the reason may be gone the next time."""
        deadline = time.monotonic() + self._wait_max_s
        for attempt in range(_ATTEMPTS_MAX):
            db = self._take_connection()
            try:
                return body(db)
            except psycopg.Error as error:
                is_lost = db.closed
                again = is_lost or may_pass_later(error)
                if not again or attempt == _ATTEMPTS_MAX - 1 or time.monotonic() > deadline:
                    raise translate(error) from error
            finally:
                self._give_back(db)
            if is_lost:
                with suppress(PoolClosed):
                    self._pool.check()  # the server was restarted: its other connections are gone as well
            time.sleep(random.uniform(0, min(_PAUSE_S * 2**attempt, _PAUSE_MAX_S)))
        raise InvariantBroken("the last attempt returns or raises")

    def _take_connection(self) -> Connection:
        try:
            return self._pool.getconn()
        except PoolTimeout as error:
            if self._pool.get_stats().get("pool_size", 0) > 0:
                raise Overloaded("all connections to PostgreSQL are in use; nothing was written") from error
            raise StorageFailed("cannot connect to PostgreSQL; nothing was written") from error
        except PoolClosed as error:
            raise StorageFailed("the store is closed") from error

    def _give_back(self, db: Connection) -> None:
        if not db.closed and db.info.transaction_status is not TransactionStatus.IDLE:
            try:
                db.execute("ROLLBACK")
            except psycopg.Error:
                db.close()
        with suppress(PoolClosed):
            self._pool.putconn(db)

    @property
    def writes_waiting(self) -> int:
        """How many writes wait to share the next transaction."""
        return self._group.waiting

    def ping(self) -> None:
        """Raise StorageFailed unless the database answers."""
        self._run(lambda db: db.execute(LOAD_VERSION).fetchone())

    def close(self) -> None:
        """Let go of connections. Safe to call twice."""
        self._turns.close()
        self._pool.close()

    # --- reads: see the functions of the same names in `postgres_read` --------------------------------------

    def claim(self) -> bool | None:
        """Nobody: several services read heads of each other."""
        return None

    def load_namespace(self, levels: Levels) -> Namespace | None:
        """One namespace, or None."""
        return self._run(lambda db: postgres_read.load_namespace(db, levels))

    def list_namespaces(self, parent: Levels, *, after: str | None, limit: int) -> list[Levels]:
        """Direct children of `parent` (the root is `()`), by name; names greater than `after`."""
        return self._run(lambda db: postgres_read.list_namespaces(db, parent, after, limit))

    def load_header(self, namespace: Levels, name: str) -> EntryHeader | None:
        """The header of the table or view at this name."""
        return self._run(lambda db: postgres_read.load_header(db, namespace, name))

    def load_header_by_id(self, id: EntryId) -> EntryHeader | None:
        """The header of an entry, whatever its name is now."""
        return self._run(lambda db: postgres_read.load_header_by_id(db, id))

    def load_entries(
        self,
        names: Sequence[tuple[Levels, str]],
        *,
        known: Mapping[EntryId, tuple[int, int, int]] | None = None,
    ) -> list[Entry | None]:
        """Heads of several entries, read at one point in time, in the order asked."""
        return self._run(lambda db: postgres_read.load_entries(db, names, known))

    def list_entries(self, namespace: Levels, kind: Kind, *, after: str | None, limit: int) -> list[str]:
        """Names in a namespace, sorted; names greater than `after`."""
        return self._run(lambda db: postgres_read.list_entries(db, namespace, kind, after, limit))

    def stale_checkpoints(self, *, limit: int) -> list[EntryHeader]:
        """Tables whose newest metadata file is behind their head."""
        return self._run(lambda db: postgres_read.stale_checkpoints(db, limit))

    def recent_tables(self, *, limit: int) -> list[EntryHeader]:
        """Tables of which the newest events tell, the latest first; only so many events are looked at."""
        return self._run(lambda db: postgres_read.recent_tables(db, limit))

    def iter_headers(self) -> Iterator[EntryHeader]:
        """Every entry, by namespace and name; page by page, so no transaction stays open between two."""
        after: tuple[Levels, str] = ((), "")
        while page := self._page_after(after):
            yield from page
            after = (page[-1].namespace, page[-1].name)

    def _page_after(self, after: tuple[Levels, str]) -> list[EntryHeader]:
        return self._run(lambda db: postgres_read.page_of_headers(db, after, _HEADERS_A_PAGE))

    def load_key(self, principal: str, key: str) -> KeyRecord | None:
        """The verdict stored under a key."""
        return self._run(lambda db: postgres_read.load_key(db, principal, key))

    def load_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], KeyRecord]:
        """The verdicts stored under these (principal, key) pairs, of those that are there."""
        return self._run(lambda db: postgres_read.load_keys(db, keys))

    def read_events(self, *, after: int, limit: int) -> list[StoredEvent]:
        """Outbox rows after a sequence, in order, never skipping one that commits later."""
        return self._run(lambda db: postgres_read.read_events(db, after, limit))

    def read_entry_events(self, id: EntryId, *, after: int, limit: int) -> list[StoredEvent]:
        """As `read_events`, of one entry, whatever its names were."""
        return self._run(lambda db: postgres_read.read_entry_events(db, id, after, limit))

    def find_snapshot_event(self, id: EntryId, snapshot_id: int) -> StoredEvent | None:
        """The newest event that brought this snapshot of an entry; seen as soon as it is committed."""
        return self._run(lambda db: postgres_read.find_snapshot_event(db, id, snapshot_id))

    def load_principal(self, client_id: str) -> Principal | None:
        """One principal, or None."""
        return self._run(lambda db: postgres_read.load_principal(db, client_id))

    def list_principals(self) -> list[Principal]:
        """All of them, by client id."""
        return self._run(postgres_read.list_principals)

    # --- journalled files, footprints, jobs, doomed files: see `postgres_upkeep` -------------------------

    def turn(self, id: EntryId, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Take turns with other processes that swap this entry; True when it is ours."""
        return self._turns.take(id, timeout_s=timeout_s)

    def read_journal(self, *, before_ms: int, limit: int) -> list[JournalledFile]:
        """Files that may not be durable yet, put before this time, in the order they were put."""
        return self._run(lambda db: postgres_upkeep.read_journal(db, before_ms, limit))

    def drop_files(self, locations: Sequence[str]) -> None:
        """These files are durable, or not wanted any more."""
        self._transact(lambda db: postgres_upkeep.drop_files(db, locations))

    def load_footprints(self, id: EntryId, snapshot_ids: Sequence[int]) -> dict[int, bytes]:
        """What these snapshots brought, of those that it is known of."""
        return self._run(lambda db: postgres_upkeep.load_footprints(db, id, snapshot_ids))

    def load_job(self, principal: str, id: str) -> Job | None:
        """A job that is not done yet."""
        return self._run(lambda db: postgres_upkeep.load_job(db, principal, id))

    def claim_jobs(self, *, owner: str, now_ms: int, lease_ms: int, limit: int) -> list[Job]:
        """Jobs that are due and that nobody holds, in the order they were put; held until the lease ends."""
        return self._transact(lambda db: postgres_upkeep.claim_jobs(db, owner, now_ms, lease_ms, limit))

    def count_jobs(self) -> int:
        """How many are not done yet."""
        return self._run(postgres_upkeep.count_jobs)

    def read_doomed(self, *, now_ms: int, limit: int) -> list[DoomedFile]:
        """Files whose grace time is over, oldest first."""
        return self._run(lambda db: postgres_upkeep.read_doomed(db, now_ms, limit))

    def drop_doomed(self, locations: Sequence[str]) -> None:
        """These are deleted, or in use again."""
        self._transact(lambda db: postgres_upkeep.drop_doomed(db, locations))

    # --- writes outside the log of commits -------------------------------------------------------------

    def expire_keys(self, *, before_ms: int, limit: int) -> int:
        """Forget keys older than this; returns how many."""
        return self._transact(lambda db: postgres_write.expire_keys(db, before_ms, limit))

    def put_principal(self, principal: Principal) -> None:
        """Create or replace a principal."""
        self._transact(lambda db: postgres_write.put_principal(db, principal))

    def drop_principal(self, client_id: str) -> bool:
        """False when there was none."""
        return self._transact(lambda db: postgres_write.drop_principal(db, client_id))

    def load_secret(self, name: str, *, create: bytes) -> bytes:
        """A secret shared by all replicas; stored as `create` if there was none."""
        if (secret := self._run(lambda db: postgres_read.load_secret(db, name))) is None:
            self._transact(lambda db: postgres_write.create_secret(db, name, create))
            secret = self._run(lambda db: postgres_read.load_secret(db, name))
        if secret is None:
            raise InvariantBroken("a secret that was just stored is there")
        return secret
