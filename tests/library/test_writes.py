"""What the library writes, read back by PyIceberg, in every format version; and the files it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.expressions import BooleanExpression, EqualTo

import headgate
from headgate.errors import BadInput, NotFound
from headgate.library.steps import Step
from headgate.library.writes import Writes
from tests.library.lake import (
    ARROW,
    NAME,
    SCHEMA,
    UNPARTITIONED,
    Lake,
    live_files,
    operations,
    quick,
    rows,
    written_file,
)

versions = pytest.mark.parametrize("version", [1, 2, 3])


@versions
def test_appended_rows_are_there_once(lake: Lake, version: int) -> None:
    lake.create(version=version)
    done = lake.open().append(pa.concat_tables([rows(1, 2), rows(3, part="b")]))
    assert lake.ids() == [1, 2, 3]
    assert done.snapshot_id == lake.metadata()["current-snapshot-id"]
    assert done.sent == 1
    lake.check()


@versions
def test_a_delete_rewrites_only_what_it_must(lake: Lake, version: int) -> None:
    lake.create(version=version)
    table = lake.open()
    table.append(pa.concat_tables([rows(1, 2), rows(3, part="b"), rows(4, part="c")]))
    before = set(live_files(lake))
    table.delete("id = 2 or part = 'b'")
    assert lake.ids() == [1, 4]
    assert len(before & set(live_files(lake))) == 1  # that of partition c
    lake.check()


@versions
def test_an_overwrite_replaces_the_rows_of_its_filter_by_one_snapshot(lake: Lake, version: int) -> None:
    lake.create(version=version)
    table = lake.open()
    table.append(pa.concat_tables([rows(1, 2), rows(3, part="b")]))
    table.overwrite(rows(7), "part = 'a' and id = 1")
    assert lake.ids() == [2, 3, 7]
    assert operations(lake) == ["append", "overwrite"]
    lake.check()


@versions
def test_a_dynamic_overwrite_replaces_the_partitions_of_its_rows(lake: Lake, version: int) -> None:
    lake.create(version=version)
    table = lake.open()
    table.append(pa.concat_tables([rows(1, 2), rows(3, part="b")]))
    table.replace_partitions(rows(9))
    assert lake.ids() == [3, 9]
    lake.check()


@versions
def test_an_upsert_changes_rows_that_differ_and_adds_rows_that_are_new(lake: Lake, version: int) -> None:
    lake.create(version=version, spec=UNPARTITIONED)
    table = lake.open()
    table.append(pa.concat_tables([rows(1, 2), rows(3, part="b")]))
    table.upsert(pa.concat_tables([rows(2, value=5.0), rows(3, part="b"), rows(8, part="c")]), ["id"])
    assert [(row["id"], row["value"]) for row in lake.read()] == [(1, 0.0), (2, 5.0), (3, 0.0), (8, 0.0)]
    lake.check()


def test_an_upsert_that_changes_nothing_makes_no_snapshot(lake: Lake) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1, 2))
    assert table.upsert(rows(1, 2), ["id"]).snapshot_id is None
    assert operations(lake) == ["append"]


def test_files_that_are_written_already_are_committed_as_they_are(lake: Lake) -> None:
    lake.create()
    lake.open().append(rows(1))
    file = written_file(lake, "own", rows(5, 6))
    table = lake.open()
    table.append([file])
    assert lake.ids() == [1, 5, 6]
    with pytest.raises(headgate.errors.ConflictFound, match="already live"):
        table.append([file])
    lake.check()


def test_files_are_rewritten_by_naming_them(lake: Lake) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1))
    table.append(rows(2))
    table.refresh().rewrite(list(live_files(lake)), rows(1, 2))
    assert lake.ids() == [1, 2]
    assert operations(lake)[-1] == "replace"
    lake.check()


def test_a_reader_of_batches_streams_into_partitions(lake: Lake) -> None:
    lake.create()
    batches = pa.concat_tables([rows(1), rows(2, part="b")]).to_batches()
    lake.open().append(pa.RecordBatchReader.from_batches(ARROW, batches))
    assert lake.ids() == [1, 2]
    lake.check()


def test_a_branch_is_written_and_main_is_not(lake: Lake) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1))
    table.append(rows(2), branch="audit", create_branch=True)
    table.delete("id = 1", branch="audit")
    assert lake.ids() == [1]
    assert lake.ids(branch="audit") == [2]


def test_a_branch_that_is_missing_is_not_made_by_accident(lake: Lake) -> None:
    lake.create()
    with pytest.raises(NotFound, match="create_branch"):
        lake.open().append(rows(1), branch="nowhere")
    assert lake.find_orphans() == set()


def test_a_staged_snapshot_is_of_no_branch(lake: Lake) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1))
    table.append(rows(2), stage_only=True, summary={"wap.id": "x"})
    assert lake.ids() == [1]
    assert lake.metadata()["snapshots"][-1]["summary"]["wap.id"] == "x"


def test_data_that_does_not_fit_is_refused_and_leaves_nothing(lake: Lake) -> None:
    lake.create()
    with pytest.raises(BadInput):
        lake.open().append(pa.table({"other": [1]}))
    with pytest.raises(BadInput, match="no column is named"):
        lake.open().delete("nothing = 3")
    with pytest.raises(BadInput, match="keys"):
        lake.open().upsert(rows(1), ["missing"])
    assert lake.find_orphans() == set()


def test_a_table_without_a_catalog_and_a_missing_table_are_refused(lake: Lake) -> None:
    with pytest.raises(BadInput, match="needs a catalog"):
        headgate.open(NAME)
    with pytest.raises(NotFound):
        headgate.open("db.missing", lake.catalog)


def test_an_asynchronous_write_gives_the_same_result(lake: Lake) -> None:
    lake.create()
    table = lake.open(policy=quick())

    def append(i: int) -> Callable[[Writes[Step]], Step]:
        return lambda writes: writes.append(rows(i))

    async def write() -> None:
        await asyncio.gather(*(table.commit_async(append(i)) for i in range(4)))

    asyncio.run(write())
    assert lake.ids() == [0, 1, 2, 3]
    lake.check()


def test_an_asynchronous_write_reaches_a_catalog_that_lives_in_one_threads_memory(tmp_path: Path) -> None:
    catalog = InMemoryCatalog("memory", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    catalog.create_table(NAME, ARROW)
    table = headgate.open(NAME, catalog, policy=quick())
    waits: list[int] = []

    async def write() -> None:
        await asyncio.gather(
            table.commit_async(lambda t: t.append(rows(1))), table.commit_async(lambda t: t.append(rows(2)))
        )
        done = await table.commit_async(lambda t: t.delete("id = 1"))
        waits.append(done.sent)

    asyncio.run(write())
    table.append(rows(3))
    assert sorted(catalog.load_table(NAME).scan().to_arrow()["id"].to_pylist()) == [2, 3]
    assert waits == [1]


def test_a_key_that_landed_before_is_not_committed_again(lake: Lake) -> None:
    lake.create()
    first = lake.open().append(rows(1), key="k-1")
    again = lake.open().append(rows(1), key="k-1")
    assert again.snapshot_id == first.snapshot_id
    assert lake.ids() == [1]


def test_filters_use_the_names_of_now_on_files_that_are_older(lake: Lake) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1, 2))
    with table.transaction() as transaction, transaction.update_schema() as update:
        update.rename_column("id", "number")
        update.rename_column("part", "side")
    table.delete("number = 1 and side = 'a'")
    found = lake.find().scan().to_arrow()
    assert found["number"].to_pylist() == [2]
    lake.check()


def test_an_upsert_without_keys_uses_the_identifier_fields(lake: Lake) -> None:
    lake.create(schema={**SCHEMA, "identifier-field-ids": [1]}, spec=UNPARTITIONED)
    table = lake.open()
    table.append(rows(1, 2))
    table.upsert(rows(2, 3, value=4.0))
    assert [(row["id"], row["value"]) for row in lake.read()] == [(1, 0.0), (2, 4.0), (3, 4.0)]


def test_an_upsert_of_keys_that_are_there_twice_is_refused(lake: Lake) -> None:
    lake.create(spec=UNPARTITIONED)
    table = lake.open()
    table.append(rows(1))
    table.append(rows(1, part="b"))
    with pytest.raises(BadInput, match="two rows of one key"):
        table.upsert(rows(1, value=2.0), ["id"])
    with pytest.raises(BadInput, match="two rows of the data"):
        table.upsert(rows(5, 5), ["id"])
    lake.check()


def test_an_upsert_of_thousands_of_keys_reads_their_range(lake: Lake) -> None:
    lake.create(spec=UNPARTITIONED)
    table = lake.open()
    table.append(rows(*range(10)))
    table.append(rows(100_000))
    table.upsert(rows(*range(5, 2005), value=1.0), ["id"])
    assert len(lake.ids()) == 2006
    assert sum(row["value"] for row in lake.read()) == 2000.0
    lake.check()


def test_deletes_by_other_types_find_their_rows(lake: Lake) -> None:
    columns = [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "day", "required": False, "type": "date"},
        {"id": 3, "name": "at", "required": False, "type": "timestamptz"},
        {"id": 4, "name": "cost", "required": False, "type": "decimal(9, 2)"},
    ]
    spec = {
        "spec-id": 0,
        "fields": [{"source-id": 2, "field-id": 1000, "name": "day", "transform": "identity"}],
    }
    lake.create(schema={"type": "struct", "schema-id": 0, "fields": columns}, spec=spec)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("cost", pa.decimal128(9, 2)),
        ]
    )
    days = [date(2024, 1, 1), date(2024, 1, 1), date(2024, 1, 2), None]
    table = lake.open()
    table.append(
        pa.table(
            {
                "id": [1, 2, 3, 4],
                "day": days,
                "at": [datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in range(4)],
                "cost": [Decimal("1.10"), Decimal("2.20"), Decimal("3.30"), None],
            },
            schema=schema,
        )
    )
    table.delete(_equal("cost", Decimal("2.20")))
    assert _ids(lake) == [1, 3, 4]
    table.delete("at >= '2024-01-01T02:30:00+00:00'")
    assert _ids(lake) == [1, 3]
    table.delete(_equal("day", date(2024, 1, 1)))
    assert _ids(lake) == [3]
    table.delete("day is not null")
    assert _ids(lake) == []
    lake.check()


def _ids(lake: Lake) -> list[int]:
    return sorted(lake.find().scan().to_arrow()["id"].to_pylist())


def _equal(column: str, value: object) -> BooleanExpression:
    kind: Any = EqualTo  # its own types know only how pydantic makes one
    made: BooleanExpression = kind(column, value)
    return made
