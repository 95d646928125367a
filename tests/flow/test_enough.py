"""A driver that may not try again: one more look, then the verdict; and a commit that judges its own changes."""

from __future__ import annotations

from typing import Any

from headgate.core.change import Delete, NoAddedDataFiles
from headgate.core.commit import (
    Committed,
    Discard,
    Enough,
    Load,
    Refused,
    Swap,
    SwapLost,
    SwapUnknown,
    TableCommit,
    Unknown,
    Wait,
)
from headgate.core.flow import commit_flow
from headgate.core.updates import SetProperties
from headgate.errors import CommitRefused, ConflictFound, RequirementFailed
from tests.flow.script import LANDS, TARGET, adds, append, at, commit_of, lake_of, play


def _play_until_enough(reply: Any, *, later: int, landed: bool = False) -> tuple[list[str], Any]:
    """The steps of a commit whose first swap is answered so, and whose driver then has had enough."""
    lake = lake_of()
    conversation = commit_flow((commit_of(adds(lake, 5)),), key="k")
    steps: list[str] = []
    answers = [at(lake, 3), reply, at(lake, later, landed=landed)]
    answer: Any = None
    while True:
        try:
            effect = conversation.send(answer)
        except StopIteration as stop:
            return steps, stop.value
        if isinstance(effect, Load | Swap | Wait | Discard):
            steps.append(type(effect).__name__)
        if isinstance(effect, Wait):
            answer = Enough("no time is left")
        elif isinstance(effect, Load | Swap):
            answer = answers.pop(0)
        elif isinstance(effect, Discard):
            answer = None
        else:
            answer = lake.world.answer(effect)


def test_enough_is_followed_by_one_more_load_and_says_why() -> None:
    steps, verdict = _play_until_enough(SwapLost(), later=4)
    assert steps == ["Load", "Swap", "Wait", "Load", "Discard"]
    assert isinstance(verdict, Refused)
    assert isinstance(verdict.error, CommitRefused)
    assert verdict.error.message == "no time is left"


def test_enough_while_the_head_still_stands_is_unknown_and_deletes_nothing() -> None:
    steps, verdict = _play_until_enough(SwapUnknown(), later=3)
    assert steps == ["Load", "Swap", "Wait", "Load"]
    assert isinstance(verdict, Unknown)


def test_a_commit_that_landed_is_found_by_the_last_load() -> None:
    _, verdict = _play_until_enough(SwapUnknown(), later=4, landed=True)
    assert isinstance(verdict, Committed)
    assert verdict.replayed


def test_nobody_conflicts_with_his_own_earlier_change() -> None:
    lake = lake_of()
    base = lake.head
    guarded = Delete(
        remove_data_files=(), base_snapshot_id=base, commit_validations=(NoAddedDataFiles(filter=True),)
    )
    script = play(commit_flow((commit_of(adds(lake, 5), guarded),), key="k"), [at(lake, 3), LANDS], lake)
    assert isinstance(script.verdict, Committed)


def test_somebody_elses_change_in_between_is_still_a_conflict() -> None:
    lake = lake_of()
    base = lake.head
    append(lake, 9)
    guarded = Delete(
        remove_data_files=(), base_snapshot_id=base, commit_validations=(NoAddedDataFiles(filter=True),)
    )
    script = play(commit_flow((commit_of(adds(lake, 5), guarded),), key="k"), [at(lake, 4)], lake)
    assert isinstance(script.verdict, Refused)
    assert isinstance(script.verdict.error, ConflictFound)


def test_a_property_that_somebody_changed_meanwhile_is_refused_with_its_value() -> None:
    lake = lake_of()
    update = SetProperties(updates={"color": "blue"})
    expecting = TableCommit(TARGET, (), (update,), properties={"color": "red"})
    script = play(commit_flow((expecting,), key="k"), [at(lake, 3)], lake)
    assert isinstance(script.verdict, Refused)
    assert isinstance(script.verdict.error, RequirementFailed)
    assert script.verdict.error.evidence["theirs"] == {"color": None}


def test_a_property_that_is_as_it_was_read_may_be_set() -> None:
    lake = lake_of()
    update = SetProperties(updates={"color": "blue"})
    expecting = TableCommit(TARGET, (), (update,), properties={"color": None})
    script = play(commit_flow((expecting,), key="k"), [at(lake, 3), LANDS], lake)
    assert isinstance(script.verdict, Committed)
