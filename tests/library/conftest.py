"""A lake of its own for every test, in the catalog that its road leads to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tools.service_process import Service, running_service

from tests.library.lake import Lake


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """`headgate serve` on SQLite and local disk."""
    with running_service(tmp_path_factory.mktemp("library-service")) as running:
        yield running


@pytest.fixture
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """A SqlCatalog on SQLite, unless the test's road leads to PostgreSQL or to a REST catalog."""
    spec = getattr(request.node, "callspec", None)
    road = None if spec is None else spec.params.get("road")
    uri, namespace = None, "db"
    if road == "postgres":
        url: str = request.getfixturevalue("postgres_fresh_url")
        uri = url.replace("postgresql://", "postgresql+psycopg://", 1)
    elif road in ("rest", "sent"):
        service: Service = request.getfixturevalue("service")
        uri, namespace = service.uri, f"n{uuid4().hex[:12]}"
    made = Lake(tmp_path, uri, namespace=namespace)
    yield made
    made.close()
