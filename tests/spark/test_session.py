"""The test session itself: if these fail, no other Spark test means anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from tests.spark_session import set_catalog, use_catalog


def test_spark_writes_and_reads_an_iceberg_table(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    set_catalog(session, "smoke", {"type": "hadoop", "warehouse": tmp_path.as_uri()})
    session.sql("CREATE TABLE smoke.db.events (id BIGINT, day DATE) USING iceberg PARTITIONED BY (day)")
    session.sql("INSERT INTO smoke.db.events VALUES (1, DATE '2024-02-29'), (2, DATE '2024-03-01')")
    session.sql("DELETE FROM smoke.db.events WHERE id = 1")
    assert [row.id for row in session.table("smoke.db.events").collect()] == [2]
    snapshots = session.table("smoke.db.events.snapshots").orderBy("committed_at").collect()
    assert [row.operation for row in snapshots] == ["append", "delete"]


def test_the_extensions_understand_iceberg_statements(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    set_catalog(session, "smoke", {"type": "hadoop", "warehouse": tmp_path.as_uri()})
    session.sql("CREATE TABLE smoke.db.t (id BIGINT) USING iceberg")
    session.sql("INSERT INTO smoke.db.t VALUES (1)")
    session.sql("ALTER TABLE smoke.db.t CREATE BRANCH audit")
    assert session.table("smoke.db.t.branch_audit").count() == 1


def test_the_session_runs_in_utc_with_ansi_errors(spark: SparkSession) -> None:
    session = spark.newSession()
    assert session.conf.get("spark.sql.session.timeZone") == "UTC"
    assert session.conf.get("spark.sql.ansi.enabled") == "true"
    assert session.sql("SELECT unix_micros(TIMESTAMP '1970-01-01 00:00:00') AS at").first() == Row(at=0)


def test_a_catalog_name_cannot_be_registered_twice(spark: SparkSession) -> None:
    session = spark.newSession()
    use_catalog(session, "lake", "http://127.0.0.1:1")
    with pytest.raises(ValueError, match="already registered"):
        use_catalog(session, "lake", "http://127.0.0.1:2")
