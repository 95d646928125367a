"""The reads of the store in PostgreSQL's SQL: a connection in, values out, each query beside its function.

Docstrings are the contract's, in `base.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
from headgate.store.postgres_records import EVENT_BITS
from headgate.store.postgres_upkeep import Connection
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


# --- namespaces ------------------------------------------------------------------------------------------

_LOAD_NAMESPACE = "SELECT path, properties, version FROM namespaces WHERE path = %s"


def load_namespace(db: Connection, levels: Levels) -> Namespace | None:
    row = db.execute(_LOAD_NAMESPACE, (path_of(levels),)).fetchone()
    return None if row is None else namespace_of(row)


_LIST_NAMESPACES = "SELECT name FROM namespaces WHERE parent = %s AND name > %s ORDER BY name LIMIT %s"

_LIST_ROOT_NAMESPACES = (
    "SELECT name FROM namespaces WHERE parent IS NULL AND name > %s ORDER BY name LIMIT %s"
)


def list_namespaces(db: Connection, parent: Levels, after: str | None, limit: int) -> list[Levels]:
    path = path_of(parent)
    query, place = (_LIST_NAMESPACES, (path,)) if path else (_LIST_ROOT_NAMESPACES, ())
    return [(*parent, name) for (name,) in db.execute(query, (*place, after or "", limit))]


# --- entries ---------------------------------------------------------------------------------------------

_LOAD_HEADER = f"SELECT {HEADER_COLUMNS} FROM entries WHERE namespace = %s AND name = %s"


def load_header(db: Connection, namespace: Levels, name: str) -> EntryHeader | None:
    row = db.execute(_LOAD_HEADER, (path_of(namespace), name)).fetchone()
    return None if row is None else header_of(row)


_LOAD_HEADER_BY_ID = f"SELECT {HEADER_COLUMNS} FROM entries WHERE id = %s"


def load_header_by_id(db: Connection, id: EntryId) -> EntryHeader | None:
    row = db.execute(_LOAD_HEADER_BY_ID, (id,)).fetchone()
    return None if row is None else header_of(row)


_LOAD_HEADS = f"""
SELECT {HEAD_COLUMNS} FROM entries
WHERE (namespace, name) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
"""

# A log at a time, from a position on, by the index: OFFSET keeps the planner from joining all logs of all tables instead.
_LOAD_ITEMS = """
SELECT wanted.id, item.* FROM unnest(%s::text[], %s::smallint[], %s::bigint[]) AS wanted (id, log, least)
CROSS JOIN LATERAL (
    SELECT stream, position, key, body, tag FROM entry_log
    WHERE entry_id = wanted.id AND stream = wanted.log AND position >= wanted.least
    ORDER BY position OFFSET 0
) AS item
ORDER BY wanted.id, item.stream, item.position
"""


# One snapshot for both queries: heads and logs of one moment.
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def load_entries(db: Connection, names: Sequence[tuple[Levels, str]], known: Known) -> list[Entry | None]:
    places = [(path_of(namespace), name) for namespace, name in names]
    heads, items = _load_on(db, places, known) if known else ([], None)
    if items is None:
        db.execute(_BEGIN)
        heads = db.execute(_LOAD_HEADS, _columns_of(places, 2)).fetchall()
        items = db.execute(_LOAD_ITEMS, _columns_of(_wanted(heads, known), 3)).fetchall()
        db.execute("COMMIT")
    logs: dict[tuple[str, int], list[LogItem]] = {
        (row[0], stream.value): [] for row in heads for stream in Stream
    }
    for id, stream_value, *fields in items:
        logs[id, stream_value].append(LogItem(*fields))
    found = {
        (row[1], row[2]): entry_of(row, {stream: tuple(logs[row[0], stream.value]) for stream in Stream})
        for row in heads
    }
    return [found.get(place) for place in places]


def _load_on(
    db: Connection, places: list[tuple[str, str]], known: Mapping[EntryId, tuple[int, int, int]]
) -> tuple[list[Any], list[Any] | None]:
    """Heads, and what their logs have beyond what is known, in one round trip; no items if that was not what is wanted."""
    guessed = {
        (id, stream.value, least)
        for id, (_, *positions) in known.items()
        for stream, least in zip(Stream, positions, strict=True)
    }
    with db.pipeline():
        db.execute(_BEGIN)
        heads = db.execute(_LOAD_HEADS, _columns_of(places, 2))
        items = db.execute(_LOAD_ITEMS, _columns_of(sorted(guessed), 3))
        db.execute("COMMIT")
    rows = heads.fetchall()
    return rows, items.fetchall() if guessed == set(_wanted(rows, known)) else None


def _wanted(heads: Sequence[Any], known: Known) -> list[tuple[str, int, int]]:
    """Of which logs to read what lies at a position and after it."""
    return [
        (row[0], stream.value, position)
        for row in heads
        for stream, position in wanted_from(known, id=row[0], epoch=row[6]).items()
    ]


def _columns_of(rows: Sequence[tuple[Any, ...]], count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(count)]


_LIST_ENTRIES = """
SELECT name FROM entries WHERE namespace = %s AND name > %s AND kind = %s ORDER BY name LIMIT %s
"""


def list_entries(db: Connection, namespace: Levels, kind: Kind, after: str | None, limit: int) -> list[str]:
    rows = db.execute(_LIST_ENTRIES, (path_of(namespace), after or "", kind.value, limit))
    return [name for (name,) in rows]


# No index serves this: one that did would have to change with every swap. Large envelopes are stored aside,
# so the scan reads little but headers.
_STALE_CHECKPOINTS = f"""
SELECT {HEADER_COLUMNS} FROM entries
WHERE kind = 'table' AND (checkpoint_version IS NULL OR checkpoint_version < version) ORDER BY id LIMIT %s
"""


def stale_checkpoints(db: Connection, limit: int) -> list[EntryHeader]:
    return [header_of(row) for row in db.execute(_STALE_CHECKPOINTS, (limit,))]


_RECENT_TABLES = f"{RECENT_TABLES} LIMIT %s"


def recent_tables(db: Connection, limit: int) -> list[EntryHeader]:
    return [header_of(row) for row in db.execute(_RECENT_TABLES, (limit,))]


_PAGE_OF_HEADERS = f"""
SELECT {HEADER_COLUMNS} FROM entries WHERE (namespace, name) > (%s, %s) ORDER BY namespace, name LIMIT %s
"""


def page_of_headers(db: Connection, after: tuple[Levels, str], limit: int) -> list[EntryHeader]:
    rows = db.execute(_PAGE_OF_HEADERS, (path_of(after[0]), after[1], limit))
    return [header_of(row) for row in rows]


# --- keys and events -------------------------------------------------------------------------------------

_LOAD_KEY = """
SELECT key, principal, fingerprint, status, body, created_at_ms FROM keys WHERE principal = %s AND key = %s
"""


def load_key(db: Connection, principal: str, key: str) -> KeyRecord | None:
    row = db.execute(_LOAD_KEY, (principal, key)).fetchone()
    return None if row is None else key_of(row)


_LOAD_KEYS = """
SELECT key, principal, fingerprint, status, body, created_at_ms FROM keys
WHERE (principal, key) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
"""


def load_keys(db: Connection, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], KeyRecord]:
    wanted = ([principal for principal, _ in keys], [key for _, key in keys])
    records = [key_of(row) for row in db.execute(_LOAD_KEYS, wanted)]
    return {(record.principal, record.key): record for record in records}


_EVENT_COLUMNS = "sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload"

# Only numbers below the oldest running transaction: see the theory in `postgres.py`.
_HAS_ENDED = """
sequence < (((SELECT value FROM counters WHERE name = 'event-offset')
    + pg_snapshot_xmin(pg_current_snapshot())::text::bigint) << %s)
"""

_READ_EVENTS = f"""
SELECT {_EVENT_COLUMNS} FROM events WHERE sequence > %s AND {_HAS_ENDED} ORDER BY sequence LIMIT %s
"""


def read_events(db: Connection, after: int, limit: int) -> list[StoredEvent]:
    rows = db.execute(_READ_EVENTS, (after, EVENT_BITS, limit))
    return [StoredEvent(row[0], event_of(row[1:])) for row in rows]


# The same bound as for the whole feed, so that the feed of one entry is never ahead of another's.
_READ_ENTRY_EVENTS = f"""
SELECT {_EVENT_COLUMNS} FROM events
WHERE entry_id = %s AND sequence > %s AND {_HAS_ENDED} ORDER BY sequence LIMIT %s
"""


def read_entry_events(db: Connection, id: EntryId, after: int, limit: int) -> list[StoredEvent]:
    rows = db.execute(_READ_ENTRY_EVENTS, (id, after, EVENT_BITS, limit))
    return [StoredEvent(row[0], event_of(row[1:])) for row in rows]


_FIND_SNAPSHOT_EVENT = f"""
SELECT {_EVENT_COLUMNS} FROM events WHERE sequence =
    (SELECT max(sequence) FROM event_snapshots WHERE entry_id = %s AND snapshot_id = %s)
"""


def find_snapshot_event(db: Connection, id: EntryId, snapshot_id: int) -> StoredEvent | None:
    row = db.execute(_FIND_SNAPSHOT_EVENT, (id, snapshot_id)).fetchone()
    return None if row is None else StoredEvent(row[0], event_of(row[1:]))


# --- principals and secrets ------------------------------------------------------------------------------

_LOAD_PRINCIPAL = "SELECT client_id, secret_hash, role, created_at_ms FROM principals WHERE client_id = %s"


def load_principal(db: Connection, client_id: str) -> Principal | None:
    row = db.execute(_LOAD_PRINCIPAL, (client_id,)).fetchone()
    return None if row is None else principal_of(row)


_LIST_PRINCIPALS = "SELECT client_id, secret_hash, role, created_at_ms FROM principals ORDER BY client_id"


def list_principals(db: Connection) -> list[Principal]:
    return [principal_of(row) for row in db.execute(_LIST_PRINCIPALS)]


_LOAD_SECRET = "SELECT value FROM secrets WHERE name = %s"


def load_secret(db: Connection, name: str) -> bytes | None:
    row = db.execute(_LOAD_SECRET, (name,)).fetchone()
    return None if row is None else bytes(row[0])
