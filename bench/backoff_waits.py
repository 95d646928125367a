"""The ways to wait that the backoff experiment compares, each as a formula: seed 004's three, ours, and what ours offers.

All have the same first wait and the same bound, so that only their shape differs. No clock, no chance: draws come in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.core.backoff import BackoffPolicy, Spread, delay_ms

WAIT_MIN_MS, WAIT_MAX_MS = 10, 1_000
RETRIES_MAX = 200

# The wait before retry number `attempt` (the first is 1), for a draw from [0, 1), after a wait of `previous_ms`.
Formula = Callable[[int, float, float], float]


@dataclass(frozen=True, slots=True)
class Waits:
    """One way to wait. `spread` when the library's policy offers it; `turns` when writers queue as the library does."""

    name: str
    formula: Formula
    spread: Spread | None = None
    turns: bool = False


def _grown_ms(attempt: int) -> float:
    return float(min(WAIT_MIN_MS * 2 ** min(attempt - 1, 40), WAIT_MAX_MS))


def linear_ms(attempt: int, draw: float, previous_ms: float) -> float:
    """A step more each time, the same for all."""
    return float(min(WAIT_MIN_MS * attempt, WAIT_MAX_MS))


def exponential_ms(attempt: int, draw: float, previous_ms: float) -> float:
    """Twice as long each time, the same for all."""
    return _grown_ms(attempt)


def jittered_ms(attempt: int, draw: float, previous_ms: float) -> float:
    """The seed's: min(base · 2^attempt, cap) · (0.5 + random)."""
    return _grown_ms(attempt) * (0.5 + draw)


def spread_ms(spread: Spread) -> Formula:
    """The library's formula of this name."""
    policy = BackoffPolicy(spread, RETRIES_MAX, WAIT_MIN_MS, WAIT_MAX_MS)

    def formula(attempt: int, draw: float, previous_ms: float) -> float:
        return float(delay_ms(attempt, draw, policy, previous_ms=int(previous_ms)))

    return formula


ALL = (
    Waits("linear", linear_ms),
    Waits("exponential", exponential_ms),
    Waits("exponential + jitter", jittered_ms),
    Waits("Java's", spread_ms(Spread.JAVA), Spread.JAVA),
    Waits("decorrelated", spread_ms(Spread.DECORRELATED), Spread.DECORRELATED),
    Waits("ours: full jitter", spread_ms(Spread.FULL), Spread.FULL),
    Waits("ours: full jitter and turns", spread_ms(Spread.FULL), Spread.FULL, turns=True),
)
