"""A refusal that leaves a doubt deletes nothing that the data source wrote; without Spark."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from headgate.errors import NotFound
from headgate.library.handle import Handle
from headgate.library.roads import CatalogRoad
from headgate.spark.arrow_files import Attempt, write_batches
from headgate.spark.catalog_table import CatalogTable
from headgate.spark.data_source_write import BatchWriter, FilesWritten
from headgate.spark.lake import Lake
from headgate.spark.runs import new_run
from headgate.spark.source_options import SourceOptions
from tests.library.lake import quick
from tests.library.unsure import UnsureCatalog, lands_then


def test_a_commit_that_landed_before_its_table_got_another_name_keeps_its_files(tmp_path: Path) -> None:
    """The commit lands; what is heard is that there is no such table, and a load says the same."""
    uri, warehouse = f"sqlite:///{tmp_path}/c.db", f"file://{tmp_path}/w"
    lake = Lake.over(f"c{uuid4().hex}", {"type": "sql", "uri": uri, "warehouse": warehouse})
    lake.catalog().create_namespace("n")
    lake.catalog().create_table("n.t", Schema(NestedField(1, "id", LongType())))
    table = lake.table("n.t")
    catalog = UnsureCatalog(lake.catalog(), (lands_then(NoSuchTableError("gone")),))
    catalog.after_commit = lambda: setattr(catalog, "load_error", NoSuchTableError("gone"))
    road = CatalogRoad(catalog, ("n", "t"), lake.catalog().load_table("n.t").io)
    table.__dict__["client"] = CatalogTable(("n", "t"), lambda: Handle(road, quick()))
    state, run = table.load(), new_run()
    folder = f"{state.data_location}/{run.id}"
    batch = pa.record_batch({"id": pa.array([1, 2], pa.int64())})
    messages = [FilesWritten(write_batches([batch], state, Attempt(folder, "00000-0")), folder)]
    with pytest.raises(NotFound) as refused:
        BatchWriter(state, run, SourceOptions(table), overwrite=False).commit(messages)
    assert refused.value.evidence["in_doubt"]
    found = lake.catalog().load_table("n.t").scan().to_arrow()
    assert sorted(found.column("id").to_pylist()) == [1, 2]
