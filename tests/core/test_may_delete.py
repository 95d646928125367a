"""Which delete file may delete from which data file: by path, by partition, by the bounds of its columns."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from headgate.core.conflicts import may_delete_from, referenced_data_file
from headgate.core.intake import DELETE_PATH_ID
from headgate.core.manifest import ContentFile, FileContent, Metrics
from headgate.errors import BadInput
from tests.core.builders import column, list_of, schema

SCHEMA = schema(column(1, "id", required=True), column(2, "n"), column(3, "tags", list_of("long")))


def _file(content: FileContent = FileContent.DATA, path: str = "d", **more: Any) -> ContentFile:
    defaults = {"file_format": "PARQUET", "spec_id": 0, "partition": (), "record_count": 4}
    return ContentFile(content=content, file_path=path, file_size_in_bytes=1, **{**defaults, **more})


def _metrics(id_: int, low: int | None, high: int | None, nulls: int | None = 0) -> Metrics:
    pack = struct.Struct("<q").pack
    return Metrics(
        value_counts={id_: 4},
        null_value_counts=None if nulls is None else {id_: nulls},
        lower_bounds=None if low is None else {id_: pack(low)},
        upper_bounds=None if high is None else {id_: pack(high)},
    )


def _keys(*ids: int, **more: Any) -> ContentFile:
    return _file(FileContent.EQUALITY_DELETES, "e", equality_ids=ids, **more)


def _positions(**more: Any) -> ContentFile:
    return _file(FileContent.POSITION_DELETES, "p", **more)


def _path_bounds(low: str, high: str) -> Metrics:
    return Metrics(lower_bounds={DELETE_PATH_ID: low.encode()}, upper_bounds={DELETE_PATH_ID: high.encode()})


def test_position_deletes_are_for_the_file_they_name_or_whose_path_both_bounds_are() -> None:
    assert referenced_data_file(_positions(referenced_data_file="d")) == "d"
    assert referenced_data_file(_positions(metrics=_path_bounds("d", "d"))) == "d"
    assert referenced_data_file(_positions(metrics=_path_bounds("c", "d"))) is None
    assert referenced_data_file(_positions()) is None
    assert referenced_data_file(_keys(1)) is None


def test_position_deletes_of_one_file_delete_from_no_other() -> None:
    assert may_delete_from(_positions(referenced_data_file="d"), _file(), SCHEMA)
    assert not may_delete_from(_positions(referenced_data_file="x"), _file(), SCHEMA)


def test_position_deletes_of_many_files_may_delete_in_their_own_partition() -> None:
    here, there = ((1000, "a"),), ((1000, "b"),)
    assert may_delete_from(_positions(partition=here), _file(partition=here), SCHEMA)
    assert not may_delete_from(_positions(partition=here), _file(partition=there), SCHEMA)
    assert not may_delete_from(_positions(partition=here), _file(partition=here, spec_id=1), SCHEMA)


def test_equality_deletes_without_a_partition_may_delete_everywhere() -> None:
    here, there = ((1000, "a"),), ((1000, "b"),)
    assert may_delete_from(_keys(1), _file(partition=here, spec_id=1), SCHEMA)
    assert may_delete_from(_keys(1, partition=here), _file(partition=here), SCHEMA)
    assert not may_delete_from(_keys(1, partition=here), _file(partition=there), SCHEMA)


# id of the column | bounds and nulls of the delete file | of the data file | may it delete
OVERLAPS: list[tuple[str, int, tuple[Any, ...], tuple[Any, ...], bool]] = [
    ("ranges meet", 1, (1, 5), (5, 9), True),
    ("ranges do not meet", 1, (1, 4), (5, 9), False),
    ("the other way round", 1, (5, 9), (1, 4), False),
    ("a bound is missing", 1, (1, None), (5, 9), True),
    ("both hold nulls", 2, (1, 4, 1), (5, 9, 1), True),
    ("nulls are not counted on either side", 2, (1, 4, None), (5, 9, None), True),
    ("only the data holds nulls", 2, (1, 4, 0), (5, 9, 1), False),
    ("a required column holds no nulls, whatever is counted", 1, (1, 4, 1), (5, 9, 1), False),
    ("the data is all null, no null is deleted", 2, (1, 4, 0), (None, None, 4), False),
    ("only nulls are deleted, the data has none", 2, (None, None, 4), (1, 4, 0), False),
    ("only nulls are deleted, the data may have some", 2, (None, None, 4), (1, 4, None), True),
]


@pytest.mark.parametrize("row", OVERLAPS, ids=lambda row: row[0])
def test_equality_deletes_may_delete_where_values_or_nulls_meet(
    row: tuple[str, int, tuple[Any, ...], tuple[Any, ...], bool],
) -> None:
    _, id_, theirs, ours, expected = row
    delete = _keys(id_, metrics=_metrics(id_, *theirs))
    assert may_delete_from(delete, _file(metrics=_metrics(id_, *ours)), SCHEMA) is expected


@pytest.mark.parametrize("id_", [3, 99], ids=["no primitive column", "no column any more"])
def test_a_column_that_cannot_be_compared_may_delete(id_: int) -> None:
    delete = _keys(id_, metrics=_metrics(id_, 1, 1))
    assert may_delete_from(delete, _file(metrics=_metrics(id_, 5, 5)), SCHEMA)


def test_files_without_statistics_may_delete() -> None:
    assert may_delete_from(_keys(1), _file(), SCHEMA)


def test_one_column_apart_is_enough() -> None:
    theirs = Metrics(
        null_value_counts={1: 0, 2: 0},
        lower_bounds=dict.fromkeys((1, 2), struct.pack("<q", 1)),
        upper_bounds=dict.fromkeys((1, 2), struct.pack("<q", 1)),
    )
    assert not may_delete_from(_keys(1, 2, metrics=theirs), _file(metrics=_metrics(2, 5, 5)), SCHEMA)


def test_a_bound_that_does_not_decode_is_an_error_that_names_the_file() -> None:
    broken = Metrics(lower_bounds={1: b"x"}, upper_bounds={1: b"x"})
    with pytest.raises(BadInput, match="column 1"):
        may_delete_from(_keys(1, metrics=broken), _file(metrics=_metrics(1, 1, 1)), SCHEMA)
