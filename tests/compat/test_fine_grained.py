"""Tables written by fine-grained changes read alike in Spark and PyIceberg, and Spark goes on writing to them.

Files are an engine's own (`Fine.replay`: Spark writes, the change commits) or plain Parquet of PyArrow, as a writer
makes them that knows nothing else. PyIceberg 0.12 reads no equality deletes: those are held against Spark alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import pytest

from headgate.core.manifest import FileContent
from tests.compat.fine import ENGINE, Column, Fine, equal, rows_of
from tests.compat.lake import Lake, Rows

_COLUMNS: tuple[Column, ...] = ((1, "id", "long"), (2, "kind", "string"))
_INSERT = "INSERT INTO {} SELECT /*+ COALESCE(1) */ {} FROM range({})"


def _modes(mode: str) -> dict[str, str]:
    return {f"write.{verb}.mode": mode for verb in ("delete", "update", "merge")}


def _table(lake: Lake, name: str = "t", *, partitioned: str = "", mode: str = "merge-on-read") -> Fine:
    lake.create(name, "id BIGINT, kind STRING", partitioned=partitioned, properties=_modes(mode))
    return Fine(lake, name)


def _ids(ids: Sequence[int], kind: str = "a") -> Rows:
    return [(id_, kind) for id_ in ids]


# --- an engine's own files ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_what_spark_writes_reads_the_same_when_a_change_commits_it(lake: Lake, mode: str) -> None:
    t = _table(lake, partitioned="kind", mode=mode)
    t.replay(f"INSERT INTO {t.name} SELECT /*+ COALESCE(1) */ id, IF(id < 4, 'a', 'b') FROM range(8)")
    t.replay(f"DELETE FROM {t.name} WHERE id = 1")
    assert t.agrees([(0, "a"), (2, "a"), (3, "a"), *_ids(range(4, 8), "b")])
    t.replay(f"UPDATE {t.name} SET kind = 'c' WHERE id IN (2, 4)")
    assert t.agrees([(0, "a"), (2, "c"), (3, "a"), (4, "c"), *_ids((5, 6, 7), "b")])
    deletes = {file.file_format for file in t.live() if file.content is not FileContent.DATA}
    assert deletes == ({"PARQUET" if lake.version == 2 else "PUFFIN"} if mode == "merge-on-read" else set())
    t.replay(
        f"MERGE INTO {t.name} t USING (SELECT id FROM range(6, 10)) s ON t.id = s.id "
        "WHEN MATCHED AND t.id = 6 THEN DELETE WHEN MATCHED THEN UPDATE SET kind = 'm' "
        "WHEN NOT MATCHED THEN INSERT (id, kind) VALUES (s.id, 'n')"
    )
    t.replay(f"DELETE FROM {t.name} WHERE kind = 'b'")  # a whole partition: files go, not rows
    assert t.agrees([(0, "a"), (2, "c"), (3, "a"), (4, "c"), (7, "m"), (8, "n"), (9, "n")])
    assert t.agrees(t.engines_rows())
    if lake.version == 3:
        ids = {row[0]: row[1] for row in t.lineage()}
        assert len(set(ids.values())) == len(ids)
        # Rows that the last statements left alone, moved or rewrote have the id of their first day.
        assert {ids[id_] - ids[0] for id_ in (2, 3, 4, 7)} == {2, 3, 4, 7}


def test_tuples_and_bounds_of_every_type_come_through(lake: Lake) -> None:
    day, at = "DATE '2024-02-29'", "TIMESTAMP '2024-02-29 12:30:00.123456'"
    lake.create(
        "t",
        "id BIGINT, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, price DECIMAL(9, 2), big DECIMAL(38, 10), "
        "raw BINARY, yes BOOLEAN, f FLOAT, d DOUBLE, s STRING, n STRUCT<x: INT, y: ARRAY<STRING>>, m MAP<STRING, INT>",
        partitioned="day, years(at), hours(wall), price, truncate(10, price), yes, d, bucket(4, s), "
        "truncate(2, raw), truncate(3, s), big",
    )
    t = Fine(lake, "t")
    cells = (
        f"1L, {day}, {at}, TIMESTAMP_NTZ '1969-12-31 23:59:59', 12.30, -1.5, X'00FF10', true, 1.5F, -2.5D, "
        "'naïve', named_struct('x', 7, 'y', array('p', NULL)), map('k', 1)",
        "2L, " + ", ".join(["NULL"] * 12),
        "3L, DATE '1969-01-01', TIMESTAMP '1900-01-01 00:00:00', NULL, -0.01, 0, X'', false, CAST('NaN' AS FLOAT), "
        "CAST('NaN' AS DOUBLE), '', NULL, map()",
    )
    written = t.replay(f"INSERT INTO {t.name} VALUES " + ", ".join(f"({one})" for one in cells))
    assert len(written.data()) == 3
    assert repr(lake.rows(t.name)) == repr(t.engines_rows())  # as text, in which NaN equals itself
    assert lake.one(f"SELECT s FROM {t.name} WHERE price = 12.30 AND day = {day}") == "naïve"
    for condition, id_ in (
        ("price = 12.30", 1),
        ("day < '1970-01-01'", 3),
        ("wall < '1970-01-01T00:00:00'", 1),
        ("yes IS NULL", 2),
        ("s = ''", 3),
    ):
        assert t.planned(condition) == 1, condition
        assert t.load().scan(row_filter=condition).to_arrow()["id"].to_pylist() == [id_]
    assert t.replay(f"DELETE FROM {t.name} WHERE price IS NULL").operation == "delete"
    assert lake.rows(f"SELECT id FROM {t.name}") == [(1,), (3,)]
    (odd,) = (file for file in t.wire(t.live()) if file["value-counts"] and "NaN" in file["partition"])
    key = {"spec-id": odd["spec-id"], "partition": odd["partition"]}
    t.change("overwrite", drop_partitions=[key])  # NaN is a partition like others
    assert lake.rows(f"SELECT id FROM {t.name}") == [(1,)]


def test_files_of_two_specs_come_in_one_append(lake: Lake) -> None:
    t = _table(lake, partitioned="kind")
    old = t.take(f"INSERT INTO {t.name} VALUES (1, 'a'), (2, 'b')")
    lake.sql(f"ALTER TABLE {t.name} REPLACE PARTITION FIELD kind WITH bucket(4, id)")
    new = t.take(f"INSERT INTO {t.name} VALUES (3, 'a'), (4, 'c')")
    files = (*old.data(), *new.data())
    assert {file.spec_id for file in files} == {0, 1}
    made = t.change("append", add_data_files=t.wire(files))
    assert made["summary"]["added-data-files"] == str(len(files))
    assert t.agrees([(1, "a"), (2, "b"), (3, "a"), (4, "c")])
    assert t.planned("kind = 'b'") == 1
    assert t.planned("id = 3") == 1
    t.replay(f"DELETE FROM {t.name} WHERE kind = 'a'")
    lake.sql(f"INSERT INTO {t.name} VALUES (5, 'b')")
    assert t.agrees([(2, "b"), (4, "c"), (5, "b")])


def test_a_row_keeps_its_id_when_a_replace_commits_the_compacted_file(lake_v3: Lake) -> None:
    t = _table(lake_v3)
    t.replay(_INSERT.format(t.name, "id, 'a'", 3))
    t.replay(f"DELETE FROM {t.name} WHERE id = 1")
    t.replay(f"UPDATE {t.name} SET kind = 'b' WHERE id = 2")
    before = t.lineage()
    compact = f"CALL lake.system.rewrite_data_files('{t.name}', options => map('rewrite-all', 'true'))"
    assert t.replay(compact).operation == "replace"
    assert t.lineage() == before
    lake_v3.sql(f"INSERT INTO {t.name} VALUES (9, 'z')")
    after = t.lineage()
    assert after[:2] == before
    assert after[2][1] not in {row[1] for row in before}


def test_compacted_data_keeps_the_number_that_later_equality_deletes_are_measured_by(lake: Lake) -> None:
    t = _table(lake)
    for n in range(2):
        t.replay(_INSERT.format(t.name, f"id + {n * 2}, 'a'", 2))
    compacted = t.take(
        f"CALL lake.system.rewrite_data_files('{t.name}', options => map('rewrite-all', 'true'))"
    )
    assert compacted.sequence_number is not None
    gone = t.write([_COLUMNS[0]], [(3,)], content="equality-deletes", **{"equality-ids": [1]})
    t.change("delete", add_delete_files=[gone])
    t.commit(t.to_update(compacted))  # planned before the delete, committed after it: row 3 stays deleted
    assert len([file for file in t.live() if file.content is FileContent.DATA]) == 1
    assert lake.rows(t.name) == _ids((0, 1, 2))


def test_spark_goes_on_with_a_table_of_changes_and_changes_go_on_after_spark(lake: Lake) -> None:
    t = _table(lake, partitioned="kind")
    for n in range(3):
        t.replay(f"INSERT INTO {t.name} VALUES ({n}, 'a'), ({n + 10}, 'b')")
    t.replay(f"DELETE FROM {t.name} WHERE id = 11")
    lake.sql(f"INSERT INTO {t.name} VALUES (30, 'c')")
    lake.sql(
        f"MERGE INTO {t.name} t USING (SELECT 2L AS id UNION ALL SELECT 40L) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET kind = 'm' WHEN NOT MATCHED THEN INSERT (id, kind) VALUES (s.id, 'm')"
    )
    lake.call("rewrite_manifests", t.name)
    expected = [(0, "a"), (1, "a"), (2, "m"), (10, "b"), (12, "b"), (30, "c"), (40, "m")]
    assert t.agrees(expected)
    t.replay(f"DELETE FROM {t.name} WHERE id = 12")  # out of manifests that Spark rewrote
    lake.call("rewrite_data_files", t.name, "options => map('rewrite-all', 'true')")
    lake.call("expire_snapshots", t.name, "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1")
    t.change("append", add_data_files=t.wire(t.take(f"INSERT INTO {t.name} VALUES (50, 'a')").data()))
    t.change("delete", delete_row_filter=equal("kind", "m"))
    assert t.agrees([(0, "a"), (1, "a"), (10, "b"), (30, "c"), (50, "a")])
    lake.sql(f"UPDATE {t.name} SET kind = 'z' WHERE id = 50")
    assert t.agrees([(0, "a"), (1, "a"), (10, "b"), (30, "c"), (50, "z")])


# --- files of a writer that knows Parquet only ----------------------------------------------------------


def test_statistics_from_a_parquet_writer_prune_and_decide_filters(lake: Lake) -> None:
    t = _table(lake)
    files = [t.write(_COLUMNS, _ids(range(n, n + 10), f"k{n}")) for n in (0, 10, 20)]
    t.change("append", add_data_files=files)
    assert t.agrees([row for n in (0, 10, 20) for row in _ids(range(n, n + 10), f"k{n}")])
    assert [t.planned(c) for c in ("id = 15", "id >= 10", "kind = 'none'", "kind < 'k1'")] == [1, 2, 0, 1]
    # Every row of one file matches, none of the others: it goes as a whole. Half of a file is refused.
    t.change("delete", delete_row_filter={"type": "lt", "term": "id", "value": 10})
    assert t.agrees([*_ids(range(10, 20), "k10"), *_ids(range(20, 30), "k20")])
    half = t.post({"action": "delete", "delete-row-filter": {"type": "lt", "term": "id", "value": 15}})
    assert (half.status_code, half.json()["error"]["conflict"]["rule"]) == (409, "partial-row-filter-match")
    t.change("delete", remove_data_files=[files[1]["file-path"]])
    inside = {"type": "added-data-files-match-row-filter"}
    t.change(
        "overwrite",
        delete_row_filter=equal("kind", "k20"),
        add_data_files=[t.write(_COLUMNS, _ids((77,), "k20"))],
        commit_validations=[inside],
    )
    assert t.agrees([(77, "k20")])
    lake.sql(f"DELETE FROM {t.name} WHERE id = 77", f"INSERT INTO {t.name} VALUES (1, 'x')")
    assert t.agrees([(1, "x")])


def test_partitions_are_overwritten_dynamically(lake: Lake) -> None:
    t = _table(lake, partitioned="kind")
    t.replay(f"INSERT INTO {t.name} VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    lake.sql(f"DELETE FROM {t.name} WHERE id = 99")
    keys = [{"spec-id": 0, "partition": ["a"]}, {"spec-id": 0, "partition": [None]}]
    new = [
        t.write(_COLUMNS, _ids((10, 11)), partition=["a"]),
        t.write(_COLUMNS, [(30, None)], partition=[None]),
    ]
    t.change("overwrite", drop_partitions=keys, add_data_files=new, summary={"replace-partitions": "true"})
    assert t.agrees([(10, "a"), (11, "a"), (2, "b"), (30, None)])
    assert t.planned("kind = 'a'") == 1
    with lake.setting("spark.sql.sources.partitionOverwriteMode", "dynamic"):
        t.replay(f"INSERT OVERWRITE {t.name} VALUES (20, 'b')")
    assert t.agrees([(10, "a"), (11, "a"), (20, "b"), (30, None)])


def test_equality_deletes_apply_to_older_rows_only(lake: Lake) -> None:
    t = _table(lake, partitioned="kind")
    t.replay(f"INSERT INTO {t.name} SELECT /*+ COALESCE(1) */ id, IF(id < 4, 'a', 'b') FROM range(8)")
    # As Flink upserts: one change deletes by key and adds the new row, which its own delete does not touch.
    key = {"content": "equality-deletes", "equality-ids": [1], "partition": ["a"]}
    t.change(
        "overwrite",
        add_data_files=[t.write(_COLUMNS, _ids((1, 2)), partition=["a"])],
        add_delete_files=[t.write([_COLUMNS[0]], [(1,), (2,), (6,)], **key)],
        base_snapshot_id=t.head(),
        commit_validations=[{"type": "base-snapshot-must-be-ancestor"}],
    )
    expected = [*_ids((0, 1, 2, 3)), *_ids(range(4, 8), "b")]  # row 6 is of another partition
    assert lake.rows(t.name) == expected
    assert lake.one(f"SELECT count(*) FROM {t.name}.files WHERE content = 2") == 1
    with pytest.raises(ValueError, match="does not yet support equality deletes"):
        rows_of(t.load())
    both = {**key, "equality-ids": [1, 2], "partition": ["b"]}
    t.change("delete", add_delete_files=[t.write(_COLUMNS, [(4, "b"), (5, "a")], **both)])
    assert lake.rows(t.name) == [row for row in expected if row != (4, "b")]
    lake.sql(f"INSERT INTO {t.name} VALUES (4, 'b')")
    t.replay(f"DELETE FROM {t.name} WHERE id = 3")  # positions or a vector beside equality deletes
    lake.sql(f"UPDATE {t.name} SET id = 70 WHERE id = 7")
    left = [*_ids((0, 1, 2)), *_ids((4, 5, 6, 70), "b")]
    assert lake.rows(t.name) == left
    # A compaction applies the deletes; none is left that reaches a row, and PyIceberg reads the table again.
    options = "map('rewrite-all', 'true', 'use-starting-sequence-number', 'false')"
    t.commit(t.to_update(t.take(f"CALL lake.system.rewrite_data_files('{t.name}', options => {options})")))
    assert {file.content for file in t.live()} == {FileContent.DATA}
    assert t.agrees(left)


def test_position_deletes_from_a_parquet_writer_hide_rows_of_the_files_they_name(lake_v2: Lake) -> None:
    t = _table(lake_v2)
    t.replay(_INSERT.format(t.name, "id, 'a'", 4))
    t.change("append", add_data_files=[t.write(_COLUMNS, _ids(range(10, 14)))])
    one, two = sorted(file.file_path for file in t.live() if file.record_count == 4)
    first, second = (0, 10) if "00000-" in one else (10, 0)
    checks = [{"type": "required-data-files", "file-paths": [one, two], "mode": "not-removed-since-base"}]
    made = t.change(
        "delete",
        add_delete_files=[
            t.write_positions([(one, 1)], **{"referenced-data-file": one}),
            t.write_positions([(one, 0), (two, 3)]),
        ],
        base_snapshot_id=t.head(),
        commit_validations=checks,
    )
    assert made["summary"]["total-position-deletes"] == "3"
    expected = _ids([first + 2, first + 3, second, second + 1, second + 2])
    assert t.agrees(expected)
    lake_v2.call("rewrite_position_delete_files", t.name, "options => map('rewrite-all', 'true')")
    t.replay(f"CALL lake.system.rewrite_data_files('{t.name}', options => map('rewrite-all', 'true'))")
    assert t.agrees(expected)


# --- branches, stages, transactions ---------------------------------------------------------------------


def test_spark_cherry_picks_and_publishes_what_a_change_staged(lake: Lake) -> None:
    t = _table(lake)
    t.replay(_INSERT.format(t.name, "id, 'a'", 2))
    staged = t.change("append", stage_only=True, add_data_files=[t.write(_COLUMNS, _ids((5,), "s"))])
    audited = t.change(
        "append",
        stage_only=True,
        add_data_files=[t.write(_COLUMNS, _ids((6,), "w"))],
        summary={"wap.id": "audit-1"},
    )
    assert t.agrees(_ids((0, 1)))
    assert lake.rows(f"SELECT * FROM {t.name} VERSION AS OF {staged['snapshot-id']}") == [
        *_ids((0, 1)),
        (5, "s"),
    ]
    lake.call("cherrypick_snapshot", t.name, f"snapshot_id => {staged['snapshot-id']}")
    lake.call("publish_changes", t.name, "wap_id => 'audit-1'")
    assert audited["parent-snapshot-id"] == staged["parent-snapshot-id"]
    assert t.agrees([*_ids((0, 1)), (5, "s"), (6, "w")])
    t.change("append", add_data_files=[t.write(_COLUMNS, _ids((7,)))])
    assert t.agrees([*_ids((0, 1)), (5, "s"), (6, "w"), (7, "a")])
    if lake.version == 3:
        ids = [row[1] for row in t.lineage()]
        assert len(set(ids)) == 5
        assert None not in ids


def test_a_change_makes_a_branch_that_spark_writes_to_and_fast_forwards(lake: Lake) -> None:
    t = _table(lake)
    t.replay(_INSERT.format(t.name, "id, 'a'", 2))
    unknown = t.post({"action": "append", "branch": "dev", "add-data-files": [t.write(_COLUMNS, _ids((9,)))]})
    assert unknown.status_code == 404
    file = t.write(_COLUMNS, _ids((5,), "d"))
    t.change("append", branch="dev", create_branch=True, add_data_files=[file])
    lake.sql(
        f"INSERT INTO {t.name}.branch_dev VALUES (6, 'd')", f"DELETE FROM {t.name}.branch_dev WHERE id = 0"
    )
    t.change("append", branch="dev", add_data_files=[t.write(_COLUMNS, _ids((7,), "d"))])
    ahead = [(1, "a"), (5, "d"), (6, "d"), (7, "d")]
    assert lake.rows(f"SELECT * FROM {t.name} VERSION AS OF 'dev'") == ahead
    assert t.agrees(_ids((0, 1)))
    lake.sql(f"CALL lake.system.fast_forward('{t.name}', 'main', 'dev')")
    assert t.agrees(ahead)


def test_changes_of_two_tables_are_seen_together(lake: Lake) -> None:
    a, b = _table(lake, "a"), _table(lake, "b", mode="copy-on-write")
    for t in (a, b):
        t.replay(_INSERT.format(t.name, "id, 'a'", 3))
    changes = [
        {
            "identifier": {"namespace": [lake.namespace], "name": t.table},
            "requirements": [],
            "updates": [t.to_update(t.take(f"DELETE FROM {t.name} WHERE id = {id_}"))],
        }
        for t, id_ in ((a, 0), (b, 2))
    ]
    answer = httpx.post(f"{lake.uri}/v1/transactions/commit", json={"table-changes": changes})
    assert answer.status_code == 204, answer.text
    assert a.agrees(_ids((1, 2)))
    assert b.agrees(_ids((0, 1)))
    again = httpx.post(f"{lake.uri}/v1/transactions/commit", json={"table-changes": changes})
    assert again.status_code == 409, again.text  # both files are live: neither table moves
    assert a.agrees(_ids((1, 2)))


def test_a_new_column_a_new_spec_and_the_first_files_of_both_come_in_one_request(lake: Lake) -> None:
    t = _table(lake)
    t.replay(_INSERT.format(t.name, "id, 'a'", 2))
    (schema,) = t.metadata()["schemas"]
    size = {"id": 3, "name": "size", "type": "int", "required": False}
    field = {"source-id": 3, "field-id": 1000, "name": "size", "transform": "identity"}
    wide: tuple[Column, ...] = (*_COLUMNS, (3, "size", "int"))
    files = [t.write(wide, [(n, "b", n)], **{"spec-id": 1, "partition": [n]}) for n in (7, 8)]
    old = t.write(_COLUMNS, [(6, "o")])
    t.commit(
        {"action": "add-schema", "schema": {**schema, "fields": [*schema["fields"], size]}},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": [field]}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "append", "add-data-files": [*files, old]},
        {"action": "set-properties", "updates": {"team": "red"}},
        {"action": "delete", "remove-data-files": [old["file-path"]], "summary": {"why": "of one request"}},
    )
    assert t.agrees([(0, "a", None), (1, "a", None), (7, "b", 7), (8, "b", 8)])
    assert t.planned("size = 7") == 2  # the file before the column knows nothing of it
    assert lake.rows(f"SHOW TBLPROPERTIES {t.name} ('team')") == [("team", "red")]
    lake.sql(f"INSERT INTO {t.name} VALUES (9, 'c', 9)", f"DELETE FROM {t.name} WHERE size = 8")
    t.replay(f"UPDATE {t.name} SET size = 70 WHERE id = 7")
    assert t.agrees([(0, "a", None), (1, "a", None), (7, "b", 70), (9, "c", 9)])
    assert lake.rows(f"SELECT id FROM {t.name} VERSION AS OF '{ENGINE}' WHERE size = 70") == [(7,)]
