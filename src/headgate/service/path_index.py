"""Which manifests may list a path: eight bytes a file, for all tables of the process.

A number holds forty bits of the hash of the path's stem and the manifest's ordinal, so a look-up is a binary search in a few
sorted arrays, and a million live files take eight megabytes. It answers "perhaps there" or "certainly not": who
finds a manifest here reads it to be sure. Manifests never change, so nothing is ever removed; when the index is over
its limit it is emptied and fills again as it is asked. Not thread-safe: its owner holds a lock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from headgate.core.locations import find_stem
from headgate.format.footprints import HASH_BYTES, hash_path

_ORDINAL_BITS = 24
_RECENT_MAX = 4096
_NUMBERS = 1 << 64
_SLICE = 8192  # numbers that are merged at a time
_TIERS = 8  # so many arrays of about a size become one
# What takes how much memory here, roughly: a manifest's path, a hash that is recent, one in a sorted array.
_MANIFEST_BYTES, _RECENT_BYTES, _SORTED_BYTES = 300, 150, 8


class PathIndex:
    """Hashes of paths by manifest."""

    def __init__(self) -> None:
        self._manifests: list[str] = []
        self._ordinals: dict[str, int] = {}
        self._recent: dict[int, list[int]] = {}
        self._recent_count = 0
        self._sorted: list[array[int]] = []
        self.size_bytes = 0  # how much memory it takes, roughly

    def __contains__(self, manifest_path: str) -> bool:
        return manifest_path in self._ordinals

    def __len__(self) -> int:
        return len(self._manifests)

    def add(self, manifest_path: str, hashes: bytes) -> bool:
        """Index a manifest by the hashes of its paths, as a footprint holds them. True: all others were forgotten."""
        ordinals, recent, numbers = self._ordinals, self._recent, _numbers_of(hashes)
        if manifest_path in ordinals:
            return False
        ordinal = len(ordinals)
        is_full = ordinal >= 1 << _ORDINAL_BITS
        if is_full:
            self.clear()
            ordinal = 0
        ordinals[manifest_path] = ordinal
        self._manifests.append(manifest_path)
        for number in numbers:
            if number in recent:
                recent[number].append(ordinal)
            else:
                recent[number] = [ordinal]
        self._recent_count += len(numbers)
        self.size_bytes += len(numbers) * _RECENT_BYTES + _MANIFEST_BYTES
        if self._recent_count >= _RECENT_MAX:
            self._settle()
        return is_full

    def find(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """For each path that may be listed, in this or another spelling, the manifests that may list it."""
        found: dict[str, list[str]] = {}
        by_stem: dict[str, list[str]] = {}
        for path in paths:
            stem = find_stem(path)
            places = by_stem.get(stem)
            if places is None:
                places = by_stem[stem] = self._find(path)
            if places:
                found[path] = places
        return found

    def may_hold(self, hashes: bytes) -> bool:
        """Whether any of these hashes of paths may be there."""
        for number in _numbers_of(hashes):
            if number in self._recent:
                return True
            low = number << _ORDINAL_BITS
            for numbers in self._sorted:
                place = bisect_left(numbers, low)
                if place < len(numbers) and numbers[place] >> _ORDINAL_BITS == number:
                    return True
        return False

    def _find(self, path: str) -> list[str]:
        number = int.from_bytes(hash_path(path), "big")
        ordinals = list(self._recent.get(number, ()))
        low = number << _ORDINAL_BITS
        for numbers in self._sorted:
            at = bisect_left(numbers, low)
            while at < len(numbers) and numbers[at] >> _ORDINAL_BITS == number:
                ordinals.append(numbers[at] & ((1 << _ORDINAL_BITS) - 1))
                at += 1
        return [self._manifests[ordinal] for ordinal in ordinals]

    def clear(self) -> None:
        """Forget everything."""
        self._manifests.clear()
        self._ordinals.clear()
        self._recent.clear()
        self._recent_count = 0
        self._sorted.clear()
        self.size_bytes = 0

    def _settle(self) -> None:
        """Move what is recent into a sorted array, and make one of arrays that are many and small."""
        numbers = sorted(
            number << _ORDINAL_BITS | ordinal
            for number, ordinals in self._recent.items()
            for ordinal in ordinals
        )
        self._sorted.append(array("Q", numbers))
        self.size_bytes += len(numbers) * (_SORTED_BYTES - _RECENT_BYTES)
        self._recent.clear()
        self._recent_count = 0
        while len(self._sorted) >= _TIERS and len(self._sorted[-_TIERS]) <= _TIERS * len(self._sorted[-1]):
            self._sorted[-_TIERS:] = [_merge(self._sorted[-_TIERS:])]


def _numbers_of(hashes: bytes) -> Sequence[int]:
    """The hashes as numbers."""
    if len(hashes) == HASH_BYTES:
        return (int.from_bytes(hashes, "big"),)
    return [int.from_bytes(hashes[at : at + HASH_BYTES], "big") for at in range(0, len(hashes), HASH_BYTES)]


def _merge(parts: Sequence[array[int]]) -> array[int]:
    """One sorted array of several, a slice of the numbers at a time.

    As objects of Python all of them would take five times what they take here: of a million 40 MiB, for a moment, and what
    else is allocated then can keep that from being given back. Hashes are spread evenly, so slices are of about a size.
    """
    merged = array("Q", bytes(8 * sum(map(len, parts))))
    slices = len(merged) // _SLICE + 1
    begins, at = [0] * len(parts), 0
    for number in range(1, slices + 1):
        ends = [bisect_left(part, number * _NUMBERS // slices) for part in parts]
        numbers: list[int] = []
        for part, begin, end in zip(parts, begins, ends, strict=True):
            numbers.extend(part[begin:end])
        numbers.sort()  # runs that are sorted already are merged in linear time
        merged[at : at + len(numbers)] = array("Q", numbers)
        begins, at = ends, at + len(numbers)
    return merged
