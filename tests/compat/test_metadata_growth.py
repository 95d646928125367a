"""Engines on tables whose metadata is kept small: gzipped files, a short log, snapshots that the service expires."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import LongType, NestedField
from pyspark.sql import SparkSession
from tools.service_process import Service, running_service

from tests.compat.lake import Lake, audit_namespace, catalog_of, local_files, session_at

CODEC = {"write.metadata.compression-codec": "gzip"}
BOUNDED = {"headgate.expire.enabled": "true", "headgate.expire.max-snapshots": "2"}
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
_PAGES_MAX = 200
_PAGE_WAIT_MS = 2_000


@pytest.fixture(scope="module")
def tidy_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that expires all the time and deletes at once, and leaves metadata files to checkpoints."""
    options = ("--expire-interval-s", "0.1", "--expire-grace-s", "0", "--metadata-inline-bytes", "0")
    with running_service(tmp_path_factory.mktemp("tidy"), options=options) as running:
        yield running


@pytest.fixture
def tidy_namespace(tidy_service: Service, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace at that service; every table that is left in it must be sound."""
    name = request.node.name.removeprefix("test_")
    catalog = catalog_of(tidy_service.uri)
    catalog.create_namespace(name)
    yield name
    audit_namespace(catalog, tidy_service.uri, name)


@pytest.fixture
def tidy_lake(spark: SparkSession, tidy_service: Service, tidy_namespace: str) -> Lake:
    """Spark in it."""
    return Lake(session_at(spark, tidy_service.uri), tidy_service.uri, tidy_namespace, 2)


def append(table: Table, *ids: int) -> None:
    table.append(pa.table({"id": pa.array(ids, pa.int64())}))


def ids_of(table: Table | StaticTable) -> list[int]:
    found: list[int] = sorted(table.scan().to_arrow()["id"].to_pylist())
    return found


def wait_for(service: Service, name: tuple[str, str], is_so: Callable[[], bool]) -> None:
    """Read the table's feed until something is so; each expiry is an event."""
    url, cursor = f"{service.uri}/v1/namespaces/{name[0]}/tables/{name[1]}/events", ""
    for _ in range(_PAGES_MAX):
        if is_so():
            return
        query = {"wait-ms": str(_PAGE_WAIT_MS), **({"cursor": cursor} if cursor else {})}
        answer = httpx.get(url, params=query, timeout=30)
        assert answer.status_code == 200, answer.text
        cursor = answer.json()["continuation-token"]
    raise AssertionError(f"it never came to be so: {service.log_tail()}")


# --- gzip --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lazily", [False, True], ids=["with-each-commit", "as-checkpoints"])
def test_pyiceberg_reads_and_writes_tables_with_gzipped_metadata(
    catalog: RestCatalog, tidy_service: Service, request: pytest.FixtureRequest, lazily: bool
) -> None:
    namespace = request.getfixturevalue("tidy_namespace" if lazily else "namespace")
    here = catalog_of(tidy_service.uri) if lazily else catalog
    table = here.create_table((namespace, "t"), SCHEMA, properties=CODEC)
    append(table, 1)
    append(table, 2)
    found = here.load_table((namespace, "t"))
    assert found.metadata_location.endswith(".gz.metadata.json")
    assert ids_of(found) == ids_of(StaticTable.from_metadata(found.metadata_location)) == [1, 2]
    text = json.loads(gzip.decompress(Path(urlsplit(found.metadata_location).path).read_bytes()))
    assert len(text["snapshots"]) == 2


def test_spark_reads_and_writes_tables_with_gzipped_metadata(lake_v2: Lake) -> None:
    table = lake_v2.create("t", "id BIGINT", properties=CODEC)
    lake_v2.sql(f"INSERT INTO {table} VALUES (1), (2)", f"DELETE FROM {table} WHERE id = 1")
    assert lake_v2.rows(table) == [(2,)]
    # Spark opens the file itself for its metadata tables.
    assert lake_v2.one(f"SELECT count(*) FROM {table}.snapshots") == 2
    files = lake_v2.rows(f"SELECT file FROM {table}.metadata_log_entries")
    assert len(files) == 3
    assert all(str(file).endswith(".gz.metadata.json") for (file,) in files)


def test_spark_registers_a_table_from_its_gzipped_metadata(lake_v2: Lake) -> None:
    table = lake_v2.create("t", "id BIGINT", properties=CODEC)
    lake_v2.sql(f"INSERT INTO {table} VALUES (1)")
    head = catalog_of(lake_v2.uri).load_table((lake_v2.namespace, "t")).metadata_location
    lake_v2.sql(f"DROP TABLE {table}")
    lake_v2.call("register_table", lake_v2.name("back"), f"metadata_file => '{head}'")
    assert lake_v2.rows(lake_v2.name("back")) == [(1,)]


# --- the log of metadata files -----------------------------------------------------------------------------------


def test_as_many_metadata_files_stay_as_the_table_asks_for(
    tidy_service: Service, tidy_namespace: str
) -> None:
    catalog = catalog_of(tidy_service.uri)
    asked = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "3",
    }
    table = catalog.create_table((tidy_namespace, "t"), SCHEMA, properties=asked)
    for n in range(8):
        append(table, n)
        table.refresh()
    kept = {entry.metadata_file for entry in table.metadata.metadata_log} | {table.metadata_location}
    assert len(kept) == 4
    assert {f"file://{file}" for file in local_files(table.location(), "*.metadata.json")} == kept
    assert ids_of(table) == list(range(8))


# --- expiry ------------------------------------------------------------------------------------------------------


def test_pyiceberg_writes_on_while_the_service_expires(tidy_service: Service, tidy_namespace: str) -> None:
    catalog, name = catalog_of(tidy_service.uri), (tidy_namespace, "t")
    table = catalog.create_table(name, SCHEMA, properties=BOUNDED)
    for n in range(8):
        append(table, n)
    table.delete("id < 4")
    wait_for(tidy_service, name, lambda: len(catalog.load_table(name).snapshots()) == 2)
    append(table, 8)
    wait_for(tidy_service, name, lambda: len(catalog.load_table(name).snapshots()) == 2)
    assert ids_of(catalog.load_table(name)) == [4, 5, 6, 7, 8]


def test_spark_reads_its_rows_and_tags_after_the_service_expired_the_rest(
    tidy_service: Service, tidy_lake: Lake
) -> None:
    catalog, name = catalog_of(tidy_service.uri), (tidy_lake.namespace, "t")
    table = tidy_lake.create("t", "id BIGINT, kind STRING")
    tidy_lake.sql(
        f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')",
        f"ALTER TABLE {table} CREATE TAG first",
        f"UPDATE {table} SET kind = 'c' WHERE id = 2",
        f"INSERT INTO {table} VALUES (3, 'd')",
        f"CALL lake.system.rewrite_data_files(table => '{tidy_lake.namespace}.t', options => map('rewrite-all', 'true'))",
        f"DELETE FROM {table} WHERE id = 1",
    )
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in BOUNDED.items())
    tidy_lake.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({properties})")
    wait_for(tidy_service, name, lambda: len(catalog.load_table(name).snapshots()) == 3)
    assert tidy_lake.rows(table) == [(2, "c"), (3, "d")]
    assert tidy_lake.rows(f"SELECT * FROM {table} VERSION AS OF 'first'") == [(1, "a"), (2, "b")]
    assert tidy_lake.one(f"SELECT count(*) FROM {table}.snapshots") == 3
    tidy_lake.sql(f"INSERT INTO {table} VALUES (4, 'e')")
    assert tidy_lake.rows(table) == [(2, "c"), (3, "d"), (4, "e")]
