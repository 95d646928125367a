"""Rows written by our jobs: what each mode does to a table, what is refused, and what becomes of the files then."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyiceberg.expressions import EqualTo
from pyspark.sql import DataFrame
from tools.service_process import HOST, find_free_port

from headgate.client import Committed, HeadgateClient
from headgate.client.keys import new_key
from headgate.core.backoff import BackoffPolicy
from headgate.errors import BadInput, CommitUnknown, ConflictFound, NotFound, Overloaded, StorageFailed
from headgate.spark.data_files import discard_files, folder_of, write_files
from headgate.spark.lake import LakeTable
from headgate.spark.landing import land
from headgate.spark.runs import Run, new_run
from headgate.spark.session import prepare_session
from headgate.spark.writes import write
from tests.compat.lake import local_files
from tests.spark.kinds import BOTH
from tests.spark.tables import Tables


def rows(tables: Tables, *ids: int, name: str = "'n' || id") -> DataFrame:
    """A row for each id."""
    values = ", ".join(f"({id_})" for id_ in ids)
    return tables.spark.sql(f"SELECT CAST(id AS BIGINT) AS id, {name} AS name FROM VALUES {values} AS t(id)")


def files_on_disk(table: LakeTable) -> int:
    return len(local_files(table.load().data_location, "*.parquet"))


@BOTH
def test_an_append_adds_rows(tables: Tables) -> None:
    table = tables.create("t")
    write(rows(tables, 1, 2), table, summary={"who": "me"})
    done = write(rows(tables, 3), table)
    assert done.rows == 1
    assert tables.rows("t") == [(1, "n1"), (2, "n2"), (3, "n3")]
    summaries = tables.sql(
        f"SELECT summary['who'] FROM {tables.name('t')}.snapshots ORDER BY committed_at"
    ).collect()
    assert [row[0] for row in summaries] == ["me", None]


def test_no_rows_make_no_commit_and_leave_no_file(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    done = write(rows(tables_v2, 1).where("id = 2"), table)
    assert (done.committed, done.files, done.rows) == (None, (), 0)
    assert table.load().snapshot_id() is None
    assert files_on_disk(table) == 0


def test_a_write_leaves_nothing_but_the_files_that_it_commits(tables_v2: Tables) -> None:
    table = tables_v2.create("t", "id BIGINT, name STRING", partitioned="name")
    done = write(rows(tables_v2, 1, 2), table)
    committed = {str(file["file-path"]).rsplit("/", 1)[-1] for file in done.files}
    left = {file.name for file in local_files(table.load().data_location)}
    assert {name for name in left if not name.endswith(".crc")} == committed  # Hadoop's own, for each file


def test_a_disk_that_takes_no_folder_is_told_with_the_place(tables_v2: Tables) -> None:
    state, run = tables_v2.create("t").load(), new_run()
    in_the_way = Path(urlsplit(folder_of(state, run)).path)
    in_the_way.parent.mkdir(parents=True, exist_ok=True)
    in_the_way.write_bytes(b"a file")
    with pytest.raises(StorageFailed, match=run.id):
        write_files(rows(tables_v2, 1), state, run)
    assert in_the_way.read_bytes() == b"a file"


@BOTH
def test_an_overwrite_replaces_what_its_filter_matches(tables: Tables) -> None:
    table = tables.create("t", "id BIGINT, name STRING", partitioned="name")
    write(rows(tables, 1, 2, 3), table)
    write(rows(tables, 9, name="'n2'"), table, mode="overwrite", filter="name = 'n2'")
    assert tables.rows("t") == [(1, "n1"), (3, "n3"), (9, "n2")]
    write(rows(tables, 1).where("false"), table, mode="overwrite", filter=EqualTo("name", "n1"))
    assert tables.rows("t") == [(3, "n3"), (9, "n2")]
    write(rows(tables, 7), table, mode="overwrite")
    assert tables.rows("t") == [(7, "n7")]


@BOTH
def test_replace_partitions_touches_only_the_partitions_of_the_rows(tables: Tables) -> None:
    table = tables.create("t", "id BIGINT, name STRING", partitioned="name")
    write(rows(tables, 1, 2, 3), table)
    write(rows(tables, 8, 9, name="'n2'"), table, mode="replace_partitions")
    assert tables.rows("t") == [(1, "n1"), (3, "n3"), (8, "n2"), (9, "n2")]


@BOTH
def test_two_overwrites_of_the_same_rows_have_one_winner(tables_v2: Tables) -> None:
    table = tables_v2.create("t", "id BIGINT, name STRING", partitioned="name")
    write(rows(tables_v2, 1, 2), table)
    state, run = table.load(), new_run()
    files = write_files(rows(tables_v2, 5, name="'n1'"), state, run)
    write(rows(tables_v2, 6, name="'n1'"), table, mode="replace_partitions")
    before = files_on_disk(table)
    with pytest.raises(ConflictFound):
        land(
            table,
            run,
            files,
            lambda key: table.client.replace_partitions(files, base_snapshot_id=state.snapshot_id(), key=key),
            state=state,
        )
    assert files_on_disk(table) == before - len(files)
    assert not local_files(folder_of(state, run))
    assert tables_v2.rows("t") == [(2, "n2"), (6, "n1")]


@BOTH
def test_an_unknown_outcome_leaves_every_file_and_names_the_run(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    state, run = table.load(), new_run()
    files = write_files(rows(tables_v2, 1), state, run)

    def commit(key: str) -> Committed:
        table.client.append(files, key=key)
        raise CommitUnknown("the answer was lost", key=key)

    with pytest.raises(CommitUnknown, match=run.id) as caught:
        land(table, run, files, commit, state=state)
    assert caught.value.evidence["run"] == run.id
    assert tables_v2.rows("t") == [(1, "n1")]


@BOTH
def test_a_commit_that_never_left_leaves_no_file(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    state, run = table.load(), new_run()
    files = write_files(rows(tables_v2, 1), state, run)
    away = HeadgateClient(f"http://{HOST}:{find_free_port()}", retry=BackoffPolicy(retries_max=0))
    with pytest.raises(StorageFailed, match="no connection"):
        land(table, run, files, lambda key: away.table("a.t").append(files, key=key), state=state)
    assert files_on_disk(table) == 0


def test_a_clean_up_that_fails_does_not_hide_why_it_was_begun(
    tables_v2: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, run = tables_v2.create("t"), new_run()

    def refuse(key: str) -> Committed:
        raise ConflictFound("somebody was first")

    def fail(self: LakeTable) -> None:
        raise Overloaded("busy")

    monkeypatch.setattr(LakeTable, "load", fail)
    with pytest.raises(ConflictFound):
        land(table, run, (), refuse)


def test_a_refusal_that_leaves_a_doubt_deletes_nothing(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    state, run = table.load(), new_run()
    files = write_files(rows(tables_v2, 1), state, run)

    def commit(key: str) -> Committed:
        table.client.append(files, key=key)
        raise NotFound("Table does not exist: a.t", kind="table", in_doubt=True)

    with pytest.raises(NotFound):
        land(table, run, files, commit, state=state)
    assert tables_v2.rows("t") == [(1, "n1")]


def test_a_question_that_fails_after_the_commit_deletes_nothing(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    state, run = table.load(), new_run()
    files = write_files(rows(tables_v2, 1), state, run)

    def commit(key: str) -> Committed:
        table.client.append(files, key=key)
        raise StorageFailed("the service did not answer")

    with pytest.raises(StorageFailed):
        land(table, run, files, commit, state=state)
    assert tables_v2.rows("t") == [(1, "n1")]


def test_a_job_that_is_interrupted_after_its_commit_keeps_its_files(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    state, run = table.load(), new_run()
    files = write_files(rows(tables_v2, 1), state, run)

    def commit(key: str) -> Committed:
        table.client.append(files, key=key)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        land(table, run, files, commit, state=state)
    assert tables_v2.rows("t") == [(1, "n1")]


@BOTH
def test_a_write_that_is_repeated_under_its_key_does_nothing(tables_v2: Tables) -> None:
    table, key = tables_v2.create("t"), new_key()
    first = write(rows(tables_v2, 1), table, key=key)
    again = write(rows(tables_v2, 1), table, key=key)
    assert first.committed is not None
    assert again.committed is not None
    assert again.committed.snapshot_id == first.committed.snapshot_id
    assert (again.rows, again.files) == (0, ())
    assert tables_v2.rows("t") == [(1, "n1")]
    assert files_on_disk(table) == 1


def test_a_job_that_fails_while_it_writes_leaves_no_file(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    failing = rows(tables_v2, 1, 2, name="IF(id = 2, raise_error('no'), 'a')")
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        write(failing, table)
    assert files_on_disk(table) == 0


@BOTH
def test_a_branch_is_written_to_without_the_others_seeing_it(tables: Tables) -> None:
    table = tables.create("t")
    write(rows(tables, 1), table)
    tables.sql(f"ALTER TABLE {tables.name('t')} CREATE BRANCH audit")
    write(rows(tables, 2), table, branch="audit")
    assert tables.rows("t") == [(1, "n1")]
    found = tables.sql(f"SELECT id FROM {tables.name('t')} VERSION AS OF 'audit' ORDER BY id").collect()
    assert [row[0] for row in found] == [1, 2]


def test_a_run_removes_its_own_files_and_no_others(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    write(rows(tables_v2, 1), table)
    state, run = table.load(), new_run()
    write_files(rows(tables_v2, 2), state, run)
    discard_files(state, run)
    discard_files(state, run)
    assert tables_v2.rows("t") == [(1, "n1")]
    assert files_on_disk(table) == 1


BAD_WISHES = [
    ({"mode": "upsert"}, "mode"),
    ({"filter": "id = 1"}, "filter"),
    ({"mode": "overwrite", "filter": "nothing = 1"}, "filter"),
    ({"mode": "overwrite", "filter": "length(name) = 1"}, "filter"),
    ({"road": "gravel"}, "road"),
    ({"key": "mine"}, "key"),
]


def test_a_wish_that_cannot_be_followed_is_refused_by_its_name(tables_v2: Tables) -> None:
    table = tables_v2.create("t")
    for wish, field in BAD_WISHES:
        with pytest.raises(BadInput) as caught:
            write(rows(tables_v2, 1), table, **wish)  # type: ignore[arg-type]
        assert caught.value.field == field
    assert files_on_disk(table) == 0


def test_a_session_whose_files_would_not_be_icebergs_is_refused(tables_v2: Tables) -> None:
    table, session = tables_v2.create("t"), tables_v2.spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    with pytest.raises(BadInput) as caught:
        write(session.sql("SELECT 1L AS id"), table)
    assert caught.value.field == "spark.sql.parquet.outputTimestampType"
    write(prepare_session(session).sql("SELECT 1L AS id"), table)
    assert tables_v2.rows("t") == [(1, None)]


def test_a_run_is_named_by_what_can_stand_in_a_path() -> None:
    with pytest.raises(BadInput):
        Run("../../etc", new_key())
    assert new_run().id != new_run().id
