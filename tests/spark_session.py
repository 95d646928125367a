"""One Spark session for a whole test run.

Skips, with the reason, where Java or the Iceberg jar cannot be had.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tools.iceberg_jar import JarError, find_java, load_iceberg_jar
from tools.spark_local import open_spark, set_catalog, use_catalog
from tools.sqlite_jdbc_jar import load_sqlite_driver

__all__ = ["set_catalog", "spark", "use_catalog"]

_SPARK_TESTS = Path(__file__).parent / "spark"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session. Tests that set configuration take `spark.newSession()`, which costs nothing."""
    if find_java() is None:
        pytest.skip("no Java was found; run through ./dev test, which gets one")
    try:
        jar = load_iceberg_jar()
    except JarError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("spark")
    session = open_spark("headgate-tests", jar=jar, folder=folder, more=_sqlite_driver())
    yield session
    session.stop()


def _sqlite_driver() -> tuple[Path, ...]:
    """For the tests that share a SqlCatalog with the Iceberg jar; the others go without."""
    try:
        return (load_sqlite_driver(),)
    except JarError:
        return ()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that takes the session or starts Spark itself, and forgive what PySpark itself leaves open."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or item.path.is_relative_to(_SPARK_TESTS):
            item.add_marker(pytest.mark.spark)
            # `DataFrame.collect` drops its socket without closing it (pyspark/util.py, 4.1.4).
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
