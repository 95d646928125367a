"""Fixtures shared by several folders of tests: each lives in a module of its own and is only named here."""

from tests.postgres_server import postgres_fresh_url, postgres_server, postgres_url
from tests.s3_server import s3_server
from tests.spark_session import pytest_collection_modifyitems, spark

__all__ = [
    "postgres_fresh_url",
    "postgres_server",
    "postgres_url",
    "pytest_collection_modifyitems",
    "s3_server",
    "spark",
]
