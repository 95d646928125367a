"""Merge-on-read through the library: position deletes (v2) and deletion vectors (v3) that somebody wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from headgate.errors import BadInput, ConflictFound, Unsupported
from headgate.format.deletion_vectors import encode_puffin
from headgate.library.transaction import Transaction
from tests.library.lake import Lake, live_files, path_of, quick, rivals, rows

deleting = pytest.mark.parametrize(
    ("road", "version"), [("sql", 2), ("sql", 3), ("catalog", 2), ("rest", 3), ("sent", 2)]
)
_PATH = pa.field("file_path", pa.string(), nullable=False, metadata={b"PARQUET:field_id": b"2147483546"})
_POS = pa.field("pos", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": b"2147483545"})


def delete_positions(lake: Lake, version: int, path: str, *positions: int) -> dict[str, Any]:
    """A delete file for rows of one data file, as a content file."""
    place = f"{lake.metadata()['location']}/data/deletes-{len(positions)}-{positions[0]}"
    described: dict[str, Any] = {
        "content": "position-deletes",
        "spec-id": 0,
        "partition": ["a"],
        "record-count": len(positions),
        "referenced-data-file": path,
    }
    if version == 3:
        content, blobs = encode_puffin({path: BitMap64(positions)})
        location = f"{place}.puffin"
        path_of(location).write_bytes(content)
        described |= {
            "file-format": "puffin",
            "content-offset": blobs[path].offset,
            "content-size-in-bytes": blobs[path].size_bytes,
        }
    else:
        location = f"{place}.parquet"
        table = pa.table({"file_path": [path] * len(positions), "pos": list(positions)})
        pq.write_table(table.cast(pa.schema([_PATH, _POS])), path_of(location))
        described["file-format"] = "parquet"
    return {**described, "file-path": location, "file-size-in-bytes": path_of(location).stat().st_size}


@deleting
def test_deleted_positions_are_gone_and_the_data_file_stays(lake: Lake, road: str, version: int) -> None:
    lake.create(version=version)
    lake.open().append(rows(1, 2, 3))
    (data,) = live_files(lake)
    table = lake.open(road=road)
    table.row_delta(add_deletes=[delete_positions(lake, version, data, 1)])
    assert lake.ids() == [1, 3]
    assert data in live_files(lake)
    lake.check(ignore_metadata=True)


@deleting
def test_a_row_delta_beside_an_append_elsewhere_is_tried_again(lake: Lake, road: str, version: int) -> None:
    lake.create(version=version)
    lake.open().append(rows(1, 2, 3))
    (data,) = live_files(lake)
    rival = lake.open()
    table = lake.open(road=road, policy=quick(observer=rivals(lambda: rival.append(rows(9, part="b")))))
    deletes = delete_positions(lake, version, data, 0)
    table.row_delta(add_deletes=[deletes], add_data=rows(7), conflict_filter="part = 'a'")
    assert lake.ids() == [2, 3, 7, 9]
    lake.check(ignore_metadata=True)


@deleting
def test_positions_of_a_file_that_was_rewritten_meanwhile_are_refused(
    lake: Lake, road: str, version: int
) -> None:
    lake.create(version=version)
    lake.open().append(rows(1, 2, 3))
    (data,) = live_files(lake)
    rival = lake.open()
    table = lake.open(road=road, policy=quick(observer=rivals(lambda: rival.rewrite([data], rows(1, 2, 3)))))
    with pytest.raises(ConflictFound) as refused:
        table.row_delta(add_deletes=[delete_positions(lake, version, data, 1)])
    assert refused.value.evidence["rule"] == "missing-data-files"
    assert lake.ids() == [1, 2, 3]


def test_two_vectors_for_one_file_are_a_conflict(lake: Lake) -> None:
    lake.create(version=3)
    lake.open().append(rows(1, 2, 3))
    (data,) = live_files(lake)
    rival = lake.open()
    first, second = delete_positions(lake, 3, data, 0), delete_positions(lake, 3, data, 2)
    move = rivals(lambda: rival.row_delta(add_deletes=[first]))
    table = lake.open(policy=quick(observer=move))
    with pytest.raises(ConflictFound) as refused:
        table.row_delta(add_deletes=[second])
    assert refused.value.evidence["rule"] == "added-dvs"
    assert lake.ids() == [2, 3]


def test_a_copy_on_write_over_deleted_positions_keeps_them_deleted(lake: Lake) -> None:
    lake.create(version=2)
    table = lake.open()
    table.append(rows(1, 2, 3))
    (data,) = live_files(lake)
    table.refresh().row_delta(add_deletes=[delete_positions(lake, 2, data, 1)])
    table.delete("id = 3")
    assert lake.ids() == [1]


def test_a_rewrite_is_refused_when_rows_of_its_files_were_deleted(lake: Lake) -> None:
    lake.create(version=2)
    lake.open().append(rows(1, 2, 3))
    (data,) = live_files(lake)
    rival = lake.open()
    deletes = delete_positions(lake, 2, data, 1)
    table = lake.open(policy=quick(observer=rivals(lambda: rival.row_delta(add_deletes=[deletes]))))
    with pytest.raises(ConflictFound) as refused:
        table.rewrite([data], rows(1, 2, 3))
    assert refused.value.evidence["rule"] == "new-deletes-for-data-files"
    assert lake.ids() == [1, 3]


def test_deletes_need_a_version_that_has_them(lake: Lake) -> None:
    lake.create(version=1)
    table = lake.open()
    table.append(rows(1, 2))
    (data,) = live_files(lake)
    with pytest.raises(BadInput, match="V2 and above"):
        table.refresh().row_delta(add_deletes=[delete_positions(lake, 2, data, 1)])


reading = pytest.mark.parametrize(
    "write",
    [
        lambda transaction: transaction.delete("id = 3"),
        lambda transaction: transaction.delete("id = 3", mode="merge-on-read"),
        lambda transaction: transaction.overwrite(rows(4), "id = 3"),
        lambda transaction: transaction.upsert(rows(1), ["id"]),
    ],
)


@reading
@pytest.mark.parametrize("version", [2, 3])
def test_a_write_that_reads_a_file_whose_rows_were_deleted_before_it_is_refused(
    lake: Lake, version: int, write: Callable[[Transaction], None]
) -> None:
    lake.create(version=version)
    table = lake.open()
    table.append(rows(1, 2, 3))
    (data,) = live_files(lake)
    deletes = delete_positions(lake, version, data, 0)
    transaction = table.refresh().transaction()
    transaction.row_delta(add_deletes=[deletes])
    with pytest.raises(Unsupported, match=deletes["file-path"]):
        write(transaction)
    transaction.append(rows(9))
    transaction.commit()
    assert lake.ids() == [2, 3, 9]
    lake.check()


@reading
def test_a_write_after_deletes_that_name_no_data_file_is_refused(
    lake: Lake, write: Callable[[Transaction], None]
) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1, 2, 3))
    (data,) = live_files(lake)
    deletes = delete_positions(lake, 2, data, 0)
    del deletes["referenced-data-file"]
    transaction = table.refresh().transaction()
    transaction.row_delta(add_deletes=[deletes])
    with pytest.raises(Unsupported, match=deletes["file-path"]):
        write(transaction)


@reading
@pytest.mark.parametrize("version", [2, 3])
def test_a_write_that_reads_a_file_whose_deletes_were_removed_before_it_is_refused(
    lake: Lake, version: int, write: Callable[[Transaction], None]
) -> None:
    lake.create(version=version)
    table = lake.open()
    table.append(rows(1, 2, 3))
    (data,) = live_files(lake)
    old = delete_positions(lake, version, data, 1)
    table.refresh().row_delta(add_deletes=[old])
    transaction = table.refresh().transaction()
    transaction.row_delta(remove_deletes=[old])
    with pytest.raises(Unsupported, match=old["file-path"]):
        write(transaction)


def test_a_step_that_is_not_well_made_leaves_no_file_in_its_transaction(lake: Lake) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1, 2))
    (data,) = live_files(lake)
    deletes = {**delete_positions(lake, 2, data, 0), "spec-id": 7}
    with table.refresh().transaction() as transaction:
        with pytest.raises(BadInput, match="spec"):
            transaction.row_delta(add_data=rows(5), add_deletes=[deletes])
        transaction.append(rows(3))
    assert lake.ids() == [1, 2, 3]
    assert lake.find_orphans() == {str(path_of(deletes["file-path"]))}


def test_files_that_go_whole_or_have_no_new_deletes_are_written_after_a_row_delta(lake: Lake) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1, 2, 3))
    (data,) = live_files(lake)
    table.append(rows(4, 5))
    with table.refresh().transaction() as transaction:
        transaction.row_delta(add_deletes=[delete_positions(lake, 2, data, 0)], add_data=rows(6, 7))
        transaction.delete("id = 4")
        transaction.delete("id = 6", mode="merge-on-read")
    assert lake.ids() == [2, 3, 5, 7]
    with table.refresh().transaction() as transaction:
        transaction.row_delta(add_deletes=[delete_positions(lake, 2, data, 1)])
        transaction.overwrite(rows(8), "part = 'a'")
    assert lake.ids() == [8]
    lake.check()
