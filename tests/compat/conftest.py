"""One service process for the folder, and for each test a namespace of its own that is audited at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession
from tools.service_process import Service, running_service

from tests.compat.lake import Lake, audit_namespace, catalog_of, session_at


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """`headgate serve` on SQLite and local disk."""
    with running_service(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def namespace(service: Service, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test; every table that is left in it must be sound."""
    name = re.sub(r"\W+", "_", request.node.name.removeprefix("test_"))
    catalog = catalog_of(service.uri)
    catalog.create_namespace(name)
    yield name
    audit_namespace(catalog, service.uri, name)


@pytest.fixture
def catalog(service: Service) -> RestCatalog:
    """PyIceberg's client of the service."""
    return catalog_of(service.uri)


@pytest.fixture(scope="session")
def spark_lake(spark: SparkSession, service: Service) -> SparkSession:
    """A Spark session that knows the service; one, because a catalog that is open answers faster."""
    return session_at(spark, service.uri)


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def version(request: pytest.FixtureRequest) -> int:
    """The format version of the tables of a test."""
    number: int = request.param
    return number


@pytest.fixture
def lake(spark_lake: SparkSession, service: Service, namespace: str, version: int) -> Lake:
    """Spark in the test's namespace, once for each format version."""
    return Lake(spark_lake, service.uri, namespace, version)


@pytest.fixture
def lake_v2(spark_lake: SparkSession, service: Service, namespace: str) -> Lake:
    """The same for what does not depend on the format version."""
    return Lake(spark_lake, service.uri, namespace, 2)


@pytest.fixture
def lake_v3(spark_lake: SparkSession, service: Service, namespace: str) -> Lake:
    """The same for what came with format version 3."""
    return Lake(spark_lake, service.uri, namespace, 3)
