"""Remember what was made of values that are shared, not copied: a table's schemas are one object from commit to commit.

Keyed by identity, so a look-up costs nothing like hashing a schema of a thousand columns. The values are held as long
as what was made of them, so an identity is never another's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class IdentityCache(Generic[T]):
    """What `make` gave for the very same objects before; bounded. Safe to share between threads."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._made: OrderedDict[tuple[int, ...], tuple[tuple[object, ...], T]] = OrderedDict()

    def get(self, objects: tuple[object, ...], make: Callable[[], T]) -> T:
        """What was made for these objects, or what `make` makes now."""
        found = self._made.get(tuple(map(id, objects)))
        return self.keep(objects, make()) if found is None else found[1]

    def find(self, objects: tuple[object, ...]) -> T | None:
        """What was made for these objects, for callers that spare themselves a function that makes it."""
        found = self._made.get(tuple(map(id, objects)))
        return None if found is None else found[1]

    def keep(self, objects: tuple[object, ...], made: T) -> T:
        """Remember what was made for these objects, and return it."""
        self._made[tuple(map(id, objects))] = (objects, made)
        while len(self._made) > self._limit:
            try:
                self._made.popitem(last=False)
            except KeyError:  # another thread emptied it
                break
        return made
