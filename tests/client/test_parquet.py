"""Content files made from Parquet footers: against PyIceberg's own, and where the footer does not tell."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.types import StringType

from headgate.client import describe_parquet
from headgate.client.bounds import encode_bound, to_json_value
from headgate.client.metrics_modes import TRUNCATE_LENGTH
from headgate.errors import BadInput, NotFound

# name, type of the table, type of Arrow, values
COLUMNS: list[tuple[str, Any, pa.DataType, list[Any]]] = [
    ("flag", "boolean", pa.bool_(), [True, False, None]),
    ("small", "int", pa.int32(), [-5, 7, 2]),
    ("big", "long", pa.int64(), [2**40, None, -(2**50)]),
    ("widened", "long", pa.int32(), [1, 2, 3]),
    ("amount", "decimal(9,2)", pa.decimal128(9, 2), [Decimal("-1.23"), Decimal("4.50"), Decimal("0.00")]),
    (
        "huge",
        "decimal(38,4)",
        pa.decimal128(38, 4),
        [Decimal("-123456789012345678901234567890.1234"), None, None],
    ),
    ("day", "date", pa.date32(), [date(1960, 2, 3), date(2024, 2, 29), None]),
    ("clock", "time", pa.time64("us"), [time(1, 2, 3, 4), None, time(23, 59)]),
    ("at", "timestamp", pa.timestamp("us"), [datetime(1969, 1, 1, 1, 1, 1, 7), None, datetime(2024, 1, 1)]),
    ("seen", "timestamptz", pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, tzinfo=UTC), None, None]),
    ("name", "string", pa.string(), ["short", "a text of more than sixteen", None]),
    ("blob", "binary", pa.binary(), [b"\xff" * 20, b"\x00", b"abc"]),
    ("hash", "fixed[4]", pa.binary(4), [b"abcd", b"\xff\xff\xff\xff", None]),
    ("uid", "uuid", pa.binary(16), [UUID(int=5).bytes, UUID(int=2**127).bytes, None]),
    ("nothing", "string", pa.string(), [None, None, None]),
]
FLOATS: list[tuple[str, Any, pa.DataType, list[Any]]] = [
    ("ratio", "float", pa.float32(), [1.5, float("nan"), 2.5]),
    ("score", "double", pa.float64(), [1.0, 2.0, None]),
]


def metadata_of(columns: list[tuple[str, Any, pa.DataType, list[Any]]], **parts: Any) -> dict[str, Any]:
    fields = [
        {"id": i, "name": c[0], "type": c[1], "required": False} for i, c in enumerate(columns, start=1)
    ]
    return {
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": parts.pop("spec", [])}],
        "properties": parts.pop("properties", {}),
        **parts,
    }


def write(
    folder: Path, columns: list[tuple[str, Any, pa.DataType, list[Any]]], *, ids: bool = True, **options: Any
) -> Path:
    fields = [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(i)} if ids else None)
        for i, (name, _, kind, _) in enumerate(columns, start=1)
    ]
    arrays = [pa.array(values, kind) for _, _, kind, values in columns]
    file = folder / "f.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), file, **options)
    return file


def map_of(described: dict[str, Any], name: str) -> dict[int, Any]:
    return dict(zip(described[name]["keys"], described[name]["values"], strict=True))


def identity(source: int, name: str, transform: str = "identity") -> dict[str, Any]:
    return {"source-id": source, "field-id": 1000 + source, "name": name, "transform": transform}


@pytest.mark.parametrize("row_group_size", [1, 2, 100])
@pytest.mark.parametrize("as_integer", [True, False])
def test_counts_sizes_and_bounds_are_those_of_pyiceberg(
    tmp_path: Path, row_group_size: int, as_integer: bool
) -> None:
    file = write(tmp_path, COLUMNS, row_group_size=row_group_size, store_decimal_as_integer=as_integer)
    metadata = metadata_of(COLUMNS)
    ours = describe_parquet(file, metadata)
    schema = Schema.model_validate(metadata["schemas"][0])
    theirs = data_file_statistics_from_parquet_metadata(
        pq.read_metadata(file), compute_statistics_plan(schema, {}), parquet_path_to_id_mapping(schema)
    )
    assert ours["record-count"] == 3
    assert ours["file-size-in-bytes"] == file.stat().st_size
    assert ours["split-offsets"] == theirs.split_offsets
    assert map_of(ours, "column-sizes") == theirs.column_sizes
    assert map_of(ours, "value-counts") == theirs.value_counts
    assert map_of(ours, "null-value-counts") == theirs.null_value_counts
    their_file = theirs.to_serialized_dict()
    for name, ending in (("lower-bounds", "lower_bounds"), ("upper-bounds", "upper_bounds")):
        assert map_of(ours, name) == {id_: bound.hex() for id_, bound in their_file[ending].items()}


def test_a_column_of_floats_has_counts_and_no_bounds(tmp_path: Path) -> None:
    described = describe_parquet(write(tmp_path, FLOATS), metadata_of(FLOATS))
    assert map_of(described, "null-value-counts") == {1: 0, 2: 1}
    assert described["lower-bounds"]["keys"] == described["upper-bounds"]["keys"] == []


def test_floats_that_may_be_read_have_their_nans_counted_and_bounds_without_them(tmp_path: Path) -> None:
    nan = float("nan")
    columns: list[tuple[str, Any, pa.DataType, list[Any]]] = [
        ("ratio", "float", pa.float32(), [1.5, nan, 2.5]),
        ("score", "double", pa.float64(), [0.0, 2.0, None]),
        ("only", "double", pa.float64(), [nan, nan, None]),
        ("absent", "double", pa.float64(), [None, None, None]),
    ]
    file = write(tmp_path, columns, row_group_size=2)
    described = describe_parquet(file, metadata_of(columns), reads_nans=True)
    assert map_of(described, "nan-value-counts") == {1: 1, 2: 0, 3: 2, 4: 0}
    lower = {1: struct.pack("<f", 1.5).hex(), 2: struct.pack("<d", -0.0).hex()}
    assert map_of(described, "lower-bounds") == lower
    upper = {1: struct.pack("<f", 2.5).hex(), 2: struct.pack("<d", 2.0).hex()}
    assert map_of(described, "upper-bounds") == upper


def test_the_metrics_mode_of_a_column_says_what_is_told_of_it(tmp_path: Path) -> None:
    columns: list[tuple[str, Any, pa.DataType, list[Any]]] = [
        ("name", "string", pa.string(), ["abc to be more than sixteen"]),
        ("other", "int", pa.int32(), [1]),
    ]
    file = write(tmp_path, columns)
    full = b"abc to be more than sixteen".hex()
    cases = {
        "none": ([2], [2], {}, {}),
        "counts": ([1, 2], [1, 2], {}, {}),
        "truncate(2)": ([1, 2], [1, 2], {1: b"ab".hex()}, {1: b"ac".hex()}),
        "full": ([1, 2], [1, 2], {1: full}, {1: full}),
    }
    for mode, (sizes, counts, lower, upper) in cases.items():
        properties = {"write.metadata.metrics.column.name": mode}
        described = describe_parquet(file, metadata_of(columns, properties=properties))
        assert described["column-sizes"]["keys"] == sizes
        assert described["null-value-counts"]["keys"] == counts
        one = {2: struct.pack("<i", 1).hex()}
        assert map_of(described, "lower-bounds") == lower | one
        assert map_of(described, "upper-bounds") == upper | one
    with pytest.raises(BadInput) as caught:
        describe_parquet(file, metadata_of(columns, properties={"write.metadata.metrics.default": "some"}))
    assert caught.value.field == "write.metadata.metrics.default"


def test_a_wide_table_is_told_of_by_its_first_columns_and_those_it_is_sorted_by(tmp_path: Path) -> None:
    columns: list[tuple[str, Any, pa.DataType, list[Any]]] = [
        (f"c{i}", "int", pa.int32(), [i]) for i in range(5)
    ]
    order = {"order-id": 1, "fields": [{"source-id": 4, "transform": "identity"}]}
    metadata = metadata_of(
        columns,
        properties={"write.metadata.metrics.max-inferred-column-defaults": "2"},
        **{"sort-orders": [order], "default-sort-order-id": 1},
    )
    described = describe_parquet(write(tmp_path, columns), metadata)
    assert described["value-counts"]["keys"] == described["lower-bounds"]["keys"] == [1, 2, 4]


@pytest.mark.parametrize("mapped", [True, False])
def test_a_file_without_ids_is_read_by_names(tmp_path: Path, mapped: bool) -> None:
    file = write(tmp_path, COLUMNS, ids=False)
    mapping = json.dumps([{"field-id": 2, "names": ["old", "small"]}])
    properties = {"schema.name-mapping.default": mapping} if mapped else {}
    described = describe_parquet(file, metadata_of(COLUMNS, properties=properties))
    expected = {2: 3} if mapped else dict.fromkeys(range(1, len(COLUMNS) + 1), 3)
    assert map_of(described, "value-counts") == expected


def test_a_renamed_column_is_found_by_its_id(tmp_path: Path) -> None:
    file = write(tmp_path, COLUMNS[:2])
    renamed = [("other", *COLUMNS[0][1:]), ("flag", *COLUMNS[1][1:])]
    described = describe_parquet(file, metadata_of(renamed))
    assert map_of(described, "lower-bounds")[2] == struct.pack("<i", -5).hex()


def test_columns_inside_structs_are_told_of_and_repeated_ones_have_sizes_only(tmp_path: Path) -> None:
    fid = "PARQUET:field_id"
    inner = pa.struct([pa.field("x", pa.int64(), metadata={fid: "11"}), pa.field("y", pa.string())])
    kinds = [
        pa.field("s", inner, metadata={fid: "1"}),
        pa.field("l", pa.list_(pa.field("element", pa.int32(), metadata={fid: "12"})), metadata={fid: "2"}),
        pa.field("after", pa.int32(), metadata={fid: "3"}),
    ]
    rows = [[{"x": 1, "y": "q"}], [[1, 2]], [9]]
    arrays = [pa.array(values, kind.type) for values, kind in zip(rows, kinds, strict=True)]
    file = tmp_path / "nested.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(kinds)), file)
    struct_type = {
        "type": "struct",
        "fields": [{"id": 11, "name": "x", "type": "long", "required": False}],
    }
    list_type = {"type": "list", "element-id": 12, "element": "int", "element-required": False}
    metadata = metadata_of(
        [("s", struct_type, inner, []), ("l", list_type, pa.null(), []), ("after", "int", pa.int32(), [])]
    )
    described = describe_parquet(file, metadata)
    assert described["column-sizes"]["keys"] == [11, 12, 3]
    assert map_of(described, "value-counts") == {11: 1, 3: 1}
    assert map_of(described, "lower-bounds") == {
        11: struct.pack("<q", 1).hex(),
        3: struct.pack("<i", 9).hex(),
    }


def test_columns_that_the_table_does_not_have_are_left_out(tmp_path: Path) -> None:
    described = describe_parquet(write(tmp_path, COLUMNS), metadata_of(COLUMNS[:3]))
    assert described["column-sizes"]["keys"] == [1, 2, 3]


def test_a_file_without_statistics_has_no_bounds(tmp_path: Path) -> None:
    described = describe_parquet(write(tmp_path, COLUMNS, write_statistics=False), metadata_of(COLUMNS))
    assert described["lower-bounds"]["keys"] == described["null-value-counts"]["keys"] == []
    assert map_of(described, "value-counts")[1] == 3


MISMATCHED = [
    ("int", pa.string(), ["x"]),
    ("int", pa.int64(), [1]),
    ("string", pa.int32(), [1]),
    ("long", pa.uint32(), [1]),
    ("timestamp", pa.timestamp("us", "UTC"), [1]),
    ("timestamptz", pa.timestamp("us"), [1]),
    ("timestamp", pa.timestamp("ns"), [1]),
    ("decimal(9,2)", pa.decimal128(9, 3), [Decimal("1.000")]),
    ("float", pa.float64(), [1.0]),
    ("date", pa.int32(), [1]),
]


@pytest.mark.parametrize(("type_", "arrow", "values"), MISMATCHED)
def test_a_column_of_another_type_is_refused(
    tmp_path: Path, type_: str, arrow: pa.DataType, values: list[Any]
) -> None:
    columns = [("c", type_, arrow, values)]
    with pytest.raises(BadInput) as caught:
        describe_parquet(write(tmp_path, columns), metadata_of(columns))
    assert caught.value.field == "c"


@pytest.mark.parametrize("values", [[1, None], None])
def test_a_required_column_must_be_there_with_every_value(tmp_path: Path, values: list[Any] | None) -> None:
    columns = [("must", "int", pa.int32(), values or []), ("other", "int", pa.int32(), [1, 2])]
    metadata = metadata_of(columns)
    metadata["schemas"][0]["fields"][0]["required"] = True
    without = [("x", "int", pa.int32(), [1, 2])]
    file = write(tmp_path, columns if values else without, ids=values is not None)
    with pytest.raises(BadInput) as caught:
        describe_parquet(file, metadata)
    assert caught.value.field == "must"


PARTITIONS = [
    ("boolean", pa.bool_(), True, True),
    ("int", pa.int32(), 7, 7),
    ("long", pa.int64(), -(2**40), -(2**40)),
    ("string", pa.string(), "a text of more than sixteen", "a text of more than sixteen"),
    ("date", pa.date32(), date(1960, 2, 3), "1960-02-03"),
    ("time", pa.time64("us"), time(1, 2, 3), "01:02:03"),
    ("timestamp", pa.timestamp("us"), datetime(1960, 1, 1, 1, 1, 1, 7), "1960-01-01T01:01:01.000007"),
    (
        "timestamptz",
        pa.timestamp("ms", "UTC"),
        datetime(2024, 1, 1, tzinfo=UTC),
        "2024-01-01T00:00:00.000000+00:00",
    ),
    ("timestamp_ns", pa.timestamp("ns"), 1_000_000_001, "1970-01-01T00:00:01.000000001"),
    ("decimal(9,2)", pa.decimal128(9, 2), Decimal("-0.05"), "-0.05"),
    ("decimal(9,0)", pa.decimal128(9, 0), Decimal(12), "12"),
    ("uuid", pa.binary(16), UUID(int=5).bytes, str(UUID(int=5))),
    ("binary", pa.binary(), b"\x01\xab", "01AB"),
    ("string", pa.string(), None, None),
]


@pytest.mark.parametrize(("type_", "arrow", "value", "expected"), PARTITIONS)
def test_an_identity_partition_is_read_from_the_footer(
    tmp_path: Path, type_: str, arrow: pa.DataType, value: Any, expected: Any
) -> None:
    columns = [("c", type_, arrow, [value, value])]
    metadata = metadata_of(columns, spec=[identity(1, "c"), identity(1, "v", "void")])
    file = write(tmp_path, columns)
    assert describe_parquet(file, metadata)["partition"] == [expected, None]
    assert describe_parquet(file, metadata, partition={"c": expected})["partition"] == [expected, None]
    with pytest.raises(BadInput) as caught:
        describe_parquet(file, metadata, partition={"c": "something else"})
    assert caught.value.field == "partition.c"


UNTOLD = [
    ("int", pa.int32(), [1, 2], "identity"),
    ("int", pa.int32(), [1, None], "identity"),
    ("double", pa.float64(), [1.0, 1.0], "identity"),
    ("int", pa.int32(), [1, 1], "bucket[16]"),
]


@pytest.mark.parametrize(("type_", "arrow", "values", "transform"), UNTOLD)
def test_a_partition_that_the_footer_does_not_tell_is_the_callers(
    tmp_path: Path, type_: str, arrow: pa.DataType, values: list[Any], transform: str
) -> None:
    columns = [("c", type_, arrow, values)]
    metadata = metadata_of(columns, spec=[identity(1, "p", transform)])
    file = write(tmp_path, columns)
    with pytest.raises(BadInput) as caught:
        describe_parquet(file, metadata)
    assert caught.value.field == "partition.p"
    assert describe_parquet(file, metadata, partition={"p": 3})["partition"] == [3]
    with pytest.raises(BadInput):
        describe_parquet(file, metadata, partition={"p": 3, "q": 4})


def test_a_column_added_after_the_file_is_null_in_its_partition(tmp_path: Path) -> None:
    file = write(tmp_path, COLUMNS[:1])
    metadata = metadata_of(COLUMNS[:2], spec=[identity(2, "small")])
    assert describe_parquet(file, metadata)["partition"] == [None]


def test_the_table_may_know_the_file_by_another_name(tmp_path: Path) -> None:
    file, metadata = write(tmp_path, COLUMNS[:2]), metadata_of(COLUMNS[:2])
    assert describe_parquet(file.as_uri(), metadata)["file-path"] == file.as_uri()
    elsewhere = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    described = describe_parquet(
        "f.parquet", metadata, location="s3://b/f.parquet", filesystem=elsewhere, sort_order_id=0
    )
    assert described["file-path"] == "s3://b/f.parquet"
    assert described["file-size-in-bytes"] == file.stat().st_size
    assert described["sort-order-id"] == 0
    with pytest.raises(BadInput):
        describe_parquet(file, metadata, spec_id=9)


def test_a_file_that_is_not_there_or_no_parquet_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        describe_parquet(tmp_path / "none.parquet", metadata_of(COLUMNS))
    (tmp_path / "text.parquet").write_text("a text that is long enough for a footer")
    with pytest.raises(BadInput) as caught:
        describe_parquet(tmp_path / "text.parquet", metadata_of(COLUMNS))
    assert caught.value.field == "path"


@given(st.text())
def test_bounds_of_text_enclose_it_and_are_short(text: str) -> None:
    octets = text.encode("utf-8", "surrogatepass")
    if b"\xed" in octets and any(0xD800 <= ord(char) < 0xE000 for char in text):
        return  # no text that a Parquet file can hold
    low, high = (
        encode_bound("string", text, upper=False, length=TRUNCATE_LENGTH),
        encode_bound("string", text, upper=True, length=TRUNCATE_LENGTH),
    )
    assert low is not None
    assert low <= octets
    assert len(low.decode()) <= TRUNCATE_LENGTH
    assert high is None or (octets <= high and len(high.decode()) <= TRUNCATE_LENGTH)
    assert high is not None or text[:TRUNCATE_LENGTH] == chr(0x10FFFF) * TRUNCATE_LENGTH


@given(st.binary(max_size=40))
def test_bounds_of_bytes_enclose_them_and_are_short(octets: bytes) -> None:
    low, high = (
        encode_bound("binary", octets, upper=False, length=TRUNCATE_LENGTH),
        encode_bound("binary", octets, upper=True, length=TRUNCATE_LENGTH),
    )
    assert low is not None
    assert low <= octets
    assert high is None or (octets <= high and len(high) <= TRUNCATE_LENGTH)


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_a_decimal_bound_is_the_shortest_of_its_value(unscaled: int) -> None:
    bound = encode_bound("decimal(38,4)", unscaled, upper=True, length=TRUNCATE_LENGTH)
    assert bound is not None
    assert int.from_bytes(bound, "big", signed=True) == unscaled
    assert len(bound) == 1 or not -(2 ** (8 * len(bound) - 9)) <= unscaled < 2 ** (8 * len(bound) - 9)
    text = str(to_json_value("decimal(38,4)", unscaled))
    assert Decimal(text) == Decimal(unscaled).scaleb(-4, None) or abs(unscaled) > 10**28


def test_an_upper_bound_steps_over_the_surrogates() -> None:
    bound = encode_bound("string", chr(0xD7FF) * 17, upper=True, length=TRUNCATE_LENGTH)
    assert bound is not None
    assert from_bytes(StringType(), bound) == chr(0xD7FF) * 15 + chr(0xE000)
