"""Which delete file may delete from which data file: by path, by partition, by the bounds of its columns."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from headgate.core.delete_index import DeleteIndex, referenced_data_file
from headgate.core.manifest import DELETE_PATH_ID, ContentFile, FileContent, Metrics
from headgate.core.partitioning import PartitionSpec
from headgate.core.table import TableMetadata
from headgate.core.window import Theirs
from tests.core.builders import column, list_of, part, schema, snapshot, table
from tests.core.builders import struct as struct_of

DIVIDED, WHOLE, VOID = 0, 1, 2


def _table() -> TableMetadata:
    columns = (
        column(1, "id", required=True),
        column(2, "n"),
        column(3, "tags", list_of("long")),
        column(4, "ratio", "double"),
        column(5, "maybe", struct_of(column(6, "inner", required=True))),
    )
    made = table(schema=schema(*columns))
    specs = (
        PartitionSpec(fields=(part(2, name="n", field_id=1000),), spec_id=DIVIDED),
        PartitionSpec(fields=(), spec_id=WHOLE),
        PartitionSpec(fields=(part(2, "void", name="n", field_id=1000),), spec_id=VOID),
    )
    return replace(made, envelope=msgspec.structs.replace(made.envelope, partition_specs=specs))


TABLE = _table()
INNER = 7  # fresh ids are given level by level


def may_delete_from(delete: ContentFile, data: ContentFile) -> bool:
    return DeleteIndex([Theirs(snapshot(1), delete, 1)], TABLE).find(data) is not None


def _file(content: FileContent = FileContent.DATA, path: str = "d", **more: Any) -> ContentFile:
    defaults = {"file_format": "PARQUET", "spec_id": WHOLE, "partition": (), "record_count": 4}
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
    assert may_delete_from(_positions(referenced_data_file="d"), _file())
    assert not may_delete_from(_positions(referenced_data_file="x"), _file())


@pytest.mark.parametrize("bound", [b"\xff", b"\xed\xa0\x80"])
def test_path_bounds_that_do_not_decode_name_no_file_so_the_partition_decides(bound: bytes) -> None:
    broken = Metrics(lower_bounds={DELETE_PATH_ID: bound}, upper_bounds={DELETE_PATH_ID: bound})
    assert referenced_data_file(_positions(metrics=broken)) is None
    assert may_delete_from(_positions(metrics=broken), _file())
    assert not may_delete_from(_positions(metrics=broken), _file(partition=HERE, spec_id=DIVIDED))


HERE, THERE = ((1000, "a"),), ((1000, "b"),)


def test_position_deletes_of_many_files_may_delete_in_their_own_partition() -> None:
    delete = _positions(partition=HERE, spec_id=DIVIDED)
    assert may_delete_from(delete, _file(partition=HERE, spec_id=DIVIDED))
    assert not may_delete_from(delete, _file(partition=THERE, spec_id=DIVIDED))
    assert not may_delete_from(delete, _file(partition=HERE, spec_id=VOID))


def test_equality_deletes_of_a_partition_delete_from_no_other() -> None:
    delete = _keys(1, partition=HERE, spec_id=DIVIDED)
    assert may_delete_from(delete, _file(partition=HERE, spec_id=DIVIDED))
    assert not may_delete_from(delete, _file(partition=THERE, spec_id=DIVIDED))


@pytest.mark.parametrize(("spec_id", "partition"), [(WHOLE, ()), (VOID, ((1000, None),))], ids=["no", "void"])
def test_equality_deletes_of_a_spec_that_divides_nothing_may_delete_everywhere(
    spec_id: int, partition: Any
) -> None:
    delete = _keys(1, spec_id=spec_id, partition=partition)
    assert may_delete_from(delete, _file(partition=HERE, spec_id=DIVIDED))
    assert may_delete_from(delete, _file(partition=((1000, None),), spec_id=VOID))
    assert may_delete_from(delete, _file())


def test_position_deletes_of_a_spec_of_voids_stay_in_their_spec() -> None:
    delete = _positions(partition=((1000, None),), spec_id=VOID)
    assert may_delete_from(delete, _file(partition=((1000, None),), spec_id=VOID))
    assert not may_delete_from(delete, _file(partition=HERE, spec_id=DIVIDED))


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
    ("a required field of an optional struct may be null", INNER, (1, 4, 1), (5, 9, 1), True),
]


@pytest.mark.parametrize("row", OVERLAPS, ids=lambda row: row[0])
def test_equality_deletes_may_delete_where_values_or_nulls_meet(
    row: tuple[str, int, tuple[Any, ...], tuple[Any, ...], bool],
) -> None:
    _, id_, theirs, ours, expected = row
    delete = _keys(id_, metrics=_metrics(id_, *theirs))
    assert may_delete_from(delete, _file(metrics=_metrics(id_, *ours))) is expected


@pytest.mark.parametrize("id_", [3, 99], ids=["no primitive column", "no column any more"])
def test_a_column_that_cannot_be_compared_may_delete(id_: int) -> None:
    delete = _keys(id_, metrics=_metrics(id_, 1, 1))
    assert may_delete_from(delete, _file(metrics=_metrics(id_, 5, 5)))


def test_files_without_statistics_may_delete() -> None:
    assert may_delete_from(_keys(1), _file())


def test_one_column_apart_is_enough() -> None:
    theirs = Metrics(
        null_value_counts={1: 0, 2: 0},
        lower_bounds=dict.fromkeys((1, 2), struct.pack("<q", 1)),
        upper_bounds=dict.fromkeys((1, 2), struct.pack("<q", 1)),
    )
    assert not may_delete_from(_keys(1, 2, metrics=theirs), _file(metrics=_metrics(2, 5, 5)))


# what | NaNs that the delete file counts | that the data file counts | may it delete
NANS: list[tuple[str, int | None, int | None, bool]] = [
    ("both hold NaN", 1, 1, True),
    ("nobody counted", None, None, True),
    ("the data may hold some", 1, None, True),
    ("only the data holds NaN", 0, 1, False),
    ("only NaN of the delete file", 1, 0, False),
    ("neither holds NaN", 0, 0, False),
]


@pytest.mark.parametrize("row", NANS, ids=lambda row: row[0])
def test_bounds_of_floats_decide_nothing_where_both_may_hold_nan(
    row: tuple[str, int | None, int | None, bool],
) -> None:
    def metrics(value: float, nans: int | None) -> Metrics:
        bounds = {4: struct.pack("<d", value)}
        counts = None if nans is None else {4: nans}
        return Metrics(
            null_value_counts={4: 0}, nan_value_counts=counts, lower_bounds=bounds, upper_bounds=bounds
        )

    _, theirs, ours, expected = row
    assert may_delete_from(_keys(4, metrics=metrics(5, theirs)), _file(metrics=metrics(1, ours))) is expected


@pytest.mark.parametrize("bound", [b"", b"x", b"123456789"])
def test_a_bound_that_does_not_decode_decides_nothing(bound: bytes) -> None:
    broken = Metrics(lower_bounds={1: bound}, upper_bounds={1: bound})
    assert may_delete_from(_keys(1, metrics=broken), _file(metrics=_metrics(1, 1, 1)))
    assert may_delete_from(_keys(1, metrics=_metrics(1, 1, 1)), _file(metrics=broken))


def test_of_many_delete_files_the_one_that_may_delete_is_found() -> None:
    deletes = [
        _positions(referenced_data_file="x"),
        _keys(1, metrics=_metrics(1, 1, 4)),
        _keys(1, 2, metrics=_metrics(1, 9, 9)),
    ]
    index = DeleteIndex([Theirs(snapshot(n), file, n) for n, file in enumerate(deletes, 1)], TABLE)
    found = [
        index.find(_file(path=path, metrics=_metrics(1, n, n))) for path, n in [("d", 9), ("x", 7), ("d", 7)]
    ]
    assert [their and their.snapshot.snapshot_id for their in found] == [3, 1, None]
