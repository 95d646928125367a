"""Commits of several tables at once: all or nothing, read sets, and tables that are being created."""

from __future__ import annotations

import pytest

from headgate.core.build import WriteManifest
from headgate.core.change import Append, NoAddedDataFiles, Overwrite, RequiredDataFiles
from headgate.core.commit import Committed, Loaded, Refused, Swap, SwapLost, SwapRefused, SwapUnknown, Unknown
from headgate.core.flow import commit_flow
from headgate.core.partitioning import UNSORTED, PartitionSpec
from headgate.core.updates import (
    AddSchema,
    AddSortOrder,
    AddSpec,
    AssertCreate,
    AssertCurrentSchemaId,
    AssignUuid,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetProperties,
    TableUpdate,
)
from headgate.errors import AlreadyExists, BadInput, ConflictFound, RequirementFailed
from tests.flow.script import LANDS, NOW_MS, adds, append, at, candidate_rows, commit_of, head, lake_of, play
from tests.properties.lake import Lake

LEFT, RIGHT = (("db",), "left"), (("db",), "right")


def _both(left: Lake, right: Lake, *versions: int, landed: bool = False) -> Loaded:
    landed_members = frozenset({0} if landed else ())
    return Loaded(
        (head(left, versions[0], "left"), head(right, versions[1], "right")), landed_members, NOW_MS
    )


def _two() -> tuple[Lake, Lake]:
    left, right = lake_of(), lake_of()
    # One memory for both, as one store of objects would be; the names of files must not meet.
    right.world, right.rows = left.world, left.rows
    left.made, right.made = 100, 200
    return left, right


def test_two_tables_are_published_by_one_swap() -> None:
    left, right = _two()
    commits = (commit_of(adds(left, 7), target=LEFT), commit_of(adds(right, 8), target=RIGHT))
    script = play(commit_flow(commits, key="k"), [_both(left, right, 3, 5), LANDS], left)
    assert script.steps == ["Load", "Swap"]
    (swap,) = script.yielded(Swap)
    assert [candidate.target for candidate in swap.candidates] == [LEFT, RIGHT]
    assert isinstance(script.verdict, Committed)
    assert [one and one.version for one in script.verdict.heads] == [4, 6]
    ids = {candidate.metadata.envelope.current_snapshot_id for candidate in swap.candidates}
    assert len(ids) == 2


def test_one_moved_head_is_enough_to_prove_that_the_whole_swap_missed() -> None:
    left, right = _two()
    commits = (commit_of(adds(left, 7), target=LEFT), commit_of(adds(right, 8), target=RIGHT))
    replies = [_both(left, right, 3, 5), SwapUnknown(), _both(left, right, 3, 6), LANDS]
    script = play(commit_flow(commits, key="k"), replies, left)
    assert script.steps == ["Load", "Swap", "Wait", "Load", "Discard", "Swap"]
    first, _ = script.yielded(Swap)
    assert script.discarded == {path for candidate in first.candidates for path in candidate.written}


def test_a_refusal_of_the_second_table_discards_what_was_written_for_the_first() -> None:
    left, right = _two()
    twice = adds(right, 8)
    commits = (commit_of(adds(left, 7), target=LEFT), commit_of(twice, twice, target=RIGHT))
    script = play(commit_flow(commits, key="k"), [_both(left, right, 3, 5)], left)
    assert script.steps == ["Load", "Discard"]
    assert script.discarded == {
        path for path in (*left.world.lists, *left.world.manifests) if path in script.discarded
    }
    assert len(script.yielded(WriteManifest)) == 2
    assert isinstance(script.verdict, Refused)


def test_a_requirement_that_fails_on_the_second_table_writes_nothing_for_the_first() -> None:
    left, right = _two()
    failing = commit_of(
        SetProperties(updates={"a": "1"}),
        target=RIGHT,
        requirements=(AssertCurrentSchemaId(current_schema_id=9),),
    )
    commits = (commit_of(adds(left, 7), target=LEFT), failing)
    script = play(commit_flow(commits, key="k"), [_both(left, right, 3, 5)], left)
    assert isinstance(script.verdict, Refused)
    assert isinstance(script.verdict.error, RequirementFailed)
    assert script.discarded or not script.yielded(WriteManifest)


# --- read sets --------------------------------------------------------------------------------------------


def test_a_table_that_was_only_read_must_be_unchanged_when_the_other_is_published() -> None:
    left, right = _two()
    reads = Overwrite(base_snapshot_id=right.head, commit_validations=(NoAddedDataFiles(filter=True),))
    commits = (commit_of(adds(left, 7), target=LEFT), commit_of(target=RIGHT, reads=reads))
    script = play(commit_flow(commits, key="k"), [_both(left, right, 3, 5), LANDS], left)
    (swap,) = script.yielded(Swap)
    assert [candidate.target for candidate in swap.candidates] == [LEFT]
    assert [one.id for one in swap.unchanged] == ["right"]
    assert isinstance(script.verdict, Committed)
    assert [one and one.version for one in script.verdict.heads] == [4, 5]


def test_a_write_skew_is_refused_by_the_read_set() -> None:
    left, right = _two()
    reads = Overwrite(base_snapshot_id=right.head, commit_validations=(NoAddedDataFiles(filter=True),))
    commits = (commit_of(adds(left, 7), target=LEFT), commit_of(target=RIGHT, reads=reads))
    first = _both(left, right, 3, 5)
    append(right, 8)
    script = play(commit_flow(commits, key="k"), [first, SwapLost(), _both(left, right, 3, 6)], left)
    assert isinstance(script.verdict, Refused)
    assert isinstance(script.verdict.error, ConflictFound)
    assert script.verdict.error.evidence["rule"] == "added-data-files"
    assert script.discarded == script.written


def test_a_read_set_that_still_holds_after_the_table_moved_is_judged_again_and_published() -> None:
    left, right = _two()
    path = right.read(right.head)[0].path
    reads = Overwrite(
        base_snapshot_id=right.head, commit_validations=(RequiredDataFiles(file_paths=(path,)),)
    )
    commits = (commit_of(adds(left, 7), target=LEFT), commit_of(target=RIGHT, reads=reads))
    first = _both(left, right, 3, 5)
    append(right, 8)
    script = play(commit_flow(commits, key="k"), [first, SwapLost(), _both(left, right, 3, 6), LANDS], left)
    assert isinstance(script.verdict, Committed)
    assert [one.version for one in script.yielded(Swap)[-1].unchanged] == [6]


def test_a_read_set_of_files_that_are_gone_is_refused() -> None:
    left, right = _two()
    reads = Overwrite(commit_validations=(RequiredDataFiles(file_paths=("mem://data/none",)),))
    commits = (commit_of(adds(left, 7), target=LEFT), commit_of(target=RIGHT, reads=reads))
    script = play(commit_flow(commits, key="k"), [_both(left, right, 3, 5)], left)
    assert isinstance(script.verdict, Refused)
    assert script.verdict.error.evidence["rule"] == "missing-required-removes"


def test_a_read_set_alone_is_judged_and_publishes_nothing() -> None:
    lake = lake_of()
    reads = Overwrite(base_snapshot_id=lake.head, commit_validations=(NoAddedDataFiles(filter=True),))
    script = play(commit_flow((commit_of(reads=reads),), key="k"), [at(lake, 3)], lake)
    assert script.steps == ["Load"]
    assert isinstance(script.verdict, Committed)


# --- creating ---------------------------------------------------------------------------------------------


def _definition() -> list[TableUpdate]:
    table = lake_of(0).table
    return [
        AssignUuid(uuid="b6a1a1b2-0000-4000-8000-000000000001"),
        AddSchema(schema=table.schema()),
        SetCurrentSchema(schema_id=-1),
        AddSpec(spec=PartitionSpec(fields=())),
        SetDefaultSpec(spec_id=-1),
        AddSortOrder(sort_order=UNSORTED),
        SetDefaultSortOrder(sort_order_id=-1),
        SetLocation(location="mem://bucket/t"),
    ]


NOTHING = Loaded((None,), frozenset(), NOW_MS)


def test_a_table_is_created_with_its_first_rows_by_one_swap() -> None:
    lake = lake_of(0)
    commit = commit_of(*_definition(), adds(lake, 7), requirements=(AssertCreate(),))
    script = play(commit_flow((commit,), key="k"), [NOTHING, LANDS], lake)
    (swap,) = script.yielded(Swap)
    assert swap.candidates[0].base is None
    assert candidate_rows(lake, swap) == ["ours.7"]
    assert isinstance(script.verdict, Committed)


def test_a_creation_that_lost_the_race_is_refused_after_the_load_that_shows_the_other_table() -> None:
    lake = lake_of(0)
    commit = commit_of(*_definition(), adds(lake, 7), requirements=(AssertCreate(),))
    script = play(commit_flow((commit,), key="k"), [NOTHING, SwapLost(), at(lake, 1)], lake)
    assert script.steps == ["Load", "Swap", "Wait", "Load", "Discard"]
    assert script.discarded == script.written
    assert isinstance(script.verdict, Refused)


def test_a_creation_that_landed_unheard_is_found_by_its_key() -> None:
    lake = lake_of(0)
    commit = commit_of(*_definition(), adds(lake, 7), requirements=(AssertCreate(),))
    script = play(commit_flow((commit,), key="k"), [NOTHING, SwapUnknown(), at(lake, 1, landed=True)], lake)
    assert isinstance(script.verdict, Committed)
    assert "Discard" not in script.steps


def test_a_creation_nobody_knows_of_is_sent_again_and_may_end_unknown() -> None:
    lake = lake_of(0)
    commit = commit_of(*_definition(), requirements=(AssertCreate(),))
    replies = [NOTHING, SwapUnknown(), NOTHING]
    script = play(commit_flow((commit,), key="k", attempts_max=1), replies, lake)
    assert isinstance(script.verdict, Unknown)


def test_a_creation_at_a_taken_place_is_refused_and_its_files_go() -> None:
    lake = lake_of(0)
    commit = commit_of(*_definition(), adds(lake, 7), requirements=(AssertCreate(),))
    taken = AlreadyExists("the name is taken", kind="view")
    script = play(commit_flow((commit,), key="k"), [NOTHING, SwapRefused(taken), NOTHING], lake)
    assert script.verdict == Refused(taken)
    assert script.discarded == script.written


@pytest.mark.parametrize("updates", [(), (SetProperties(updates={"a": "1"}),)], ids=["none", "no schema"])
def test_rows_for_a_table_without_a_schema_are_refused(updates: tuple[TableUpdate, ...]) -> None:
    commit = commit_of(*updates, Append(), requirements=(AssertCreate(),))
    script = play(commit_flow((commit,), key="k"), [NOTHING])
    assert isinstance(script.verdict, Refused)
    assert isinstance(script.verdict.error, BadInput)
