"""Contract: tables and views, the swap, and their logs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core.encoded_log import LogDelta
from headgate.errors import InvariantBroken
from headgate.store.base import (
    DropNamespace,
    EntryHeader,
    Kind,
    MarkCheckpoint,
    Reason,
    Refused,
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
    view,
)


def reason(refused: Refused | None) -> Reason | None:
    return None if refused is None else refused.reason


# --- create ----------------------------------------------------------------------------------------------


def test_a_created_table_is_loaded_as_written(catalog: Catalog) -> None:
    create = table("t", snapshots=(item(0, tag=-5), item(2)), history=(item(0),))
    catalog.must(namespace("db"), create)
    entry = catalog.entry("t")
    assert entry.header == EntryHeader(
        id=create.id,
        namespace=NS,
        name="t",
        kind=Kind.TABLE,
        uuid="uuid-t",
        version=1,
        epoch=0,
        location=create.location,
        metadata_location=create.metadata_location,
        checkpoint_location=create.metadata_location,
        checkpoint_version=1,
    )
    assert (entry.envelope, dict(entry.logs)) == (create.envelope, dict(create.logs))
    assert entry.next_positions == {Stream.SNAPSHOTS: 3, Stream.HISTORY: 1}
    assert catalog.store.load_header_by_id(create.id) == entry.header == catalog.header("t")


def test_a_table_not_checkpointed_at_creation_is_stale(catalog: Catalog) -> None:
    header = catalog.create("t", checkpointed=False)
    assert (header.checkpoint_location, header.checkpoint_version) == (None, None)
    assert catalog.store.stale_checkpoints(limit=9) == [header]


def test_a_table_needs_its_namespace(store: Store) -> None:
    assert reason(store.write([table("t")])) is Reason.NAMESPACE_MISSING
    assert reason(store.write([table("t", namespace=())])) is Reason.NAMESPACE_MISSING


@pytest.mark.parametrize(("first", "second"), [("table", "view"), ("view", "table"), ("table", "table")])
def test_tables_and_views_share_one_name_space(store: Store, first: str, second: str) -> None:
    kinds = {"table": table, "view": view}
    assert store.write([namespace("db"), kinds[first]("x", location="s3://lake/one")]) is None
    refused = store.write([kinds[second]("x", location="s3://lake/two")])
    assert refused is not None
    assert (refused.reason, refused.kind) == (Reason.NAME_TAKEN, Kind(first))


def test_names_are_listed_by_kind_sorted_page_by_page(catalog: Catalog) -> None:
    for name in ("b", "a", "C", "é", "_"):
        catalog.create(name)
    catalog.must(view("aa"))
    listed: list[str] = []
    while page := catalog.store.list_entries(NS, Kind.TABLE, after=listed[-1] if listed else None, limit=2):
        listed.extend(page)
    assert listed == ["C", "_", "a", "b", "é"]
    assert catalog.store.list_entries(NS, Kind.VIEW, after=None, limit=9) == ["aa"]
    assert catalog.store.list_entries(("nope",), Kind.VIEW, after=None, limit=9) == []


def test_every_header_comes_by_namespace_and_name(catalog: Catalog) -> None:
    places = [(("a",), "z"), (("a", "b"), "y"), (("a b",), "x"), (("a!",), "w"), (("a",), "A")]
    catalog.must(namespace("a"), namespace("a", "b"), namespace("a b"), namespace("a!"))
    for at, (levels, name) in enumerate(places):
        catalog.must(table(name, namespace=levels, location=f"s3://lake/{at}"))
    listed = [(header.namespace, header.name) for header in catalog.store.iter_headers()]
    assert listed == sorted(places)


# --- the swap --------------------------------------------------------------------------------------------


def test_a_swap_moves_the_head_and_only_the_head(catalog: Catalog) -> None:
    other = catalog.create("other")
    before = catalog.create("t")
    catalog.must(swap(before, snapshots=added(item(0, tag=1)), history=added(item(0))))
    entry = catalog.entry("t")
    assert entry.header == replace(before, version=2, metadata_location=f"{before.location}/metadata/2.json")
    assert entry.envelope == b'{"v":2}'
    assert entry.logs == {Stream.SNAPSHOTS: (item(0, tag=1),), Stream.HISTORY: (item(0),)}
    assert catalog.header("other") == other


def test_a_swap_against_another_version_is_lost(catalog: Catalog) -> None:
    header = catalog.create("t")
    catalog.must(swap(header))
    for expected in (0, 1, 3):
        lost = catalog.store.write([swap(header, expected=expected)])
        assert reason(lost) is Reason.ENTRY_CHANGED
    assert catalog.header().version == 2


def test_a_swap_of_a_dropped_table_finds_nothing_even_under_the_same_name(catalog: Catalog) -> None:
    header = catalog.create("t", snapshots=(item(0),))
    catalog.must(drop(header))
    assert reason(catalog.store.write([swap(header)])) is Reason.ENTRY_MISSING
    again = catalog.create("t", id=new_id())
    assert reason(catalog.store.write([swap(header)])) is Reason.ENTRY_MISSING
    assert again.id != header.id
    assert catalog.positions("t") == ([], [])
    assert catalog.store.load_header_by_id(header.id) is None


def test_positions_are_not_given_out_again_after_the_last_item_is_removed(catalog: Catalog) -> None:
    catalog.create("t", snapshots=(item(0), item(1)))
    catalog.must(swap(catalog.header(), snapshots=added(removed=(0, 1))))
    entry = catalog.entry()
    assert entry.logs[Stream.SNAPSHOTS] == ()
    assert entry.next_positions == {Stream.SNAPSHOTS: 2, Stream.HISTORY: 0}
    with pytest.raises(InvariantBroken):
        catalog.store.write([swap(catalog.header(), snapshots=added(item(1)))])
    assert catalog.entry() == entry


@pytest.mark.parametrize("new", [(), (2,), (2, 5)])
def test_positions_that_came_and_went_in_one_swap_are_not_given_out_again(
    catalog: Catalog, new: tuple[int, ...]
) -> None:
    catalog.create("t", snapshots=(item(0), item(1)))
    delta = LogDelta((), tuple(map(item, new)), 6)
    catalog.must(swap(catalog.header(), snapshots=delta, history=LogDelta((), (), 1)))
    entry = catalog.entry()
    assert entry.next_positions == {Stream.SNAPSHOTS: 6, Stream.HISTORY: 1}
    with pytest.raises(InvariantBroken):
        catalog.store.write([swap(catalog.header(), snapshots=added(item(5)))])
    catalog.must(swap(catalog.header(), snapshots=added(item(6))))
    assert catalog.positions(known=(0, 6, 1)) == ([6], [])


def test_a_swap_never_takes_a_position_back(catalog: Catalog) -> None:
    catalog.create("t", snapshots=(item(0), item(1)))
    catalog.must(swap(catalog.header(), snapshots=LogDelta((), (), 1)))
    catalog.must(swap(catalog.header(), snapshots=LogDelta((0,), (), 1)))
    assert catalog.entry().next_positions == {Stream.SNAPSHOTS: 2, Stream.HISTORY: 0}


def test_positions_that_came_and_went_before_the_creation_are_not_given_out(catalog: Catalog) -> None:
    positions = {Stream.SNAPSHOTS: 3, Stream.HISTORY: 2}
    catalog.must(namespace("db"), replace(table("t", snapshots=(item(1),)), next_positions=positions))
    assert catalog.entry().next_positions == positions


def test_the_epoch_moves_only_when_items_are_removed(catalog: Catalog) -> None:
    catalog.create("t", history=(item(0),))
    catalog.must(swap(catalog.header(), snapshots=added(item(0)), history=added(item(1))))
    assert catalog.header().epoch == 0
    catalog.must(swap(catalog.header(), history=added(item(2), removed=(0,))))
    assert catalog.header().epoch == 1
    assert catalog.positions() == ([0], [1, 2])


def test_what_the_caller_holds_is_not_read_again_while_the_epoch_stands(catalog: Catalog) -> None:
    catalog.create("t", snapshots=(item(0), item(1)), history=(item(0), item(1), item(2)))
    assert catalog.positions(known=(0, 2, 3)) == ([], [])
    assert catalog.positions(known=(0, 1, 2)) == ([1], [2])
    assert catalog.positions(known=(7, 1, 2)) == ([0, 1], [0, 1, 2])
    catalog.must(swap(catalog.header(), snapshots=added(item(2))))
    assert catalog.positions(known=(0, 2, 3)) == ([2], [])
    catalog.must(swap(catalog.header(), snapshots=added(item(3), removed=(0,))))
    assert catalog.positions(known=(0, 3, 3)) == ([1, 2, 3], [0, 1, 2])
    assert catalog.positions(known=(1, 3, 3)) == ([3], [])


def test_several_heads_come_in_the_order_asked(catalog: Catalog) -> None:
    catalog.create("a", snapshots=(item(0),))
    catalog.create("b", snapshots=(item(0), item(1)))
    entries = catalog.store.load_entries([(NS, "b"), (NS, "nope"), (("no",), "a"), (NS, "a"), (NS, "b")])
    assert [entry and entry.header.name for entry in entries] == ["b", None, None, "a", "b"]
    assert [len(entry.logs[Stream.SNAPSHOTS]) for entry in entries if entry] == [2, 1, 2]
    assert catalog.store.load_entries([]) == []


def test_a_big_log_goes_in_and_comes_out_whole(catalog: Catalog) -> None:
    snapshots = tuple(item(at, tag=at) for at in range(3000))
    catalog.create("t", snapshots=snapshots)
    more = tuple(item(at, tag=at) for at in range(3000, 5000))
    catalog.must(swap(catalog.header(), snapshots=added(*more, removed=range(1000))))
    assert catalog.entry().logs[Stream.SNAPSHOTS] == (*snapshots[1000:], *more)


# --- tags ------------------------------------------------------------------------------------------------


def test_an_added_tag_must_be_new_to_its_log(catalog: Catalog) -> None:
    catalog.create("t", snapshots=(item(0, tag=5),))
    same = swap(catalog.header(), snapshots=added(item(1, tag=5)))
    assert reason(catalog.store.write([same])) is Reason.DUPLICATE_TAG
    twice = swap(catalog.header(), snapshots=added(item(1, tag=6), item(2, tag=6)))
    assert reason(catalog.store.write([twice])) is Reason.DUPLICATE_TAG
    assert catalog.header().version == 1


def test_a_tag_is_free_in_the_other_log_in_other_tables_and_once_removed(catalog: Catalog) -> None:
    catalog.create("t", snapshots=(item(0, tag=5), item(1)))
    catalog.create("u", snapshots=(item(0, tag=6),))
    catalog.must(swap(catalog.header(), history=added(item(0, tag=5)), snapshots=added(item(2), item(3))))
    catalog.must(swap(catalog.header("u"), snapshots=added(item(1, tag=5))))
    catalog.must(swap(catalog.header(), snapshots=added(item(4, tag=5), removed=(0,))))
    assert catalog.positions()[0] == [1, 2, 3, 4]


# --- locations -------------------------------------------------------------------------------------------

STANDING = "s3://lake/db/orders"

OVERLAPS = """
    s3://lake/db/orders              taken
    s3://lake/db/orders/             taken
    s3://lake/db/orders/part         taken
    s3://lake/db/orders/a/b/c        taken
    s3://lake/db                     taken
    s3://lake                        taken
    s3://lake/db/orders2             free
    s3://lake/db/orders-x            free
    s3://lake/db/orders.x            free
    s3://lake/db/orders0             free
    s3://lake/db/orders!             free
    s3://lake/db/order               free
    s3://lake/db/Orders              free
    s3://lake/db/ordersé             free
    s3://lake2                       free
    s3://lake/dbx/orders             free
    s3a://lake/db/orders             free
    file:///lake/db/orders           free
"""


@pytest.mark.parametrize("line", OVERLAPS.strip().splitlines())
def test_a_location_equal_above_or_below_another_tables_is_taken(catalog: Catalog, line: str) -> None:
    location, expected = line.split()
    catalog.create("orders", location=STANDING)
    catalog.must(view("v", location=f"{STANDING}/view"))
    finding = Reason.LOCATION_TAKEN if expected == "taken" else None
    assert reason(catalog.store.write([table("new", location=location)])) is finding


@pytest.mark.parametrize("line", OVERLAPS.strip().splitlines())
def test_a_swap_to_a_location_of_another_table_is_refused(catalog: Catalog, line: str) -> None:
    location, expected = line.split()
    catalog.create("orders", location=STANDING)
    header = catalog.create("mover", location="gs://elsewhere")
    finding = Reason.LOCATION_TAKEN if expected == "taken" else None
    assert reason(catalog.store.write([swap(header, location=location)])) is finding
    assert catalog.header("mover").location == ("gs://elsewhere" if finding else location)


def test_a_table_may_move_within_its_own_location(catalog: Catalog) -> None:
    header = catalog.create("t", location="s3://lake/t")
    catalog.must(swap(header, location="s3://lake/t/inner"))
    catalog.must(swap(catalog.header(), location="s3://lake"))
    assert catalog.header().location == "s3://lake"


def test_a_view_minds_no_location_and_a_dropped_table_frees_its_own(catalog: Catalog) -> None:
    header = catalog.create("t", location="s3://lake/t")
    catalog.must(view("v", location="s3://lake/t"), view("w", location="s3://lake/t"))
    catalog.must(swap(catalog.header("v"), location="s3://lake/t/below"))
    catalog.must(drop(header), table("u", location="s3://lake/t"))


# --- rename and drop -------------------------------------------------------------------------------------


def test_a_rename_is_a_write_to_the_row_and_loses_to_a_swap(catalog: Catalog) -> None:
    header = catalog.create("t")
    catalog.must(swap(header))
    assert reason(catalog.store.write([rename(header, "u")])) is Reason.ENTRY_CHANGED
    catalog.must(rename(catalog.header(), "u"))
    assert catalog.store.load_header(NS, "t") is None
    assert (catalog.header("u").id, catalog.header("u").version) == (header.id, 3)
    assert reason(catalog.store.write([swap(header, expected=2)])) is Reason.ENTRY_CHANGED


def test_a_rename_needs_a_free_name_in_a_namespace_that_is_there(catalog: Catalog) -> None:
    header = catalog.create("t")
    catalog.must(view("v"), namespace("two"))
    taken = catalog.store.write([rename(header, "v")])
    assert taken is not None
    assert (taken.reason, taken.kind) == (Reason.NAME_TAKEN, Kind.VIEW)
    assert reason(catalog.store.write([rename(header, "t")])) is Reason.NAME_TAKEN
    nowhere = catalog.store.write([rename(header, "t", namespace=("nope",))])
    assert reason(nowhere) is Reason.NAMESPACE_MISSING
    catalog.must(rename(header, "t", namespace=("two",)))
    assert catalog.header("t", namespace=("two",)).namespace == ("two",)
    catalog.must(view("t"))


def test_a_rename_keeps_a_fresh_checkpoint_fresh_and_a_stale_one_stale(catalog: Catalog) -> None:
    catalog.must(
        rename(catalog.create("fresh"), "fresh2"), rename(catalog.create("stale", checkpointed=False), "s2")
    )
    assert [header.name for header in catalog.store.stale_checkpoints(limit=9)] == ["s2"]
    assert catalog.header("fresh2").checkpoint_version == 2


def test_a_drop_loses_to_a_swap_and_removes_everything_but_keys_and_events(catalog: Catalog) -> None:
    header = catalog.create("t", snapshots=(item(0),))
    catalog.must(swap(header), put_key(), put_event("one"))
    assert reason(catalog.store.write([drop(header)])) is Reason.ENTRY_CHANGED
    catalog.must(drop(catalog.header()))
    assert catalog.store.load_header_by_id(header.id) is None
    assert catalog.store.load_entries([(NS, "t")]) == [None]
    assert catalog.store.load_key("ann", "k") is not None
    assert catalog.event_kinds() == ["one"]
    assert reason(catalog.store.write([drop(header)])) is Reason.ENTRY_MISSING
    assert reason(catalog.store.write([rename(header, "u")])) is Reason.ENTRY_MISSING
    catalog.must(DropNamespace(NS))


# --- checkpoints -----------------------------------------------------------------------------------------


def test_a_checkpoint_only_moves_forward_and_does_not_move_the_head(catalog: Catalog) -> None:
    header = catalog.create("t")
    catalog.must(swap(header), swap(header, expected=2))
    assert [stale.name for stale in catalog.store.stale_checkpoints(limit=9)] == ["t"]
    catalog.must(MarkCheckpoint(header.id, 3, "three"), MarkCheckpoint(header.id, 2, "two"))
    catalog.must(MarkCheckpoint(header.id, 9, "from the future"), MarkCheckpoint(new_id(), 1, "gone"))
    marked = catalog.header()
    assert (marked.version, marked.checkpoint_version, marked.checkpoint_location) == (3, 3, "three")
    assert catalog.store.stale_checkpoints(limit=9) == []


def test_a_checkpointed_swap_is_its_own_checkpoint(catalog: Catalog) -> None:
    catalog.must(swap(catalog.create("t", checkpointed=False), checkpointed=True))
    header = catalog.header()
    assert (header.checkpoint_version, header.checkpoint_location) == (2, header.metadata_location)
    catalog.must(swap(header, checkpointed=False))
    assert catalog.header().checkpoint_version == 2
    assert len(catalog.store.stale_checkpoints(limit=9)) == 1


def test_stale_checkpoints_are_tables_and_no_more_than_asked(catalog: Catalog) -> None:
    for name in ("a", "b", "c"):
        catalog.create(name, checkpointed=False)
    catalog.must(view("v", checkpointed=False))
    assert len(catalog.store.stale_checkpoints(limit=2)) == 2
    assert {header.name for header in catalog.store.stale_checkpoints(limit=9)} == {"a", "b", "c"}
