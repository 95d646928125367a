"""Spark uses the service as a catalog: namespaces, listing, rename, drop, purge, views."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from tests.compat.lake import CATALOG, Lake, local_files


def test_namespaces_nest_and_carry_properties(lake_v2: Lake) -> None:
    lake, outer = lake_v2, f"{CATALOG}.{lake_v2.namespace}"
    lake.sql(
        f"CREATE NAMESPACE {outer}.inner COMMENT 'inside' WITH DBPROPERTIES ('team' = 'red')",
        f"CREATE NAMESPACE {outer}.inner.deep",
        f"CREATE NAMESPACE IF NOT EXISTS {outer}.inner.deep",
    )
    assert lake.rows(f"SHOW NAMESPACES IN {outer}") == [(f"{lake.namespace}.inner",)]
    assert lake.rows(f"SHOW NAMESPACES IN {outer}.inner") == [(f"{lake.namespace}.inner.deep",)]
    lake.sql(f"ALTER NAMESPACE {outer}.inner SET PROPERTIES ('team' = 'blue', 'floor' = '3')")
    described = dict(lake.rows(f"DESCRIBE NAMESPACE EXTENDED {outer}.inner"))
    assert described["Comment"] == "inside"
    assert "(floor,3)" in str(described["Properties"])
    assert "(team,blue)" in str(described["Properties"])
    with pytest.raises(AnalysisException, match="SCHEMA_ALREADY_EXISTS"):
        lake.sql(f"CREATE NAMESPACE {outer}.inner")
    lake.sql(f"CREATE TABLE {outer}.inner.deep.t (id BIGINT) USING iceberg")
    lake.sql(f"INSERT INTO {outer}.inner.deep.t VALUES (1)")
    assert lake.rows(f"{outer}.inner.deep.t") == [(1,)]
    assert lake.one(f"SELECT count(*) FROM {outer}.inner.deep.t.snapshots") == 1
    with pytest.raises(Exception, match="not empty"):
        lake.sql(f"DROP NAMESPACE {outer}.inner.deep")
    lake.sql(f"DROP TABLE {outer}.inner.deep.t", f"DROP NAMESPACE {outer}.inner.deep")
    assert lake.rows(f"SHOW NAMESPACES IN {outer}.inner") == []


def test_a_renamed_table_keeps_its_rows_and_history(lake: Lake) -> None:
    table, other = lake.create("t", "id BIGINT"), lake.name("other")
    lake.sql(f"INSERT INTO {table} VALUES (1)")
    # Spark takes the new name as one in the table's catalog: with the catalog in it, it is a namespace too many.
    lake.sql(f"ALTER TABLE {table} RENAME TO {lake.namespace}.other", f"INSERT INTO {other} VALUES (2)")
    assert lake.rows(other) == [(1,), (2,)]
    assert not lake.session.catalog.tableExists(table)
    assert lake.rows(f"SHOW TABLES IN {CATALOG}.{lake.namespace}") == [(lake.namespace, "other", False)]
    lake.create("t", "id BIGINT")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        lake.sql(f"ALTER TABLE {other} RENAME TO {lake.namespace}.t")


def test_a_dropped_table_leaves_its_files_and_can_be_registered(lake: Lake) -> None:
    table = lake.create("t", "id BIGINT")
    lake.sql(f"INSERT INTO {table} VALUES (1)")
    location, log = lake.location(table), f"{table}.metadata_log_entries"
    newest = lake.one(f"SELECT max_by(file, timestamp) FROM {log}")
    lake.sql(f"DROP TABLE {table}")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        lake.rows(table)
    lake.sql(f"DROP TABLE IF EXISTS {table}")
    assert local_files(location, "*.parquet")
    back = lake.name("back")
    lake.call("register_table", back, f"metadata_file => '{newest}'")
    lake.sql(f"INSERT INTO {back} VALUES (2)")
    assert lake.rows(back) == [(1,), (2,)]


def test_a_purged_table_leaves_no_file(lake: Lake) -> None:
    table = lake.create("t", "id BIGINT", properties={"write.delete.mode": "merge-on-read"})
    lake.sql(f"INSERT INTO {table} SELECT id FROM range(4)", f"DELETE FROM {table} WHERE id = 1")
    location = lake.location(table)
    assert local_files(location)
    lake.sql(f"DROP TABLE {table} PURGE")
    left = {file.name for file in local_files(location) if not file.name.endswith(".crc")}
    assert left == set()
    assert not lake.session.catalog.tableExists(table)


def test_a_table_made_again_starts_empty(lake_v2: Lake) -> None:
    table = lake_v2.create("t", "id BIGINT")
    lake_v2.sql(f"INSERT INTO {table} VALUES (1)", f"DROP TABLE {table}")
    lake_v2.create("t", "name STRING")
    assert lake_v2.rows(table) == []
    lake_v2.sql(f"INSERT INTO {table} VALUES ('new')")
    assert lake_v2.rows(table) == [("new",)]


def test_a_view_shows_the_tables_rows_and_can_be_replaced(lake_v2: Lake) -> None:
    lake = lake_v2
    table, view = lake.create("t", "id BIGINT, kind STRING"), lake.name("v")
    lake.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    lake.sql(
        f"CREATE VIEW {view} (number COMMENT 'the id', kind) COMMENT 'a view' TBLPROPERTIES ('team' = 'red') "
        f"AS SELECT id, kind FROM {table}"
    )
    assert lake.rows(f"SELECT number FROM {view} WHERE kind = 'b'") == [(2,)]
    assert lake.rows(f"SHOW VIEWS IN {CATALOG}.{lake.namespace}") == [(lake.namespace, "v", False)]
    lake.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT count(*) AS n FROM {table}")
    assert lake.rows(view) == [(2,)]
    lake.sql(f"CREATE VIEW IF NOT EXISTS {view} AS SELECT 0 AS n", f"INSERT INTO {table} VALUES (3, 'c')")
    assert lake.rows(view) == [(3,)]
    lake.sql(f"ALTER VIEW {view} SET TBLPROPERTIES ('team' = 'blue', 'more' = 'x')")
    lake.sql(f"ALTER VIEW {view} UNSET TBLPROPERTIES ('more')")
    properties = dict(lake.rows(f"SHOW TBLPROPERTIES {view}"))
    assert properties["team"] == "blue"
    assert "more" not in properties
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        lake.sql(f"CREATE VIEW {view} AS SELECT 1 AS n")
    lake.sql(f"ALTER VIEW {view} RENAME TO {lake.name('w')}")
    assert lake.rows(lake.name("w")) == [(3,)]
    lake.sql(f"DROP VIEW {lake.name('w')}")
    assert lake.rows(f"SHOW VIEWS IN {CATALOG}.{lake.namespace}") == []
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        lake.rows(lake.name("w"))


def test_a_view_and_a_table_cannot_share_a_name(lake_v2: Lake) -> None:
    table = lake_v2.create("t", "id BIGINT")
    with pytest.raises(AnalysisException, match=r"ALREADY_EXISTS|already exists"):
        lake_v2.sql(f"CREATE VIEW {table} AS SELECT 1 AS n")
    lake_v2.sql(f"CREATE VIEW {lake_v2.name('v')} AS SELECT 1 AS n")
    with pytest.raises(AnalysisException, match=r"ALREADY_EXISTS|already exists"):
        lake_v2.create("v", "id BIGINT")


def test_a_table_with_odd_names_is_found_again(lake_v2: Lake) -> None:
    table = f"{CATALOG}.{lake_v2.namespace}.`a b+ü&=`"
    lake_v2.sql(f"CREATE TABLE {table} (`x y` BIGINT, `ü/1` STRING) USING iceberg {lake_v2.properties()}")
    lake_v2.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    assert lake_v2.rows(f"SELECT `x y`, `ü/1` FROM {table}") == [(1, "a")]
    assert lake_v2.rows(f"SHOW TABLES IN {CATALOG}.{lake_v2.namespace}") == [
        (lake_v2.namespace, "a b+ü&=", False)
    ]
