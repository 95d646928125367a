"""The connection of a SQLite file that writes, and its transactions. `sqlite.py` has the theory.

Never lets a `sqlite3.Error` out of `submit`.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from headgate.errors import CommitUnknown, HeadgateError, Overloaded, WouldWait
from headgate.store.base import Refused
from headgate.store.group import Group, Member, fail_all, tell_all
from headgate.store.sqlite_connect import BUSY_WAIT_S, NO_WAITING, has_begun, translate
from headgate.store.sqlite_staged import Staged

Work = Callable[[sqlite3.Connection], Any]
T = TypeVar("T")

_MEMBERS_MAX = 256
_HURRY_S = 0.020  # who waits for nobody waits so long: a neighbour's transaction takes less


class Hurry(threading.local):
    """Until when this thread waits for others, if it is in a hurry; by the monotonic clock. It is while this is entered."""

    until: float | None = None

    def __enter__(self) -> None:
        self.until = time.monotonic() + _HURRY_S

    def __exit__(self, *_: object) -> None:
        self.until = None


class _NoneStays(list[object]):
    """The outcomes of several works, of which none is to stay."""


_TAKEN_BACK = (Refused, Exception, _NoneStays)  # outcomes of work whose writes are not to stay


class SqliteWriter:
    """All writes of a process to one file go through here. `open` gives a connection when there is none."""

    def __init__(
        self, open: Callable[[], sqlite3.Connection], staged: Staged, *, path: str, wait_max_s: float
    ) -> None:
        self._open, self._path, self._wait_max_s = open, path, wait_max_s
        self._group: Group[Work, Any] = Group(
            self._write_together, members_max=_MEMBERS_MAX, batches_max=1, wait_max_s=wait_max_s
        )
        self.lock = threading.Lock()  # held while the connection is in use
        self.staged = staged
        self.hurry = Hurry()
        self.written_at = float("-inf")  # the last transaction, by the monotonic clock
        self._db: sqlite3.Connection | None = None

    @property
    def waiting(self) -> int:
        """How many writes wait to share the next transaction."""
        return self._group.waiting

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a write transaction; a `Refused` from it is taken back, anything else is committed."""
        outcome: T
        if self._group.enter():
            try:
                with self.lock:
                    outcome = self._run(work)
            finally:
                self._group.leave()
        else:
            until = self.hurry.until
            left_s = None if until is None else max(0.0, until - time.monotonic())
            outcome = self._group.submit(work, wait_max_s=left_s)
        return outcome

    def _write_together(self, members: Sequence[Member[Work, Any]]) -> None:
        with self.lock:
            try:
                works = [member.work for member in members]
                outcomes = [self._run(works[0])] if len(works) == 1 else self._run_all(works)
            except HeadgateError as error:
                fail_all(members, error)
                return
        tell_all(members, outcomes)

    def _run(self, work: Work) -> Any:
        """What it gave, durable; raises what befell it or the transaction."""
        db, staged = self._db, self.staged
        try:
            if db is None or not has_begun(db):
                db = self._wait_to_begin()
            staged.begin(db)
        except sqlite3.Error as error:
            self.discard()
            raise translate(error) from error
        mark = staged.mark
        try:
            outcome = work(db)
        except BaseException as error:
            self._roll_back(db, mark)
            if isinstance(error, sqlite3.Error):
                raise translate(error) from error
            raise
        if isinstance(outcome, _TAKEN_BACK):
            self._roll_back(db, mark)
            return outcome
        try:
            db.execute("COMMIT")
        except BaseException as error:
            # Pages may be in the log already: under an injected fsync error, one COMMIT that raised was there
            # after reopening. Only a look for the key can tell.
            self.discard()
            if isinstance(error, sqlite3.Error):
                raise CommitUnknown(f"COMMIT failed: {error}; look for the key", path=self._path) from error
            raise
        staged.arrive()
        self.written_at = time.monotonic()
        return outcome

    def _run_all(self, works: Sequence[Work]) -> list[object]:
        """What each of them gave or raised, durable; raises what befell the transaction."""

        def attempt_all(db: sqlite3.Connection) -> list[object]:
            outcomes = [self._attempt(db, work) for work in works]
            stays = not all(isinstance(outcome, _TAKEN_BACK) for outcome in outcomes)
            return outcomes if stays else _NoneStays(outcomes)

        outcomes: list[object] = self._run(attempt_all)
        return outcomes

    def _attempt(self, db: sqlite3.Connection, work: Work) -> object:
        """What one member's work gave or raised; it is taken back alone unless it is to be committed."""
        mark = self.staged.mark
        db.execute("SAVEPOINT member")
        try:
            outcome: object = work(db)
        except Exception as error:  # outermost edge of this member's work: it is raised in its own thread
            if not db.in_transaction:  # some errors (disk full, I/O) roll back everything
                raise
            outcome = translate(error) if isinstance(error, sqlite3.Error) else error
        if isinstance(outcome, _TAKEN_BACK):
            self.staged.take_back(mark)
            db.execute("ROLLBACK TO member")
        db.execute("RELEASE member")
        return outcome

    def _wait_to_begin(self) -> sqlite3.Connection:
        """Open the database for writing if it is not, and begin when no other process writes to it."""
        until = self.hurry.until
        deadline = time.monotonic() + self._wait_max_s if until is None else until
        if self._db is None:
            if until is not None:
                raise WouldWait("the database is not open for writing; nothing was written")
            self._db = self._open()
            self._db.execute(NO_WAITING)  # that is done here, unless the caller does not wait
        while not has_begun(self._db):
            if time.monotonic() > deadline:
                kind = Overloaded if until is None else WouldWait
                raise kind("the database is busy: another process writes to it; nothing was written")
            time.sleep(BUSY_WAIT_S)
        return self._db

    def _roll_back(self, db: sqlite3.Connection, mark: int) -> None:
        self.staged.take_back(mark)
        try:
            if db.in_transaction:  # some errors (disk full, I/O) have rolled back already
                db.execute("ROLLBACK")
        except sqlite3.Error:
            self.discard()

    def discard(self) -> None:
        """Let go of the connection; the next transaction opens another. The lock is held."""
        db, self._db = self._db, None
        self.staged.forget()
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()
