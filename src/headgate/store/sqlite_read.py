"""The reads of the store in SQLite's SQL: a connection in, values out, each query beside its function.

Docstrings are the contract's, in `base.py`. Several statements of one read share a transaction. `entry_log`, `keys` and
`events` are views of the indexed rows and the staged ones (see `sqlite_staged.py`): no read can tell them apart.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from headgate.core.encoded_log import LogItem
from headgate.store.base import (
    Entry,
    EntryHeader,
    EntryId,
    KeyRecord,
    Kind,
    Levels,
    Namespace,
    Principal,
    StoredEvent,
    Stream,
)
from headgate.store.rows import (
    HEAD_COLUMNS,
    HEADER_COLUMNS,
    RECENT_TABLES,
    entry_of,
    event_of,
    header_of,
    key_of,
    namespace_of,
    path_of,
    principal_of,
    wanted_from,
)

Known = Mapping[EntryId, tuple[int, int, int]] | None


Connection = sqlite3.Connection

# --- namespaces ------------------------------------------------------------------------------------------

_LOAD_NAMESPACE = "SELECT path, properties, version FROM namespaces WHERE path = ?"


def load_namespace(db: Connection, levels: Levels) -> Namespace | None:
    row = db.execute(_LOAD_NAMESPACE, (path_of(levels),)).fetchone()
    return None if row is None else namespace_of(row)


_LIST_NAMESPACES = "SELECT name FROM namespaces WHERE parent IS ? AND name > ? ORDER BY name LIMIT ?"


def list_namespaces(db: Connection, parent: Levels, after: str | None, limit: int) -> list[Levels]:
    rows = db.execute(_LIST_NAMESPACES, (path_of(parent) or None, after or "", limit))
    return [(*parent, name) for (name,) in rows]


# --- entries ---------------------------------------------------------------------------------------------

_LOAD_HEADER = f"SELECT {HEADER_COLUMNS} FROM entries WHERE namespace = ? AND name = ?"


def load_header(db: Connection, namespace: Levels, name: str) -> EntryHeader | None:
    row = db.execute(_LOAD_HEADER, (path_of(namespace), name)).fetchone()
    return None if row is None else header_of(row)


_LOAD_HEADER_BY_ID = f"SELECT {HEADER_COLUMNS} FROM entries WHERE id = ?"


def load_header_by_id(db: Connection, id: EntryId) -> EntryHeader | None:
    row = db.execute(_LOAD_HEADER_BY_ID, (id,)).fetchone()
    return None if row is None else header_of(row)


_LOAD_HEAD = f"SELECT {HEAD_COLUMNS} FROM entries WHERE namespace = ? AND name = ?"

_LOAD_ITEMS = """
SELECT position, key, body, tag FROM entry_log
WHERE entry_id = ? AND stream = ? AND position >= ? ORDER BY position
"""


def load_entries(db: Connection, names: Sequence[tuple[Levels, str]], known: Known) -> list[Entry | None]:
    places = [(path_of(namespace), name) for namespace, name in names]
    db.execute("BEGIN")  # deferred: the first read fixes the moment that all of them see
    entries = [_load_entry(db, place, known) for place in places]
    db.execute("COMMIT")
    return entries


def _load_entry(db: Connection, place: tuple[str, str], known: Known) -> Entry | None:
    row = db.execute(_LOAD_HEAD, place).fetchone()
    if row is None:
        return None
    logs: dict[Stream, tuple[LogItem, ...]] = {}
    beyond = {Stream.SNAPSHOTS: row[11], Stream.HISTORY: row[12]}
    for stream, position in wanted_from(known, id=row[0], epoch=row[6]).items():
        if position >= beyond[stream]:
            logs[stream] = ()  # the caller holds all of them
        else:
            items = db.execute(_LOAD_ITEMS, (row[0], stream, position))
            logs[stream] = tuple(LogItem(*item) for item in items)
    return entry_of(row, logs)


_LIST_ENTRIES = """
SELECT name FROM entries WHERE namespace = ? AND name > ? AND kind = ? ORDER BY name LIMIT ?
"""


def list_entries(db: Connection, namespace: Levels, kind: Kind, after: str | None, limit: int) -> list[str]:
    rows = db.execute(_LIST_ENTRIES, (path_of(namespace), after or "", kind.value, limit))
    return [name for (name,) in rows]


_STALE_CHECKPOINTS = f"""
SELECT {HEADER_COLUMNS} FROM entries WHERE kind = 'table' AND is_stale = 1 ORDER BY id LIMIT ?
"""


def stale_checkpoints(db: Connection, limit: int) -> list[EntryHeader]:
    return [header_of(row) for row in db.execute(_STALE_CHECKPOINTS, (limit,))]


_RECENT_TABLES = f"{RECENT_TABLES} LIMIT ?"


def recent_tables(db: Connection, limit: int) -> list[EntryHeader]:
    return [header_of(row) for row in db.execute(_RECENT_TABLES, (limit,))]


_PAGE_OF_HEADERS = f"""
SELECT {HEADER_COLUMNS} FROM entries WHERE (namespace, name) > (?, ?) ORDER BY namespace, name LIMIT ?
"""


def page_of_headers(db: Connection, after: tuple[Levels, str], limit: int) -> list[EntryHeader]:
    rows = db.execute(_PAGE_OF_HEADERS, (path_of(after[0]), after[1], limit))
    return [header_of(row) for row in rows]


# --- keys and events -------------------------------------------------------------------------------------

_KEY_COLUMNS = "key, principal, fingerprint, status, body, created_at_ms"

_LOAD_KEY = f"SELECT {_KEY_COLUMNS} FROM keys WHERE principal = ? AND key = ?"


def load_key(db: Connection, principal: str, key: str) -> KeyRecord | None:
    row = db.execute(_LOAD_KEY, (principal, key)).fetchone()
    return None if row is None else key_of(row)


_KEYS_AT_ONCE = 100

_LOAD_INDEXED_KEY = f"SELECT {_KEY_COLUMNS} FROM indexed_keys WHERE principal = ? AND key = ?"

_LOAD_STAGED_KEYS = f"SELECT {_KEY_COLUMNS} FROM staged_keys WHERE (principal, key) IN (VALUES (?, ?)%s)"


def load_keys(db: Connection, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], KeyRecord]:
    wanted = list(dict.fromkeys(keys))
    db.execute("BEGIN")  # as in `load_entries`
    rows = [row for pair in wanted for row in db.execute(_LOAD_INDEXED_KEY, pair)]
    for start in range(0, len(wanted), _KEYS_AT_ONCE):
        some = wanted[start : start + _KEYS_AT_ONCE]
        # They are read from the first to the last: once for many, not once for each.
        rows += db.execute(
            _LOAD_STAGED_KEYS % (", (?, ?)" * (len(some) - 1)), [text for pair in some for text in pair]
        )
    db.execute("COMMIT")
    records = [key_of(row) for row in rows]
    return {(record.principal, record.key): record for record in records}


# One writer at a time: the order of sequences is the order of commits.
_EVENT_COLUMNS = "sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload"

_READ_EVENTS = f"SELECT {_EVENT_COLUMNS} FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?"


def read_events(db: Connection, after: int, limit: int) -> list[StoredEvent]:
    rows = db.execute(_READ_EVENTS, (after, limit))
    return [StoredEvent(row[0], event_of(row[1:])) for row in rows]


_READ_ENTRY_EVENTS = f"""
SELECT {_EVENT_COLUMNS} FROM events WHERE entry_id = ? AND sequence > ? ORDER BY sequence LIMIT ?
"""


def read_entry_events(db: Connection, id: EntryId, after: int, limit: int) -> list[StoredEvent]:
    rows = db.execute(_READ_ENTRY_EVENTS, (id, after, limit))
    return [StoredEvent(row[0], event_of(row[1:])) for row in rows]


_FIND_SNAPSHOT_EVENT = f"""
SELECT {_EVENT_COLUMNS} FROM events WHERE sequence = (SELECT max(sequence) FROM (
    SELECT sequence FROM indexed_facts WHERE entry_id = ?1 AND snapshot_id = ?2
    UNION ALL SELECT sequence FROM staged_facts WHERE entry_id = ?1 AND snapshot_id = ?2))
"""


def find_snapshot_event(db: Connection, id: EntryId, snapshot_id: int) -> StoredEvent | None:
    row = db.execute(_FIND_SNAPSHOT_EVENT, (id, snapshot_id)).fetchone()
    return None if row is None else StoredEvent(row[0], event_of(row[1:]))


# --- principals and secrets ------------------------------------------------------------------------------

_LOAD_PRINCIPAL = "SELECT client_id, secret_hash, role, created_at_ms FROM principals WHERE client_id = ?"


def load_principal(db: Connection, client_id: str) -> Principal | None:
    row = db.execute(_LOAD_PRINCIPAL, (client_id,)).fetchone()
    return None if row is None else principal_of(row)


_LIST_PRINCIPALS = "SELECT client_id, secret_hash, role, created_at_ms FROM principals ORDER BY client_id"


def list_principals(db: Connection) -> list[Principal]:
    return [principal_of(row) for row in db.execute(_LIST_PRINCIPALS)]


_LOAD_SECRET = "SELECT value FROM secrets WHERE name = ?"


def load_secret(db: Connection, name: str) -> bytes | None:
    row = db.execute(_LOAD_SECRET, (name,)).fetchone()
    return None if row is None else bytes(row[0])
