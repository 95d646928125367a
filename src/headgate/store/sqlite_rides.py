"""Files to be dropped from the journal that wait for the writes of others to take them along. `sqlite_staged.py` says why.

A write carries a part of a ride, in proportion to itself: with the rows of 64 commits one took six times as long.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress


class Ride:
    """Files to be dropped with others' next writes. `arrived` is set when all of them have been."""

    def __init__(self, locations: Sequence[str]) -> None:
        self.locations = locations  # that are left
        self.arrived = threading.Event()


class Rides:
    """Those that wait, in the order they came. From any thread."""

    def __init__(self) -> None:
        self._waiting: list[Ride] = []

    def begin(self, locations: Sequence[str]) -> Ride:
        """Have these files dropped with the next writes."""
        ride = Ride(locations)
        self._waiting.append(ride)
        return ride

    def find_first(self) -> Ride | None:
        """Whose turn it is."""
        return next(iter(self._waiting), None) if self._waiting else None

    def end(self, ride: Ride) -> None:
        """It arrived, or waits no longer. Told twice, the second does nothing."""
        with suppress(ValueError):
            self._waiting.remove(ride)
