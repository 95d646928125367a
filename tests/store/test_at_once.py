"""Writes that wait for nobody: they succeed or nothing was written, and who has time waits as ever."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headgate.errors import Overloaded, WouldWait
from headgate.store.base import Store
from headgate.store.sqlite import SqliteStore
from tests.store.builders import namespace

WAIT_S = 20


@pytest.fixture
def near(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "catalog.db")) as store:
        yield store


@contextmanager
def somebody_writing(folder: Path) -> Iterator[None]:
    """Another process is in a transaction for as long as this lasts."""
    with closing(sqlite3.connect(folder / "catalog.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


def test_a_write_that_nobody_stands_in_the_way_of_is_made_at_once(store: Store) -> None:
    with store.at_once():
        assert store.write([namespace("a")]) is None
    assert store.load_namespace(("a",)) is not None


def test_a_write_at_once_does_not_wait_for_another_process_and_nothing_was_written(
    near: SqliteStore, tmp_path: Path
) -> None:
    with somebody_writing(tmp_path), pytest.raises(WouldWait), near.at_once():
        near.write([namespace("a")])
    assert near.load_namespace(("a",)) is None
    assert near.write([namespace("a")]) is None  # the connection is as good as before


def test_who_may_wait_is_not_told_that_he_would_have_to(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "catalog.db", busy_timeout_ms=30)) as store:
        with somebody_writing(tmp_path), pytest.raises(Overloaded) as raised:
            store.write([namespace("a")])
        assert not isinstance(raised.value, WouldWait)


def test_only_the_thread_that_is_in_a_hurry_does_not_wait(near: SqliteStore, tmp_path: Path) -> None:
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with somebody_writing(tmp_path):
            held.set()
            assert let_go.wait(WAIT_S)

    with ThreadPoolExecutor(2) as pool:
        holding = pool.submit(hold)
        assert held.wait(WAIT_S)
        with near.at_once():
            patient = pool.submit(near.write, [namespace("patient")])
            with pytest.raises(WouldWait):
                near.write([namespace("hurried")])
        let_go.set()
        holding.result(WAIT_S)
        assert patient.result(WAIT_S) is None
    assert near.load_namespace(("patient",)) is not None
    assert near.load_namespace(("hurried",)) is None


def test_after_it_this_thread_waits_again(near: SqliteStore, tmp_path: Path) -> None:
    with somebody_writing(tmp_path), pytest.raises(WouldWait), near.at_once():
        near.write([namespace("a")])
    started = threading.Event()

    def let_go_soon(other: sqlite3.Connection) -> None:
        assert started.wait(WAIT_S)
        other.execute("ROLLBACK")

    with (
        closing(
            sqlite3.connect(tmp_path / "catalog.db", isolation_level=None, check_same_thread=False)
        ) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        letting_go = pool.submit(let_go_soon, other)
        started.set()
        assert near.write([namespace("a")]) is None
        letting_go.result(WAIT_S)
