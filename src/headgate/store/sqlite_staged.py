"""Rows are staged: what a commit adds is put at the end of one table, and moved into the indexed tables many at a time.

Theory. A swap updates one row of `entries`, which is where it is decided, and adds rows to the log, the keys, the events and
the facts. With their indexes those are a dozen and a half pages for a handful of rows, and pages are what a commit costs. So
they go to `staged`, which has no index, in the same transaction; views make every read see both parts (migration 0006).
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
from collections.abc import Iterable, Sequence

from headgate.core.encoded_log import LogItem
from headgate.store import sqlite_facts, sqlite_write
from headgate.store.base import (
    CheckEntry,
    EntryId,
    Event,
    KeyRecord,
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
from headgate.store.rows import Row, event_row
from headgate.store.sqlite_entries import check_entry, find_duplicate_tag, find_standing, put_head, refuse
from headgate.store.sqlite_facts import FactsRow, Footprints, facts_of
from headgate.store.sqlite_journal import SqliteJournal

Connection = sqlite3.Connection
Tag = tuple[EntryId, int, int]  # entry, stream, tag

ROWS_MAX = (
    500  # a commit has five; whoever reads looks at all of them, and whoever moves them keeps others waiting
)
_OPERATIONS_MAX = 64  # ten commits and more share the pages of the indexes, and would gain nothing

_STAGEABLE = frozenset({SwapEntry, CheckEntry, PutKey, PutEvent, PutFile, PutFootprint})


def _is_stageable(operations: Iterable[Operation]) -> bool:
    for one in operations:
        if type(one) not in _STAGEABLE:
            return False
        if isinstance(one, SwapEntry):
            for delta in one.logs.values():
                if delta.removed:
                    return False
    return True


_DATA_VERSION = "PRAGMA data_version"

_LAST_SEQUENCE = "SELECT seq FROM sqlite_sequence WHERE name = 'indexed_events'"

_FIND_KEY = "SELECT 1 FROM indexed_keys WHERE principal = ? AND key = ?"

_STAGE = """
INSERT INTO staged (kind, t1, t2, t3, t4, t5, t6, n1, n2, n3, n4, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class Staged:
    """The rows that this process has staged. One for each store, for use under the lock of its writer."""

    def __init__(self, *, rows_max: int = ROWS_MAX) -> None:
        self.journal = SqliteJournal()
        self._rows_max = rows_max
        self._data_version: int | None = None
        self._changes = 0
        self._is_known = False  # what follows is all that is staged
        self._rows = 0
        self._keys: set[tuple[str, str]] = set()
        self._tags: set[Tag] = set()
        self._next_sequence: int | None = None  # None: as the database says, and then nothing is staged

    # --- what is remembered, and whether it is right ------------------------------------------------------

    def begin(self, db: Connection) -> None:
        """A transaction that writes has begun: see whether another connection has written since the last one."""
        version = db.execute(_DATA_VERSION).fetchone()[0]
        if version != self._data_version:
            self._data_version = version
            self._is_known = False

    def mark(self) -> int:
        """What to tell `take_back`."""
        return self._changes

    def take_back(self, mark: int) -> None:
        """What was written since the mark is not there."""
        if mark != self._changes:
            self.forget()

    def forget(self) -> None:
        """Nobody knows what is there."""
        self._changes += 1
        self._is_known = False
        self.journal.forget()

    # --- writes -----------------------------------------------------------------------------------------

    def write(self, db: Connection, operations: Sequence[Operation]) -> Refused | None:
        """Apply the operations in order up to the first that does not hold; rows are staged where that can be."""
        if not self._is_known or len(operations) > _OPERATIONS_MAX or not _is_stageable(operations):
            self.move(db)
            return sqlite_write.apply(db, operations, self.journal)
        if self._rows > self._rows_max:
            self.move(db)
        return self._stage(db, operations)

    def move(self, db: Connection) -> None:
        """Move all rows into the indexed tables, to which the caller may write then."""
        self._changes += 1
        self._next_sequence = None
        if self._is_known and not self._rows:
            return
        for statement in _MOVE:
            db.execute(statement)
        self._rows = 0
        self._keys.clear()
        self._tags.clear()
        self._is_known = True

    def _stage(self, db: Connection, operations: Sequence[Operation]) -> Refused | None:
        batch = _Batch()
        refused = self._collect(db, operations, batch)
        # Of all that do not hold the first is named, and the keys come before what was refused.
        for pair, (at, _) in batch.keys.items():
            if pair in self._keys or db.execute(_FIND_KEY, pair).fetchone() is not None:
                return Refused(at, Reason.KEY_EXISTS, detail=pair[1])
        if refused is not None:
            return refused
        sequence = self._find_next_sequence(db)
        rows = batch.rows(sequence)
        self._changes += 1
        if rows:
            db.executemany(_STAGE, rows)
        if batch.files:
            self.journal.put_files(db, batch.files)
        self._rows += len(rows)
        self._keys |= batch.keys.keys()
        self._tags |= batch.tags
        self._next_sequence = sequence + len(batch.events)
        return None

    def _collect(self, db: Connection, operations: Sequence[Operation], batch: _Batch) -> Refused | None:
        """Swap heads and collect rows, up to the first operation that does not hold; keys are not looked up yet."""
        refused: Refused | None = None
        for index, one in enumerate(operations):
            if isinstance(one, SwapEntry):
                refused = self._swap(db, one, batch)
            elif isinstance(one, PutKey):
                refused = batch.add_key(index, one.record)
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
        standing = find_standing(db, swap)
        if isinstance(standing, Refused):
            return standing
        for stream, delta in swap.logs.items():
            if (refused := find_duplicate_tag(db, swap.id, stream, delta.added)) is not None:
                return refused
            tags = {(swap.id, stream.value, item.tag) for item in delta.added if item.tag is not None}
            if staged := tags & self._tags or tags & batch.tags:
                return refuse(Reason.DUPLICATE_TAG, str(min(staged)[2]))
            batch.tags |= tags
            batch.items += _item_rows(swap.id, stream, delta.added)
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
        self.keys: dict[tuple[str, str], tuple[int, KeyRecord]] = {}  # with the indexes of their operations
        self.events: list[PutEvent] = []
        self.footprints: Footprints = {}
        self.files: list[PutFile] = []

    def add_key(self, index: int, record: KeyRecord) -> Refused | None:
        """Refused if it is here already."""
        pair = (record.principal, record.key)
        if pair in self.keys:
            return refuse(Reason.KEY_EXISTS, record.key)
        self.keys[pair] = (index, record)
        return None

    def rows(self, sequence: int) -> list[Row]:
        """The rows to be staged, if the first event gets this sequence."""
        facts: list[FactsRow] = facts_of(self.events, self.footprints, first=sequence)
        facts += [(id, snapshot_id, None, body) for (id, snapshot_id), body in self.footprints.items()]
        return [
            *self.items,
            *[_key_row(record) for _, record in self.keys.values()],
            *[_event_row(number, put.event) for number, put in enumerate(self.events, sequence)],
            *[(4, row[0], *_FIVE, row[1], row[2], None, None, row[3]) for row in facts],
        ]


# --- rows as they are staged: kind, six texts, four numbers, body; the views of migration 0006 tell which is what --------

_FIVE = (None,) * 5


def _item_rows(id: EntryId, stream: Stream, items: Sequence[LogItem]) -> list[Row]:
    return [(1, id, *_FIVE, stream.value, item.position, item.key, item.tag, item.body) for item in items]


def _key_row(record: KeyRecord) -> Row:
    texts = (record.key, record.principal, record.fingerprint, None, None, None)
    return (2, *texts, record.status, record.created_at_ms, None, None, record.body)


def _event_row(sequence: int, event: Event) -> Row:
    *texts, at_ms, payload = event_row(event)
    return (3, *texts, sequence, at_ms, None, None, payload)


# --- moving ----------------------------------------------------------------------------------------------

# In order of their numbers, as if they had been put there one after the other.
_MOVE = (
    """
INSERT INTO indexed_log (entry_id, stream, position, key, tag, body)
SELECT entry_id, stream, position, key, tag, body FROM staged_log ORDER BY number
""",
    """
INSERT INTO indexed_keys (key, principal, fingerprint, status, body, created_at_ms)
SELECT key, principal, fingerprint, status, body, created_at_ms FROM staged_keys ORDER BY number
""",
    """
INSERT INTO indexed_events (sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload)
SELECT sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload FROM staged_events ORDER BY number
""",
    sqlite_facts.MOVE_FACTS,
    "DELETE FROM staged",
)
