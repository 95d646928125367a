"""What is known of snapshots beside their metadata, in SQLite's SQL: the event that brought one, and its footprint.

Both come with the commit of the snapshot, and are written as one row then; each may also come, or go, without the other.
Docstrings are the contract's, in `base.py`. Never begins or ends a transaction: that is `sqlite.py`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from headgate.store.base import DropEntry, DropFootprints, EntryId, Operation, PutEvent, PutFootprint
from headgate.store.sqlite_upkeep import write_rows

Connection = sqlite3.Connection
Footprints = dict[tuple[EntryId | None, int], bytes]  # of one write, those that are still to be written
FactsRow = tuple[
    EntryId | None, int, int | None, bytes | None
]  # entry, snapshot, sequence of its event, footprint

# Put twice, what the later row tells counts.
_INTO_FACTS = "INSERT INTO indexed_facts (entry_id, snapshot_id, sequence, footprint)"
_OR_ADD = """
ON CONFLICT (entry_id, snapshot_id) DO UPDATE SET
    sequence = coalesce(excluded.sequence, sequence), footprint = coalesce(excluded.footprint, footprint)
"""

_PUT_FACTS = f"{_INTO_FACTS} VALUES (?, ?, ?, ?) {_OR_ADD}"

MOVE_FACTS = f"""
{_INTO_FACTS}
SELECT entry_id, snapshot_id, sequence, footprint FROM staged_facts WHERE number <= ? ORDER BY number {_OR_ADD}
"""


def find_footprints(operations: Iterable[Operation]) -> Footprints | None:
    """Those that may be written earlier than their turn, with their events; None when others are dropped as well."""
    found: Footprints = {}
    for one in operations:
        if isinstance(one, PutFootprint):
            found[one.id, one.snapshot_id] = one.body  # put twice, the last one counts
        elif isinstance(one, DropFootprints | DropEntry):
            return None
    return found


def facts_of(puts: Sequence[PutEvent], footprints: Footprints, *, first: int) -> list[FactsRow]:
    """Which snapshots these events brought, with what is known of their footprints, which is taken from there.

    The events were given sequences from the first on.
    """
    return [
        (put.event.entry_id, snapshot_id, sequence, footprints.pop((put.event.entry_id, snapshot_id), None))
        for sequence, put in enumerate(puts, first)
        for snapshot_id in put.snapshot_ids
    ]


def put_snapshot_events(
    db: Connection, puts: Sequence[PutEvent], footprints: Footprints | None, *, first: int
) -> None:
    """Which snapshots these events brought; they were given sequences from the first on."""
    write_rows(db, _PUT_FACTS, facts_of(puts, {} if footprints is None else footprints, first=first))


def put_footprints(db: Connection, puts: Sequence[PutFootprint], footprints: Footprints | None) -> None:
    if footprints is None:
        rows = [(put.id, put.snapshot_id, None, put.body) for put in puts]
    else:
        places = [(put.id, put.snapshot_id) for put in puts]
        rows = [(*place, None, footprints.pop(place)) for place in places if place in footprints]
    write_rows(db, _PUT_FACTS, rows)


_DROP_FOOTPRINT = "UPDATE indexed_facts SET footprint = NULL WHERE entry_id = ? AND snapshot_id = ?"

# A snapshot whose event is not known either has nothing left to tell.
_DROP_EMPTY = """
DELETE FROM indexed_facts WHERE entry_id = ? AND snapshot_id = ? AND sequence IS NULL AND footprint IS NULL
"""


def drop_footprints(db: Connection, id: EntryId, snapshot_ids: Sequence[int]) -> None:
    rows = [(id, snapshot_id) for snapshot_id in snapshot_ids]
    write_rows(db, _DROP_FOOTPRINT, rows)
    write_rows(db, _DROP_EMPTY, rows)


_DROP_ALL_FOOTPRINTS = (
    "DELETE FROM indexed_facts WHERE entry_id = ? AND sequence IS NULL",
    "UPDATE indexed_facts SET footprint = NULL WHERE entry_id = ? AND footprint IS NOT NULL",
)


def drop_all_footprints(db: Connection, id: EntryId) -> None:
    """Of an entry that is dropped."""
    for statement in _DROP_ALL_FOOTPRINTS:
        db.execute(statement, (id,))


# Each part by itself: the database does not look into the index for what it finds in a list, if it sees both as one view.
_LOAD_FOOTPRINTS = """
SELECT 0 AS number, snapshot_id, footprint FROM indexed_facts
WHERE entry_id = ?1 AND snapshot_id IN (SELECT value FROM json_each(?2)) AND footprint IS NOT NULL
UNION ALL
SELECT number, snapshot_id, footprint FROM staged_facts
WHERE entry_id = ?1 AND snapshot_id IN (SELECT value FROM json_each(?2)) AND footprint IS NOT NULL
ORDER BY number
"""


def load_footprints(db: Connection, id: EntryId, snapshot_ids: Sequence[int]) -> dict[int, bytes]:
    rows = db.execute(_LOAD_FOOTPRINTS, (id, msgspec.json.encode(list(snapshot_ids)).decode()))
    return {snapshot_id: footprint for _, snapshot_id, footprint in rows}  # put again, the last one counts
