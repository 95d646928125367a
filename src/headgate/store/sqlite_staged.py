"""Rows are staged: what a commit adds is put at the end of one table, and moved into the indexed tables many at a time.

Theory. A swap updates one row of `entries`, which is where it is decided, and adds to the log, the keys, the events, facts
and the journal. With their indexes those are two dozen pages for a handful of rows, and pages are what a commit costs.
So they go to `staged_rows`, which has no index, in the same transaction, one row for all that a commit adds; views make
every read see both parts (migration 0007). Files that are dropped before they were moved are never written a second time.
Three things must not be lost by that:

- *Once is once.* A key or a tag that is staged is in no index. So the writer remembers those that it has staged, and looks
  for others in the indexes. What it remembers is exact while nobody else writes. Whether another connection has is told by
  SQLite's `data_version`, read first in each transaction; then all rows are moved, and there is nothing to remember.
- *Order.* Staged events have sequences above those of all moved ones, given out in order of their commits: rows are always
  moved all at once, and nothing is written to the indexed tables while any row is staged.
- *What is taken back is not remembered.* `mark` before, and `take_back` after: if anything was staged, moved or put in
  between, all that is remembered is forgotten, and the next write moves all rows.

A write is staged when it only adds rows (`_STAGEABLE`), not too many, and nobody else has written since our last one; so
several processes that write in turns stage nothing, and pay nothing for it. Any other write moves all rows and goes to the
indexed tables (`sqlite_write.py`). The journal's is one, which drops files several times a second. One that finds more than
`rows_max` rows staged moves them first. Never begins or ends a transaction: that is `sqlite.py`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec.structs import astuple

from headgate.errors import invariant
from headgate.store import sqlite_facts, sqlite_write
from headgate.store.base import (
    CheckEntry,
    EntryId,
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
from headgate.store.rows import Row, event_row, file_row, key_row, standing_path_of
from headgate.store.sqlite_entries import (
    check_entry,
    find_duplicate_tag,
    find_standing,
    put_head,
    put_next_head,
    put_plain_head,
    refuse,
)
from headgate.store.sqlite_facts import FactsRow, Footprints, facts_of
from headgate.store.sqlite_journal import SqliteJournal
from headgate.store.sqlite_upkeep import write_rows

Connection = sqlite3.Connection
Tag = tuple[EntryId, int, int]  # entry, stream, tag

ROWS_MAX = (
    200  # a commit has one; whoever reads looks at all of them, and whoever moves them keeps others waiting
)
_OPERATIONS_MAX = 64  # ten commits and more share the pages of the indexes, and would gain nothing

_SNAPSHOTS, _HISTORY = Stream.SNAPSHOTS, Stream.HISTORY

_STAGEABLE = frozenset({SwapEntry, CheckEntry, PutKey, PutEvent, PutFile, PutFootprint})


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

# The parts of a row, in the order in which `_Batch.rows` puts them together.
_PARTS = (
    "key, principal, fingerprint, status, key_body, created_at_ms",
    "sequence, kind, namespace, name, event_entry_id, event_principal, event_key, at_ms, payload",
    "facts_entry_id, snapshot_id, facts_sequence, footprint",
    "a_entry_id, a_stream, a_position, a_key, a_tag, a_body",
    "b_entry_id, b_stream, b_position, b_key, b_tag, b_body",
    "a_location, a_data, a_created_at_ms, a_base, a_tail_bytes",
    "b_location, b_data, b_created_at_ms, b_base, b_tail_bytes",
)
_WIDTHS = [part.count(",") + 1 for part in _PARTS]
_NO_KEY, _NO_EVENT, _NO_FACTS, _NO_ITEM, _, _NO_FILE, _ = [(None,) * width for width in _WIDTHS]

_STAGE = f"INSERT INTO staged_rows ({', '.join(_PARTS)}) VALUES ({', '.join('?' * sum(_WIDTHS))})"

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


class Staged:
    """The rows that this process has staged. One for each store, for use under the lock of its writer."""

    def __init__(self, *, rows_max: int = ROWS_MAX) -> None:
        self.journal = SqliteJournal()
        self._rows_max = rows_max
        self._data_version: int | None = None
        self.mark = 0  # what to tell `take_back`, as it was before
        self._is_known = False  # what follows is all that is staged
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
        self.journal.forget()

    # --- writes -----------------------------------------------------------------------------------------

    def write(self, db: Connection, operations: Sequence[Operation]) -> Refused | None:
        """Apply the operations in order up to the first that does not hold; rows are staged where that can be."""
        if (
            tuple(map(type, operations)) == _COMMIT
            and self._is_known
            and self._rows <= self._rows_max
            and self._stage_commit(db, operations)
        ):
            return None
        if not self._is_known or len(operations) > _OPERATIONS_MAX or not _is_stageable(operations):
            self.move(db)
            return sqlite_write.apply(db, operations, self.journal)
        if self._rows > self._rows_max:
            self.move(db)
        return self._stage(db, operations)

    def move(self, db: Connection, *, but_files: Collection[str] = ()) -> None:
        """Move all rows into the indexed tables, to which the caller may write then; these files are dropped instead."""
        self.mark += 1
        self._next_sequence = None
        if self._is_known and not self._rows:
            return
        for statement in _MOVE:
            db.execute(statement)
        self._move_files(db, but_files)
        db.execute(_DELETE)
        self._rows = 0
        self._keys.clear()
        self._tags.clear()
        self._files.clear()
        self._is_known = True

    def _move_files(self, db: Connection, but_files: Collection[str]) -> None:
        left = [location for location in self._files if location not in but_files]
        if left or not self._is_known:
            db.execute(_MOVE_FILES, (msgspec.json.encode(list(but_files)).decode(),))
            if self._is_known:
                self.journal.remember(db, left)

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
        db.execute(
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
        )
        self._rows += 1
        self._keys.add(pair)
        self._tags.add(tag)
        files[place] = files[another_place] = None
        self._next_sequence = sequence + 1
        return True

    def _stage(self, db: Connection, operations: Sequence[Operation]) -> Refused | None:
        batch = _Batch()
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
        write_rows(db, _STAGE, rows)
        self._rows += len(rows)
        self._keys |= batch.keys.keys()
        self._tags |= batch.tags
        self._files |= files
        self._next_sequence = sequence + len(batch.events)
        return None

    def _collect(self, db: Connection, operations: Sequence[Operation], batch: _Batch) -> Refused | None:
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
            if refused is not None:
                return Refused(index, refused.reason, refused.kind, refused.detail)
        return None

    def _swap(self, db: Connection, swap: SwapEntry, batch: _Batch) -> Refused | None:
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


class _Batch:
    """What one write is to stage."""

    def __init__(self) -> None:
        self.items: list[Row] = []
        self.tags: set[Tag] = set()
        self.keys: dict[tuple[str, str], tuple[int, PutKey]] = {}  # with the indexes of their operations
        self.events: list[PutEvent] = []
        self.footprints: Footprints = {}
        self.files: list[PutFile] = []

    def add_key(self, index: int, put: PutKey) -> Refused | None:
        """Refused if it is here already."""
        pair = (put.record.principal, put.record.key)
        if pair in self.keys:
            return refuse(Reason.KEY_EXISTS, put.record.key)
        self.keys[pair] = (index, put)
        return None

    def rows(self, sequence: int) -> list[Row]:
        """The rows to be staged, if the first event gets this sequence: as few as hold it all."""
        facts: list[FactsRow] = facts_of(self.events, self.footprints, first=sequence)
        if self.footprints:
            facts += [(id, snapshot_id, None, body) for (id, snapshot_id), body in self.footprints.items()]
        files = [file_row(put.file) for put in self.files]
        parts = zip_longest(
            [key_row(put.record) for _, put in self.keys.values()],
            [(number, *event_row(put.event)) for number, put in enumerate(self.events, sequence)],
            facts,
            self.items[::2],
            self.items[1::2],
            files[::2],
            files[1::2],
        )
        return [
            (
                *(key or _NO_KEY),
                *(event or _NO_EVENT),
                *(known or _NO_FACTS),
                *(item or _NO_ITEM),
                *(another_item or _NO_ITEM),
                *(file or _NO_FILE),
                *(another_file or _NO_FILE),
            )
            for key, event, known, item, another_item, file, another_file in parts
        ]


# --- moving ----------------------------------------------------------------------------------------------

# In order of their numbers, as if they had been put there one after the other. Of a key that was said to be new and was
# not, the first verdict stays: a row that cannot be moved would stop every write there is.
_MOVE = (
    """
INSERT INTO indexed_log (entry_id, stream, position, key, tag, body)
SELECT entry_id, stream, position, key, tag, body FROM staged_items ORDER BY number
""",
    """
INSERT INTO indexed_keys (key, principal, fingerprint, status, body, created_at_ms)
SELECT key, principal, fingerprint, status, body, created_at_ms FROM staged_keys WHERE true ORDER BY number
ON CONFLICT (principal, key) DO NOTHING
""",
    """
INSERT INTO indexed_events (sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload)
SELECT sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload FROM staged_events ORDER BY number
""",
    sqlite_facts.MOVE_FACTS,
)

_MOVE_FILES = """
INSERT INTO journal (location, created_at_ms, base, tail_bytes, data)
SELECT location, created_at_ms, base, tail_bytes, data FROM staged_files
WHERE location NOT IN (SELECT value FROM json_each(?)) ORDER BY number
"""

_DELETE = "DELETE FROM staged_rows"
