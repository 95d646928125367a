"""The commit library: safe retries over any PyIceberg catalog. `headgate.open` is the way in."""

from headgate.core.backoff import Spread
from headgate.library.open import open
from headgate.library.policy import Attempted, Clock, Counters, Ended, Policy, RetryBudget, Waited

__all__ = [
    "Attempted",
    "Clock",
    "Counters",
    "Ended",
    "Policy",
    "RetryBudget",
    "Spread",
    "Waited",
    "open",
]
