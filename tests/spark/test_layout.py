"""How rows are laid out in files: distribution, order, size and the writer's own properties."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import DataFrame

from headgate.errors import BadInput
from headgate.spark.layout import distribution_of, rows_per_file
from headgate.spark.session import with_setting
from headgate.spark.writer_options import writer_options
from headgate.spark.writes import Written, write
from tests.spark.tables import Tables


def many(tables: Tables, count: int, tasks: int = 4) -> DataFrame:
    """Rows of three names, each of them in every task."""
    query = f"SELECT id, 'n' || (id % 3) AS name FROM range(0, {count}, 1, {tasks})"
    return tables.spark.sql(query)


def local(written: Written) -> list[Path]:
    return [Path(urlsplit(file["file-path"]).path) for file in written.files]


def test_rows_of_a_partition_meet_in_one_file_unless_the_table_says_otherwise(tables_v2: Tables) -> None:
    table = tables_v2.create("t", partitioned="name")
    assert len(write(many(tables_v2, 12), table).files) == 3
    spread = tables_v2.create("spread", partitioned="name", properties={"write.distribution-mode": "none"})
    assert len(write(many(tables_v2, 12), spread).files) == 12
    assert tables_v2.rows("t") == tables_v2.rows("spread")


def test_rows_of_a_sorted_table_are_in_its_order(tables_v2: Tables) -> None:
    table = tables_v2.create("t", partitioned="name")
    tables_v2.sql(f"ALTER TABLE {tables_v2.name('t')} WRITE ORDERED BY id DESC NULLS LAST")
    written = write(many(tables_v2, 30), table)
    assert {file["sort-order-id"] for file in written.files} == {1}
    for file in local(written):
        ids = pq.read_table(file, columns=["id"]).column("id").to_pylist()
        assert ids == sorted(ids, reverse=True)
    assert len(tables_v2.rows("t")) == 30


@pytest.mark.parametrize("order", ["", "id DESC NULLS LAST"], ids=["as they come", "sorted"])
def test_a_task_with_more_partitions_than_it_writes_at_once_makes_one_file_of_each(
    tables_v2: Tables, order: str
) -> None:
    table = tables_v2.create("t", partitioned="name")
    if order:
        tables_v2.sql(f"ALTER TABLE {tables_v2.name('t')} WRITE ORDERED BY {order}")
    query = "SELECT id, 'n' || (id % 100) AS name FROM range(0, 2000, 1, 1)"
    written = write(tables_v2.spark.sql(query), table)
    assert len(written.files) == 100
    for file in local(written) if order else ():
        ids = pq.read_table(file, columns=["id"]).column("id").to_pylist()
        assert ids == sorted(ids, reverse=True)
    assert len(tables_v2.rows("t")) == 2000


def test_what_a_write_sets_for_itself_is_not_seen_by_the_session(tables_v2: Tables) -> None:
    name = "spark.sql.maxConcurrentOutputFileWriters"
    before = tables_v2.spark.conf.get(name)
    rows = many(tables_v2, 3)
    copied = with_setting(rows, name, "7")
    assert copied._jdf.sparkSession().conf().get(name) == "7"  # type: ignore[operator]
    assert tables_v2.spark.conf.get(name) == before
    assert sorted(copied.collect()) == sorted(rows.collect())


def test_without_a_copy_of_the_session_rows_are_written_as_it_is_set(tables_v2: Tables) -> None:
    class Bare:
        """What a Spark that has no such method looks like."""

        def sparkSession(self) -> object:
            raise Py4JError("no cloneSession here")

    rows = many(tables_v2, 3)
    rows._jdf, kept = Bare(), rows._jdf  # type: ignore[assignment]
    assert with_setting(rows, "spark.sql.maxConcurrentOutputFileWriters", "7") is rows
    rows._jdf = kept


def test_files_do_not_grow_past_the_target_size(tables_v2: Tables) -> None:
    table = tables_v2.create("t", properties={"write.target-file-size-bytes": "20000"})
    rows = tables_v2.spark.sql("SELECT id, md5(CAST(id AS STRING)) AS name FROM range(0, 4000, 1, 1)")
    first = write(rows, table)
    assert len(first.files) > 1
    state = table.load()
    bytes_a_row = sum(file["file-size-in-bytes"] for file in first.files) / 4000
    assert rows_per_file(state) == pytest.approx(20000 / bytes_a_row, rel=0.01)
    second = write(rows, table)
    assert max(file["file-size-in-bytes"] for file in second.files) < 30000


def test_the_writer_follows_the_properties_of_the_table(tables_v2: Tables) -> None:
    properties = {
        "write.parquet.compression-codec": "gzip",
        "write.parquet.row-group-size-bytes": "20000",
        "write.parquet.bloom-filter-enabled.column.name": "true",
        "write.data.path": f"{tables_v2.create('at').load().location}/elsewhere",
    }
    rows = tables_v2.spark.sql("SELECT id, md5(CAST(id AS STRING)) AS name FROM range(0, 9000, 1, 1)")
    by_default = local(write(rows, tables_v2.create("plain")))[0]
    (file,) = local(write(rows, tables_v2.create("t", properties=properties)))
    assert "elsewhere" in file.parts
    assert pq.read_metadata(by_default).row_group(0).column(0).compression == "ZSTD"
    footer = pq.read_metadata(file)
    assert footer.row_group(0).column(0).compression == "GZIP"
    assert footer.num_row_groups > pq.read_metadata(by_default).num_row_groups
    assert len(tables_v2.rows("t")) == 9000


WRONG = {
    "write.parquet.compression-codec": "zip",
    "write.format.default": "orc",
    "write.parquet.page-size-bytes": "large",
}


def test_a_property_that_cannot_be_followed_is_named() -> None:
    for name, value in WRONG.items():
        with pytest.raises(BadInput) as caught:
            writer_options({name: value})
        assert caught.value.field == name
    with pytest.raises(BadInput) as caught:
        distribution_of({"write.distribution-mode": "round"}, is_partitioned=True, is_sorted=False)
    assert caught.value.field == "write.distribution-mode"


def test_a_field_that_is_void_makes_no_partitions(tables: Tables) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False)
    )
    spec = PartitionSpec(
        PartitionField(1, 1000, VoidTransform(), "gone"), PartitionField(2, 1001, IdentityTransform(), "name")
    )
    properties = {"format-version": str(tables.version)}
    tables.lake.catalog().create_table(
        (tables.namespace, "t"), schema, partition_spec=spec, properties=properties
    )
    written = write(many(tables, 6), tables.table("t"))
    assert sorted(file["partition"] for file in written.files) == [[None, "n0"], [None, "n1"], [None, "n2"]]
    assert len(tables.rows("t")) == 6


def test_rows_go_by_the_spec_that_the_table_has_now(tables: Tables) -> None:
    table = tables.create("t", partitioned="name")
    write(many(tables, 3), table)
    tables.sql(f"ALTER TABLE {tables.name('t')} REPLACE PARTITION FIELD name WITH bucket(2, id)")
    written = write(many(tables, 6), table)
    assert {file["spec-id"] for file in written.files} == {1}
    assert len(tables.rows("t")) == 9
