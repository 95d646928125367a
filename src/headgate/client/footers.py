"""What a Parquet footer says of the columns that a table knows: counts, sizes, bounds, and whether there are NaNs.

A footer of parquet-mr shows NaNs: they are the greatest value of a column. In other footers nothing tells, so that
the column has no bounds unless its NaNs were counted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.client.bounds import ParquetType, Raw, encode_bound, holds, reader_of, to_json_value
from headgate.client.metrics_modes import COUNTS, NONE, Leaf
from headgate.errors import BadInput

UNKNOWN = object()  # a value that the footer does not tell
_ID = b"PARQUET:field_id"
_FLOATS = ("float", "double")
# Later versions may leave NaNs out of statistics, as the format has allowed since; earlier ones had none to trust.
_NAN_IS_GREATEST = re.compile(r"parquet-mr version 1\.1[2-6]\.")


@dataclass(frozen=True, slots=True)
class Floats:
    """A column of floats that was looked at: how many NaNs it has, and the extremes of the others."""

    nans: int
    low: float | None
    high: float | None


@dataclass(slots=True)
class Column:
    """What the row groups say of one leaf column."""

    leaf: Leaf
    mode: int
    path: str  # in the file
    stored: ParquetType
    nan_is_greatest: bool
    size_bytes: int = 0
    values: int = 0
    nulls: int | None = 0
    nans: int | None = None
    bounded: bool = True
    low: list[Raw] = field(default_factory=list)
    high: list[Raw] = field(default_factory=list)

    def add(self, chunk: Any) -> None:
        """Take one row group's part in."""
        self.size_bytes += chunk.total_compressed_size
        self.values += chunk.num_values
        found = chunk.statistics if chunk.is_stats_set else None
        if found is None or not found.has_null_count:
            self.nulls = None
        elif self.nulls is not None:
            self.nulls += found.null_count
        if found is not None and found.has_min_max:
            self.low.append(found.min_raw)
            self.high.append(found.max_raw)
        elif found is None or not found.has_null_count or found.null_count < chunk.num_values:
            self.bounded = False  # it has values of which nothing is known

    @property
    def is_float(self) -> bool:
        """Whether the column may hold NaNs."""
        return self.leaf.type in _FLOATS

    def look_at(self, count: Callable[[str], Floats] | None) -> None:
        """Find out about NaNs: from the footer where it shows them, or else by counting."""
        if not self.is_float or self.leaf.repeated or self.mode == NONE:
            return
        shown = self.nan_is_greatest and self.bounded and not any(_is_nan(raw) for raw in self.high)
        if shown or self.nulls == self.values:
            self.nans = 0
        elif count is not None:
            found = count(self.path)
            self.nans, self.bounded = found.nans, found.low is not None and found.high is not None
            self.low = [] if found.low is None else [found.low]
            self.high = [] if found.high is None else [found.high]

    def bound(self, *, upper: bool) -> bytes | None:
        """A bound in single-value serialization."""
        read = reader_of(self.leaf.type, self.stored)
        unsure = self.leaf.repeated or self.mode <= COUNTS or (self.is_float and self.nans is None)
        if read is None or unsure or not self.bounded or not self.low:
            return None
        try:
            values = [read(raw) for raw in (self.high if upper else self.low)]
        except UnicodeDecodeError:
            return None  # a statistic that was cut in the middle of a character
        extreme: Any = (max if upper else min)(values)  # all of one type
        return encode_bound(self.leaf.type, extreme, upper=upper, length=self.mode)

    def only_value(self) -> object:
        """The one value that all rows have, as JSON; `UNKNOWN` when the footer does not say that they do."""
        if self.nulls == self.values:
            return None
        read = reader_of(self.leaf.type, self.stored)
        if read is None or self.is_float or self.leaf.repeated or not self.bounded or self.nulls != 0:
            return UNKNOWN
        try:
            found = {read(raw) for raw in (*self.low, *self.high)}
        except UnicodeDecodeError:
            return UNKNOWN
        return to_json_value(self.leaf.type, found.pop()) if len(found) == 1 else UNKNOWN


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table, as files are read by them."""

    leaves: Mapping[int, Leaf]
    modes: Mapping[int, int]
    tops: frozenset[int]  # the ids of those that stand at the top
    names: Mapping[str, int]  # for files without field ids


def read_columns(footer: Any, arrow: Any, table: TableColumns) -> list[Column]:
    """The leaf columns that the table knows, with what all row groups say of them."""
    has_ids = any(_field_id(column) is not None for column in arrow)
    nan_is_greatest = _NAN_IS_GREATEST.match(footer.created_by or "") is not None
    found: list[Column] = []
    for at, (inside, top) in enumerate(part for column in arrow for part in _leaves(column, top=True)):
        id_ = _field_id(inside) if has_ids else table.names.get(inside.name) if top else None
        if id_ is None or id_ not in table.leaves:
            if top and id_ in table.tops:
                raise BadInput(
                    f"column {inside.name}: the file holds one column, the table has columns in it",
                    field=inside.name,
                )
            continue  # no reader of the table looks at it
        leaf, schema = table.leaves[id_], footer.schema.column(at)
        stored = ParquetType(schema.physical_type, json.loads(schema.logical_type.to_json()))
        if not holds(leaf.type, stored):
            raise BadInput(
                f"column {leaf.name}: the file holds {stored}, the table {leaf.type}", field=leaf.name
            )
        column = Column(leaf, table.modes[id_], schema.path, stored, nan_is_greatest)
        for group in range(footer.num_row_groups):
            column.add(footer.row_group(group).column(at))
        found.append(column)
    return found


def describe_columns(columns: Iterable[Column]) -> dict[str, Any]:
    """Sizes, counts and bounds as content-file JSON, as far as the columns' modes go."""
    told = [column for column in columns if column.mode != NONE]
    plain = [column for column in told if not column.leaf.repeated]
    described = {
        "column-sizes": _map({c.leaf.id: c.size_bytes for c in told}),
        "value-counts": _map({c.leaf.id: c.values for c in plain}),
        "null-value-counts": _map({c.leaf.id: c.nulls for c in plain if c.nulls is not None}),
        "nan-value-counts": _map({c.leaf.id: c.nans for c in plain if c.nans is not None}),
    }
    for name, upper in (("lower-bounds", False), ("upper-bounds", True)):
        found = {c.leaf.id: c.bound(upper=upper) for c in plain}
        described[name] = _map({id_: bound.hex() for id_, bound in found.items() if bound is not None})
    return described


def split_offsets(footer: Any) -> list[int]:
    """Where each row group starts: at its first column's dictionary, if there is one."""
    offsets = []
    for group in range(footer.num_row_groups):
        if footer.num_columns == 0:
            return []
        first = footer.row_group(group).column(0)
        starts = [first.data_page_offset]
        if first.has_dictionary_page and first.dictionary_page_offset is not None:
            starts.append(first.dictionary_page_offset)
        offsets.append(min(starts))
    return sorted(offsets)


def _map(found: Mapping[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(found), "values": list(found.values())}


def _leaves(column: Any, *, top: bool) -> Iterator[tuple[Any, bool]]:
    """Leaf fields in the order of Parquet's columns, and whether each stands at the top."""
    type_ = getattr(column.type, "storage_type", column.type)  # of an extension type, how it is stored
    if type_.num_fields == 0 or hasattr(type_, "index_type"):  # a dictionary is one column
        yield column, top
        return
    for i in range(type_.num_fields):
        yield from _leaves(type_.field(i), top=False)


def _field_id(column: Any) -> int | None:
    text = (column.metadata or {}).get(_ID)
    return None if text is None or int(text) < 0 else int(text)


def _is_nan(raw: Raw) -> bool:
    return isinstance(raw, float) and math.isnan(raw)
