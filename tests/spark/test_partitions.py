"""Partition values in Spark against PyIceberg's transforms, in two time zones, and the names of their folders."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg import types as iceberg
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros
from pyspark.sql import SparkSession

from headgate.format.content_files import encode_value
from headgate.spark.columns import spark_schema
from headgate.spark.partitions import decode_folder, decode_value, partition_columns

LONG_TEXT = "long " * 60
TIMES = [
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(1970, 1, 1),
    datetime(2024, 3, 31, 2, 30, 0, 1),  # not on the clocks of Berlin
    datetime(1901, 2, 3, 4, 5, 6),
]
VALUES: dict[str, tuple[iceberg.PrimitiveType, list[Any]]] = {
    "bool": (iceberg.BooleanType(), [True, False]),
    "int": (iceberg.IntegerType(), [0, -1, 17, 2**31 - 1]),
    "long": (iceberg.LongType(), [0, -1, 34, 2**63 - 1]),
    "float": (iceberg.FloatType(), [0.5, float("inf")]),
    "double": (iceberg.DoubleType(), [-1.5, 1e300]),
    "date": (iceberg.DateType(), [date(1969, 12, 31), date(2024, 2, 29)]),
    "ts": (iceberg.TimestampType(), TIMES),
    "tstz": (iceberg.TimestamptzType(), [at.replace(tzinfo=UTC) for at in TIMES]),
    "str": (iceberg.StringType(), ["", "a/b=c%d*e f", "Grüße 🚀", "__HIVE_DEFAULT_PARTITION__", "v", "!~+"]),
    "bytes": (iceberg.BinaryType(), [b"", b"\x00\xff/", b"abcdef"]),
    "fixed": (iceberg.FixedType(3), [b"\x00\xff/"]),
    "uuid": (iceberg.UUIDType(), ["f79c3e09-677c-4bbd-a479-3f349cb785e7"]),
    "dec": (iceberg.DecimalType(9, 2), [Decimal("-10.65"), Decimal("10.65"), Decimal("0.00")]),
    "big": (iceberg.DecimalType(38, 10), [Decimal("12345678901234567890.0123456789")]),
}
CASES = """
    identity     bool int long float double date ts tstz str bytes fixed uuid dec big
    void         bool str
    year         date ts tstz
    month        date ts tstz
    day          date ts tstz
    hour         ts tstz
    bucket[16]   int long date ts tstz str bytes fixed uuid dec big
    truncate[3]  int long str bytes dec big
"""
TRANSFORMS = [
    (transform, kind)
    for line in CASES.strip().splitlines()
    for transform, *kinds in [line.split()]
    for kind in kinds
]


@pytest.fixture(scope="module", params=["UTC", "Europe/Berlin"])
def zoned(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def stored(type_: iceberg.IcebergType, value: Any) -> Any:
    """A value as manifests and transforms have it."""
    match value:
        case datetime():
            return datetime_to_micros(value)
        case date():
            return date_to_days(value)
        case str() if isinstance(type_, iceberg.UUIDType):
            from uuid import UUID

            return UUID(value)
    return value


def test_every_transform_gives_what_pyiceberg_gives_whatever_the_session_zone_is(zoned: SparkSession) -> None:
    for kind, (type_, values) in VALUES.items():
        transforms = [parse_transform(name) for name, one in TRANSFORMS if one == kind]
        schema = Schema(iceberg.NestedField(1, "c", type_, required=False))
        fields = [PartitionField(1, 1000 + at, one, f"p{at}") for at, one in enumerate(transforms)]
        parts = partition_columns(PartitionSpec(*fields), schema)
        rows = zoned.createDataFrame(
            [(value,) for value in [*values, None]], spark_schema(schema), verifySchema=False
        )
        texts = rows.select([part.text.cast("string").alias(part.folder) for part in parts]).collect()
        for value, found in zip([*values, None], texts, strict=True):
            for part, text in zip(parts, found, strict=True):
                name = f"{part.folder}={'__HIVE_DEFAULT_PARTITION__' if text is None else text}"
                transform = part.field.transform
                expected = transform.transform(type_)(stored(type_, value))
                wire = encode_value(transform.result_type(type_), expected)
                assert decode_folder(name, part.type) == wire, (kind, transform, value)
                assert decode_value(stored(type_, value), part.field, type_) == wire


def test_the_name_of_a_folder_is_short_and_ascii_and_never_that_of_nulls(spark: SparkSession) -> None:
    schema = Schema(iceberg.NestedField(1, "c", iceberg.StringType(), required=False))
    (part,) = partition_columns(
        PartitionSpec(PartitionField(1, 1000, parse_transform("identity"), "p")), schema
    )
    values = ["__HIVE_DEFAULT_PARTITION__", "", "ü" * 30, LONG_TEXT, LONG_TEXT + "!"]
    rows = spark.createDataFrame([(value,) for value in values], spark_schema(schema))
    names = [row[0] for row in rows.select(part.text).collect()]
    assert len(set(names)) == len(values)
    assert all(name.isascii() and len(name) <= 130 and name != "__HIVE_DEFAULT_PARTITION__" for name in names)
    with pytest.raises(KeyError):
        decode_folder(f"{part.folder}={names[3]}", part.type)
