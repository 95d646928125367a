"""Which delete file may delete from which data file: by path, by partition, by what its columns may hold. Pure.

As Java's DeleteFileIndex, but careful where statistics say less than it takes them to say (docs/adr/0006).
Delete files may come from any writer: bounds that do not decode decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.types import DoubleType, FloatType, PrimitiveType

from headgate.core.manifest import DELETE_PATH_ID, ContentFile, FileContent, Metrics
from headgate.core.metrics_filter import UNREADABLE
from headgate.core.partitioning import is_unpartitioned
from headgate.core.schema import parse_primitive, struct_fields, walk_fields
from headgate.core.table import TableMetadata
from headgate.core.taken import Partition, partition_of
from headgate.core.window import Theirs


def referenced_data_file(delete: ContentFile) -> str | None:
    """The one data file that a position delete file is for, told by the writer or by its path bounds."""
    if delete.content is FileContent.EQUALITY_DELETES:
        return None
    if delete.referenced_data_file is not None:
        return delete.referenced_data_file
    metrics = delete.metrics or Metrics()
    lower = (metrics.lower_bounds or {}).get(DELETE_PATH_ID)
    upper = (metrics.upper_bounds or {}).get(DELETE_PATH_ID)
    if lower is None or lower != upper:
        return None
    try:
        return lower.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True, slots=True)
class _Values:
    """What a column of one file may hold."""

    nulls: bool
    only_nulls: bool
    nans: bool
    bounds: tuple[Any, Any] | None

    def may_meet(self, other: _Values) -> bool:
        """Whether a value may be in both."""
        if self.nulls and other.nulls:
            return True  # a null deletes nulls
        if (self.only_nulls and not other.nulls) or (other.only_nulls and not self.nulls):
            return False
        if self.nans and other.nans:
            return True  # no bound tells of NaN
        if self.bounds is None or other.bounds is None:
            return True
        (low, high), (their_low, their_high) = self.bounds, other.bounds
        return not (high < their_low or their_high < low)


@dataclass(frozen=True, slots=True)
class _Delete:
    theirs: Theirs
    columns: dict[int, _Values]  # of equality deletes, as far as they can be compared


class DeleteIndex:
    """Delete files that are newer than the data, found by the data files that they may concern."""

    def __init__(self, deletes: Iterable[Theirs], table: TableMetadata) -> None:
        schema = table.schema()
        self._types: dict[int, PrimitiveType] = {}
        for _, _, id_, type_ in walk_fields(schema):
            if isinstance(type_, str) and (primitive := parse_primitive(type_)) is not None:
                self._types[id_] = primitive
        self._required = {
            id_ for id_, (field, outer) in struct_fields(schema).items() if field.required and outer
        }
        divided = {s.spec_id for s in table.envelope.partition_specs if not is_unpartitioned(s)}
        self._by_path: dict[str, list[_Delete]] = {}
        self._by_partition: dict[Partition, list[_Delete]] = {}
        self._everywhere: list[_Delete] = []
        for theirs in deletes:
            file = theirs.file
            delete = _Delete(theirs, self._describe(file, file.equality_ids or ()))
            if (path := referenced_data_file(file)) is not None:
                self._by_path.setdefault(path, []).append(delete)
            elif file.content is FileContent.EQUALITY_DELETES and file.spec_id not in divided:
                self._everywhere.append(delete)
            else:
                self._by_partition.setdefault(partition_of(file), []).append(delete)

    def find(self, data: ContentFile) -> Theirs | None:
        """The first delete file that could concern a row of the data file."""
        ours: dict[int, _Values] = {}
        for delete in chain(
            self._by_path.get(data.file_path, ()),
            self._by_partition.get(partition_of(data), ()),
            self._everywhere,
        ):
            ours |= self._describe(data, delete.columns.keys() - ours.keys())
            if all(values.may_meet(ours[id_]) for id_, values in delete.columns.items()):
                return delete.theirs
        return None

    def _describe(self, file: ContentFile, ids: Iterable[int]) -> dict[int, _Values]:
        metrics = file.metrics or Metrics()
        return {id_: self._values(metrics, id_, self._types[id_]) for id_ in ids if id_ in self._types}

    def _values(self, metrics: Metrics, id_: int, type_: PrimitiveType) -> _Values:
        nulls, values = (metrics.null_value_counts or {}).get(id_), (metrics.value_counts or {}).get(id_)
        may_be_null = id_ not in self._required
        may_be_nan = isinstance(type_, FloatType | DoubleType)
        return _Values(
            nulls=may_be_null and nulls != 0,
            only_nulls=may_be_null and nulls is not None and nulls == values,
            nans=may_be_nan and (metrics.nan_value_counts or {}).get(id_) != 0,
            bounds=_decode_bounds(metrics, id_, type_),
        )


def _decode_bounds(metrics: Metrics, id_: int, type_: PrimitiveType) -> tuple[Any, Any] | None:
    lower, upper = (metrics.lower_bounds or {}).get(id_), (metrics.upper_bounds or {}).get(id_)
    if lower is None or upper is None:
        return None
    try:
        low, high = from_bytes(type_, lower), from_bytes(type_, upper)
        # Java orders UUIDs by signed halves, so that its bounds may stand the wrong way round for us.
        return None if high < low else (low, high)
    except UNREADABLE:
        return None
