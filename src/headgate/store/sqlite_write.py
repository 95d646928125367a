"""The operations of `write` in SQLite's SQL, for use inside a transaction that already holds the write lock.

Holding that lock (BEGIN IMMEDIATE) is what makes "look, then write" safe here. Never begins or ends a
transaction: that is `sqlite.py`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from headgate.core.encoded_log import LogItem
from headgate.errors import invariant
from headgate.store import sqlite_facts, sqlite_upkeep
from headgate.store.base import (
    CheckEntry,
    CreateEntry,
    CreateNamespace,
    DropEntry,
    DropFootprints,
    DropJob,
    DropNamespace,
    EntryId,
    Kind,
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
    Stream,
    SwapEntry,
)
from headgate.store.rows import (
    child_path_of,
    encode_properties,
    event_row,
    key_row,
    overlap_of,
    path_of,
    position_after,
    principal_row,
    repeated_tag,
)
from headgate.store.runs import only, runs_of
from headgate.store.sqlite_facts import Footprints
from headgate.store.sqlite_upkeep import find_repeated, insert_rows, write_rows


def apply(db: sqlite3.Connection, operations: Sequence[Operation]) -> Refused | None:
    """Run the operations in order up to the first that does not hold."""
    footprints = sqlite_facts.find_footprints(operations)
    for index, run in runs_of(operations):
        if (refused := _apply_run(db, run, footprints)) is not None:
            return replace(refused, index=index + refused.index)
    return None


def _apply_run(
    db: sqlite3.Connection, run: Sequence[Operation], footprints: Footprints | None
) -> Refused | None:
    """Apply neighbours of one kind; the index of a `Refused` is the one in the run."""
    match run[0]:
        case SwapEntry() as swap:
            return _swap_entry(db, swap)
        case CheckEntry(id, expected_version):
            standing = _load_standing(db, id, expected_version=expected_version)
            return standing if isinstance(standing, Refused) else None
        case PutKey():
            return _put_keys(db, only(run, PutKey))
        case PutEvent():
            _put_events(db, only(run, PutEvent), footprints)
        case PutFile():
            sqlite_upkeep.put_files(db, only(run, PutFile))
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
        case MarkCheckpoint(id, version, location):
            db.execute(_MARK_CHECKPOINT, (location, version, version, id, version, version))
        case CreateEntry() as create:
            return _create_entry(db, create)
        case RenameEntry() as rename:
            return _rename_entry(db, rename)
        case DropEntry() as drop:
            return _drop_entry(db, drop)
        case CreateNamespace() as create_namespace:
            return _create_namespace(db, create_namespace)
        case SetNamespaceProperties() as change:
            return _set_namespace_properties(db, change)
        case DropNamespace() as drop_namespace:
            return _drop_namespace(db, drop_namespace)
        case _ as never:
            assert_never(never)
    return None


def _refused(reason: Reason, detail: str, *, kind: Kind | None = None) -> Refused:
    return Refused(index=0, reason=reason, kind=kind, detail=detail)


# --- keys, events and checkpoints ------------------------------------------------------------------------

_PUT_EVENT = """
INSERT INTO events (kind, namespace, name, entry_id, principal, key, at_ms, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

_MARK_CHECKPOINT = """
UPDATE entries SET checkpoint_location = ?, checkpoint_version = ?, is_stale = ? < version
WHERE id = ? AND version >= ? AND (checkpoint_version IS NULL OR checkpoint_version < ?)
"""

_PUT_KEY = """
INSERT INTO keys (key, principal, fingerprint, status, body, created_at_ms) VALUES (?, ?, ?, ?, ?, ?)
"""


def _put_keys(db: sqlite3.Connection, puts: Sequence[PutKey]) -> Refused | None:
    at = find_repeated(db, _PUT_KEY, [key_row(put.record) for put in puts])
    return None if at is None else Refused(at, Reason.KEY_EXISTS, detail=puts[at].record.key)


def _put_events(db: sqlite3.Connection, puts: Sequence[PutEvent], footprints: Footprints | None) -> None:
    first = insert_rows(db, _PUT_EVENT, [event_row(put.event) for put in puts])
    sqlite_facts.put_snapshot_events(db, puts, footprints, first=first)


# --- entries ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Standing:
    """What an operation on an entry needs to know of the row as it stands."""

    version: int
    kind: Kind
    location: str
    next_positions: dict[Stream, int]
    is_stale: bool


_LOAD_STANDING = """
SELECT version, kind, location, next_snapshot_position, next_history_position, is_stale
FROM entries WHERE id = ?
"""


def _load_standing(db: sqlite3.Connection, id: EntryId, *, expected_version: int) -> _Standing | Refused:
    row = db.execute(_LOAD_STANDING, (id,)).fetchone()
    if row is None:
        return _refused(Reason.ENTRY_MISSING, id)
    version, kind, location, snapshots, history, is_stale = row
    if version != expected_version:
        return _refused(Reason.ENTRY_CHANGED, f"expected version {expected_version}, found {version}")
    positions = {Stream.SNAPSHOTS: snapshots, Stream.HISTORY: history}
    return _Standing(version, Kind(kind), location, positions, bool(is_stale))


_SWAP = """
UPDATE entries SET version = version + 1, epoch = epoch + ?, uuid = ?, metadata_location = ?,
    next_snapshot_position = ?, next_history_position = ?, envelope = ?
WHERE id = ? AND version = ?
"""

_CHECKPOINT_HEAD = """
UPDATE entries SET checkpoint_location = metadata_location, checkpoint_version = version, is_stale = 0
WHERE id = ?
"""

_BECOME_STALE = "UPDATE entries SET is_stale = 1 WHERE id = ?"

_MOVE = "UPDATE entries SET location = ? WHERE id = ?"


def _swap_entry(db: sqlite3.Connection, swap: SwapEntry) -> Refused | None:
    standing = _load_standing(db, swap.id, expected_version=swap.expected_version)
    if isinstance(standing, Refused):
        return standing
    if swap.location != standing.location:
        if standing.kind is Kind.TABLE and (taken := _find_overlap(db, swap.location, but=swap.id)):
            return taken
        db.execute(_MOVE, (swap.location, swap.id))
    positions = dict(standing.next_positions)
    for stream, delta in swap.logs.items():
        if delta.removed:
            db.executemany(_REMOVE_ITEM, [(swap.id, stream.value, position) for position in delta.removed])
        positions[stream] = position_after(delta.added, least=positions[stream], told=delta.next_position)
        if (duplicate := _find_duplicate_tag(db, swap.id, stream, delta.added)) is not None:
            return duplicate
        _add_items(db, swap.id, stream, delta.added)
    removes = any(delta.removed for delta in swap.logs.values())
    head = (removes, swap.uuid, swap.metadata_location, *_both(positions), swap.envelope)
    swapped = db.execute(_SWAP, (*head, swap.id, swap.expected_version)).rowcount
    invariant(swapped == 1, "a row whose version was just read under the write lock is swapped")
    if swap.checkpointed:
        db.execute(_CHECKPOINT_HEAD, (swap.id,))
    elif not standing.is_stale:
        db.execute(_BECOME_STALE, (swap.id,))
    return None


def _both(positions: dict[Stream, int]) -> tuple[int, int]:
    return positions[Stream.SNAPSHOTS], positions[Stream.HISTORY]


_ADD_ITEM = "INSERT INTO entry_log (entry_id, stream, position, key, tag, body) VALUES (?, ?, ?, ?, ?, ?)"

_REMOVE_ITEM = "DELETE FROM entry_log WHERE entry_id = ? AND stream = ? AND position = ?"


def _add_items(db: sqlite3.Connection, id: EntryId, stream: Stream, items: Sequence[LogItem]) -> None:
    rows = [(id, stream.value, item.position, item.key, item.tag, item.body) for item in items]
    write_rows(db, _ADD_ITEM, rows)


_FIND_TAG = """
SELECT value FROM json_each(?) AS added
WHERE EXISTS (SELECT 1 FROM entry_log WHERE entry_id = ? AND stream = ? AND tag = added.value) LIMIT 1
"""


def _find_duplicate_tag(
    db: sqlite3.Connection, id: EntryId, stream: Stream, items: Sequence[LogItem]
) -> Refused | None:
    if (tag := repeated_tag(items)) is not None:
        return _refused(Reason.DUPLICATE_TAG, str(tag))
    tags = [item.tag for item in items if item.tag is not None]
    # A list of numbers is written in JSON as in Python.
    row = db.execute(_FIND_TAG, (str(tags), id, stream.value)).fetchone() if tags else None
    return None if row is None else _refused(Reason.DUPLICATE_TAG, str(row[0]))


_CREATE_ENTRY = """
INSERT INTO entries (id, namespace, name, kind, uuid, version, epoch, location, metadata_location,
    checkpoint_location, checkpoint_version, next_snapshot_position, next_history_position, is_stale,
    envelope)
VALUES (?, ?, ?, ?, ?, 1, 0, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def _create_entry(db: sqlite3.Connection, create: CreateEntry) -> Refused | None:
    path = path_of(create.namespace)
    if (taken := _find_name_taken(db, path, create.name)) is not None:
        return taken
    if create.kind is Kind.TABLE and (overlap := _find_overlap(db, create.location, but=create.id)):
        return overlap
    logs = {stream: create.logs.get(stream, ()) for stream in Stream}
    told = create.next_positions
    positions = {one: position_after(logs[one], least=0, told=told.get(one, 0)) for one in Stream}
    checkpoint = (create.metadata_location, 1) if create.checkpointed else (None, None)
    named = (create.id, path, create.name, create.kind.value, create.uuid)
    places = (create.location, create.metadata_location, *checkpoint, *_both(positions))
    db.execute(_CREATE_ENTRY, (*named, *places, not create.checkpointed, create.envelope))
    for stream, items in logs.items():
        _add_items(db, create.id, stream, items)
    return None


_FIND_NAMESPACE = "SELECT version FROM namespaces WHERE path = ?"

_FIND_NAME = "SELECT kind FROM entries WHERE namespace = ? AND name = ?"


def _find_name_taken(db: sqlite3.Connection, path: str, name: str) -> Refused | None:
    if db.execute(_FIND_NAMESPACE, (path,)).fetchone() is None:
        return _refused(Reason.NAMESPACE_MISSING, path)
    row = db.execute(_FIND_NAME, (path, name)).fetchone()
    return None if row is None else _refused(Reason.NAME_TAKEN, name, kind=Kind(row[0]))


_FIND_EQUAL = "SELECT location FROM entries WHERE kind = 'table' AND location = ? AND id <> ? LIMIT 1"

_FIND_BELOW = """
SELECT location FROM entries WHERE kind = 'table' AND location >= ? AND location < ? AND id <> ? LIMIT 1
"""


def _find_overlap(db: sqlite3.Connection, location: str, *, but: EntryId) -> Refused | None:
    overlap = overlap_of(location)
    row = db.execute(_FIND_BELOW, (overlap.low, overlap.high, but)).fetchone()
    for place in overlap.above:
        row = row or db.execute(_FIND_EQUAL, (place, but)).fetchone()
    return None if row is None else _refused(Reason.LOCATION_TAKEN, row[0])


# The file of the head still holds the head after a rename: metadata does not know the table's name.
_RENAME = """
UPDATE entries SET namespace = ?, name = ?, version = version + 1,
    checkpoint_version = CASE WHEN checkpoint_version = version THEN version + 1 ELSE checkpoint_version END
WHERE id = ? AND version = ?
"""


def _rename_entry(db: sqlite3.Connection, rename: RenameEntry) -> Refused | None:
    standing = _load_standing(db, rename.id, expected_version=rename.expected_version)
    if isinstance(standing, Refused):
        return standing
    path = path_of(rename.namespace)
    if (taken := _find_name_taken(db, path, rename.name)) is not None:
        return taken
    db.execute(_RENAME, (path, rename.name, rename.id, rename.expected_version))
    return None


_DROP_ENTRY = "DELETE FROM entries WHERE id = ? AND version = ?"  # its log goes with it


def _drop_entry(db: sqlite3.Connection, drop: DropEntry) -> Refused | None:
    standing = _load_standing(db, drop.id, expected_version=drop.expected_version)
    if isinstance(standing, Refused):
        return standing
    db.execute(_DROP_ENTRY, (drop.id, drop.expected_version))
    sqlite_facts.drop_all_footprints(db, drop.id)
    return None


# --- namespaces ------------------------------------------------------------------------------------------

_CREATE_NAMESPACE = """
INSERT INTO namespaces (path, parent, name, properties, version)
SELECT ?, ?, ?, ?, value FROM counters WHERE name = 'namespace-version'
"""


def _create_namespace(db: sqlite3.Connection, create: CreateNamespace) -> Refused | None:
    path = child_path_of(create.levels)
    parent = path_of(create.levels[:-1]) or None
    if db.execute(_FIND_NAMESPACE, (path,)).fetchone() is not None:
        return _refused(Reason.NAMESPACE_EXISTS, path)
    if parent is not None and db.execute(_FIND_NAMESPACE, (parent,)).fetchone() is None:
        return _refused(Reason.NAMESPACE_MISSING, parent)
    db.execute(_CREATE_NAMESPACE, (path, parent, create.levels[-1], encode_properties(create.properties)))
    return None


_SET_PROPERTIES = "UPDATE namespaces SET properties = ?, version = version + 1 WHERE path = ? AND version = ?"


def _set_namespace_properties(db: sqlite3.Connection, change: SetNamespaceProperties) -> Refused | None:
    path = path_of(change.levels)
    if db.execute(
        _SET_PROPERTIES, (encode_properties(change.properties), path, change.expected_version)
    ).rowcount:
        return None
    row = db.execute(_FIND_NAMESPACE, (path,)).fetchone()
    if row is None:
        return _refused(Reason.NAMESPACE_MISSING, path)
    return _refused(Reason.NAMESPACE_CHANGED, f"expected version {change.expected_version}, found {row[0]}")


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
    row = db.execute(_FIND_NAMESPACE, (path,)).fetchone()
    if row is None:
        return _refused(Reason.NAMESPACE_MISSING, path)
    if db.execute(_HOLDS_ANYTHING, (path, path)).fetchone()[0]:
        return _refused(Reason.NAMESPACE_NOT_EMPTY, path)
    db.execute(_RAISE_NAMESPACE_VERSION, (row[0] + 1,))
    db.execute(_DROP_NAMESPACE, (path,))
    return None


# --- writes outside the log of commits -------------------------------------------------------------------

_EXPIRE_KEYS = """
DELETE FROM keys WHERE (principal, key) IN
    (SELECT principal, key FROM keys WHERE created_at_ms < ? ORDER BY created_at_ms LIMIT ?)
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
