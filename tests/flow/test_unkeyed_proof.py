"""What is published proves that a swap landed, though its key is gone: a clock that is ahead forgets keys early."""

from __future__ import annotations

from collections.abc import Callable

from headgate.core.commit import Committed, Discard, Loaded, Swap, SwapLost, SwapUnknown, Unknown
from headgate.core.flow import commit_flow, group_flow
from headgate.core.table import Snapshot
from headgate.core.updates import AddSnapshot, AssertRefSnapshotId, SetProperties, SetSnapshotRef
from tests.flow.script import (
    NOW_MS,
    Script,
    adds,
    append,
    at,
    at_group,
    commit_of,
    lake_of,
    member,
    play,
    publish,
)
from tests.properties.lake import Lake

PROPERTY = SetProperties(updates={"a": "1"})


def published(number: int = 0) -> Callable[[Script], Loaded]:
    """A load that finds what this swap published, and no key."""
    return lambda script: Loaded(publish(script.yielded(Swap)[number]).heads, frozenset(), NOW_MS)


def sent_by_client(lake: Lake) -> tuple[AddSnapshot, SetSnapshotRef]:
    """A plain append of a client, which wrote its manifest list itself."""
    table = lake.table.envelope
    made = Snapshot(
        snapshot_id=77,
        parent_snapshot_id=lake.head,
        sequence_number=table.last_sequence_number + 1,
        timestamp_ms=NOW_MS,
        manifest_list="mem://theirs.avro",
        summary={"operation": "append"},
        schema_id=table.current_schema_id,
    )
    return AddSnapshot(snapshot=made), SetSnapshotRef(ref_name="main", snapshot_id=77, type="branch")


def test_a_swap_whose_snapshot_is_there_has_landed() -> None:
    lake = lake_of()
    script = play(
        commit_flow((commit_of(adds(lake, 7)),), key="k"), [at(lake, 3), SwapUnknown(), published()], lake
    )
    assert isinstance(script.verdict, Committed)
    assert script.verdict.replayed
    assert not script.yielded(Discard)


def test_of_two_swaps_under_one_snapshot_id_the_one_whose_list_is_not_there_goes() -> None:
    lake = lake_of()
    replies = [at(lake, 3), SwapUnknown(), at(lake, 3), SwapLost(), published(0)]
    script = play(commit_flow((commit_of(adds(lake, 7)),), key="k"), replies, lake)
    landed, missed = script.yielded(Swap)
    assert isinstance(script.verdict, Committed)
    assert script.discarded == set(missed.candidates[0].written)
    assert script.discarded.isdisjoint(landed.candidates[0].written)


def test_all_members_of_a_swap_have_landed_when_a_list_that_was_written_for_it_is_there() -> None:
    lake = lake_of()
    pinned = (AssertRefSnapshotId(ref="main", snapshot_id=lake.head),)
    members = (member(PROPERTY, key="a", requirements=pinned), member(adds(lake, 7), key="b"))
    script = play(group_flow(members), [at_group(lake, 3), SwapUnknown(), published()], lake)
    assert all(isinstance(verdict, Committed) and verdict.replayed for verdict in script.verdicts)
    assert not script.yielded(Discard)


def test_a_list_that_its_client_wrote_proves_that_clients_commit_alone() -> None:
    """The client may have sent it twice, and the other one landed without the rest of this group."""
    lake = lake_of()
    pinned = (AssertRefSnapshotId(ref="main", snapshot_id=lake.head),)
    members = (member(PROPERTY, key="a", requirements=pinned), member(*sent_by_client(lake), key="b"))
    script = play(group_flow(members), [at_group(lake, 3), SwapUnknown(), published()], lake)
    other, client = script.verdicts
    assert isinstance(client, Committed)
    assert isinstance(other, Unknown)
    assert not script.yielded(Discard)


def test_what_others_published_proves_nothing() -> None:
    lake = lake_of()
    first = at(lake, 3)
    conversation = commit_flow((commit_of(adds(lake, 7)),), key="k", attempts_max=1)
    append(lake, 8)
    script = play(conversation, [first, SwapUnknown(), at(lake, 4)], lake)
    assert script.discarded == script.written
