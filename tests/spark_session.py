"""One Spark session for a whole test run, and the one way to point it at a catalog.

Skips, with the reason, where Java or the Iceberg jar cannot be had.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tools.iceberg_jar import JarError, find_java, load_iceberg_jar

_ICEBERG = "org.apache.iceberg.spark.SparkCatalog"


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
    settings: dict[str, bool | float | int | str | None] = {
        "spark.app.name": "headgate-tests",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.jars": str(jar),
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.master": "local[2]",
        "spark.pyspark.python": sys.executable,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    session = SparkSession.builder.config(map=settings).getOrCreate()
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test that takes the session is marked `spark`, and forgiven what PySpark itself leaves open."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            # `DataFrame.collect` drops its socket without closing it (pyspark/util.py, 4.1.4).
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def use_catalog(spark: SparkSession, name: str, uri: str, **properties: str) -> None:
    """Register an Iceberg REST catalog under a name that this session has not used yet."""
    set_catalog(spark, name, {"type": "rest", "uri": uri, **properties})


def set_catalog(spark: SparkSession, name: str, properties: dict[str, str]) -> None:
    """Register an Iceberg catalog of any type."""
    key = f"spark.sql.catalog.{name}"
    if spark.conf.get(key, None) is not None:
        # Spark opens a catalog once per session and keeps it: new settings would be ignored in silence.
        raise ValueError(f"catalog {name} is already registered; take another name or spark.newSession()")
    for option, value in properties.items():
        spark.conf.set(f"{key}.{option}", value)
    spark.conf.set(key, _ICEBERG)
