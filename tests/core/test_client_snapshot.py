"""What a client's snapshot adds and removes is read from its manifests; what does not add up is not rebased."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core.change import Append, Delete
from headgate.core.client_snapshot import NotRebasable, read_client_files
from headgate.core.manifest import EntryStatus, NewEntry
from headgate.errors import NotFound
from tests.core.plain_clients import (
    Rewrite,
    append,
    build,
    find_faults,
    head_of,
    ids_of,
    lake_of,
    land,
    listed,
    lost_race,
    own_manifests,
    reason,
    rebase,
    rewrite_own,
    rows,
    send,
    snapshot_of,
    win,
    with_list,
    with_snapshot,
)


def numbered(number: int) -> Rewrite:
    """Entries with a sequence number of their own."""
    return lambda entries: tuple(
        replace(entry, data_sequence_number=number, file_sequence_number=number) for entry in entries
    )


@pytest.mark.parametrize("merged", [False, True], ids=["fast append", "merge append"])
def test_several_manifests_of_one_spec_are_put_together_into_one(merged: bool) -> None:
    lake, commit = lost_race(3, merged=merged)
    sent = snapshot_of(commit)
    (more,) = own_manifests(lake, build(lake, append(lake, 5, 6), table=lake.table, key="more"))
    entries = lake.world.manifests[more.manifest_path]
    lake.world.manifests[more.manifest_path] = tuple(
        replace(entry, snapshot_id=sent.snapshot_id) for entry in entries
    )
    first, *older = listed(lake, sent)
    both = (first, replace(more, added_snapshot_id=sent.snapshot_id), *older)
    made = land(lake, with_list(lake, commit, both))
    (own,) = own_manifests(lake, made.snapshot)
    assert own.manifest_path in made.written
    assert made.left_over[:2] == (first.manifest_path, more.manifest_path)
    assert [entry.file.first_row_id for entry in lake.world.entries(own)] == [3, 4]
    assert made.snapshot.added_rows == 3
    assert ids_of(lake) == [1, 2, 3, 4, 5, 6]
    assert find_faults(lake) == []


@pytest.mark.parametrize("fields", [("data_sequence_number",), ("file_sequence_number",)], ids=str)
def test_files_that_repeat_the_number_of_their_commit_are_written_anew(fields: tuple[str, ...]) -> None:
    lake, commit = lost_race()
    numbers = dict.fromkeys(fields, snapshot_of(commit).sequence_number)
    repeated = rewrite_own(
        lake,
        commit,
        lambda entries: tuple(replace(e, **numbers) for e in entries),  # type: ignore[arg-type]  # by name
    )
    made = land(lake, repeated)
    (own,) = own_manifests(lake, made.snapshot)
    (entry,) = lake.world.entries(own)
    number = made.snapshot.sequence_number
    assert own.manifest_path in made.written
    assert (entry.data_sequence_number, entry.file_sequence_number) == (number, number)
    assert ids_of(lake) == [1, 2, 3, 4]


@pytest.mark.parametrize("merged", [False, True], ids=["fast append", "merge append"])
def test_files_of_one_manifest_get_the_numbers_of_the_head_one_after_the_other(merged: bool) -> None:
    lake = lake_of(3)
    win(lake, append(lake, 1), key="first")
    two = Append(
        add_data_files=(*lake.put_data(rows(2, 3)), *lake.put_data(rows(4))), base_snapshot_id=lake.head
    )
    commit = send(lake, two, merged=merged)
    win(lake, append(lake, 5), key="winner")
    made = land(lake, commit)
    (own,) = own_manifests(lake, made.snapshot)
    entries = lake.world.entries(own)
    assert (own.sequence_number, own.min_sequence_number) == (3, 3)
    assert [entry.file.first_row_id for entry in entries] == [2, 4]
    assert {entry.snapshot_id for entry in entries} == {made.snapshot.snapshot_id}
    assert find_faults(lake) == []


def test_counts_that_a_v1_list_does_not_tell_are_filled_in() -> None:
    lake, commit = lost_race(1)
    own, *older = listed(lake, snapshot_of(commit))
    silent = replace(own, added_files_count=None, added_rows_count=None, existing_files_count=None)
    made = land(lake, with_list(lake, commit, (silent, *older)))
    (kept,) = own_manifests(lake, made.snapshot)
    assert (kept.added_files_count, kept.added_rows_count, kept.existing_files_count) == (1, 1, 0)


# --- lists ------------------------------------------------------------------------------------------------


def test_an_append_that_leaves_out_a_manifest_of_its_base_is_not_rebased() -> None:
    lake, commit = lost_race()
    short = listed(lake, snapshot_of(commit))[:-1]
    assert "missing" in reason(rebase(lake, with_list(lake, commit, short)))


def test_an_append_may_leave_out_a_manifest_without_live_files() -> None:
    lake = lake_of()
    win(lake, append(lake, 1), key="first")
    path = lake.read(lake.head)[0].path
    win(lake, Delete(remove_data_files=(path,), base_snapshot_id=lake.head), key="delete")
    (emptied,) = own_manifests(lake, head_of(lake))
    commit = send(lake, append(lake, 2))
    assert emptied not in listed(lake, snapshot_of(commit))
    win(lake, append(lake, 3), key="winner")
    land(lake, commit)
    assert ids_of(lake) == [2, 3]


def test_a_list_with_a_manifest_that_the_base_lacks_is_not_rebased() -> None:
    lake, commit = lost_race()
    grown = (*listed(lake, snapshot_of(commit)), *own_manifests(lake, head_of(lake)))
    assert "otherwise than its base" in reason(rebase(lake, with_list(lake, commit, grown)))


@pytest.mark.parametrize("fields", [{"sequence_number": 9}, {"added_snapshot_id": 12}], ids=str)
def test_a_list_that_tells_something_else_of_a_manifest_than_the_base_is_not_rebased(
    fields: dict[str, int],
) -> None:
    lake, commit = lost_race()
    own, older, *rest = listed(lake, snapshot_of(commit))
    changed = replace(older, **fields)  # type: ignore[arg-type]  # fields by name
    assert "otherwise than its base" in reason(rebase(lake, with_list(lake, commit, (own, changed, *rest))))


def test_a_list_that_claims_a_manifest_of_its_base_as_its_own_is_not_rebased() -> None:
    lake, commit = lost_race()
    sent = snapshot_of(commit)
    claimed = tuple(replace(m, added_snapshot_id=sent.snapshot_id) for m in listed(lake, sent))
    assert "otherwise than its base" in reason(rebase(lake, with_list(lake, commit, claimed)))


def test_a_manifest_listed_twice_is_not_rebased() -> None:
    lake, commit = lost_race()
    manifests = listed(lake, snapshot_of(commit))
    assert "twice" in reason(rebase(lake, with_list(lake, commit, (*manifests, manifests[0]))))


ODD_MANIFESTS: list[tuple[dict[str, object], str]] = [
    ({"partition_spec_id": 7}, "spec 7, which is unknown"),
    ({"key_metadata": b"k"}, "encrypted"),
    ({"added_files_count": 2}, "miscounts"),
    ({"added_rows_count": 2}, "miscounts"),
    ({"deleted_files_count": 1}, "miscounts"),
    ({"added_files_count": 100_001}, "more than 100000 files"),
]


@pytest.mark.parametrize(("fields", "why"), ODD_MANIFESTS, ids=str)
def test_an_odd_manifest_is_not_rebased(fields: dict[str, object], why: str) -> None:
    lake, commit = lost_race()
    own, *older = listed(lake, snapshot_of(commit))
    odd = replace(own, **fields)  # type: ignore[arg-type]  # fields by name
    assert why in reason(rebase(lake, with_list(lake, commit, (odd, *older))))


def test_a_list_that_cannot_be_read_is_not_rebased() -> None:
    lake, commit = lost_race()
    reading = read_client_files(snapshot_of(commit), None, lake.table)
    next(reading)
    with pytest.raises(StopIteration) as stop:
        reading.throw(NotFound("no such file", kind="file"))
    assert stop.value.value == NotRebasable("the client's manifests cannot be read: no such file")


# --- entries ----------------------------------------------------------------------------------------------


def as_removed(entries: tuple[NewEntry, ...]) -> tuple[NewEntry, ...]:
    return tuple(
        replace(e, status=EntryStatus.DELETED, data_sequence_number=1, file_sequence_number=1)
        for e in entries
    )


def of_another(entries: tuple[NewEntry, ...]) -> tuple[NewEntry, ...]:
    return tuple(replace(entry, snapshot_id=12) for entry in entries)


def with_older_twin(entries: tuple[NewEntry, ...]) -> tuple[NewEntry, ...]:
    return *entries, *numbered(1)(entries)


def doubled(entries: tuple[NewEntry, ...]) -> tuple[NewEntry, ...]:
    return *entries, *entries


ODD_ENTRIES: list[tuple[Rewrite, str]] = [
    (as_removed, "others are in their place"),
    (of_another, "adds files for snapshot 12"),
    (numbered(1), "only a replace keeps the sequence number"),
    (with_older_twin, "several sequence numbers"),
    (doubled, "there twice"),
]


@pytest.mark.parametrize(("rewrite", "why"), ODD_ENTRIES, ids=[why for _, why in ODD_ENTRIES])
def test_odd_entries_are_not_rebased(rewrite: Rewrite, why: str) -> None:
    lake, commit = lost_race()
    assert why in reason(rebase(lake, rewrite_own(lake, commit, rewrite)))


def test_a_merge_that_loses_an_entry_is_not_rebased() -> None:
    lake, commit = lost_race(merged=True)
    assert "missing" in reason(rebase(lake, rewrite_own(lake, commit, lambda entries: entries[:-1])))


def test_an_added_file_that_has_row_ids_already_is_not_rebased() -> None:
    lake, commit = lost_race(3)
    taken = rewrite_own(
        lake, commit, lambda entries: tuple(replace(e, file=replace(e.file, first_row_id=0)) for e in entries)
    )
    assert "row ids already" in reason(rebase(lake, taken))


def test_an_append_that_removes_files_is_not_rebased() -> None:
    lake = lake_of()
    win(lake, append(lake, 1), key="first")
    path = lake.read(lake.head)[0].path
    commit = send(lake, Delete(remove_data_files=(path,), base_snapshot_id=lake.head))
    win(lake, append(lake, 2), key="winner")
    renamed = with_snapshot(commit, summary={"operation": "append"})
    assert "an append removes files" in reason(rebase(lake, renamed))


def test_what_an_older_commit_removed_may_be_remembered_in_a_manifest() -> None:
    lake, commit = lost_race(merged=True)
    (merged,) = listed(lake, snapshot_of(commit))
    (old, *_) = (e for e in lake.world.manifests[merged.manifest_path] if e.status is EntryStatus.EXISTING)
    gone = replace(old, status=EntryStatus.DELETED, snapshot_id=12)
    land(lake, rewrite_own(lake, commit, lambda entries: (*entries, gone)))
    assert ids_of(lake) == [1, 2, 3, 4]
