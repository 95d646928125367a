"""A plain commit that is rebased gets the verdict, the rows and the counts of the same change sent fine-grained."""

from __future__ import annotations

import pytest

from headgate.core.change import Append
from headgate.core.conflicts import Finding
from headgate.core.rebase import Rebased
from headgate.core.table import Snapshot
from tests.core.plain_clients import append, find_faults, lake_of, rebase, rows, send, win, written
from tests.properties.lake import Row, Variant
from tests.properties.operations import Operation, Scope

VARIANTS = (Variant(2, "by cat"), Variant(3, "unpartitioned"), Variant(3, "by bucket"))
OURS = {
    "append": Operation("append", rows=(Row("new", 9, "b", 0),)),
    "compact": Operation("compact", picks=0b11),
    "compact, keeping age": Operation("compact", "keeps number", picks=0b11),
}
THEIRS = {
    "append": Operation("append", rows=(Row("other", 8, "a", 0),)),
    "delete by keys": Operation("delete", "keys", Scope(cat="a", ids=(1, 2))),
    "delete by positions": Operation("delete", "mor", Scope(ids=(1, 1))),
    "delete elsewhere": Operation("delete", "mor", Scope(ids=(5, 5))),
    "copy on write": Operation("update", "cow", Scope(ids=(2, 2))),
    "update by positions": Operation("update", "mor", Scope(ids=(2, 2))),
    "compact": Operation("compact", picks=0b110),
    "compact elsewhere": Operation("compact", picks=0b1000),
}
# What becomes of ours (top) when theirs (left) has landed first.
VERDICTS = """
                        append    compact                         compact, keeping age
    append              lands     lands                           lands
    delete by keys      lands     new-deletes-for-data-files      lands
    delete by positions lands     new-deletes-for-data-files      new-deletes-for-data-files
    delete elsewhere    lands     lands                           lands
    copy on write       lands     missing-required-removes        missing-required-removes
    update by positions lands     new-deletes-for-data-files      new-deletes-for-data-files
    compact             lands     missing-required-removes        missing-required-removes
    compact elsewhere   lands     lands                           lands
"""
CELLS = [
    (theirs, ours, verdict)
    for theirs, line in zip(THEIRS, VERDICTS.strip().splitlines()[1:], strict=True)
    for ours, verdict in zip(OURS, line.removeprefix(f"    {theirs}").split(), strict=True)
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"v{variant.version} {variant.spec}")
@pytest.mark.parametrize(("theirs", "ours", "verdict"), CELLS)
@pytest.mark.parametrize("merged", [False, True], ids=["manifests apart", "manifests merged"])
def test_a_plain_commit_is_judged_and_built_as_the_same_change_sent_fine_grained(
    variant: Variant, theirs: str, ours: str, verdict: str, merged: bool
) -> None:
    lake = lake_of(variant.version, variant.spec)
    for n in (1, 2, 3):
        win(lake, append(lake, n), key=f"fill {n}")
    win(lake, Append(add_data_files=lake.put_data(rows(5, cat="b"))), key="fill b")
    change = written(lake, OURS[ours])
    commit = send(lake, change, merged=merged)
    win(lake, written(lake, THEIRS[theirs]), key="theirs")
    fine = lake.fork()
    expected, made = fine.commit(change, key="fine"), rebase(lake, commit)
    if verdict != "lands":
        assert isinstance(made, Finding)
        assert made.rule == verdict
        assert made == expected
        return
    assert isinstance(expected, Snapshot)
    assert isinstance(made, Rebased)
    lake.apply(*made.updates)
    assert sorted(lake.read(lake.head)) == sorted(fine.read(fine.head))
    assert find_faults(lake) == []
    assert expected.summary.items() <= made.snapshot.summary.items()
