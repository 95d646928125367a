"""The looks of data files: all that the words and column ids of a file say, kept from one that was checked. Pure.

Files of one writer differ in path and numbers; their format, spec and columns are those of the file before. What depends on
these alone is checked once, by `wire_files`. What is left for the next file is done for all its columns in a few steps:
one step for each column and statistic was most of what it took to take a file in.

Never says what is wrong: what may be wrong is None, and is looked at by the long way, which names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import call, gt
from typing import Any

from headgate.core.change import BoundMap, CountMap, WireFile
from headgate.core.manifest import Metrics
from headgate.core.single_values import UNREADABLE, BoundReader
from headgate.core.value import Record

_LOOKS_MAX = 256
_IDS_MAX = 1 << 16  # of all looks: a column counts once for each of its statistics

Key = tuple[object, ...]  # the words and column ids of a file
_Read = Callable[[bytes], Any]
_unhex = bytes.fromhex


class Look(Record):
    """What files that look alike have in common."""

    file_format: str
    is_partitioned: bool
    lower: tuple[_Read, ...]
    upper: tuple[_Read, ...]
    # Where the bounds stand whose lower one must not be above the upper.
    lower_at: tuple[int, ...]
    upper_at: tuple[int, ...]

    def read_metrics(
        self,
        sizes: CountMap | None,
        values: CountMap | None,
        nulls: CountMap | None,
        nans: CountMap | None,
        lower: BoundMap | None,
        upper: BoundMap | None,
    ) -> Metrics | None:
        """The statistics of a file of this look; None for those that may be wrong."""
        try:
            size_of = None if sizes is None else dict(zip(sizes.keys, sizes.values, strict=True))
            count_of = None if values is None else dict(zip(values.keys, values.values, strict=True))
            nulls_of = None if nulls is None else dict(zip(nulls.keys, nulls.values, strict=True))
            nans_of = None if nans is None else dict(zip(nans.keys, nans.values, strict=True))
            if count_of is not None:
                if nulls is not None and any(
                    map(gt, nulls.values, map(count_of.get, nulls.keys, nulls.values))
                ):
                    return None
                if nans is not None and any(map(gt, nans.values, map(count_of.get, nans.keys, nans.values))):
                    return None
            least = None if lower is None else dict(zip(lower.keys, map(_unhex, lower.values), strict=True))
            most = None if upper is None else dict(zip(upper.keys, map(_unhex, upper.values), strict=True))
            lowest = () if least is None else tuple(map(call, self.lower, least.values()))
            highest = () if most is None else tuple(map(call, self.upper, most.values()))
            if any(map(gt, map(lowest.__getitem__, self.lower_at), map(highest.__getitem__, self.upper_at))):
                return None
        except UNREADABLE:
            return None
        return Metrics(size_of, count_of, nulls_of, nans_of, least, most)


class Looks:
    """The looks of a table's data files; bounded. Safe to share between threads."""

    def __init__(self, readers: Mapping[int, BoundReader]) -> None:
        self._readers = readers
        self._known: dict[Key, Look] = {}
        self._id_count = 0
        self.find = self._known.get  # a look by its key, or None

    def learn(self, key: Key, wire: WireFile, file_format: str, *, is_partitioned: bool) -> None:
        """Keep the look of a data file in which nothing is wrong, if it is one that others may have."""
        lower = () if wire.lower_bounds is None else wire.lower_bounds.keys
        upper = () if wire.upper_bounds is None else wire.upper_bounds.keys
        readers, places = self._readers, {id_: at for at, id_ in enumerate(upper)}
        if wire.key_metadata is not None or not all(id_ in readers for id_ in (*lower, *upper)):
            return  # its own, or with bounds of columns that only other readers know
        both = [
            (at, places[id_]) for at, id_ in enumerate(lower) if id_ in places and readers[id_].is_ordered
        ]
        look = Look(
            file_format,
            is_partitioned,
            tuple([readers[id_].read_quickly for id_ in lower]),
            tuple([readers[id_].read_quickly for id_ in upper]),
            tuple([at for at, _ in both]),
            tuple([at for _, at in both]),
        )
        self._id_count += sum([len(part) for part in key if isinstance(part, tuple)])
        if len(self._known) >= _LOOKS_MAX or self._id_count > _IDS_MAX:
            # Writers whose files all look different are not helped; whoever comes after them is.
            self._known.clear()
            self._id_count = 0
        self._known[key] = look
