"""Spark and PyIceberg on one table at once, and each reading what the other wrote."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from tests.compat.lake import Lake

_ARROW = pa.schema([pa.field("id", pa.int64()), pa.field("kind", pa.string())])
_TIMES = ("at", "made", "seen", "gone")
_MIDNIGHT = "2024-02-29T00:00:00+00:00"
_RETRIES = {"commit.retry.num-retries": "50"}


def _batch(*rows: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": id_, "kind": kind} for id_, kind in rows], schema=_ARROW)


def _load(catalog: RestCatalog, lake: Lake, name: str = "t") -> Table:
    return catalog.load_table((lake.namespace, name))


def _rows(table: Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.scan().to_arrow().to_pylist()), key=repr)


@pytest.mark.parametrize("partitioned", ["", "kind", "bucket(4, id), truncate(1, kind)"])
def test_each_engine_reads_what_the_other_wrote(
    lake_v2: Lake, catalog: RestCatalog, partitioned: str
) -> None:
    lake = lake_v2
    table = lake.create("t", "id BIGINT, kind STRING", partitioned=partitioned)
    lake.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    _load(catalog, lake).append(_batch((4, "d"), (5, "e")))
    assert lake.rows(table) == _rows(_load(catalog, lake))
    lake.sql(f"UPDATE {table} SET kind = 'B' WHERE id IN (2, 5)")
    _load(catalog, lake).delete(EqualTo("id", 4))
    _load(catalog, lake).overwrite(_batch((30, "c")), overwrite_filter=EqualTo("id", 3))
    lake.sql(f"ALTER TABLE {table} RENAME COLUMN kind TO sort", f"ALTER TABLE {table} ADD COLUMN n INT")
    assert _rows(_load(catalog, lake)) == [(1, "a", None), (2, "B", None), (30, "c", None), (5, "B", None)]
    assert lake.rows(table) == _rows(_load(catalog, lake))


def test_pyiceberg_reads_rows_that_spark_deleted_by_merge_on_read(lake: Lake, catalog: RestCatalog) -> None:
    table = lake.create("t", "id BIGINT, kind STRING", properties={"write.delete.mode": "merge-on-read"})
    lake.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id, 'a' FROM range(6)")
    lake.sql(f"DELETE FROM {table} WHERE id = 1", f"DELETE FROM {table} WHERE id = 4")
    found = _load(catalog, lake)
    assert found.format_version == lake.version
    assert _rows(found) == lake.rows(table) == [(0, "a"), (2, "a"), (3, "a"), (5, "a")]


def test_spark_reads_a_table_that_pyiceberg_defined(lake_v2: Lake, catalog: RestCatalog) -> None:
    table = catalog.create_table((lake_v2.namespace, "t"), _ARROW)
    with table.update_spec() as update:
        update.add_identity("kind")
    table.append(_batch((1, "a"), (2, "b")))
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "one").commit()
    name = lake_v2.name("t")
    lake_v2.sql(f"INSERT INTO {name} VALUES (3, 'a')", f"DELETE FROM {name} WHERE kind = 'b'")
    assert lake_v2.rows(name) == _rows(_load(catalog, lake_v2)) == [(1, "a"), (3, "a")]
    assert lake_v2.rows(f"SELECT * FROM {name} VERSION AS OF 'one'") == [(1, "a"), (2, "b")]


def test_spark_fills_and_both_engines_prune_every_transform_that_pyiceberg_defined(
    lake_v2: Lake, catalog: RestCatalog
) -> None:
    columns = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "kind", StringType()),
        *(NestedField(n, name, TimestamptzType()) for n, name in enumerate(_TIMES, start=3)),
    )
    transforms = (
        (1, BucketTransform(4)),
        (2, TruncateTransform(2)),
        (3, DayTransform()),
        (4, YearTransform()),
        (5, MonthTransform()),
        (6, HourTransform()),
    )
    fields = (PartitionField(source, 1000 + n, one, f"p{n}") for n, (source, one) in enumerate(transforms))
    catalog.create_table((lake_v2.namespace, "t"), columns, partition_spec=PartitionSpec(*fields))
    name = lake_v2.name("t")
    for n, kind, day in ((1, "anna", 28), (2, "anno", 29), (3, "bert", 29)):
        at = f"TIMESTAMP '2024-02-{day} 12:00:00'"
        lake_v2.sql(f"INSERT INTO {name} VALUES ({n}, '{kind}', {at}, {at}, {at}, {at})")
    table = _load(catalog, lake_v2)
    for condition, ids in (
        ("id = 2", [2]),
        ("kind = 'bert'", [3]),
        *((f"{at} > '{_MIDNIGHT}'", [2, 3]) for at in _TIMES),
    ):
        found = table.scan(row_filter=condition).to_arrow()
        assert sorted(found["id"].to_pylist()) == ids
        assert lake_v2.rows(f"SELECT id FROM {name} WHERE {condition}") == [(n,) for n in ids]
    assert len(list(table.scan(row_filter=f"at > '{_MIDNIGHT}'").plan_files())) == 2


def test_rows_that_both_engines_append_at_once_are_those_acknowledged(
    lake_v2: Lake, catalog: RestCatalog
) -> None:
    lake = lake_v2
    table = lake.create("t", "id BIGINT, kind STRING", properties=_RETRIES)

    def append(n: int) -> tuple[int, str]:
        if n % 2:
            lake.sql(f"INSERT INTO {table} VALUES ({n}, 'spark')")
            return n, "spark"
        _load(catalog, lake).append(_batch((n, "python")))
        return n, "python"

    with ThreadPoolExecutor(4) as pool:
        acknowledged = sorted(pool.map(append, range(16)), key=repr)
    assert lake.rows(table) == acknowledged
    assert _rows(_load(catalog, lake)) == acknowledged
    assert _load(catalog, lake).last_sequence_number == 16


def test_changes_that_both_engines_make_at_once_are_kept_or_refused(
    lake_v2: Lake, catalog: RestCatalog
) -> None:
    lake = lake_v2
    table = lake.create("t", "id BIGINT, kind STRING", partitioned="kind", properties=_RETRIES)
    lake.sql(f"INSERT INTO {table} SELECT id, concat('k', id) FROM range(8)")

    def by_spark(n: int) -> bool:
        return lake.lands(f"DELETE FROM {table} WHERE kind = 'k{n}'")

    def by_python(n: int) -> bool:
        try:
            _load(catalog, lake).delete(EqualTo("kind", f"k{n}"))
        except (CommitFailedException, ValidationException):
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        gone = list(pool.map(lambda n: by_spark(n) if n % 2 else by_python(n), range(6)))
    expected = [(n, f"k{n}") for n in range(8) if n >= 6 or not gone[n]]
    assert any(gone)
    assert lake.rows(table) == expected
    assert _rows(_load(catalog, lake)) == expected


def test_pyiceberg_sees_the_names_and_refs_that_spark_made_in_version_3(
    lake_v3: Lake, catalog: RestCatalog
) -> None:
    table = lake_v3.create("t", "id BIGINT, kind STRING", partitioned="kind")
    lake_v3.sql(f"INSERT INTO {table} VALUES (1, 'a')", f"ALTER TABLE {table} CREATE TAG one")
    lake_v3.sql(f"ALTER TABLE {table} ADD COLUMN n INT", f"INSERT INTO {table} VALUES (2, 'b', 7)")
    found = _load(catalog, lake_v3)
    assert _rows(found) == [(1, "a", None), (2, "b", 7)]
    assert found.scan().use_ref("one").to_arrow()["id"].to_pylist() == [1]
    assert found.metadata.next_row_id == 2  # type: ignore[union-attr]  # v3 metadata has it
    with found.transaction() as transaction:
        transaction.set_properties(team="red")
    assert lake_v3.rows(f"SHOW TBLPROPERTIES {table} ('team')") == [("team", "red")]
