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
        key = tuple(map(id, objects))
        found = self._made.get(key)
        if found is not None:
            return found[1]
        made = make()
        self._made[key] = (objects, made)
        while len(self._made) > self._limit:
            try:
                self._made.popitem(last=False)
            except KeyError:  # another thread emptied it
                break
        return made
