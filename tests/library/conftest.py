"""A lake of its own for every test, in the catalog that its road leads to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tools.reference_server import running_reference_server
from tools.run_rck import CannotRunError
from tools.service_process import Service, running_service

from tests.library.lake import Lake
from tests.postgres_server import create_database


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """`headgate serve` on SQLite and local disk."""
    with running_service(tmp_path_factory.mktemp("library-service")) as running:
        yield running


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The Iceberg reference REST server on SQLite and local disk; skips, with the reason, where it cannot be had."""
    try:
        with running_reference_server(tmp_path_factory.mktemp("library-reference")) as running:
            yield running
    except CannotRunError as error:
        pytest.skip(f"no reference server: {error}")


@pytest.fixture(scope="session")
def postgres_uri(postgres_server: str) -> str:
    """A database for all tests here, as SQLAlchemy spells it; every test has a namespace of its own in it."""
    return create_database(postgres_server).replace("postgresql://", "postgresql+psycopg://", 1)


@pytest.fixture
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """A SqlCatalog on SQLite, unless the test's road leads to PostgreSQL or to a REST catalog."""
    spec = getattr(request.node, "callspec", None)
    road = None if spec is None else spec.params.get("road")
    uri, namespace = None, "db"
    if road == "postgres":
        uri = request.getfixturevalue("postgres_uri")
    elif road in ("rest", "sent"):
        uri = request.getfixturevalue("service").uri
    elif road == "reference":
        uri = request.getfixturevalue("reference").uri
    if uri is not None:
        namespace = f"n{uuid4().hex[:12]}"
    made = Lake(tmp_path, uri, namespace=namespace)
    yield made
    made.close()
