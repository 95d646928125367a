"""What format version 3 added, as Spark writes and reads it: row lineage, deletion vectors, defaults, variant."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.compat.lake import CATALOG, Lake

_LINEAGE = "SELECT id, _row_id, _last_updated_sequence_number FROM {}"
_MODES = ["copy-on-write", "merge-on-read"]


def _mode(mode: str) -> dict[str, str]:
    return {f"write.{verb}.mode": mode for verb in ("delete", "update", "merge")}


@pytest.mark.parametrize("mode", _MODES)
def test_a_row_keeps_its_id_over_updates_merges_and_compaction(lake_v3: Lake, mode: str) -> None:
    lake = lake_v3
    table = lake.create("t", "id BIGINT, n INT", properties=_mode(mode))
    lake.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id, 0 FROM range(3)")
    assert lake.rows(_LINEAGE.format(table)) == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
    lake.sql(f"UPDATE {table} SET n = 1 WHERE id = 1")
    assert lake.rows(_LINEAGE.format(table)) == [(0, 0, 1), (1, 1, 2), (2, 2, 1)]
    lake.sql(
        f"MERGE INTO {table} t USING (SELECT 2L AS id UNION ALL SELECT 3L) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET n = 2 WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 9)"
    )
    merged = lake.rows(_LINEAGE.format(table))
    assert merged[:3] == [(0, 0, 1), (1, 1, 2), (2, 2, 3)]
    assert merged[3][2] == 3
    assert merged[3][1] not in (0, 1, 2)
    lake.call("rewrite_data_files", table, "options => map('rewrite-all', 'true')")
    assert lake.rows(_LINEAGE.format(table)) == merged
    assert lake.one(f"SELECT count(*) FROM {table}.data_files") == 1


def test_row_ids_of_concurrent_commits_are_gapless_and_unique(lake_v3: Lake) -> None:
    lake = lake_v3
    table = lake.create("t", "id BIGINT", properties={"commit.retry.num-retries": "50"})
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda n: lake.sql(
                    f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ {n} * 2 + id FROM range(2)"
                ),
                range(10),
            )
        )
    lineage = lake.session.sql(_LINEAGE.format(table)).collect()
    assert sorted(row.id for row in lineage) == list(range(20))
    assert sorted(row._row_id for row in lineage) == list(range(20))
    assert {row._last_updated_sequence_number for row in lineage} == set(range(1, 11))


def test_deletes_of_one_file_share_one_deletion_vector(lake_v3: Lake) -> None:
    lake = lake_v3
    table = lake.create("t", "id BIGINT", properties=_mode("merge-on-read"))
    lake.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id FROM range(6)")
    lake.sql(f"DELETE FROM {table} WHERE id = 1", f"DELETE FROM {table} WHERE id IN (2, 4)")
    assert lake.rows(table) == [(0,), (3,), (5,)]
    assert lake.rows(
        f"SELECT file_format, record_count, referenced_data_file IS NOT NULL, content_offset > 0 "
        f"FROM {table}.delete_files"
    ) == [("PUFFIN", 3, True, True)]
    assert (
        lake.one(
            f"SELECT summary['total-position-deletes'] FROM {table}.snapshots WHERE summary['added-dvs'] = '1' "
            "AND summary['removed-dvs'] = '1'"
        )
        == "3"
    )


def test_concurrent_deletes_of_one_file_keep_one_vector_and_every_acknowledged_delete(lake_v3: Lake) -> None:
    lake = lake_v3
    properties = {**_mode("merge-on-read"), "write.delete.isolation-level": "snapshot"}
    table = lake.create("t", "id BIGINT", properties=properties)
    lake.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id FROM range(8)")

    with ThreadPoolExecutor(3) as pool:
        landed = list(pool.map(lambda n: lake.lands(f"DELETE FROM {table} WHERE id = {n}"), range(6)))
    gone = {n for n, done in enumerate(landed) if done}
    assert gone
    assert {row[0] for row in lake.rows(table)} == set(range(8)) - gone
    assert lake.one(f"SELECT count(*) FROM {table}.delete_files") == 1


def test_position_deletes_of_version_2_become_vectors_after_the_lift(lake_v2: Lake) -> None:
    lake = lake_v2
    table = lake.create("t", "id BIGINT", properties=_mode("merge-on-read"))
    lake.sql(
        f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id FROM range(6)", f"DELETE FROM {table} WHERE id = 1"
    )
    lake.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')", f"DELETE FROM {table} WHERE id = 2"
    )
    assert lake.rows(table) == [(0,), (3,), (4,), (5,)]
    assert lake.rows(f"SELECT DISTINCT file_format FROM {table}.delete_files") == [("PUFFIN",)]
    lake.sql(f"INSERT INTO {table} VALUES (6)")
    ids = [row[1] for row in lake.rows(_LINEAGE.format(table))]
    assert len(set(ids)) == 5
    assert None not in ids


def test_old_rows_read_the_initial_default_of_a_new_column(lake_v3: Lake) -> None:
    lake = lake_v3
    table = lake.create("t", "id BIGINT")
    lake.sql(f"INSERT INTO {table} VALUES (1)")
    url = f"{lake.uri}/v1/namespaces/{lake.namespace}/tables/t"
    metadata = httpx.get(url).json()["metadata"]
    (schema,) = metadata["schemas"]
    color = {"id": 2, "name": "color", "type": "string", "required": False}
    color |= {"initial-default": "red", "write-default": "blue"}
    commit = {
        "requirements": [{"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}],
        "updates": [
            {"action": "add-schema", "schema": {**schema, "fields": [*schema["fields"], color]}},
            {"action": "set-current-schema", "schema-id": -1},
        ],
    }
    assert httpx.post(url, json=commit).status_code == 200
    lake.sql(f"REFRESH TABLE {table}")
    assert lake.rows(table) == [(1, "red")]
    lake.sql(f"INSERT INTO {table} VALUES (2, 'green')")
    assert lake.rows(table) == [(1, "red"), (2, "green")]


def test_a_variant_column_holds_what_was_put_in(lake_v3: Lake) -> None:
    lake = lake_v3
    table = lake.create("t", "id BIGINT, body VARIANT")
    lake.sql(f"""INSERT INTO {table} SELECT 1, parse_json('{{"a": {{"b": [1, 2]}}, "c": "x"}}')""")
    lake.sql(f"INSERT INTO {table} SELECT 2, NULL")
    assert lake.rows(
        f"SELECT id, variant_get(body, '$.a.b[1]', 'int'), variant_get(body, '$.c', 'string') FROM {table}"
    ) == [(1, 2, "x"), (2, None, None)]


def test_a_nanosecond_timestamp_and_unknown_column_pass_through_the_catalog(lake_v3: Lake) -> None:
    lake = lake_v3
    body = {
        "name": "t",
        "schema": {
            "type": "struct",
            "fields": [
                {"id": 1, "name": "id", "type": "long", "required": True},
                {"id": 2, "name": "nothing", "type": "unknown", "required": False},
            ],
        },
        "properties": {"format-version": "3"},
    }
    answer = httpx.post(f"{lake.uri}/v1/namespaces/{lake.namespace}/tables", json=body)
    assert answer.status_code == 200, answer.text
    lake.sql(f"INSERT INTO {CATALOG}.{lake.namespace}.t VALUES (1, NULL)")
    assert lake.rows(lake.name("t")) == [(1, None)]
