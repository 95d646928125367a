"""A batch of a stream is in the table once, whoever brings it and however often; without Spark."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from tools.service_process import running_service

from headgate.client.changes import File
from headgate.core.stream_progress import progress_name
from headgate.errors import BadInput, CommitRefused, ConflictFound, Diverged
from headgate.spark.arrow_files import Attempt, write_batches
from headgate.spark.epochs import TRIES_MAX, Epoch, Sink, There, commit_epoch, is_in_table, is_lost
from headgate.spark.fates import Fate, fence, find_fate
from headgate.spark.lake import Lake, LakeTable
from headgate.spark.landing import land
from headgate.spark.runs import new_run
from tests.spark.kinds import BOTH

QUERY = "0a0b0c0d-1111-4222-8333-444455556666"


@pytest.fixture
def table(lake: Lake, namespace: str) -> LakeTable:
    """A table with one column."""
    return _create(lake, namespace)


def _create(lake: Lake, namespace: str) -> LakeTable:
    lake.catalog().create_table((namespace, "t"), Schema(NestedField(1, "id", LongType())))
    return lake.table((namespace, "t"))


def _write(table: LakeTable, *ids: int) -> tuple[File, ...]:
    state = table.load()
    batch = pa.record_batch({"id": pa.array(ids, pa.int64())})
    return write_batches([batch], state, Attempt(f"{state.data_location}/run-{uuid4()}", "00000-0"))


def _epoch(table: LakeTable, number: int, query: str = QUERY) -> Epoch:
    return Epoch(query, number, table.client.load().metadata["table-uuid"])


def _bring(table: LakeTable, number: int, *ids: int, fold: bool = False, query: str = QUERY) -> bool:
    """What a driver does with a batch; whether its own files are in the table now."""
    epoch = _epoch(table, number, query)
    if is_in_table(table.client.load().properties, epoch):
        return False
    return not isinstance(commit_epoch(Sink(table, fold=fold), epoch, _write(table, *ids)), There)


def _rows(table: LakeTable) -> list[int]:
    found = table.lake.catalog().load_table(table.identifier).scan().to_arrow()
    return sorted(found.column("id").to_pylist())


@BOTH
def test_a_batch_that_is_brought_twice_is_in_the_table_once(table: LakeTable) -> None:
    assert _bring(table, 0, 1, 2)
    assert not _bring(table, 0, 1, 2)
    assert _bring(table, 1, 3)
    assert _rows(table) == [1, 2, 3]


@BOTH
def test_of_two_drivers_that_bring_one_batch_at_once_one_lands(table: LakeTable) -> None:
    epoch, sink = _epoch(table, 7), Sink(table)
    files = [_write(table, 1), _write(table, 1)]
    with ThreadPoolExecutor(2) as drivers:
        landed = list(drivers.map(lambda one: commit_epoch(sink, epoch, one), files))
    assert landed.count(There.OTHERS) == 1
    assert _rows(table) == [1]


def test_a_driver_that_starts_after_the_key_was_forgotten_finds_its_batch(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        lake = Lake(service.uri)
        lake.catalog().create_namespace("n")
        table = _create(lake, "n")
        assert _bring(table, 3, 1)
    _forget_keys(tmp_path)
    with running_service(tmp_path) as service:
        table = Lake(service.uri).table("n.t")
        assert find_fate(table, _epoch(table, 3).key(0)) is Fate.ABSENT
        assert not _bring(table, 3, 1)
        assert _rows(table) == [1]


@pytest.mark.parametrize("fold", [False, True])
def test_a_driver_that_hung_until_the_keys_were_forgotten_brings_nothing_twice(
    tmp_path: Path, fold: bool
) -> None:
    with running_service(tmp_path) as service:
        lake = Lake(service.uri)
        lake.catalog().create_namespace("n")
        table = _create(lake, "n")
        assert _bring(table, 4, 0)
        hung = _epoch(table, 5)  # not in the table when its driver looked
        files, more = _write(table, 1), _write(table, 1)
        assert _bring(table, 5, 1)
    _forget_keys(tmp_path)
    with running_service(tmp_path) as service:
        table = Lake(service.uri).table("n.t")
        assert commit_epoch(Sink(table, fold=fold), hung, files) is There.UNTOLD
        assert _bring(table, 6, 2)
    _forget_keys(tmp_path)
    with running_service(tmp_path) as service:
        table = Lake(service.uri).table("n.t")
        with pytest.raises(Diverged, match=progress_name(QUERY)):
            commit_epoch(Sink(table, fold=fold), hung, more)
        assert table.client.load().properties[progress_name(QUERY)] == "6"
        assert _rows(table) == [0, 1, 2]


def test_a_batch_that_is_sent_again_when_its_key_was_forgotten_keeps_its_files(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        lake = Lake(service.uri)
        lake.catalog().create_namespace("n")
        table = _create(lake, "n")
        epoch, files = _epoch(table, 5), _write(table, 1)
        assert not isinstance(commit_epoch(Sink(table), epoch, files), There)
    _forget_keys(tmp_path)
    with running_service(tmp_path) as service:
        table = Lake(service.uri).table("n.t")
        assert commit_epoch(Sink(table), epoch, files) is There.UNTOLD
        assert _rows(table) == [1]


def test_a_job_that_is_sent_again_when_its_key_was_forgotten_keeps_its_files(tmp_path: Path) -> None:
    run = new_run()
    with running_service(tmp_path) as service:
        lake = Lake(service.uri)
        lake.catalog().create_namespace("n")
        table = _create(lake, "n")
        files = _write(table, 1)
        land(table, run, files, lambda key: table.client.append(files, key=key))
    _forget_keys(tmp_path)
    with running_service(tmp_path) as service:
        table = Lake(service.uri).table("n.t")
        with pytest.raises(ConflictFound):
            land(table, run, files, lambda key: table.client.append(files, key=key))
        assert _rows(table) == [1]


def _forget_keys(folder: Path) -> None:
    """What the service does after an hour or more."""
    with sqlite3.connect(folder / "catalog.db") as database:
        forgotten = database.execute("DELETE FROM indexed_keys").rowcount
        forgotten += database.execute("UPDATE staged_rows SET key = NULL WHERE key IS NOT NULL").rowcount
    database.close()
    assert forgotten >= 1


@BOTH
def test_a_checkpoint_that_was_set_back_is_reported_and_nothing_is_guessed(table: LakeTable) -> None:
    _bring(table, 5, 1)
    with pytest.raises(Diverged, match=progress_name(QUERY)):
        _bring(table, 4, 2)
    assert _rows(table) == [1]


def test_a_refusal_uses_up_a_key_and_the_next_one_lands(table: LakeTable) -> None:
    epoch = _epoch(table, 0)
    assert fence(table, epoch.key(0)) is Fate.FENCED
    assert _bring(table, 0, 1)
    assert find_fate(table, epoch.key(1)) is Fate.LANDED
    assert _rows(table) == [1]


def test_files_of_a_batch_may_go_only_when_it_is_not_in_and_cannot_come(table: LakeTable) -> None:
    sink = Sink(table)
    assert is_lost(sink, _epoch(table, 0))
    assert is_lost(sink, _epoch(table, 0))
    assert _bring(table, 0, 1)  # under the third key, because the abort before used up two
    assert not is_lost(sink, _epoch(table, 0))
    assert _rows(table) == [1]


@BOTH
def test_two_streams_into_one_table_do_not_know_of_each_other(table: LakeTable) -> None:
    other = str(uuid4())
    assert _bring(table, 0, 1)
    assert _bring(table, 0, 2, query=other)
    assert not _bring(table, 0, 2, query=other)
    properties = table.client.load().properties
    assert {properties[progress_name(QUERY)], properties[progress_name(other)]} == {"0"}
    assert _rows(table) == [1, 2]


@BOTH
def test_one_stream_may_go_into_two_tables(lake: Lake, namespace: str, table: LakeTable) -> None:
    lake.catalog().create_table((namespace, "other"), Schema(NestedField(1, "id", LongType())))
    other = lake.table((namespace, "other"))
    assert _bring(table, 0, 1)
    assert _bring(other, 0, 1)
    assert _rows(table) == _rows(other) == [1]


@BOTH
def test_a_batch_does_not_land_in_another_table_of_the_same_name(table: LakeTable) -> None:
    epoch, files = _epoch(table, 0), _write(table, 1)
    catalog = table.lake.catalog()
    catalog.drop_table(table.identifier)
    catalog.create_table(table.identifier, Schema(NestedField(1, "id", LongType())))
    with pytest.raises(CommitRefused):
        commit_epoch(Sink(table), epoch, files)
    assert _rows(table) == []


@BOTH
def test_streams_that_fold_share_snapshots_and_each_batch_is_in_once(table: LakeTable) -> None:
    queries = [str(uuid4()) for _ in range(8)]

    def run(at: int) -> None:
        for number in range(5):
            assert _bring(table, number, at * 100 + number, fold=True, query=queries[at])
            assert not _bring(table, number, at * 100 + number, fold=True, query=queries[at])

    with ThreadPoolExecutor(8) as drivers:
        list(drivers.map(run, range(8)))
    assert _rows(table) == sorted(at * 100 + number for at in range(8) for number in range(5))
    properties = table.client.load().properties
    assert {properties[progress_name(query)] for query in queries} == {"4"}


def test_a_note_that_is_no_number_is_refused_by_the_service_and_by_us(table: LakeTable) -> None:
    name = progress_name(QUERY)
    with pytest.raises(BadInput, match="whole number"):
        table.client.commit([{"action": "set-properties", "updates": {name: "last"}}])
    with pytest.raises(BadInput, match="whole number"):
        is_in_table({name: "last"}, Epoch(QUERY, 0, "t"))


def test_keys_are_the_same_everywhere_and_differ_for_every_try() -> None:
    epochs = [Epoch(QUERY, 0, "t"), Epoch(QUERY, 1, "t"), Epoch(str(uuid4()), 0, "t"), Epoch(QUERY, 0, "u")]
    keys = [epoch.key(attempt) for epoch in epochs for attempt in range(TRIES_MAX)]
    assert len(set(keys)) == len(keys)
    assert {UUID(key).version for key in keys} == {7}
    assert Epoch(QUERY.upper(), 0, "t").key(0) == epochs[0].key(0)
