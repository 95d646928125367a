"""Spark defines tables through the service: create, replace, schema and partition evolution, order, properties."""

from __future__ import annotations

import datetime as dt

import pytest
from pyspark.errors import AnalysisException

from tests.compat.lake import Lake

_NOON = "TIMESTAMP '2024-02-29 12:00:00'"
_LATE = "TIMESTAMP '2024-03-01 23:30:00'"


def test_rows_come_back_from_a_table_partitioned_by_every_transform(lake: Lake) -> None:
    table = lake.create(
        "events",
        "id BIGINT NOT NULL, region STRING, name STRING, at TIMESTAMP, born DATE, seen TIMESTAMP, old TIMESTAMP",
        partitioned="region, bucket(4, id), truncate(2, name), days(at), years(born), hours(seen), months(old)",
    )
    lake.sql(
        f"INSERT INTO {table} VALUES "
        f"(1, 'eu', 'anna', {_NOON}, DATE '1999-12-31', {_NOON}, {_NOON}), "
        f"(2, 'us', 'anno', {_LATE}, DATE '2000-01-01', {_LATE}, {_LATE}), "
        f"(3, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    assert lake.rows(f"SELECT id, region, name, born FROM {table}") == [
        (1, "eu", "anna", dt.date(1999, 12, 31)),
        (2, "us", "anno", dt.date(2000, 1, 1)),
        (3, None, None, None),
    ]
    assert lake.rows(f"SELECT id FROM {table} WHERE at >= DATE '2024-03-01' AND region = 'us'") == [(2,)]
    assert lake.rows(
        f"SELECT partition.region, partition.name_trunc, partition.at_day, partition.born_year, "
        f"partition.seen_hour, partition.old_month, record_count FROM {table}.partitions"
    ) == [
        ("eu", "an", dt.date(2024, 2, 29), 29, 474780, 649, 1),
        ("us", "an", dt.date(2024, 3, 1), 30, 474815, 650, 1),
        (None, None, None, None, None, None, 1),
    ]


def test_every_type_of_spark_survives_a_round_trip(lake: Lake) -> None:
    table = lake.create(
        "types",
        "a BOOLEAN, b INT, c BIGINT, d FLOAT, e DOUBLE, f DECIMAL(20, 4), g DATE, h TIMESTAMP, i TIMESTAMP_NTZ, "
        "j STRING, k BINARY, l ARRAY<INT>, m MAP<STRING, BIGINT>, n STRUCT<x: INT, y: STRUCT<z: STRING>>",
    )
    values = (
        f"true, 1, 2L, 1.5f, 2.5d, 3.1415BD, DATE '2024-02-29', {_NOON}, TIMESTAMP_NTZ '2024-02-29 12:00:00', "
        "'ü', X'00FF', array(1, NULL, 3), map('k', 7L), "
        "named_struct('x', 1, 'y', named_struct('z', 'deep'))"
    )
    lake.sql(f"INSERT INTO {table} SELECT {values}", f"INSERT INTO {table} (b) VALUES (9)")
    expected = lake.session.sql(f"SELECT {values}").collect()[0]
    found = lake.session.table(table).where("b = 1").collect()[0]
    assert str(list(found)[5]) == "3.1415"
    assert [*found[:5], *found[6:]] == [*expected[:5], *expected[6:]]
    assert lake.rows(f"SELECT count(*), count(a), count(l), count(n) FROM {table}") == [(2, 1, 1, 1)]


def test_a_table_made_from_a_query_has_the_rows_of_the_query(lake: Lake) -> None:
    source = lake.create("source", "id BIGINT, kind STRING")
    lake.sql(f"INSERT INTO {source} VALUES (1, 'a'), (2, 'b'), (3, 'a')")
    made = lake.name("made")
    lake.sql(
        f"CREATE TABLE {made} USING iceberg PARTITIONED BY (kind) {lake.properties()} AS SELECT * FROM {source}"
    )
    assert lake.rows(made) == [(1, "a"), (2, "b"), (3, "a")]
    assert lake.rows(f"SELECT operation, summary['added-records'] FROM {made}.snapshots") == [("append", "3")]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        lake.sql(f"CREATE TABLE {made} USING iceberg AS SELECT * FROM {source}")
    lake.sql(f"CREATE TABLE IF NOT EXISTS {made} USING iceberg AS SELECT * FROM {source}")
    assert lake.one(f"SELECT count(*) FROM {made}") == 3


def test_a_replaced_table_has_the_new_rows_and_keeps_its_history(lake: Lake) -> None:
    table = lake.name("t")
    lake.sql(
        f"CREATE OR REPLACE TABLE {table} USING iceberg {lake.properties()} AS SELECT 1L AS id, 'a' AS kind",
    )
    first = lake.head(table)
    lake.sql(
        f"REPLACE TABLE {table} USING iceberg PARTITIONED BY (day) {lake.properties({'color': 'red'})} "
        "AS SELECT 7L AS id, DATE '2024-02-29' AS day",
    )
    assert lake.rows(table) == [(7, dt.date(2024, 2, 29))]
    assert lake.rows(f"SELECT * FROM {table} VERSION AS OF {first}") == [(1, "a")]
    assert lake.one(f"SELECT count(*) FROM {table}.snapshots") == 2
    assert lake.rows(f"SHOW TBLPROPERTIES {table} ('color')") == [("color", "red")]
    lake.sql(f"CREATE OR REPLACE TABLE {table} (other STRING) USING iceberg {lake.properties()}")
    assert lake.rows(table) == []
    lake.sql(f"INSERT INTO {table} VALUES ('x')")
    assert lake.rows(table) == [("x",)]


def test_a_schema_evolves_without_touching_old_rows(lake: Lake) -> None:
    table = lake.create(
        "t",
        "id INT, price DECIMAL(6, 2), ratio FLOAT, gone STRING, at STRUCT<x: INT, y: INT>, tags ARRAY<INT>",
    )
    lake.sql(f"INSERT INTO {table} VALUES (1, 2.50, 0.5, 'old', named_struct('x', 1, 'y', 2), array(1))")
    lake.sql(
        f"ALTER TABLE {table} ADD COLUMNS (note STRING COMMENT 'why' AFTER id)",
        f"ALTER TABLE {table} ADD COLUMN at.z STRUCT<deep: STRING> AFTER x",
        f"ALTER TABLE {table} DROP COLUMN gone",
        f"ALTER TABLE {table} DROP COLUMN at.y",
        f"ALTER TABLE {table} RENAME COLUMN price TO cost",
        f"ALTER TABLE {table} RENAME COLUMN at.x TO left",
        f"ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT",
        f"ALTER TABLE {table} ALTER COLUMN ratio TYPE DOUBLE",
        f"ALTER TABLE {table} ALTER COLUMN cost TYPE DECIMAL(12, 2)",
        f"ALTER TABLE {table} ALTER COLUMN tags.element TYPE BIGINT",
        f"ALTER TABLE {table} ALTER COLUMN ratio FIRST",
        f"ALTER TABLE {table} ALTER COLUMN cost COMMENT 'in euro'",
        f"ALTER TABLE {table} ADD COLUMN gone STRING",
    )
    lake.sql(
        f"INSERT INTO {table} VALUES "
        "(2.5, 3000000000, 'new', 1234567.25, named_struct('left', 5, 'z', named_struct('deep', 'd')), "
        "array(3000000000L), 'again')"
    )
    assert lake.session.table(table).columns == ["ratio", "id", "note", "cost", "at", "tags", "gone"]
    assert lake.rows(
        f"SELECT ratio, id, note, CAST(cost AS STRING), at.left, at.z.deep, tags[0], gone FROM {table}"
    ) == [
        (0.5, 1, None, "2.50", 1, None, 1, None),
        (2.5, 3000000000, "new", "1234567.25", 5, "d", 3000000000, "again"),
    ]
    with pytest.raises(AnalysisException):
        lake.sql(f"ALTER TABLE {table} ALTER COLUMN id TYPE INT")


def test_a_required_column_may_become_optional(lake_v2: Lake) -> None:
    lake = lake_v2
    table = lake.create("t", "id BIGINT NOT NULL, kind STRING")
    lake.sql(
        f"ALTER TABLE {table} ALTER COLUMN id DROP NOT NULL",
        f"INSERT INTO {table} VALUES (NULL, 'a'), (1, 'b')",
    )
    assert lake.rows(table) == [(1, "b"), (None, "a")]


def test_partitioning_evolves_and_every_row_stays_readable(lake: Lake) -> None:
    table = lake.create("t", "id BIGINT, kind STRING, at TIMESTAMP")
    insert = f"INSERT INTO {table} VALUES ({{}}, 'k', {_NOON})"
    lake.sql(
        insert.format(1),
        f"ALTER TABLE {table} ADD PARTITION FIELD days(at)",
        insert.format(2),
        f"ALTER TABLE {table} ADD PARTITION FIELD bucket(4, id) AS shard",
        insert.format(3),
        f"ALTER TABLE {table} REPLACE PARTITION FIELD days(at) WITH hours(at)",
        insert.format(4),
        f"ALTER TABLE {table} DROP PARTITION FIELD shard",
        insert.format(5),
        f"ALTER TABLE {table} ADD PARTITION FIELD truncate(1, kind)",
        insert.format(6),
    )
    assert lake.rows(f"SELECT id FROM {table}") == [(n,) for n in range(1, 7)]
    assert lake.rows(f"SELECT id FROM {table} WHERE at = {_NOON} AND kind = 'k' AND id = 3") == [(3,)]
    assert lake.rows(f"SELECT spec_id FROM {table}.files") == [(n,) for n in range(6)]
    lake.sql(f"ALTER TABLE {table} DROP PARTITION FIELD hours(at)", f"DELETE FROM {table} WHERE id IN (2, 5)")
    assert lake.rows(f"SELECT id FROM {table}") == [(1,), (3,), (4,), (6,)]


def test_a_write_order_sorts_the_rows_of_a_file(lake_v2: Lake) -> None:
    table = lake_v2.create("t", "id BIGINT, kind STRING", properties={"write.distribution-mode": "none"})
    lake_v2.sql(f"ALTER TABLE {table} WRITE ORDERED BY kind DESC NULLS LAST, bucket(8, id)")
    lake_v2.sql(
        f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a'), (2, 'c'), (3, 'b') AS v"
    )
    assert [row.kind for row in lake_v2.session.table(table).collect()] == ["c", "b", "a"]
    assert lake_v2.rows(f"SELECT DISTINCT sort_order_id FROM {table}.files") == [(1,)]
    lake_v2.sql(f"ALTER TABLE {table} WRITE UNORDERED", f"INSERT INTO {table} VALUES (4, 'd')")
    assert lake_v2.rows(f"SELECT sort_order_id FROM {table}.files") == [(0,), (1,)]


def test_properties_are_set_and_removed(lake_v2: Lake) -> None:
    table = lake_v2.create("t", "id BIGINT", properties={"owner-team": "red"})
    lake_v2.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('owner-team' = 'blue', 'write.format.default' = 'orc')"
    )
    lake_v2.sql(f"INSERT INTO {table} VALUES (1)", f"ALTER TABLE {table} UNSET TBLPROPERTIES ('owner-team')")
    properties = dict(lake_v2.rows(f"SHOW TBLPROPERTIES {table}"))
    assert "owner-team" not in properties
    assert properties["format-version"] == str(lake_v2.version)
    assert lake_v2.one(f"SELECT file_format FROM {table}.files") == "ORC"
    lake_v2.sql(f"COMMENT ON TABLE {table} IS 'for tests'")
    assert ("Comment", "for tests", "") in lake_v2.rows(f"DESCRIBE TABLE EXTENDED {table}")


def test_a_table_is_lifted_from_version_1_to_3_with_its_rows(lake_v2: Lake) -> None:
    lake = lake_v2
    table = lake.create("t", "id BIGINT", properties={"format-version": "1"})
    lake.sql(f"INSERT INTO {table} VALUES (1)", f"INSERT INTO {table} VALUES (2)")
    lake.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '2')", f"DELETE FROM {table} WHERE id = 1"
    )
    lake.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')", f"INSERT INTO {table} VALUES (3)"
    )
    assert lake.rows(table) == [(2,), (3,)]
    with pytest.raises(Exception, match="downgrade"):
        lake.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '2')")
