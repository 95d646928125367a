"""Appends that share one snapshot: who may, who may not, and what each of them is told."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.build import WriteManifest, WriteManifestList
from headgate.core.change import Append, NoAddedDataFiles, Overwrite
from headgate.core.commit import Committed, Loaded, Member, Refused, Swap, SwapLost, Verdict
from headgate.core.flow import group_flow
from headgate.core.group import CHAIN, FOLD, GROUP_PROPERTY
from headgate.core.table import MAIN, Snapshot
from headgate.core.updates import (
    AddSnapshot,
    AssertCurrentSchemaId,
    AssertTableUuid,
    SetProperties,
    SetSnapshotRef,
)
from headgate.errors import StorageFailed
from tests.flow.script import (
    LANDS,
    Script,
    adds,
    append,
    at_group,
    candidate_rows,
    lake_of,
    member,
    play,
)
from tests.properties.lake import Lake


def folds(lake: Lake, *ids: int, key: str = "", **more: Any) -> Member:
    """An append that may share its snapshot."""
    return member(adds(lake, *ids, **more), key=key or f"k{ids[0]}", fold=True)


def run(lake: Lake, *members: Member) -> Script:
    """One group that lands."""
    return play(group_flow(members), [at_group(lake, 3), LANDS], lake)


def made(lake: Lake, script: Script) -> list[Snapshot]:
    """The snapshots that the last swap brings, the oldest first."""
    old = {snapshot.snapshot_id for snapshot in lake.table.iter_snapshots()}
    candidate = script.yielded(Swap)[-1].candidates[0].metadata
    return [snapshot for snapshot in candidate.iter_snapshots() if snapshot.snapshot_id not in old]


def own(verdict: Verdict) -> list[int]:
    """The snapshots that a member is told are its own."""
    assert isinstance(verdict, Committed)
    updates = [update for candidate in verdict.candidates for update in candidate.updates]
    return [update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshot)]


def test_appends_that_fold_share_one_snapshot_which_counts_them_all() -> None:
    lake = lake_of()
    script = run(lake, folds(lake, 7), folds(lake, 8, 9), folds(lake, 10))
    (snapshot,) = made(lake, script)
    assert {tuple(own(verdict)) for verdict in script.verdicts} == {(snapshot.snapshot_id,)}
    assert snapshot.summary["added-records"] == "4"
    assert snapshot.summary["total-records"] == "5"
    (swap,) = script.yielded(Swap)
    assert [(share.member, share.shares_with) for share in swap.shares] == [(0, None), (1, 0), (2, 0)]
    assert candidate_rows(lake, swap) == ["ours.10", "ours.7", "ours.8", "ours.9", "theirs.0"]
    assert len(script.yielded(WriteManifest)) == len(script.yielded(WriteManifestList)) == 1


def test_files_of_a_fold_stand_in_the_order_of_arrival() -> None:
    lake = lake_of(version=3)
    members = [folds(lake, n) for n in (9, 7, 8)]
    script = run(lake, *members)
    (written,) = script.yielded(WriteManifest)
    wanted = [file.file_path for one in members for file in _files(one)]
    assert [entry.file.file_path for entry in written.entries] == wanted


def _files(one: Member) -> tuple[Any, ...]:
    (update,) = one.commits[0].updates
    assert isinstance(update, Append)
    return update.add_data_files


def test_an_append_alone_is_no_fold() -> None:
    lake = lake_of()
    script = run(lake, folds(lake, 7))
    assert len(made(lake, script)) == 1
    assert script.yielded(Swap)[0].shares[0].shares_with is None


MAY_FOLD = {"table says fold": (FOLD, None), "request says fold": (None, True), "both": (FOLD, True)}
MAY_NOT_FOLD = {
    "nobody says": (None, None),
    "table says chain": (CHAIN, None),
    "request says chain": (FOLD, False),
}


@pytest.mark.parametrize("case", [*MAY_FOLD, *MAY_NOT_FOLD])
def test_the_request_says_whether_to_fold_and_else_the_table(case: str) -> None:
    of_table, of_request = {**MAY_FOLD, **MAY_NOT_FOLD}[case]
    lake = lake_of()
    if of_table is not None:
        lake.apply(SetProperties(updates={GROUP_PROPERTY: of_table}))
    members = [member(adds(lake, n), key=f"k{n}", fold=of_request) for n in (7, 8)]
    assert len(made(lake, run(lake, *members))) == (1 if case in MAY_FOLD else 2)


def test_appends_that_say_different_things_do_not_share_a_snapshot() -> None:
    lake = lake_of()
    members = [folds(lake, 7, summary={"job": "a"}), folds(lake, 8, summary={"job": "b"})]
    script = run(lake, *members)
    assert [snapshot.summary["job"] for snapshot in made(lake, script)] == ["a", "b"]
    assert len({tuple(own(verdict)) for verdict in script.verdicts}) == 2


def test_appends_to_different_branches_do_not_share_a_snapshot() -> None:
    lake = lake_of()
    lake.apply(SetSnapshotRef(ref_name="dev", snapshot_id=lake.head or 0, type="branch"))
    script = run(lake, folds(lake, 7), folds(lake, 8, branch="dev"), folds(lake, 9))
    envelope = script.yielded(Swap)[0].candidates[0].metadata.envelope
    first, other, third = (own(verdict)[0] for verdict in script.verdicts)
    assert len({first, other, third}) == 3
    assert envelope.refs["dev"].snapshot_id == other
    assert envelope.refs[MAIN].snapshot_id == third


def test_a_path_that_is_in_the_fold_already_refuses_the_second_member_alone() -> None:
    lake = lake_of()
    same = adds(lake, 7)
    members = (member(same, key="k", fold=True), member(same, key="l", fold=True), folds(lake, 8))
    script = run(lake, *members)
    assert [type(verdict).__name__ for verdict in script.verdicts] == ["Committed", "Refused", "Committed"]
    assert candidate_rows(lake, script.yielded(Swap)[0]) == ["ours.7", "ours.8", "theirs.0"]
    assert script.discarded.isdisjoint(script.written)


def test_a_file_that_is_live_already_refuses_its_own_member_and_no_other() -> None:
    lake = lake_of()
    live = adds(lake, 6)
    lake.commit(live, key="theirs")
    members = (folds(lake, 7), member(live, key="again", fold=True), folds(lake, 8))
    script = run(lake, *members)
    assert [type(verdict).__name__ for verdict in script.verdicts] == ["Committed", "Refused", "Committed"]
    refused = script.verdicts[1]
    assert isinstance(refused, Refused)
    assert refused.error.evidence["rule"] == "already-live"
    assert candidate_rows(lake, script.yielded(Swap)[0]) == ["ours.6", "ours.7", "ours.8", "theirs.0"]
    assert len(made(lake, script)) == 2  # they could not share one


def test_an_append_that_validates_something_has_a_snapshot_of_its_own() -> None:
    lake = lake_of()
    careful = adds(lake, 8, base_snapshot_id=lake.head, commit_validations=(NoAddedDataFiles(filter=True),))
    script = run(lake, member(careful, key="k", fold=True), folds(lake, 9), folds(lake, 10))
    assert len(made(lake, script)) == 2
    again = run(lake, folds(lake, 9), member(careful, key="k", fold=True))
    assert isinstance(again.verdicts[1], Refused)


APART = {
    "stage-only": {"stage_only": True},
    "create-branch": {"branch": "dev", "create_branch": True},
}


@pytest.mark.parametrize("more", APART.values(), ids=list(APART))
def test_an_append_that_does_more_than_append_is_not_folded(more: dict[str, Any]) -> None:
    lake = lake_of()
    script = run(lake, folds(lake, 7), folds(lake, 8, **more), folds(lake, 9))
    assert [len(own(verdict)) for verdict in script.verdicts] == [1, 1, 1]
    assert len(made(lake, script)) == 3


def test_a_requirement_that_another_append_could_break_keeps_an_append_out_of_the_fold() -> None:
    lake = lake_of()
    uuid = AssertTableUuid(uuid=lake.table.envelope.table_uuid)
    schema = AssertCurrentSchemaId(current_schema_id=0)
    pairs = {
        1: (folds(lake, 7), member(adds(lake, 8), key="l", fold=True, requirements=(uuid,))),
        2: (folds(lake, 9), member(adds(lake, 10), key="m", fold=True, requirements=(schema,))),
    }
    for snapshots, members in pairs.items():
        assert len(made(lake, run(lake, *members))) == snapshots


def test_a_change_between_two_folds_divides_them_and_order_is_kept() -> None:
    lake = lake_of()
    first = adds(lake, 7)
    goes = Overwrite(
        add_data_files=adds(lake, 9).add_data_files, remove_data_files=(first.add_data_files[0].file_path,)
    )
    members = (
        member(first, key="k7", fold=True),
        folds(lake, 8),
        member(goes, key="k9"),
        folds(lake, 10),
        folds(lake, 11),
    )
    script = run(lake, *members)
    assert all(isinstance(verdict, Committed) for verdict in script.verdicts)
    (swap,) = script.yielded(Swap)
    assert [share.member for share in swap.shares] == [0, 1, 2, 3, 4]
    assert [share.shares_with for share in swap.shares] == [None, 0, None, None, 3]
    operations = [snapshot.summary["operation"] for snapshot in made(lake, script)]
    assert operations == ["append", "overwrite", "append"]
    assert candidate_rows(lake, swap) == ["ours.10", "ours.11", "ours.8", "ours.9", "theirs.0"]


def test_storage_that_fails_for_a_fold_has_each_of_it_tried_alone() -> None:
    lake = lake_of()
    members = (folds(lake, 7), folds(lake, 8))
    failing = (WriteManifestList, 1)
    script = play(group_flow(members), [at_group(lake, 3), LANDS], lake, failing=failing)
    assert all(isinstance(verdict, Committed) for verdict in script.verdicts)
    assert len(made(lake, script)) == 2
    assert len(script.discarded) == 1
    assert script.discarded.isdisjoint(script.written)


def test_storage_that_fails_for_a_fold_of_one_refuses_it() -> None:
    lake = lake_of()
    failing = (WriteManifestList, 1)
    script = play(group_flow((folds(lake, 7),)), [at_group(lake, 3)], lake, failing=failing)
    (verdict,) = script.verdicts
    assert isinstance(verdict, Refused)
    assert isinstance(verdict.error, StorageFailed)


def test_a_fold_whose_swap_is_lost_is_folded_anew_without_those_that_landed_elsewhere() -> None:
    lake = lake_of()
    theirs = adds(lake, 7)
    members = (member(theirs, key="k7", fold=True), folds(lake, 8), folds(lake, 9))
    first = at_group(lake, 3)
    lake.commit(theirs, key="as another replica did")
    append(lake, 20)
    again = Loaded(at_group(lake, 5).heads, frozenset({0}), first.now_ms)
    script = play(group_flow(members), [first, SwapLost(), again, LANDS], lake)
    lost, landed = script.yielded(Swap)
    assert script.discarded == set(lost.candidates[0].written)
    assert [(share.member, share.shares_with) for share in landed.shares] == [(1, None), (2, 1)]
    assert candidate_rows(lake, landed) == ["ours.7", "ours.8", "ours.9", "theirs.0", "theirs.20"]
    assert own(script.verdicts[1]) == own(script.verdicts[2])


def test_a_branch_that_is_not_there_refuses_all_that_wanted_it_and_nobody_else() -> None:
    lake = lake_of()
    script = run(lake, folds(lake, 7, branch="none"), folds(lake, 8, branch="none"), folds(lake, 9))
    assert [type(verdict).__name__ for verdict in script.verdicts] == ["Refused", "Refused", "Committed"]
    assert candidate_rows(lake, script.yielded(Swap)[0]) == ["ours.9", "theirs.0"]


STREAMS = (
    "headgate.stream.0a0a0a0a-0000-4000-8000-000000000001",
    "headgate.stream.0b0b0b0b-0000-4000-8000-000000000002",
)


def streams(lake: Lake, id_: int, stream: str, batch: int) -> Member:
    """An append that says which batch of a stream it is."""
    return member(adds(lake, id_), SetProperties(updates={stream: str(batch)}), key=f"k{id_}", fold=True)


def test_batches_of_two_streams_share_a_snapshot_and_both_are_noted() -> None:
    lake = lake_of()
    script = run(lake, streams(lake, 7, STREAMS[0], 3), folds(lake, 8), streams(lake, 9, STREAMS[1], 5))
    assert len(made(lake, script)) == 1
    (swap,) = script.yielded(Swap)
    properties = swap.candidates[0].metadata.envelope.properties
    assert [properties[stream] for stream in STREAMS] == ["3", "5"]


def test_two_batches_of_one_stream_do_not_share_and_the_later_one_is_noted() -> None:
    lake = lake_of()
    script = run(lake, streams(lake, 7, STREAMS[0], 3), streams(lake, 8, STREAMS[0], 4))
    assert len(made(lake, script)) == 2
    (swap,) = script.yielded(Swap)
    assert swap.candidates[0].metadata.envelope.properties[STREAMS[0]] == "4"


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("batch", [3, 4])
def test_a_batch_that_the_table_has_passed_is_refused_in_the_same_group_too(batch: int, fold: bool) -> None:
    lake = lake_of()
    late = member(adds(lake, 8), SetProperties(updates={STREAMS[0]: str(batch)}), key="k8", fold=fold)
    script = run(lake, streams(lake, 7, STREAMS[0], 4), late, streams(lake, 9, STREAMS[1], 0))
    assert [type(verdict).__name__ for verdict in script.verdicts] == ["Committed", "Refused", "Committed"]
    (swap,) = script.yielded(Swap)
    assert swap.candidates[0].metadata.envelope.properties[STREAMS[0]] == "4"
    assert candidate_rows(lake, swap) == ["ours.7", "ours.9", "theirs.0"]


def test_other_properties_keep_an_append_from_sharing() -> None:
    lake = lake_of()
    other = member(adds(lake, 8), SetProperties(updates={"owner": "red"}), key="k8", fold=True)
    assert len(made(lake, run(lake, folds(lake, 7), other))) == 2
