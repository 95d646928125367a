"""Journalled files, footprints, jobs and doomed files in PostgreSQL's SQL, each statement beside its function.

Docstrings are the contract's, in `base.py`. Never begins or ends a transaction: that is `postgres.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from headgate.errors import invariant
from headgate.store.base import (
    DoomedFile,
    EntryId,
    Job,
    JournalledFile,
    PutFile,
    PutFootprint,
    PutJob,
    Reason,
    Refused,
)
from headgate.store.rows import JOB_COLUMNS, Row, doomed_of, doomed_row, file_of, file_row, job_of, job_row

Connection = psycopg.Connection[tuple[Any, ...]]

_ROWS_A_STATEMENT = 1000


def columns_of(rows: Sequence[Row]) -> Iterator[list[list[Any]]]:
    """The columns of the rows, for `unnest`; a bounded number of rows at a time."""
    for start in range(0, len(rows), _ROWS_A_STATEMENT):
        part = rows[start : start + _ROWS_A_STATEMENT]
        yield [list(column) for column in zip(*part, strict=True)]


def find_repeated(pairs: Sequence[tuple[str, str]], inserted: set[tuple[str, str]]) -> int | None:
    """The index of the first pair that was there already, or that an earlier one of them repeats."""
    seen: set[tuple[str, str]] = set()
    for at, pair in enumerate(pairs):
        if pair not in inserted or pair in seen:
            return at
        seen.add(pair)
    return None


# --- journalled files ------------------------------------------------------------------------------------

_PUT_FILES = """
INSERT INTO journal (location, data, created_at_ms, base, tail_bytes)
SELECT * FROM unnest(%s::text[], %b::bytea[], %s::bigint[], %s::text[], %s::bigint[])
ON CONFLICT (location) DO NOTHING
"""


def put_files(db: Connection, puts: Sequence[PutFile]) -> None:
    rows = [file_row(put.file) for put in puts]
    count = sum(db.execute(_PUT_FILES, columns).rowcount for columns in columns_of(rows))
    # Left to the constraint, a bug would be taken for a lost race and run again.
    invariant(count == len(rows), "a location is journalled once")


_READ_JOURNAL = """
SELECT location, data, created_at_ms, base, tail_bytes FROM journal
WHERE created_at_ms < %s ORDER BY number LIMIT %s
"""


def read_journal(db: Connection, before_ms: int, limit: int) -> list[JournalledFile]:
    return [file_of(row) for row in db.execute(_READ_JOURNAL, (before_ms, limit))]


# After a crash a few may be there again, to be written once more with the same bytes: not worth a sync.
_NOT_AT_ONCE = "SET LOCAL synchronous_commit = off"

_DROP_FILES = "DELETE FROM journal WHERE location = ANY(%s)"


def drop_files(db: Connection, locations: Sequence[str]) -> None:
    db.execute(_NOT_AT_ONCE)
    db.execute(_DROP_FILES, (list(locations),))


# --- footprints ------------------------------------------------------------------------------------------

_PUT_FOOTPRINTS = """
INSERT INTO footprints (entry_id, snapshot_id, body)
SELECT * FROM unnest(%s::text[], %s::bigint[], %b::bytea[])
ON CONFLICT (entry_id, snapshot_id) DO UPDATE SET body = excluded.body
"""


def put_footprints(db: Connection, puts: Sequence[PutFootprint]) -> None:
    newest = {(put.id, put.snapshot_id): put.body for put in puts}  # a statement replaces a row only once
    for columns in columns_of([(*place, body) for place, body in newest.items()]):
        db.execute(_PUT_FOOTPRINTS, columns)


_DROP_FOOTPRINTS = "DELETE FROM footprints WHERE entry_id = %s AND snapshot_id = ANY(%s)"


def drop_footprints(db: Connection, id: EntryId, snapshot_ids: Sequence[int]) -> None:
    db.execute(_DROP_FOOTPRINTS, (id, list(snapshot_ids)))


_DROP_ALL_FOOTPRINTS = "DELETE FROM footprints WHERE entry_id = %s"


def drop_all_footprints(db: Connection, id: EntryId) -> None:
    """Of an entry that is dropped."""
    db.execute(_DROP_ALL_FOOTPRINTS, (id,))


_LOAD_FOOTPRINTS = "SELECT snapshot_id, body FROM footprints WHERE entry_id = %s AND snapshot_id = ANY(%s)"


def load_footprints(db: Connection, id: EntryId, snapshot_ids: Sequence[int]) -> dict[int, bytes]:
    return {row[0]: row[1] for row in db.execute(_LOAD_FOOTPRINTS, (id, list(snapshot_ids)))}


# --- jobs ------------------------------------------------------------------------------------------------

_PUT_JOBS = f"""
INSERT INTO jobs ({JOB_COLUMNS}, body)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
    %s::bigint[], %s::bigint[], %b::bytea[])
ON CONFLICT (principal, id) DO NOTHING RETURNING principal, id
"""


def put_jobs(db: Connection, puts: Sequence[PutJob]) -> Refused | None:
    inserted: set[tuple[str, str]] = set()
    for columns in columns_of([job_row(put.job) for put in puts]):
        inserted.update((row[0], row[1]) for row in db.execute(_PUT_JOBS, columns))
    at = find_repeated([(put.job.principal, put.job.id) for put in puts], inserted)
    return None if at is None else Refused(at, Reason.KEY_EXISTS, detail=puts[at].job.id)


_DROP_JOB = "DELETE FROM jobs WHERE principal = %s AND id = %s"


def drop_job(db: Connection, principal: str, id: str) -> None:
    db.execute(_DROP_JOB, (principal, id))


_LOAD_JOB = f"SELECT {JOB_COLUMNS}, body FROM jobs WHERE principal = %s AND id = %s"


def load_job(db: Connection, principal: str, id: str) -> Job | None:
    row = db.execute(_LOAD_JOB, (principal, id)).fetchone()
    return None if row is None else job_of(row)


# Those that another replica is claiming right now are passed over, not waited for.
_CLAIM_JOBS = f"""
WITH free AS (
    SELECT number FROM jobs WHERE due_at_ms <= %s AND held_until_ms <= %s ORDER BY number LIMIT %s
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs SET owner = %s, held_until_ms = %s WHERE number IN (SELECT number FROM free)
RETURNING number, {JOB_COLUMNS}, body
"""


def claim_jobs(db: Connection, owner: str, now_ms: int, lease_ms: int, limit: int) -> list[Job]:
    rows = db.execute(_CLAIM_JOBS, (now_ms, now_ms, limit, owner, now_ms + lease_ms)).fetchall()
    return [job_of(row[1:]) for row in sorted(rows)]


_COUNT_JOBS = "SELECT count(*) FROM jobs"


def count_jobs(db: Connection) -> int:
    row = db.execute(_COUNT_JOBS).fetchone()
    return int(row[0]) if row else 0


# --- doomed files ----------------------------------------------------------------------------------------

_PUT_DOOMED = """
INSERT INTO doomed (location, entry_id, due_at_ms)
SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[]) ON CONFLICT (location) DO NOTHING
"""


def put_doomed(db: Connection, files: Sequence[DoomedFile]) -> None:
    for columns in columns_of([doomed_row(file) for file in files]):
        db.execute(_PUT_DOOMED, columns)


_READ_DOOMED = """
SELECT location, entry_id, due_at_ms FROM doomed WHERE due_at_ms <= %s ORDER BY due_at_ms, location LIMIT %s
"""


def read_doomed(db: Connection, now_ms: int, limit: int) -> list[DoomedFile]:
    return [doomed_of(row) for row in db.execute(_READ_DOOMED, (now_ms, limit))]


_DROP_DOOMED = "DELETE FROM doomed WHERE location = ANY(%s)"


def drop_doomed(db: Connection, locations: Sequence[str]) -> None:
    db.execute(_DROP_DOOMED, (list(locations),))
