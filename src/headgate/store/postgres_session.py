"""How connections to PostgreSQL are set up, how they end a transaction, what their errors mean; and migrations.

Never lets a password into a message.
"""

from __future__ import annotations

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.errors import BadInput, CommitUnknown, HeadgateError, InvariantBroken, Overloaded, StorageFailed
from headgate.store.base import SCHEMA_VERSION_TABLE
from headgate.store.migrate import CREATE_VERSIONS, LOAD_VERSION, load_migrations, plan_migrations
from headgate.store.postgres_records import EVENT_BITS
from headgate.store.postgres_upkeep import Connection
from headgate.store.postgres_write import LOCATIONS_LOCK

# A peer that vanished without a word is noticed within seconds, not by the operating system's two hours.
_CONNECTION_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "application_name": "headgate",
}

# Someone else won, and the next run sees what he did; or was waited for too long.
_LOST_RACES = (pg.UniqueViolation, pg.ForeignKeyViolation)
_WAITED_TOO_LONG = (pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable)


def may_pass_later(error: psycopg.Error) -> bool:
    """Whether the same statements, run again from the start, may succeed."""
    return isinstance(error, _LOST_RACES + _WAITED_TOO_LONG)


def conninfo_of(url: str) -> str:
    """The URL with our defaults for what it leaves open."""
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


def configure(db: Connection) -> None:
    """Set up a new connection."""
    db.execute(_CONFIGURE)


def commit(db: Connection) -> None:
    """End the transaction of a write, durably."""
    try:
        status = db.execute("COMMIT").statusmessage
    except BaseException as error:
        db.close()
        if isinstance(error, psycopg.Error):
            raise CommitUnknown(f"COMMIT failed: {error}; look for the key") from error
        raise
    if status != "COMMIT":  # the server answers ROLLBACK to the COMMIT of a transaction that had failed
        raise StorageFailed(f"the database rolled back: status={status}; nothing was written")


def translate(error: psycopg.Error) -> HeadgateError:
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


def migrate(db: Connection) -> None:
    """Bring the schema up to date; an advisory lock keeps two starting processes apart."""
    db.execute(_LOCK, (LOCATIONS_LOCK + 1,))
    db.execute(CREATE_VERSIONS)
    row = db.execute(LOAD_VERSION).fetchone()
    for migration in plan_migrations(load_migrations("postgres"), at=row[0] if row else None):
        for statement in migration.statements:
            db.execute(statement)
        db.execute(_RECORD_VERSION, (migration.number,))
    db.execute(_RAISE_EVENT_OFFSET, (EVENT_BITS,))
