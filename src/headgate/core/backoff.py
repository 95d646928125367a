"""How long to wait before trying again: pure formulas, and the table properties that set their bounds.

Drivers draw the number and do the waiting; nothing here knows a clock. Jitter is what keeps losers of one race
from meeting again in the next (seed 004): Java's few per cent barely spread them, full jitter does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from headgate.errors import BadInput, invariant

_INT_MAX = 2**31 - 1
_JAVA_JITTER = 0.1
_DECORRELATED_GROWTH = 3


class Spread(Enum):
    """How a wait is drawn from its bounds."""

    JAVA = "java"  # min·2ⁿ up to max, plus less than a tenth
    FULL = "full"  # anywhere between nothing and min·2ⁿ, up to max
    DECORRELATED = "decorrelated"  # anywhere between min and three times the wait before, up to max
    NONE = "none"  # at once


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Bounds of a retry; the defaults are those of `commit.retry.*`."""

    spread: Spread = Spread.FULL
    retries_max: int = 4
    wait_min_ms: int = 100
    wait_max_ms: int = 60_000
    total_max_ms: int = 1_800_000


# Property, field and default, as Java's TableProperties has them.
PROPERTIES: Mapping[str, str] = {
    "commit.retry.num-retries": "retries_max",
    "commit.retry.min-wait-ms": "wait_min_ms",
    "commit.retry.max-wait-ms": "wait_max_ms",
    "commit.retry.total-timeout-ms": "total_max_ms",
}


def parse_policy(properties: Mapping[str, str], *, spread: Spread = Spread.FULL) -> BackoffPolicy:
    """The policy that a table's properties ask for; BadInput names the one that is no number."""
    found: dict[str, int] = {}
    for name, attribute in PROPERTIES.items():
        if name not in properties:
            continue
        text = properties[name].strip()
        if not (text.isascii() and text.isdigit()) or int(text) > _INT_MAX:
            raise BadInput(
                f"{name}: expected a number from 0 to {_INT_MAX}, got {properties[name][:40]!r}", field=name
            )
        found[attribute] = int(text)
    return BackoffPolicy(spread=spread, **found)


def delay_ms(attempt: int, draw: float, policy: BackoffPolicy, *, previous_ms: int = 0) -> int:
    """The wait before retry number `attempt` (the first is 1), for a `draw` from [0, 1).

    `previous_ms` is the wait before this one; only the decorrelated spread looks at it.
    """
    invariant(attempt >= 1 and 0 <= draw < 1, "a wait has an attempt from 1 on and a draw from [0, 1)")
    # Past 2^40 every bound is reached, and a float would overflow long before the number of retries does.
    grown: int = min(policy.wait_min_ms * 2 ** min(attempt - 1, 40), policy.wait_max_ms)
    match policy.spread:
        case Spread.JAVA:
            return grown + int(draw * max(1, int(grown * _JAVA_JITTER)))
        case Spread.FULL:
            return int(draw * (grown + 1))
        case Spread.DECORRELATED:
            low = min(policy.wait_min_ms, policy.wait_max_ms)
            high = min(max(low, previous_ms * _DECORRELATED_GROWTH), policy.wait_max_ms)
            return low + int(draw * (high - low + 1))
        case Spread.NONE:
            return 0
