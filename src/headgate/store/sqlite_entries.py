"""Operations on entries in SQLite's SQL: their rows and the indexed part of their logs.

Never begins or ends a transaction: that is `sqlite.py`'s. Nothing here knows of staged rows: whoever has a log looked at or
changed has seen to those (`sqlite_staged.py`). What a swap does to an entry's row is the same either way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import pairwise

from headgate.core.encoded_log import LogItem
from headgate.core.value import Record
from headgate.errors import invariant
from headgate.store import sqlite_facts
from headgate.store.base import (
    CheckEntry,
    CreateEntry,
    DropEntry,
    EntryId,
    Kind,
    MarkCheckpoint,
    Reason,
    Refused,
    RenameEntry,
    Stream,
    SwapEntry,
)
from headgate.store.rows import overlap_of, path_of, position_after, repeated_tag
from headgate.store.sqlite_upkeep import write_rows

Connection = sqlite3.Connection


def refuse(reason: Reason, detail: str, *, kind: Kind | None = None) -> Refused:
    """The operation at hand does not hold; its index is put in by whoever knows it."""
    return Refused(index=0, reason=reason, kind=kind, detail=detail)


# --- the row as it stands --------------------------------------------------------------------------------


class Standing(Record):
    """What an operation on an entry needs to know of the row as it stands."""

    kind: str
    location: str
    next_snapshot_position: int
    next_history_position: int
    is_stale: int


_LOAD_STANDING = """
SELECT version, kind, location, next_snapshot_position, next_history_position, is_stale
FROM entries WHERE id = ?
"""


def _load_standing(db: Connection, id: EntryId, *, expected_version: int) -> Standing | Refused:
    row = db.execute(_LOAD_STANDING, (id,)).fetchone()
    if row is None:
        return refuse(Reason.ENTRY_MISSING, id)
    if row[0] != expected_version:
        return refuse(Reason.ENTRY_CHANGED, f"expected version {expected_version}, found {row[0]}")
    return Standing(*row[1:])


def check_entry(db: Connection, check: CheckEntry) -> Refused | None:
    """Refused unless it stands as expected."""
    standing = _load_standing(db, check.id, expected_version=check.expected_version)
    return standing if isinstance(standing, Refused) else None


# --- the swap --------------------------------------------------------------------------------------------


def find_standing(db: Connection, swap: SwapEntry) -> Standing | Refused:
    """The row that this swap is to replace, unless another stands there or its new location is taken."""
    standing = _load_standing(db, swap.id, expected_version=swap.expected_version)
    if isinstance(standing, Refused):
        return standing
    if swap.location != standing.location and standing.kind == Kind.TABLE:
        return _find_overlap(db, swap.location, but=swap.id) or standing
    return standing


def _swap_with(more: str) -> str:
    return f"""
UPDATE entries SET version = version + 1, epoch = epoch + ?1, uuid = ?2, metadata_location = ?3,
    next_snapshot_position = ?4, next_history_position = ?5, envelope = ?6{more}
WHERE id = ?7 AND version = ?8
"""


# A column that an index asks for is set only when it changes: the index would be written with it.
_SWAP = _swap_with("")
_SWAP_AND_BECOME_STALE = _swap_with(", is_stale = 1")
_SWAP_AND_CHECKPOINT = _swap_with(
    ", checkpoint_location = ?3, checkpoint_version = version + 1, is_stale = 0"
)

_MOVE = "UPDATE entries SET location = ? WHERE id = ?"


def put_head(db: Connection, swap: SwapEntry, standing: Standing) -> None:
    """Publish the candidate; the items of its logs are put by the caller."""
    if swap.location != standing.location:
        db.execute(_MOVE, (swap.location, swap.id))
    snapshots, history = standing.next_snapshot_position, standing.next_history_position
    removes = False
    for stream, delta in swap.logs.items():
        if stream is Stream.SNAPSHOTS:
            snapshots = position_after(delta.added, least=snapshots, told=delta.next_position)
        else:
            history = position_after(delta.added, least=history, told=delta.next_position)
        removes = removes or bool(delta.removed)
    statement = _SWAP if standing.is_stale else _SWAP_AND_BECOME_STALE
    if swap.checkpointed:
        statement = _SWAP_AND_CHECKPOINT
    head = (removes, swap.uuid, swap.metadata_location, snapshots, history, swap.envelope)
    swapped = db.execute(statement, (*head, swap.id, swap.expected_version)).rowcount
    invariant(swapped == 1, "a row whose version was just read under the write lock is swapped")


# What nearly every swap does: the row is the one that was expected, its place stays, its positions are free. Anything else
# changes no row, and is looked at closer.
_SWAP_PLAIN = """
UPDATE entries SET version = version + 1, uuid = ?1, metadata_location = ?2, envelope = ?3,
    next_snapshot_position = max(?7 + 1, ?9), next_history_position = max(?8 + 1, ?10)
WHERE id = ?4 AND version = ?5 AND location = ?6 AND is_stale = 1 AND next_snapshot_position <= ?7
    AND next_history_position <= ?8
"""


def _is_rising(items: Sequence[LogItem]) -> bool:
    return len(items) == 1 or all(a.position < b.position for a, b in pairwise(items))


def put_plain_head(db: Connection, swap: SwapEntry) -> bool:
    """Publish a candidate that adds to both logs, by one statement; False: nothing was changed, see what stands there."""
    snapshots, history = swap.logs.get(Stream.SNAPSHOTS), swap.logs.get(Stream.HISTORY)
    if snapshots is None or history is None or swap.checkpointed or not (snapshots.added and history.added):
        return False
    if (
        snapshots.removed
        or history.removed
        or not (_is_rising(snapshots.added) and _is_rising(history.added))
    ):
        return False
    first, first_entry = snapshots.added[0], history.added[0]
    after = (
        position_after(snapshots.added, least=first.position, told=snapshots.next_position),
        position_after(history.added, least=first_entry.position, told=history.next_position),
    )
    return put_next_head(db, swap, first, first_entry, after)


def put_next_head(
    db: Connection, swap: SwapEntry, first: LogItem, first_entry: LogItem, after: tuple[int, int]
) -> bool:
    """As `put_plain_head`, of a swap without a checkpoint that removes nothing, and adds these items to its logs first.

    `after` are the positions behind all that it adds, or those that were told, where it adds no more than these two.
    """
    head = (swap.uuid, swap.metadata_location, swap.envelope, swap.id, swap.expected_version, swap.location)
    positions = (first.position, first_entry.position, *after)
    return db.execute(_SWAP_PLAIN, head + positions).rowcount == 1


_MARK_CHECKPOINT = """
UPDATE entries SET checkpoint_location = ?, checkpoint_version = ?, is_stale = ? < version
WHERE id = ? AND version >= ? AND (checkpoint_version IS NULL OR checkpoint_version < ?)
"""


def mark_checkpoint(db: Connection, mark: MarkCheckpoint) -> None:
    """Remember the newest metadata file that is written; touches no row but the entry's."""
    version = mark.version
    db.execute(_MARK_CHECKPOINT, (mark.location, version, version, mark.id, version, version))


_REMOVE_ITEM = "DELETE FROM indexed_log WHERE entry_id = ? AND stream = ? AND position = ?"


def swap_entry(db: Connection, swap: SwapEntry) -> Refused | None:
    """The swap, with its items put into the indexed log and removed from there."""
    standing = find_standing(db, swap)
    if isinstance(standing, Refused):
        return standing
    for stream, delta in swap.logs.items():
        if delta.removed:
            db.executemany(_REMOVE_ITEM, [(swap.id, stream, position) for position in delta.removed])
        if (duplicate := find_duplicate_tag(db, swap.id, stream, delta.added)) is not None:
            return duplicate
        _add_items(db, swap.id, stream, delta.added)
    put_head(db, swap, standing)
    return None


_ADD_ITEM = "INSERT INTO indexed_log (entry_id, stream, position, key, tag, body) VALUES (?, ?, ?, ?, ?, ?)"


def _add_items(db: Connection, id: EntryId, stream: Stream, items: Sequence[LogItem]) -> None:
    rows = [(id, stream, item.position, item.key, item.tag, item.body) for item in items]
    write_rows(db, _ADD_ITEM, rows)


_FIND_TAG = "SELECT tag FROM indexed_log WHERE entry_id = ? AND stream = ? AND tag = ? LIMIT 1"

_FIND_TAGS = """
SELECT value FROM json_each(?) AS added
WHERE EXISTS (SELECT 1 FROM indexed_log WHERE entry_id = ? AND stream = ? AND tag = added.value) LIMIT 1
"""


def find_duplicate_tag(
    db: Connection, id: EntryId, stream: Stream, items: Sequence[LogItem]
) -> Refused | None:
    """Refused when two of these items share a tag, or one has a tag that is in the indexed log."""
    tags = [item.tag for item in items if item.tag is not None]
    if not tags:
        return None
    if len(tags) == 1:
        row = db.execute(_FIND_TAG, (id, stream, tags[0])).fetchone()
    else:
        if (tag := repeated_tag(items)) is not None:
            return refuse(Reason.DUPLICATE_TAG, str(tag))
        # A list of numbers is written in JSON as in Python.
        row = db.execute(_FIND_TAGS, (str(tags), id, stream)).fetchone()
    return None if row is None else refuse(Reason.DUPLICATE_TAG, str(row[0]))


# --- create, rename, drop --------------------------------------------------------------------------------

_CREATE_ENTRY = """
INSERT INTO entries (id, namespace, name, kind, uuid, version, epoch, location, metadata_location,
    checkpoint_location, checkpoint_version, next_snapshot_position, next_history_position, is_stale,
    envelope)
VALUES (?, ?, ?, ?, ?, 1, 0, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def create_entry(db: Connection, create: CreateEntry) -> Refused | None:
    """The entry and its logs, if its name and its location are free."""
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
    places = (
        create.location,
        create.metadata_location,
        *checkpoint,
        positions[Stream.SNAPSHOTS],
        positions[Stream.HISTORY],
    )
    db.execute(_CREATE_ENTRY, (*named, *places, not create.checkpointed, create.envelope))
    for stream, items in logs.items():
        _add_items(db, create.id, stream, items)
    return None


_FIND_NAMESPACE = "SELECT version FROM namespaces WHERE path = ?"


def find_namespace(db: Connection, path: str) -> int | None:
    """The version of the namespace there, or None."""
    row = db.execute(_FIND_NAMESPACE, (path,)).fetchone()
    return None if row is None else int(row[0])


_FIND_NAME = "SELECT kind FROM entries WHERE namespace = ? AND name = ?"


def _find_name_taken(db: Connection, path: str, name: str) -> Refused | None:
    if find_namespace(db, path) is None:
        return refuse(Reason.NAMESPACE_MISSING, path)
    row = db.execute(_FIND_NAME, (path, name)).fetchone()
    return None if row is None else refuse(Reason.NAME_TAKEN, name, kind=Kind(row[0]))


_FIND_EQUAL = "SELECT location FROM entries WHERE kind = 'table' AND location = ? AND id <> ? LIMIT 1"

_FIND_BELOW = """
SELECT location FROM entries WHERE kind = 'table' AND location >= ? AND location < ? AND id <> ? LIMIT 1
"""


def _find_overlap(db: Connection, location: str, *, but: EntryId) -> Refused | None:
    overlap = overlap_of(location)
    row = db.execute(_FIND_BELOW, (overlap.low, overlap.high, but)).fetchone()
    for place in overlap.above:
        row = row or db.execute(_FIND_EQUAL, (place, but)).fetchone()
    return None if row is None else refuse(Reason.LOCATION_TAKEN, row[0])


# The file of the head still holds the head after a rename: metadata does not know the table's name.
_RENAME = """
UPDATE entries SET namespace = ?, name = ?, version = version + 1,
    checkpoint_version = CASE WHEN checkpoint_version = version THEN version + 1 ELSE checkpoint_version END
WHERE id = ? AND version = ?
"""


def rename_entry(db: Connection, rename: RenameEntry) -> Refused | None:
    """Another name, if it is free."""
    standing = _load_standing(db, rename.id, expected_version=rename.expected_version)
    if isinstance(standing, Refused):
        return standing
    path = path_of(rename.namespace)
    if (taken := _find_name_taken(db, path, rename.name)) is not None:
        return taken
    db.execute(_RENAME, (path, rename.name, rename.id, rename.expected_version))
    return None


_DROP_ENTRY = "DELETE FROM entries WHERE id = ? AND version = ?"  # its log goes with it


def drop_entry(db: Connection, drop: DropEntry) -> Refused | None:
    """The entry, its log and its footprints."""
    standing = _load_standing(db, drop.id, expected_version=drop.expected_version)
    if isinstance(standing, Refused):
        return standing
    db.execute(_DROP_ENTRY, (drop.id, drop.expected_version))
    sqlite_facts.drop_all_footprints(db, drop.id)
    return None
