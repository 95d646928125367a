"""How often someone may try: token buckets, one per client address and one for all.

Guards the checks that cost time on purpose (scrypt). Never holds more addresses than its bound: under a flood
of addresses the oldest bucket is forgotten, and the bucket for all still counts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from headgate.errors import Overloaded

ADDRESSES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Rate:
    """`burst` tries at once, then `per_s` a second."""

    per_s: float
    burst: float


class RateLimit:
    """Counts tries. Thread-safe."""

    def __init__(self, *, each: Rate, everyone: Rate, clock_ms: Callable[[], int]) -> None:
        self._each, self._everyone, self._clock_ms = each, everyone, clock_ms
        self._lock = threading.Lock()
        self._all = (everyone.burst, clock_ms())
        self._by_address: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, address: str) -> None:
        """Count one try of an address, or refuse it with the time to wait."""
        now_ms = self._clock_ms()
        with self._lock:
            mine, wait_s = _draw(
                self._each, self._by_address.get(address, (self._each.burst, now_ms)), now_ms
            )
            if wait_s == 0:
                self._all, wait_s = _draw(self._everyone, self._all, now_ms)
            if wait_s == 0:
                self._by_address[address] = mine
                self._by_address.move_to_end(address)
                if len(self._by_address) > ADDRESSES_MAX:
                    self._by_address.popitem(last=False)
        if wait_s > 0:
            raise Overloaded("too many tries to authenticate; slow down", retry_after_s=wait_s)


def _draw(rate: Rate, bucket: tuple[float, int], now_ms: int) -> tuple[tuple[float, int], int]:
    """The bucket after one try, and 0; or the bucket as it was, and the seconds to wait."""
    level, at_ms = bucket
    level = min(rate.burst, level + max(0, now_ms - at_ms) * rate.per_s / 1000)
    if level >= 1:
        return (level - 1, now_ms), 0
    return bucket, max(1, round((1 - level) / rate.per_s))
