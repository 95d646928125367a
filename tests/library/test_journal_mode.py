"""SQLite's journal is kept where it would be deleted, and nowhere else."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection

import headgate
from headgate.library.sql_rows import keep_journal
from tests.library.lake import NAME, Lake, quick, rows


def mode_of(connection: Connection) -> str:
    """The journal mode."""
    return str(connection.exec_driver_sql("PRAGMA journal_mode").scalar_one())


def set_mode(lake: Lake, mode: str) -> None:
    """As the owner of the database would."""
    database = sqlite3.connect(lake.folder / "catalog.db")
    assert database.execute(f"PRAGMA journal_mode = {mode}").fetchone() == (mode,)
    database.close()


def test_a_journal_that_would_be_deleted_is_kept(lake: Lake) -> None:
    with lake.connect_sql().engine.connect() as connection:
        assert mode_of(connection) == "delete"
        keep_journal(connection)
        assert mode_of(connection) == "persist"


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_database_stays_in_the_mode_that_its_owner_chose(lake: Lake, mode: str) -> None:
    set_mode(lake, mode)
    lake.create()
    headgate.open(NAME, lake.connect(), policy=quick()).append(rows(1))
    with lake.connect_sql().engine.connect() as connection:
        assert mode_of(connection) == mode
    assert lake.ids() == [1]


def test_a_journal_that_was_kept_is_not_rolled_back(lake: Lake) -> None:
    lake.create()
    table = headgate.open(NAME, lake.connect(), policy=quick())
    table.append(rows(1))
    table.append(rows(2))
    journal = Path(f"{lake.folder}/catalog.db-journal")
    assert journal.read_bytes()[:8] == bytes(8)
    lake.close()
    assert lake.ids() == [1, 2]
