"""From a URL to a store; and migrations."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.errors import BadInput
from headgate.store.base import (
    SCHEMA_VERSION_TABLE,
    EntryId,
    JournalledFile,
    PutFootprint,
    Reason,
    Refused,
)
from headgate.store.memory import MemoryStore
from headgate.store.migrate import CREATE_VERSIONS, Migration, load_migrations, plan_migrations
from headgate.store.open import open_store
from headgate.store.sqlite import SqliteStore
from tests.store.builders import (
    Catalog,
    added,
    doom,
    drop,
    item,
    namespace,
    put_event,
    put_file,
    put_job,
    put_key,
    swap,
)


@pytest.mark.parametrize("url", ["memory://", "sqlite://", "sqlite:///:memory:"])
def test_a_url_without_a_file_is_a_store_in_memory(url: str) -> None:
    assert isinstance(open_store(url), MemoryStore)


def test_three_slashes_are_relative_and_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for url in ("sqlite:///x.db", "sqlite:///sub/y.db", f"sqlite:///{tmp_path}/z.db"):
        store = open_store(url)
        assert isinstance(store, SqliteStore)
        store.close()
    assert sorted(path.name for path in tmp_path.rglob("*.db")) == ["x.db", "y.db", "z.db"]


BAD_URLS = [
    "",
    "x.db",
    "mysql://host/db",
    "sqlite:x.db",
    "sqlite://host/x.db",
    "sqlite:///",
    "sqlite:///dir/",
    "sqlite:///x.db?mode=ro",
    "sqlite:////nope/nope/x.db",
    "postgresql://ann:hunter2@host:5432:1/db?no=such&option",
]


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_bad_url_is_refused_naming_the_setting_and_not_the_password(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        open_store(url)
    assert caught.value.field == "database"
    assert "hunter2" not in str(caught.value)


def test_a_missing_driver_is_named_with_its_extra() -> None:
    script = """
import sys
sys.modules["psycopg"] = None  # as if it were not installed
from headgate.errors import BadInput
from headgate.store.open import open_store
try:
    open_store("postgresql://host/db")
except BadInput as error:
    print(error.field, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("database ")
    assert "headgate[postgres]" in done.stdout


# --- migrations ------------------------------------------------------------------------------------------

STORES = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    return str(request.getfixturevalue("postgres_fresh_url"))


def run_sql(url: str, statement: str) -> list[tuple[object, ...]]:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
            rows = db.execute(statement).fetchall()
        db.close()
        return rows
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def versions_of(url: str) -> list[tuple[object, ...]]:
    return run_sql(url, f"SELECT version FROM {SCHEMA_VERSION_TABLE} ORDER BY version")


def dialect_of(url: str) -> str:
    return url.partition(":")[0].replace("postgresql", "postgres")


def newest(url: str) -> list[tuple[object, ...]]:
    """The versions of a database that is up to date."""
    return [(migration.number,) for migration in load_migrations(dialect_of(url))]


def open_as_it_was(url: str, version: int) -> None:
    """A database of the first migrations only."""
    dialect = dialect_of(url)
    run_sql(url, CREATE_VERSIONS)
    for migration in load_migrations(dialect)[:version]:
        for statement in migration.statements:
            run_sql(url, statement)
        run_sql(url, f"INSERT INTO {SCHEMA_VERSION_TABLE} (version) VALUES ({migration.number})")


def test_events_of_the_first_version_are_found_by_entry_and_by_snapshot(url: str) -> None:
    open_as_it_was(url, 1)
    payload = '{"added-snapshots":[{"snapshot-id":9007199254740993},{"snapshot-id":5}]}'
    for sequence, entry_id, text in ((1, "'x'", payload), (2, "NULL", "{}"), (3, "'x'", '{"version":2}')):
        body = f"CAST('{text}' AS BLOB)" if url.startswith("sqlite") else f"convert_to('{text}', 'UTF8')"
        run_sql(
            url,
            "INSERT INTO events (sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload) "
            f"VALUES ({sequence}, 'commit-table', 'db', 't', {entry_id}, 'ann', 'k', 7, {body})",
        )
    store = open_store(url)
    assert versions_of(url) == newest(url)
    assert [one.sequence for one in store.read_entry_events(EntryId("x"), after=0, limit=9)] == [1, 3]
    for snapshot_id in (9007199254740993, 5):
        found = store.find_snapshot_event(EntryId("x"), snapshot_id)
        assert found is not None
        assert found.sequence == 1
    store.close()


def test_a_database_of_the_second_version_keeps_its_rows_and_gets_the_gate_s_tables(url: str) -> None:
    open_as_it_was(url, 2)
    run_sql(url, "INSERT INTO namespaces VALUES ('db', NULL, 'db', '{}', 1)")
    catalog = Catalog(open_store(url))
    assert versions_of(url) == newest(url)
    header = catalog.create("t")
    catalog.must(put_file("f"), PutFootprint(header.id, 1, b"x"), put_job("j"), doom("d"))
    assert len(catalog.store.read_journal(before_ms=9, limit=9)) == 1
    assert catalog.store.load_footprints(header.id, [1]) == {1: b"x"}
    assert len(catalog.store.claim_jobs(owner="x", now_ms=1, lease_ms=1, limit=9)) == 1
    assert len(catalog.store.read_doomed(now_ms=9, limit=9)) == 1
    catalog.store.close()


def test_what_was_known_of_snapshots_before_the_fifth_version_is_known_after_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    open_as_it_was(url, 4)
    for sequence in (1, 2, 3):
        run_sql(
            url,
            "INSERT INTO events (sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload) "
            f"VALUES ({sequence}, 'commit-table', 'db', 't', 'x', 'ann', 'k', 7, CAST('{{}}' AS BLOB))",
        )
    for snapshot_id, sequence in ((5, 1), (5, 3), (6, 2)):
        run_sql(url, f"INSERT INTO event_snapshots VALUES ('x', {snapshot_id}, {sequence})")
    for snapshot_id in (5, 7):
        run_sql(url, f"INSERT INTO footprints VALUES ('x', {snapshot_id}, CAST('f{snapshot_id}' AS BLOB))")
    store = open_store(url)
    events = {n: store.find_snapshot_event(EntryId("x"), n) for n in (5, 6, 7)}
    assert {n: one and one.sequence for n, one in events.items()} == {5: 3, 6: 2, 7: None}
    assert store.load_footprints(EntryId("x"), [5, 6, 7]) == {5: b"f5", 7: b"f7"}
    assert versions_of(url) == newest(url)
    store.close()


def test_a_database_of_the_fifth_version_keeps_its_rows_and_order_and_shuts_older_services_out(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    open_as_it_was(url, 5)
    for statement in (
        "INSERT INTO namespaces VALUES ('db', NULL, 'db', '{}', 1)",
        "INSERT INTO entries VALUES ('x', 'db', 't', 'table', 'u', 3, 0, 's3://l', 'm', NULL, NULL, 2, 1, 1, x'7b7d')",
        "INSERT INTO entry_log VALUES ('x', 0, 0, 10, 10, x'61'), ('x', 0, 1, 11, 11, x'62'), ('x', 1, 0, 0, NULL, x'63')",
        "INSERT INTO keys VALUES ('k', 'ann', 'f', 200, x'', 1)",
        "INSERT INTO events VALUES (4, 'a', 'db', 't', 'x', 'ann', 'k', 7, x'7b7d'), (9, 'b', '', '', '', '', '', 7, '')",
        "DELETE FROM events WHERE sequence = 9",
        "INSERT INTO snapshot_facts VALUES ('x', 10, 4, x'66'), ('x', 11, NULL, x'67')",
        "INSERT INTO journal (number, location, created_at_ms, data, base, tail_bytes) "
        "VALUES (7, 'second', 2, x'02', 'first', 1), (3, 'first', 1, x'01', NULL, 0)",
    ):
        run_sql(url, statement)
    catalog = Catalog(open_store(url))
    store = catalog.store
    assert versions_of(url) == newest(url)
    files = [JournalledFile("first", b"\1", 1), JournalledFile("second", b"\2", 2, "first", 1)]
    assert store.read_journal(before_ms=9, limit=9) == files
    store.drop_files(["first"])
    assert store.read_journal(before_ms=9, limit=9) == files[1:]
    assert catalog.positions() == ([0, 1], [0])
    assert store.load_key("ann", "k") is not None
    assert store.load_footprints(EntryId("x"), [10, 11]) == {10: b"f", 11: b"g"}
    assert (found := store.find_snapshot_event(EntryId("x"), 10)) is not None
    assert found.sequence == 4
    for table in ("keys", "events", "entry_log"):
        with pytest.raises(sqlite3.OperationalError, match="view"):
            run_sql(url, f"INSERT INTO {table} DEFAULT VALUES")
    assert store.write([put_key("k")]) == Refused(0, Reason.KEY_EXISTS, None, "k")
    header = catalog.header()
    tag = store.write([swap(header, snapshots=added(item(2, tag=11)))])
    assert tag == Refused(0, Reason.DUPLICATE_TAG, None, "11")
    catalog.must(put_event("next"))
    assert [one.sequence for one in store.read_events(after=0, limit=9)] == [4, 10]
    catalog.must(drop(header))
    assert run_sql(url, "SELECT count(*) FROM entry_log") == [(0,)]
    store.close()


def test_what_a_service_of_the_sixth_version_had_staged_is_there_after_the_upgrade(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    open_as_it_was(url, 6)
    for statement in (
        "INSERT INTO namespaces VALUES ('db', NULL, 'db', '{}', 1)",
        "INSERT INTO entries VALUES ('x', 'db', 't', 'table', 'u', 3, 0, 's3://l', 'm', NULL, NULL, 2, 1, 1, x'7b7d')",
        "INSERT INTO indexed_facts VALUES ('x', 10, 4, x'66')",
        "INSERT INTO staged (kind, t1, n1, n2, n3, n4, body) "
        "VALUES (1, 'x', 0, 0, 10, 10, x'61'), (1, 'x', 1, 0, 0, NULL, x'62')",
        "INSERT INTO staged (kind, t1, t2, t3, n1, n2, body) VALUES (2, 'k', 'ann', 'f', 200, 1, x'')",
        "INSERT INTO staged (kind, t1, t2, t3, t4, t5, t6, n1, n2, body) "
        "VALUES (3, 'a', 'db', 't', 'x', 'ann', 'k', 5, 7, x'7b7d')",
        "INSERT INTO staged (kind, t1, n1, n2, body) VALUES (4, 'x', 10, 5, x'67'), (4, 'x', 11, NULL, x'68')",
        "INSERT INTO journal VALUES (3, 'first', 1, NULL, 0, x'01')",
    ):
        run_sql(url, statement)
    catalog = Catalog(open_store(url))
    store = catalog.store
    assert versions_of(url) == newest(url)
    assert catalog.positions() == ([0], [0])
    assert (key := store.load_key("ann", "k")) is not None
    assert (key.fingerprint, key.status, key.created_at_ms) == ("f", 200, 1)
    assert [
        (one.sequence, one.event.kind, one.event.at_ms) for one in store.read_events(after=0, limit=9)
    ] == [(5, "a", 7)]
    assert store.load_footprints(EntryId("x"), [10, 11]) == {10: b"g", 11: b"h"}
    assert store.read_journal(before_ms=9, limit=9) == [JournalledFile("first", b"\1", 1)]
    for (
        older
    ) in (  # as a service of that version stages rows, and moves them without the files that are in them now
        "INSERT INTO staged (kind, t1) VALUES (2, 'k')",
        "INSERT INTO indexed_log SELECT entry_id, stream, position, key, tag, body FROM staged_log ORDER BY number",
        "DELETE FROM staged",
    ):
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            run_sql(url, older)
    catalog.must(put_event("next"))
    assert [one.sequence for one in store.read_events(after=0, limit=9)] == [5, 6]
    store.close()


def test_opening_again_keeps_what_is_there(url: str) -> None:
    first = open_store(url)
    Catalog(first).must(namespace("a"))
    first.close()
    second = open_store(url)
    assert second.load_namespace(("a",)) is not None
    second.close()
    assert versions_of(url) == newest(url)


def test_processes_that_start_at_once_on_an_empty_database_all_start(url: str) -> None:
    script = "import sys; from headgate.store.open import open_store; open_store(sys.argv[1]).close()"
    started = [subprocess.Popen([sys.executable, "-c", script, url]) for _ in range(4)]
    assert [process.wait(timeout=60) for process in started] == [0, 0, 0, 0]
    assert versions_of(url) == newest(url)


def test_a_database_of_a_newer_version_is_refused(url: str) -> None:
    open_store(url).close()
    run_sql(url, f"INSERT INTO {SCHEMA_VERSION_TABLE} (version) VALUES (999)")
    with pytest.raises(BadInput, match="999") as caught:
        open_store(url)
    assert caught.value.field == "database"


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_migrations_are_in_the_package_and_numbered_without_gaps(dialect: str) -> None:
    migrations = load_migrations(dialect)
    assert [migration.number for migration in migrations] == list(range(1, len(migrations) + 1))
    assert all(migration.statements for migration in migrations)


def test_only_the_missing_migrations_are_run() -> None:
    migrations = [Migration(number, (f"statement {number}",)) for number in (1, 2, 3)]
    assert plan_migrations(migrations, at=None) == migrations
    assert plan_migrations(migrations, at=2) == migrations[2:]
    assert plan_migrations(migrations, at=3) == []
