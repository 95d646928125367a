"""What only PostgreSQL can get wrong: order of the feed, lost connections, COMMIT, restored dumps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import psycopg
import pytest

from headgate.errors import CommitUnknown, StorageFailed
from headgate.store import postgres_read, postgres_write
from headgate.store.postgres import PostgresStore
from tests.store.builders import Catalog, added, item, namespace, put_event, put_key, swap

pytestmark = pytest.mark.postgres

Connection = psycopg.Connection[tuple[Any, ...]]


class FaultyConnection(Connection):
    """Fails as the class attributes say; tests derive from it, so that they share nothing."""

    statement = ""
    lands = False
    times = 0

    def execute(self, query: Any, *parameters: Any, **options: Any) -> Any:
        kind = type(self)
        if not kind.times or not re.search(kind.statement, query):
            return super().execute(query, *parameters, **options)
        kind.times -= 1
        if kind.lands:
            super().execute(query, *parameters, **options)
        self.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")


@pytest.fixture
def url(emptied_postgres_url: str) -> str:
    return emptied_postgres_url


@pytest.fixture
def faults() -> type[FaultyConnection]:
    return type("Faults", (FaultyConnection,), {})


@pytest.fixture
def catalog(url: str, faults: type[FaultyConnection]) -> Iterator[Catalog]:
    store = PostgresStore(url, connection_class=faults)
    yield Catalog(store)
    store.close()


# --- the feed --------------------------------------------------------------------------------------------

STEPS = [(who, step) for who in (0, 1) for step in ("number", "event", "commit")]


def in_order_of_each(steps: tuple[tuple[int, str], ...]) -> bool:
    return all([step for step in steps if step[0] == who] == STEPS[who * 3 : who * 3 + 3] for who in (0, 1))


INTERLEAVINGS = [steps for steps in permutations(STEPS) if in_order_of_each(steps)]


def test_no_event_is_skipped_however_two_transactions_interleave(catalog: Catalog, url: str) -> None:
    """`number` gives a transaction its id; without it first, ids and events would always have one order."""
    after, written, seen = 0, [], []
    for at, steps in enumerate(INTERLEAVINGS):
        connections: list[Connection] = [psycopg.connect(url, autocommit=True) for _ in (0, 1)]
        for db in connections:
            db.execute("BEGIN")
        for who, step in steps:
            match step:
                case "number":
                    connections[who].execute("SELECT pg_current_xact_id()")
                case "event":
                    assert postgres_write.apply(connections[who], [put_event(f"{at}-{who}")]) is None
                    written.append(f"{at}-{who}")
                case "commit":
                    connections[who].execute("COMMIT")
            for stored in catalog.store.read_events(after=after, limit=100):
                seen.append(stored.event.kind)
                after = stored.sequence
        for db in connections:
            db.close()
    assert len(INTERLEAVINGS) == 20
    assert sorted(seen) == sorted(written)


def test_a_transaction_that_stays_open_holds_the_feed_back(catalog: Catalog, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as slow:
        slow.execute("BEGIN")
        assert postgres_write.apply(slow, [put_event("slow")]) is None
        catalog.must(put_event("quick"))
        assert catalog.event_kinds() == []
        slow.execute("COMMIT")
    assert catalog.event_kinds() == ["slow", "quick"]


def test_events_of_a_restored_dump_stay_before_new_ones(catalog: Catalog, url: str) -> None:
    catalog.must(put_event("old"))
    with psycopg.connect(url, autocommit=True) as connection:
        # As if the dump came from a cluster that was ten million transactions ahead.
        connection.execute("UPDATE events SET sequence = sequence + (10000000::bigint << 16)")
        assert catalog.event_kinds() == []
        reopened = Catalog(PostgresStore(url))
        (old,) = reopened.store.read_events(after=0, limit=9)
        reopened.must(put_event("new"))
        assert [one.event.kind for one in reopened.store.read_events(after=old.sequence, limit=9)] == ["new"]
        assert reopened.event_kinds() == ["old", "new"]
        reopened.store.close()
        PostgresStore(url).close()
        assert catalog.event_kinds() == ["old", "new"]
        connection.execute("UPDATE counters SET value = 0 WHERE name = 'event-offset'")
        connection.execute("DELETE FROM events")


def test_the_feed_of_one_entry_waits_for_slower_transactions_too_but_a_snapshot_is_found_at_once(
    catalog: Catalog, url: str
) -> None:
    ours = catalog.create("t").id
    with psycopg.connect(url, autocommit=True) as slow:
        slow.execute("BEGIN")
        assert postgres_write.apply(slow, [put_event("slow")]) is None
        catalog.must(put_event("quick", id=ours, snapshot_ids=(8,)))
        assert catalog.store.read_entry_events(ours, after=0, limit=9) == []
        found = catalog.store.find_snapshot_event(ours, 8)
        assert found is not None
        slow.execute("COMMIT")
    assert catalog.store.read_entry_events(ours, after=0, limit=9) == [found]


# --- connections and COMMIT ------------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [False, True])
def test_a_connection_lost_in_commit_is_unknown(
    catalog: Catalog, faults: type[FaultyConnection], landed: bool
) -> None:
    header = catalog.create("t")
    faults.statement, faults.lands, faults.times = "^COMMIT", landed, 1
    with pytest.raises(CommitUnknown):
        catalog.store.write([swap(header), put_key("k")])
    assert (catalog.store.load_key("ann", "k") is not None) == landed
    assert catalog.header().version == (2 if landed else 1)
    catalog.must(put_key("next"))


@pytest.mark.parametrize("statement", ["BEGIN", "UPDATE entries", "INTO keys"])
def test_a_connection_lost_before_commit_is_tried_again_inside(
    catalog: Catalog, faults: type[FaultyConnection], statement: str
) -> None:
    header = catalog.create("t")
    faults.statement, faults.times = statement, 2
    catalog.must(swap(header), put_key("k"))
    assert faults.times == 0
    assert catalog.header().version == 2


def test_a_connection_that_is_always_lost_is_a_failure_that_left_nothing(
    catalog: Catalog, faults: type[FaultyConnection]
) -> None:
    header = catalog.create("t")
    faults.statement, faults.times = "INTO keys", 1_000
    with pytest.raises(StorageFailed):
        catalog.store.write([swap(header), put_key("k")])
    faults.times = 0
    assert catalog.header() == header


def test_a_server_that_ended_all_connections_is_met_again(catalog: Catalog, url: str) -> None:
    catalog.must(namespace("a"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert catalog.store.load_namespace(("a",)) is not None
    catalog.must(namespace("b"))


def test_a_server_that_is_not_there_is_a_failure_that_keeps_the_password() -> None:
    with pytest.raises(StorageFailed) as caught:
        PostgresStore("postgresql://ann:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in str(caught.value)


def test_commits_are_on_disk_even_where_the_database_says_they_need_not_be(postgres_fresh_url: str) -> None:
    found: list[tuple[Any, ...] | None] = []

    class Spying(Connection):
        def execute(self, query: Any, *parameters: Any, **options: Any) -> Any:
            if query == "COMMIT":
                found.append(super().execute("SHOW synchronous_commit").fetchone())
            return super().execute(query, *parameters, **options)

    with psycopg.connect(postgres_fresh_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    store = PostgresStore(postgres_fresh_url, connection_class=Spying)
    store.close()
    assert set(found) == {("on",)}


# --- plans -----------------------------------------------------------------------------------------------


def test_a_head_is_loaded_by_the_index_also_when_the_statistics_say_that_most_rows_are_its_own(
    catalog: Catalog, url: str
) -> None:
    header = catalog.create("t")
    catalog.create("other")
    with psycopg.connect(url, autocommit=True) as db:
        filled = "INSERT INTO entry_log (entry_id, stream, position, key, body) SELECT %s, log, n, n, 'x'"
        numbers = "FROM generate_series(0, 19999) AS n, (VALUES (0), (1)) AS logs (log)"
        db.execute(f"{filled} {numbers}", (header.id,))
        next_positions = "next_snapshot_position = 20000, next_history_position = 20000"
        db.execute(f"UPDATE entries SET {next_positions} WHERE id = %s", (header.id,))
        db.execute("ANALYZE")
        explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {postgres_read._LOAD_ITEMS}"
        ((plan,),) = db.execute(explained, ([header.id] * 2, [0, 1], [19_990, 19_995])).fetchall()
    assert "Seq Scan" not in str(plan)
    assert plan[0]["Plan"]["Actual Rows"] == 15
    assert catalog.positions(known=(0, 19_990, 19_995)) == (
        [*range(19_990, 20_000)],
        [*range(19_995, 20_000)],
    )


def test_a_head_of_which_something_is_known_takes_one_round_trip(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = catalog.create("t")
    catalog.must(swap(header, snapshots=added(item(0), item(1)), history=added(item(0))))
    guessed: list[bool] = []
    load_on = postgres_read._load_on

    def told(*arguments: Any) -> Any:
        heads, items = load_on(*arguments)
        guessed.append(items is not None)
        return heads, items

    monkeypatch.setattr(postgres_read, "_load_on", told)
    everything = catalog.positions()
    assert catalog.positions(known=(0, 0, 0)) == everything
    assert catalog.positions(known=(9, 1, 1)) == everything  # of an epoch that is over: read in two steps
    assert guessed == [True, False]


def test_a_connection_that_dies_in_the_one_round_trip_is_replaced_and_the_head_is_loaded(
    catalog: Catalog, faults: type[FaultyConnection]
) -> None:
    header = catalog.create("t")
    catalog.must(swap(header, snapshots=added(item(0), item(1)), history=added(item(0))))
    for statement in ("REPEATABLE READ", "FROM entries", "FROM entry_log", "^COMMIT$"):
        for lands in (False, True):
            faults.statement, faults.lands, faults.times = statement, lands, 1
            assert catalog.positions(known=(0, 1, 0)) == ([1], [0])
            assert faults.times == 0
