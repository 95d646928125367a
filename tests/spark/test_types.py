"""Every type and every transform, written by our jobs and read by the jar and by PyIceberg: the same rows."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from headgate.errors import BadInput
from headgate.spark.data_files import NATIVE, PYTHON, road_of
from headgate.spark.writes import write
from tests.spark.tables import Rows, Tables

PLAIN = """
    flag BOOLEAN, small INT, big BIGINT, ratio FLOAT, score DOUBLE, tiny DECIMAL(7,2), amount DECIMAL(18,4),
    huge DECIMAL(38,10), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, name STRING, blob BINARY,
    place STRUCT<city: STRING, point: STRUCT<x: DOUBLE, y: DOUBLE>>
"""
NESTED = """
    tags ARRAY<STRING>, counts MAP<STRING, BIGINT>, deep ARRAY<STRUCT<k: INT, more: MAP<STRING, ARRAY<DOUBLE>>>>
"""
PLAIN_ROW = """
    n % 2 = 0 AS flag, n - 3 AS small, n * 10000000000L AS big,
    CASE n WHEN 1 THEN FLOAT('NaN') WHEN 2 THEN FLOAT('-0.0') ELSE FLOAT(n) END AS ratio,
    CASE n WHEN 3 THEN DOUBLE('NaN') WHEN 4 THEN DOUBLE('-Infinity') ELSE n * 1.5D END AS score,
    CAST(n * -1.25 AS DECIMAL(7,2)) AS tiny, CAST(n * 1.0001 AS DECIMAL(18,4)) AS amount,
    CAST(n * 12345678901234567890.0123456789BD AS DECIMAL(38,10)) AS huge,
    CASE n WHEN 5 THEN DATE '0044-03-15' ELSE date_add(DATE '1969-12-30', n) END AS day,
    timestamp_micros(n * 3600000001L - 7200000000L) AS at,
    TIMESTAMP_NTZ '1969-12-31 22:59:59.123456' + make_dt_interval(0, n) AS local,
    CASE n WHEN 0 THEN '' WHEN 1 THEN 'a/b=c%d*e f' WHEN 2 THEN repeat('ü', 40) WHEN 3 THEN repeat('long', 80)
         ELSE 'n' || n END AS name,
    encode(repeat('b', n * 9), 'utf-8') AS blob,
    CASE WHEN n = 2 THEN NULL ELSE
      named_struct('city', 'c' || n, 'point', named_struct('x', n * 0.5D, 'y', CAST('NaN' AS DOUBLE))) END AS place
"""
NESTED_ROW = """
    CASE n WHEN 0 THEN array() WHEN 1 THEN array(NULL, 'x') ELSE array('a', 'b' || n) END AS tags,
    CASE n WHEN 0 THEN map() ELSE map('k' || n, n, 'none', NULL) END AS counts,
    array(named_struct('k', n, 'more', map('m', array(n * 0.5D, NULL)))) AS deep
"""
COLUMNS_OF = {
    NATIVE: (PLAIN, PLAIN_ROW),
    PYTHON: (f"{PLAIN}, {NESTED}", f"{PLAIN_ROW}, {NESTED_ROW}"),
}
SPECS = [
    "",
    "flag, small, big, tiny, huge, day, at, local",
    "name, blob, place.city",
    "years(day), months(at), days(local), bucket(4, small), bucket(4, big), bucket(4, name)",
    "years(at), months(local), days(day), bucket(4, amount), bucket(4, blob), bucket(4, huge)",
    "years(local), months(day), days(at), truncate(3, small), truncate(1000, big), truncate(10, amount)",
    "hours(at), hours(local), truncate(3, name), truncate(5, blob), truncate(7, huge), bucket(2, day)",
    "bucket(4, at), bucket(4, local), bucket(2, place.city)",
]
ON_ROADS = [(NATIVE, spec) for spec in SPECS] + [(PYTHON, spec) for spec in SPECS[::3]]
ROWS = 6


def rows_of(tables: Tables, row: str, *, nulls: bool = True) -> DataFrame:
    """Six rows of values at the edges, and one of nulls."""
    found = tables.spark.sql(f"SELECT {row} FROM (SELECT CAST(id AS INT) AS n FROM range({ROWS}))")
    if not nulls:
        return found
    absent = ", ".join(
        f"CAST(NULL AS {field.dataType.simpleString()}) AS {field.name}" for field in found.schema
    )
    return found.union(tables.spark.sql(f"SELECT {absent}"))


def as_text(rows: Rows) -> list[str]:
    """Rows that can be compared: a NaN is no other NaN's equal."""
    return [repr(row) for row in rows]


@pytest.mark.parametrize(("road", "spec"), ON_ROADS)
def test_both_readers_see_the_rows_of_every_type_and_transform(tables: Tables, road: str, spec: str) -> None:
    columns, row = COLUMNS_OF[road]
    table = tables.create("t", columns, partitioned=spec)
    assert road_of(table.load()) == road
    rows = rows_of(tables, row)
    written = write(rows, table)
    assert written.rows == ROWS + 1
    copy_by_jar(tables, spec)
    expected = as_text(tables.plain(rows))
    assert as_text(tables.by_jar("t")) == expected
    # PyIceberg 0.12 reads a list of structs that is null as an empty one, whoever has written it.
    python = as_text(tables.by_pyiceberg("copy"))
    assert as_text(tables.by_pyiceberg("t")) == python
    assert road == PYTHON or python == expected
    assert partitions(tables, "t") == partitions(tables, "copy")


def copy_by_jar(tables: Tables, spec: str) -> None:
    """The same rows in a table that the jar has written."""
    by = f"PARTITIONED BY ({spec})" if spec else ""
    # The jar makes a folder of a whole value, which a disk refuses for a long one, unless it hashes paths.
    hashed = "'write.object-storage.enabled' = 'true', 'write.object-storage.partitioned-paths' = 'false'"
    tables.sql(
        f"CREATE TABLE {tables.name('copy')} USING iceberg {by} TBLPROPERTIES ({hashed}) "
        f"AS SELECT * FROM {tables.name('t')}"
    )


def partitions(tables: Tables, table: str) -> list[tuple[str, int]]:
    """The partitions of a table with their rows, as the jar reads the manifests."""
    name = "to_json(partition)" if tables.table(table).load().spec.fields else "''"
    found = tables.sql(f"SELECT {name}, record_count FROM {tables.name(table)}.partitions").collect()
    return sorted((row[0], row[1]) for row in found)


def test_uuids_and_fixed_bytes_are_stored_as_iceberg_has_them(tables: Tables) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import FixedType, LongType, NestedField, UUIDType

    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "uid", UUIDType(), required=False),
        NestedField(3, "hash", FixedType(4), required=False),
    )
    properties = {"format-version": str(tables.version)}
    tables.lake.catalog().create_table((tables.namespace, "t"), schema, properties=properties)
    text = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
    rows = tables.spark.sql(
        f"SELECT 1L AS id, '{text}' AS uid, X'00FF10AB' AS hash UNION ALL SELECT 2L, NULL, NULL"
    )
    write(rows, tables.table("t"))
    assert tables.rows("t") == [(1, text, b"\x00\xff\x10\xab"), (2, None, None)]
    assert tables.by_jar("t", where=f"uid = '{text}'") == [(1, text, b"\x00\xff\x10\xab")]


def test_the_native_road_refuses_what_it_would_write_wrong(tables_v2: Tables) -> None:
    table = tables_v2.create("t", "id BIGINT, tags ARRAY<STRING>")
    rows = tables_v2.spark.sql("SELECT 1L AS id, array('a') AS tags")
    with pytest.raises(BadInput, match="tags") as caught:
        write(rows, table, road=NATIVE)
    assert caught.value.field == "road"
    write(rows, table)
    assert tables_v2.rows("t") == [(1, ["a"])]
