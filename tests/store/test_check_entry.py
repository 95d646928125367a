"""Contract: a check changes nothing, and holds an entry as it is until the write that carries it is done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.store.base import CheckEntry, EntryHeader, Reason, Refused
from tests.store.builders import NS, Catalog, drop, new_id, put_event, put_key, rename, swap
from tests.store.test_write import in_threads


def check(header: EntryHeader, *, expected: int | None = None) -> CheckEntry:
    return CheckEntry(header.id, header.version if expected is None else expected)


def test_a_check_that_holds_lets_the_rest_pass_and_changes_nothing(catalog: Catalog) -> None:
    read, written = catalog.create("read"), catalog.create("written")
    before = catalog.entry("read")
    catalog.must(swap(written), check(read), put_key("k"), put_event("e"))
    assert catalog.entry("read") == before
    assert catalog.header("written").version == 2
    assert catalog.event_kinds() == ["e"]


def test_a_check_alone_is_applied_and_writes_no_row(catalog: Catalog) -> None:
    read = catalog.create("read")
    catalog.must(check(read), check(read))
    assert catalog.header("read") == read
    assert catalog.event_kinds() == []


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_a_check_of_another_version_refuses_the_whole_write(catalog: Catalog, expected: int) -> None:
    read, written = catalog.create("read"), catalog.create("written")
    catalog.must(swap(read))
    refused = catalog.store.write(
        [swap(written), check(read, expected=expected), put_key("k"), put_event("e")]
    )
    assert refused is not None
    assert (refused.index, refused.reason) == (1, Reason.ENTRY_CHANGED)
    assert catalog.header("written") == written
    assert catalog.store.load_key("ann", "k") is None
    assert catalog.event_kinds() == []


def test_a_check_of_an_entry_that_is_gone_refuses_the_whole_write(catalog: Catalog) -> None:
    read, written = catalog.create("read"), catalog.create("written")
    catalog.must(drop(read))
    for gone in (read, replace(read, id=new_id())):
        refused = catalog.store.write([swap(written), check(gone)])
        assert refused is not None
        assert (refused.index, refused.reason) == (1, Reason.ENTRY_MISSING)
    assert catalog.header("written") == written


def test_a_rename_moves_the_version_that_a_check_expects(catalog: Catalog) -> None:
    read, written = catalog.create("read"), catalog.create("written")
    catalog.must(rename(read, "renamed"))
    refused = catalog.store.write([swap(written), check(read)])
    assert refused is not None
    assert refused.reason is Reason.ENTRY_CHANGED


def test_a_check_sees_the_operations_before_it(catalog: Catalog) -> None:
    header = catalog.create("t")
    catalog.must(check(header), swap(header), check(header, expected=2))
    refused = catalog.store.write([swap(header, expected=2), check(header, expected=2)])
    assert refused is not None
    assert (refused.index, refused.reason) == (1, Reason.ENTRY_CHANGED)
    assert catalog.header("t").version == 2


def test_of_two_writes_that_check_what_the_other_swaps_exactly_one_is_applied(catalog: Catalog) -> None:
    for name in ("a", "b"):
        catalog.create(name)
    for _ in range(20):
        heads = {name: catalog.header(name) for name in ("a", "b")}
        outcomes: list[Refused | None] = []

        def work(
            number: int, heads: dict[str, EntryHeader] = heads, into: list[Refused | None] = outcomes
        ) -> None:
            ours, theirs = ("a", "b") if number else ("b", "a")
            into.append(catalog.store.write([swap(heads[ours]), check(heads[theirs])]))

        in_threads(work, threads=2)
        assert sorted(str(refused and refused.reason) for refused in outcomes) == ["None", "entry-changed"]
        moved = [catalog.header(name).version - heads[name].version for name in ("a", "b")]
        assert sorted(moved) == [0, 1]


def test_writes_that_only_check_one_entry_do_not_refuse_each_other(catalog: Catalog) -> None:
    read = catalog.create("read")
    written = [catalog.create(f"t{number}") for number in range(8)]
    outcomes: list[Refused | None] = []
    in_threads(lambda number: outcomes.append(catalog.store.write([swap(written[number]), check(read)])))
    assert outcomes == [None] * 8
    assert catalog.header("read", namespace=NS) == read
