"""Waits stay inside their bounds, spread as they promise, and are set by the table's properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.backoff import PROPERTIES, BackoffPolicy, Spread, delay_ms, parse_policy
from headgate.errors import BadInput, InvariantBroken

_ATTEMPTS = st.integers(1, 2**31)
_DRAWS = st.floats(0, 1, exclude_max=True)
_WAITS = st.integers(0, 2**31 - 1)


@st.composite
def _policies(draw: st.DrawFn, spread: Spread) -> BackoffPolicy:
    low, high = sorted((draw(_WAITS), draw(_WAITS)))
    return BackoffPolicy(spread=spread, wait_min_ms=low, wait_max_ms=high)


@given(_ATTEMPTS, _DRAWS, _policies(Spread.JAVA))
def test_java_adds_less_than_a_tenth_to_a_doubling_wait(
    attempt: int, draw: float, policy: BackoffPolicy
) -> None:
    grown = min(policy.wait_min_ms * 2 ** min(attempt - 1, 64), policy.wait_max_ms)
    delay = delay_ms(attempt, draw, policy)
    assert grown <= delay < grown + max(1, grown // 10 + 1)


@given(_ATTEMPTS, _DRAWS, _policies(Spread.FULL))
def test_full_jitter_stays_between_nothing_and_the_doubling_wait(
    attempt: int, draw: float, policy: BackoffPolicy
) -> None:
    grown = min(policy.wait_min_ms * 2 ** min(attempt - 1, 64), policy.wait_max_ms)
    assert 0 <= delay_ms(attempt, draw, policy) <= grown


@given(_ATTEMPTS, _DRAWS, _WAITS, _policies(Spread.DECORRELATED))
def test_a_decorrelated_wait_is_at_most_three_times_the_one_before(
    attempt: int, draw: float, previous: int, policy: BackoffPolicy
) -> None:
    delay = delay_ms(attempt, draw, policy, previous_ms=previous)
    assert policy.wait_min_ms <= delay <= policy.wait_max_ms
    assert delay <= max(policy.wait_min_ms, 3 * previous)


@given(_ATTEMPTS, _policies(Spread.FULL), _DRAWS, _DRAWS)
def test_a_larger_draw_never_waits_less(
    attempt: int, policy: BackoffPolicy, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    assert delay_ms(attempt, low, policy) <= delay_ms(attempt, high, policy)


def test_no_spread_waits_for_nothing_at_all() -> None:
    assert delay_ms(7, 0.99, BackoffPolicy(spread=Spread.NONE)) == 0


def test_full_jitter_reaches_both_ends_of_its_range() -> None:
    policy = BackoffPolicy(wait_min_ms=100)
    assert delay_ms(1, 0.0, policy) == 0
    assert delay_ms(1, 0.9999, policy) == 100


def test_java_waits_a_tenth_to_six_seconds_in_seven_tries() -> None:
    policy = BackoffPolicy(spread=Spread.JAVA)
    waits = [delay_ms(attempt, 0.0, policy) for attempt in range(1, 12)]
    assert waits[:7] == [100, 200, 400, 800, 1600, 3200, 6400]
    assert waits[-1] == 60_000


@pytest.mark.parametrize(("attempt", "draw"), [(0, 0.5), (1, 1.0), (1, -0.1)])
def test_a_wait_before_the_first_try_is_a_bug(attempt: int, draw: float) -> None:
    with pytest.raises(InvariantBroken):
        delay_ms(attempt, draw, BackoffPolicy())


def test_a_table_without_properties_has_the_defaults_of_java() -> None:
    policy = parse_policy({})
    found = (policy.retries_max, policy.wait_min_ms, policy.wait_max_ms, policy.total_max_ms)
    assert found == (4, 100, 60_000, 1_800_000)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=len(PROPERTIES), max_size=len(PROPERTIES)))
def test_every_property_sets_its_own_bound(numbers: list[int]) -> None:
    wanted = dict(zip(PROPERTIES, numbers, strict=True))
    policy = parse_policy({name: str(number) for name, number in wanted.items()})
    assert {name: getattr(policy, attribute) for name, attribute in PROPERTIES.items()} == wanted


@pytest.mark.parametrize("name", list(PROPERTIES))
@pytest.mark.parametrize("text", ["", "-1", "4.0", "many", "²", str(2**31)])
def test_a_property_that_is_no_number_is_named(name: str, text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_policy({name: text})
    assert caught.value.field == name
