"""What only SQLite can get wrong: busy, COMMIT, journal, reopening."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import BadInput, CommitUnknown, Overloaded, StorageFailed
from headgate.store.base import CreateNamespace
from headgate.store.sqlite import SqliteStore
from tests.store.builders import Catalog, namespace, put_event, put_file, put_key, swap

Fault = Callable[[str], bool]  # may raise; True: raise after the statement was run


class FaultyConnection(sqlite3.Connection):
    """Runs its owner's fault before, and may fail after, each statement."""

    owner: FaultyStore

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        fails_after = self.owner.fault(sql)
        cursor = super().execute(sql, *parameters)
        if fails_after:
            raise sqlite3.OperationalError("disk I/O error")
        return cursor

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        fails_after = self.owner.fault(sql)
        cursor = super().executemany(sql, rows)
        if fails_after:
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


class FaultyStore:
    """A store whose connections share one fault; `opened` counts them."""

    def __init__(self, path: Path) -> None:
        self.fault: Fault = lambda sql: False
        self.opened = 0
        self.store = SqliteStore(path, connect=self._connect)
        self.catalog = Catalog(self.store)

    def _connect(self, path: str) -> sqlite3.Connection:
        self.opened += 1
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=FaultyConnection)
        db.owner = self
        return db


@pytest.fixture
def faulty(path: Path) -> Iterator[FaultyStore]:
    faulty = FaultyStore(path)
    yield faulty
    faulty.fault = lambda sql: False
    faulty.store.close()


def on(statement: str, *, before: bool) -> Fault:
    def fault(sql: str) -> bool:
        if statement not in sql:
            return False
        if before:
            raise sqlite3.OperationalError("disk I/O error")
        return True

    return fault


@pytest.mark.parametrize("landed", [False, True])
def test_an_error_of_commit_is_unknown_whether_it_landed_or_not(faulty: FaultyStore, landed: bool) -> None:
    header = faulty.catalog.create("t")
    faulty.fault = on("COMMIT", before=not landed)
    opened = faulty.opened
    with pytest.raises(CommitUnknown):
        faulty.store.write([swap(header), put_key("k")])
    faulty.fault = lambda sql: False
    assert (faulty.store.load_key("ann", "k") is not None) == landed
    assert faulty.catalog.header().version == (2 if landed else 1)
    faulty.catalog.must(put_key("next"))
    assert faulty.opened == opened + 1


STAGED: tuple[CreateNamespace, ...] = ()
UNSTAGED = (namespace("b"),)  # a write that does more than add rows to logs

BROKEN = [
    ("BEGIN IMMEDIATE", STAGED),
    ("PRAGMA data_version", STAGED),
    ("UPDATE entries", STAGED),
    ("INTO staged", STAGED),
    ("INTO indexed_keys", UNSTAGED),
    ("INTO indexed_events", UNSTAGED),
]


@pytest.mark.parametrize(("statement", "more"), BROKEN)
def test_an_error_before_commit_is_a_failure_that_left_nothing(
    faulty: FaultyStore, statement: str, more: tuple[CreateNamespace, ...]
) -> None:
    header = faulty.catalog.create("t")
    faulty.fault = on(statement, before=True)
    with pytest.raises(StorageFailed):
        faulty.store.write([put_key("k"), put_event("e"), swap(header), *more])
    faulty.fault = lambda sql: False
    assert faulty.catalog.header() == header
    assert faulty.store.load_key("ann", "k") is None
    assert faulty.catalog.event_kinds() == []
    faulty.catalog.must(put_key("k"), put_event("e"), swap(header), *more)


def test_an_interrupt_before_commit_leaves_nothing_and_a_store_that_works(faulty: FaultyStore) -> None:
    def fault(sql: str) -> bool:
        if "INTO indexed_keys" in sql:
            raise KeyboardInterrupt
        return False

    faulty.fault = fault
    with pytest.raises(KeyboardInterrupt):
        faulty.store.write([namespace("a"), put_key("k")])
    faulty.fault = lambda sql: False
    assert faulty.store.load_namespace(("a",)) is None
    faulty.catalog.must(namespace("a"))


def test_a_read_that_fails_says_so_and_the_next_one_has_a_new_connection(faulty: FaultyStore) -> None:
    faulty.fault = on("FROM namespaces", before=True)
    with pytest.raises(StorageFailed):
        faulty.store.load_namespace(("a",))
    faulty.fault = lambda sql: False
    assert faulty.store.load_namespace(("a",)) is None


def test_a_writer_that_is_busy_for_long_is_overload_and_for_short_is_waited_for(path: Path) -> None:
    store = SqliteStore(path, busy_timeout_ms=150)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Overloaded):
        store.write([namespace("a")])
    assert store.load_namespace(("a",)) is None
    release = threading.Timer(0.05, lambda: other.execute("ROLLBACK"))
    release.start()
    assert store.write([namespace("a")]) is None
    release.join()
    other.close()
    store.close()


def test_readers_do_not_wait_for_a_writer(path: Path) -> None:
    store = SqliteStore(path, busy_timeout_ms=50)
    assert store.write([namespace("a")]) is None
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM namespaces")
    assert store.load_namespace(("a",)) is not None
    other.execute("ROLLBACK")
    other.close()
    store.close()


def test_the_writer_syncs_each_commit_to_a_write_ahead_log(path: Path) -> None:
    opened: list[sqlite3.Connection] = []

    def connect(path: str) -> sqlite3.Connection:
        opened.append(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
        return opened[-1]

    store = SqliteStore(path, connect=connect)
    names = ("synchronous", "journal_mode", "foreign_keys")
    assert [opened[0].execute(f"PRAGMA {name}").fetchone()[0] for name in names] == [2, "wal", 1]
    store.close()


def test_a_full_disk_refuses_the_write_and_keeps_what_was_there(path: Path) -> None:
    opened: list[sqlite3.Connection] = []

    def connect(path: str) -> sqlite3.Connection:
        opened.append(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
        return opened[-1]

    catalog = Catalog(SqliteStore(path, connect=connect))
    header = catalog.create("t")
    before = catalog.entry()
    writer = opened[0]
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own way to have no room
    large = put_file(data=bytes(1 << 20))
    with pytest.raises(StorageFailed, match=r"full.*nothing was written"):
        catalog.store.write((swap(header), put_key(), large))
    assert catalog.entry() == before
    assert catalog.store.load_keys((("ann", "k"),)) == {}
    writer.execute("PRAGMA max_page_count = 1000000")
    catalog.must(swap(header), put_key(), large)
    assert catalog.entry().header.version == header.version + 1
    catalog.store.close()


def test_what_was_written_is_there_after_reopening(path: Path) -> None:
    first = Catalog(SqliteStore(path))
    header = first.create("t")
    first.must(swap(header), put_key(), put_event())
    entry = first.entry()
    first.store.close()
    second = Catalog(SqliteStore(path))
    assert second.entry() == entry
    assert second.event_kinds() == ["swap"]
    second.store.close()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        SqliteStore(tmp_path / "nope" / "catalog.db")
    assert caught.value.field == "database"


def test_a_file_that_is_not_a_database_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be read as one" * 100)
    with pytest.raises(StorageFailed):
        SqliteStore(path)


def test_dropping_a_file_from_the_journal_writes_no_zeros_over_its_pages(path: Path) -> None:
    def connect(path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA secure_delete = ON")  # as some builds have it from the start
        return db

    store = SqliteStore(path, connect=connect)
    Catalog(store).must(put_file("a", data=bytes(400_000)))
    before = _wal_frames(path)
    store.drop_files(["a"])
    assert _wal_frames(path) - before < 10  # of a hundred pages
    store.close()


def _wal_frames(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size // 4096
