"""Contract: the feed of one entry, and which event brought a snapshot."""

from __future__ import annotations

from tests.store.builders import Catalog, drop, new_id, put_event, put_key, rename, swap, view


def test_the_feed_of_an_entry_has_its_events_only_in_order_page_by_page(catalog: Catalog) -> None:
    ours, other = new_id(), new_id()
    for at in range(5):
        catalog.must(put_event(f"o{at}", id=ours), put_event("other", id=other), put_event("none"))
    seen: list[str] = []
    after = 0
    while page := catalog.store.read_entry_events(ours, after=after, limit=2):
        seen.extend(stored.event.kind for stored in page)
        after = page[-1].sequence
    assert seen == [f"o{at}" for at in range(5)]
    assert catalog.store.read_entry_events(new_id(), after=0, limit=9) == []


def test_the_feed_of_an_entry_agrees_with_the_whole_feed(catalog: Catalog) -> None:
    ours = new_id()
    catalog.must(put_event("a", id=ours, key="k"), put_event("b"), put_event("c", id=ours))
    everything = catalog.store.read_events(after=0, limit=9)
    assert catalog.store.read_entry_events(ours, after=0, limit=9) == [everything[0], everything[2]]


def test_an_entry_keeps_its_feed_over_a_rename_and_a_drop(catalog: Catalog) -> None:
    header = catalog.create("t")
    catalog.must(swap(header), put_event("one", id=header.id))
    catalog.must(rename(catalog.header("t"), "u"), put_event("two", name="u", id=header.id))
    catalog.must(drop(catalog.header("u")), put_event("three", name="u", id=header.id))
    kinds = [stored.event.kind for stored in catalog.store.read_entry_events(header.id, after=0, limit=9)]
    assert kinds == ["one", "two", "three"]


def test_recent_tables_are_those_of_the_newest_events(catalog: Catalog) -> None:
    ids = {name: catalog.create(name).id for name in ("a", "b", "c", "gone")}
    catalog.must(view("v", id=(viewed := new_id())))
    for name in ("b", "c", "a", "gone", "c"):
        catalog.must(put_event("commit", name=name, id=ids[name]))
    catalog.must(put_event("view", name="v", id=viewed), put_event("of nothing"))
    catalog.must(drop(catalog.header("gone")))
    assert [header.name for header in catalog.store.recent_tables(limit=9)] == ["c", "a", "b"]
    assert [header.name for header in catalog.store.recent_tables(limit=1)] == ["c"]


def test_the_event_of_a_snapshot_is_found_by_entry_and_id(catalog: Catalog) -> None:
    ours, other = new_id(), new_id()
    catalog.must(put_event("first", id=ours, snapshot_ids=(1, 2**62)), put_event("no snapshot", id=ours))
    catalog.must(put_event("others", id=other, snapshot_ids=(1, -5)))
    for id, snapshot_id, kind in (
        (ours, 1, "first"),
        (ours, 2**62, "first"),
        (other, 1, "others"),
        (other, -5, "others"),
    ):
        found = catalog.store.find_snapshot_event(id, snapshot_id)
        assert found is not None
        assert found.event.kind == kind
    assert catalog.store.find_snapshot_event(other, 2**62) is None
    assert catalog.store.find_snapshot_event(new_id(), 1) is None


def test_a_snapshot_that_came_twice_belongs_to_the_newer_event(catalog: Catalog) -> None:
    ours = new_id()
    catalog.must(put_event("old", id=ours, snapshot_ids=(1,)))
    catalog.must(put_event("new", id=ours, snapshot_ids=(1, 1)))
    found = catalog.store.find_snapshot_event(ours, 1)
    assert found is not None
    assert found.event.kind == "new"


def test_a_refused_write_leaves_no_snapshot_to_find(catalog: Catalog) -> None:
    ours = new_id()
    catalog.must(put_key("k"))
    assert catalog.store.write([put_event("never", id=ours, snapshot_ids=(1,)), put_key("k")]) is not None
    assert catalog.store.find_snapshot_event(ours, 1) is None
    assert catalog.store.read_entry_events(ours, after=0, limit=9) == []
