"""Rows are staged: what a commit adds is put at the end of one table, and moved into the indexed tables many at a time.

Theory. A swap updates one row of `entries`, which is where it is decided, and adds to the log, the keys, the events, facts
and the journal. With their indexes those are two dozen pages for a handful of rows, and pages are what a commit costs.
So they go to `staged_rows`, which has no index, in the same transaction, one row for all that a commit adds; views make
every read see both parts (migration 0007). Files that are dropped before they were moved are never written a second time.
Three things must not be lost by that:

- *Once is once.* A key or a tag that is staged is in no index. So the writer remembers those that it has staged, and looks
  for others in the indexes. What it remembers is exact while nobody else writes. Whether another connection has is told by
  SQLite's `data_version`, read first in each transaction; then all rows are moved, and there is nothing to remember.
- *Order.* Staged events have sequences above those of all moved ones, given out in order of their commits: rows are moved
  oldest first, all or some, and nothing else is written to the indexed tables while any row is staged.
- *What is taken back is not remembered.* `mark` before, and `take_back` after: if anything was staged, moved or put in
  between, all that is remembered is forgotten, and the next write moves all rows.

A write is staged when it only adds rows (`_STAGEABLE`), not too many, and nobody else has written since our last one; so
several processes that write in turns stage nothing, and pay nothing for it. Any other write moves all rows and goes to the
indexed tables (`sqlite_write.py`). One that finds more than `rows_max` rows staged moves the oldest first, in proportion to
what it adds: all at once they took fifteen times as long as a commit. Never begins or ends a transaction: `sqlite.py` does.

Files that are to be dropped *ride* while others write: the next writes drop them in their own transactions, those of a few
commits each, and move the rows that hold them. In a transaction of their own whoever commits meanwhile waits for all
of it, and for two threads that want one interpreter at each of its statements.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from headgate.errors import invariant
from headgate.store import sqlite_facts, sqlite_write
from headgate.store.base import (
    CheckEntry,
    MarkCheckpoint,
    Operation,
    PutEvent,
    PutFile,
    PutFootprint,
    PutKey,
    Reason,
    Refused,
    Stream,
    SwapEntry,
)
from headgate.store.rows import standing_path_of
from headgate.store.sqlite_batch import STAGE, Batch, Tag
from headgate.store.sqlite_entries import (
    check_entry,
    find_duplicate_tag,
    find_standing,
    mark_checkpoint,
    put_head,
    put_next_head,
    put_plain_head,
    refuse,
)
from headgate.store.sqlite_journal import SqliteJournal
from headgate.store.sqlite_rides import Ride, Rides
from headgate.store.sqlite_upkeep import first_of_last, write_rows

Connection = sqlite3.Connection

ROWS_MAX = 400  # a commit has one; whoever reads looks at all
# Rows that a write moves for others, and one more for each operation of its own, of which a commit has six and one row.
_CARRIED_MIN = 8
_OPERATIONS_MAX = 64  # ten commits and more share the pages of the indexes, and would gain nothing

_SNAPSHOTS, _HISTORY = Stream.SNAPSHOTS, Stream.HISTORY

# What adds rows, and what touches rows of `entries` only.
_STAGEABLE = frozenset({SwapEntry, CheckEntry, MarkCheckpoint, PutKey, PutEvent, PutFile, PutFootprint})


# What nearly every write is: one client's commit to one table, with a manifest and a list.
_COMMIT = (SwapEntry, PutKey, PutEvent, PutFootprint, PutFile, PutFile)


def _is_stageable(operations: Sequence[Operation]) -> bool:
    if not _STAGEABLE.issuperset(map(type, operations)):
        return False
    return not any(
        delta.removed for one in operations if isinstance(one, SwapEntry) for delta in one.logs.values()
    )


_DATA_VERSION = "PRAGMA data_version"

_LAST_SEQUENCE = "SELECT seq FROM sqlite_sequence WHERE name = 'indexed_events'"

_FIND_KEY = "SELECT 1 FROM indexed_keys WHERE principal = ? AND key = ?"

# The row of a commit of the usual shape: its columns in the order of `Staged._stage_commit`, what is there twice said once.
_TWICE = """
sequence, facts_sequence, event_entry_id, facts_entry_id, a_entry_id, b_entry_id, a_stream, b_stream
"""
_ONCE = """
snapshot_id, footprint, kind, namespace, name, event_principal, event_key, at_ms, payload,
key, principal, fingerprint, status, key_body, created_at_ms,
a_position, a_key, a_body, a_tag, b_position, b_key, b_body, b_tag,
a_location, a_data, a_created_at_ms, a_base, a_tail_bytes, b_location, b_data, b_created_at_ms, b_base, b_tail_bytes
"""

_STAGE_COMMIT = f"""
INSERT INTO staged_rows ({_TWICE}, {_ONCE})
VALUES (?1, ?1, ?2, ?2, ?2, ?2, {_SNAPSHOTS:d}, {_HISTORY:d},
    {", ".join(f"?{number}" for number, _ in enumerate(_ONCE.split(","), 3))})
"""


class _Write(NamedTuple):
    """What one write has staged: the number of its last row, how many it has, and what may not be there twice."""

    last: int
    rows: int
    keys: Collection[tuple[str, str]]
    tags: Collection[Tag]
    files: Collection[str]


class Staged:
    """The rows that this process has staged. One for each store, for use under the lock of its writer."""

    def __init__(self, *, rows_max: int = ROWS_MAX) -> None:
        self.journal = SqliteJournal()
        self.rides = Rides()
        self._carried: tuple[Ride, Sequence[str]] | None = None  # by this transaction, with what it leaves
        self._rows_max = rows_max
        self._data_version: int | None = None
        self.mark = 0  # what to tell `take_back`, as it was before
        self._is_known = False  # what follows is all that is staged
        self._writes: deque[_Write] = deque()  # oldest first
        self._rows = 0
        self._keys: set[tuple[str, str]] = set()
        self._tags: set[Tag] = set()
        self._files: dict[str, None] = {}  # in the order of their rows
        self._next_sequence: int | None = None  # None: as the database says, and then nothing is staged

    # --- what is remembered, and whether it is right ------------------------------------------------------

    def begin(self, db: Connection) -> None:
        """A transaction that writes has begun: see whether another connection has written since the last one."""
        version = db.execute(_DATA_VERSION).fetchone()[0]
        if version != self._data_version:
            self._data_version = version
            self._is_known = False

    def take_back(self, mark: int) -> None:
        """What was written since the mark is not there."""
        if mark != self.mark:
            self.forget()

    def forget(self) -> None:
        """Nobody knows what is there."""
        self.mark += 1
        self._is_known = False
        self._carried = None  # it goes on waiting
        self.journal.forget()

    # --- writes -----------------------------------------------------------------------------------------

    def write(self, db: Connection, operations: Sequence[Operation]) -> Refused | None:
        """Apply the operations in order up to the first that does not hold; rows are staged where that can be."""
        bound = _CARRIED_MIN + len(operations)
        if (ride := self.rides.find_first()) is not None and self._carried is None:
            self._carried = ride, self._drop_oldest(db, ride.locations, rows_max=bound)
        if self._rows > self._rows_max and self._is_known:
            self._move_oldest(db, self._find_oldest(bound), ())
        if tuple(map(type, operations)) == _COMMIT and self._is_known and self._stage_commit(db, operations):
            return None
        if not self._is_known or len(operations) > _OPERATIONS_MAX or not _is_stageable(operations):
            self.move(db)
            return sqlite_write.apply(db, operations, self.journal)
        return self._stage(db, operations)

    def move(self, db: Connection, *, but_files: Collection[str] = ()) -> None:
        """Move all rows into the indexed tables, to which the caller may write then; these files are dropped instead."""
        self.mark += 1
        self._next_sequence = None
        if self._is_known and not self._rows:
            return
        self._move_rows(db, _ALL, self._files, but_files)
        db.execute(_DELETE)
        self._rows = 0
        self._writes.clear()
        self._keys.clear()
        self._tags.clear()
        self._files.clear()
        self._is_known = True

    def _move_oldest(self, db: Connection, writes: Sequence[_Write], but_files: Collection[str]) -> None:
        """As `move`, for the rows of these writes, which are the oldest."""
        self.mark += 1
        last = writes[-1].last
        self._move_rows(db, last, [location for write in writes for location in write.files], but_files)
        db.execute(_DELETE_OLDEST, (last,))
        for write in writes:
            self._writes.popleft()
            self._rows -= write.rows
            self._keys.difference_update(write.keys)
            self._tags.difference_update(write.tags)
            for location in write.files:
                del self._files[location]

    def _move_rows(self, db: Connection, last: int, files: Iterable[str], but_files: Collection[str]) -> None:
        """Copy the rows up to this number, which hold these files."""
        for statement in _MOVE:
            db.execute(statement, (last,))
        left = [location for location in files if location not in but_files]
        if left or not self._is_known:
            db.execute(_MOVE_FILES, (msgspec.json.encode(list(but_files)).decode(), last))
            if self._is_known:
                self.journal.remember(db, left)

    def finish_ride(self, db: Connection, ride: Ride) -> None:
        """Nobody writes: drop what is left of its files."""
        if not ride.arrived.is_set():
            self.drop_files(db, ride.locations)
            self._carried = ride, ()

    def arrive(self) -> None:
        """The transaction has been committed, with what it carried."""
        if self._carried is not None:
            (ride, left), self._carried = self._carried, None
            ride.locations = left
            if not left:
                self.rides.end(ride)
                ride.arrived.set()

    def _drop_oldest(self, db: Connection, locations: Sequence[str], *, rows_max: int) -> Sequence[str]:
        """Drop these files, but not those in younger rows than so many; which are left."""
        if not self._is_known:
            self.drop_files(db, locations)
            return ()
        if staged := {one for one in locations if one in self._files}:
            oldest = self._find_oldest(rows_max)
            while len(oldest) > 1 and staged.isdisjoint(oldest[-1].files):
                oldest.pop()
            self._move_oldest(db, oldest, staged)
        self.journal.drop_files(db, [location for location in locations if location not in staged])
        return [location for location in locations if location in self._files]

    def _find_oldest(self, rows_max: int) -> list[_Write]:
        """The oldest writes that have no more rows than so many, but one at least."""
        oldest, rows = list[_Write](), 0
        for write in self._writes:
            rows += write.rows
            if oldest and rows > rows_max:
                break
            oldest.append(write)
        return oldest

    def drop_files(self, db: Connection, locations: Sequence[str]) -> None:
        """These files are durable, or not wanted any more; all rows are moved."""
        staged = {one for one in locations if one in self._files} if self._is_known else set[str]()
        self.move(db, but_files=staged)
        self.journal.drop_files(db, [location for location in locations if location not in staged])

    def _stage_commit(self, db: Connection, operations: Any) -> bool:
        """Stage a `_COMMIT` as `_stage` would, if it is as plain as most are and all of it holds.

        False: nothing was changed, and `_stage` will do it, or say what does not hold.
        """
        swap, put, told, footprint, first, second = operations
        try:
            snapshots, history = swap.logs[_SNAPSHOTS], swap.logs[_HISTORY]
            (snapshot,), (entry,) = snapshots.added, history.added
        except (KeyError, ValueError):  # several items of one log, or none
            return False
        if snapshots.removed or history.removed or swap.checkpointed or entry.tag is not None:
            return False
        id, event = swap.id, told.event
        if not id == event.entry_id == footprint.id or told.snapshot_ids != (footprint.snapshot_id,):
            return False
        record, file, another = put.record, first.file, second.file
        pair, tag = (record.principal, record.key), (id, _SNAPSHOTS, snapshot.tag)
        if pair in self._keys or tag in self._tags:
            return False
        place, another_place, files, moved = (
            file.location,
            another.location,
            self._files,
            self.journal.numbers,
        )
        if place == another_place or place in files or another_place in files:
            return False
        if place in moved or another_place in moved:
            return False
        if not put.is_new and db.execute(_FIND_KEY, pair).fetchone() is not None:
            return False
        if not swap.tags_are_new and find_duplicate_tag(db, id, _SNAPSHOTS, snapshots.added) is not None:
            return False
        after = (snapshots.next_position, history.next_position)
        if not put_next_head(db, swap, snapshot, entry, after):
            return False
        sequence = self._next_sequence or self._find_next_sequence(db)
        self.mark += 1
        row = db.execute(
            _STAGE_COMMIT,
            (
                sequence,
                id,
                footprint.snapshot_id,
                footprint.body,
                event.kind,
                standing_path_of(event.namespace),
                event.name,
                event.principal,
                event.key,
                event.at_ms,
                event.payload,
                *astuple(record),
                *astuple(snapshot),
                *astuple(entry),
                *astuple(file),
                *astuple(another),
            ),
        ).lastrowid
        self._writes.append(_Write(row or 0, 1, (pair,), (tag,), (place, another_place)))
        self._rows += 1
        self._keys.add(pair)
        self._tags.add(tag)
        files[place] = files[another_place] = None
        self._next_sequence = sequence + 1
        return True

    def _stage(self, db: Connection, operations: Sequence[Operation]) -> Refused | None:
        batch = Batch()
        refused = self._collect(db, operations, batch)
        # Of all that do not hold the first is named, and the keys come before what was refused.
        for pair, (at, put) in batch.keys.items():
            if pair in self._keys or not (put.is_new or db.execute(_FIND_KEY, pair).fetchone() is None):
                return Refused(at, Reason.KEY_EXISTS, detail=pair[1])
        if refused is not None:
            return refused
        files = dict.fromkeys([put.file.location for put in batch.files])
        is_first = len(files) == len(batch.files) and self._files.keys().isdisjoint(files)
        invariant(is_first and not self.journal.knows(files), f"a file is journalled once: {[*files]}")
        sequence = self._find_next_sequence(db)
        rows = batch.rows(sequence)
        self.mark += 1
        write_rows(db, STAGE, rows)
        if rows:
            last = first_of_last(db, 1)
            self._writes.append(_Write(last, len(rows), tuple(batch.keys), batch.tags, tuple(files)))
        self._rows += len(rows)
        self._keys |= batch.keys.keys()
        self._tags |= batch.tags
        self._files |= files
        self._next_sequence = sequence + len(batch.events)
        return None

    def _collect(self, db: Connection, operations: Sequence[Operation], batch: Batch) -> Refused | None:
        """Swap heads and collect rows, up to the first operation that does not hold; keys are not looked up yet."""
        refused: Refused | None = None
        for index, one in enumerate(operations):
            if isinstance(one, SwapEntry):
                refused = self._swap(db, one, batch)
            elif isinstance(one, PutKey):
                refused = batch.add_key(index, one)
            elif isinstance(one, PutEvent):
                batch.events.append(one)
            elif isinstance(one, PutFootprint):
                batch.footprints[one.id, one.snapshot_id] = one.body  # put twice, the last one counts
            elif isinstance(one, PutFile):
                batch.files.append(one)
            elif isinstance(one, CheckEntry):
                refused = check_entry(db, one)
            elif isinstance(one, MarkCheckpoint):
                mark_checkpoint(db, one)
            if refused is not None:
                return Refused(index, refused.reason, refused.kind, refused.detail)
        return None

    def _swap(self, db: Connection, swap: SwapEntry, batch: Batch) -> Refused | None:
        standing = None if put_plain_head(db, swap) else find_standing(db, swap)
        if isinstance(standing, Refused):
            return standing
        id = swap.id
        for stream, delta in swap.logs.items():
            refused = None if swap.tags_are_new else find_duplicate_tag(db, id, stream, delta.added)
            if refused is not None:
                return refused
            tags = {(id, int(stream), item.tag) for item in delta.added if item.tag is not None}
            if tags:
                if staged := tags & self._tags or tags & batch.tags:
                    return refuse(Reason.DUPLICATE_TAG, str(min(staged)[2]))
                batch.tags |= tags
            batch.items += [(id, stream, one.position, one.key, one.tag, one.body) for one in delta.added]
        if standing is not None:
            put_head(db, swap, standing)
        return None

    def _find_next_sequence(self, db: Connection) -> int:
        if self._next_sequence is not None:
            return self._next_sequence
        row = db.execute(_LAST_SEQUENCE).fetchone()
        return 1 if row is None else int(row[0]) + 1


# --- moving ----------------------------------------------------------------------------------------------

# In order of their numbers, as if they had been put there one after the other. Of a key that was said to be new and was
# not, the first verdict stays: a row that cannot be moved would stop every write there is.
_MOVE = (
    """
INSERT INTO indexed_log (entry_id, stream, position, key, tag, body)
SELECT entry_id, stream, position, key, tag, body FROM staged_items WHERE number <= 2 * ? + 1 ORDER BY number
""",
    """
INSERT INTO indexed_keys (key, principal, fingerprint, status, body, created_at_ms)
SELECT key, principal, fingerprint, status, body, created_at_ms FROM staged_keys WHERE number <= ? ORDER BY number
ON CONFLICT (principal, key) DO NOTHING
""",
    """
INSERT INTO indexed_events (sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload)
SELECT sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload FROM staged_events
WHERE number <= ? ORDER BY number
""",
    sqlite_facts.MOVE_FACTS,
)

_MOVE_FILES = """
INSERT INTO journal (location, created_at_ms, base, tail_bytes, data)
SELECT location, created_at_ms, base, tail_bytes, data FROM staged_files
WHERE location NOT IN (SELECT value FROM json_each(?)) AND number <= 2 * ? + 1 ORDER BY number
"""

_ALL = (1 << 62) - 1  # the views of items and files have twice that number, and it is to be a number still

_DELETE = "DELETE FROM staged_rows"

_DELETE_OLDEST = "DELETE FROM staged_rows WHERE number <= ?"
