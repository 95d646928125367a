"""Spark on tables whose metadata file is written after the commit, as those of large tables are (docs/adr/0002)."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession
from tools.service_process import Service, running_service

from tests.compat.lake import Lake, audit_namespace, catalog_of, local_files, session_at


@pytest.fixture(scope="module")
def lazy_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that writes no metadata file before a commit, and none for an hour after it."""
    options = ("--metadata-inline-bytes", "0", "--checkpoint-interval-s", "3600")
    with running_service(tmp_path_factory.mktemp("lazy"), options=options) as running:
        yield running


@pytest.fixture
def late(spark: SparkSession, lazy_service: Service, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """Spark at that service, in a namespace that is audited at the end."""
    namespace = request.node.name.removeprefix("test_")
    catalog = catalog_of(lazy_service.uri)
    catalog.create_namespace(namespace)
    yield Lake(session_at(spark, lazy_service.uri), lazy_service.uri, namespace, 2)
    audit_namespace(catalog, lazy_service.uri, namespace)


def _numbers(lake: Lake, commits: int) -> str:
    table = lake.create("t", "id BIGINT")
    for n in range(1, commits + 1):
        lake.sql(f"INSERT INTO {table} VALUES ({n})")
    return table


def test_a_table_dropped_before_its_checkpoint_comes_back_with_every_row(late: Lake) -> None:
    table = _numbers(late, 3)
    head = catalog_of(late.uri).load_table((late.namespace, "t")).metadata_location
    assert Path(urlsplit(head).path).exists()  # whoever loads a table gets the file that it names
    late.sql(f"DROP TABLE {table}")
    late.call("register_table", late.name("back"), f"metadata_file => '{head}'")
    late.sql(f"INSERT INTO {late.name('back')} VALUES (4)")
    assert late.rows(late.name("back")) == [(1,), (2,), (3,), (4,)]


def test_a_table_purged_before_its_checkpoint_leaves_no_file(late: Lake) -> None:
    table = _numbers(late, 3)
    location = late.location(table)
    late.sql(f"DROP TABLE {table} PURGE")
    assert {file for file in local_files(location) if file.suffix != ".crc"} == set()


def test_upkeep_before_the_checkpoint_keeps_the_rows(late: Lake) -> None:
    table = _numbers(late, 4)
    late.call("rewrite_data_files", table, "options => map('rewrite-all', 'true')")
    late.call("rewrite_manifests", table)
    later = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
    late.call(
        "expire_snapshots", table, f"older_than => TIMESTAMP '{later:%Y-%m-%d %H:%M:%S}', retain_last => 1"
    )
    two_days_ago = time.time() - 2 * 86_400
    for file in local_files(late.location(table)):
        os.utime(file, (two_days_ago, two_days_ago))
    older_than = dt.datetime.now(dt.UTC) - dt.timedelta(days=1, hours=1)
    late.call("remove_orphan_files", table, f"older_than => TIMESTAMP '{older_than:%Y-%m-%d %H:%M:%S}'")
    late.sql(f"INSERT INTO {table} VALUES (5)")
    assert late.rows(table) == [(1,), (2,), (3,), (4,), (5,)]
    assert len(catalog_of(late.uri).load_table((late.namespace, "t")).snapshots()) == 2


def test_metadata_tables_are_read_before_the_checkpoint(late: Lake) -> None:
    assert late.one(f"SELECT count(*) FROM {_numbers(late, 2)}.snapshots") == 2
