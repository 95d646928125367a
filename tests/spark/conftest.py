"""One Spark session and one service for the folder; for each test a namespace of its own, audited at the end.

Key tests run on both kinds of lake: `@BOTH` gives them the service, and a SqlCatalog of PyIceberg's that the Iceberg jar
shares by JDBC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from tools.service_process import Service, running_service

from headgate.spark.lake import Lake
from headgate.spark.session import prepare_session
from tests.compat.lake import audit_metadata, audit_namespace, catalog_of
from tests.spark.kinds import OTHER, SERVICE
from tests.spark.tables import Tables
from tests.spark_session import set_catalog


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """`headgate serve` on SQLite and local disk."""
    with running_service(tmp_path_factory.mktemp("spark-service")) as running:
        yield running


@dataclass(frozen=True)
class SqlPlace:
    """Where the SqlCatalog is."""

    folder: Path

    @property
    def warehouse(self) -> str:
        return f"file://{self.folder}/warehouse"

    @property
    def database(self) -> Path:
        return self.folder / "catalog.db"


@pytest.fixture(scope="session")
def sql_place(tmp_path_factory: pytest.TempPathFactory) -> SqlPlace:
    """A folder for a SqlCatalog and its tables."""
    return SqlPlace(tmp_path_factory.mktemp("sql-lake"))


@pytest.fixture(scope="session")
def sql_lake(sql_place: SqlPlace) -> Iterator[Lake]:
    """A catalog that is not Headgate."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{sql_place.database}",
        "warehouse": sql_place.warehouse,
    }
    lake = Lake.over(OTHER, properties)
    yield lake
    catalog = lake.catalog()
    assert isinstance(catalog, SqlCatalog)
    catalog.engine.dispose()


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """Which kind of lake a test works on."""
    found: str = getattr(request, "param", SERVICE)
    return found


@pytest.fixture
def lake(kind: str, service: Service, request: pytest.FixtureRequest) -> Lake:
    """The service as our jobs know it, or the other catalog."""
    if kind == SERVICE:
        return Lake(service.uri)
    other: Lake = request.getfixturevalue("sql_lake")
    return other


@pytest.fixture(scope="session")
def spark(spark: SparkSession, service: Service, sql_place: SqlPlace) -> SparkSession:
    """The session of the whole run with our settings, and the jar's catalogs of the service and of SQLite."""
    session = prepare_session(spark.newSession(), Lake(service.uri), jar=True)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    jdbc = {"type": "jdbc", "uri": f"jdbc:sqlite:{sql_place.database}", "warehouse": sql_place.warehouse}
    set_catalog(session, OTHER, {**jdbc, "jdbc.schema-version": "V1", "cache-enabled": "false"})
    return session


@pytest.fixture
def namespace(lake: Lake, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test; every table that is left in it must be sound."""
    name = re.sub(r"\W+", "_", request.node.name.removeprefix("test_"))[:120].strip("_")
    if lake.other is None:
        catalog = catalog_of(lake.uri)
        catalog.create_namespace(name)
        yield name
        audit_namespace(catalog, lake.uri, name)
    else:
        lake.catalog().create_namespace(name)
        yield name
        for identifier in lake.catalog().list_tables(name):
            location = lake.catalog().load_table(identifier).metadata_location
            audit_metadata(location, identifier[-1])


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def version(request: pytest.FixtureRequest) -> int:
    """The format version of the tables of a test."""
    number: int = request.param
    return number


@pytest.fixture
def tables(spark: SparkSession, lake: Lake, namespace: str, version: int) -> Tables:
    """Tables of the test's namespace, once for each format version."""
    return Tables(spark, lake, namespace, version)


@pytest.fixture
def tables_v2(spark: SparkSession, lake: Lake, namespace: str) -> Tables:
    """The same for what does not depend on the format version."""
    return Tables(spark, lake, namespace, 2)


@pytest.fixture
def tables_v3(spark: SparkSession, lake: Lake, namespace: str) -> Tables:
    """The same for what came with format version 3."""
    return Tables(spark, lake, namespace, 3)
