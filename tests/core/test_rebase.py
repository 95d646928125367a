"""A plain commit whose head has moved lands as if it had been built on that head, or is left to the ordinary rules."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import msgspec
import pytest

from headgate.core.apply import apply
from headgate.core.build import WriteManifest, WriteManifestList
from headgate.core.change import Action, Append, Delete, NoAddedDataFiles, Overwrite
from headgate.core.client_snapshot import NotRebasable
from headgate.core.conflicts import Finding
from headgate.core.manifest import EntryStatus
from headgate.core.rebase import (
    REBASED_FROM,
    Rebased,
    check_rebase_property,
    is_landed,
    is_rebasable,
    parse_rebase,
    rebase_commit,
)
from headgate.core.requirements import find_failed
from headgate.core.schema import Field
from headgate.core.table import MAIN
from headgate.core.updates import (
    AddSchema,
    AddSnapshot,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUuid,
    RemoveSnapshots,
    SetCurrentSchema,
    SetProperties,
    SetSnapshotRef,
    UpgradeFormatVersion,
)
from headgate.errors import BadInput, CommitRefused
from tests.core.plain_clients import (
    append,
    build,
    commit_of,
    find_faults,
    head_of,
    ids_of,
    lake_of,
    land,
    listed,
    lost_race,
    own_manifests,
    plain,
    reason,
    rebase,
    rewrite_own,
    send,
    snapshot_of,
    win,
    with_snapshot,
)

ANOTHER_TABLE = AssertTableUuid(uuid="00000000-0000-4000-8000-000000000001")

# --- appends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("merged", [False, True], ids=["fast append", "merge append"])
def test_an_append_that_lost_the_race_lands_on_the_head_with_every_row_once(
    version: int, merged: bool
) -> None:
    lake, commit = lost_race(version, merged=merged)
    winner = lake.head
    made = land(lake, commit)
    assert lake.head == made.snapshot.snapshot_id == snapshot_of(commit).snapshot_id
    assert made.snapshot.parent_snapshot_id == winner
    assert ids_of(lake) == [1, 2, 3, 4]
    assert find_faults(lake) == []


def test_a_fast_append_keeps_the_clients_manifest_and_writes_only_a_list() -> None:
    lake, commit = lost_race()
    theirs = own_manifests(lake, snapshot_of(commit))
    made = land(lake, commit)
    kept = own_manifests(lake, made.snapshot)
    assert [m.manifest_path for m in kept] == [m.manifest_path for m in theirs]
    assert made.written == (made.snapshot.manifest_list,)
    assert made.left_over == (snapshot_of(commit).manifest_list,)


def test_a_merge_append_brings_its_own_files_only_and_old_entries_are_not_listed_twice() -> None:
    lake, commit = lost_race(merged=True)
    (merged,) = listed(lake, snapshot_of(commit))
    made = land(lake, commit)
    (own,) = own_manifests(lake, made.snapshot)
    assert [entry.status for entry in lake.world.entries(own)] == [EntryStatus.ADDED]
    assert merged.manifest_path not in [m.manifest_path for m in listed(lake, made.snapshot)]
    assert made.left_over == (merged.manifest_path, snapshot_of(commit).manifest_list)
    assert made.written == (own.manifest_path, made.snapshot.manifest_list)


@pytest.mark.parametrize("merged", [False, True], ids=["fast append", "merge append"])
def test_every_file_is_written_for_the_clients_snapshot(merged: bool) -> None:
    lake, commit = lost_race(merged=merged)
    asked: list[int] = []
    rebasing = rebase_commit(commit, lake.table, now_ms=0, seed="s")
    effect = next(rebasing)
    with suppress(StopIteration):
        while True:
            if isinstance(effect, WriteManifest | WriteManifestList):
                asked.append(effect.snapshot_id)
            effect = rebasing.send(lake.world.answer(effect))
    assert asked == [snapshot_of(commit).snapshot_id] * (2 if merged else 1)


def test_manifests_that_are_merged_on_the_way_belong_to_the_clients_snapshot() -> None:
    lake, commit = lost_race(3)
    for n in (5, 6, 7):
        win(lake, append(lake, n), key=f"more {n}")
    lake.apply(SetProperties(updates={"commit.manifest.min-count-to-merge": "4"}))
    before = {manifest.manifest_path for manifest in listed(lake, head_of(lake))}
    made = land(lake, commit)
    new = [m for m in listed(lake, made.snapshot) if m.manifest_path not in before]
    assert any(manifest.existing_files_count for manifest in new)  # something was merged
    assert {manifest.added_snapshot_id for manifest in new} == {made.snapshot.snapshot_id}
    assert ids_of(lake) == [1, 2, 3, 4, 5, 6, 7]
    assert find_faults(lake) == []


def test_numbers_time_and_row_ids_come_from_the_head() -> None:
    lake, commit = lost_race(3)
    head, sent = head_of(lake), snapshot_of(commit)
    made = rebase(lake, commit, now_ms=5)  # a clock that is far behind
    assert isinstance(made, Rebased)
    assert (sent.sequence_number, sent.first_row_id) == (head.sequence_number, head.first_row_id)
    assert made.snapshot.sequence_number == head.sequence_number + 1
    assert (made.snapshot.first_row_id, made.snapshot.added_rows) == (3, 1)
    assert made.snapshot.timestamp_ms >= head.timestamp_ms


def test_the_clients_words_stay_in_the_summary_and_its_counts_are_counted_anew() -> None:
    lake, commit = lost_race()
    lied = {
        **snapshot_of(commit).summary,
        "added-records": "77",
        "total-records": "99",
        "deleted-records": "5",
    }
    summary = land(lake, with_snapshot(commit, summary=lied)).snapshot.summary
    assert summary["operation"] == "append"
    assert (summary["engine-name"], summary["spark.app.id"]) == ("spark", "client")
    assert (summary["added-records"], summary["total-records"]) == ("1", "4")
    assert summary[REBASED_FROM] == snapshot_of(commit).manifest_list
    assert summary.keys().isdisjoint(("manifests-created", "deleted-records"))


def test_the_schema_that_the_client_wrote_with_stays() -> None:
    lake, commit = lost_race()
    first = lake.table.schema()
    column = Field(id=4, name="more", type="long", required=False)
    wider = msgspec.structs.replace(first, fields=(*first.fields, column))
    lake.apply(AddSchema(schema=wider), SetCurrentSchema(schema_id=-1))
    made = land(lake, commit)
    assert lake.table.envelope.current_schema_id == 1
    assert made.snapshot.schema_id == 0


def test_rebased_commits_follow_one_another() -> None:
    lake, first = lost_race(3)
    second = send(lake, append(lake, 5), key="other")
    third = send(lake, append(lake, 6), key="third", merged=True)
    for commit in (first, second, third):
        land(lake, commit)
    assert ids_of(lake) == [1, 2, 3, 4, 5, 6]
    assert find_faults(lake) == []


def test_the_first_two_commits_of_an_empty_table_both_land() -> None:
    lake = lake_of()
    first, second = (send(lake, append(lake, n), key=f"client {n}") for n in (1, 2))
    lake.apply(*plain(first))
    land(lake, second)
    assert ids_of(lake) == [1, 2]
    assert find_faults(lake) == []


def test_an_empty_append_lands_too() -> None:
    lake = lake_of()
    win(lake, append(lake, 1), key="first")
    commit = send(lake, Append(base_snapshot_id=lake.head))
    win(lake, append(lake, 2), key="winner")
    made = land(lake, commit)
    assert own_manifests(lake, made.snapshot) == ()
    assert ids_of(lake) == [1, 2]


def test_a_branch_is_rebased_on_its_own_head_and_keeps_its_retention() -> None:
    lake = lake_of()
    win(lake, append(lake, 1), key="first")
    lake.apply(SetSnapshotRef(ref_name="dev", snapshot_id=lake.head or 0, type="branch"))
    commit = send(lake, append(lake, 2, branch="dev"), branch="dev")
    moved = build(lake, append(lake, 3, branch="dev"), table=lake.table, key="theirs")
    lake.apply(
        AddSnapshot(snapshot=moved),
        SetSnapshotRef(ref_name="dev", snapshot_id=moved.snapshot_id, type="branch", min_snapshots_to_keep=7),
    )
    main = lake.head
    made = land(lake, commit)
    dev = lake.table.envelope.refs["dev"]
    assert (dev.snapshot_id, dev.min_snapshots_to_keep) == (made.snapshot.snapshot_id, 7)
    assert lake.head == main
    assert ids_of(lake, dev.snapshot_id) == [1, 2, 3]


@pytest.mark.parametrize("version", [2, 3])
def test_a_commit_to_another_branch_takes_numbers_and_costs_nobody_a_refusal(version: int) -> None:
    lake = lake_of(version)
    win(lake, append(lake, 1), key="first")
    lake.apply(SetSnapshotRef(ref_name="dev", snapshot_id=lake.head or 0, type="branch"))
    commit = send(lake, append(lake, 2))
    lake.apply(*plain(send(lake, append(lake, 3, branch="dev"), key="dev", branch="dev")))
    assert find_failed(commit.requirements, lake.table) is None
    with pytest.raises(CommitRefused, match="please retry"):
        apply(lake.table, plain(commit), now_ms=lake.table.envelope.last_updated_ms)
    land(lake, commit)
    assert ids_of(lake) == [1, 2]
    assert find_faults(lake) == []


def test_an_append_does_not_conflict_with_a_delete_which_does_not_reach_its_rows() -> None:
    lake = lake_of()
    win(lake, append(lake, 1, 2), key="first")
    commit = send(lake, append(lake, 3))
    win(lake, Delete(add_delete_files=lake.put_keys([(1, "a"), (3, "a")])), key="delete")
    land(lake, commit)
    assert ids_of(lake) == [2, 3]  # row 3 is newer than the delete, which did not see it


def test_a_path_that_is_live_at_the_head_is_a_conflict_and_nothing_is_written() -> None:
    lake, commit = lost_race()
    (own,) = own_manifests(lake, snapshot_of(commit))
    (entry,) = lake.world.manifests[own.manifest_path]
    theirs = send(lake, append(lake, 9), key="theirs")
    copied = rewrite_own(lake, theirs, lambda entries: tuple(replace(e, file=entry.file) for e in entries))
    lake.apply(*plain(copied))
    made = lake.world.made
    found = rebase(lake, commit)
    assert isinstance(found, Finding)
    assert (found.rule, found.files) == ("already-live", (entry.file.file_path,))
    assert lake.world.made == made


# --- what is left to the ordinary rules -------------------------------------------------------------------


@pytest.mark.parametrize("words", [None, "", "replace", "append;replace"])
def test_an_append_is_not_rebased_unless_the_table_asks_for_it(words: str | None) -> None:
    lake, commit = lost_race(rebase=words)
    assert "headgate.rebase" in reason(rebase(lake, commit))


def test_a_commit_whose_head_has_not_moved_is_applied_as_sent_and_nothing_is_read() -> None:
    lake = lake_of()
    win(lake, append(lake, 1), key="first")
    commit = send(lake, append(lake, 2))
    with pytest.raises(StopIteration) as stop:
        next(rebase_commit(commit, lake.table, now_ms=0, seed="s"))
    assert stop.value.value == NotRebasable("the head has not moved")


def test_a_staged_snapshot_is_applied_as_sent() -> None:
    lake, commit = lost_race()
    staged = replace(commit, requirements=commit.requirements[:1], updates=commit.updates[:1])
    assert "one snapshot and one branch" in reason(rebase(lake, staged))


def test_more_updates_than_a_snapshot_and_its_branch_are_not_rebased() -> None:
    lake, commit = lost_race()
    more = replace(commit, updates=(*commit.updates, SetProperties(updates={"a": "b"})))
    assert "one snapshot and one branch" in reason(rebase(lake, more))


def test_a_tag_is_no_branch_to_rebase_on() -> None:
    lake, commit = lost_race()
    tag = SetSnapshotRef(ref_name="t", snapshot_id=snapshot_of(commit).snapshot_id, type="tag")
    assert "not a branch" in reason(rebase(lake, replace(commit, updates=(commit.updates[0], tag))))
    lake.apply(SetSnapshotRef(ref_name="t", snapshot_id=lake.head or 0, type="tag"))
    assert "no branch t" in reason(rebase(lake, commit_of(snapshot_of(commit), lake.table, branch="t")))


def test_a_branch_moved_without_an_assertion_is_not_rebased() -> None:
    lake, commit = lost_race()
    assert "asserts no head" in reason(rebase(lake, replace(commit, requirements=commit.requirements[:1])))


def test_two_assertions_about_one_branch_are_not_rebased() -> None:
    lake, commit = lost_race()
    both = (*commit.requirements, AssertRefSnapshotId(ref=MAIN, snapshot_id=lake.head))
    assert "asserts no head" in reason(rebase(lake, replace(commit, requirements=both)))


def test_every_other_requirement_must_hold() -> None:
    lake, commit = lost_race()
    fenced = (*commit.requirements, AssertCurrentSchemaId(current_schema_id=9))
    assert "current schema changed" in reason(rebase(lake, replace(commit, requirements=fenced)))
    stranger = (ANOTHER_TABLE, commit.requirements[1])
    assert "UUID does not match" in reason(rebase(lake, replace(commit, requirements=stranger)))


def test_validations_that_a_request_has_besides_are_not_passed_over() -> None:
    lake, commit = lost_race()
    reads = Overwrite(commit_validations=(NoAddedDataFiles(filter=True),))
    assert "validations of its own" in reason(rebase(lake, replace(commit, reads=reads)))


def test_metadata_alone_tells_whether_a_commit_is_stale_and_may_be_rebased() -> None:
    lake, stale = lost_race()
    fresh = send(lake, append(lake, 5), key="fresh")
    found = [is_rebasable(commit, lake.table) for commit in (stale, with_snapshot(stale, key_id="k"), fresh)]
    assert found == [True, False, False]


def test_a_base_that_was_rolled_back_is_not_rebased() -> None:
    lake, commit = lost_race()
    first = next(lake.table.iter_snapshots())
    lake.apply(SetSnapshotRef(ref_name=MAIN, snapshot_id=first.snapshot_id, type="branch"))
    win(lake, append(lake, 5), key="after")
    assert "not in the history of main" in reason(rebase(lake, commit))


def test_a_base_that_has_expired_is_not_rebased() -> None:
    lake, commit = lost_race()
    lake.apply(RemoveSnapshots(snapshot_ids=(snapshot_of(commit).parent_snapshot_id or 0,)))
    assert "not in the history of main" in reason(rebase(lake, commit))


def test_a_branch_that_somebody_else_created_meanwhile_is_not_rebased() -> None:
    lake = lake_of()
    win(lake, append(lake, 1), key="first")
    commit = commit_of(build(lake, append(lake, 2), table=lake.table, key="client"), lake.table, branch="dev")
    assert "no branch dev" in reason(rebase(lake, commit))
    lake.apply(SetSnapshotRef(ref_name="dev", snapshot_id=lake.head or 0, type="branch"))
    assert "parent" in reason(rebase(lake, commit))
    orphan = with_snapshot(commit, parent_snapshot_id=None)
    assert "created concurrently" in reason(rebase(lake, orphan))


ODD_SNAPSHOTS: list[tuple[dict[str, object], str]] = [
    ({"manifest_list": None}, "no manifest list"),
    ({"key_id": "k"}, "no manifest list"),
    ({"schema_id": 9}, "schema 9 is unknown"),
    ({"sequence_number": 0}, "format version"),
    ({"first_row_id": 0}, "format version"),
    ({"parent_snapshot_id": 12}, "parent"),
    ({"summary": {"operation": "overwrite"}}, "does not allow the operation overwrite"),
    ({"summary": {}}, "does not allow the operation None"),
]


@pytest.mark.parametrize(("fields", "why"), ODD_SNAPSHOTS, ids=str)
def test_an_odd_snapshot_is_not_rebased(fields: dict[str, object], why: str) -> None:
    lake, commit = lost_race()
    assert why in reason(rebase(lake, with_snapshot(commit, **fields)))


def test_a_snapshot_id_that_is_taken_is_not_rebased() -> None:
    lake, commit = lost_race()
    twin = with_snapshot(commit, snapshot_id=lake.head)
    moved = SetSnapshotRef(ref_name=MAIN, snapshot_id=lake.head or 0, type="branch")
    assert "exists already" in reason(rebase(lake, replace(twin, updates=(twin.updates[0], moved))))


def test_a_table_that_was_upgraded_meanwhile_is_not_rebased() -> None:
    lake, commit = lost_race()
    lake.apply(UpgradeFormatVersion(format_version=3))
    assert "format version" in reason(rebase(lake, commit))


# --- the property -----------------------------------------------------------------------------------------

SETTINGS: list[tuple[str, set[Action]]] = [
    ("append", {Action.APPEND}),
    (" append , replace ", {Action.APPEND, Action.REPLACE}),
    ("APPEND,,", {Action.APPEND}),
    ("", set()),
    (" , ", set()),
]


@pytest.mark.parametrize(("text", "actions"), SETTINGS, ids=[repr(text) for text, _ in SETTINGS])
def test_the_property_names_operations(text: str, actions: set[Action]) -> None:
    check_rebase_property({"headgate.rebase": text})
    assert parse_rebase({"headgate.rebase": text}) == actions


@pytest.mark.parametrize("text", ["true", "append,overwrite", "append replace"])
def test_an_unknown_word_is_refused_when_set_and_means_off_when_found(text: str) -> None:
    with pytest.raises(BadInput, match=r"headgate\.rebase: expected append") as refused:
        check_rebase_property({"headgate.rebase": text}, field="updates.updates")
    assert refused.value.field == "updates.updates.headgate.rebase"
    assert parse_rebase({"headgate.rebase": text}) == frozenset()


# --- the same request again -------------------------------------------------------------------------------


def test_a_request_sent_again_after_a_lost_answer_is_known_as_landed() -> None:
    lake, commit = lost_race()
    assert not is_landed(commit, lake.table)
    land(lake, commit)
    assert is_landed(commit, lake.table)
    win(lake, append(lake, 5), key="later")
    assert is_landed(commit, lake.table)


def test_a_request_that_was_applied_as_sent_is_known_as_landed() -> None:
    lake = lake_of(rebase=None)
    commit = send(lake, append(lake, 1))
    lake.apply(*plain(commit))
    assert is_landed(commit, lake.table)


def test_another_attempt_with_the_same_snapshot_id_has_not_landed() -> None:
    lake, commit = lost_race()
    land(lake, commit)
    assert not is_landed(with_snapshot(commit, manifest_list="mem://list/other"), lake.table)
    assert not is_landed(with_snapshot(commit, manifest_list=None), lake.table)


def test_a_request_for_another_table_branch_or_form_has_not_landed() -> None:
    lake, commit = lost_race()
    land(lake, commit)
    assert not is_landed(replace(commit, requirements=(ANOTHER_TABLE, commit.requirements[1])), lake.table)
    assert not is_landed(replace(commit, updates=commit.updates[:1]), lake.table)
    assert not is_landed(commit_of(snapshot_of(commit), lake.table, branch="dev"), lake.table)


def test_a_commit_that_was_rolled_back_since_has_not_landed() -> None:
    lake, commit = lost_race()
    before = lake.head or 0
    land(lake, commit)
    lake.apply(SetSnapshotRef(ref_name=MAIN, snapshot_id=before, type="branch"))
    assert not is_landed(commit, lake.table)
