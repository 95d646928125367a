"""A group of commits behind one swap: who is judged against what, who is told when, and what may be deleted."""

from __future__ import annotations

import pytest

from headgate.core.build import WriteManifestList
from headgate.core.change import NoAddedDataFiles, Overwrite
from headgate.core.commit import (
    Committed,
    Discard,
    Load,
    Member,
    Refused,
    Swap,
    SwapLost,
    SwapRefused,
    SwapUnknown,
    TableCommit,
    Unknown,
    Verdict,
)
from headgate.core.flow import group_flow
from headgate.core.table import Snapshot
from headgate.core.updates import AddSnapshot, SetProperties
from headgate.errors import BadInput, CommitRefused, ConflictFound, StorageFailed
from tests.flow.script import (
    LANDS,
    TARGET,
    adds,
    append,
    at_group,
    candidate_rows,
    head,
    lake_of,
    member,
    play,
)
from tests.properties.lake import Lake, Row

GONE = "mem://data/none"
FULL = StorageFailed("disk full")


def replaces(lake: Lake, path: str, id_: int, *, alone: bool = False) -> Overwrite:
    """Puts a file in the place of another; `alone`: refused if anybody added rows since the head of now."""
    return Overwrite(
        add_data_files=lake.put_data([Row(f"ours.{id_}", id_, "a", 0)]),
        remove_data_files=(path,),
        base_snapshot_id=lake.head,
        commit_validations=(NoAddedDataFiles(filter=True),) if alone else (),
    )


def old_file(lake: Lake) -> str:
    """The one file of the published head."""
    return lake.read(lake.head)[0].path


def brought(verdict: Verdict) -> list[Snapshot]:
    """The snapshots that a verdict says are its own."""
    assert isinstance(verdict, Committed)
    updates = [update for candidate in verdict.candidates for update in candidate.updates]
    return [update.snapshot for update in updates if isinstance(update, AddSnapshot)]


def kinds(verdicts: tuple[Verdict, ...]) -> list[str]:
    """What became of each member."""
    return [type(verdict).__name__ for verdict in verdicts]


def rule_of(verdict: Verdict) -> object:
    """By which rule a member was refused."""
    assert isinstance(verdict, Refused)
    return verdict.error.evidence.get("rule")


# --- judging in order -------------------------------------------------------------------------------------


def test_members_are_published_by_one_swap_and_each_is_told_its_own_snapshot() -> None:
    lake = lake_of()
    members = tuple(member(adds(lake, n), key=f"k{n}") for n in (7, 8, 9))
    script = play(group_flow(members), [at_group(lake, 3), LANDS], lake)
    assert script.group_steps == ["Load", "Swap"]
    (swap,) = script.yielded(Swap)
    assert [share.member for share in swap.shares] == [0, 1, 2]
    assert candidate_rows(lake, swap) == ["ours.7", "ours.8", "ours.9", "theirs.0"]
    first, second, third = (brought(verdict) for verdict in script.verdicts)
    assert len(first) == len(second) == len(third) == 1
    assert first[0].parent_snapshot_id == lake.head
    assert second[0].parent_snapshot_id == first[0].snapshot_id
    assert third[0].parent_snapshot_id == second[0].snapshot_id
    numbers = [snapshots[0].sequence_number for snapshots in (first, second, third)]
    last = lake.table.envelope.last_sequence_number
    assert numbers == [last + 1, last + 2, last + 3]


def test_a_member_may_rest_on_what_an_earlier_one_brings() -> None:
    lake = lake_of()
    first = adds(lake, 7)
    members = (member(first, key="k"), member(replaces(lake, first.add_data_files[0].file_path, 8), key="l"))
    script = play(group_flow(members), [at_group(lake, 3), LANDS], lake)
    assert kinds(script.verdicts) == ["Committed", "Committed"]
    assert candidate_rows(lake, script.yielded(Swap)[0]) == ["ours.8", "theirs.0"]


def test_the_same_members_in_the_other_order_are_judged_otherwise() -> None:
    lake = lake_of()
    first = adds(lake, 7)
    members = (member(replaces(lake, first.add_data_files[0].file_path, 8), key="l"), member(first, key="k"))
    script = play(group_flow(members), [at_group(lake, 3), LANDS], lake)
    assert kinds(script.verdicts) == ["Refused", "Committed"]


# --- refusals ---------------------------------------------------------------------------------------------


def test_a_refusal_that_rests_on_a_group_mate_is_held_until_the_mate_is_published() -> None:
    lake = lake_of()
    path = old_file(lake)
    members = (member(replaces(lake, path, 7), key="k"), member(replaces(lake, path, 8), key="l"))
    script = play(group_flow(members), [at_group(lake, 3), LANDS], lake)
    assert script.group_steps == ["Load", "Swap"]
    assert kinds(script.verdicts) == ["Committed", "Refused"]
    refused = script.verdicts[1]
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, ConflictFound)
    (mate,) = brought(script.verdicts[0])
    theirs = refused.error.evidence["theirs"]
    assert isinstance(theirs, dict)
    assert theirs["snapshot-id"] == mate.snapshot_id


def test_a_held_refusal_is_judged_again_when_the_swap_is_lost() -> None:
    lake = lake_of()
    path = old_file(lake)
    members = (
        member(replaces(lake, path, 7, alone=True), key="k"),
        member(replaces(lake, path, 8), key="l"),
    )
    first = at_group(lake, 3)
    append(lake, 20)
    script = play(group_flow(members), [first, SwapLost(), at_group(lake, 4), LANDS], lake)
    assert script.group_steps == ["Load", "Swap", "Wait", "Load", "Discard", "Answer 0", "Swap"]
    assert kinds(script.verdicts) == ["Refused", "Committed"]
    assert rule_of(script.verdicts[0]) == "added-data-files"
    assert candidate_rows(lake, script.yielded(Swap)[-1]) == ["ours.8", "theirs.20"]


def test_a_refusal_that_rests_on_what_is_published_is_told_before_the_swap() -> None:
    lake = lake_of()
    members = (member(replaces(lake, GONE, 7), key="k"), member(adds(lake, 8), key="l"))
    script = play(group_flow(members), [at_group(lake, 3), LANDS], lake)
    assert script.group_steps == ["Load", "Answer 0", "Swap"]
    assert kinds(script.verdicts) == ["Refused", "Committed"]


def test_a_group_of_refusals_swaps_nothing() -> None:
    lake = lake_of()
    members = tuple(member(replaces(lake, GONE, n), key=f"k{n}") for n in (7, 8))
    script = play(group_flow(members), [at_group(lake, 3)], lake)
    assert script.group_steps == ["Load", "Answer 0", "Answer 1"]
    assert kinds(script.verdicts) == ["Refused", "Refused"]


def test_a_member_that_changes_nothing_is_committed_with_the_others() -> None:
    lake = lake_of()
    lake.apply(SetProperties(updates={"a": "1"}))
    nothing = SetProperties(updates={"a": "1"})
    members = (member(nothing, key="k"), member(adds(lake, 8), key="l"))
    script = play(group_flow(members), [at_group(lake, 3), LANDS], lake)
    assert kinds(script.verdicts) == ["Committed", "Committed"]
    assert not brought(script.verdicts[0])
    assert len(brought(script.verdicts[1])) == 1


def test_what_was_written_for_a_refused_member_is_discarded_and_nothing_else() -> None:
    lake = lake_of()
    twice = adds(lake, 7)
    members = (member(adds(lake, 6), key="k"), member(twice, twice, key="l"), member(adds(lake, 8), key="m"))
    script = play(group_flow(members), [at_group(lake, 3), LANDS], lake)
    assert kinds(script.verdicts) == ["Committed", "Refused", "Committed"]
    assert len(script.discarded) == 2  # the manifest and the list of its first change
    assert script.discarded.isdisjoint(script.written)
    assert candidate_rows(lake, script.yielded(Swap)[0]) == ["ours.6", "ours.8", "theirs.0"]


# --- hints ------------------------------------------------------------------------------------------------


def test_a_hint_may_be_built_on() -> None:
    lake = lake_of()
    members = (member(adds(lake, 7), key="k"), member(adds(lake, 8), key="l"))
    script = play(group_flow(members), [at_group(lake, 3, is_hint=True), LANDS], lake)
    assert script.group_steps == ["Load", "Swap"]
    assert [load.fresh for load in script.yielded(Load)] == [False]


def test_a_hint_refuses_nobody() -> None:
    lake = lake_of()
    hint = at_group(lake, 3, is_hint=True)
    later = adds(lake, 7)
    members = (
        member(replaces(lake, later.add_data_files[0].file_path, 8), key="k"),
        member(adds(lake, 9), key="l"),
    )
    lake.commit(later, key="theirs")  # which the hint does not know yet
    script = play(group_flow(members), [hint, at_group(lake, 4), LANDS], lake)
    assert script.group_steps == ["Load", "Discard", "Load", "Swap"]
    assert [load.fresh for load in script.yielded(Load)] == [False, True]
    assert kinds(script.verdicts) == ["Committed", "Committed"]


def test_a_refusal_found_by_a_hint_is_told_once_a_load_has_proved_it() -> None:
    lake = lake_of()
    members = (member(replaces(lake, GONE, 7), key="k"), member(adds(lake, 8), key="l"))
    replies = [at_group(lake, 3, is_hint=True), at_group(lake, 3), LANDS]
    script = play(group_flow(members), replies, lake)
    assert script.group_steps == ["Load", "Discard", "Load", "Answer 0", "Swap"]
    assert kinds(script.verdicts) == ["Refused", "Committed"]


def test_a_hint_never_says_that_there_is_nothing_to_change() -> None:
    lake = lake_of()
    lake.apply(SetProperties(updates={"a": "1"}))
    hint = at_group(lake, 3, is_hint=True)
    lake.apply(SetProperties(updates={"a": "2"}))
    members = (member(SetProperties(updates={"a": "1"}), key="k"),)
    script = play(group_flow(members), [hint, at_group(lake, 4), LANDS], lake)
    assert script.group_steps == ["Load", "Load", "Swap"]
    assert script.yielded(Swap)[0].candidates[0].metadata.envelope.properties["a"] == "1"


def test_what_a_hint_had_written_for_a_refused_member_is_discarded_too() -> None:
    lake = lake_of()
    twice = adds(lake, 7)
    members = (member(twice, twice, key="k"), member(adds(lake, 8), key="l"))
    replies = [at_group(lake, 3, is_hint=True), at_group(lake, 3), LANDS]
    script = play(group_flow(members), replies, lake)
    made = {*lake.world.lists, *lake.world.manifests} - {"mem://list/2", "mem://manifest/1"}
    assert made == script.discarded | script.written
    assert script.discarded.isdisjoint(script.written)


def test_what_only_reads_is_judged_once_at_heads_that_were_loaded() -> None:
    lake = lake_of()
    reads = Overwrite(base_snapshot_id=lake.head, commit_validations=(NoAddedDataFiles(filter=True),))
    only_reads = Member("k", (TableCommit(TARGET, (), (), reads),))
    script = play(group_flow((only_reads,)), [at_group(lake, 3)], lake)
    assert [load.fresh for load in script.yielded(Load)] == [True]
    assert kinds(script.verdicts) == ["Committed"]


def test_a_swap_of_a_hint_that_is_lost_is_followed_by_a_load() -> None:
    lake = lake_of()
    members = (member(adds(lake, 7), key="k"), member(adds(lake, 8), key="l"))
    hint = at_group(lake, 3, is_hint=True)
    append(lake, 20)
    script = play(group_flow(members), [hint, SwapLost(), at_group(lake, 4), LANDS], lake)
    assert [load.fresh for load in script.yielded(Load)] == [False, True]
    assert kinds(script.verdicts) == ["Committed", "Committed"]


# --- lost and unknown swaps -------------------------------------------------------------------------------


def test_after_a_lost_swap_all_are_judged_again_and_files_go_after_the_load() -> None:
    lake = lake_of()
    members = (member(adds(lake, 7), key="k"), member(adds(lake, 8), key="l"))
    first = at_group(lake, 3)
    append(lake, 20)
    script = play(group_flow(members), [first, SwapLost(), at_group(lake, 4), LANDS], lake)
    assert script.group_steps == ["Load", "Swap", "Wait", "Load", "Discard", "Swap"]
    lost, landed = script.yielded(Swap)
    assert script.discarded == set(lost.candidates[0].written)
    assert script.discarded.isdisjoint(landed.candidates[0].written)
    assert candidate_rows(lake, landed) == ["ours.7", "ours.8", "theirs.0", "theirs.20"]


def test_a_lost_swap_alone_deletes_nothing() -> None:
    lake = lake_of()
    members = (member(adds(lake, 7), key="k"), member(adds(lake, 8), key="l"))
    script = play(group_flow(members), [at_group(lake, 3), SwapLost()], lake)
    assert not script.yielded(Discard)


@pytest.mark.parametrize("reply", [SwapLost(), SwapUnknown()], ids=["lost", "unknown"])
def test_a_group_that_landed_unheard_is_found_by_its_keys_and_keeps_its_files(
    reply: SwapLost | SwapUnknown,
) -> None:
    lake = lake_of()
    members = (member(adds(lake, 7), key="k"), member(adds(lake, 8), key="l"))
    script = play(group_flow(members), [at_group(lake, 3), reply, at_group(lake, 4, landed=(0, 1))], lake)
    assert script.verdicts == (Committed((head(lake, 4),), replayed=True),) * 2
    assert not script.yielded(Discard)


def test_who_was_held_is_judged_against_a_group_that_landed_unheard() -> None:
    lake = lake_of()
    path = old_file(lake)
    ours = replaces(lake, path, 7)
    members = (member(ours, key="k"), member(replaces(lake, path, 8), key="l"))
    first = at_group(lake, 3)
    lake.commit(ours, key="as we did")
    script = play(group_flow(members), [first, SwapUnknown(), at_group(lake, 4, landed=(0,))], lake)
    assert kinds(script.verdicts) == ["Committed", "Refused"]
    assert not script.yielded(Discard)


def test_a_member_that_landed_by_another_replica_proves_that_our_swap_did_not() -> None:
    lake = lake_of()
    theirs = adds(lake, 7)
    members = (member(theirs, key="k"), member(adds(lake, 8), key="l"))
    first = at_group(lake, 3)
    lake.commit(theirs, key="as another replica did")
    replies = [first, SwapUnknown(), at_group(lake, 4, landed=(0,)), LANDS]
    script = play(group_flow(members), replies, lake)
    assert script.group_steps == ["Load", "Swap", "Wait", "Load", "Answer 0", "Discard", "Swap"]
    lost, landed = script.yielded(Swap)
    assert script.discarded == set(lost.candidates[0].written)
    assert [share.member for share in landed.shares] == [1]
    assert candidate_rows(lake, landed) == ["ours.7", "ours.8", "theirs.0"]
    first_verdict, second = script.verdicts
    assert isinstance(first_verdict, Committed)
    assert first_verdict.replayed
    assert isinstance(second, Committed)
    assert not second.replayed


def test_an_unknown_swap_whose_head_still_stands_at_the_end_is_unknown_to_all_its_members() -> None:
    lake = lake_of()
    members = (
        member(adds(lake, 7), key="k"),
        member(adds(lake, 8), key="l"),
        member(replaces(lake, GONE, 9), key="m"),
    )
    replies = [at_group(lake, 3), SwapUnknown(), at_group(lake, 3)]
    script = play(group_flow(members, attempts_max=1), replies, lake)
    assert kinds(script.verdicts) == ["Unknown", "Unknown", "Refused"]
    assert not script.discarded & script.written


def test_an_unknown_swap_that_is_sent_again_lands_once() -> None:
    lake = lake_of()
    members = (member(adds(lake, 7), key="k"), member(adds(lake, 8), key="l"))
    script = play(group_flow(members), [at_group(lake, 3), SwapUnknown(), at_group(lake, 3), LANDS], lake)
    assert script.group_steps == ["Load", "Swap", "Wait", "Load", "Swap"]
    first, second = script.yielded(Swap)
    assert first.candidates[0].base == second.candidates[0].base
    assert kinds(script.verdicts) == ["Committed", "Committed"]


def test_attempts_that_are_over_refuse_everybody_who_is_still_there() -> None:
    lake = lake_of()
    members = (member(adds(lake, 7), key="k"), member(adds(lake, 8), key="l"))
    replies = [at_group(lake, 3), SwapLost(), at_group(lake, 4)]
    script = play(group_flow(members, attempts_max=1), replies, lake)
    assert kinds(script.verdicts) == ["Refused", "Refused"]
    assert script.discarded == script.written


def test_a_member_whose_key_was_stored_by_a_refusal_is_refused_and_the_others_go_on() -> None:
    lake = lake_of()
    members = (member(adds(lake, 7), key="k"), member(adds(lake, 8), key="l"))
    taken = BadInput("the key was used for another request", field="Idempotency-Key")
    replies = [at_group(lake, 3), SwapLost(), at_group(lake, 3, settled={0: taken}), LANDS]
    script = play(group_flow(members), replies, lake)
    assert script.verdicts[0] == Refused(taken)
    assert candidate_rows(lake, script.yielded(Swap)[-1]) == ["ours.8", "theirs.0"]


# --- one spoils it for all --------------------------------------------------------------------------------


def test_a_refused_swap_of_a_group_has_each_go_alone() -> None:
    lake = lake_of()
    members = (member(adds(lake, 7), key="k"), member(adds(lake, 8), key="l"))
    alone = [at_group(lake, 3), SwapRefused(FULL), at_group(lake, 3), at_group(lake, 3), LANDS]
    script = play(
        group_flow(members), [at_group(lake, 3), SwapRefused(FULL), at_group(lake, 3), *alone], lake
    )
    together = ["Load", "Swap", "Load", "Discard"]
    assert script.group_steps == [*together, *together, "Answer 0", "Load", "Swap"]
    assert script.verdicts[0] == Refused(FULL)
    assert isinstance(script.verdicts[1], Committed)
    assert [[share.member for share in swap.shares] for swap in script.yielded(Swap)] == [[0, 1], [0], [1]]
    assert script.discarded == script.written - set(script.yielded(Swap)[-1].candidates[0].written)


def test_who_was_held_in_a_group_whose_swap_was_refused_goes_alone_too() -> None:
    lake = lake_of()
    path = old_file(lake)
    members = (member(replaces(lake, path, 7), key="k"), member(replaces(lake, path, 8), key="l"))
    first = [at_group(lake, 3), SwapRefused(FULL), at_group(lake, 3)]
    script = play(group_flow(members), [*first, *first, at_group(lake, 3), LANDS], lake)
    assert script.verdicts[0] == Refused(FULL)
    assert isinstance(script.verdicts[1], Committed)


def test_a_refused_swap_after_one_that_may_still_land_refuses_nobody() -> None:
    lake = lake_of()
    members = (member(adds(lake, 7), key="k"), member(adds(lake, 8), key="l"))
    replies = [at_group(lake, 3), SwapUnknown(), at_group(lake, 3), SwapRefused(FULL), at_group(lake, 3)]
    script = play(group_flow(members), replies, lake)
    assert kinds(script.verdicts) == ["Unknown", "Unknown"]
    first, second = script.yielded(Swap)
    assert script.discarded == set(second.candidates[0].written)
    assert script.discarded.isdisjoint(first.candidates[0].written)


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_storage_that_fails_for_one_member_refuses_it_alone(nth: int) -> None:
    lake = lake_of()
    members = tuple(member(adds(lake, n), key=f"k{n}") for n in (7, 8, 9))
    failing = (WriteManifestList, nth)
    script = play(group_flow(members), [at_group(lake, 3), LANDS], lake, failing=failing)
    expected = ["Committed"] * 3
    expected[nth - 1] = "Refused"
    assert kinds(script.verdicts) == expected
    failed = script.verdicts[nth - 1]
    assert isinstance(failed, Refused)
    assert isinstance(failed.error, StorageFailed)
    assert len(script.discarded) == 1  # the manifest that it had written
    assert script.discarded.isdisjoint(script.written)
    kept = sorted({"ours.7", "ours.8", "ours.9", "theirs.0"} - {f"ours.{6 + nth}"})
    assert candidate_rows(lake, script.yielded(Swap)[0]) == kept


def test_nobody_is_refused_for_what_is_unknown() -> None:
    """The error of attempts that are over is one thing, an outcome that is not known another."""
    lake = lake_of()
    members = (member(adds(lake, 7), key="k"),)
    replies = [at_group(lake, 3), SwapUnknown(), at_group(lake, 3)]
    unknown = play(group_flow(members, attempts_max=1), replies, lake).verdicts[0]
    replies = [at_group(lake, 3), SwapLost(), at_group(lake, 4)]
    refused = play(group_flow(members, attempts_max=1), replies, lake).verdicts[0]
    assert isinstance(unknown, Unknown)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, CommitRefused)
