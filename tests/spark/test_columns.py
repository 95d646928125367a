"""Rows fitted to a table: by name, with casts that lose nothing; everything else is refused by its column's name."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from headgate.errors import BadInput
from headgate.spark.columns import FIELD_ID, fit, spark_schema
from headgate.spark.data_files import write_files
from headgate.spark.runs import new_run
from headgate.spark.writes import write
from tests.spark.tables import Tables

COLUMNS = """
    id BIGINT NOT NULL, small INT, score DOUBLE, amount DECIMAL(20,4), name STRING, at TIMESTAMP,
    place STRUCT<city: STRING NOT NULL, zip: INT>, tags ARRAY<STRUCT<k: INT NOT NULL>>
"""


def ids_of(schema: StructType) -> list[int]:
    return [field.metadata[FIELD_ID] for field in schema.fields]


def test_columns_are_found_by_name_reordered_widened_and_filled_with_nulls(tables_v2: Tables) -> None:
    state = tables_v2.create("t", COLUMNS).load()
    given = tables_v2.spark.sql(
        "SELECT CAST(1.5 AS FLOAT) AS Score, CAST(7 AS SMALLINT) AS small, 3 AS ID, 12.5BD AS amount, "
        "named_struct('zip', 9, 'city', 'x') AS place"
    )
    fitted = fit(given, state)
    assert fitted.columns == ["id", "small", "score", "amount", "name", "at", "place", "tags"]
    assert ids_of(fitted.schema) == ids_of(spark_schema(state.schema)) == list(range(1, 9))
    row = fitted.first()
    assert row is not None
    assert [str(value) for value in row[:4]] == ["3", "7", "1.5", "12.5000"]
    assert tuple(row["place"]) == ("x", 9)
    assert row["tags"] is None


REFUSED = {
    "SELECT 'a' AS name": "id",
    "SELECT 1L AS id, 2L AS small": "small",
    "SELECT 1L AS id, '2' AS small": "small",
    "SELECT 1L AS id, 1L AS score": "score",
    "SELECT 1L AS id, CAST(1 AS DECIMAL(20,5)) AS amount": "amount",
    "SELECT 1L AS id, 1L AS amount": "amount",
    "SELECT 1L AS id, 5 AS name": "name",
    "SELECT 1L AS id, DATE '2024-01-01' AS at": "at",
    "SELECT 1L AS id, TIMESTAMP_NTZ '2024-01-01 00:00:00' AS at": "at",
    "SELECT 1L AS id, 2 AS other, 3 AS another": "another",
    "SELECT 1L AS id, 2 AS small, 3 AS SMALL": "SMALL",
    "SELECT 1L AS id, named_struct('zip', 1) AS place": "place.city",
    "SELECT 1L AS id, named_struct('city', 'a', 'street', 'b') AS place": "place",
    "SELECT 1L AS id, array(named_struct('k', 'a')) AS tags": "tags.element.k",
}


def test_what_does_not_fit_is_refused_by_the_name_of_its_column(tables_v2: Tables) -> None:
    state = tables_v2.create("t", COLUMNS).load()
    for query, field in REFUSED.items():
        with pytest.raises(BadInput) as caught:
            fit(tables_v2.spark.sql(query), state)
        assert caught.value.field == field, query
        assert field.split(".")[-1] in caught.value.message


ABSENT = {
    "SELECT CAST(NULL AS BIGINT) AS id": "id",
    "SELECT 1L AS id, named_struct('city', CAST(NULL AS STRING), 'zip', 1) AS place": "place.city",
    "SELECT 1L AS id, array(named_struct('k', 1), named_struct('k', CAST(NULL AS INT))) AS tags": "tags.element.k",
}


def test_a_required_value_that_is_missing_is_refused_wherever_it_is(tables_v2: Tables) -> None:
    table = tables_v2.create("t", COLUMNS)
    for query, column in ABSENT.items():
        with pytest.raises(Exception, match=f"column {column} is required"):
            write(tables_v2.spark.sql(query), table)
    write(tables_v2.spark.sql("SELECT 1L AS id, array(named_struct('k', 1), NULL) AS tags"), table)
    # PyIceberg 0.12 cannot read a struct that is null and has a required field, whoever has written it.
    assert tables_v2.by_jar("t") == [(1, None, None, None, None, None, None, [{"k": 1}, None])]


def test_names_with_dots_and_quotes_are_one_column_each(tables: Tables) -> None:
    table = tables.create("t", "`a.b` INT, `c``d` STRING", partitioned="`a.b`")
    write(tables.spark.sql("SELECT 1 AS `a.b`, 'x' AS `c``d`"), table)
    assert tables.rows("t") == [(1, "x")]


def test_a_new_column_of_version_3_is_written_with_its_default(tables_v3: Tables) -> None:
    table = tables_v3.create("t", "id BIGINT")
    table.client.commit(
        [
            {
                "action": "add-schema",
                "schema": {
                    "type": "struct",
                    "fields": [
                        {"id": 1, "name": "id", "type": "long", "required": False},
                        {
                            "id": 2,
                            "name": "kind",
                            "type": "string",
                            "required": True,
                            "initial-default": "old",
                            "write-default": "new",
                        },
                    ],
                },
            },
            {"action": "set-current-schema", "schema-id": -1},
        ]
    )
    write(tables_v3.spark.sql("SELECT 1L AS id"), table)
    assert tables_v3.by_jar("t") == [(1, "new")]


def test_files_of_version_3_keep_the_lineage_that_is_asked_for(tables_v3: Tables) -> None:
    table = tables_v3.create("t", "id BIGINT, tags ARRAY<INT>")
    given = tables_v3.spark.sql(
        "SELECT 1L AS id, array(1) AS tags, 70L AS _row_id, 1L AS _last_updated_sequence_number"
    )
    state, run = table.load(), new_run()
    extra = ("_row_id", "_last_updated_sequence_number")
    plain = tables_v3.create("plain", "id BIGINT")
    table.client.append(write_files(given, state, run, extra=extra), key=run.key)
    run = new_run()
    plain.client.append(write_files(given.drop("tags"), plain.load(), run, extra=extra), key=run.key)
    for name in ("t", "plain"):
        assert tables_v3.by_jar(name, "id, _row_id, _last_updated_sequence_number") == [(1, 70, 1)]
    with pytest.raises(BadInput) as caught:
        fit(given, state, extra=("_pos",))
    assert caught.value.field == "extra"
