"""Merge-on-read deletes of the library: rows go by position deletes (v2) or vectors (v3), and the data files stay."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.types import StringType

import headgate
from headgate.core.manifest import ManifestContent
from headgate.errors import BadInput, ConflictFound
from tests.library.faults import losing_a_reply
from tests.library.lake import ARROW, UNPARTITIONED, Lake, live_files, operations, quick, rivals, rows

roads = pytest.mark.parametrize(
    ("road", "version"),
    [
        ("sql", 2),
        ("sql", 3),
        ("postgres", 3),
        ("catalog", 2),
        ("rest", 3),
        ("sent", 2),
        ("sent", 3),
        ("reference", 2),
        ("reference", 3),
    ],
)
versions = pytest.mark.parametrize("version", [2, 3])
MERGE_ON_READ = {"write.delete.mode": "merge-on-read"}


def start(lake: Lake, version: int, *appended: pa.Table, **properties: str) -> None:
    """A table with some rows, whose deletes are merge-on-read."""
    lake.create(version=version, properties={**MERGE_ON_READ, **properties})
    for table in appended:
        lake.open().append(table)


def files_of(lake: Lake, content: ManifestContent) -> set[str]:
    """The live files of a kind."""
    return {path for path, kind in live_files(lake).items() if kind is content}


def data_files(lake: Lake) -> set[str]:
    """The live data files."""
    return files_of(lake, ManifestContent.DATA)


def delete_files(lake: Lake) -> set[str]:
    """The live delete files."""
    return files_of(lake, ManifestContent.DELETES)


@roads
def test_deleted_rows_are_gone_and_their_data_files_stay(lake: Lake, road: str, version: int) -> None:
    start(lake, version, rows(1, 2, 3), rows(4, 5, part="b"))
    before = data_files(lake)
    lake.open(road=road).delete("id = 2 or id = 4")
    assert lake.ids() == [1, 3, 5]
    assert data_files(lake) == before
    suffix = ".puffin" if version == 3 else ".parquet"
    assert delete_files(lake)
    assert all(path.endswith(suffix) for path in delete_files(lake))
    assert operations(lake)[-1] == "delete"
    lake.check(ignore_metadata=road == "catalog")


@roads
def test_a_later_delete_takes_the_earlier_one_in(lake: Lake, road: str, version: int) -> None:
    start(lake, version, rows(1, 2, 3, 4), rows(8, 9, part="b"))
    table = lake.open(road=road)
    table.delete("id = 1 or id = 8")
    table.delete("id = 3")
    assert lake.ids() == [2, 4, 9]
    assert len(delete_files(lake)) == 2  # one a data file
    table.delete("id = 3")  # nothing is left to delete
    assert operations(lake)[-3:] == ["append", "delete", "delete"]
    lake.check(ignore_metadata=road == "catalog")


@roads
def test_a_file_without_a_row_left_goes_whole(lake: Lake, road: str, version: int) -> None:
    start(lake, version, rows(1, 2), rows(3, 4, part="b"))
    table = lake.open(road=road)
    table.delete("id = 1")
    table.delete("id = 2 or id = 3")
    assert lake.ids() == [4]
    assert len(data_files(lake)) == 1
    table.delete("part = 'b'")
    assert lake.ids() == []
    assert data_files(lake) == set()
    lake.check(ignore_metadata=road == "catalog")


@roads
def test_a_delete_beside_an_append_elsewhere_is_tried_again(lake: Lake, road: str, version: int) -> None:
    start(lake, version, rows(1, 2, 3))
    rival = lake.open()
    table = lake.open(road=road, policy=quick(observer=rivals(lambda: rival.append(rows(9, part="b")))))
    table.delete("part = 'a' and id = 2")
    assert lake.ids() == [1, 3, 9]
    lake.check(ignore_metadata=road == "catalog")


@roads
def test_positions_of_a_file_that_was_rewritten_meanwhile_are_a_conflict(
    lake: Lake, road: str, version: int
) -> None:
    start(lake, version, rows(1, 2, 3))
    rival, (data,) = lake.open(), data_files(lake)
    policy = quick(observer=rivals(lambda: rival.rewrite([data], rows(1, 2, 3))))
    with pytest.raises(ConflictFound) as refused:
        lake.open(road=road, policy=policy).delete("id = 2")
    assert refused.value.evidence["rule"] == "missing-data-files"
    assert lake.ids() == [1, 2, 3]
    lake.check(ignore_metadata=road == "catalog")


@roads
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_a_file_that_goes_whole_and_was_rewritten_meanwhile_is_a_conflict(
    lake: Lake, road: str, version: int, isolation: str
) -> None:
    start(lake, version, rows(1, 2))
    (data,) = data_files(lake)
    lake.open().append(rows(3, 4))
    rival = lake.open()
    policy = quick(observer=rivals(lambda: rival.rewrite([data], rows(1, 2))))
    with pytest.raises(ConflictFound):
        lake.open(road=road, policy=policy).delete("id <= 3", isolation=isolation)
    assert lake.ids() == [1, 2, 3, 4]
    lake.check(ignore_metadata=road == "catalog")


@versions
def test_rows_that_were_added_to_what_a_delete_read_are_a_conflict_unless_allowed(
    lake: Lake, version: int
) -> None:
    start(lake, version, rows(1, 2))
    rival = lake.open()
    with pytest.raises(ConflictFound):
        lake.open(policy=quick(observer=rivals(lambda: rival.append(rows(1))))).delete("id = 1")
    lake.open(policy=quick(observer=rivals(lambda: rival.append(rows(1))))).delete(
        "id = 1", isolation="snapshot"
    )
    assert lake.ids() == [1, 2]  # the one that came last
    lake.check()


def test_two_deletes_from_one_file_pass_in_v2_and_collide_in_v3(lake: Lake) -> None:
    for version, name in ((2, "db.two"), (3, "db.three")):
        lake.create(name, version=version, properties=MERGE_ON_READ)
        lake.open(name).append(rows(1, 2, 3, 4))
        rival = lake.open(name)
        policy = quick(observer=rivals(lambda rival=rival: rival.delete("id = 1")))
        table = lake.open(name, policy=policy)
        if version == 2:
            table.delete("id = 3")
            assert lake.ids(name) == [2, 4]
        else:
            with pytest.raises(ConflictFound) as refused:
                table.delete("id = 3")
            assert refused.value.evidence["rule"] == "added-dvs"
            assert lake.ids(name) == [2, 3, 4]
        lake.check(name)


@roads
def test_a_lost_reply_to_a_delete_is_found(lake: Lake, road: str, version: int) -> None:
    start(lake, version, rows(1, 2, 3))
    with losing_a_reply(lake, road) as table:
        table.delete("id = 2")
    assert lake.ids() == [1, 3]
    lake.check(ignore_metadata=road == "catalog")


@versions
def test_the_writes_of_a_transaction_see_what_it_deleted(lake: Lake, version: int) -> None:
    start(lake, version, rows(1, 2, 3, 4, 5, 6), rows(20, part="b"))
    with lake.open().transaction() as transaction:
        transaction.append(rows(7, 8, 9, part="c"))
        transaction.delete("id = 1 or id = 7")
        transaction.delete("id = 2 or id = 8")  # the same files again, one of them not committed yet
        transaction.upsert(rows(2, 3, value=5.0), ["id"])  # 2 is new again, 3 is changed
        transaction.delete("id = 4", mode="copy-on-write")
        transaction.delete("id = 5")
    found = [(row["id"], row["value"]) for row in lake.read()]
    assert found == [(2, 5.0), (3, 5.0), (6, 0.0), (9, 0.0), (20, 0.0)]
    lake.check()


def test_a_copy_on_write_over_deleted_rows_keeps_them_deleted_in_v3(lake: Lake) -> None:
    start(lake, 3, rows(1, 2, 3, 4))
    table = lake.open()
    table.delete("id = 2")
    table.delete("id = 3", mode="copy-on-write")
    assert lake.ids() == [1, 4]
    assert delete_files(lake) == set()  # the vector went with its file
    lake.check()


def test_position_deletes_of_a_partition_share_a_file_when_the_table_says_so(lake: Lake) -> None:
    start(lake, 2, rows(1, 2), rows(3, 4), rows(5, 6, part="b"), **{"write.delete.granularity": "partition"})
    table = lake.open()
    table.delete("id = 1 or id = 3 or id = 5")
    assert len(delete_files(lake)) == 2  # for three data files
    table.delete("id = 2")  # a whole file has gone, and nothing came back
    assert lake.ids() == [4, 6]
    lake.check()


def test_a_table_that_was_of_v2_gets_vectors_that_know_its_position_deletes(lake: Lake) -> None:
    start(lake, 2, rows(1, 2, 3), rows(4, 5, 6), **{"write.delete.granularity": "partition"})
    table = lake.open()
    table.delete("id = 1 or id = 4")
    table.commit([{"action": "upgrade-format-version", "format-version": 3}])
    table.delete("id = 2")
    assert lake.ids() == [3, 5, 6]
    lake.check()


def test_a_column_that_old_files_have_not_is_null_in_them(lake: Lake) -> None:
    start(lake, 2, rows(1, 2))
    table = lake.open()
    with table.transaction() as transaction, transaction.update_schema() as update:
        update.add_column("note", StringType())
    table.append(rows(3, 4).append_column("note", [["kept", None]]))
    table.delete("note is null and id > 1")
    assert lake.ids() == [1, 3]
    lake.check()


def test_a_table_without_delete_files_and_an_unknown_mode_are_refused(lake: Lake) -> None:
    start(lake, 1, rows(1, 2))
    with pytest.raises(BadInput, match="format version 2"):
        lake.open().delete("id = 1")
    with pytest.raises(BadInput, match="mode"):
        lake.open().delete("id = 1", mode="by-hand")
    lake.open().delete("id = 1", mode="copy-on-write")
    assert lake.ids() == [2]
    lake.check()


def test_an_unpartitioned_table_in_memory_is_deleted_from_by_position(tmp_path: Path) -> None:
    catalog = InMemoryCatalog("memory", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    catalog.create_table("db.t", ARROW, properties=MERGE_ON_READ)
    table = headgate.open("db.t", catalog, policy=quick())
    table.append(rows(*range(1000)))
    table.delete("id >= 10 and id < 990")
    found = catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == [*range(10), *range(990, 1000)]


@pytest.mark.parametrize(("road", "version"), [("rest", 3), ("reference", 3)])
def test_an_upsert_over_deleted_rows_adds_them_anew(lake: Lake, road: str, version: int) -> None:
    lake.create(version=version, spec=UNPARTITIONED, properties=MERGE_ON_READ)
    table = lake.open(road=road)
    table.append(rows(1, 2, 3))
    table.delete("id = 2")
    table.upsert(rows(2, 3, value=7.0), ["id"])
    assert [(row["id"], row["value"]) for row in lake.read()] == [(1, 0.0), (2, 7.0), (3, 7.0)]
    lake.check()
