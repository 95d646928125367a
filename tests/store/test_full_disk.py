"""A full disk: at whatever page a write of SQLite finds no room, what was acknowledged is there, and once."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from headgate.errors import StorageFailed
from headgate.store.base import Reason
from headgate.store.sqlite import SqliteStore
from tests.store.builders import Catalog, put_key
from tests.store.test_sqlite_staged import commit, files_of, journalled, move, rows_of, sequences

STAGED, DROPPED = 300, 280
FAILURES = 3
COMMITS_MAX = 2_000  # that find room before the disk is full


class SmallDisk:
    """A store on a file that may have so many more pages, which is SQLite's own way to have no room."""

    def __init__(self, path: Path) -> None:
        self._writer: sqlite3.Connection | None = None
        self.catalog = Catalog(SqliteStore(path, connect=self._connect))

    def _connect(self, path: str) -> sqlite3.Connection:
        opened = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._writer = self._writer or opened  # the first one that a store opens
        return opened

    def leave(self, pages: int) -> None:
        assert self._writer is not None
        used = self._writer.execute("PRAGMA page_count").fetchone()[0]
        self._writer.execute(f"PRAGMA max_page_count = {used + pages}")

    def fill(self, keys: list[str]) -> None:
        """Commit until the disk was full a few times; the keys of what was acknowledged are added."""
        failures = 0
        while failures < FAILURES and len(keys) < COMMITS_MAX:
            try:
                keys.append(commit(self.catalog))
            except StorageFailed:
                failures += 1
        assert failures == FAILURES


@pytest.mark.parametrize("pages", [0, 1, 2, 3, 5, 8, 13, 21, 34])
def test_a_disk_that_fills_up_while_commits_carry_rows_for_the_journal_loses_nothing(
    tmp_path: Path, pages: int
) -> None:
    disk = SmallDisk(tmp_path / "catalog.db")
    catalog = disk.catalog
    catalog.create("t")
    keys = [commit(catalog) for _ in range(STAGED)]
    dropped = files_of(keys[:DROPPED])

    def drop() -> None:
        # Nobody carried them in time, and then there was no room: they are dropped below.
        with suppress(StorageFailed):
            catalog.store.drop_files(dropped)

    disk.leave(pages)
    dropping = threading.Thread(target=drop)
    dropping.start()
    disk.fill(keys)
    dropping.join()
    disk.leave(10_000)
    for key in keys[::10]:
        refused = catalog.store.write([put_key(key)])
        assert refused is not None, key
        assert refused.reason is Reason.KEY_EXISTS
    catalog.store.drop_files(dropped)
    keys += [commit(catalog) for _ in range(5)]
    assert catalog.event_kinds() == keys
    assert catalog.positions() == (list(range(len(keys))), list(range(len(keys))))
    assert sequences(catalog.store) == sorted(set(sequences(catalog.store)))
    assert [one for one in journalled(catalog) if one not in files_of(keys[DROPPED:])] == []
    assert len(catalog.store.load_keys([("ann", key) for key in keys])) == len(keys)
    catalog.store.close()


@pytest.mark.parametrize("pages", [0, 1, 2, 3, 5, 8, 13, 21])
def test_a_disk_that_fills_up_while_staged_rows_are_moved_keeps_them_staged(
    tmp_path: Path, pages: int
) -> None:
    path = tmp_path / "catalog.db"
    disk = SmallDisk(path)
    catalog = disk.catalog
    catalog.create("t")
    keys = [commit(catalog) for _ in range(STAGED)]
    disk.leave(pages)
    with pytest.raises(StorageFailed):
        move(catalog.store)
    assert rows_of(path) == len(keys)
    assert rows_of(path, "indexed_log") == 0
    assert catalog.event_kinds() == keys
    disk.leave(10_000)
    keys.append(commit(catalog))
    move(catalog.store)
    assert rows_of(path) == 0
    assert catalog.event_kinds() == keys
    assert catalog.positions() == (list(range(len(keys))), list(range(len(keys))))
    assert journalled(catalog) == files_of(keys)
    catalog.store.close()
