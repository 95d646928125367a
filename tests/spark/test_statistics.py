"""Statistics of our files against those of the Iceberg jar's for the same rows: equal, and files are skipped alike."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headgate.spark.writes import write
from tests.spark.tables import Tables
from tests.spark.test_types import COLUMNS_OF, NATIVE, PLAIN, PLAIN_ROW, PYTHON, rows_of

STATISTICS = "record_count, value_counts, null_value_counts, nan_value_counts, lower_bounds, upper_bounds, sort_order_id"
FILTERS = [
    "flag = true",
    "small = 0",
    "small > 100",
    "big BETWEEN 30000000000 AND 40000000000",
    "ratio > 3.5",
    "ratio < 0",
    "isnan(ratio)",
    "NOT isnan(ratio) AND ratio >= 5",
    "score = 0",
    "score > 7",
    "tiny < -5",
    "amount IN (1.0001, 5.0005)",
    "huge > 50000000000000000000",
    "day = DATE '1970-01-02'",
    "at < TIMESTAMP '1970-01-01 00:00:00'",
    "local >= TIMESTAMP_NTZ '1970-01-01 02:00:00'",
    "name = 'n4'",
    "name LIKE 'long%'",
    "name > 'zzz'",
    "name IS NULL",
    "blob = X'626262626262626262'",
    "place.city = 'c3'",
    "place.point.x > 2",
    "place IS NULL",
]


ZEROS = {b"\0\0\0\x80": b"\0" * 4, b"\0" * 7 + b"\x80": b"\0" * 8}


def in_one_file(rows: DataFrame) -> DataFrame:
    return rows.coalesce(1)


def statistics(tables: Tables, table: str) -> list[dict[str, object]]:
    """What the manifests say of a table's files; the sizes of columns are the writers' own."""
    found = tables.sql(f"SELECT {STATISTICS} FROM {tables.name(table)}.files").collect()
    return sorted((row.asDict() for row in found), key=lambda one: repr(one["lower_bounds"]))


def differences(ours: dict[str, object], theirs: dict[str, object]) -> dict[str, object]:
    """What two files have been told of differently, by statistic and column."""
    told = [
        {
            # Arrow's writer spells a least value of zero -0.0, as Parquet asks; it is the same number.
            f"{name} of {id_}": ZEROS.get(bytes(value), bytes(value))
            if isinstance(value, bytes | bytearray)
            else value
            for name, found in one.items()
            for id_, value in (found.items() if isinstance(found, dict) else [("all", found)])
        }
        for one in (ours, theirs)
    ]
    return {
        name: (told[0].get(name), told[1].get(name))
        for name in sorted(set(told[0]) | set(told[1]))
        if told[0].get(name) != told[1].get(name)
    }


@pytest.mark.parametrize("road", [NATIVE, PYTHON])
@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"write.metadata.metrics.default": "full"},
        {"write.metadata.metrics.default": "counts", "write.metadata.metrics.column.name": "truncate(3)"},
        {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.place.city": "full"},
        {"write.metadata.metrics.max-inferred-column-defaults": "4"},
    ],
)
def test_the_statistics_of_a_file_are_those_of_the_jar(
    tables_v2: Tables, road: str, properties: dict[str, str]
) -> None:
    columns, row = COLUMNS_OF[road]
    for name in ("ours", "theirs"):
        tables_v2.create(name, columns, properties=properties)
    rows = in_one_file(rows_of(tables_v2, row))
    write(rows, tables_v2.table("ours"))
    rows.writeTo(tables_v2.name("theirs")).append()
    (ours,), (theirs,) = statistics(tables_v2, "ours"), statistics(tables_v2, "theirs")
    assert differences(ours, theirs) == {}


def test_a_sorted_table_is_told_of_by_the_columns_it_is_sorted_by(tables_v2: Tables) -> None:
    for name in ("ours", "theirs"):
        tables_v2.create(name, PLAIN, properties={"write.metadata.metrics.default": "none"})
        tables_v2.sql(f"ALTER TABLE {tables_v2.name(name)} WRITE ORDERED BY name DESC, small")
    rows = in_one_file(rows_of(tables_v2, PLAIN_ROW))
    write(rows, tables_v2.table("ours"))
    rows.writeTo(tables_v2.name("theirs")).append()
    assert sorted(map(repr, statistics(tables_v2, "ours"))) == sorted(
        map(repr, statistics(tables_v2, "theirs"))
    )


def skipped(tables: Tables, table: str, condition: str) -> int:
    """How many files the jar does not read for a filter."""
    found = tables.sql(f"SELECT * FROM {tables.name(table)} WHERE {condition}")
    plan = found._jdf.queryExecution().executedPlan()
    found.collect()
    metrics = plan.collectLeaves().head().metrics()
    return int(metrics.apply("skippedDataFiles").value())


def test_as_many_files_are_skipped_as_of_a_table_that_the_jar_has_written(tables_v2: Tables) -> None:
    for name in ("ours", "theirs"):
        tables_v2.create(name, PLAIN)
    rows = rows_of(tables_v2, PLAIN_ROW)
    assert isinstance(rows.schema, StructType)
    for part in ("small = -3", "small IN (-2, -1)", "small IN (0, 1)", "small = 2", "small IS NULL"):
        some = in_one_file(rows.where(part))
        write(some, tables_v2.table("ours"))
        some.writeTo(tables_v2.name("theirs")).append()
    ours, theirs = ({one: skipped(tables_v2, name, one) for one in FILTERS} for name in ("ours", "theirs"))
    assert ours == theirs
    assert sum(ours.values()) > len(FILTERS)
