"""What the library remembers between commits never outlives what it was made of."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

import headgate
from headgate.errors import BadInput
from tests.library.lake import NAME, Lake, quick, rows


def test_a_schema_that_fits_lets_no_other_pass(lake: Lake) -> None:
    lake.create()
    table = headgate.open(NAME, lake.connect(), policy=quick())
    table.append(rows(1))
    with pytest.raises(BadInput, match="does not fit"):
        table.append(rows(2).append_column("more", pa.array(["x"])))
    table.append(rows(3))
    assert lake.ids() == [1, 3]


def test_rows_are_written_in_the_schema_that_somebody_else_made_meanwhile(lake: Lake) -> None:
    lake.create()
    table = headgate.open(NAME, lake.connect(), policy=quick())
    table.append(rows(1))
    with lake.find().update_schema() as schema:
        schema.add_column("note", StringType())
    table.append(rows(2).append_column("note", pa.array(["new"])))
    table.append(rows(3))
    assert [row["note"] for row in lake.read()] == [None, "new", None]


def test_a_table_of_the_same_shape_is_written_to_its_own_folder(lake: Lake) -> None:
    for name in ("db.first", "db.second"):
        lake.create(name)
        headgate.open(name, lake.connect(), policy=quick()).append(rows(1))
        assert not lake.find_orphans(name)
        assert lake.ids(name) == [1]


def test_files_that_a_commit_wrote_are_not_looked_for_in_other_manifests(lake: Lake) -> None:
    lake.create(properties={"commit.manifest-merge.enabled": "false"})
    other = headgate.open(NAME, lake.connect(), policy=quick())
    other.append(rows(1))
    for manifest in lake.find().inspect.manifests()["path"].to_pylist():
        (lake.folder / manifest.removeprefix("file://")).unlink()
    headgate.open(NAME, lake.connect(), policy=quick()).append(rows(2))
    assert len(lake.metadata()["snapshots"]) == 2
