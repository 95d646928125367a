"""Jobs and doomed files in SQLite's SQL, each statement beside its function.

Docstrings are the contract's, in `base.py`. Never begins or ends a transaction: that is `sqlite.py`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from operator import length_hint

from headgate.store.base import (
    DoomedFile,
    Job,
    PutJob,
    Reason,
    Refused,
)
from headgate.store.rows import (
    JOB_COLUMNS,
    Row,
    doomed_of,
    doomed_row,
    job_of,
    job_row,
)

Connection = sqlite3.Connection

_REPEATED = frozenset({sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE})


def write_rows(db: Connection, statement: str, rows: Sequence[Row]) -> None:
    """Run a statement for each row."""
    if len(rows) == 1:
        db.execute(statement, rows[0])
    elif rows:
        db.executemany(statement, rows)


_LAST_ROWID = "SELECT last_insert_rowid()"


def insert_rows(db: Connection, insert: str, rows: Sequence[Row]) -> int:
    """Insert rows whose numbers the database gives; the first of them, the others follow without gaps."""
    if len(rows) == 1 and (rowid := db.execute(insert, rows[0]).lastrowid) is not None:
        return rowid
    db.executemany(insert, rows)
    return first_of_last(db, len(rows))


def first_of_last(db: Connection, count: int) -> int:
    """The number of the first of so many rows that were the last to be inserted; the write lock is ours."""
    return int(db.execute(_LAST_ROWID).fetchone()[0]) - count + 1


def find_repeated(db: Connection, insert: str, rows: Sequence[Row]) -> int | None:
    """Insert rows up to the first whose key is there already; its index, or None."""
    source = iter(rows)
    try:
        if len(rows) == 1:
            db.execute(insert, next(source))
        else:
            db.executemany(insert, source)
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorcode not in _REPEATED:
            raise
        return len(rows) - length_hint(source) - 1  # rows are taken one by one, the failed one was the last
    return None


# --- jobs ------------------------------------------------------------------------------------------------

_PUT_JOB = f"INSERT INTO jobs ({JOB_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"

_PUT_BODY = "INSERT INTO job_bodies (number, body) VALUES (?, ?)"


def put_jobs(db: Connection, puts: Sequence[PutJob]) -> Refused | None:
    rows = [job_row(put.job) for put in puts]
    if (at := find_repeated(db, _PUT_JOB, [row[:-1] for row in rows])) is not None:
        return Refused(at, Reason.KEY_EXISTS, detail=puts[at].job.id)
    first = db.execute(_LAST_ROWID).fetchone()[0] - len(rows) + 1  # as in `insert_rows`
    write_rows(db, _PUT_BODY, [(number, row[-1]) for number, row in enumerate(rows, first)])
    return None


_DROP_JOB = "DELETE FROM jobs WHERE principal = ? AND id = ?"  # its body goes with it


def drop_job(db: Connection, principal: str, id: str) -> None:
    db.execute(_DROP_JOB, (principal, id))


_LOAD_JOB = f"""
SELECT {JOB_COLUMNS}, body FROM jobs JOIN job_bodies USING (number) WHERE principal = ? AND id = ?
"""


def load_job(db: Connection, principal: str, id: str) -> Job | None:
    row = db.execute(_LOAD_JOB, (principal, id)).fetchone()
    return None if row is None else job_of(row)


_HAS_FREE_JOB = "SELECT 1 FROM jobs WHERE due_at_ms <= ? AND held_until_ms <= ? LIMIT 1"


def has_free_job(db: Connection, now_ms: int) -> bool:
    """Whether a claim would find one."""
    return db.execute(_HAS_FREE_JOB, (now_ms, now_ms)).fetchone() is not None


_FREE_JOBS = f"""
SELECT number, {JOB_COLUMNS}, body FROM jobs JOIN job_bodies USING (number)
WHERE due_at_ms <= ? AND held_until_ms <= ? ORDER BY number LIMIT ?
"""

_HOLD_JOB = "UPDATE jobs SET owner = ?, held_until_ms = ? WHERE number = ?"


def claim_jobs(db: Connection, owner: str, now_ms: int, lease_ms: int, limit: int) -> list[Job]:
    rows = db.execute(_FREE_JOBS, (now_ms, now_ms, limit)).fetchall()
    write_rows(db, _HOLD_JOB, [(owner, now_ms + lease_ms, row[0]) for row in rows])
    return [job_of(row[1:]) for row in rows]


_COUNT_JOBS = "SELECT count(*) FROM jobs"


def count_jobs(db: Connection) -> int:
    return int(db.execute(_COUNT_JOBS).fetchone()[0])


# --- doomed files ----------------------------------------------------------------------------------------

_PUT_DOOMED = """
INSERT INTO doomed (location, entry_id, due_at_ms) VALUES (?, ?, ?) ON CONFLICT (location) DO NOTHING
"""


def put_doomed(db: Connection, files: Sequence[DoomedFile]) -> None:
    write_rows(db, _PUT_DOOMED, [doomed_row(file) for file in files])


_READ_DOOMED = """
SELECT location, entry_id, due_at_ms FROM doomed WHERE due_at_ms <= ? ORDER BY due_at_ms, location LIMIT ?
"""


def read_doomed(db: Connection, now_ms: int, limit: int) -> list[DoomedFile]:
    return [doomed_of(row) for row in db.execute(_READ_DOOMED, (now_ms, limit))]


_DROP_DOOMED = "DELETE FROM doomed WHERE location = ?"


def drop_doomed(db: Connection, locations: Sequence[str]) -> None:
    write_rows(db, _DROP_DOOMED, [(location,) for location in locations])
