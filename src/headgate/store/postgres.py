"""The catalog's state in PostgreSQL: many replicas of the service over one database.

Theory. A write is one READ COMMITTED transaction whose rows are guarded by locks and constraints (see
`postgres_write`). Whatever fails before COMMIT is sent did certainly not happen: lost races, deadlocks and
lost connections are run again here, a bounded number of times. An error of COMMIT, or a connection lost in
it, is unknown.

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
from contextlib import suppress
from typing import TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from headgate.errors import BadInput, CommitUnknown, HeadgateError, InvariantBroken, Overloaded, StorageFailed
from headgate.store import postgres_read, postgres_write
from headgate.store.base import (
    SCHEMA_VERSION_TABLE,
    Entry,
    EntryHeader,
    EntryId,
    KeyRecord,
    Kind,
    Levels,
    Namespace,
    Operation,
    Principal,
    Refused,
    StoredEvent,
)
from headgate.store.migrate import CREATE_VERSIONS, LOAD_VERSION, load_migrations, plan_migrations
from headgate.store.postgres_write import EVENT_BITS, LOCATIONS_LOCK, Connection

T = TypeVar("T")

_ATTEMPTS_MAX = 20
_PAUSE_S, _PAUSE_MAX_S = 0.002, 0.2
_HEADERS_A_PAGE = 500

# A peer that vanished without a word is noticed within seconds, not by the operating system's two hours.
_CONNECTION_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "application_name": "headgate",
}

# Someone else won: the next run sees what he did.
_LOST_RACES = (pg.UniqueViolation, pg.ForeignKeyViolation)
_WAITED_TOO_LONG = (pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable)


class PostgresStore:
    """`Store` on a PostgreSQL URL. `connection_class` is the seam where tests break a connection."""

    def __init__(
        self,
        url: str,
        *,
        connections_max: int = 10,
        wait_max_s: float = 10.0,
        connection_class: type[Connection] = psycopg.Connection,
    ) -> None:
        self._wait_max_s = wait_max_s
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            _conninfo_of(url),
            connection_class=connection_class,
            kwargs={"autocommit": True, "client_encoding": "utf8"},
            configure=_configure,
            min_size=1,
            max_size=connections_max,
            timeout=wait_max_s,
            open=False,
        )
        try:
            # The pool would try in silence for as long as it may wait; this says at once what is wrong.
            psycopg.connect(_conninfo_of(url)).close()
            self._pool.open()
            self._transact(_migrate)
        except psycopg.Error as error:
            raise StorageFailed(f"cannot connect to PostgreSQL: {error}") from error
        except BaseException:
            self._pool.close()
            raise

    # --- the one write ---------------------------------------------------------------------------------

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        """Apply all of them in one durable transaction, or none."""
        return self._transact(lambda db: postgres_write.apply(db, operations))

    def _transact(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a write transaction; a `Refused` from it rolls back, anything else is committed."""

        def transaction(db: Connection) -> T:
            db.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            outcome = work(db)
            if isinstance(outcome, Refused):
                db.execute("ROLLBACK")
            else:
                _commit(db)
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
                again = is_lost or isinstance(error, _LOST_RACES + _WAITED_TOO_LONG)
                if not again or attempt == _ATTEMPTS_MAX - 1 or time.monotonic() > deadline:
                    raise _translate(error) from error
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

    def ping(self) -> None:
        """Raise StorageFailed unless the database answers."""
        self._run(lambda db: db.execute(LOAD_VERSION).fetchone())

    def close(self) -> None:
        """Let go of connections. Safe to call twice."""
        self._pool.close()

    # --- reads: see the functions of the same names in `postgres_read` --------------------------------------

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


# --- connections, COMMIT and errors ----------------------------------------------------------------------


def _conninfo_of(url: str) -> str:
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # The driver's message repeats the URL, and with it the password.
        raise BadInput("not a valid PostgreSQL URL", field="database") from None
    return make_conninfo("", **{**_CONNECTION_DEFAULTS, **given})


# A client that vanished in the middle is rolled back by the server within seconds. Where the database is set
# to acknowledge commits before they are on disk, our connections are not: what we acknowledge must survive.
_CONFIGURE = """
SELECT set_config('lock_timeout', '5s', false),
    set_config('idle_in_transaction_session_timeout', '10s', false),
    set_config('synchronous_commit',
        CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
            ELSE current_setting('synchronous_commit') END, false)
"""


def _configure(db: Connection) -> None:
    db.execute(_CONFIGURE)


def _commit(db: Connection) -> None:
    try:
        status = db.execute("COMMIT").statusmessage
    except BaseException as error:
        db.close()
        if isinstance(error, psycopg.Error):
            raise CommitUnknown(f"COMMIT failed: {error}; look for the key") from error
        raise
    if status != "COMMIT":  # the server answers ROLLBACK to the COMMIT of a transaction that had failed
        raise StorageFailed(f"the database rolled back: status={status}; nothing was written")


def _translate(error: psycopg.Error) -> HeadgateError:
    """Our error for one that came before COMMIT was sent: in every case nothing was written."""
    match error:
        case pg.SerializationFailure() | pg.DeadlockDetected() | pg.LockNotAvailable():
            return Overloaded(f"the database is busy: {error}; nothing was written")
        case psycopg.DataError():
            return BadInput(f"the database cannot hold a value: {error}")
        case psycopg.IntegrityError() | psycopg.ProgrammingError():
            return InvariantBroken(f"the database refused a statement of ours: {error}")
        case _:
            return StorageFailed(f"the database did not answer: {error}; nothing was written")


# --- migrations ------------------------------------------------------------------------------------------

_LOCK = "SELECT pg_advisory_xact_lock(%s)"
_RECORD_VERSION = f"INSERT INTO {SCHEMA_VERSION_TABLE} (version) VALUES (%s)"

# A dump restored into another cluster brings events whose transactions that cluster has not come to yet. All
# rows that one statement sees have ids below its snapshot's xmax, unless they came from elsewhere.
_RAISE_EVENT_OFFSET = """
UPDATE counters SET value = newest - pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1
FROM (SELECT max(sequence) >> %s AS newest FROM events) AS seen
WHERE name = 'event-offset' AND newest >= value + pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""


def _migrate(db: Connection) -> None:
    """Bring the schema up to date; an advisory lock keeps two starting processes apart."""
    db.execute(_LOCK, (LOCATIONS_LOCK + 1,))
    db.execute(CREATE_VERSIONS)
    row = db.execute(LOAD_VERSION).fetchone()
    for migration in plan_migrations(load_migrations("postgres"), at=row[0] if row else None):
        for statement in migration.statements:
            db.execute(statement)
        db.execute(_RECORD_VERSION, (migration.number,))
    db.execute(_RAISE_EVENT_OFFSET, (EVENT_BITS,))
