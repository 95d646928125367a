"""Groups whose members are about several tables: one swap for all, and each member is whole or not there."""

from __future__ import annotations

from headgate.core.build import WriteManifest
from headgate.core.change import NoAddedDataFiles, Overwrite, RequiredDataFiles
from headgate.core.commit import Committed, Load, Loaded, Member, Swap, Target
from headgate.core.flow import group_flow
from tests.flow.script import LANDS, NOW_MS, adds, candidate_rows, commit_of, head, lake_of, member, play
from tests.flow.test_group_flow import GONE, brought, kinds, replaces, rule_of
from tests.properties.lake import Lake

LEFT, RIGHT = (("db",), "left"), (("db",), "right")


def two() -> tuple[Lake, Lake]:
    """Two tables over one memory, as one store of objects would be; the names of files must not meet."""
    left, right = lake_of(), lake_of()
    right.world, right.rows = left.world, left.rows
    left.made, right.made = 100, 200
    return left, right


def both(left: Lake, right: Lake, *versions: int) -> Loaded:
    """A load of both tables."""
    return Loaded((head(left, versions[0], "left"), head(right, versions[1], "right")), frozenset(), NOW_MS)


def part(lake: Lake, target: Target, id_: int, key: str) -> Member:
    """A member that appends to one of the tables."""
    return member(adds(lake, id_), key=key, target=target)


def test_members_of_several_tables_meet_in_one_swap() -> None:
    left, right = two()
    across = Member("l", (commit_of(adds(left, 8), target=LEFT), commit_of(adds(right, 8), target=RIGHT)))
    members = (part(left, LEFT, 7, "k"), across, part(right, RIGHT, 9, "m"))
    script = play(group_flow(members), [both(left, right, 3, 5), LANDS], left)
    (swap,) = script.yielded(Swap)
    assert [candidate.target for candidate in swap.candidates] == [LEFT, RIGHT]
    assert candidate_rows(left, swap, 0) == ["ours.7", "ours.8", "theirs.0"]
    assert candidate_rows(right, swap, 1) == ["ours.8", "ours.9", "theirs.0"]
    assert [len(brought(verdict)) for verdict in script.verdicts] == [1, 2, 1]
    versions = [verdict.heads for verdict in script.verdicts if isinstance(verdict, Committed)]
    assert [[one and one.version for one in heads] for heads in versions] == [[4], [4, 6], [6]]


def test_a_member_refused_at_its_second_table_leaves_no_trace_in_the_first() -> None:
    left, right = two()
    across = Member(
        "l", (commit_of(adds(left, 8), target=LEFT), commit_of(replaces(right, GONE, 8), target=RIGHT))
    )
    members = (part(left, LEFT, 7, "k"), across, part(left, LEFT, 9, "m"))
    script = play(group_flow(members), [both(left, right, 3, 5), LANDS], left)
    assert kinds(script.verdicts) == ["Committed", "Refused", "Committed"]
    (swap,) = script.yielded(Swap)
    assert [candidate.target for candidate in swap.candidates] == [LEFT]
    assert candidate_rows(left, swap) == ["ours.7", "ours.9", "theirs.0"]
    assert len(script.discarded) == 2
    assert script.discarded.isdisjoint(script.written)


def test_a_read_set_is_judged_against_what_an_earlier_member_wrote() -> None:
    left, right = two()
    reads = Overwrite(base_snapshot_id=right.head, commit_validations=(NoAddedDataFiles(filter=True),))
    skewed = Member("l", (commit_of(adds(left, 8), target=LEFT), commit_of(target=RIGHT, reads=reads)))
    script = play(
        group_flow((part(right, RIGHT, 7, "k"), skewed)), [both(right, left, 5, 3), LANDS], left, right
    )
    assert kinds(script.verdicts) == ["Committed", "Refused"]
    assert rule_of(script.verdicts[1]) == "added-data-files"


def test_a_table_that_one_member_reads_and_a_later_one_writes_is_expected_once() -> None:
    left, right = two()
    path = right.read(right.head)[0].path
    reads = Overwrite(
        base_snapshot_id=right.head, commit_validations=(RequiredDataFiles(file_paths=(path,)),)
    )
    reader = Member("k", (commit_of(adds(left, 8), target=LEFT), commit_of(target=RIGHT, reads=reads)))
    script = play(
        group_flow((reader, part(right, RIGHT, 9, "l"))), [both(left, right, 3, 5), LANDS], left, right
    )
    assert kinds(script.verdicts) == ["Committed", "Committed"]
    (swap,) = script.yielded(Swap)
    assert not swap.unchanged
    assert [candidate.base and candidate.base.version for candidate in swap.candidates] == [3, 5]


def test_a_load_of_a_group_tells_of_each_table_once() -> None:
    left, right = two()
    members = (part(left, LEFT, 7, "k"), part(right, RIGHT, 8, "l"), part(left, LEFT, 9, "m"))
    script = play(group_flow(members), [both(left, right, 3, 5), LANDS], left)
    assert [load.targets for load in script.yielded(Load)] == [(LEFT, RIGHT)]
    assert len(script.yielded(WriteManifest)) == 3
