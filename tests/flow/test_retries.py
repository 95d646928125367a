"""What a retry keeps and what it makes anew, after k lost swaps (PITFALLS 30 to 35 and 46 to 50)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.core.build import WriteManifest, WriteManifestList
from headgate.core.change import Overwrite
from headgate.core.commit import Committed, Loaded, Swap, SwapLost, SwapUnknown
from headgate.core.flow import commit_flow
from headgate.core.manifest import ManifestContent
from headgate.core.schema import Field
from headgate.core.snapshot_ids import choose_snapshot_id
from headgate.core.table import MetadataLogEntry, Snapshot, TableMetadata
from headgate.core.updates import AddSchema, SetCurrentSchema, SetProperties
from tests.flow.script import (
    LANDS,
    NOW_MS,
    Script,
    adds,
    append,
    at,
    candidate_rows,
    commit_of,
    head,
    lake_of,
    play,
)
from tests.properties.lake import VARIANTS, Lake, Row, Variant
from tests.properties.operations import Operation, Scope

LOST = 4


def _after_lost_swaps(lake: Lake, update: Any, count: int = LOST, **more: Any) -> Script:
    """The conversation when somebody appends a row before each of the first swaps."""
    replies: list[Any] = []
    for n in range(count):
        replies += [at(lake, 10 + n, **more), SwapLost()]
        append(lake, 20 + n)
    return play(
        commit_flow((commit_of(update),), key="k"), [*replies, at(lake, 10 + count, **more), LANDS], lake
    )


def _head(script: Script) -> TableMetadata:
    assert isinstance(script.verdict, Committed)
    (head,) = script.verdict.heads
    assert head is not None
    return head.metadata


def _snapshot(metadata: TableMetadata) -> Snapshot:
    found = metadata.find_snapshot(metadata.envelope.current_snapshot_id or 0)
    assert found is not None
    return found


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_files_of_both_sides_are_all_there_after_lost_swaps(variant: Variant) -> None:
    lake = lake_of(2, version=variant.version, spec=variant.spec)
    script = _after_lost_swaps(lake, adds(lake, 7, 8))
    theirs = [f"theirs.{n}" for n in (0, 1, *range(20, 20 + LOST))]
    assert candidate_rows(lake, script.yielded(Swap)[-1]) == sorted(["ours.7", "ours.8", *theirs])


def test_added_delete_files_survive_lost_swaps_too() -> None:
    lake = lake_of(2)
    keys = lake.put_keys([(0, "a"), (1, "a")])
    files = lake.put_data([Row("ours", 0, "a", 1)])
    script = _after_lost_swaps(lake, Overwrite(add_data_files=files, add_delete_files=keys))
    assert candidate_rows(lake, script.yielded(Swap)[-1]) == ["ours", *(f"theirs.{n}" for n in range(20, 24))]


def test_one_commit_has_one_snapshot_id_in_all_its_attempts() -> None:
    lake = lake_of()
    script = _after_lost_swaps(lake, adds(lake, 7))
    ids = {swap.candidates[0].metadata.envelope.current_snapshot_id for swap in script.yielded(Swap)}
    assert len(ids) == 1


def test_two_keys_have_two_snapshot_ids() -> None:
    lake = lake_of()
    found = {
        play(commit_flow((commit_of(adds(lake, 7)),), key=key), [at(lake, 3), LANDS], lake)
        .yielded(Swap)[0]
        .candidates[0]
        .metadata.envelope.current_snapshot_id
        for key in ("k", "l")
    }
    assert len(found) == 2


def test_a_snapshot_id_that_is_taken_is_never_chosen_again() -> None:
    lake = lake_of()
    first = choose_snapshot_id("theirs 1", lake.table)
    assert lake.head == choose_snapshot_id(
        "theirs 1", lake_of(0).table
    )  # the one that the commit of that key took
    assert first != lake.head
    assert 0 < first < 2**63


def test_manifests_and_lists_have_new_names_in_every_attempt() -> None:
    lake = lake_of()
    script = _after_lost_swaps(lake, adds(lake, 7))
    written = [path for swap in script.yielded(Swap) for path in swap.candidates[0].written]
    assert len(written) == len(set(written)) == 2 * (LOST + 1)
    assert len(script.yielded(WriteManifest)) == len(script.yielded(WriteManifestList)) == LOST + 1


def test_lost_attempts_are_discarded_and_the_landed_one_is_not() -> None:
    lake = lake_of()
    script = _after_lost_swaps(lake, adds(lake, 7))
    *lost, landed = script.yielded(Swap)
    assert script.discarded == {path for swap in lost for path in swap.candidates[0].written}
    assert script.discarded.isdisjoint(landed.candidates[0].written)


def test_parent_and_sequence_number_are_the_new_heads() -> None:
    lake = lake_of()
    script = _after_lost_swaps(lake, adds(lake, 7))
    made = _snapshot(_head(script))
    assert made.parent_snapshot_id == lake.head
    assert made.sequence_number == lake.table.envelope.last_sequence_number + 1


def test_added_files_inherit_their_sequence_number_from_whichever_attempt_lands() -> None:
    lake = lake_of()
    script = _after_lost_swaps(lake, adds(lake, 7))
    for effect in script.yielded(WriteManifest):
        assert {entry.data_sequence_number for entry in effect.entries} == {None}


def test_row_ids_start_at_the_new_head_and_no_two_rows_share_one() -> None:
    lake = lake_of(2, version=3)
    script = _after_lost_swaps(lake, adds(lake, 7, 8))
    made = _snapshot(_head(script))
    assert made.first_row_id == lake.table.envelope.next_row_id == 2 + LOST
    assert made.added_rows == 2
    assert _head(script).envelope.next_row_id == 4 + LOST
    taken: list[int] = []
    for manifest in lake.world.lists[str(made.manifest_list)]:
        for entry in lake.world.entries(manifest):
            if manifest.content is ManifestContent.DATA:
                first = entry.file.first_row_id
                assert first is not None
                taken += range(first, first + entry.file.record_count)
    assert sorted(taken) == list(range(4 + LOST))


@pytest.mark.parametrize("skew_ms", [-90_000, 0, 90_000])
def test_time_never_runs_backwards_whatever_the_clock_says(skew_ms: int) -> None:
    lake = lake_of(2)
    parent_ms = _snapshot(lake.table).timestamp_ms
    script = _after_lost_swaps(lake, adds(lake, 7), now_ms=parent_ms + skew_ms)
    made = _snapshot(_head(script))
    assert made.timestamp_ms >= _snapshot(lake.table).timestamp_ms
    assert made.timestamp_ms >= parent_ms + skew_ms
    assert _head(script).envelope.last_updated_ms >= made.timestamp_ms


def test_totals_count_what_the_new_head_has() -> None:
    lake = lake_of(2)
    summary = _snapshot(_head(_after_lost_swaps(lake, adds(lake, 7, 8)))).summary
    assert summary["total-records"] == str(4 + LOST)
    assert summary["added-records"] == "2"


def test_a_retry_changes_what_it_says_and_nothing_else() -> None:
    lake = lake_of()
    commit = commit_of(SetProperties(updates={"ours": "1"}), adds(lake, 7))
    first = at(lake, 3)
    schema = lake.table.schema()
    wider = (*schema.fields, Field(id=4, name="theirs", type="string", required=False))
    lake.apply(AddSchema(schema=type(schema)(fields=wider)), SetCurrentSchema(schema_id=-1))
    lake.apply(SetProperties(updates={"theirs": "1"}))
    script = play(commit_flow((commit,), key="k"), [first, SwapLost(), at(lake, 5), LANDS], lake)
    envelope = _head(script).envelope
    assert [field.name for field in _head(script).schema().fields] == ["id", "cat", "amount", "theirs"]
    assert envelope.properties["ours"] == envelope.properties["theirs"] == "1"
    assert _snapshot(_head(script)).schema_id == envelope.current_schema_id


def test_several_changes_in_one_commit_are_rebuilt_as_one_unit() -> None:
    lake = lake_of()
    replies = [at(lake, 3), SwapLost()]
    conversation = commit_flow((commit_of(adds(lake, 7), adds(lake, 8)),), key="k")
    append(lake, 20)
    script = play(conversation, [*replies, at(lake, 4), LANDS], lake)
    last = script.yielded(Swap)[-1]
    assert candidate_rows(lake, last) == ["ours.7", "ours.8", "theirs.0", "theirs.20"]
    assert len(last.candidates[0].metadata.snapshots) == len(lake.table.snapshots) + 2
    assert script.discarded == set(script.yielded(Swap)[0].candidates[0].written)


def test_a_swap_that_is_sent_again_on_the_same_head_has_the_same_snapshot_id() -> None:
    lake = lake_of()
    conversation = commit_flow((commit_of(adds(lake, 7)),), key="k")
    script = play(conversation, [at(lake, 3), SwapUnknown(), at(lake, 3), LANDS], lake)
    first, second = script.yielded(Swap)
    one, two = (swap.candidates[0].metadata.envelope.current_snapshot_id for swap in (first, second))
    assert one == two


def test_a_delete_by_filter_is_evaluated_anew_at_every_head() -> None:
    lake = lake_of(2)
    update = Operation("delete", "filter", scope=Scope(cat="a")).write(lake, lake.head)
    script = _after_lost_swaps(lake, update)
    assert candidate_rows(lake, script.yielded(Swap)[-1]) == []


def test_the_checkpoint_of_the_head_goes_into_the_log_of_the_candidate() -> None:
    lake = lake_of()
    checkpoint = MetadataLogEntry(metadata_file="v2.json", timestamp_ms=NOW_MS)
    loaded = Loaded((replace(head(lake, 3), checkpoint=checkpoint),), frozenset(), NOW_MS)
    script = play(commit_flow((commit_of(adds(lake, 7)),), key="k"), [loaded, LANDS], lake)
    assert script.yielded(Swap)[0].candidates[0].metadata.envelope.metadata_log == (checkpoint,)
