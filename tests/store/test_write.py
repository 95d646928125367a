"""Contract: one write is all or nothing, with keys and events; principals and secrets; many threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from headgate.errors import StorageFailed
from headgate.store.base import (
    DropNamespace,
    Operation,
    Principal,
    Reason,
    Refused,
    SetNamespaceProperties,
    Store,
    Stream,
)
from tests.store.builders import (
    NS,
    Catalog,
    added,
    drop,
    item,
    namespace,
    new_id,
    put_event,
    put_key,
    rename,
    swap,
    table,
)

THREADS = 8


def in_threads(work: Callable[[int], None], *, threads: int = THREADS) -> None:
    """Run `work(0) … work(threads - 1)` at once and raise what any of them raised."""
    gate = threading.Barrier(threads)

    def run(number: int) -> None:
        gate.wait()
        work(number)

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(run, number) for number in range(threads)]:
            future.result()


# --- all or nothing --------------------------------------------------------------------------------------


def refusals(catalog: Catalog) -> dict[Reason, Operation]:
    """For every reason one operation that is refused for it, in the catalog of the next test."""
    header = catalog.header("standing")
    return {
        Reason.NAMESPACE_EXISTS: namespace("db"),
        Reason.NAMESPACE_MISSING: namespace("nope", "child"),
        Reason.NAMESPACE_NOT_EMPTY: DropNamespace(NS),
        Reason.NAMESPACE_CHANGED: SetNamespaceProperties(NS, 99, {}),
        Reason.NAME_TAKEN: table("standing", location="s3://other/place"),
        Reason.LOCATION_TAKEN: table("free", location=header.location),
        Reason.ENTRY_MISSING: drop(replace(header, id=new_id())),
        Reason.ENTRY_CHANGED: swap(header, expected=99),
        Reason.DUPLICATE_TAG: swap(header, snapshots=added(item(9, tag=1))),
        Reason.KEY_EXISTS: put_key("standing"),
    }


@pytest.mark.parametrize("reason", Reason)
def test_when_the_last_operation_is_refused_nothing_is_applied(catalog: Catalog, reason: Reason) -> None:
    standing = catalog.create("standing", snapshots=(item(0, tag=1),))
    moved = catalog.create("moved", snapshots=(item(0), item(1)), history=(item(0),))
    dropped = catalog.create("dropped", snapshots=(item(0, tag=3),))
    catalog.must(put_key("standing"), put_event("before"), namespace("gone"), namespace("two", x="1"))
    names = [(NS, name) for name in ("standing", "moved", "dropped", "new")]
    before = catalog.store.load_entries(names)
    batch: list[Operation] = [
        put_key("new"),
        put_event("never"),
        namespace("fresh"),
        SetNamespaceProperties(("two",), 1, {"x": "2"}),
        DropNamespace(("gone",)),
        table("new", snapshots=(item(0),)),
        swap(
            moved,
            snapshots=added(item(2, tag=2), removed=(0,)),
            history=added(removed=(0,)),
            location="s3://x/y",
        ),
        rename(moved, "moved2", expected=2),
        drop(dropped),
    ]
    refused = catalog.store.write([*batch, refusals(catalog)[reason]])
    assert refused is not None
    assert (refused.index, refused.reason) == (len(batch), reason)
    assert catalog.store.load_entries(names) == before
    assert catalog.header("standing") == standing
    assert catalog.store.load_header(NS, "moved2") is None
    assert catalog.store.load_key("ann", "new") is None
    assert catalog.event_kinds() == ["before"]
    assert catalog.store.list_namespaces((), after=None, limit=9) == [("db",), ("gone",), ("two",)]
    two = catalog.store.load_namespace(("two",))
    assert two is not None
    assert (two.version, two.properties) == (1, {"x": "1"})


def test_operations_see_the_ones_before_them(catalog: Catalog) -> None:
    create = table("t", snapshots=(item(0, tag=1),))
    catalog.must(namespace("db"), create)
    header = catalog.header()
    catalog.must(
        swap(header, snapshots=added(item(1, tag=2))),
        swap(header, expected=2, snapshots=added(item(2, tag=1), removed=(0,))),
        rename(header, "u", expected=3),
        drop(header, expected=4),
        table("t", id=new_id(), location=header.location),
    )
    assert [header.name for header in catalog.store.iter_headers()] == ["t"]
    refused = catalog.store.write([put_key("k"), put_key("k")])
    assert refused is not None
    assert (refused.index, refused.reason) == (1, Reason.KEY_EXISTS)


def test_an_empty_write_is_applied(store: Store) -> None:
    assert store.write([]) is None


# --- keys and events -------------------------------------------------------------------------------------


def test_a_key_is_stored_once_for_each_principal(catalog: Catalog) -> None:
    catalog.must(put_key("k", status=200), put_key("k", principal="bob", status=409))
    refused = catalog.store.write([put_key("k", status=500)])
    assert refused == Refused(0, Reason.KEY_EXISTS, None, "k")
    loaded = catalog.store.load_key("ann", "k")
    assert loaded == put_key("k", status=200).record
    assert catalog.store.load_key("bob", "k") == put_key("k", principal="bob", status=409).record
    assert catalog.store.load_key("ann", "other") is None


def test_only_old_keys_expire_and_oldest_first(catalog: Catalog) -> None:
    catalog.must(*[put_key(f"k{at}", at_ms=at) for at in range(10)])
    assert catalog.store.expire_keys(before_ms=5, limit=3) == 3
    assert catalog.store.load_key("ann", "k2") is None
    assert catalog.store.load_key("ann", "k3") is not None
    assert catalog.store.expire_keys(before_ms=5, limit=30) == 2
    assert catalog.store.expire_keys(before_ms=5, limit=30) == 0
    assert catalog.store.load_key("ann", "k5") is not None


def test_events_are_read_in_order_page_by_page(catalog: Catalog) -> None:
    for at in range(4):
        catalog.must(put_event(f"e{at}a"), put_event(f"e{at}b"))
    kinds: list[str] = []
    after = 0
    while page := catalog.store.read_events(after=after, limit=3):
        kinds.extend(stored.event.kind for stored in page)
        assert all(stored.sequence > after for stored in page)
        after = page[-1].sequence
    assert kinds == [f"e{at}{half}" for at in range(4) for half in "ab"]


def test_an_event_is_read_as_written(catalog: Catalog) -> None:
    written = put_event("swap", name="ü", key="k").event
    catalog.must(put_event("swap", name="ü", key="k"))
    (stored,) = catalog.store.read_events(after=0, limit=9)
    assert stored.event == written


# --- principals, secrets, life ---------------------------------------------------------------------------


def test_principals_are_put_replaced_listed_and_dropped(store: Store) -> None:
    bob, ann = Principal("bob", "h1", "reader", 1), Principal("ann", "h2", "admin", 2)
    store.put_principal(bob)
    store.put_principal(ann)
    assert store.list_principals() == [ann, bob]
    store.put_principal(Principal("bob", "h3", "writer", 3))
    assert store.load_principal("bob") == Principal("bob", "h3", "writer", 3)
    assert store.load_principal("eve") is None
    assert (store.drop_principal("bob"), store.drop_principal("bob")) == (True, False)
    assert store.list_principals() == [ann]


def test_the_first_secret_stays(store: Store) -> None:
    assert store.load_secret("signing", create=b"\x00one") == b"\x00one"
    assert store.load_secret("signing", create=b"two") == b"\x00one"
    assert store.load_secret("other", create=b"two") == b"two"


def test_a_secret_is_the_same_for_all_who_ask_at_once(store: Store) -> None:
    found: list[bytes] = []
    in_threads(lambda number: found.append(store.load_secret("signing", create=b"%d" % number)))
    assert len(found) == THREADS
    assert len(set(found)) == 1


def test_a_closed_store_says_so_and_can_be_closed_again(store: Store) -> None:
    store.ping()
    store.close()
    store.close()
    with pytest.raises(StorageFailed):
        store.ping()
    with pytest.raises(StorageFailed):
        store.write([namespace("a")])


# --- many threads ----------------------------------------------------------------------------------------


def test_swaps_from_many_threads_win_once_for_each_version(catalog: Catalog) -> None:
    catalog.create("t")
    wins: list[str] = []

    def work(number: int) -> None:
        for round_number in range(10):
            header, key = catalog.header(), f"{number}-{round_number}"
            at = header.version - 1
            operations: list[Operation] = [
                swap(header, snapshots=added(item(at, tag=at)), history=added(item(at))),
                put_key(key),
                put_event("swap", key=key),
            ]
            if catalog.store.write(operations) is None:
                wins.append(key)

    in_threads(work)
    entry = catalog.entry()
    assert len(wins) == entry.header.version - 1 == len(entry.logs[Stream.SNAPSHOTS])
    events = catalog.store.read_events(after=0, limit=1000)
    assert sorted(stored.event.key or "" for stored in events) == sorted(wins)
    keys = [f"{number}-{at}" for number in range(THREADS) for at in range(10)]
    assert {key for key in keys if catalog.store.load_key("ann", key) is not None} == set(wins)


def test_swaps_of_two_tables_in_opposite_order_end_and_stay_together(catalog: Catalog) -> None:
    catalog.create("a")
    catalog.create("b")

    def work(number: int) -> None:
        names = ["a", "b"] if number % 2 else ["b", "a"]
        for _ in range(8):
            catalog.store.write([swap(catalog.header(name)) for name in names])

    in_threads(work)
    assert catalog.header("a").version == catalog.header("b").version > 1


def test_heads_loaded_together_are_of_one_moment(catalog: Catalog) -> None:
    catalog.create("a")
    catalog.create("b")
    torn: list[tuple[int, int]] = []

    def work(number: int) -> None:
        for at in range(20):
            if number == 0:
                delta = added(item(at))
                catalog.must(*[swap(catalog.header(name), snapshots=delta) for name in ("a", "b")])
                continue
            entries = [entry for entry in catalog.store.load_entries([(NS, "a"), (NS, "b")]) if entry]
            versions = [entry.header.version for entry in entries]
            lengths = [len(entry.logs[Stream.SNAPSHOTS]) + 1 for entry in entries]
            if len({*versions, *lengths}) != 1:
                torn.append((versions[0], versions[1]))

    in_threads(work, threads=4)
    assert torn == []


def test_of_many_creations_of_one_name_one_wins(catalog: Catalog) -> None:
    catalog.must(namespace("db"))
    outcomes: list[Reason | None] = []

    def work(number: int) -> None:
        refused = catalog.store.write([table("t", location=f"s3://lake/{number}")])
        outcomes.append(refused.reason if refused else None)

    in_threads(work)
    assert sorted(map(str, outcomes)) == sorted(["None"] + ["name-taken"] * (THREADS - 1))


def test_of_many_creations_at_one_location_one_wins(catalog: Catalog) -> None:
    catalog.must(namespace("db"))
    outcomes: list[Reason | None] = []

    def work(number: int) -> None:
        refused = catalog.store.write([table(f"t{number}", location="s3://lake/x" + "/y" * (number % 3))])
        outcomes.append(refused.reason if refused else None)

    in_threads(work)
    assert sorted(map(str, outcomes)) == sorted(["None"] + ["location-taken"] * (THREADS - 1))


def test_a_key_put_by_many_at_once_is_stored_once(catalog: Catalog) -> None:
    outcomes: list[Reason | None] = []

    def work(number: int) -> None:
        refused = catalog.store.write([put_key("k", status=200 + number), put_event("e")])
        outcomes.append(refused.reason if refused else None)

    in_threads(work)
    assert sorted(map(str, outcomes)) == sorted(["None"] + ["key-exists"] * (THREADS - 1))
    assert catalog.event_kinds() == ["e"]


def test_a_namespace_is_never_dropped_under_what_is_created_in_it(catalog: Catalog) -> None:
    for round_number in range(5):
        levels = (f"n{round_number}",)
        catalog.must(namespace(*levels))
        outcomes: dict[str, Refused | None] = {}

        def work(
            number: int, levels: tuple[str, ...] = levels, into: dict[str, Refused | None] = outcomes
        ) -> None:
            operation = (DropNamespace(levels), table("t", namespace=levels), namespace(*levels, "sub"))[
                number
            ]
            into[str(number)] = catalog.store.write([operation])

        in_threads(work, threads=3)
        gone = catalog.store.load_namespace(levels) is None
        assert gone == (outcomes["0"] is None)
        assert (catalog.store.load_header(levels, "t") is not None) == (outcomes["1"] is None)
        assert (catalog.store.load_namespace((*levels, "sub")) is not None) == (outcomes["2"] is None)
        assert not gone or (outcomes["1"] is not None and outcomes["2"] is not None)
