"""Planning and reading: the same files as the jar plans, the same rows as it reads, whatever the files are like."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from pyiceberg.types import DateType, IntegerType

from headgate.errors import BadInput, NotFound
from headgate.spark.deletes import delete
from headgate.spark.filters import read_filter
from headgate.spark.scan import plan, read, why_by_jar
from headgate.spark.updates import update
from tests.compat.fine import Fine
from tests.compat.lake import Lake as CompatLake
from tests.spark.tables import Rows, Tables, in_order
from tests.spark.twins import make_twins

CONDITIONS = (
    "id = 2",
    "id in (3, 100)",
    "kind = 'b'",
    "kind <> 'a'",
    "at >= '2024-01-03'",
    "date(at) = date '2024-01-02'",
    "kind is null",
    "amount < 0 or id = 6",
    "id > 100",
    "kind like 'c%'",
)


def by_us(tables: Tables, table: str, *, columns: str = "*") -> Rows:
    """The rows as our scan reads them."""
    scan = plan(tables.table(table).load())
    rows = read(tables.spark, scan.files, scan.state, positions=True, lineage=tables.version == 3)
    names = [field.name for field in scan.state.schema.fields]
    return in_order(
        tuple(row) for row in rows.selectExpr(*(names if columns == "*" else columns.split(", "))).collect()
    )


@pytest.mark.parametrize("layout", ["plain", "partitioned", "evolved"])
def test_a_scan_opens_the_files_that_the_jar_opens(tables_v2: Tables, layout: str) -> None:
    twins = make_twins(tables_v2, layout)
    state = twins.ours.load()
    for condition in CONDITIONS:
        wanted = read_filter(tables_v2.spark, condition, state)
        ours = {one.path for one in plan(state, row_filter=wanted.expression).files}
        assert ours == by_jars_plan(tables_v2, "ours", wanted.wire), condition
        assert {row[0] for row in tables_v2.by_jar("ours", "_file", where=condition)} <= ours, condition


def by_jars_plan(tables: Tables, table: str, wire: object) -> set[str]:
    """The data files that Java Iceberg opens for a filter."""
    java: Any = tables.spark._jvm.org.apache.iceberg
    found = java.spark.Spark3Util.loadIcebergTable(tables.spark._jsparkSession, tables.name(table))
    filter_ = java.expressions.ExpressionParser.fromJson(json.dumps(wire), found.schema())
    tasks = found.newScan().filter(filter_).planFiles().iterator()
    paths = set()
    while tasks.hasNext():
        paths.add(str(tasks.next().file().location()))
    return paths


def test_files_with_deletes_of_the_jar_are_read_as_the_jar_reads_them(tables: Tables) -> None:
    twins = make_twins(
        tables, "partitioned", {"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"}
    )
    name = tables.name("ours")
    tables.sql(f"DELETE FROM {name} WHERE id IN (1, 6)", f"UPDATE {name} SET amount = 0 WHERE kind = 'b'")
    tables.sql(f"DELETE FROM {name} WHERE id = 5")
    wanted = "*, _file, _pos" + (", _row_id, _last_updated_sequence_number" if tables.version == 3 else "")
    ours = by_us(tables, "ours", columns=f"id, kind, amount, at, {wanted.removeprefix('*, ')}")
    assert ours == tables.by_jar("ours", wanted)
    assert len(twins.delete_files()) > 1


def test_columns_are_found_by_id_through_renames_promotions_and_reused_names(tables: Tables) -> None:
    tables.create("t", "id INT, a STRING, b STRING, s STRUCT<x: INT, y: STRING>, d DECIMAL(5,2)")
    name = tables.name("t")
    tables.sql(
        f"INSERT INTO {name} VALUES (1, 'a1', 'b1', struct(1, 'y1'), 1.25)",
        f"ALTER TABLE {name} RENAME COLUMN a TO c",
        f"ALTER TABLE {name} ADD COLUMN a STRING",
        f"ALTER TABLE {name} ALTER COLUMN id TYPE BIGINT",
        f"ALTER TABLE {name} ALTER COLUMN d TYPE DECIMAL(10,2)",
        f"ALTER TABLE {name} DROP COLUMN b",
        f"ALTER TABLE {name} ADD COLUMN s.z INT",
        f"INSERT INTO {name} VALUES (2, 'c2', struct(2, 'y2', 22), 2.50, 'a2')",
    )
    assert by_us(tables, "t") == tables.rows("t")
    assert len(by_us(tables, "t")) == 2


def test_rows_of_before_a_column_was_added_have_its_default(tables_v3: Tables) -> None:
    table = tables_v3.create("t")
    name = tables_v3.name("t")
    tables_v3.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    with tables_v3.lake.catalog().load_table(table.identifier).update_schema() as schema:
        schema.add_column("n", IntegerType(), default_value=5)
        schema.add_column("day", DateType(), default_value="2024-01-01")
    tables_v3.sql(f"INSERT INTO {name} VALUES (2, 'b', NULL, NULL)")
    assert by_us(tables_v3, "t") == tables_v3.rows("t")
    assert by_us(tables_v3, "t") == [(1, "a", 5, date(2024, 1, 1)), (2, "b", None, None)]
    delete(table, "id = 2 or n = 6", spark=tables_v3.spark)
    update(table, {"name": "'z'"}, "n = 5", spark=tables_v3.spark)
    assert tables_v3.rows("t") == [(1, "z", 5, date(2024, 1, 1))]


def test_a_name_inside_a_struct_that_was_used_before_goes_through_the_jar(tables_v2: Tables) -> None:
    table = tables_v2.create("t", "id INT, s STRUCT<x: STRING, y: STRING>")
    name = tables_v2.name("t")
    tables_v2.sql(
        f"INSERT INTO {name} VALUES (1, struct('x1', 'y1'))",
        f"ALTER TABLE {name} DROP COLUMN s.x",
        f"ALTER TABLE {name} ADD COLUMN s.x STRING",
        f"INSERT INTO {name} VALUES (2, struct('y2', 'x2'))",
    )
    state = table.load()
    assert all(why_by_jar(one, state) for one in plan(state).files)
    assert by_us(tables_v2, "t") == tables_v2.rows("t")


def test_types_that_spark_reads_its_own_way_are_read_as_the_jar_reads_them(tables: Tables) -> None:
    tables.create(
        "t",
        "id BIGINT, b BINARY, at TIMESTAMP, n TIMESTAMP_NTZ, day DATE, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, INT>, "
        "f FLOAT, d DOUBLE, ok BOOLEAN",
    )
    tables.sql(
        f"INSERT INTO {tables.name('t')} VALUES (1, X'00FF', TIMESTAMP '2024-01-01 01:02:03.000004', "
        "TIMESTAMP_NTZ '1960-01-01 00:00:00', DATE '1500-01-01', array(struct(1), null), map('k', null), "
        "float('NaN'), -0.0, true), (2, null, null, null, null, null, null, null, null, null)"
    )
    assert repr(by_us(tables, "t")) == repr(tables.by_jar("t"))


def test_equality_deletes_are_applied_through_the_jar(tables: Tables) -> None:
    table = tables.create("t", "id BIGINT, name STRING")
    tables.sql(
        f"INSERT INTO {tables.name('t')} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    )
    fine = Fine(CompatLake(tables.spark, tables.lake.uri, tables.namespace, tables.version), "t")
    file = fine.write(((1, "id", "long"),), [(2,)], content="equality-deletes", **{"equality-ids": [1]})
    fine.change("delete", add_delete_files=[file])
    state = table.load()
    assert [why_by_jar(one, state) for one in plan(state).files] == ["it has equality deletes"]
    assert by_us(tables, "t") == tables.by_jar("t") == [(1, "a"), (3, "c")]


def test_a_session_without_the_jar_says_how_to_get_it(tables_v2: Tables) -> None:
    table = tables_v2.create("t", properties={"write.format.default": "orc"})
    tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} VALUES (1, 'a')")
    assert by_us(tables_v2, "t") == [(1, "a")]
    scan = plan(table.load())
    with pytest.raises(BadInput, match=r"of the format orc.*build_session"):
        read(tables_v2.spark.newSession(), scan.files, scan.state)


def test_files_whose_names_look_like_patterns_are_read_once(tables_v2: Tables) -> None:
    tables_v2.create("t", "id BIGINT, kind STRING", partitioned="kind")
    tables_v2.sql(
        f"INSERT INTO {tables_v2.name('t')} VALUES (1, 'a b'), (2, 'a%20b'), (3, '{{x}}[1]*?'), (4, 'ü+ö/='), (5, '')"
    )
    assert by_us(tables_v2, "t") == tables_v2.rows("t")
    assert len(by_us(tables_v2, "t")) == 5


def test_a_snapshot_that_is_gone_is_named(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    with pytest.raises(NotFound, match="4711"):
        plan(table.load(), snapshot_id=4711)
    assert plan(table.load()).files == ()


def test_an_older_snapshot_is_read_as_it_was(tables_v2: Tables) -> None:
    twins = make_twins(tables_v2)
    state = twins.ours.load(all_snapshots=True)
    first = min(state.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    scan = plan(state, snapshot_id=first.snapshot_id)
    assert [row[0] for row in in_order(read(tables_v2.spark, scan.files, state).select("id").collect())] == [
        1,
        2,
        3,
        4,
    ]
