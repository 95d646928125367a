"""Adding, pointing at and removing snapshots: ids, sequence numbers, row ids, time, history."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from headgate.core.apply import apply
from headgate.core.table import MAIN, TableMetadata
from headgate.core.updates import (
    AddSnapshot,
    RemoveSnapshotRef,
    RemoveSnapshots,
    SetPartitionStatistics,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    TableUpdate,
    UpgradeFormatVersion,
)
from headgate.errors import BadInput, CommitRefused, Retry
from tests.core.builders import (
    ROWS,
    T0,
    append,
    commit,
    history,
    ids,
    partition_statistics,
    point,
    snapshot,
    statistics,
    table,
)

EARLY = SetProperties(updates={"x": "y"})


def add(n: int, version: int = 2, **changes: Any) -> AddSnapshot:
    return AddSnapshot(snapshot=snapshot(n, version=version, **changes))


def remove(*snapshot_ids: int) -> RemoveSnapshots:
    return RemoveSnapshots(snapshot_ids=snapshot_ids)


def bad(base: TableMetadata, *updates: TableUpdate, now_ms: int | None = None) -> BadInput:
    with pytest.raises(BadInput) as caught:
        commit(base, *updates, now_ms=now_ms)
    return caught.value


def stale(base: TableMetadata, *updates: TableUpdate) -> CommitRefused:
    with pytest.raises(CommitRefused) as caught:
        commit(base, *updates)
    assert caught.value.retry is Retry.REFRESH
    return caught.value


# --- adding ---------------------------------------------------------------------------------------------


def test_an_append_moves_main_and_the_sequence_number() -> None:
    made = commit(table(), *append(1))
    assert ids(made) == [1]
    assert history(made) == [1]
    assert made.envelope.current_snapshot_id == 1
    assert made.envelope.refs[MAIN].snapshot_id == 1
    assert made.envelope.last_sequence_number == 1
    assert made.envelope.last_updated_ms == T0 + 1000
    assert made.find_snapshot(1) == snapshot(1)


def test_a_snapshot_added_to_no_branch_is_staged() -> None:
    made = commit(table(snapshots=1), add(2))
    assert ids(made) == [1, 2]
    assert made.envelope.current_snapshot_id == 1
    assert history(made) == [1]
    assert made.envelope.last_sequence_number == 2


def test_the_base_of_a_commit_is_left_as_it_was() -> None:
    base = table(snapshots=3)
    commit(base, *append(4), remove(1), EARLY)
    assert ids(base) == [1, 2, 3]
    assert history(base) == [1, 2, 3]
    assert "x" not in base.envelope.properties


def test_only_the_snapshots_that_came_are_a_delta_to_store() -> None:
    base = table(snapshots=3)
    made = commit(base, *append(4), remove(1))
    delta = made.snapshots.since(base.snapshots)
    assert [item.key for item in delta.added] == [4]
    assert delta.removed == (0,)


def test_a_snapshot_id_that_exists_is_refused() -> None:
    error = bad(table(snapshots=2), add(2, sequence_number=3))
    assert error.message == "Snapshot already exists for id: 2"
    assert error.field == "updates.snapshot-id"


def test_a_snapshot_id_may_not_come_twice_in_one_request() -> None:
    assert "already exists" in bad(table(), add(1), add(1, sequence_number=2)).message


def test_a_snapshot_removed_and_added_again_in_one_request_is_there() -> None:
    base = table(snapshots=2)
    made = commit(base, point("keep", 1), remove(1), add(1, sequence_number=3))
    assert ids(made) == [2, 1]
    assert made.envelope.refs["keep"].snapshot_id == 1


BAD_SNAPSHOTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "negative id": ({"snapshot_id": -5}, "updates.snapshot.snapshot-id", "Invalid snapshot id: -5"),
    "no manifest list": ({"manifest_list": None}, "updates.snapshot.manifest-list", "has no manifest list"),
    "no operation": ({"summary": {}}, "updates.snapshot.summary", "has no operation in its summary"),
    "unknown schema": ({"schema_id": 7}, "updates.snapshot.schema-id", "names an unknown schema: 7"),
    "before 1970": ({"timestamp_ms": -1}, "updates.snapshot.timestamp-ms", "Invalid snapshot timestamp -1"),
}


@pytest.mark.parametrize("name", BAD_SNAPSHOTS)
def test_a_snapshot_no_reader_could_use_is_refused(name: str) -> None:
    changes, field, message = BAD_SNAPSHOTS[name]
    for version in (2, 3):
        error = bad(table(version=version), AddSnapshot(snapshot=snapshot(1, version=version, **changes)))
        assert error.field == field
        assert message in error.message


def test_version_1_knows_manifests_without_a_list_and_summaries_without_an_operation() -> None:
    made = commit(table(version=1), add(1, 1, manifest_list=None, manifests=("m.avro",), summary={}))
    assert ids(made) == [1]
    assert [item.tag for item in made.snapshots] == [None]


def test_a_snapshot_may_leave_out_its_schema() -> None:
    assert ids(commit(table(), add(1, schema_id=None))) == [1]


# --- sequence numbers -----------------------------------------------------------------------------------


def test_a_commit_that_lost_the_race_on_another_branch_is_told_to_retry() -> None:
    head = commit(table(snapshots=1), point("audit", 1))
    head = commit(head, *append(2))
    error = stale(head, *append(3, branch="audit", sequence_number=2, parent_snapshot_id=1))
    assert error.message == (
        "Validation failed, please retry: Cannot add snapshot with sequence number 2 older than "
        "last sequence number 2"
    )
    made = commit(head, *append(3, branch="audit", sequence_number=3, parent_snapshot_id=1))
    assert made.envelope.refs["audit"].snapshot_id == 3
    assert made.envelope.current_snapshot_id == 2


def test_a_first_snapshot_may_have_an_old_number_and_does_not_turn_the_tables_back() -> None:
    made = commit(table(snapshots=3), *append(9, branch="fresh", sequence_number=1, parent_snapshot_id=None))
    assert made.envelope.last_sequence_number == 3


def test_sequence_numbers_are_zero_in_version_1() -> None:
    made = table(version=1, snapshots=2)
    assert made.envelope.last_sequence_number == 0
    error = bad(made, add(3, 1, sequence_number=3))
    assert error.field == "updates.snapshot.sequence-number"
    assert error.message == "Sequence number must be 0 in v1: 3"


# --- row ids --------------------------------------------------------------------------------------------


def test_row_ids_follow_each_other_in_version_3() -> None:
    made = table(version=3, snapshots=3)
    ranges = [(s.first_row_id, s.added_rows) for s in made.iter_snapshots()]
    assert ranges == [(0, ROWS), (ROWS, ROWS), (2 * ROWS, ROWS)]
    assert made.envelope.next_row_id == 3 * ROWS


def test_a_row_id_that_was_taken_meanwhile_is_told_to_retry() -> None:
    error = stale(table(version=3, snapshots=2), *append(3, version=3, first_row_id=ROWS))
    assert error.message.endswith(f"first-row-id is behind table next-row-id: {ROWS} < {2 * ROWS}")


def test_row_ids_continue_after_the_highest_one_handed_out() -> None:
    made = commit(table(version=3), *append(1, version=3, first_row_id=100, added_rows=5))
    assert made.envelope.next_row_id == 105


@pytest.mark.parametrize(
    ("missing", "field"), [("first_row_id", "first-row-id"), ("added_rows", "added-rows")]
)
def test_version_3_needs_row_ids(missing: str, field: str) -> None:
    changes: dict[str, Any] = {missing: None}
    error = bad(table(version=3), *append(1, version=3, **changes))
    assert error.field == f"updates.snapshot.{field}"
    assert error.message == f"Cannot add a snapshot: {field} is null"


def test_row_ids_end_where_a_long_ends() -> None:
    last = 2**63 - 1
    assert (
        commit(
            table(version=3), *append(1, version=3, first_row_id=last - 5, added_rows=5)
        ).envelope.next_row_id
        == last
    )
    error = bad(table(version=3), *append(1, version=3, first_row_id=last, added_rows=1))
    assert error.message == "Cannot add a snapshot: no row id is left"


def test_row_ids_start_with_the_upgrade_to_version_3() -> None:
    made = commit(table(snapshots=2), UpgradeFormatVersion(format_version=3))
    assert made.envelope.next_row_id == 0
    made = commit(made, *append(3, version=3, first_row_id=0, added_rows=7))
    assert made.envelope.next_row_id == 7


def test_version_2_counts_no_row_ids() -> None:
    assert commit(table(), *append(1, first_row_id=5, added_rows=5)).envelope.next_row_id is None


# --- time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clock_s", "good"),
    [(-90, False), (-61, False), (-60, True), (0, True), (60, True), (61, False), (90, False)],
)
def test_a_writers_clock_may_be_a_minute_behind_or_ahead(clock_s: int, good: bool) -> None:
    head = commit(table(at_ms=T0), *append(1, timestamp_ms=T0), now_ms=T0)
    updates = append(2, timestamp_ms=T0 + clock_s * 1000)
    if good:
        made = commit(head, *updates, now_ms=T0)
        assert made.envelope.last_updated_ms == max(T0, T0 + clock_s * 1000)
    else:
        assert bad(head, *updates, now_ms=T0).field == "updates.snapshot.timestamp-ms"


def test_a_refused_clock_is_named_with_the_times_it_was_compared_to() -> None:
    head = commit(table(at_ms=T0), *append(1, timestamp_ms=T0), now_ms=T0)
    behind = bad(head, *append(2, timestamp_ms=T0 - 90_000), now_ms=T0)
    assert behind.message == f"Invalid snapshot timestamp {T0 - 90_000}: before the last snapshot's {T0}"
    ahead = bad(head, *append(2, timestamp_ms=T0 + 90_000), now_ms=T0)
    assert ahead.message.endswith(f"more than a minute ahead of the service's clock {T0}")


def test_a_writer_behind_the_services_clock_may_commit_after_a_property_was_set() -> None:
    head = commit(table(at_ms=T0), *append(1, timestamp_ms=T0 - 90_000), now_ms=T0)
    head = commit(head, EARLY, now_ms=T0 + 1)
    assert history(commit(head, *append(2, timestamp_ms=T0 - 89_000), now_ms=T0 + 2)) == [1, 2]


def test_the_services_own_clock_may_jump_back_without_stopping_commits() -> None:
    head = table(snapshots=1)
    made = commit(head, *append(2, timestamp_ms=head.envelope.last_updated_ms + 1), now_ms=T0 - 90_000)
    assert made.envelope.last_updated_ms == head.envelope.last_updated_ms + 1


def test_time_never_runs_backwards_over_commits() -> None:
    made = commit(table(snapshots=2), EARLY, now_ms=T0 - 90_000)
    assert made.envelope.last_updated_ms == T0 + 2000


def test_history_is_sorted_to_within_a_minute_whatever_the_clocks_say() -> None:
    head = commit(table(at_ms=T0), *append(1, timestamp_ms=T0 + 60_000), now_ms=T0)
    head = commit(head, *append(2, timestamp_ms=T0), now_ms=T0)
    head = commit(head, point(MAIN, 1), now_ms=T0)
    times = [entry.timestamp_ms for entry in head.iter_history()]
    assert all(later - earlier >= -60_000 for earlier, later in pairwise(times))
    assert times[-1] == T0 + 60_000  # a rollback is never recorded before what it rolls back


# --- refs -----------------------------------------------------------------------------------------------


def test_a_rollback_is_recorded_at_the_time_it_happens() -> None:
    made = commit(table(snapshots=3), point(MAIN, 1), now_ms=T0 + 50_000)
    assert history(made) == [1, 2, 3, 1]
    assert [entry.timestamp_ms for entry in made.iter_history()][-1] == T0 + 50_000
    assert made.envelope.current_snapshot_id == 1
    assert ids(made) == [1, 2, 3]


def test_pointing_where_a_ref_points_changes_nothing() -> None:
    assert apply(table(snapshots=2), [point(MAIN, 2)], now_ms=T0) is None


def test_new_retention_of_main_is_no_entry_in_its_history() -> None:
    made = commit(table(snapshots=2), point(MAIN, 2, min_snapshots_to_keep=3))
    assert history(made) == [1, 2]
    assert made.envelope.refs[MAIN].min_snapshots_to_keep == 3


def test_the_type_of_a_ref_is_read_in_any_case() -> None:
    made = commit(table(snapshots=1), point("t", 1, "TAG", max_ref_age_ms=9))
    assert made.envelope.refs["t"].type == "tag"


BAD_REFS: dict[str, tuple[SetSnapshotRef, str, str]] = {
    "no name": (point("", 1), "updates.ref-name", "a ref needs a name"),
    "type": (point("b", 1, "fork"), "updates.type", "Invalid snapshot ref type: fork"),
    "unknown snapshot": (point("b", 9), "updates.snapshot-id", "Cannot set b to unknown snapshot: 9"),
    "main as a tag": (point(MAIN, 1, "tag"), "updates.type", "Cannot set main to a tag, it must be a branch"),
    "tag with snapshot retention": (
        point("t", 1, "tag", max_snapshot_age_ms=5),
        "updates.type",
        "Tags do not support setting a snapshot retention: t",
    ),
    "tag with a number to keep": (
        point("t", 1, "tag", min_snapshots_to_keep=5),
        "updates.type",
        "Tags do not support setting a snapshot retention: t",
    ),
    "keep none": (
        point("b", 1, min_snapshots_to_keep=0),
        "updates.min-snapshots-to-keep",
        "min-snapshots-to-keep of ref b must be positive: 0",
    ),
    "age": (
        point("b", 1, max_snapshot_age_ms=-1),
        "updates.max-snapshot-age-ms",
        "max-snapshot-age-ms of ref b must be positive: -1",
    ),
    "ref age": (
        point("b", 1, max_ref_age_ms=0),
        "updates.max-ref-age-ms",
        "max-ref-age-ms of ref b must be positive: 0",
    ),
}


@pytest.mark.parametrize("name", BAD_REFS)
def test_a_ref_that_makes_no_sense_is_refused(name: str) -> None:
    update, field, message = BAD_REFS[name]
    error = bad(table(snapshots=2), update)
    assert (error.field, error.message) == (field, message)


def test_removing_main_leaves_no_current_snapshot() -> None:
    made = commit(table(snapshots=2), RemoveSnapshotRef(ref_name=MAIN))
    assert made.envelope.current_snapshot_id is None
    assert made.envelope.refs == {}
    assert ids(made) == [1, 2]
    assert history(made) == [1, 2]


def test_removing_a_tag_leaves_the_current_snapshot() -> None:
    made = commit(commit(table(snapshots=1), point("t", 1, "tag")), RemoveSnapshotRef(ref_name="t"))
    assert made.envelope.current_snapshot_id == 1
    assert list(made.envelope.refs) == [MAIN]


def test_removing_a_ref_that_is_not_there_changes_nothing() -> None:
    assert apply(table(snapshots=1), [RemoveSnapshotRef(ref_name="t")], now_ms=T0) is None


# --- removing -------------------------------------------------------------------------------------------


def test_a_removed_snapshot_takes_its_statistics_along() -> None:
    base = commit(
        table(snapshots=2),
        SetStatistics(statistics=statistics(1)),
        SetStatistics(statistics=statistics(2)),
        SetPartitionStatistics(partition_statistics=partition_statistics(1)),
        SetPartitionStatistics(partition_statistics=partition_statistics(2)),
    )
    made = commit(base, remove(1))
    assert ids(made) == [2]
    assert [s.snapshot_id for s in made.envelope.statistics] == [2]
    assert [s.snapshot_id for s in made.envelope.partition_statistics] == [2]


def test_removing_what_is_not_there_changes_nothing() -> None:
    assert apply(table(snapshots=1), [remove(7), remove()], now_ms=T0) is None


@pytest.mark.parametrize(("ref", "type_"), [(MAIN, "branch"), ("b", "branch"), ("t", "tag")])
def test_a_snapshot_that_a_ref_needs_is_kept_and_the_request_refused(ref: str, type_: str) -> None:
    base = commit(table(snapshots=3), point("b", 2), point("t", 1, "tag"))
    needed = base.envelope.refs[ref].snapshot_id
    error = stale(base, remove(needed))
    assert error.message == (
        f"Cannot remove snapshots that refs still point at: {ref}; remove the refs first or refresh"
    )


def test_a_refused_removal_names_all_refs_sorted() -> None:
    base = commit(table(snapshots=3), point("z", 1), point("a", 1))
    assert "point at: a, z;" in stale(base, remove(1, 2)).message


def test_a_ref_made_after_the_expiry_was_planned_saves_its_snapshot() -> None:
    planned_on = table(snapshots=3)
    meanwhile = commit(planned_on, point("keep", 1, "tag"))
    assert ids(commit(planned_on, remove(1))) == [2, 3]
    stale(meanwhile, remove(1))


@pytest.mark.parametrize("ref_first", [True, False])
def test_a_ref_may_go_together_with_its_snapshot_in_either_order(ref_first: bool) -> None:
    base = commit(table(snapshots=2), point("t", 1, "tag"))
    updates: list[TableUpdate] = [RemoveSnapshotRef(ref_name="t"), remove(1)]
    assert ids(commit(base, *(updates if ref_first else updates[::-1]))) == [2]


# --- history --------------------------------------------------------------------------------------------


def test_snapshots_that_were_current_only_inside_a_request_leave_no_history() -> None:
    made = commit(table(snapshots=1), *append(2), *append(3), *append(4))
    assert ids(made) == [1, 2, 3, 4]
    assert history(made) == [1, 4]


def test_a_snapshot_that_is_current_at_the_end_stays_in_the_history_although_it_was_left_meanwhile() -> None:
    made = commit(table(snapshots=1), *append(2), point(MAIN, 1), point(MAIN, 2))
    assert history(made)[-1] == 2
    assert made.envelope.current_snapshot_id == 2


def test_main_removed_and_made_again_in_one_request_leaves_no_trace_of_what_was_between() -> None:
    made = commit(table(snapshots=1), *append(2), RemoveSnapshotRef(ref_name=MAIN), *append(3))
    assert history(made) == [1, 3]


def test_a_rollback_within_a_request_hides_the_snapshot_it_undid() -> None:
    made = commit(table(snapshots=2), *append(3), point(MAIN, 1))
    assert history(made) == [1, 2, 1]


def test_commits_to_other_branches_leave_no_history() -> None:
    made = commit(table(snapshots=1), *append(2, branch="b"), *append(3, branch="b"))
    assert history(made) == [1]


# History before a removed snapshot would show the next one as current during the gap.
EXPIRIES = """
removed   history
1         2 3 4 5
2         3 4 5
4         5
1,3       4 5
1,2,3,4   5
"""


@pytest.mark.parametrize("row", [line.split(maxsplit=1) for line in EXPIRIES.strip().splitlines()[1:]])
def test_history_starts_after_the_newest_gap(row: list[str]) -> None:
    gone = [int(text) for text in row[0].split(",")]
    made = commit(table(snapshots=5), remove(*gone))
    assert history(made) == [int(text) for text in row[1].split()]
    assert ids(made) == [n for n in range(1, 6) if n not in gone]


def test_history_of_a_snapshot_that_was_current_twice_goes_wholly() -> None:
    base = commit(commit(commit(table(snapshots=2), point(MAIN, 1)), point(MAIN, 2)), EARLY)
    assert history(base) == [1, 2, 1, 2]
    assert history(commit(base, remove(1))) == [2]


def test_a_snapshot_added_and_expired_in_one_request_leaves_the_history_before_it() -> None:
    made = commit(table(snapshots=2), *append(3), *append(4), remove(3))
    assert ids(made) == [1, 2, 4]
    assert history(made) == [1, 2, 4]


def test_expiry_of_a_staged_snapshot_leaves_the_history() -> None:
    base = commit(table(snapshots=2), add(3))
    assert history(commit(base, remove(3))) == [1, 2]


def test_a_history_is_settled_across_blocks_of_the_log() -> None:
    base = table(snapshots=200)
    made = commit(base, remove(*range(1, 100)))
    assert history(made) == list(range(100, 201))
    assert len(made.history.since(base.history).removed) == 99
