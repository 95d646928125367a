"""The operations of `write` in PostgreSQL's SQL, for use inside a READ COMMITTED transaction.

Theory. Rows of entries are locked first, all of them in order of id, so two multi-table swaps never wait for
each other in a circle. Then, if a location may be taken, one advisory lock makes "look for an overlap, then
write" safe. Names, namespaces and keys are guarded by constraints: an operation looks first, to name its
reason, and then writes; if a constraint still fails, someone else got in between, and the whole transaction
is run again, where the look finds him. Never begins or ends a transaction: that is `postgres.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from headgate.core.encoded_log import LogItem
from headgate.errors import invariant
from headgate.store import postgres_upkeep
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
from headgate.store.postgres_records import put_events, put_keys
from headgate.store.postgres_swap import swap_at_once
from headgate.store.postgres_upkeep import Connection, columns_of
from headgate.store.rows import (
    child_path_of,
    encode_properties,
    overlap_of,
    path_of,
    position_after,
    principal_row,
    repeated_tag,
)
from headgate.store.runs import only, runs_of

LOCATIONS_LOCK = 0x68656164_67617465  # "headgate"; the migrations use the number after it


def entries_of(operations: Sequence[Operation]) -> set[EntryId]:
    """The entries whose rows these operations lock."""
    return {
        one.id
        for one in operations
        if isinstance(one, SwapEntry | CheckEntry | RenameEntry | DropEntry | MarkCheckpoint)
    }


def apply(db: Connection, operations: Sequence[Operation], *, events: int = 0) -> Refused | None:
    """Run the operations in order up to the first that does not hold, after `events` of this transaction."""
    creates_table = any(isinstance(one, CreateEntry) and one.kind is Kind.TABLE for one in operations)
    written = entries_of(operations)
    if len(written) > 1 or (written and creates_table):  # a lone row is locked by the statement that reads it
        db.execute(_LOCK_ENTRIES, (sorted(written),))
    if creates_table:
        db.execute(_LOCK_LOCATIONS, (LOCATIONS_LOCK,))
    for index, run in runs_of(operations):
        if isinstance(run[0], PutEvent):
            put_events(db, only(run, PutEvent), number=events)
            events += len(run)
        elif (refused := _apply_run(db, run)) is not None:
            return replace(refused, index=index + refused.index)
    return None


_LOCK_ENTRIES = "SELECT 1 FROM entries WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"

_LOCK_LOCATIONS = "SELECT pg_advisory_xact_lock(%s)"


def _apply_run(db: Connection, run: Sequence[Operation]) -> Refused | None:
    """Apply neighbours of one kind; the index of a `Refused` is the one in the run."""
    match run[0]:
        case SwapEntry() as swap:
            return _swap_entry(db, swap)
        case CheckEntry(id, expected_version):  # the row stays locked until the transaction ends
            standing = _load_standing(db, id, expected_version=expected_version)
            return standing if isinstance(standing, Refused) else None
        case PutKey():
            return put_keys(db, only(run, PutKey))
        case PutEvent():
            raise AssertionError("events are numbered by the caller")
        case PutFile():
            postgres_upkeep.put_files(db, only(run, PutFile))
        case PutFootprint():
            postgres_upkeep.put_footprints(db, only(run, PutFootprint))
        case DropFootprints(id, snapshot_ids):
            postgres_upkeep.drop_footprints(db, id, snapshot_ids)
        case PutJob():
            return postgres_upkeep.put_jobs(db, only(run, PutJob))
        case DropJob(principal, job_id):
            postgres_upkeep.drop_job(db, principal, job_id)
        case PutDoomed(files):
            postgres_upkeep.put_doomed(db, files)
        case MarkCheckpoint(id, version, location):
            db.execute(_MARK_CHECKPOINT, (location, version, id, version, version))
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


_MARK_CHECKPOINT = """
UPDATE entries SET checkpoint_location = %s, checkpoint_version = %s
WHERE id = %s AND version >= %s AND (checkpoint_version IS NULL OR checkpoint_version < %s)
"""


# --- entries ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Standing:
    """What an operation on an entry needs to know of the row, which is locked from here on."""

    version: int
    kind: Kind
    location: str
    next_positions: dict[Stream, int]


_LOAD_STANDING = """
SELECT version, kind, location, next_snapshot_position, next_history_position FROM entries WHERE id = %s
FOR NO KEY UPDATE
"""


def _load_standing(db: Connection, id: EntryId, *, expected_version: int) -> _Standing | Refused:
    row = db.execute(_LOAD_STANDING, (id,)).fetchone()
    if row is None:
        return _refused(Reason.ENTRY_MISSING, id)
    version, kind, location, snapshots, history = row
    if version != expected_version:
        return _refused(Reason.ENTRY_CHANGED, f"expected version {expected_version}, found {version}")
    return _Standing(version, Kind(kind), location, {Stream.SNAPSHOTS: snapshots, Stream.HISTORY: history})


_SWAP = """
UPDATE entries SET version = version + 1, epoch = epoch + %s, uuid = %s, location = %s,
    metadata_location = %s,
    checkpoint_location = CASE WHEN %s THEN %s ELSE checkpoint_location END,
    checkpoint_version = CASE WHEN %s THEN version + 1 ELSE checkpoint_version END,
    next_snapshot_position = %s, next_history_position = %s, envelope = %s
WHERE id = %s AND version = %s
"""


def _swap_entry(db: Connection, swap: SwapEntry) -> Refused | None:
    if swap_at_once(db, swap):
        return None
    standing = _load_standing(db, swap.id, expected_version=swap.expected_version)
    if isinstance(standing, Refused):
        return standing
    if swap.location != standing.location and standing.kind is Kind.TABLE:
        db.execute(_LOCK_LOCATIONS, (LOCATIONS_LOCK,))
        if (taken := _find_overlap(db, swap.location, but=swap.id)) is not None:
            return taken
    positions = dict(standing.next_positions)
    for stream, delta in swap.logs.items():
        if delta.removed:
            db.execute(_REMOVE_ITEMS, (swap.id, stream.value, list(delta.removed)))
        positions[stream] = position_after(delta.added, least=positions[stream], told=delta.next_position)
        if (duplicate := _find_duplicate_tag(db, swap.id, stream, delta.added)) is not None:
            return duplicate
    _add_items(db, swap.id, {stream: delta.added for stream, delta in swap.logs.items()})
    removes = int(any(delta.removed for delta in swap.logs.values()))
    head = (removes, swap.uuid, swap.location, swap.metadata_location)
    checkpoint = (swap.checkpointed, swap.metadata_location, swap.checkpointed)
    state = (*_both(positions), swap.envelope)
    swapped = db.execute(_SWAP, (*head, *checkpoint, *state, swap.id, swap.expected_version)).rowcount
    invariant(swapped == 1, "a row whose version was just read under its lock is swapped")
    return None


def _both(positions: dict[Stream, int]) -> tuple[int, int]:
    return positions[Stream.SNAPSHOTS], positions[Stream.HISTORY]


_ADD_ITEMS = """
INSERT INTO entry_log (entry_id, stream, position, key, tag, body)
SELECT %s, * FROM unnest(%s::smallint[], %s::bigint[], %s::bigint[], %s::bigint[], %b::bytea[])
"""

_REMOVE_ITEMS = "DELETE FROM entry_log WHERE entry_id = %s AND stream = %s AND position = ANY(%s)"


def _add_items(db: Connection, id: EntryId, logs: dict[Stream, tuple[LogItem, ...]]) -> None:
    rows = [
        (stream.value, one.position, one.key, one.tag, one.body) for stream in logs for one in logs[stream]
    ]
    for columns in columns_of(rows):
        db.execute(_ADD_ITEMS, (id, *columns))


_FIND_TAG = "SELECT tag FROM entry_log WHERE entry_id = %s AND stream = %s AND tag = ANY(%s) LIMIT 1"


def _find_duplicate_tag(
    db: Connection, id: EntryId, stream: Stream, items: Sequence[LogItem]
) -> Refused | None:
    if (tag := repeated_tag(items)) is not None:
        return _refused(Reason.DUPLICATE_TAG, str(tag))
    tags = [item.tag for item in items if item.tag is not None]
    row = db.execute(_FIND_TAG, (id, stream.value, tags)).fetchone() if tags else None
    return None if row is None else _refused(Reason.DUPLICATE_TAG, str(row[0]))


_CREATE_ENTRY = """
INSERT INTO entries (id, namespace, name, kind, uuid, version, epoch, location, metadata_location,
    checkpoint_location, checkpoint_version, next_snapshot_position, next_history_position, envelope)
VALUES (%s, %s, %s, %s, %s, 1, 0, %s, %s, %s, %s, %s, %s, %s)
"""


def _create_entry(db: Connection, create: CreateEntry) -> Refused | None:
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
    head = (create.location, create.metadata_location, *checkpoint, *_both(positions), create.envelope)
    db.execute(_CREATE_ENTRY, (*named, *head))
    _add_items(db, create.id, logs)
    return None


_FIND_NAMESPACE = "SELECT version FROM namespaces WHERE path = %s"

_FIND_NAME = "SELECT kind FROM entries WHERE namespace = %s AND name = %s"


def _find_name_taken(db: Connection, path: str, name: str) -> Refused | None:
    if db.execute(_FIND_NAMESPACE, (path,)).fetchone() is None:
        return _refused(Reason.NAMESPACE_MISSING, path)
    row = db.execute(_FIND_NAME, (path, name)).fetchone()
    return None if row is None else _refused(Reason.NAME_TAKEN, name, kind=Kind(row[0]))


_FIND_OVERLAP = """
SELECT location FROM entries
WHERE kind = 'table' AND id <> %s AND (location = ANY(%s) OR (location >= %s AND location < %s)) LIMIT 1
"""


def _find_overlap(db: Connection, location: str, *, but: EntryId) -> Refused | None:
    overlap = overlap_of(location)
    row = db.execute(_FIND_OVERLAP, (but, list(overlap.above), overlap.low, overlap.high)).fetchone()
    return None if row is None else _refused(Reason.LOCATION_TAKEN, row[0])


# The file of the head still holds the head after a rename: metadata does not know the table's name.
_RENAME = """
UPDATE entries SET namespace = %s, name = %s, version = version + 1,
    checkpoint_version = CASE WHEN checkpoint_version = version THEN version + 1 ELSE checkpoint_version END
WHERE id = %s AND version = %s
"""


def _rename_entry(db: Connection, rename: RenameEntry) -> Refused | None:
    standing = _load_standing(db, rename.id, expected_version=rename.expected_version)
    if isinstance(standing, Refused):
        return standing
    path = path_of(rename.namespace)
    if (taken := _find_name_taken(db, path, rename.name)) is not None:
        return taken
    db.execute(_RENAME, (path, rename.name, rename.id, rename.expected_version))
    return None


_DROP_ENTRY = "DELETE FROM entries WHERE id = %s AND version = %s"  # its log goes with it


def _drop_entry(db: Connection, drop: DropEntry) -> Refused | None:
    standing = _load_standing(db, drop.id, expected_version=drop.expected_version)
    if isinstance(standing, Refused):
        return standing
    db.execute(_DROP_ENTRY, (drop.id, drop.expected_version))
    postgres_upkeep.drop_all_footprints(db, drop.id)
    return None


# --- namespaces ------------------------------------------------------------------------------------------

# The counter is locked before the row, here and in a drop: so a namespace made after a drop starts above it.
_NAMESPACE_VERSION = "SELECT value FROM counters WHERE name = 'namespace-version' FOR SHARE"

_CREATE_NAMESPACE = (
    "INSERT INTO namespaces (path, parent, name, properties, version) VALUES (%s, %s, %s, %s, %s)"
)


def _create_namespace(db: Connection, create: CreateNamespace) -> Refused | None:
    path = child_path_of(create.levels)
    parent = path_of(create.levels[:-1]) or None
    counter = db.execute(_NAMESPACE_VERSION).fetchone()
    invariant(counter is not None, "the first migration made the counters")
    version = counter[0] if counter else 0
    if db.execute(_FIND_NAMESPACE, (path,)).fetchone() is not None:
        return _refused(Reason.NAMESPACE_EXISTS, path)
    if parent is not None and db.execute(_FIND_NAMESPACE, (parent,)).fetchone() is None:
        return _refused(Reason.NAMESPACE_MISSING, parent)
    properties = encode_properties(create.properties)
    db.execute(_CREATE_NAMESPACE, (path, parent, create.levels[-1], properties, version))
    return None


_SET_PROPERTIES = (
    "UPDATE namespaces SET properties = %s, version = version + 1 WHERE path = %s AND version = %s"
)


def _set_namespace_properties(db: Connection, change: SetNamespaceProperties) -> Refused | None:
    path = path_of(change.levels)
    properties = encode_properties(change.properties)
    if db.execute(_SET_PROPERTIES, (properties, path, change.expected_version)).rowcount:
        return None
    row = db.execute(_FIND_NAMESPACE, (path,)).fetchone()
    if row is None:
        return _refused(Reason.NAMESPACE_MISSING, path)
    return _refused(Reason.NAMESPACE_CHANGED, f"expected version {change.expected_version}, found {row[0]}")


_HOLDS_ANYTHING = """
SELECT EXISTS (SELECT 1 FROM namespaces WHERE parent = %s)
    OR EXISTS (SELECT 1 FROM entries WHERE namespace = %s)
"""

_LOCK_NAMESPACE_VERSION = "SELECT value FROM counters WHERE name = 'namespace-version' FOR NO KEY UPDATE"

_LOCK_NAMESPACE = "SELECT version FROM namespaces WHERE path = %s FOR UPDATE"

_RAISE_NAMESPACE_VERSION = "UPDATE counters SET value = greatest(value, %s) WHERE name = 'namespace-version'"

_DROP_NAMESPACE = "DELETE FROM namespaces WHERE path = %s"


def _drop_namespace(db: Connection, drop: DropNamespace) -> Refused | None:
    path = path_of(drop.levels)
    db.execute(_LOCK_NAMESPACE_VERSION)
    row = db.execute(_LOCK_NAMESPACE, (path,)).fetchone()
    if row is None:
        return _refused(Reason.NAMESPACE_MISSING, path)
    if db.execute(_HOLDS_ANYTHING, (path, path)).fetchone() == (True,):
        return _refused(Reason.NAMESPACE_NOT_EMPTY, path)
    db.execute(_RAISE_NAMESPACE_VERSION, (row[0] + 1,))
    db.execute(_DROP_NAMESPACE, (path,))
    return None


# --- writes outside the log of commits -------------------------------------------------------------------

_EXPIRE_KEYS = """
DELETE FROM keys WHERE (principal, key) IN
    (SELECT principal, key FROM keys WHERE created_at_ms < %s ORDER BY created_at_ms LIMIT %s)
"""


def expire_keys(db: Connection, before_ms: int, limit: int) -> int:
    """Forget keys older than this; returns how many."""
    return db.execute(_EXPIRE_KEYS, (before_ms, limit)).rowcount


_PUT_PRINCIPAL = """
INSERT INTO principals (client_id, secret_hash, role, created_at_ms) VALUES (%s, %s, %s, %s)
ON CONFLICT (client_id) DO UPDATE SET
    secret_hash = excluded.secret_hash, role = excluded.role, created_at_ms = excluded.created_at_ms
"""


def put_principal(db: Connection, principal: Principal) -> None:
    """Create or replace a principal."""
    db.execute(_PUT_PRINCIPAL, principal_row(principal))


_DROP_PRINCIPAL = "DELETE FROM principals WHERE client_id = %s"


def drop_principal(db: Connection, client_id: str) -> bool:
    """False when there was none."""
    return db.execute(_DROP_PRINCIPAL, (client_id,)).rowcount == 1


_CREATE_SECRET = "INSERT INTO secrets (name, value) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING"


def create_secret(db: Connection, name: str, value: bytes) -> None:
    """Store a secret unless there is one."""
    db.execute(_CREATE_SECRET, (name, value))
