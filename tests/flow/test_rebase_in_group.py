"""Plain commits of engines in a group: rebased on what group mates are about to publish, or refused with the reason."""

from __future__ import annotations

from typing import Any

from headgate.core.build import WriteManifestList
from headgate.core.commit import Committed, Loaded, Member, Refused, Swap, SwapLost, TableCommit
from headgate.core.flow import group_flow
from headgate.core.group import NOT_REBASED
from headgate.core.updates import SetProperties
from headgate.errors import RequirementFailed, StorageFailed
from tests.core.plain_clients import append, lake_of, send, snapshot_of, win
from tests.flow.script import LANDS, NOW_MS, Script, candidate_rows, head, play
from tests.properties.lake import Lake

WORD = SetProperties(updates={"word": "1"})


def loaded(lake: Lake, version: int) -> Loaded:
    """A load of the table."""
    return Loaded((head(lake, version),), frozenset(), NOW_MS)


def a_table(rebase: str | None = "append") -> Lake:
    """A table with row 1."""
    lake = lake_of(rebase=rebase)
    win(lake, append(lake, 1), key="first")
    return lake


def run(lake: Lake, *commits: TableCommit, failing: tuple[type[Any], int] | None = None) -> Script:
    """One group that lands."""
    members = tuple(Member(f"k{n}", (commit,)) for n, commit in enumerate(commits))
    return play(group_flow(members), [loaded(lake, 3), LANDS], lake, failing=failing)


def test_plain_appends_that_lost_their_head_to_each_other_all_land_by_one_swap() -> None:
    lake = a_table()
    commits = [send(lake, append(lake, n), key=f"client {n}") for n in (2, 3, 4)]
    script = run(lake, *commits)
    assert all(isinstance(verdict, Committed) for verdict in script.verdicts)
    (swap,) = script.yielded(Swap)
    assert candidate_rows(lake, swap) == ["r1", "r2", "r3", "r4"]
    made = [snapshot.snapshot_id for snapshot in swap.candidates[0].metadata.iter_snapshots()]
    assert made[-3:] == [snapshot_of(commit).snapshot_id for commit in commits]


def test_without_the_property_only_the_first_of_them_lands() -> None:
    lake = a_table(rebase=None)
    script = run(lake, *(send(lake, append(lake, n), key=f"client {n}") for n in (2, 3)))
    first, second = script.verdicts
    assert isinstance(first, Committed)
    assert isinstance(second, Refused)
    assert isinstance(second.error, RequirementFailed)
    assert script.group_steps == ["Load", "Swap"]  # the second rests on the first, and is told after it


def test_one_plain_commit_that_came_twice_lands_once_and_both_are_told_so() -> None:
    lake = a_table()
    commit = send(lake, append(lake, 2))
    script = run(lake, commit, commit)
    assert all(isinstance(verdict, Committed) for verdict in script.verdicts)
    (swap,) = script.yielded(Swap)
    assert [len(share.parts) for share in swap.shares] == [1, 0]
    assert candidate_rows(lake, swap) == ["r1", "r2"]


def test_a_commit_that_cannot_be_rebased_is_refused_and_says_why() -> None:
    lake = a_table()
    stale = send(lake, append(lake, 2))
    more = TableCommit(stale.target, stale.requirements, (*stale.updates, WORD))
    script = run(lake, send(lake, append(lake, 3), key="mate"), more)
    refused = script.verdicts[1]
    assert isinstance(refused, Refused)
    assert refused.error.evidence[NOT_REBASED]
    assert candidate_rows(lake, script.yielded(Swap)[0]) == ["r1", "r3"]


def test_storage_that_fails_while_one_is_rebased_refuses_it_alone_and_leaves_nothing() -> None:
    lake = a_table()
    commits = [send(lake, append(lake, n), key=f"client {n}") for n in (2, 3, 4)]
    script = run(lake, *commits, failing=(WriteManifestList, 1))
    failed = [verdict for verdict in script.verdicts if isinstance(verdict, Refused)]
    assert [type(verdict.error) for verdict in failed] == [StorageFailed]
    assert script.discarded.isdisjoint(script.written)
    assert len(candidate_rows(lake, script.yielded(Swap)[0])) == 3


def test_a_rebased_commit_whose_swap_is_lost_is_rebased_anew_and_its_files_go_after_the_load() -> None:
    lake = a_table()
    commits = [send(lake, append(lake, n), key=f"client {n}") for n in (2, 3)]
    members = tuple(Member(f"k{n}", (commit,)) for n, commit in enumerate(commits))
    first = loaded(lake, 3)
    win(lake, append(lake, 9), key="winner")
    script = play(group_flow(members), [first, SwapLost(), loaded(lake, 4), LANDS], lake)
    lost, landed = script.yielded(Swap)
    assert script.discarded == set(lost.candidates[0].written)
    assert candidate_rows(lake, landed) == ["r1", "r2", "r3", "r9"]
    theirs = {str(snapshot_of(commit).manifest_list) for commit in commits}
    assert script.discarded.isdisjoint(theirs)  # what a client wrote is the client's
