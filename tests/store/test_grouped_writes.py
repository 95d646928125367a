"""Writes that share a transaction: each is all or nothing for itself; COMMIT and breakage are everyone's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.errors import BadInput, CommitUnknown, InvariantBroken, StorageFailed
from headgate.store.base import DropJob, Operation, PutEvent, PutFootprint, Reason, Refused
from headgate.store.postgres import PostgresStore
from headgate.store.postgres_group import Told, write_together
from headgate.store.postgres_records import EVENTS_MAX
from tests.store.builders import Catalog, added, item, namespace, put_event, put_file, put_job, put_key, swap
from tests.store.held_stores import LONG_S, HeldStore, open_held_postgres, open_held_sqlite
from tests.store.test_write import in_threads

POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)


@pytest.fixture(params=("sqlite", POSTGRES))
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HeldStore]:
    if request.param == "sqlite":
        opened = open_held_sqlite(tmp_path / "catalog.db")
    else:
        opened = open_held_postgres(request.getfixturevalue("emptied_postgres_url"))
    yield opened
    opened.close()


def commit_of(catalog: Catalog, name: str) -> list[Operation]:
    """A swap of the table with its key, event, footprint and file."""
    header = catalog.header(name)
    return [
        swap(header, snapshots=added(item(header.version - 1, tag=header.version))),
        put_key(name),
        put_event(name, id=header.id, snapshot_ids=(header.version,)),
        PutFootprint(header.id, header.version, name.encode()),
        put_file(name),
    ]


def landed(catalog: Catalog, name: str) -> bool:
    """Whether the commit of `commit_of` is there; wholly, or not at all."""
    header, store = catalog.header(name), catalog.store
    signs = [
        header.version == 2,
        catalog.positions(name)[0] == [0],
        store.load_key("ann", name) is not None,
        name in catalog.event_kinds(),
        store.find_snapshot_event(header.id, 1) is not None,
        store.load_footprints(header.id, [1]) == {1: name.encode()},
        name in [file.location for file in store.read_journal(before_ms=9, limit=99)],
    ]
    assert len(set(signs)) == 1, (name, signs)
    return signs[0]


def test_writes_that_wait_share_one_commit(held: HeldStore) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        held.catalog.create(name)
    assert held.write_together(*[commit_of(held.catalog, name) for name in names]) == [None] * 4
    assert held.switch.commits == 1
    assert [landed(held.catalog, name) for name in names] == [True] * 4
    assert held.catalog.event_kinds() == names


def test_a_refused_write_is_taken_back_alone(held: HeldStore) -> None:
    for name in ("a", "b", "c"):
        held.catalog.create(name)
    held.catalog.must(put_key("standing"))
    late = [*commit_of(held.catalog, "b"), put_key("standing")]
    outcomes = held.write_together(commit_of(held.catalog, "a"), late, commit_of(held.catalog, "c"))
    assert outcomes == [None, Refused(5, Reason.KEY_EXISTS, None, "standing"), None]
    assert held.switch.commits == 1
    assert [landed(held.catalog, name) for name in ("a", "b", "c")] == [True, False, True]
    assert held.catalog.event_kinds() == ["a", "c"]


def test_a_write_sees_its_neighbours_that_came_before_it(held: HeldStore) -> None:
    header = held.catalog.create("t")
    outcomes = held.write_together(
        [swap(header), put_key("k")],
        [put_event("late"), swap(header)],
        [put_key("k")],
        [swap(header, expected=2), put_key("l")],
        [DropJob("ann", "j"), put_job("j")],
        [put_job("j")],
    )
    reasons = [one.reason if isinstance(one, Refused) else one for one in outcomes]
    assert reasons == [None, Reason.ENTRY_CHANGED, Reason.KEY_EXISTS, None, None, Reason.KEY_EXISTS]
    assert held.catalog.header().version == 3
    assert held.catalog.event_kinds() == []


def test_when_all_are_refused_nothing_is_committed(held: HeldStore) -> None:
    held.catalog.must(put_key("k"))
    outcomes = held.write_together([put_event("x"), put_key("k")], [put_event("y"), put_key("k")])
    assert outcomes == [Refused(1, Reason.KEY_EXISTS, None, "k")] * 2
    assert held.switch.commits == 0
    assert held.catalog.event_kinds() == []


def test_an_error_of_one_write_fails_that_one_alone(held: HeldStore) -> None:
    held.catalog.create("a")
    held.catalog.create("b")
    twice: list[Operation] = [put_key("twice"), put_file("x"), put_file("x")]
    nameless = PutEvent(replace(put_event().event, namespace=("",)))
    bad: list[Operation] = [put_key("bad"), nameless]
    outcomes = held.write_together(commit_of(held.catalog, "a"), twice, bad, commit_of(held.catalog, "b"))
    assert [type(one) for one in outcomes] == [type(None), InvariantBroken, BadInput, type(None)]
    assert held.switch.commits == 1
    assert [landed(held.catalog, name) for name in ("a", "b")] == [True, True]
    assert held.store.load_keys([("ann", "twice"), ("ann", "bad")]) == {}


@pytest.mark.parametrize("fails", ["before", "after"])
def test_an_error_of_commit_is_unknown_to_all_of_them_and_to_the_refused(held: HeldStore, fails: str) -> None:
    held.catalog.create("a")
    held.catalog.create("b")
    held.switch.fails = fails
    writes = [commit_of(held.catalog, name) for name in ("a", "b")]
    outcomes = held.write_together(*writes, [put_key("a")])
    assert [type(one) for one in outcomes] == [CommitUnknown] * 3
    assert len({id(one) for one in outcomes}) == 3
    assert [landed(held.catalog, name) for name in ("a", "b")] == [fails == "after"] * 2
    held.catalog.must(put_key("next"))


def test_a_transaction_that_broke_before_commit_leaves_nothing_half_done(held: HeldStore) -> None:
    """SQLite fails all of them; on PostgreSQL each goes on alone with a new connection."""
    held.catalog.create("a")
    held.catalog.create("b")
    futures = held.start_behind_a_held_write(commit_of(held.catalog, "a"), commit_of(held.catalog, "b"))
    held.switch.breaks = "INTO events" if isinstance(held.store, PostgresStore) else "INTO staged"
    held.switch.go.set()
    outcomes = [future.exception(LONG_S) for future in futures]
    survives = isinstance(held.store, PostgresStore)
    assert [type(one) for one in outcomes] == [type(None) if survives else StorageFailed] * 2
    assert [landed(held.catalog, name) for name in ("a", "b")] == [survives] * 2
    held.catalog.must(put_key("next"))


def test_many_threads_lose_nothing_and_a_reader_of_the_feed_skips_nothing(catalog: Catalog) -> None:
    names = [f"t{number}" for number in range(6)]
    headers = {name: catalog.create(name) for name in names}
    seen: list[str] = []
    ended: list[int] = []

    def follow() -> None:
        after = 0
        while len(seen) < len(names) * 15:
            is_last = len(ended) == len(names)
            page = catalog.store.read_events(after=after, limit=50)
            for stored in page:
                seen.append(stored.event.kind)
                after = stored.sequence
            assert not is_last or len(page) == 50 or len(seen) == len(names) * 15

    def work(number: int) -> None:
        if number == len(names):
            follow()
            return
        name = names[number]
        for at in range(15):
            key = f"{name}-{at}"
            done = catalog.store.write(
                [
                    swap(headers[name], expected=at + 1, snapshots=added(item(at, tag=at))),
                    put_key(key),
                    put_event(key),
                ]
            )
            assert done is None
            assert catalog.store.write([put_event("never"), put_key(key)]) is not None
        ended.append(number)

    in_threads(work, threads=len(names) + 1)
    assert sorted(seen) == sorted(f"{name}-{at}" for name in names for at in range(15))
    assert [catalog.header(name).version for name in names] == [16] * len(names)


# --- only PostgreSQL: locks of other processes -----------------------------------------------------------


@pytest.fixture
def replica(emptied_postgres_url: str) -> Iterator[HeldStore]:
    opened = open_held_postgres(emptied_postgres_url)
    yield opened
    opened.close()


@pytest.fixture
def other(emptied_postgres_url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A transaction of another process."""
    with psycopg.connect(emptied_postgres_url, autocommit=True) as connection:
        connection.execute("BEGIN")
        yield connection


PUT_KEY = "INSERT INTO keys VALUES ('a', 'ann', '', 200, '', 1)"
LOCK_ENTRY = "SELECT 1 FROM entries WHERE name = 'a' FOR UPDATE"


@pytest.mark.postgres
@pytest.mark.parametrize("statement", [LOCK_ENTRY, PUT_KEY])
def test_one_that_waits_for_another_process_does_not_hold_up_the_others(
    replica: HeldStore, other: psycopg.Connection[tuple[Any, ...]], statement: str
) -> None:
    for name in ("a", "b", "c"):
        replica.catalog.create(name)
    writes = [commit_of(replica.catalog, name) for name in ("b", "a", "c")]
    other.execute(statement)
    first, waiting, last = replica.start_behind_a_held_write(*writes)
    replica.switch.go.set()
    assert (first.result(LONG_S), last.result(LONG_S)) == (None, None)
    assert not waiting.done()
    assert replica.switch.commits == 1  # the two were not sent to write alone with him
    other.execute("ROLLBACK")
    assert waiting.result(LONG_S) is None
    assert [landed(replica.catalog, name) for name in ("a", "b", "c")] == [True] * 3


@pytest.mark.postgres
def test_a_shared_transaction_waits_for_locks_less_long_than_one_that_nobody_shares(
    emptied_postgres_url: str,
) -> None:
    timeouts: list[Any] = []

    class Spying(psycopg.Connection[tuple[Any, ...]]):
        def execute(self, query: Any, *parameters: Any, **options: Any) -> Any:
            if query == "COMMIT":
                shown = super().execute(
                    "SELECT extract(epoch FROM current_setting('lock_timeout')::interval)"
                )
                timeouts.extend(shown.fetchone() or ())
            return super().execute(query, *parameters, **options)

    store = PostgresStore(emptied_postgres_url, connection_class=Spying)
    timeouts.clear()
    assert store.write([put_key("k")]) is None
    assert store.write([namespace("alone")]) is None
    store.close()
    shared, alone = timeouts
    assert 0 < shared < 1 < alone


@pytest.mark.postgres
def test_replicas_that_swap_the_same_tables_in_any_order_all_end(emptied_postgres_url: str) -> None:
    stores = [PostgresStore(emptied_postgres_url, connections_max=5) for _ in (0, 1)]
    catalogs = [Catalog(store) for store in stores]
    names = ["a", "b", "c"]
    for name in names:
        catalogs[0].create(name)
    wins: list[str] = []

    def work(number: int) -> None:
        catalog = catalogs[number % 2]
        ours = names if number % 4 < 2 else names[::-1]
        for at in range(12):
            keys = [put_key(f"{number}-{at}-{name}") for name in ours]
            one = ours[at % 3]
            headers = {name: catalog.header(name) for name in ours}
            if catalog.store.write([*keys, *[swap(headers[name]) for name in ours]]) is None:
                wins.extend(names)
            if catalog.store.write([swap(catalog.header(one)), put_event(one)]) is None:
                wins.append(one)

    in_threads(work, threads=12)
    assert {name: catalogs[0].header(name).version - 1 for name in names} == {
        name: wins.count(name) for name in names
    }
    for store in stores:
        store.close()


@pytest.mark.postgres
def test_more_events_than_one_transaction_can_number_are_left_to_the_next(
    replica: HeldStore, other: psycopg.Connection[tuple[Any, ...]]
) -> None:
    other.execute("ROLLBACK")
    many = [put_event("many")] * (EVENTS_MAX - 1)
    outcomes = write_together(other, [many, [put_event("a"), put_event("b")], [put_event("last")]])
    assert outcomes == [None, Told.WRITE_ALONE, None]
    events = replica.store.read_events(after=0, limit=EVENTS_MAX + 9)
    assert len(events) == EVENTS_MAX
    assert events[-1].event.kind == "last"


@pytest.mark.postgres
def test_one_store_uses_a_few_connections_for_many_writers(emptied_postgres_url: str) -> None:
    most = 0
    lock = threading.Lock()
    writing = 0

    class Counting(psycopg.Connection[tuple[Any, ...]]):
        def execute(self, query: Any, *parameters: Any, **options: Any) -> Any:
            nonlocal most, writing
            if query.startswith("BEGIN ISOLATION LEVEL READ COMMITTED"):
                with lock:
                    writing += 1
                    most = max(most, writing)
            if query == "COMMIT":
                with lock:
                    writing -= 1
            return super().execute(query, *parameters, **options)

    store = PostgresStore(emptied_postgres_url, connection_class=Counting)

    def work(number: int) -> None:
        for at in range(10):
            assert store.write([put_key(f"{number}-{at}")]) is None

    in_threads(work, threads=16)
    assert 0 < most <= 4
    store.close()
