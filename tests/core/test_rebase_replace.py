"""A compaction that lost the race lands if its files are still there as it read them; else the evidence says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core.change import Delete, Overwrite, Replace, RequiredDeleteFiles
from headgate.core.conflicts import Finding
from headgate.core.manifest import EntryStatus, NewEntry
from headgate.core.updates import SetProperties
from tests.core.plain_clients import (
    append,
    find_faults,
    head_of,
    ids_of,
    lake_of,
    land,
    own_manifests,
    reason,
    rebase,
    rewrite_own,
    rows,
    send,
    snapshot_of,
    win,
    with_snapshot,
    written,
)
from tests.properties.lake import Lake
from tests.properties.operations import Operation, Scope

COMPACT = Operation("compact", picks=0b11)
COMPACT_KEEPING = Operation("compact", "keeps number", picks=0b11)


def filled(version: int = 2, spec: str = "unpartitioned") -> Lake:
    """Rows 1, 2 and 3, in a file each."""
    lake = lake_of(version, spec)
    for n in (1, 2, 3):
        win(lake, append(lake, n), key=f"fill {n}")
    return lake


# --- it lands ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("merged", [False, True], ids=["manifests apart", "manifests merged"])
def test_a_compaction_that_lost_to_an_append_lands(version: int, merged: bool) -> None:
    lake = filled(version)
    commit = send(lake, written(lake, COMPACT), merged=merged)
    win(lake, append(lake, 4), key="winner")
    made = land(lake, commit)
    assert ids_of(lake) == [1, 2, 3, 4]
    assert len({seen.path for seen in lake.read(lake.head)}) == 3
    assert made.snapshot.summary["operation"] == "replace"
    assert (made.snapshot.summary["added-data-files"], made.snapshot.summary["deleted-data-files"]) == (
        "1",
        "2",
    )
    assert find_faults(lake) == []


def test_a_compaction_keeps_the_manifest_of_its_new_files_and_only_that() -> None:
    lake = filled()
    commit = send(lake, written(lake, COMPACT))
    theirs = {m.manifest_path: m for m in own_manifests(lake, snapshot_of(commit))}
    pure = {path for path, m in theirs.items() if m.deleted_files_count == 0 and m.existing_files_count == 0}
    win(lake, append(lake, 4), key="winner")
    made = land(lake, commit)
    ours = {m.manifest_path for m in own_manifests(lake, made.snapshot)}
    assert len(pure) == 1
    assert ours & theirs.keys() == pure
    assert set(made.left_over) == {*(theirs.keys() - pure), snapshot_of(commit).manifest_list}


def test_a_compaction_that_keeps_its_age_lets_later_equality_deletes_reach_its_rows() -> None:
    lake = filled()
    commit = send(lake, written(lake, COMPACT_KEEPING))
    base = head_of(lake)
    win(lake, Delete(add_delete_files=lake.put_keys([(1, "a")])), key="delete")
    made = land(lake, commit)
    added = [
        entry.data_sequence_number
        for manifest in own_manifests(lake, made.snapshot)
        for entry in lake.world.entries(manifest)
        if entry.status is EntryStatus.ADDED
    ]
    assert added == [base.sequence_number]
    assert ids_of(lake) == [2, 3]
    assert find_faults(lake) == []


def test_a_rewrite_of_position_deletes_lands() -> None:
    lake = filled()
    seen = lake.read(lake.head)
    deletes = [lake.put_positions([(one.path, one.position)], scoped=True)[0] for one in seen[:2]]
    win(lake, Delete(add_delete_files=tuple(deletes)), key="delete")
    update = Replace(
        add_delete_files=lake.put_positions([(one.path, one.position) for one in seen[:2]]),
        remove_delete_files=tuple(file.file_path for file in deletes),
        add_delete_files_sequence_number=head_of(lake).sequence_number,
        base_snapshot_id=lake.head,
        commit_validations=(RequiredDeleteFiles(file_paths=tuple(f.file_path for f in deletes)),),
    )
    commit = send(lake, update)
    before = ids_of(lake)
    win(lake, append(lake, 4), key="winner")
    land(lake, commit)
    assert ids_of(lake) == sorted([*before, 4])
    assert find_faults(lake) == []


# --- it does not ------------------------------------------------------------------------------------------


def test_a_file_that_vanished_is_a_conflict_that_names_the_other_commit() -> None:
    lake = filled()
    commit = send(lake, written(lake, COMPACT))
    path = min(seen.path for seen in lake.read(lake.head))
    theirs = win(lake, Delete(remove_data_files=(path,), base_snapshot_id=lake.head), key="delete")
    found = rebase(lake, commit)
    assert isinstance(found, Finding)
    assert (found.rule, found.files) == ("missing-required-removes", (path,))
    assert found.snapshot is not None
    assert found.snapshot.snapshot_id == theirs.snapshot_id


DELETES = [
    (2, Operation("delete", "mor", Scope(ids=(1, 1)))),
    (2, Operation("delete", "mor", Scope(ids=(1, 1)), scoped=True)),
    (2, Operation("delete", "keys", Scope(cat="a", ids=(1, 1)))),
    (3, Operation("delete", "mor", Scope(ids=(1, 1)))),
]


@pytest.mark.parametrize(("version", "theirs"), DELETES, ids=["positions", "scoped", "keys", "vector"])
def test_rows_deleted_since_do_not_come_back_by_a_compaction(version: int, theirs: Operation) -> None:
    lake = filled(version)
    commit = send(lake, written(lake, COMPACT))
    deleted = win(lake, written(lake, theirs), key="delete")
    made = lake.world.made
    found = rebase(lake, commit)
    assert isinstance(found, Finding)
    assert found.rule == "new-deletes-for-data-files"
    assert found.snapshot is not None
    assert found.snapshot.snapshot_id == deleted.snapshot_id
    assert lake.world.made == made


def test_a_replace_needs_its_own_word_in_the_property() -> None:
    lake = filled()
    commit = send(lake, written(lake, COMPACT))
    win(lake, append(lake, 4), key="winner")
    lake.apply(SetProperties(updates={"headgate.rebase": "append"}))
    assert "does not allow the operation replace" in reason(rebase(lake, commit))


def test_a_rewrite_of_manifests_is_left_to_the_client() -> None:
    lake = filled()
    commit = send(lake, Replace(rewrite_manifests=True, base_snapshot_id=lake.head), merged=True)
    win(lake, append(lake, 4), key="winner")
    assert "only rewrites manifests" in reason(rebase(lake, commit))


def test_a_replace_whose_new_files_take_the_place_of_none_is_not_rebased() -> None:
    lake = filled()
    path = lake.read(lake.head)[0].path
    update = Overwrite(
        add_delete_files=lake.put_keys([(2, "a")]),
        remove_data_files=(path,),
        base_snapshot_id=lake.head,
    )
    commit = with_snapshot(send(lake, update), summary={"operation": "replace"})
    win(lake, append(lake, 4), key="winner")
    assert "take the place of none" in reason(rebase(lake, commit))


def test_a_replace_that_adds_records_is_not_rebased() -> None:
    lake = filled()
    path = lake.read(lake.head)[0].path
    update = Overwrite(
        add_data_files=lake.put_data(rows(7, 8, 9)), remove_data_files=(path,), base_snapshot_id=lake.head
    )
    commit = with_snapshot(send(lake, update), summary={"operation": "replace"})
    win(lake, append(lake, 4), key="winner")
    assert "adds more records" in reason(rebase(lake, commit))


def test_new_files_of_several_ages_are_not_rebased() -> None:
    lake = filled()
    two = Replace(
        add_data_files=(*lake.put_data(rows(1)), *lake.put_data(rows(2))),
        remove_data_files=tuple(seen.path for seen in lake.read(lake.head)),
        base_snapshot_id=lake.head,
    )

    def aged(entries: tuple[NewEntry, ...]) -> tuple[NewEntry, ...]:
        ages = iter((1, 2))
        return tuple(
            replace(e, data_sequence_number=next(ages)) if e.status is EntryStatus.ADDED else e
            for e in entries
        )

    commit = rewrite_own(lake, send(lake, two), aged)
    win(lake, append(lake, 4), key="winner")
    assert "several sequence numbers" in reason(rebase(lake, commit))
