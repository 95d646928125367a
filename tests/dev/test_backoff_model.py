"""The simulator of the backoff experiment: one swap at a time, nothing lost, the same history for the same seed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from bench.backoff import figures
from bench.backoff_model import Costs, History, Model, simulate
from bench.backoff_waits import ALL, WAIT_MAX_MS, Waits
from bench.backoff_writers import Commit, Sleeper, policy_of

from headgate.core.backoff import Spread

TOGETHER = Model(writers=12, seconds=10.0, tick_ms=2_000.0)
APART = Model(writers=12, seconds=10.0, think_ms=100.0)
SURE = Costs(spread=0.0)


def waits(name: str) -> Waits:
    """One of the ways to wait."""
    return next(one for one in ALL if one.name == name)


def retries(history: History) -> list[int]:
    """Of each commit."""
    return [lap.attempts - 1 for lap in history.laps]


@pytest.mark.parametrize("model", [TOGETHER, APART])
@pytest.mark.parametrize("way", ALL, ids=lambda way: way.name)
def test_the_catalog_makes_one_swap_at_a_time(way: Waits, model: Model) -> None:
    history = simulate(model, way, seed=1)
    assert len(history.swaps) == sum(lap.attempts for lap in history.laps)
    for (_, ended), (began, _) in pairwise(history.swaps):
        assert began >= ended


@pytest.mark.parametrize("model", [TOGETHER, APART])
@pytest.mark.parametrize("way", ALL, ids=lambda way: way.name)
def test_every_commit_that_was_acknowledged_moved_the_head_once(way: Waits, model: Model) -> None:
    history = simulate(model, way, seed=2)
    committed = Counter(lap.writer for lap in history.laps if lap.committed)
    assert history.head is not None
    assert history.head.version - 1 == committed.total() > 0
    properties = history.head.metadata.envelope.properties
    assert {
        f"writer-{writer}": str(count) for writer, count in committed.items()
    }.items() <= properties.items()


def test_the_same_seed_gives_the_same_history_and_another_seed_another() -> None:
    way = waits("ours: full jitter")
    first, again, other = (simulate(APART, way, seed=seed) for seed in (3, 3, 4))
    assert (first.laps, first.swaps) == (again.laps, again.swaps)
    assert first.laps != other.laps


@pytest.mark.parametrize("way", ALL, ids=lambda way: way.name)
def test_a_writer_alone_never_retries(way: Waits) -> None:
    history = simulate(Model(writers=1, seconds=5.0, think_ms=20.0), way, seed=5)
    assert set(retries(history)) == {0}


def test_of_writers_that_come_together_one_wins_each_round() -> None:
    history = simulate(
        Model(writers=4, seconds=1.9, tick_ms=1_000.0, costs=SURE), waits("exponential"), seed=6
    )
    assert sorted(retries(history)) == [0, 1, 2, 3]


def test_writers_that_take_turns_never_lose_a_swap() -> None:
    history = simulate(TOGETHER, waits("ours: full jitter and turns"), seed=7)
    assert set(retries(history)) == {0}


def test_losers_that_wait_equally_long_meet_again_and_jitter_parts_them() -> None:
    model = Model(writers=30, seconds=30.0, tick_ms=3_000.0)
    equal, jittered = (
        simulate(model, waits(name), seed=8) for name in ("exponential", "exponential + jitter")
    )
    often = [sum(count >= 8 for count in retries(history)) for history in (equal, jittered)]
    assert often[0] > 3 * often[1]


@pytest.mark.parametrize("way", ALL, ids=lambda way: way.name)
@pytest.mark.parametrize("draw", [0.0, 0.5, 0.999])
def test_no_wait_is_longer_than_its_bound_and_its_jitter(way: Waits, draw: float) -> None:
    previous_ms = 0.0
    for attempt in (1, 2, 5, 100, 10_000):
        previous_ms = way.formula(attempt, draw, previous_ms)
        assert 0 <= previous_ms <= 1.5 * WAIT_MAX_MS


def test_waits_that_the_library_offers_are_its_own_and_others_are_slept_by_their_formula() -> None:
    for way in ALL:
        sleeper = Sleeper(way)
        policy = policy_of(way, sleeper)
        assert policy.turns == way.turns
        if way.spread is None:
            assert policy.spread is Spread.NONE
            assert policy.clock.sleep_s == sleeper.sleep_s
        else:
            assert policy.spread is way.spread


def test_figures_tell_commits_that_retried_from_all_commits() -> None:
    commits = [Commit(0, 0.01, True), Commit(0, 0.01, True), Commit(2, 0.2, True), Commit(10, 3.0, False)]
    found = figures(commits, 4.0)
    assert (found["retried"], found["retries_per_retried"], found["retries_per_commit"]) == (0.5, 6.0, 3.0)
    assert (found["over_four"], found["eight_or_more"], found["most"]) == (0.25, 0.25, 10)
    assert found["given_up"] == 1
    assert found["max_ms"] == pytest.approx(200.0)
    assert dict(found["tail"])[2] == 0.5
