"""A cache that knows how many bytes it holds; the least recently used go first. Not thread-safe: its owner has a lock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """Values by key, each with the bytes it takes. The newest stays, however large."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.size_bytes = 0

    def get(self, key: K) -> V | None:
        """The value, which is then the most recently used."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def get_all(self, keys: Iterable[K]) -> list[V | None]:
        """As `get`, of many; in their order."""
        values, found = self._values, list[V | None]()
        for key in keys:
            value = values.get(key)
            if value is None:
                found.append(None)
            else:
                values.move_to_end(key)
                found.append(value[0])
        return found

    def put(self, key: K, value: V, *, size_bytes: int) -> None:
        """Remember a value; one that is there already stays as it is."""
        if key in self._values:
            return
        self._values[key] = (value, size_bytes)
        self.size_bytes += size_bytes
        while self.size_bytes > self._limit_bytes and len(self._values) > 1:
            self.size_bytes -= self._values.popitem(last=False)[1][1]
