"""Every exit of the commit conversation, and what it may delete on the way there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core.apply import apply
from headgate.core.build import WriteManifest, WriteManifestList
from headgate.core.change import Append, Delete
from headgate.core.commit import (
    Committed,
    Discard,
    Load,
    Loaded,
    Refused,
    Swap,
    SwapLost,
    SwapRefused,
    SwapUnknown,
    TableCommit,
    Unknown,
    Wait,
)
from headgate.core.flow import commit_flow
from headgate.core.group import CHANGES_MAX
from headgate.core.schema import Field, Schema
from headgate.core.table import MetadataLogEntry
from headgate.core.updates import (
    LAST_ADDED,
    AddSchema,
    AssertCurrentSchemaId,
    SetCurrentSchema,
    SetProperties,
)
from headgate.errors import (
    AlreadyExists,
    BadInput,
    CommitRefused,
    ConflictFound,
    InvariantBroken,
    NotFound,
    RequirementFailed,
    StorageFailed,
)
from tests.flow.script import LANDS, NOW_MS, adds, append, at, commit_of, head, lake_of, play
from tests.properties.operations import Operation, Scope

PROPERTY = SetProperties(updates={"a": "1"})
TAKEN = AlreadyExists("the name is taken", kind="table")


def test_a_commit_that_lands_loads_and_swaps_once() -> None:
    lake = lake_of()
    script = play(commit_flow((commit_of(adds(lake, 7)),), key="k"), [at(lake, 3), LANDS], lake)
    assert script.steps == ["Load", "Swap"]
    assert isinstance(script.verdict, Committed)
    assert not script.verdict.replayed
    (head,) = script.verdict.heads
    assert head is not None
    assert head.version == 4


def test_a_load_that_finds_our_key_is_proof_and_nothing_is_sent() -> None:
    lake = lake_of()
    script = play(commit_flow((commit_of(adds(lake, 7)),), key="k"), [at(lake, 3, landed=True)], lake)
    assert script.steps == ["Load"]
    assert isinstance(script.verdict, Committed)
    assert script.verdict.replayed


def test_a_refusal_alone_deletes_nothing() -> None:
    lake = lake_of()
    script = play(commit_flow((commit_of(adds(lake, 7)),), key="k"), [at(lake, 3), SwapLost()], lake)
    assert script.steps == ["Load", "Swap", "Wait", "Load"]
    assert not script.yielded(Discard)


def test_a_lost_swap_is_built_anew_on_the_moved_head_and_its_files_go_after_the_load() -> None:
    lake = lake_of()
    conversation = commit_flow((commit_of(adds(lake, 7)),), key="k")
    first = at(lake, 3)
    append(lake, 8)
    script = play(conversation, [first, SwapLost(), at(lake, 4), LANDS], lake)
    assert script.steps == ["Load", "Swap", "Wait", "Load", "Discard", "Swap"]
    lost, landed = script.yielded(Swap)
    assert script.discarded == set(lost.candidates[0].written)
    assert script.discarded.isdisjoint(landed.candidates[0].written)
    assert isinstance(script.verdict, Committed)


@pytest.mark.parametrize("reply", [SwapLost(), SwapUnknown()], ids=["lost", "unknown"])
def test_a_swap_that_landed_unheard_is_found_by_its_key_and_keeps_its_files(
    reply: SwapLost | SwapUnknown,
) -> None:
    lake = lake_of()
    script = play(
        commit_flow((commit_of(adds(lake, 7)),), key="k"),
        [at(lake, 3), reply, at(lake, 4, landed=True)],
        lake,
    )
    assert isinstance(script.verdict, Committed)
    assert script.verdict.replayed
    assert not script.yielded(Discard)


def test_an_unknown_swap_that_missed_is_discarded_only_after_the_load_that_proves_it() -> None:
    lake = lake_of()
    conversation = commit_flow((commit_of(adds(lake, 7)),), key="k")
    script = play(conversation, [at(lake, 3), SwapUnknown(), at(lake, 4), LANDS], lake)
    assert script.steps == ["Load", "Swap", "Wait", "Load", "Discard", "Swap"]
    assert isinstance(script.verdict, Committed)


def test_an_unknown_swap_whose_heads_still_stand_is_sent_again_and_nothing_is_deleted() -> None:
    lake = lake_of()
    conversation = commit_flow((commit_of(adds(lake, 7)),), key="k")
    script = play(conversation, [at(lake, 3), SwapUnknown(), at(lake, 3), LANDS], lake)
    assert script.steps == ["Load", "Swap", "Wait", "Load", "Swap"]
    first, second = script.yielded(Swap)
    assert first.candidates[0].base == second.candidates[0].base
    assert isinstance(script.verdict, Committed)


def test_two_unknown_swaps_both_go_once_the_head_has_moved_without_our_key() -> None:
    lake = lake_of()
    conversation = commit_flow((commit_of(adds(lake, 7)),), key="k")
    replies = [at(lake, 3), SwapUnknown(), at(lake, 3), SwapUnknown(), at(lake, 4), LANDS]
    script = play(conversation, replies, lake)
    first, second, third = script.yielded(Swap)
    assert script.discarded == {*first.candidates[0].written, *second.candidates[0].written}
    assert script.discarded.isdisjoint(third.candidates[0].written)


def test_a_refused_swap_is_refused_after_one_more_look() -> None:
    lake = lake_of()
    script = play(
        commit_flow((commit_of(adds(lake, 7)),), key="k"),
        [at(lake, 3), SwapRefused(TAKEN), at(lake, 3)],
        lake,
    )
    assert script.steps == ["Load", "Swap", "Load", "Discard"]
    assert script.verdict == Refused(TAKEN)
    assert script.discarded == script.written


def test_a_refused_swap_after_an_unknown_one_that_landed_is_committed() -> None:
    lake = lake_of()
    replies = [at(lake, 3), SwapUnknown(), at(lake, 3), SwapRefused(TAKEN), at(lake, 4, landed=True)]
    script = play(commit_flow((commit_of(adds(lake, 7)),), key="k"), replies, lake)
    assert isinstance(script.verdict, Committed)
    assert not script.yielded(Discard)


def test_a_refused_swap_after_an_unknown_one_that_may_yet_land_is_unknown_and_keeps_that_ones_files() -> None:
    lake = lake_of()
    replies = [at(lake, 3), SwapUnknown(), at(lake, 3), SwapRefused(TAKEN), at(lake, 3)]
    script = play(commit_flow((commit_of(adds(lake, 7)),), key="k"), replies, lake)
    unknown, refused = script.yielded(Swap)
    assert isinstance(script.verdict, Unknown)
    assert script.discarded == set(refused.candidates[0].written)
    assert script.discarded.isdisjoint(unknown.candidates[0].written)


def test_a_refused_swap_after_an_unknown_one_that_missed_is_refused() -> None:
    lake = lake_of()
    replies = [at(lake, 3), SwapUnknown(), at(lake, 4), SwapRefused(TAKEN), at(lake, 4)]
    script = play(commit_flow((commit_of(adds(lake, 7)),), key="k"), replies, lake)
    assert script.verdict == Refused(TAKEN)
    assert script.discarded == script.written


def test_attempts_have_an_end_and_it_is_a_load() -> None:
    lake = lake_of()
    replies = [at(lake, 1), SwapLost(), at(lake, 2), SwapLost(), at(lake, 3)]
    script = play(commit_flow((commit_of(adds(lake, 7)),), key="k", attempts_max=2), replies, lake)
    assert [load.attempt for load in script.yielded(Load)] == [1, 2, 3]
    assert [wait.attempt for wait in script.yielded(Wait)] == [1, 2]
    assert isinstance(script.verdict, Refused)
    assert isinstance(script.verdict.error, CommitRefused)
    assert script.discarded == script.written


def test_attempts_that_end_while_a_swap_may_yet_land_end_unknown() -> None:
    lake = lake_of()
    replies = [at(lake, 1), SwapUnknown(), at(lake, 1)]
    script = play(commit_flow((commit_of(adds(lake, 7)),), key="k", attempts_max=1), replies, lake)
    assert isinstance(script.verdict, Unknown)
    assert not script.yielded(Discard)


def test_attempts_that_end_with_a_landed_swap_end_committed() -> None:
    lake = lake_of()
    replies = [at(lake, 1), SwapUnknown(), at(lake, 2, landed=True)]
    script = play(commit_flow((commit_of(adds(lake, 7)),), key="k", attempts_max=1), replies, lake)
    assert isinstance(script.verdict, Committed)


def test_a_conflict_is_refused_before_anything_is_written() -> None:
    lake = lake_of(2)
    base = lake.head
    update = Operation("compact", "keeps number", picks=1).write(lake, base)
    assert update is not None
    gone = Operation("delete", "cow", scope=Scope(ids=(0, 1))).write(lake, base)
    assert gone is not None
    lake.commit(gone, key="theirs")
    script = play(commit_flow((commit_of(update),), key="k"), [at(lake, 3)], lake)
    assert script.steps == ["Load"]
    assert not script.yielded(WriteManifest)
    assert isinstance(script.verdict, Refused)
    assert isinstance(script.verdict.error, ConflictFound)


def test_a_conflict_while_an_unknown_swap_may_yet_land_is_unknown() -> None:
    lake = lake_of(2)
    update = Operation("compact", "keeps number", picks=1).write(lake, lake.head)
    assert update is not None
    first = at(lake, 3)
    gone = Operation("delete", "filter", scope=Scope()).write(lake, lake.head)
    assert gone is not None
    lake.commit(gone, key="theirs")
    # No store tells such a story: the same version with other files. The flow trusts versions alone.
    script = play(commit_flow((commit_of(update),), key="k"), [first, SwapUnknown(), at(lake, 3)], lake)
    assert isinstance(script.verdict, Unknown)
    assert not script.yielded(Discard)


def test_a_conflict_after_an_unknown_swap_that_missed_is_refused_and_its_files_go() -> None:
    lake = lake_of(2)
    update = Operation("compact", "keeps number", picks=1).write(lake, lake.head)
    assert update is not None
    first = at(lake, 3)
    gone = Operation("delete", "filter", scope=Scope()).write(lake, lake.head)
    assert gone is not None
    lake.commit(gone, key="theirs")
    script = play(commit_flow((commit_of(update),), key="k"), [first, SwapUnknown(), at(lake, 4)], lake)
    assert isinstance(script.verdict, Refused)
    assert isinstance(script.verdict.error, ConflictFound)
    assert script.discarded == script.written


def test_manifests_of_a_commit_that_is_refused_halfway_are_discarded_for_they_were_never_sent() -> None:
    lake = lake_of()
    good = adds(lake, 7)
    script = play(commit_flow((commit_of(good, good),), key="k"), [at(lake, 3)], lake)
    assert script.steps == ["Load", "Discard"]
    assert script.discarded
    assert isinstance(script.verdict, Refused)
    assert script.verdict.error.evidence["rule"] == "already-live"


def test_a_change_that_is_not_well_made_is_refused_with_its_field() -> None:
    lake = lake_of()
    wrong = Delete(add_data_files=adds(lake, 7).add_data_files)
    script = play(commit_flow((commit_of(wrong),), key="k"), [at(lake, 3)], lake)
    assert isinstance(script.verdict, Refused)
    assert isinstance(script.verdict.error, BadInput)
    assert script.verdict.error.field == "updates[0].add-data-files"
    assert script.steps == ["Load"]


def test_a_failed_requirement_is_refused() -> None:
    lake = lake_of()
    commit = commit_of(PROPERTY, requirements=(AssertCurrentSchemaId(current_schema_id=9),))
    script = play(commit_flow((commit,), key="k"), [at(lake, 3)], lake)
    assert isinstance(script.verdict, Refused)
    assert isinstance(script.verdict.error, RequirementFailed)


def test_a_table_that_is_not_there_is_refused() -> None:
    script = play(commit_flow((commit_of(PROPERTY),), key="k"), [Loaded((None,), frozenset(), NOW_MS)])
    assert isinstance(script.verdict, Refused)
    assert isinstance(script.verdict.error, NotFound)


def test_a_commit_that_changes_nothing_is_committed_without_a_swap() -> None:
    lake = lake_of()
    lake.apply(PROPERTY)
    script = play(commit_flow((commit_of(PROPERTY),), key="k"), [at(lake, 3)], lake)
    assert script.steps == ["Load"]
    assert isinstance(script.verdict, Committed)


def test_a_driver_that_answers_a_load_with_something_else_is_a_bug() -> None:
    lake = lake_of()
    with pytest.raises(InvariantBroken):
        play(commit_flow((commit_of(PROPERTY),), key="k"), [SwapLost()], lake)


@pytest.mark.parametrize(
    "failing", [(WriteManifest, 2), (WriteManifestList, 1), (WriteManifestList, 2)], ids=str
)
def test_what_a_failed_step_of_planning_leaves_behind_is_discarded_for_it_was_never_sent(
    failing: tuple[type[object], int],
) -> None:
    lake = lake_of()
    conversation = commit_flow((commit_of(adds(lake, 7), adds(lake, 8)),), key="k")
    there = {*lake.world.manifests, *lake.world.lists}
    script = play(conversation, [at(lake, 3)], lake, failing=failing)
    assert script.steps == ["Load", "Discard"]
    assert script.discarded == {*lake.world.manifests, *lake.world.lists} - there
    assert isinstance(script.verdict, Refused)
    assert isinstance(script.verdict.error, StorageFailed)


def test_planning_that_fails_while_a_swap_may_yet_land_ends_unknown_and_keeps_that_ones_files() -> None:
    lake = lake_of()
    conversation = commit_flow((commit_of(adds(lake, 7)),), key="k")
    replies = [at(lake, 3), SwapUnknown(), at(lake, 3)]
    script = play(conversation, replies, lake, failing=(WriteManifestList, 2))
    assert isinstance(script.verdict, Unknown)
    assert script.discarded
    assert script.discarded.isdisjoint(script.written)


def test_a_request_takes_so_many_changes_and_no_more_over_all_its_tables() -> None:
    one, two = lake_of(), lake_of()
    heads = Loaded((head(one, 3), head(two, 3, "u")), frozenset(), NOW_MS)
    most = commit_of(*(Append(),) * (CHANGES_MAX - 1))
    for changes in (1, 2):
        other = TableCommit((("db",), "u"), (), (PROPERTY, *(Append(),) * changes), field="table-changes[1]")
        script = play(commit_flow((most, other), key="k"), [heads, LANDS][: 3 - changes], one, two)
        if changes == 1:
            assert isinstance(script.verdict, Committed)
            continue
        assert isinstance(script.verdict, Refused)
        assert isinstance(script.verdict.error, BadInput)
        assert script.verdict.error.field == "table-changes[1].updates"
        assert script.steps == ["Load"]


def test_many_changes_in_one_commit_build_on_each_other_and_only_the_last_is_history() -> None:
    lake = lake_of(2)
    checkpoint = MetadataLogEntry(metadata_file="v3.json", timestamp_ms=1)
    base = replace(head(lake, 3), checkpoint=checkpoint)
    changes = [adds(lake, n) for n in range(7, 11)]
    commit = commit_of(*changes[:2], PROPERTY, *changes[2:])
    script = play(commit_flow((commit,), key="k"), [Loaded((base,), frozenset(), NOW_MS), LANDS], lake)
    ((candidate,),) = [swap.candidates for swap in script.yielded(Swap)]
    made = candidate.metadata
    new = list(made.iter_snapshots())[2:]
    assert [one.parent_snapshot_id for one in new[1:]] == [one.snapshot_id for one in new[:-1]]
    assert [one.snapshot_id for one in list(made.iter_history())[2:]] == [new[-1].snapshot_id]
    assert made.envelope.metadata_log == (*lake.table.envelope.metadata_log, checkpoint)
    assert len(candidate.updates) == 9
    assert made == apply(lake.table, candidate.updates, now_ms=NOW_MS, previous_file=checkpoint)


def test_the_schema_added_last_is_known_after_a_change() -> None:
    lake = lake_of()
    known = lake.table.schema()
    column = Field(id=9, name="late", type="long", required=False)
    wider = Schema(fields=(*known.fields, column))
    current = SetCurrentSchema(schema_id=LAST_ADDED)
    commit = commit_of(AddSchema(schema=wider), adds(lake, 7), current, adds(lake, 8))
    script = play(commit_flow((commit,), key="k"), [at(lake, 3), LANDS], lake)
    ((candidate,),) = [swap.candidates for swap in script.yielded(Swap)]
    assert candidate.metadata.schema().fields == wider.fields
    first, second = list(candidate.metadata.iter_snapshots())[-2:]
    assert (first.schema_id, second.schema_id) == (known.schema_id, candidate.metadata.schema().schema_id)
