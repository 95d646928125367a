"""Which manifests may list a path: eight bytes a file, for all tables of the process.

A number holds forty bits of the hash of the path's stem and the manifest's ordinal, so a look-up is a binary search in a few
sorted arrays, and a million live files take eight megabytes. It answers "perhaps there" or "certainly not": who
finds a manifest here reads it to be sure. Manifests never change, so nothing is ever removed; when the index is over
its limit it is emptied and fills again as it is asked. Not thread-safe: its owner holds a lock.

What would take long under that lock is done beside it, by functions of values: a large manifest gets a number
(`reserve`), its hashes are sorted (`sort_hashes`), then it is `put`; arrays that are too many (`find_crowd`) are merged
(`merge`), then one takes their place (`replace`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import is_not

from headgate.core.locations import find_stem
from headgate.format.footprints import HASH_BYTES, hash_path

_ORDINAL_BITS = 24
AT_ONCE_BYTES = 4096 * HASH_BYTES  # of hashes: a manifest with no more of them is added at once
_RECENT_MAX = 4096
# Numbers of arrays that become one under the lock: some ten milliseconds. More wait for whoever adds a large manifest, or
# until looking through so many arrays is what takes long.
_MERGED_AT_ONCE, _ARRAYS_MAX = 1 << 16, 64
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
        ordinal = len(self._manifests)
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

    def reserve(self, manifest_path: str) -> tuple[int, bool]:
        """The number of a manifest that will be `put`, and as `add` whether all others were forgotten for it."""
        is_full = len(self._manifests) >= 1 << _ORDINAL_BITS
        if is_full:
            self.clear()
        self._manifests.append(manifest_path)
        return len(self._manifests) - 1, is_full

    def put(self, manifest_path: str, ordinal: int, numbers: array[int]) -> None:
        """Index a manifest by what `sort_hashes` made of its hashes; its number was reserved since the last `clear`."""
        if manifest_path not in self._ordinals:
            self._ordinals[manifest_path] = ordinal
            self._sorted.append(numbers)
            self.size_bytes += len(numbers) * _SORTED_BYTES + _MANIFEST_BYTES

    def find_crowd(self) -> Sequence[array[int]]:
        """Arrays that are to become one, if any."""
        last = self._sorted[-_TIERS:]
        return last if len(last) == _TIERS and len(last[0]) <= _TIERS * len(last[-1]) else ()

    def replace(self, crowd: Sequence[array[int]], merged: array[int]) -> bool:
        """Have this array instead of those that it was made of; False: they are not here any more."""
        standing = self._sorted
        at = next((at for at, one in enumerate(standing) if one is crowd[0]), len(standing))
        found = standing[at : at + len(crowd)]
        if len(found) < len(crowd) or any(map(is_not, found, crowd)):
            return False
        standing[at : at + len(crowd)] = [merged]
        return True

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
        while crowd := self.find_crowd():
            if sum(map(len, crowd)) > _MERGED_AT_ONCE and len(self._sorted) <= _ARRAYS_MAX:
                break
            self.replace(crowd, merge(crowd))


def _numbers_of(hashes: bytes) -> Sequence[int]:
    """The hashes as numbers."""
    if len(hashes) == HASH_BYTES:
        return (int.from_bytes(hashes, "big"),)
    return [int.from_bytes(hashes[at : at + HASH_BYTES], "big") for at in range(0, len(hashes), HASH_BYTES)]


def sort_hashes(hashes: bytes, ordinal: int) -> array[int]:
    """What `PathIndex.put` takes, for a manifest of this number. A part at a time: whoever sorts gives way to no thread."""
    parts = []
    for at in range(0, len(hashes), _SLICE * HASH_BYTES):
        numbers = _numbers_of(hashes[at : at + _SLICE * HASH_BYTES])
        parts.append(array("Q", sorted([number << _ORDINAL_BITS | ordinal for number in numbers])))
    return merge(parts)


def merge(parts: Sequence[array[int]]) -> array[int]:
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
