"""Record batches to data files without Spark: what was written is what PyIceberg reads, and footers tell the truth."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import BooleanExpression, EqualTo, GreaterThan
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from headgate.errors import BadInput
from headgate.spark import arrow_files
from headgate.spark.arrow_files import ArrowFiles, Attempt, write_batches
from headgate.spark.arrow_partitions import transform_values
from headgate.spark.lake import Lake, LakeTable

Make = Callable[..., LakeTable]


@pytest.fixture
def make(lake: Lake, namespace: str) -> Make:
    """Tables of the test, made by PyIceberg."""

    def create(
        *columns: tuple[str, IcebergType],
        by: tuple[tuple[int, Transform[Any, Any]], ...] = (),
        properties: dict[str, str] | None = None,
        name: str = "t",
        required: bool = False,
    ) -> LakeTable:
        schema = Schema(
            *(
                NestedField(i, column, type_, required=required)
                for i, (column, type_) in enumerate(columns, 1)
            )
        )
        parts = [PartitionField(source, 1000 + i, one, f"p{i}") for i, (source, one) in enumerate(by)]
        spec = PartitionSpec(*parts) if parts else UNPARTITIONED_PARTITION_SPEC
        lake.catalog().create_table(
            (namespace, name), schema, partition_spec=spec, properties=properties or {}
        )
        return lake.table((namespace, name))

    return create


def _write(table: LakeTable, rows: pa.Table, attempt: str = "00000-0") -> list[dict[str, Any]]:
    state = table.load()
    place = Attempt(f"{state.data_location}/run-for-a-test", attempt)
    return [dict(file) for file in write_batches(rows.to_batches(), state, place)]


def _read(table: LakeTable, where: BooleanExpression | None = None) -> list[dict[str, Any]]:
    loaded = table.lake.catalog().load_table(table.identifier)
    scan = loaded.scan() if where is None else loaded.scan(row_filter=where)
    found: list[dict[str, Any]] = scan.to_arrow().to_pylist()
    return found


def _by_id(pairs: dict[str, list[Any]]) -> dict[int, Any]:
    return dict(zip(pairs["keys"], pairs["values"], strict=True))


def _path(file: dict[str, Any]) -> Path:
    return Path(urlsplit(file["file-path"]).path)


EVERYTHING: tuple[tuple[str, IcebergType, list[Any]], ...] = (
    ("flag", BooleanType(), [True, None, False]),
    ("int", IntegerType(), [-(2**31), None, 7]),
    ("long", LongType(), [-(2**63), None, 2**63 - 1]),
    ("float", FloatType(), [1.5, None, -0.25]),
    ("double", DoubleType(), [1e300, None, -1e-300]),
    ("small_decimal", DecimalType(9, 2), [Decimal("-1.23"), None, Decimal("9999999.99")]),
    ("middle_decimal", DecimalType(18, 3), [Decimal("-1.234"), None, Decimal("1.000")]),
    (
        "large_decimal",
        DecimalType(38, 10),
        [Decimal("-1.2340000000"), None, Decimal("100000000000000000000.0000000000")],
    ),
    ("date", DateType(), [date(1969, 12, 31), None, date(2024, 2, 29)]),
    ("time", TimeType(), [time(0, 0), None, time(23, 59, 59, 999999)]),
    ("at", TimestampType(), [datetime(1969, 12, 31, 23, 59, 59, 1), None, datetime(2024, 2, 29, 1, 2, 3)]),
    (
        "atz",
        TimestamptzType(),
        [datetime(1600, 1, 1, tzinfo=UTC), None, datetime(2024, 2, 29, 1, tzinfo=UTC)],
    ),
    ("text", StringType(), ["", None, "ä long text that is cut somewhere"]),
    ("octets", BinaryType(), [b"", None, b"\xff" * 20]),
    ("fixed", FixedType(4), [b"abcd", None, b"\x00\x00\x00\x01"]),
)


def test_every_type_comes_back_as_it_went_in(make: Make) -> None:
    table = make(*((name, type_) for name, type_, _ in EVERYTHING), ("uuid", UUIDType()))
    ids = ["00000000-0000-0000-0000-000000000001", None, "ffffffff-ffff-4fff-bfff-ffffffffffff"]
    rows = pa.table({name: values for name, _, values in EVERYTHING} | {"uuid": ids})
    arrow = {"int": pa.int32(), "float": pa.float32(), "small_decimal": pa.decimal128(9, 2)}
    arrow |= {"middle_decimal": pa.decimal128(18, 3), "large_decimal": pa.decimal128(38, 10)}
    for name, type_ in arrow.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, pa.array(rows.column(name).to_pylist(), type_))
    files = _write(table, rows)
    table.client.append(files)
    wanted = rows.to_pylist()
    for row, uuid in zip(wanted, ids, strict=True):
        row["uuid"] = None if uuid is None else UUID(uuid)
    assert _read(table) == wanted
    assert set(_by_id(files[0]["null-value-counts"]).values()) == {1}


def test_bounds_are_never_narrower_than_the_values(make: Make) -> None:
    table = make(*((name, type_) for name, type_, _ in EVERYTHING))
    state = table.load()
    arrow = arrow_files.file_schema(state.schema)
    rows = pa.table({name: pa.array(values, arrow.field(name).type) for name, _, values in EVERYTHING}, arrow)
    (file,) = _write(table, rows)
    lower, upper = _by_id(file["lower-bounds"]), _by_id(file["upper-bounds"])
    for id_, (name, type_, values) in enumerate(EVERYTHING, 1):
        assert isinstance(type_, PrimitiveType)
        stored = [value for value in values if value is not None]
        if name in ("date", "time", "at", "atz"):
            stored = [
                value
                for value in rows.column(name).cast(pa.int32() if name == "date" else pa.int64()).to_pylist()
                if value is not None
            ]
        if name == "octets":
            assert id_ not in upper  # nothing of that length is larger
        else:
            assert from_bytes(type_, bytes.fromhex(upper[id_])) >= max(stored), name
        assert from_bytes(type_, bytes.fromhex(lower[id_])) <= min(stored), name


def test_nested_values_come_back_and_repeated_ones_have_no_bounds(make: Make) -> None:
    inner = StructType(NestedField(11, "x", DoubleType()), NestedField(12, "y", StringType()))
    table = make(
        ("s", inner),
        ("l", ListType(21, LongType(), element_required=False)),
        ("m", MapType(31, StringType(), 32, inner.__class__(NestedField(33, "z", FloatType())))),
    )
    rows = pa.table(
        {
            "s": pa.array([{"x": math.nan, "y": "b"}, None, {"x": 2.0, "y": "a"}]),
            "l": pa.array([[1, None], [], None], pa.list_(pa.int64())),
            "m": pa.array(
                [[("k", {"z": 1.5})], None, []], pa.map_(pa.string(), pa.struct([("z", pa.float32())]))
            ),
        }
    )
    files = _write(table, rows)
    table.client.append(files)
    found = _read(table)
    assert math.isnan(found[0]["s"].pop("x"))
    assert found[0] == {"s": {"y": "b"}, "l": [1, None], "m": [("k", {"z": 1.5})]}
    # Not by PyIceberg 0.12, which reads a map that is null as an empty one.
    assert pq.read_table(_path(files[0])).to_pylist()[1:] == rows.to_pylist()[1:]
    schema = table.load().schema
    x, y = schema.find_field("s.x").field_id, schema.find_field("s.y").field_id
    assert _by_id(files[0]["nan-value-counts"]) == {x: 1}
    assert set(_by_id(files[0]["lower-bounds"])) == {x, y}
    assert set(_by_id(files[0]["value-counts"])) == {x, y}


def test_nan_counts_and_bounds_of_floats_leave_nan_out(make: Make) -> None:
    table = make(("f", FloatType()), ("d", DoubleType()))
    rows = pa.table({"f": pa.array([math.nan, 1.0], pa.float32()), "d": pa.array([math.nan, math.nan])})
    (file,) = _write(table, rows)
    assert _by_id(file["nan-value-counts"]) == {1: 1, 2: 2}
    assert set(_by_id(file["lower-bounds"])) == {1}
    assert from_bytes(FloatType(), bytes.fromhex(_by_id(file["upper-bounds"])[1])) == 1.0


TIMES = [datetime(1969, 12, 31, 23, 30), datetime(1970, 1, 1), datetime(2024, 2, 29, 12), None]


@pytest.mark.parametrize(
    "transform",
    [
        IdentityTransform(),
        YearTransform(),
        MonthTransform(),
        DayTransform(),
        HourTransform(),
        BucketTransform(4),
    ],
    ids=str,
)
def test_times_are_cut_into_the_partitions_that_pyiceberg_prunes_by(make: Make, transform: Any) -> None:
    table = make(("id", LongType()), ("at", TimestampType()), by=((2, transform),))
    files = _write(table, pa.table({"id": list(range(8)), "at": pa.array(TIMES * 2, pa.timestamp("us"))}))
    table.client.append(files)
    assert len(files) == len({transform.transform(TimestampType())(at) for at in TIMES})
    assert len(_read(table)) == 8
    assert [row["id"] for row in _read(table, EqualTo("at", "2024-02-29T12:00:00"))] == [2, 6]
    assert sorted(row["id"] for row in _read(table, GreaterThan("at", "1969-12-31T23:45:00"))) == [1, 2, 5, 6]


def test_values_are_cut_by_several_transforms_and_an_inner_field(make: Make) -> None:
    inner = StructType(NestedField(11, "country", StringType()))
    parts = (
        (11, IdentityTransform()),
        (3, TruncateTransform(2)),
        (1, BucketTransform(2)),
        (1, VoidTransform()),
    )
    table = make(("id", LongType()), ("who", inner), ("text", StringType()), by=parts)
    rows = [
        {
            "id": i,
            "who": None if i % 5 == 0 else {"country": "de" if i % 2 else "fr"},
            "text": f"{'ä'}{i % 3}x",
        }
        for i in range(60)
    ]
    files = _write(table, pa.Table.from_pylist(rows))
    table.client.append(files)
    bucket = BucketTransform(2).transform(LongType())
    wanted = {((row["who"] or {}).get("country"), row["text"][:2], bucket(row["id"])) for row in rows}
    assert {tuple(file["partition"][:3]) for file in files} == wanted
    assert sorted(_read(table), key=lambda row: row["id"]) == rows
    assert {row["id"] for row in _read(table, EqualTo("who.country", "de"))} == {
        row["id"] for row in rows if row["who"] == {"country": "de"}
    }


def test_transforms_agree_with_pyiceberg_at_the_edges() -> None:
    values = [-(2**63) + 5, -1, 0, 1, 2**63 - 1, None]
    for transform in (TruncateTransform(3), BucketTransform(16)):
        apply = transform.transform(LongType())
        assert transform_values(transform, LongType(), pa.array(values)).to_pylist() == [
            apply(v) for v in values
        ]
    nanos = [-1, 0, 10**18, None]
    for time_transform in (DayTransform(), HourTransform(), MonthTransform(), YearTransform()):
        made = transform_values(time_transform, TimestampNanoType(), pa.array(nanos, pa.timestamp("ns")))
        assert made.to_pylist() == [time_transform.transform(TimestampNanoType())(v) for v in nanos]


def test_files_are_rolled_at_the_target_size(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_files, "ROW_GROUP_ROWS", 1_000)
    table = make(
        ("id", LongType()), ("octets", BinaryType()), properties={"write.target-file-size-bytes": "50000"}
    )
    rows = pa.table({"id": list(range(10_000)), "octets": [os.urandom(20) for _ in range(10_000)]})
    files = _write(table, rows)
    assert len(files) > 1
    assert all(file["file-size-in-bytes"] >= 50_000 for file in files[:-1])
    assert sum(file["record-count"] for file in files) == 10_000
    assert all(file["file-size-in-bytes"] == _path(file).stat().st_size for file in files)
    assert sum(len(file["split-offsets"]) for file in files) == 10


def test_open_files_and_buffered_rows_are_bounded(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_files, "OPEN_FILES_MAX", 2)
    monkeypatch.setattr(arrow_files, "BUFFERED_BYTES_MAX", 100)
    table = make(("id", LongType()), by=((1, IdentityTransform()),))
    files = _write(table, pa.table({"id": [i % 5 for i in range(100)]}))
    table.client.append(files)
    assert sorted(row["id"] for row in _read(table)) == sorted(i % 5 for i in range(100))


def test_files_carry_field_ids_and_the_codec_of_the_table(make: Make) -> None:
    properties = {
        "write.parquet.compression-codec": "gzip",
        "write.parquet.bloom-filter-enabled.column.id": "true",
    }
    table = make(("id", LongType()), ("small", DecimalType(9, 2)), properties=properties)
    rows = pa.table({"id": [1], "small": pa.array([Decimal("1.00")], pa.decimal128(9, 2))})
    (file,) = _write(table, rows)
    footer = pq.read_metadata(_path(file))
    assert [footer.schema.to_arrow_schema().field(i).metadata[b"PARQUET:field_id"] for i in (0, 1)] == [
        b"1",
        b"2",
    ]
    assert footer.row_group(0).column(0).compression == "GZIP"
    assert footer.row_group(0).column(1).physical_type == "INT32"


def test_metrics_modes_decide_what_is_told(make: Make) -> None:
    properties = {
        "write.metadata.metrics.default": "counts",
        "write.metadata.metrics.column.none": "none",
        "write.metadata.metrics.column.short": "truncate(2)",
        "write.metadata.metrics.column.full": "full",
    }
    names = ("counts", "none", "short", "full")
    table = make(*((name, StringType()) for name in names), properties=properties)
    (file,) = _write(table, pa.table({name: ["abcdefghijklmnopqrstuvwxyz"] for name in names}))
    assert _by_id(file["lower-bounds"]) == {3: b"ab".hex(), 4: b"abcdefghijklmnopqrstuvwxyz".hex()}
    assert _by_id(file["upper-bounds"]) == {3: b"ac".hex(), 4: b"abcdefghijklmnopqrstuvwxyz".hex()}
    assert set(_by_id(file["value-counts"])) == {1, 3, 4} == set(_by_id(file["column-sizes"]))


@pytest.mark.parametrize(
    ("rows", "column"),
    [
        ({"id": [1], "other": [2]}, "other"),
        ({"name": ["a"]}, "id"),
        ({"id": ["1"], "name": ["a"]}, "id"),
        ({"id": [1.0], "name": ["a"]}, "id"),
        ({"id": [1], "name": [b"a"]}, "name"),
        ({"id": [None, 1], "name": ["a", "b"]}, "id"),
    ],
    ids=["unknown", "missing", "text", "float", "bytes", "null"],
)
def test_rows_that_do_not_fit_are_refused_with_the_column(
    make: Make, rows: dict[str, list[Any]], column: str
) -> None:
    table = make(("id", LongType()), ("name", StringType()), required=True)
    with pytest.raises(BadInput, match=column) as refused:
        _write(table, pa.table(rows))
    assert refused.value.field == column
    assert not list(Path(urlsplit(table.load().location).path).rglob("*.parquet"))


def test_inner_columns_that_the_table_has_not_are_refused(make: Make) -> None:
    table = make(("s", StructType(NestedField(11, "x", LongType()))))
    with pytest.raises(BadInput, match=r"s\.y"):
        _write(table, pa.table({"s": [{"x": 1, "y": 2}]}))


def test_columns_that_the_rows_do_not_have_are_null(make: Make) -> None:
    table = make(("id", LongType()), ("name", StringType()))
    table.client.append(_write(table, pa.table({"id": [1]})))
    assert _read(table) == [{"id": 1, "name": None}]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.target-file-size-bytes", "large"),
        ("write.parquet.compression-codec", "lzo"),
        ("write.metadata.metrics.default", "some"),
    ],
)
def test_properties_that_mean_nothing_are_named(make: Make, name: str, value: str) -> None:
    table = make(("id", LongType()), properties={name: value})
    with pytest.raises(BadInput, match=name):
        _write(table, pa.table({"id": [1]}))


def test_an_attempt_that_fails_takes_its_files_with_it(make: Make) -> None:
    table = make(("id", LongType()), by=((1, IdentityTransform()),))
    state = table.load()
    files = ArrowFiles(state, Attempt(f"{state.data_location}/run-for-a-test", "00000-0"))
    files.add(pa.record_batch({"id": [1, 2]}))
    folder = Path(urlsplit(state.data_location).path)
    assert len(list(folder.rglob("*.parquet"))) == 2
    files.discard()
    assert not list(folder.rglob("*.parquet"))


def test_no_rows_make_no_file(make: Make) -> None:
    table = make(("id", LongType()))
    assert _write(table, pa.table({"id": pa.array([], pa.int64())})) == []
