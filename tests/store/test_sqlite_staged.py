"""Staged rows of SQLite: nobody can tell them from moved ones, and what must be there once is there once."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from headgate.errors import CommitUnknown, InvariantBroken, StorageFailed
from headgate.store.base import (
    CheckEntry,
    CreateNamespace,
    MarkCheckpoint,
    Operation,
    PutFootprint,
    Reason,
    Refused,
    Store,
)
from headgate.store.memory import MemoryStore
from headgate.store.sqlite import SqliteStore
from headgate.store.sqlite_connect import connect_sqlite, has_begun
from headgate.store.sqlite_staged import Staged
from tests.store.builders import (
    NS,
    Catalog,
    added,
    doom,
    drop,
    item,
    namespace,
    put_event,
    put_file,
    put_key,
    rename,
    swap,
    table,
)
from tests.store.held_stores import HeldStore, open_held_sqlite
from tests.store.test_grouped_writes import commit_of
from tests.store.test_model import DRAFTS, IDS, LOCATIONS, Draft, picture, settle_all
from tests.store.test_sqlite import FaultyStore, on

MANY = 10_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def catalog(path: Path) -> Iterator[Catalog]:
    store = SqliteStore(path)
    yield Catalog(store)
    store.close()


@pytest.fixture
def held(path: Path) -> Iterator[HeldStore]:
    opened = open_held_sqlite(path)
    yield opened
    opened.close()


def commit(catalog: Catalog, name: str = "t") -> str:
    """A whole commit of the table; its key, which is its number."""
    header = catalog.header(name)
    at = header.version - 1
    key = f"{name}-{at}"
    catalog.must(
        swap(header, snapshots=added(item(at, tag=at)), history=added(item(at))),
        put_key(key),
        put_event(key, id=header.id, snapshot_ids=(at,)),
        PutFootprint(header.id, at, key.encode()),
        put_file(key + ".avro"),
        put_file(key + "-list.avro"),
    )
    return key


def move(store: Store) -> None:
    """A write that does nothing but is not staged."""
    store.drop_files([])


def rows_of(path: Path, table: str = "staged_rows") -> int:
    with closing(sqlite3.connect(path)) as db:
        count: int = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return count


def sequences(store: Store) -> list[int]:
    return [stored.sequence for stored in store.read_events(after=0, limit=MANY)]


# --- reads -----------------------------------------------------------------------------------------------


def test_a_commit_is_staged_and_every_read_sees_it_as_it_sees_moved_rows(
    catalog: Catalog, path: Path
) -> None:
    header = catalog.create("t", id=IDS[0])
    for _ in range(3):
        commit(catalog)
    catalog.must(put_key("t", principal=LOCATIONS[0]))
    assert rows_of(path) == 3 + 1
    assert rows_of(path, "indexed_log") == rows_of(path, "indexed_keys") == 0
    staged = picture(catalog.store), sequences(catalog.store)
    assert catalog.positions() == ([0, 1, 2], [0, 1, 2])
    assert catalog.positions(known=(0, 2, 3)) == ([2], [])
    assert catalog.store.load_footprints(header.id, [0, 2]) == {0: b"t-0", 2: b"t-2"}
    assert [one.id for one in catalog.store.recent_tables(limit=9)] == [header.id]
    move(catalog.store)
    assert rows_of(path) == 0
    assert rows_of(path, "indexed_log") == 6
    assert (picture(catalog.store), sequences(catalog.store)) == staged


def test_reads_join_moved_rows_and_staged_ones_in_order(catalog: Catalog, path: Path) -> None:
    header = catalog.create("t")
    for at in range(6):
        if at == 4:
            move(catalog.store)
        commit(catalog)
    assert rows_of(path) == 2
    keys = [f"t-{at}" for at in range(6)]
    assert catalog.positions(known=(0, 3, 5)) == ([3, 4, 5], [5])
    assert catalog.event_kinds() == keys
    assert sequences(catalog.store) == sorted(sequences(catalog.store))
    newest = catalog.store.read_entry_events(header.id, after=sequences(catalog.store)[2], limit=2)
    assert [stored.event.kind for stored in newest] == keys[3:5]
    assert set(catalog.store.load_keys([("ann", key) for key in keys])) == {("ann", key) for key in keys}
    assert catalog.store.load_footprints(header.id, range(6)) == {at: keys[at].encode() for at in range(6)}


@pytest.mark.parametrize("moved", [True, False])
def test_of_facts_that_are_put_again_the_last_count(catalog: Catalog, moved: bool) -> None:
    header = catalog.create("t")
    id = header.id
    catalog.must(put_event("one", id=id, snapshot_ids=(1, 2)), PutFootprint(id, 1, b"a"))
    if moved:
        move(catalog.store)
    catalog.must(PutFootprint(id, 1, b"b"), PutFootprint(id, 2, b"c"))
    catalog.must(put_event("two", id=id, snapshot_ids=(2,)), PutFootprint(id, 3, b"d"))
    for _ in range(2):
        assert catalog.store.load_footprints(id, [1, 2, 3]) == {1: b"b", 2: b"c", 3: b"d"}
        found = [catalog.store.find_snapshot_event(id, snapshot_id) for snapshot_id in (1, 2, 3)]
        assert [stored and stored.event.kind for stored in found] == ["one", "two", None]
        move(catalog.store)


class Recording(sqlite3.Connection):
    """Notes what it is asked."""

    asked: list[tuple[str, Any]]

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        self.asked.append((sql, parameters))
        return super().execute(sql, parameters)


READS: dict[str, Callable[[Store], object]] = {
    "log": lambda store: store.load_entries([(NS, "t")]),
    "key": lambda store: store.load_key("ann", "k"),
    "keys": lambda store: store.load_keys([("ann", "k"), ("ann", "l")]),
    "feed": lambda store: store.read_events(after=1, limit=9),
    "feed of an entry": lambda store: store.read_entry_events(IDS[0], after=1, limit=9),
    "event of a snapshot": lambda store: store.find_snapshot_event(IDS[0], 1),
    "footprints": lambda store: store.load_footprints(IDS[0], [1, 2]),
    "recent": lambda store: store.recent_tables(limit=9),
}


@pytest.mark.parametrize("read", READS)
def test_a_read_searches_the_moved_rows_by_their_index(path: Path, read: str) -> None:
    asked: list[tuple[str, Any]] = []

    def connect(path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Recording)
        db.asked = asked
        return db

    store = SqliteStore(path, connect=connect)
    Catalog(store).create("t", id=IDS[0], snapshots=(item(0),))
    asked.clear()
    READS[read](store)
    store.close()
    with closing(sqlite3.connect(path)) as db:
        plans = [
            detail
            for sql, parameters in asked
            if "SELECT" in sql
            for *_, detail in db.execute("EXPLAIN QUERY PLAN " + sql, parameters)
        ]
    assert any("indexed_" in detail for detail in plans), plans
    # The newest events are read backwards from the last one, and only so many.
    scans = [detail for detail in plans if "SCAN indexed_" in detail]
    assert scans == (["SCAN indexed_events"] if read == "recent" else []), plans
    assert not [detail for detail in plans if "AUTOMATIC" in detail and "indexed_" in detail]


# --- random writes ---------------------------------------------------------------------------------------

HOT = ("swap", "key", "event", "footprint", "file")
ROUNDS = st.lists(
    st.tuples(
        st.lists(
            st.builds(replace, DRAFTS, kind=st.sampled_from(HOT), removed=st.sampled_from(((), (), (1, 2)))),
            min_size=1,
            max_size=4,
        ),
        st.sampled_from((0, 0, 0, 1)),  # which of two processes writes it
        st.sampled_from((False, False, False, True)),  # whether something else is written then
    ),
    max_size=14,
)


def play(stores: tuple[SqliteStore, SqliteStore], rounds: list[tuple[list[Draft], int, bool]]) -> None:
    model = MemoryStore()
    prelude: list[Operation] = [CreateNamespace(NS, {})]
    prelude += [table(f"t{at}", id=id, location=LOCATIONS[at + 1]) for at, id in enumerate(IDS[:3])]
    assert model.write(prelude) is stores[0].write(prelude) is None
    told: dict[int, object] = {}
    for drafts, writer, moves in rounds:
        operations = settle_all(drafts, model)
        expected, found = model.write(operations), stores[writer].write(operations)
        assert found == (expected and replace(expected, detail=found.detail if found else "")), operations
        if moves:
            move(stores[1 - writer])
        assert picture(stores[0]) == picture(stores[1]) == picture(model), operations
        events = {stored.sequence: stored.event for stored in stores[writer].read_events(after=0, limit=MANY)}
        assert list(events) == sorted(events)
        assert all(events[sequence] == event for sequence, event in told.items())
        assert min(set(events) - set(told), default=MANY) > max(told, default=0)
        told = dict(events)


@settings(max_examples=100, deadline=None)
@given(rounds=ROUNDS, staged_max=st.sampled_from((0, 1, MANY)))
def test_two_processes_that_stage_do_what_the_model_does(
    rounds: list[tuple[list[Draft], int, bool]], staged_max: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "catalog.db"
        stores = SqliteStore(path, staged_max=staged_max), SqliteStore(path, staged_max=staged_max)
        try:
            play(stores, rounds)
        finally:
            for store in stores:
                store.close()


# --- once is once ----------------------------------------------------------------------------------------


def test_a_key_or_tag_that_is_staged_is_refused(catalog: Catalog, path: Path) -> None:
    header = catalog.create("t")
    commit(catalog)
    other = replace(header, version=2)
    assert rows_of(path) == 1
    again: list[Operation] = [put_key("new"), swap(other), put_event("e"), put_key("t-0")]
    assert catalog.store.write(again) == Refused(3, Reason.KEY_EXISTS, None, "t-0")
    tag: list[Operation] = [put_key("new"), swap(other, snapshots=added(item(1, tag=1), item(2, tag=0)))]
    assert catalog.store.write(tag) == Refused(1, Reason.DUPLICATE_TAG, None, "0")
    assert catalog.store.write([put_key("t-0"), swap(header)]) == Refused(0, Reason.KEY_EXISTS, None, "t-0")
    stale = catalog.store.write([CheckEntry(header.id, 1), put_key("t-0")])
    assert stale is not None
    assert (stale.index, stale.reason) == (0, Reason.ENTRY_CHANGED)
    assert rows_of(path) == 1
    catalog.must(*tag[:1], swap(other, snapshots=added(item(1, tag=1))))
    assert rows_of(path) == 2


def test_what_another_process_staged_is_refused_and_read(catalog: Catalog, path: Path) -> None:
    header = catalog.create("t")
    theirs = Catalog(SqliteStore(path))
    commit(catalog)  # moves, because the other one has been there
    commit(catalog)
    assert rows_of(path) == 1
    assert theirs.store.write([put_key("t-1")]) == Refused(0, Reason.KEY_EXISTS, None, "t-1")
    late = swap(header, expected=3, snapshots=added(item(2, tag=1)))
    assert theirs.store.write([late]) == Refused(0, Reason.DUPLICATE_TAG, None, "1")
    assert rows_of(path) == 1  # what refused writes moved was taken back
    assert [commit(theirs), commit(theirs)] == ["t-2", "t-3"]
    assert catalog.store.write([put_key("t-3")]) == Refused(0, Reason.KEY_EXISTS, None, "t-3")
    assert commit(catalog) == "t-4"
    assert catalog.event_kinds() == theirs.event_kinds() == [f"t-{at}" for at in range(5)]
    theirs.store.close()


def test_a_sequence_is_given_out_once(catalog: Catalog, path: Path) -> None:
    catalog.create("t")
    seen: list[int] = []
    for at in range(8):
        commit(catalog)
        if at % 3 == 1:
            move(catalog.store)
        if at % 4 == 2:
            catalog.must(namespace(f"n{at}"), put_event("other"))
        assert sequences(catalog.store)[: len(seen)] == seen
        seen = sequences(catalog.store)
    move(catalog.store)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM indexed_events")
    commit(catalog)
    commit(catalog)
    assert sequences(catalog.store) == [seen[-1] + 1, seen[-1] + 2]


# --- what moves rows -------------------------------------------------------------------------------------


def test_more_rows_than_the_bound_are_moved_by_the_next_commit(path: Path) -> None:
    catalog = Catalog(SqliteStore(path, staged_max=2))
    catalog.create("t")
    found = []
    for _ in range(7):
        commit(catalog)
        found.append(rows_of(path))
    assert found == [1, 2, 3, 1, 2, 3, 1]
    assert catalog.event_kinds() == [f"t-{at}" for at in range(7)]
    catalog.store.close()


def test_a_commit_over_the_bound_moves_a_few_of_the_oldest_rows_and_leaves_the_others(path: Path) -> None:
    catalog = Catalog(SqliteStore(path, staged_max=50))
    catalog.create("t")
    found = []
    for _ in range(120):
        commit(catalog)
        found.append(rows_of(path))
    catalog.store.close()
    steps = [after - before for before, after in itertools.pairwise(found)]
    assert max(found) == 51
    assert min(steps) > -20
    assert found[-1] > 20
    with closing(SqliteStore(path)) as store:
        assert Catalog(store).event_kinds() == [f"t-{at}" for at in range(120)]
        assert sequences(store) == sorted(set(sequences(store)))
        assert journalled(Catalog(store)) == files_of([f"t-{at}" for at in range(120)])


def test_files_that_were_moved_are_dropped_by_a_commit_that_moves_nothing_else(path: Path) -> None:
    staged = Staged()
    with closing(SqliteStore(path)) as store, closing(connect_sqlite(str(path))) as db:
        catalog = Catalog(store)
        header = catalog.create("t")

        def write(*keys: str) -> None:
            assert has_begun(db)
            staged.begin(db)
            operations = [one for key in keys for one in (put_key(key), put_event(key, id=header.id))]
            assert staged.write(db, [*operations, *map(put_file, files_of([*keys]))]) is None
            db.execute("COMMIT")
            staged.arrive()

        write("first")  # moves what there is, and is not staged
        write("a", "b")
        assert has_begun(db)
        staged.move(db)
        db.execute("COMMIT")
        write("c")
        ride = staged.rides.begin(files_of(["first", "a"]))
        write("d")
        assert ride.arrived.is_set()
        assert rows_of(path) == 2  # as before: of c and d
        assert journalled(catalog) == files_of(["b", "c", "d"])


def test_files_in_the_youngest_rows_are_dropped_by_and_by(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        catalog = Catalog(store)
        catalog.create("t")
        keys = [commit(catalog) for _ in range(60)]
        drop_beside(catalog, files_of(keys[50:]), lambda: keys.append(commit(catalog)))
        assert journalled(catalog) == files_of([*keys[:50], *keys[60:]])
        assert catalog.event_kinds() == keys


def test_a_checkpoint_is_marked_and_no_row_is_moved_for_it(catalog: Catalog, path: Path) -> None:
    header = catalog.create("t")
    for _ in range(3):
        commit(catalog)
    catalog.must(MarkCheckpoint(header.id, 3, "file:///three"))
    assert rows_of(path) == 3
    marked = catalog.header("t")
    assert (marked.checkpoint_location, marked.checkpoint_version) == ("file:///three", 3)
    assert [one.id for one in catalog.store.stale_checkpoints(limit=9)] == [header.id]
    catalog.must(MarkCheckpoint(header.id, 4, "file:///four"))
    assert catalog.store.stale_checkpoints(limit=9) == []


def test_what_a_large_group_adds_is_not_staged(catalog: Catalog, path: Path) -> None:
    catalog.must(put_key("k"))
    assert rows_of(path) == 1
    catalog.must(*[put_key(f"k{at}") for at in range(99)], put_event("e"))
    assert (rows_of(path), rows_of(path, "indexed_keys"), rows_of(path, "keys")) == (0, 100, 100)


UNSTAGED: dict[str, Callable[[Catalog, Path], object]] = {
    "drop": lambda catalog, _: catalog.must(drop(catalog.header())),
    "rename": lambda catalog, _: catalog.must(rename(catalog.header(), "u")),
    "log item removed": lambda catalog, _: catalog.must(swap(catalog.header(), snapshots=added(removed=[1]))),
    "doom": lambda catalog, _: catalog.must(doom("d")),
    "expire": lambda catalog, _: catalog.store.expire_keys(before_ms=9, limit=1),
    "drop a file": lambda catalog, _: catalog.store.drop_files(["t-0.avro"]),
    "open": lambda catalog, path: SqliteStore(path).close(),
    "secret": lambda catalog, _: catalog.store.load_secret("s", create=b"x"),
}


@pytest.mark.parametrize("kind", UNSTAGED)
def test_a_write_that_does_not_only_add_rows_moves_those_that_are_staged(
    catalog: Catalog, path: Path, kind: str
) -> None:
    header = catalog.create("t")
    for _ in range(3):
        commit(catalog)
    assert rows_of(path) == 3
    UNSTAGED[kind](catalog, path)
    assert rows_of(path) == 0
    assert catalog.event_kinds() == ["t-0", "t-1", "t-2"]
    assert len(catalog.store.load_keys([("ann", f"t-{at}") for at in range(3)])) == 3 - (kind == "expire")
    is_dropped = kind == "drop"
    assert sorted(catalog.store.load_footprints(header.id, range(3))) == ([] if is_dropped else [0, 1, 2])
    if kind == "log item removed":
        assert catalog.positions()[0] == [0, 2]
    catalog.must(put_key("next"), put_event("next"))


def test_a_commit_of_one_client_writes_few_pages(catalog: Catalog, path: Path) -> None:
    catalog.create("t")
    for _ in range(5):
        commit(catalog)
    before = wal_frames(path)
    for _ in range(20):
        commit(catalog)
    assert wal_frames(path) - before <= 20 * 3  # with indexes it was 19 of these small ones


def wal_frames(path: Path) -> int:
    """So few that the log has not begun anew."""
    return path.with_name(path.name + "-wal").stat().st_size // 4120


# --- what is taken back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [False, True])
def test_after_an_error_of_commit_what_landed_is_there_once(path: Path, landed: bool) -> None:
    faulty = FaultyStore(path)
    faulty.catalog.create("t")
    commit(faulty.catalog)
    faulty.fault = on("COMMIT", before=not landed)
    with pytest.raises(CommitUnknown):
        commit(faulty.catalog)
    faulty.fault = lambda sql: False
    refused = faulty.store.write([put_key("t-1")])
    assert refused == (Refused(0, Reason.KEY_EXISTS, None, "t-1") if landed else None)
    while faulty.catalog.header().version < 5:
        if faulty.catalog.header().version == 2:
            faulty.store.expire_keys(before_ms=9, limit=9)
        commit(faulty.catalog)
    assert faulty.catalog.event_kinds() == [f"t-{at}" for at in range(4)]
    assert faulty.catalog.positions() == ([0, 1, 2, 3], [0, 1, 2, 3])
    faulty.store.close()


BROKEN = ["UPDATE entries", "INTO staged", "INTO journal", "INTO indexed_log", "DELETE FROM staged"]


@pytest.mark.parametrize("statement", BROKEN)
@pytest.mark.parametrize("before", [True, False])
def test_what_broke_off_is_not_remembered(path: Path, statement: str, before: bool) -> None:
    faulty = FaultyStore(path)
    faulty.catalog.create("t")
    commit(faulty.catalog)
    commit(faulty.catalog)
    faulty.fault = on(statement, before=before)
    work = partial(commit, faulty.catalog) if statement in BROKEN[:2] else partial(move, faulty.store)
    with pytest.raises(StorageFailed):
        work()
    faulty.fault = lambda sql: False
    assert commit(faulty.catalog) == "t-2"
    assert commit(faulty.catalog) == "t-3"
    assert faulty.catalog.event_kinds() == [f"t-{at}" for at in range(4)]
    assert [file.location for file in faulty.store.read_journal(before_ms=9, limit=9)] == [
        f"t-{at}{end}" for at in range(4) for end in (".avro", "-list.avro")
    ]
    assert faulty.store.write([put_key("t-2")]) == Refused(0, Reason.KEY_EXISTS, None, "t-2")
    faulty.store.close()


def test_in_a_shared_transaction_a_refused_write_takes_back_only_what_it_moved(held: HeldStore) -> None:
    for name in ("a", "b", "c", "d"):
        held.catalog.create(name)
    moving: list[Operation] = [doom("x"), put_event("never"), put_key("a")]
    removing: list[Operation] = [swap(held.catalog.header("d"), snapshots=added(removed=[7])), put_event("d")]
    outcomes = held.write_together(
        commit_of(held.catalog, "a"),
        moving,
        commit_of(held.catalog, "b"),
        [put_event("never"), put_key("b")],
        removing,
        commit_of(held.catalog, "c"),
        [put_event("last"), put_key("last")],
    )
    assert held.switch.commits == 1
    reasons = [one.reason if isinstance(one, Refused) else one for one in outcomes]
    assert reasons == [None, Reason.KEY_EXISTS, None, Reason.KEY_EXISTS, None, None, None]
    for key in ("a", "b", "c", "last"):
        assert held.store.write([put_key(key)]) == Refused(0, Reason.KEY_EXISTS, None, key)
    assert held.catalog.event_kinds() == ["a", "b", "d", "c", "last"]
    assert sequences(held.store) == sorted(set(sequences(held.store)))


# --- the journal -----------------------------------------------------------------------------------------


def test_files_are_dropped_whoever_put_them(catalog: Catalog, path: Path) -> None:
    theirs = SqliteStore(path)
    catalog.must(put_file("a"), put_file("b"))
    assert theirs.write([put_file("c"), put_file("d")]) is None
    theirs.drop_files(["a", "c", "nope"])
    assert theirs.write([put_file("e")]) is None  # it may get a number that was another's
    catalog.store.drop_files(["a", "d"])
    assert [file.location for file in catalog.store.read_journal(before_ms=9, limit=9)] == ["b", "e"]
    theirs.close()


def test_a_file_that_was_dropped_or_taken_back_may_be_put_again(catalog: Catalog) -> None:
    header = catalog.create("t")
    assert catalog.store.write([put_file("a"), swap(header, expected=9)]) is not None
    catalog.must(put_file("a"))
    with pytest.raises(InvariantBroken):
        catalog.store.write([put_file("b"), put_file("a")])
    catalog.store.drop_files(["a"])
    catalog.must(put_file("a"), put_file("b"))
    assert len(catalog.store.read_journal(before_ms=9, limit=9)) == 2


def journalled(catalog: Catalog) -> list[str]:
    return [file.location for file in catalog.store.read_journal(before_ms=9, limit=MANY)]


def test_files_that_are_dropped_while_they_are_staged_never_reach_the_journal_s_table(
    catalog: Catalog, path: Path
) -> None:
    catalog.create("t")
    commit(catalog)
    commit(catalog)
    assert rows_of(path, "journal") == 0
    catalog.store.drop_files(["t-0.avro", "t-0-list.avro", "t-1.avro"])
    assert (rows_of(path), rows_of(path, "journal")) == (0, 1)
    assert journalled(catalog) == ["t-1-list.avro"]
    commit(catalog)
    assert journalled(catalog) == ["t-1-list.avro", "t-2.avro", "t-2-list.avro"]
    catalog.store.drop_files(["t-1-list.avro", "t-2-list.avro"])
    assert journalled(catalog) == ["t-2.avro"]
    catalog.store.drop_files(["t-2.avro"])
    assert (rows_of(path), rows_of(path, "journal"), journalled(catalog)) == (0, 0, [])
    assert catalog.event_kinds() == ["t-0", "t-1", "t-2"]


def test_files_that_were_moved_are_dropped_by_their_numbers_whatever_stands_between_them(
    catalog: Catalog, path: Path
) -> None:
    catalog.create("t")
    for _ in range(3):
        commit(catalog)
        move(catalog.store)
    catalog.must(*[put_file(f"large-{at}") for at in range(99)])  # too many to be staged
    commit(catalog)
    catalog.store.drop_files([f"large-{at}" for at in range(98)])
    commit(catalog)
    catalog.store.drop_files(["t-1.avro", "large-98", "t-3.avro", "t-4-list.avro"])
    left = [
        "t-0.avro",
        "t-0-list.avro",
        "t-1-list.avro",
        "t-2.avro",
        "t-2-list.avro",
        "t-3-list.avro",
        "t-4.avro",
    ]
    assert journalled(catalog) == left
    catalog.store.drop_files(left)
    assert (rows_of(path), rows_of(path, "journal")) == (0, 0)


def test_a_write_with_more_of_one_thing_than_of_another_is_staged_whole(catalog: Catalog, path: Path) -> None:
    header = catalog.create("t")
    catalog.must(
        swap(header, snapshots=added(item(0, tag=0), item(1, tag=1), item(2, tag=2)), history=added(item(0))),
        put_key("one"),
        *[put_event(f"e{at}", id=header.id, snapshot_ids=(at,)) for at in range(2)],
        PutFootprint(header.id, 2, b"f"),
        *[put_file(f"f{at}") for at in range(7)],
    )
    assert rows_of(path) == 4
    for _ in range(2):
        assert catalog.positions() == ([0, 1, 2], [0])
        assert catalog.event_kinds() == ["e0", "e1"]
        assert journalled(catalog) == [f"f{at}" for at in range(7)]
        assert catalog.store.load_footprints(header.id, range(3)) == {2: b"f"}
        move(catalog.store)


def test_a_key_that_is_said_to_be_new_is_refused_all_the_same_where_it_is_known(catalog: Catalog) -> None:
    catalog.must(put_key("k"))
    again = replace_struct(put_key("k"), is_new=True)
    assert catalog.store.write([again]) == Refused(0, Reason.KEY_EXISTS, None, "k")


# --- rides -----------------------------------------------------------------------------------------------


def drop_beside(catalog: Catalog, locations: list[str], write: Callable[[], object]) -> int:
    """Drop files in another thread while this one writes; how many writes it took."""
    dropping = threading.Thread(target=catalog.store.drop_files, args=(locations,))
    dropping.start()
    writes = 0
    while dropping.is_alive() and writes < MANY:
        write()
        writes += 1
    dropping.join()
    return writes


def files_of(keys: list[str]) -> list[str]:
    return [f"{key}{end}" for key in keys for end in (".avro", "-list.avro")]


def test_files_that_are_dropped_beside_many_commits_are_gone_and_nothing_else_is(
    catalog: Catalog, path: Path
) -> None:
    catalog.create("t")
    keys = [commit(catalog) for _ in range(90)]
    left = files_of(keys[40:41])
    drop_beside(
        catalog, [one for one in files_of(keys) if one not in left], lambda: keys.append(commit(catalog))
    )
    assert len(keys) > 90
    assert journalled(catalog) == left + files_of(keys[90:])
    assert catalog.event_kinds() == keys
    assert sequences(catalog.store) == sorted(set(sequences(catalog.store)))
    assert catalog.positions() == (list(range(len(keys))), list(range(len(keys))))
    before = picture(catalog.store), sequences(catalog.store)
    move(catalog.store)
    assert rows_of(path) == 0
    assert (picture(catalog.store), sequences(catalog.store)) == before


def test_a_key_that_was_moved_by_another_write_is_there_once(catalog: Catalog, path: Path) -> None:
    catalog.create("t")
    keys = [commit(catalog) for _ in range(60)]
    drop_beside(catalog, files_of(keys[:30]), lambda: keys.append(commit(catalog)))
    assert rows_of(path, "indexed_keys") > 0
    for key in (keys[0], keys[-1]):
        refused = catalog.store.write([put_key(key)])
        assert refused is not None
        assert refused.reason is Reason.KEY_EXISTS


def test_what_rides_with_a_write_that_is_refused_rides_with_the_next(catalog: Catalog) -> None:
    header = catalog.create("t")
    keys = [commit(catalog) for _ in range(40)]
    refused: list[object] = []

    def write() -> None:
        refused.append(catalog.store.write([swap(header, expected=MANY)]))
        keys.append(commit(catalog))

    drop_beside(catalog, files_of(keys[:40]), write)
    assert None not in refused
    assert journalled(catalog) == files_of(keys[40:])
    assert catalog.event_kinds() == keys
