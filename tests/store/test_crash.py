"""kill -9 of a writer: nothing is half applied, and the next write succeeds within seconds."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.store.base import Stream
from headgate.store.open import open_store
from tests.store.builders import NS, Catalog
from tests.store.writer_process import GROUP, swap_both, swap_one

STORES = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
SECONDS_MAX = 5.0


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    return str(request.getfixturevalue("emptied_postgres_url"))


@contextmanager
def writer(url: str, mode: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.store.writer_process", url, mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_writer_killed_before_its_commit_leaves_nothing_and_no_lock(url: str) -> None:
    catalog = Catalog(open_store(url))
    catalog.create("a")
    catalog.create("b")
    with writer(url, "hold") as process:
        assert read_line(process) == "holding"
        process.kill()
        process.wait()
    started = time.monotonic()
    swap_both(catalog, key="after")
    assert time.monotonic() - started < SECONDS_MAX
    assert (catalog.header("a").version, catalog.header("b").version) == (2, 2)
    assert catalog.store.load_key("ann", "held") is None
    assert [stored.event.key for stored in catalog.store.read_events(after=0, limit=9)] == ["after"]
    catalog.store.close()


def test_a_writer_killed_at_any_time_has_applied_each_commit_wholly_or_not_at_all(url: str) -> None:
    catalog = Catalog(open_store(url))
    catalog.create("a")
    catalog.create("b")
    least = most = 0  # commits that were acknowledged; and with those that may have landed unheard
    for life in range(4):
        with writer(url, "race") as process:
            for _ in range(3 + life):
                last = read_line(process)
            process.kill()
            rest = process.stdout.read().splitlines() if process.stdout else []
        swap_both(catalog, key=f"after-{life}")  # waits for the locks of whatever is still ending
        least += int([last, *rest][-1]) + 2
        most = least + life + 1
        entries = [entry for entry in catalog.store.load_entries([(NS, "a"), (NS, "b")]) if entry]
        versions = [entry.header.version for entry in entries]
        lengths = [len(entry.logs[Stream.SNAPSHOTS]) + 1 for entry in entries]
        assert len({*versions, *lengths}) == 1, (versions, lengths)
        assert least <= versions[0] - 1 <= most
        assert len(catalog.store.read_events(after=0, limit=100_000)) == versions[0] - 1
        # Keys of the next life start over, so the old ones make room.
        catalog.store.expire_keys(before_ms=10, limit=100_000)
    catalog.store.close()


def test_writers_of_shared_transactions_killed_at_any_time_have_all_that_was_acknowledged(url: str) -> None:
    catalog = Catalog(open_store(url))
    for name in GROUP:
        catalog.create(name)
    acknowledged: list[str] = []
    for life in range(3):
        with writer(url, "group") as process:
            acknowledged += [read_line(process) for _ in range(20 + 7 * life)]
            process.kill()
            rest = process.stdout.read() if process.stdout else ""
        acknowledged += rest.split("\n")[:-1]  # what follows the last line break was cut off
        acknowledged += [swap_one(catalog, name) for name in GROUP]
    events = [stored.event.key for stored in catalog.store.read_events(after=0, limit=100_000)]
    files = [file.location for file in catalog.store.read_journal(before_ms=9, limit=100_000)]
    written = [f"{name}-{at}" for name in GROUP for at in range(1, catalog.header(name).version)]
    assert len(acknowledged) == len(set(acknowledged))
    assert set(acknowledged) <= set(written)
    assert sorted(filter(None, events)) == sorted(files) == sorted(written)
    assert len(catalog.store.load_keys([("ann", key) for key in written])) == len(written)
    for name in GROUP:
        entry = catalog.entry(name)
        commits = range(entry.header.version - 1)
        assert [one.position for one in entry.logs[Stream.SNAPSHOTS]] == list(commits)
        assert sorted(catalog.store.load_footprints(entry.header.id, commits)) == list(commits)
    catalog.store.close()


def test_two_processes_on_one_database_win_each_version_once(url: str) -> None:
    catalog = Catalog(open_store(url))
    catalog.create("a")
    catalog.create("b")
    start = catalog.header("a").version
    with writer(url, "race") as process:
        assert read_line(process) == "0"
        lost = 0
        for count in range(20):
            try:
                swap_both(catalog, key=f"ours-{count}")
            except AssertionError:
                lost += 1
        process.kill()
        process.wait()
    events = catalog.store.read_events(after=0, limit=100_000)
    ours = sum((stored.event.key or "").startswith("ours") for stored in events)
    assert ours == 20 - lost
    assert catalog.header("a").version == catalog.header("b").version == start + len(events)
    catalog.store.close()
