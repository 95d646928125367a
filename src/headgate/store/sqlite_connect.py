"""Connections to a SQLite file: their settings, what their errors mean, and how a schema is brought up to date."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence

from headgate.errors import HeadgateError, InvariantBroken, Overloaded, StorageFailed
from headgate.store.base import SCHEMA_VERSION_TABLE
from headgate.store.migrate import CREATE_VERSIONS, LOAD_VERSION, load_migrations, plan_migrations

Connect = Callable[[str], sqlite3.Connection]

BUSY_WAIT_S = 0.005  # between two looks

_BUSY_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def connect_sqlite(path: str) -> sqlite3.Connection:
    """A plain connection that begins and ends no transaction by itself and may change threads."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)


# --- errors ----------------------------------------------------------------------------------------------


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection was in the way."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in _BUSY_CODES  # the low byte is the primary code of an extended one


def has_begun(db: sqlite3.Connection) -> bool:
    """Begin a transaction that writes; False when another connection is in one."""
    try:
        db.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
        return False
    return True


def translate(error: sqlite3.Error) -> HeadgateError:
    """Our error for one that came before COMMIT was sent: in every case nothing was written."""
    if is_busy(error):
        return Overloaded(f"the database is busy: {error}; nothing was written")
    if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
        return InvariantBroken(f"the database refused a statement of ours: {error}")
    return StorageFailed(f"the database did not answer: {error}; nothing was written")


# --- settings and migrations ----------------------------------------------------------------------------

WRITER_PRAGMAS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    # As Debian builds it, SQLite writes zeros over every page that a dropped row of the journal leaves free.
    "PRAGMA secure_delete = FAST",
    "PRAGMA cache_size = -16384",
    # A commit that finds so many pages in the log copies them into the database, and takes ten times as long as others.
    "PRAGMA wal_autocheckpoint = 8000",
    "PRAGMA temp_store = MEMORY",  # what a savepoint may have to put back, of one batch at most
)
READER_PRAGMAS = ("PRAGMA query_only = ON",)
NO_WAITING = "PRAGMA busy_timeout = 0"


def set_up(
    db: sqlite3.Connection, path: str, pragmas: Sequence[str], *, busy_timeout_ms: int
) -> sqlite3.Connection:
    """The connection with these settings and a write-ahead log; closed when it cannot have them."""
    try:
        db.execute(f"PRAGMA busy_timeout = {int(busy_timeout_ms)}")
        for pragma in pragmas:
            db.execute(pragma)
        ensure_wal(db, path, wait_max_s=busy_timeout_ms / 1000)
    except BaseException:
        db.close()
        raise
    return db


def ensure_wal(db: sqlite3.Connection, path: str, *, wait_max_s: float) -> None:
    """Have the file write ahead. Changing the mode does not wait for locks, so two first openings can meet here."""
    deadline = time.monotonic() + wait_max_s
    while True:
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(BUSY_WAIT_S)
    if mode != "wal":
        raise StorageFailed(f"the file system of {path} cannot hold a write-ahead log (mode {mode})")


_RECORD_VERSION = f"INSERT INTO {SCHEMA_VERSION_TABLE} (version) VALUES (?)"


def migrate(db: sqlite3.Connection) -> None:
    """Bring the schema up to date; the write lock keeps two starting processes apart."""
    db.execute(CREATE_VERSIONS)
    at = db.execute(LOAD_VERSION).fetchone()[0]
    for migration in plan_migrations(load_migrations("sqlite"), at=at):
        for statement in migration.statements:
            db.execute(statement)
        db.execute(_RECORD_VERSION, (migration.number,))
