"""One Spark session and one service for the folder; for each test a namespace of its own, audited at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tools.service_process import Service, running_service

from headgate.spark.lake import Lake
from headgate.spark.session import prepare_session
from tests.compat.lake import audit_namespace, catalog_of
from tests.spark.tables import Tables


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """`headgate serve` on SQLite and local disk."""
    with running_service(tmp_path_factory.mktemp("spark-service")) as running:
        yield running


@pytest.fixture(scope="session")
def lake(service: Service) -> Lake:
    """The service as our jobs know it."""
    return Lake(service.uri)


@pytest.fixture(scope="session")
def spark(spark: SparkSession, lake: Lake) -> SparkSession:
    """The session of the whole run with our settings, and the jar's catalog `headgate_jar` of the service."""
    session = prepare_session(spark.newSession(), lake, jar=True)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


@pytest.fixture
def namespace(lake: Lake, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test; every table that is left in it must be sound."""
    name = re.sub(r"\W+", "_", request.node.name.removeprefix("test_"))[:120].strip("_")
    catalog = catalog_of(lake.uri)
    catalog.create_namespace(name)
    yield name
    audit_namespace(catalog, lake.uri, name)


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
