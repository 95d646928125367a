"""Journalled files in SQLite's SQL. Docstrings are the contract's, in `base.py`.

A row lives for less than a second, so an index on the locations would cost a commit more than it saves. Instead,
`SqliteJournal` remembers the numbers of the rows that this process has put, and drops them by those. It may know too few,
and a number may have become another row's: so a row that is dropped has the location asked for, and locations whose numbers
are not known are looked for in all rows.

Never begins or ends a transaction: that is `sqlite.py`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from headgate.errors import invariant
from headgate.store.base import JournalledFile, PutFile
from headgate.store.rows import file_of, file_row
from headgate.store.sqlite_upkeep import first_of_last, insert_rows, write_rows

Connection = sqlite3.Connection

_REMEMBERED_MAX = 65_536  # rows that another process dropped are remembered here for nothing

_PUT_FILE = "INSERT INTO journal (location, data, created_at_ms, base, tail_bytes) VALUES (?, ?, ?, ?, ?)"

_DROP_NUMBER = "DELETE FROM journal WHERE number = ? AND location = ?"

_DROP_LOCATIONS = "DELETE FROM journal WHERE location IN (SELECT value FROM json_each(?))"


class SqliteJournal:
    """The rows that this process has put and not dropped. For use under the lock of the writer."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}  # of rows, by location

    def put_files(self, db: Connection, puts: Sequence[PutFile]) -> None:
        """Keep the bytes of these files. The same location twice is a bug, found out while the first is remembered."""
        rows = [file_row(put.file) for put in puts]
        for row in rows:
            invariant(row[0] not in self.numbers, f"a file is journalled once: {row[0]}")
            self.numbers[row[0]] = 0
        first = insert_rows(db, _PUT_FILE, rows)
        self.numbers.update((row[0], number) for number, row in enumerate(rows, first))
        self._bound()

    def knows(self, locations: Iterable[str]) -> bool:
        """Whether any of these is remembered."""
        return not self.numbers.keys().isdisjoint(locations)

    def remember(self, db: Connection, locations: Sequence[str]) -> None:
        """The rows of these files, and no others, were the last to be put, in this order."""
        first = first_of_last(db, len(locations))
        self.numbers.update((location, number) for number, location in enumerate(locations, first))
        self._bound()

    def _bound(self) -> None:
        if len(self.numbers) > _REMEMBERED_MAX:
            self.forget()

    def drop_files(self, db: Connection, locations: Sequence[str]) -> None:
        """These files are durable, or not wanted any more."""
        pairs = [(self.numbers.pop(location, 0), location) for location in locations]
        write_rows(db, _DROP_NUMBER, [pair for pair in pairs if pair[0]])
        if unknown := [location for number, location in pairs if not number]:
            db.execute(_DROP_LOCATIONS, (msgspec.json.encode(unknown).decode(),))

    def forget(self) -> None:
        """What was put may have been taken back."""
        self.numbers.clear()


_READ_JOURNAL = """
SELECT location, data, created_at_ms, base, tail_bytes FROM journal
WHERE created_at_ms < ? ORDER BY number LIMIT ?
"""

_READ_STAGED = """
SELECT location, data, created_at_ms, base, tail_bytes FROM staged_files
WHERE created_at_ms < ? ORDER BY number LIMIT ?
"""


def read_journal(db: Connection, before_ms: int, limit: int) -> list[JournalledFile]:
    db.execute("BEGIN")  # between two looks rows could be moved
    rows = db.execute(_READ_JOURNAL, (before_ms, limit)).fetchall()
    # What is staged was put after all that is in the journal.
    rows += db.execute(_READ_STAGED, (before_ms, limit - len(rows))).fetchall()
    db.execute("COMMIT")
    return [file_of(row) for row in rows]
