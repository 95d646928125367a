"""Row-level commands that race: who is refused, by which rule, and that a refused job leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from headgate.client import Committed
from headgate.client.keys import new_key
from headgate.errors import BadInput, ConflictFound
from headgate.spark.deletes import delete
from headgate.spark.lake import LakeTable
from headgate.spark.merges import merge
from headgate.spark.row_changes import COPY, MERGE, Changed
from headgate.spark.updates import update
from tests.compat.lake import local_files
from tests.spark.kinds import BOTH
from tests.spark.racing import late
from tests.spark.tables import Tables

COLUMNS = "id BIGINT, name STRING"
Command = Callable[[LakeTable, str, str], Changed]

# Ours is about the row with id 10 * n + 5 of the file with ids 10 * n … 10 * n + 9, where n is the line. Theirs comes
# between our scan and our commit: an append of the same id or of one far away, a delete of another row of the same
# file, by delete file (hide) or by a new file (copy).
RACES = """
    ours   | mode          | isolation    | theirs     | verdict
    delete | copy-on-write | serializable | append     | added-data-files
    delete | copy-on-write | serializable | append far | lands
    delete | copy-on-write | snapshot     | append     | lands
    delete | copy-on-write | snapshot     | hide       | new-deletes-for-data-files
    delete | copy-on-write | snapshot     | copy       | missing-required-removes
    delete | merge-on-read | serializable | append     | added-data-files
    delete | merge-on-read | snapshot     | append     | lands
    delete | merge-on-read | snapshot     | copy       | missing-data-files         
    update | copy-on-write | snapshot     | append     | lands
    update | merge-on-read | serializable | append far | lands
    update | merge-on-read | snapshot     | hide       | added-delete-files
    merge  | copy-on-write | serializable | append     | added-data-files
    merge  | merge-on-read | serializable | append far | lands
    merge  | merge-on-read | snapshot     | append     | lands
"""


def races() -> list[list[str]]:
    lines = RACES.strip().splitlines()[1:]
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def run(ours: str, table: LakeTable, tables: Tables, id_: int, mode: str, isolation: str) -> Changed:
    """Our command on one row."""
    spark = tables.spark
    match ours:
        case "delete":
            return delete(table, f"id = {id_}", mode=mode, isolation=isolation, spark=spark)
        case "update":
            return update(
                table, {"name": "'new'"}, f"id = {id_}", mode=mode, isolation=isolation, spark=spark
            )
        case _:
            source: DataFrame = spark.createDataFrame([(id_, "new")], COLUMNS)
            said = {"when_matched_update": "all", "when_not_matched_insert": "all"}
            return merge(table, source, ["id"], mode=mode, isolation=isolation, **said)


def rival(theirs: str, tables: Tables, id_: int) -> Callable[[], None]:
    """What somebody else does meanwhile."""
    name = tables.name("t")
    statements = {
        "append": f"INSERT INTO {name} VALUES ({id_}, 'theirs')",
        "append far": f"INSERT INTO {name} VALUES ({id_ + 100_000}, 'far')",
    }
    if theirs in statements:
        return lambda: tables.sql(statements[theirs]) and None
    mode = MERGE if theirs == "hide" else COPY
    return lambda: _delete(tables, f"id = {id_ + 1}", mode)


def _delete(tables: Tables, condition: str, mode: str) -> None:
    assert isinstance(
        delete(tables.table("t"), condition, mode=mode, spark=tables.spark).committed, Committed
    )


@BOTH
def test_a_command_that_lost_its_race_is_refused_with_the_evidence_and_leaves_nothing(tables: Tables) -> None:
    table = tables.create("t", COLUMNS)
    for n in range(len(races())):
        tables.sql(
            f"INSERT INTO {tables.name('t')} SELECT /*+ COALESCE(1) */ id, 'old' FROM range({10 * n}, {10 * n + 10})"
        )
    expected = {(id_, "old") for id_ in range(10 * len(races()))}
    for n, (ours, mode, isolation, theirs, verdict) in enumerate(races()):
        id_, line = 10 * n + 5, races()[n]
        first = rival(theirs, tables, id_)
        if verdict == "lands":
            assert run(ours, late(table, first), tables, id_, mode, isolation).committed is not None, line
            expected -= {(id_, "old")}
            expected |= {(id_, "new")} if ours != "delete" else set()
        else:
            with pytest.raises(ConflictFound) as refused:
                run(ours, late(table, first), tables, id_, mode, isolation)
            evidence = refused.value.evidence
            assert evidence["rule"] == verdict, (line, evidence)
            assert evidence["theirs"] or verdict.startswith("missing"), (line, evidence)
        expected -= {(id_ + 1, "old")} if theirs in ("hide", "copy") else set()
        expected |= {(id_, "theirs")} if theirs == "append" else set()
        expected |= {(id_ + 100_000, "far")} if theirs == "append far" else set()
    assert {tuple(row) for row in tables.rows("t")} == expected


@BOTH
def test_two_deletes_from_one_file_by_position_both_land_in_v2(tables_v2: Tables) -> None:
    table = tables_v2.create("t", COLUMNS)
    tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} SELECT /*+ COALESCE(1) */ id, 'old' FROM range(10)")
    _delete(tables_v2, "id = 1", MERGE)
    racing = late(table, lambda: _delete(tables_v2, "id = 2", MERGE))
    delete(racing, "id = 3", mode=MERGE, spark=tables_v2.spark)
    assert [row[0] for row in tables_v2.rows("t")] == [0, 4, 5, 6, 7, 8, 9]


@BOTH
def test_two_vectors_for_one_file_collide_in_v3(tables_v3: Tables) -> None:
    table = tables_v3.create("t", COLUMNS)
    tables_v3.sql(f"INSERT INTO {tables_v3.name('t')} SELECT /*+ COALESCE(1) */ id, 'old' FROM range(10)")
    racing = late(table, lambda: _delete(tables_v3, "id = 2", MERGE))
    with pytest.raises(ConflictFound):
        delete(racing, "id = 3", mode=MERGE, isolation="snapshot", spark=tables_v3.spark)
    assert len(tables_v3.rows("t")) == 9


@BOTH
@pytest.mark.parametrize("mode", [COPY, MERGE])
def test_inserts_of_one_new_key_by_two_merges_do_not_both_land(tables_v2: Tables, mode: str) -> None:
    table = tables_v2.create("t", COLUMNS)
    rows = tables_v2.spark.createDataFrame([(1, "x"), (2, "y")], COLUMNS)

    def first() -> None:
        merge(table, rows.where("id = 2"), ["id"], when_not_matched_insert="all")

    with pytest.raises(ConflictFound):
        merge(late(table, first), rows, ["id"], when_not_matched_insert="all", mode=mode)
    assert tables_v2.rows("t") == [(2, "y")]


@BOTH
@pytest.mark.parametrize("mode", [COPY, MERGE])
def test_a_command_with_attempts_left_is_done_anew_on_what_others_made_of_the_table(
    tables_v2: Tables, mode: str
) -> None:
    table, spark = tables_v2.create("t", "id BIGINT, n BIGINT"), tables_v2.spark
    tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} SELECT /*+ COALESCE(1) */ id, id FROM range(6)")
    others = iter([lambda: update(table, {"n": "n + 100"}, "id < 3", mode=COPY, spark=spark)] * 3)

    def racing() -> LakeTable:
        once = iter([next(others)])
        return late(table, lambda: next(once, lambda: None)() and None)

    assert update(racing(), {"n": "n + 1"}, "id = 1", mode=mode, spark=spark, attempts=2).attempts == 2
    assert delete(racing(), "id = 0", mode=mode, spark=spark, attempts=3).attempts == 2
    rows = spark.createDataFrame([(2, 0), (9, 0)], "id BIGINT, n BIGINT")
    said = {"when_matched_update": {"n": "target.n + 10"}, "when_not_matched_insert": "all"}
    merged = merge(racing(), rows, ["id"], mode=mode, attempts=2, **said)
    assert (merged.attempts, merged.updated, merged.inserted) == (2, 1, 1)
    assert tables_v2.rows("t") == [(1, 302), (2, 312), (3, 3), (4, 4), (5, 5), (9, 0)]


def test_a_command_without_attempts_left_is_refused_and_leaves_nothing(tables_v2: Tables) -> None:
    table, spark = tables_v2.create("t", COLUMNS), tables_v2.spark
    tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} SELECT /*+ COALESCE(1) */ id, 'old' FROM range(6)")
    gone = iter(range(6))
    racing = late(table, lambda: _delete(tables_v2, f"id = {next(gone)}", COPY))
    with pytest.raises(ConflictFound):
        delete(racing, "id = 5", mode=COPY, spark=spark, attempts=3)
    assert [row[0] for row in tables_v2.rows("t")] == [3, 4, 5]
    assert (
        len(local_files(table.load().data_location, "*.parquet")) == 4
    )  # the insert's, and one for each delete


def test_attempts_that_cannot_be_meant_are_refused(tables_v2: Tables) -> None:
    table = tables_v2.create("t", COLUMNS)
    with pytest.raises(BadInput, match="attempts: expected a number from 1 on, got 0"):
        delete(table, "id = 5", spark=tables_v2.spark, attempts=0)
    with pytest.raises(BadInput, match="a key stands for one attempt"):
        delete(table, "id = 5", spark=tables_v2.spark, attempts=2, key=new_key())


def test_what_others_commit_while_a_merge_puts_its_source_down_is_no_conflict(
    tables_v2: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables_v2.create("t", COLUMNS)
    tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} VALUES (1, 'old')")
    rows = tables_v2.spark.createDataFrame([(1, "new"), (2, "new")], COLUMNS)
    put_down = type(rows).localCheckpoint

    def overtaken(self: DataFrame, eager: bool = True) -> DataFrame:
        tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} VALUES (2, 'theirs')")
        return put_down(self, eager)

    monkeypatch.setattr(type(rows), "localCheckpoint", overtaken)
    said = {"when_matched_update": "all", "when_not_matched_insert": "all"}
    changed = merge(table, rows, ["id"], isolation="serializable", **said)
    assert (changed.updated, changed.inserted) == (2, 0)
    assert tables_v2.rows("t") == [(1, "new"), (2, "new")]


def test_a_row_that_two_delete_files_name_is_not_counted_as_inserted_by_a_merge(tables_v2: Tables) -> None:
    table = tables_v2.create("t", COLUMNS)
    tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} SELECT /*+ COALESCE(1) */ id, 'old' FROM range(10)")
    racing = late(table, lambda: _delete(tables_v2, "id = 3", MERGE))
    delete(racing, "id = 3", mode=MERGE, spark=tables_v2.spark)
    rows = tables_v2.spark.createDataFrame([(5, "new"), (20, "new")], COLUMNS)
    changed = merge(table, rows, ["id"], when_matched_update="all", when_not_matched_insert="all", mode=COPY)
    assert (changed.updated, changed.deleted, changed.inserted) == (1, 0, 1)
    assert len(tables_v2.rows("t")) == 10
