"""A lake and its tables as values: loaded, sent to executors, reached on disk."""

from __future__ import annotations

import pickle

from headgate.spark.lake import Lake
from tests.spark.tables import Tables


def test_both_readers_see_what_the_jar_wrote(tables: Tables) -> None:
    tables.create("t", "id BIGINT, tags ARRAY<STRING>, at TIMESTAMP, m MAP<STRING, INT>")
    tables.sql(
        f"INSERT INTO {tables.name('t')} VALUES (1, array('a'), TIMESTAMP '2024-01-01 00:00:00', map('k', 1))"
    )
    assert len(tables.rows("t")) == 1


def test_a_table_that_was_used_still_travels_to_an_executor(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    state = table.load()
    assert state.snapshot_id() is None
    again = pickle.loads(pickle.dumps(table))
    assert again == table
    assert again.load().location == state.location


def test_a_lake_does_not_print_its_secrets() -> None:
    lake = Lake("http://x", credential=("me", "s3cret"), storage={"s3.secret-access-key": "s3cret"})
    assert "s3cret" not in repr(lake)


def test_the_files_of_a_table_are_reached_by_its_location(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} VALUES (1, 'a')")
    state = table.load()
    filesystem, path = state.filesystem(state.data_location)
    assert filesystem.get_file_info(path).is_file is False
    assert [task.file.record_count for task in state.pyiceberg().scan().plan_files()] == [1]
