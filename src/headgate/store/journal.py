"""All or nothing for dictionaries: old values are noted, and a refusal plays them back."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

_ABSENT = object()


class Journal:
    """What one write has replaced so far, in order."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, Any, Any]] = []

    def begin(self) -> None:
        """Forget what an earlier write replaced."""
        self._replaced.clear()

    def put(self, mapping: MutableMapping[Any, Any], key: object, value: object) -> None:
        """Set a value, noting the one before."""
        self._replaced.append((mapping, key, mapping.get(key, _ABSENT)))
        mapping[key] = value

    def remove(self, mapping: MutableMapping[Any, Any], key: object) -> None:
        """Take a value out if it is there, noting it."""
        if key in mapping:
            self._replaced.append((mapping, key, mapping.pop(key)))

    def play_back(self) -> None:
        """Put everything back as it was when the write began."""
        while self._replaced:
            mapping, key, old = self._replaced.pop()
            if old is _ABSENT:
                mapping.pop(key, None)
            else:
                mapping[key] = old
