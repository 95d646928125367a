"""Contract: journalled files, footprints, jobs, doomed files; runs of one operation; several keys at once."""

from __future__ import annotations

from itertools import permutations

import pytest

from headgate.errors import InvariantBroken
from headgate.store.base import (
    DropFootprints,
    DropJob,
    EntryId,
    Job,
    Operation,
    PutFootprint,
    Reason,
    Refused,
    Store,
)
from tests.store.builders import Catalog, doom, drop, new_id, put_event, put_file, put_job, put_key, swap
from tests.store.test_write import in_threads

BIG = 2**63 - 1  # snapshot ids have 63 bits


# --- keys at once and runs of one operation ---------------------------------------------------------------


def test_several_keys_are_loaded_at_once_and_only_those_that_are_there(catalog: Catalog) -> None:
    catalog.must(put_key("a"), put_key("b"), put_key("a", principal="bob", status=409))
    asked = [("ann", "a"), ("bob", "a"), ("bob", "b"), ("ann", "none"), ("ann", "a")]
    assert catalog.store.load_keys(asked) == {
        ("ann", "a"): put_key("a").record,
        ("bob", "a"): put_key("a", principal="bob", status=409).record,
    }
    assert catalog.store.load_keys([]) == {}


@pytest.mark.parametrize("at", [0, 1, 5, 6])
def test_of_a_run_of_keys_the_first_that_is_there_is_named(catalog: Catalog, at: int) -> None:
    catalog.must(put_key("k5"), put_key(f"k{at}") if at < 5 else put_key("other"))
    keys = [put_key(f"k{number}") for number in range(7)]
    if at == 6:
        keys[5] = put_key("k0")  # a repetition inside the run comes first
    refused = catalog.store.write([put_event("e"), *keys])
    assert refused == Refused(1 + min(at, 5), Reason.KEY_EXISTS, None, keys[min(at, 5)].record.key)
    assert catalog.event_kinds() == []
    assert catalog.store.load_key("ann", "k6") is None


def test_a_run_of_events_keeps_its_order_and_each_its_own_snapshots(catalog: Catalog) -> None:
    ours, theirs = new_id(), new_id()
    catalog.must(
        put_event("before"),
        put_event("one", id=ours, snapshot_ids=(1, 2, 1)),
        put_event("two"),
        put_event("three", id=theirs, snapshot_ids=(1,)),
        put_key("k"),
        put_event("four", id=ours, snapshot_ids=(2, BIG)),
    )
    assert catalog.event_kinds() == ["before", "one", "two", "three", "four"]
    brought = {
        (ours, 1): "one",
        (ours, 2): "four",
        (ours, BIG): "four",
        (theirs, 1): "three",
    }
    for (id, snapshot_id), kind in brought.items():
        found = catalog.store.find_snapshot_event(id, snapshot_id)
        assert found is not None
        assert found.event.kind == kind
    assert catalog.store.find_snapshot_event(theirs, 2) is None


def test_more_rows_than_one_statement_takes_are_all_written(catalog: Catalog) -> None:
    count = 1001
    id = new_id()
    operations: list[Operation] = [put_key(f"k{at}") for at in range(count)]
    operations += [put_event(f"e{at}") for at in range(count)]
    operations += [PutFootprint(id, at, b"%d" % at) for at in range(count)]
    operations += [put_file(f"f{at}") for at in range(count)]
    operations += [put_job(f"j{at}") for at in range(count)]
    catalog.must(*operations, doom(*[f"d{at}" for at in range(count)]))
    assert len(catalog.store.load_keys([("ann", f"k{at}") for at in range(count)])) == count
    assert catalog.event_kinds() == [f"e{at}" for at in range(count)]
    assert catalog.store.load_footprints(id, range(count)) == {at: b"%d" % at for at in range(count)}
    assert [one.location for one in catalog.store.read_journal(before_ms=9, limit=5000)] == [
        f"f{at}" for at in range(count)
    ]
    assert catalog.store.count_jobs() == count
    assert len(catalog.store.read_doomed(now_ms=9, limit=5000)) == count
    refused = catalog.store.write(
        [put_job("new"), *[put_job(f"x{at}") for at in range(count)], put_job("j7")]
    )
    assert refused == Refused(count + 1, Reason.KEY_EXISTS, None, "j7")
    assert catalog.store.count_jobs() == count


# --- journalled files ------------------------------------------------------------------------------------


def test_journalled_files_are_read_in_the_order_they_were_put_before_a_time(catalog: Catalog) -> None:
    files = [put_file(name, data=name.encode() * 3000, at_ms=at) for at, name in enumerate("zya", start=1)]
    catalog.must(*files[:2])
    catalog.must(files[2])
    assert catalog.store.read_journal(before_ms=9, limit=9) == [put.file for put in files]
    assert catalog.store.read_journal(before_ms=3, limit=9) == [put.file for put in files[:2]]
    assert catalog.store.read_journal(before_ms=9, limit=1) == [files[0].file]


def test_a_dropped_file_is_gone_and_its_location_may_be_put_again(catalog: Catalog) -> None:
    catalog.must(put_file("a"), put_file("b"))
    catalog.store.drop_files(["a", "never-there", "a"])
    catalog.store.drop_files([])
    assert [one.location for one in catalog.store.read_journal(before_ms=9, limit=9)] == ["b"]
    catalog.must(put_file("a", data=b"again"))
    assert catalog.store.read_journal(before_ms=9, limit=9)[1].data == b"again"


@pytest.mark.parametrize("standing", [True, False])
def test_a_location_that_is_journalled_twice_is_a_bug_that_writes_nothing(
    catalog: Catalog, standing: bool
) -> None:
    if standing:
        catalog.must(put_file("a", data=b"first"))
    again = [put_file("a", data=b"second")] if standing else [put_file("a"), put_file("a")]
    with pytest.raises(InvariantBroken):
        catalog.store.write([put_key("k"), *again])
    assert catalog.store.load_key("ann", "k") is None
    assert [one.data for one in catalog.store.read_journal(before_ms=9, limit=9)] == [b"first"] * standing


def test_a_file_of_a_refused_write_is_not_journalled(catalog: Catalog) -> None:
    header = catalog.create("t")
    assert catalog.store.write([put_file("a"), swap(header, expected=9)]) is not None
    assert catalog.store.read_journal(before_ms=9, limit=9) == []


# --- footprints ------------------------------------------------------------------------------------------


def test_footprints_are_loaded_by_snapshot_and_replaced_when_put_again(catalog: Catalog) -> None:
    ours, theirs = new_id(), new_id()
    catalog.must(
        PutFootprint(ours, BIG, b"\x00a"),
        PutFootprint(ours, 0, b"b"),
        PutFootprint(theirs, BIG, b"c"),
        PutFootprint(ours, 0, b"replaced in one write"),
    )
    assert catalog.store.load_footprints(ours, [BIG, 0, 5, 0]) == {BIG: b"\x00a", 0: b"replaced in one write"}
    catalog.must(PutFootprint(ours, BIG, b"replaced later"))
    assert catalog.store.load_footprints(ours, [BIG]) == {BIG: b"replaced later"}
    assert catalog.store.load_footprints(theirs, [BIG, 0]) == {BIG: b"c"}
    assert catalog.store.load_footprints(ours, []) == {}


def test_dropped_footprints_are_forgotten_and_others_stay(catalog: Catalog) -> None:
    ours, theirs = new_id(), new_id()
    catalog.must(*[PutFootprint(id, at, b"x") for id in (ours, theirs) for at in range(4)])
    catalog.must(DropFootprints(ours, (1, 3, 99)), DropFootprints(new_id(), (1,)), DropFootprints(ours, ()))
    assert sorted(catalog.store.load_footprints(ours, range(9))) == [0, 2]
    assert sorted(catalog.store.load_footprints(theirs, range(9))) == [0, 1, 2, 3]


def test_a_dropped_entry_takes_its_footprints_along_and_no_others(catalog: Catalog) -> None:
    ours, theirs = catalog.create("t"), catalog.create("u")
    catalog.must(PutFootprint(ours.id, 1, b"a"), PutFootprint(theirs.id, 1, b"b"))
    assert catalog.store.write([drop(ours), drop(theirs, expected=9)]) is not None
    assert catalog.store.load_footprints(ours.id, [1]) == {1: b"a"}
    catalog.must(drop(ours))
    assert catalog.store.load_footprints(ours.id, [1]) == {}
    assert catalog.store.load_footprints(theirs.id, [1]) == {1: b"b"}


def test_footprints_of_a_refused_write_are_as_before(catalog: Catalog) -> None:
    id = new_id()
    catalog.must(PutFootprint(id, 1, b"a"), PutFootprint(id, 2, b"b"), put_key("k"))
    changes: list[Operation] = [
        PutFootprint(id, 1, b"x"),
        PutFootprint(id, 3, b"y"),
        DropFootprints(id, (2,)),
    ]
    assert catalog.store.write([*changes, put_key("k")]) is not None
    assert catalog.store.load_footprints(id, [1, 2, 3]) == {1: b"a", 2: b"b"}


@pytest.mark.parametrize("order", list(permutations(["event", "footprint", "drop"])), ids="-".join)
@pytest.mark.parametrize("together", [True, False], ids=["in one write", "one by one"])
def test_event_and_footprint_of_a_snapshot_come_and_go_in_any_order(
    catalog: Catalog, order: tuple[str, ...], together: bool
) -> None:
    id = new_id()
    operations: dict[str, Operation] = {
        "event": put_event("e", id=id, snapshot_ids=(7, 8)),
        "footprint": PutFootprint(id, 7, b"f"),
        "drop": DropFootprints(id, (7, 8)),
    }
    catalog.must(PutFootprint(id, 9, b"another's"))
    chosen = [operations[word] for word in order]
    for write in [chosen] if together else [[one] for one in chosen]:
        catalog.must(*write)
    is_there = order.index("footprint") > order.index("drop")
    assert catalog.store.load_footprints(id, [7, 8, 9]) == {
        **({7: b"f"} if is_there else {}),
        9: b"another's",
    }
    for snapshot_id in (7, 8):
        found = catalog.store.find_snapshot_event(id, snapshot_id)
        assert found is not None
        assert found.event.kind == "e"
    assert catalog.store.find_snapshot_event(id, 9) is None


def test_the_event_of_a_snapshot_is_known_after_its_entry_is_dropped(catalog: Catalog) -> None:
    ours = catalog.create("t")
    event = put_event("e", id=ours.id, snapshot_ids=(1, 1))
    catalog.must(event, PutFootprint(ours.id, 1, b"a"), PutFootprint(ours.id, 2, b"b"))
    late = PutFootprint(ours.id, 1, b"after the drop")
    catalog.must(put_event("later", id=ours.id, snapshot_ids=(1,)), drop(ours), late)
    assert catalog.store.load_footprints(ours.id, [1, 2]) == {1: b"after the drop"}
    found = catalog.store.find_snapshot_event(ours.id, 1)
    assert found is not None
    assert found.event.kind == "later"


# --- jobs ------------------------------------------------------------------------------------------------


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


def claim(store: Store, *, owner: str = "me", now_ms: int = 100, limit: int = 9) -> list[str]:
    return ids(store.claim_jobs(owner=owner, now_ms=now_ms, lease_ms=50, limit=limit))


def test_a_job_is_read_as_written_until_it_is_dropped(catalog: Catalog) -> None:
    catalog.must(put_job("j"), put_job("j", principal="bob", due_ms=7))
    assert catalog.store.load_job("ann", "j") == put_job("j").job
    assert catalog.store.load_job("bob", "j") == put_job("j", principal="bob", due_ms=7).job
    assert catalog.store.load_job("ann", "other") is None
    catalog.must(DropJob("ann", "j"), DropJob("ann", "never-there"))
    assert catalog.store.load_job("ann", "j") is None
    assert catalog.store.count_jobs() == 1


def test_a_job_is_put_once_for_each_principal_and_id(catalog: Catalog) -> None:
    catalog.must(put_job("j"))
    refused = catalog.store.write([put_key("k"), put_job("i"), put_job("j", due_ms=9)])
    assert refused == Refused(2, Reason.KEY_EXISTS, None, "j")
    assert catalog.store.load_job("ann", "i") is None
    assert catalog.store.load_key("ann", "k") is None
    assert catalog.store.load_job("ann", "j") == put_job("j").job


def test_jobs_that_are_due_are_claimed_once_in_the_order_they_were_put(catalog: Catalog) -> None:
    catalog.must(put_job("c", due_ms=100), put_job("a"), put_job("later", due_ms=101))
    catalog.must(put_job("b"))
    assert claim(catalog.store, limit=2) == ["c", "a"]
    assert claim(catalog.store, owner="other") == ["b"]
    assert claim(catalog.store) == []
    assert catalog.store.load_job("ann", "c") == put_job("c", due_ms=100).job
    assert catalog.store.count_jobs() == 4


def test_a_lease_that_ended_frees_the_job_for_anyone(catalog: Catalog) -> None:
    catalog.must(put_job("j"))
    assert claim(catalog.store, now_ms=100) == ["j"]
    assert claim(catalog.store, owner="other", now_ms=149) == []
    assert claim(catalog.store, owner="other", now_ms=150) == ["j"]


def test_a_job_put_again_after_its_drop_is_held_by_nobody(catalog: Catalog) -> None:
    catalog.must(put_job("j"))
    assert claim(catalog.store) == ["j"]
    catalog.must(DropJob("ann", "j"), put_job("j"))
    assert claim(catalog.store) == ["j"]


def test_a_drop_that_was_refused_leaves_the_job_held_and_in_its_place(catalog: Catalog) -> None:
    catalog.must(put_job("first"), put_job("second"), put_job("held"), put_key("k"))
    assert catalog.store.write([DropJob("ann", "first"), put_key("k")]) is not None
    assert claim(catalog.store, limit=2) == ["first", "second"]
    assert catalog.store.write([DropJob("ann", "first"), put_key("k")]) is not None
    assert claim(catalog.store) == ["held"]


def test_of_many_who_claim_at_once_each_job_goes_to_one(catalog: Catalog) -> None:
    names = [f"j{number:02}" for number in range(40)]
    catalog.must(*[put_job(name) for name in names])
    claimed: list[str] = []

    def work(number: int) -> None:
        while got := claim(catalog.store, owner=str(number), limit=3):
            claimed.extend(got)

    in_threads(work, threads=4)
    assert len(claimed) == len(set(claimed))
    assert sorted([*claimed, *claim(catalog.store, limit=99)]) == names


# --- doomed files ----------------------------------------------------------------------------------------


def test_doomed_files_are_read_when_due_oldest_first(catalog: Catalog) -> None:
    catalog.must(doom("b", "a", due_ms=5), doom("c", due_ms=4), doom("late", due_ms=6))
    assert [one.location for one in catalog.store.read_doomed(now_ms=5, limit=9)] == ["c", "a", "b"]
    assert [one.location for one in catalog.store.read_doomed(now_ms=9, limit=2)] == ["c", "a"]
    (only,) = catalog.store.read_doomed(now_ms=4, limit=9)
    assert only == doom("c", due_ms=4).files[0]


def test_a_file_doomed_again_keeps_its_time(catalog: Catalog) -> None:
    catalog.must(doom("a", "a", due_ms=5))
    catalog.must(doom("a", "b", due_ms=9, id=EntryId("other")))
    assert catalog.store.read_doomed(now_ms=5, limit=9) == list(doom("a", due_ms=5).files)
    assert len(catalog.store.read_doomed(now_ms=9, limit=9)) == 2


def test_a_file_that_is_no_longer_doomed_is_gone_and_a_refused_write_dooms_nothing(catalog: Catalog) -> None:
    catalog.must(doom("a", "b"), put_key("k"), doom())
    catalog.store.drop_doomed(["a", "never-there"])
    catalog.store.drop_doomed([])
    assert catalog.store.write([doom("c"), put_key("k")]) is not None
    assert [one.location for one in catalog.store.read_doomed(now_ms=9, limit=9)] == ["b"]
