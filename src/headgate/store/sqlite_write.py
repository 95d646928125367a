"""The operations of `write` in SQLite's SQL, for use inside a transaction that already holds the write lock.

Holding that lock (BEGIN IMMEDIATE) is what makes "look, then write" safe here. Never begins or ends a
transaction: that is `sqlite.py`'s. Writes to the indexed tables, and looks at nothing else: when it runs, no row is staged
(`sqlite_staged.py` has moved them).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from headgate.store import sqlite_entries, sqlite_facts, sqlite_upkeep
from headgate.store.base import (
    CheckEntry,
    CreateEntry,
    CreateNamespace,
    DropEntry,
    DropFootprints,
    DropJob,
    DropNamespace,
    MarkCheckpoint,
    Operation,
    Principal,
    PutDoomed,
    PutEvent,
    PutFile,
    PutFootprint,
    PutJob,
    PutKey,
    Reason,
    Refused,
    RenameEntry,
    SetNamespaceProperties,
    SwapEntry,
)
from headgate.store.rows import (
    child_path_of,
    encode_properties,
    event_row,
    key_row,
    path_of,
    principal_row,
)
from headgate.store.runs import only, runs_of
from headgate.store.sqlite_entries import find_namespace, refuse
from headgate.store.sqlite_facts import Footprints
from headgate.store.sqlite_journal import SqliteJournal
from headgate.store.sqlite_upkeep import find_repeated, insert_rows


def apply(db: sqlite3.Connection, operations: Sequence[Operation], journal: SqliteJournal) -> Refused | None:
    """Run the operations in order up to the first that does not hold."""
    footprints = sqlite_facts.find_footprints(operations)
    for index, run in runs_of(operations):
        if (refused := _apply_run(db, run, footprints, journal)) is not None:
            return replace(refused, index=index + refused.index)
    return None


def _apply_run(
    db: sqlite3.Connection, run: Sequence[Operation], footprints: Footprints | None, journal: SqliteJournal
) -> Refused | None:
    """Apply neighbours of one kind; the index of a `Refused` is the one in the run."""
    match run[0]:
        case SwapEntry() as swap:
            return sqlite_entries.swap_entry(db, swap)
        case CheckEntry() as check:
            return sqlite_entries.check_entry(db, check)
        case PutKey():
            return _put_keys(db, only(run, PutKey))
        case PutEvent():
            _put_events(db, only(run, PutEvent), footprints)
        case PutFile():
            journal.put_files(db, only(run, PutFile))
        case PutFootprint():
            sqlite_facts.put_footprints(db, only(run, PutFootprint), footprints)
        case DropFootprints(id, snapshot_ids):
            sqlite_facts.drop_footprints(db, id, snapshot_ids)
        case PutJob():
            return sqlite_upkeep.put_jobs(db, only(run, PutJob))
        case DropJob(principal, job_id):
            sqlite_upkeep.drop_job(db, principal, job_id)
        case PutDoomed(files):
            sqlite_upkeep.put_doomed(db, files)
        case MarkCheckpoint() as mark:
            sqlite_entries.mark_checkpoint(db, mark)
        case CreateEntry() as create:
            return sqlite_entries.create_entry(db, create)
        case RenameEntry() as rename:
            return sqlite_entries.rename_entry(db, rename)
        case DropEntry() as drop:
            return sqlite_entries.drop_entry(db, drop)
        case CreateNamespace() as create_namespace:
            return _create_namespace(db, create_namespace)
        case SetNamespaceProperties() as change:
            return _set_namespace_properties(db, change)
        case DropNamespace() as drop_namespace:
            return _drop_namespace(db, drop_namespace)
        case _ as never:
            assert_never(never)
    return None


# --- keys and events -------------------------------------------------------------------------------------

_PUT_EVENT = """
INSERT INTO indexed_events (kind, namespace, name, entry_id, principal, key, at_ms, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

_PUT_KEY = """
INSERT INTO indexed_keys (key, principal, fingerprint, status, body, created_at_ms) VALUES (?, ?, ?, ?, ?, ?)
"""


def _put_keys(db: sqlite3.Connection, puts: Sequence[PutKey]) -> Refused | None:
    at = find_repeated(db, _PUT_KEY, [key_row(put.record) for put in puts])
    return None if at is None else Refused(at, Reason.KEY_EXISTS, detail=puts[at].record.key)


def _put_events(db: sqlite3.Connection, puts: Sequence[PutEvent], footprints: Footprints | None) -> None:
    first = insert_rows(db, _PUT_EVENT, [event_row(put.event) for put in puts])
    sqlite_facts.put_snapshot_events(db, puts, footprints, first=first)


# --- namespaces ------------------------------------------------------------------------------------------

_CREATE_NAMESPACE = """
INSERT INTO namespaces (path, parent, name, properties, version)
SELECT ?, ?, ?, ?, value FROM counters WHERE name = 'namespace-version'
"""


def _create_namespace(db: sqlite3.Connection, create: CreateNamespace) -> Refused | None:
    path = child_path_of(create.levels)
    parent = path_of(create.levels[:-1]) or None
    if find_namespace(db, path) is not None:
        return refuse(Reason.NAMESPACE_EXISTS, path)
    if parent is not None and find_namespace(db, parent) is None:
        return refuse(Reason.NAMESPACE_MISSING, parent)
    db.execute(_CREATE_NAMESPACE, (path, parent, create.levels[-1], encode_properties(create.properties)))
    return None


_SET_PROPERTIES = "UPDATE namespaces SET properties = ?, version = version + 1 WHERE path = ? AND version = ?"


def _set_namespace_properties(db: sqlite3.Connection, change: SetNamespaceProperties) -> Refused | None:
    path = path_of(change.levels)
    if db.execute(
        _SET_PROPERTIES, (encode_properties(change.properties), path, change.expected_version)
    ).rowcount:
        return None
    if (version := find_namespace(db, path)) is None:
        return refuse(Reason.NAMESPACE_MISSING, path)
    return refuse(Reason.NAMESPACE_CHANGED, f"expected version {change.expected_version}, found {version}")


_HOLDS_ANYTHING = """
SELECT EXISTS (SELECT 1 FROM namespaces WHERE parent = ?)
    OR EXISTS (SELECT 1 FROM entries WHERE namespace = ?)
"""

_RAISE_NAMESPACE_VERSION = """
UPDATE counters SET value = max(value, ?) WHERE name = 'namespace-version'
"""

_DROP_NAMESPACE = "DELETE FROM namespaces WHERE path = ?"


def _drop_namespace(db: sqlite3.Connection, drop: DropNamespace) -> Refused | None:
    path = path_of(drop.levels)
    if (version := find_namespace(db, path)) is None:
        return refuse(Reason.NAMESPACE_MISSING, path)
    if db.execute(_HOLDS_ANYTHING, (path, path)).fetchone()[0]:
        return refuse(Reason.NAMESPACE_NOT_EMPTY, path)
    db.execute(_RAISE_NAMESPACE_VERSION, (version + 1,))
    db.execute(_DROP_NAMESPACE, (path,))
    return None


# --- writes outside the log of commits -------------------------------------------------------------------

_EXPIRE_KEYS = """
DELETE FROM indexed_keys WHERE (principal, key) IN
    (SELECT principal, key FROM indexed_keys WHERE created_at_ms < ? ORDER BY created_at_ms LIMIT ?)
"""


def expire_keys(db: sqlite3.Connection, before_ms: int, limit: int) -> int:
    """Forget keys older than this; returns how many."""
    return db.execute(_EXPIRE_KEYS, (before_ms, limit)).rowcount


_PUT_PRINCIPAL = """
INSERT INTO principals (client_id, secret_hash, role, created_at_ms) VALUES (?, ?, ?, ?)
ON CONFLICT (client_id) DO UPDATE SET
    secret_hash = excluded.secret_hash, role = excluded.role, created_at_ms = excluded.created_at_ms
"""


def put_principal(db: sqlite3.Connection, principal: Principal) -> None:
    """Create or replace a principal."""
    db.execute(_PUT_PRINCIPAL, principal_row(principal))


_DROP_PRINCIPAL = "DELETE FROM principals WHERE client_id = ?"


def drop_principal(db: sqlite3.Connection, client_id: str) -> bool:
    """False when there was none."""
    return db.execute(_DROP_PRINCIPAL, (client_id,)).rowcount == 1


_CREATE_SECRET = "INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"


def create_secret(db: sqlite3.Connection, name: str, value: bytes) -> None:
    """Store a secret unless there is one."""
    db.execute(_CREATE_SECRET, (name, value))
