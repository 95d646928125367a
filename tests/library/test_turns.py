"""Turns at a table: who has one is alone among those who take turns, and nobody depends on having one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog

import headgate
from headgate.errors import ConflictFound
from headgate.library import Counters, Policy, RetryBudget
from headgate.library.turns import DatabaseTurns, FileTurns, Turns, find_turns, take_turn
from tests.library.lake import NAME, Lake, rows

ROADS = ("sqlite", "postgres")
NAMES = ("db", "t")
AT_ONCE_S = 0.05
LONG_S = 30.0


@pytest.fixture
def both(lake: Lake) -> tuple[Turns, Turns]:
    """Turns at one table, as two processes would take them."""
    return turns_of(lake.connect_sql()), turns_of(lake.connect_sql())


def turns_of(catalog: SqlCatalog, *names: str) -> Turns:
    """Turns that there must be."""
    found = find_turns(catalog, names or NAMES)
    assert found is not None
    return found


def in_another_thread(turns: Turns, timeout_s: float) -> bool:
    """Whether somebody else would get the turn."""
    found: list[bool] = []

    def ask() -> None:
        with take_turn(turns, timeout_s) as is_ours:
            found.append(is_ours)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found == [True]


@pytest.mark.parametrize("road", ROADS)
def test_one_has_the_turn_and_others_get_it_when_it_ends(road: str, both: tuple[Turns, Turns]) -> None:
    first, second = both
    with take_turn(first, LONG_S) as is_ours:
        assert is_ours
        assert not in_another_thread(second, AT_ONCE_S)
    assert in_another_thread(second, LONG_S)


@pytest.mark.parametrize("road", ROADS)
def test_a_turn_ends_with_an_error_too(road: str, both: tuple[Turns, Turns]) -> None:
    with pytest.raises(KeyboardInterrupt), take_turn(both[0], LONG_S):
        raise KeyboardInterrupt
    assert in_another_thread(both[1], LONG_S)


@pytest.mark.parametrize("road", ROADS)
def test_who_waits_gets_the_turn_that_another_ends(road: str, both: tuple[Turns, Turns]) -> None:
    first, second = both
    found: list[bool] = []
    with take_turn(first, LONG_S):
        waiting = threading.Thread(target=lambda: found.append(in_another_thread(second, LONG_S)))
        waiting.start()
    waiting.join()
    assert found == [True]


@pytest.mark.parametrize("road", ROADS)
def test_tables_have_turns_of_their_own(road: str, lake: Lake, both: tuple[Turns, Turns]) -> None:
    with take_turn(both[0], LONG_S):
        assert in_another_thread(turns_of(lake.connect_sql(), "db", "other"), LONG_S)


@pytest.mark.parametrize("road", ROADS)
def test_nobody_waits_for_himself(road: str, both: tuple[Turns, Turns]) -> None:
    with take_turn(both[0], LONG_S), take_turn(both[1], LONG_S) as is_ours:
        assert not is_ours
    assert in_another_thread(both[1], LONG_S)


def test_more_threads_than_connections_leave_some_for_loads(postgres_fresh_url: str, tmp_path: Path) -> None:
    lake = Lake(tmp_path, postgres_fresh_url.replace("postgresql://", "postgresql+psycopg://", 1))
    catalog = lake.connect_sql()
    with ExitStack() as stack:
        for number in range(4):
            turns = turns_of(catalog, "db", f"t{number}")
            assert stack.enter_context(take_turn(turns, LONG_S))
        assert not in_another_thread(turns_of(catalog, "db", "one-more"), AT_ONCE_S)
        assert catalog.list_namespaces() == [("db",)]
    assert in_another_thread(turns_of(catalog, "db", "one-more"), LONG_S)
    lake.close()


def test_a_process_that_dies_loses_its_turn() -> None:
    name = uuid4().hex
    code = (
        "import sys\n"
        "from headgate.library.turns import FileTurns, take_turn\n"
        "with take_turn(FileTurns(sys.argv[1]), 30.0) as is_ours:\n"
        "    print(is_ours, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert not in_another_thread(FileTurns(name), AT_ONCE_S)
        other.kill()
    assert in_another_thread(FileTurns(name), LONG_S)


def test_a_process_forked_in_the_middle_of_a_turn_does_not_keep_it() -> None:
    name = uuid4().hex
    code = (
        "import os, sys, time\n"
        "from headgate.library.turns import FileTurns, take_turn\n"
        "with take_turn(FileTurns(sys.argv[1]), 30.0):\n"
        "    if os.fork() == 0:\n"
        "        sys.stdin.read()\n"
        "        os._exit(0)\n"
        "print('ended', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ended\n"
        assert in_another_thread(FileTurns(name), LONG_S)
        other.communicate()


def test_who_gave_up_waiting_does_not_keep_the_turn_that_comes_later() -> None:
    name = uuid4().hex
    with take_turn(FileTurns(name), LONG_S):
        assert not in_another_thread(FileTurns(name), AT_ONCE_S)
        assert not in_another_thread(FileTurns(name), AT_ONCE_S)
    assert in_another_thread(FileTurns(name), LONG_S)


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"headgate-turns-{os.getuid()}").write_text("not a folder")
    with take_turn(FileTurns(uuid4().hex), LONG_S) as is_ours:
        assert not is_ours


def test_the_timeout_of_a_turn_is_not_left_to_the_next_statement(
    postgres_fresh_url: str, tmp_path: Path
) -> None:
    lake = Lake(tmp_path, postgres_fresh_url.replace("postgresql://", "postgresql+psycopg://", 1))
    catalog = lake.connect_sql()
    with take_turn(turns_of(catalog), LONG_S) as is_ours:
        assert is_ours
    with catalog.engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "0"
    lake.close()


def test_a_database_that_is_gone_gives_no_turn_and_no_error(lake: Lake) -> None:
    gone = SqlCatalog("lake", uri=f"sqlite:///{lake.folder}/other.db", warehouse=f"file://{lake.folder}")
    with take_turn(DatabaseTurns(gone.engine, "00" * 8), LONG_S) as is_ours:  # SQLite has no advisory locks
        assert not is_ours
    gone.engine.dispose()


def test_a_catalog_in_memory_needs_no_turns(tmp_path: Path) -> None:
    catalog = InMemoryCatalog("lake", warehouse=f"file://{tmp_path}")
    assert find_turns(catalog, NAMES) is None
    catalog.engine.dispose()


# --- commits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("road", ROADS)
def test_a_commit_goes_on_without_a_turn_that_does_not_come(road: str, lake: Lake) -> None:
    lake.create()
    turns = turns_of(lake.connect_sql(), *lake.full_name(NAME).split("."))
    table = headgate.open(
        lake.full_name(NAME), lake.connect(), policy=Policy(total_max_ms=300, budget=RetryBudget())
    )
    done: list[int] = []
    with take_turn(turns, LONG_S) as is_ours:
        assert is_ours
        writer = threading.Thread(target=lambda: done.append(table.append(rows(1)).sent))
        writer.start()
        writer.join()
    assert done == [1]
    assert lake.ids() == [1]


@pytest.mark.parametrize("road", ROADS)
def test_writers_that_take_turns_need_one_attempt_each(road: str, lake: Lake) -> None:
    lake.create()
    counters = Counters()
    policy = Policy(observer=counters, budget=RetryBudget())

    def write(first: int) -> None:
        table = headgate.open(lake.full_name(NAME), lake.connect(), policy=policy)
        for number in range(first, first + 5):
            table.append(rows(number))

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 100, 200, 300)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert counters.verdicts == {"committed": 20}
    assert counters.attempts == 20
    assert len(lake.ids()) == 20
    assert not lake.find_orphans()


@pytest.mark.parametrize("road", ROADS)
def test_a_refused_commit_keeps_no_turn(road: str, lake: Lake) -> None:
    lake.create()
    table = headgate.open(lake.full_name(NAME), lake.connect(), policy=Policy(budget=RetryBudget()))
    table.append(rows(1))
    base = table.refresh().snapshot_id()
    table.append(rows(2))
    with pytest.raises(ConflictFound):
        table.overwrite(rows(3), filter="part = 'a'", base_snapshot_id=base)
    assert in_another_thread(turns_of(lake.connect_sql(), *lake.full_name(NAME).split(".")), LONG_S)
