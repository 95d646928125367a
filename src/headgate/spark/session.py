"""The only place that builds Spark sessions: the settings that our files and our arithmetic rely on."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from headgate.errors import BadInput
from headgate.spark.lake import Lake

JAR_CATALOG = "headgate_jar"  # the Iceberg jar's catalog of the same lake, for tables with delete files
_JAR_URI = f"spark.sql.catalog.{JAR_CATALOG}.uri"
_ICEBERG_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"

# What a session of ours must say; a session made elsewhere is brought to it by `prepare_session`.
SETTINGS: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.session.timeZone": "UTC",
}
# Those without which Spark's own writer makes files that are not Iceberg's.
_FOR_FILES = (
    "spark.sql.parquet.datetimeRebaseModeInWrite",
    "spark.sql.parquet.fieldId.write.enabled",
    "spark.sql.parquet.outputTimestampType",
    "spark.sql.parquet.writeLegacyFormat",
)
# PyIceberg's names of what reaches S3, and Hadoop's.
_HADOOP_S3 = {
    "s3.endpoint": "fs.s3a.endpoint",
    "s3.access-key-id": "fs.s3a.access.key",
    "s3.secret-access-key": "fs.s3a.secret.key",
    "s3.session-token": "fs.s3a.session.token",
    "s3.region": "fs.s3a.endpoint.region",
}
# PyIceberg's names that the Iceberg jar has under another one.
_JAR_STORAGE = {"s3.region": "client.region"}


def build_session(
    name: str,
    *,
    master: str | None = None,
    lake: Lake | None = None,
    jar: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session for our jobs; with `jar` and `lake` it also reads tables through the Iceberg jar."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # a session that Python starts asks nothing else
    wanted = {"spark.app.name": name, **SETTINGS}
    if master is not None:
        wanted["spark.master"] = master
    if lake is not None:
        wanted |= {f"spark.hadoop.{key}": value for key, value in hadoop_settings(lake).items()}
    if jar is not None:
        wanted["spark.jars"] = jar
        wanted["spark.sql.extensions"] = _ICEBERG_EXTENSIONS
        if lake is not None:
            wanted |= jar_settings(lake)
    builder = SparkSession.builder
    for key, value in {**wanted, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare_session(spark: SparkSession, lake: Lake | None = None, *, jar: bool = False) -> SparkSession:
    """Bring a session that exists to our settings; with `jar` (loaded when it started) register its catalog."""
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    if jar and lake is not None:
        known = spark.conf.get(_JAR_URI, None)
        if known not in (None, _uri_of(lake)):
            # Spark opens a catalog once per session and keeps it: a new address would be ignored in silence.
            raise BadInput(f"this session reads {known} already; take another session", field="lake")
        for key, value in jar_settings(lake).items():
            spark.conf.set(key, value)
    return spark


def check_session(spark: SparkSession) -> None:
    """Refuse a session whose own Parquet writer would make files that readers of Iceberg cannot trust."""
    for key in _FOR_FILES:
        found = str(spark.conf.get(key))
        if found.upper() != SETTINGS[key].upper():
            raise BadInput(
                f"{key} is {found}, and files need {SETTINGS[key]}: make the session by `build_session`, "
                "or bring it to our settings by `prepare_session`",
                field=key,
            )


def with_setting(rows: DataFrame, name: str, value: str) -> DataFrame:
    """The same rows in a copy of their session that has one more setting; whoever shares the session does not see it.

    Spark does not promise the copy to others than itself: for a Spark without it, the rows are as they were.
    """
    session = rows.sparkSession
    java: Any = session._jvm
    try:
        copy = rows._jdf.sparkSession().cloneSession()
        copy.conf().set(name, value)
        plan = rows._jdf.queryExecution().analyzed()
        return DataFrame(java.org.apache.spark.sql.classic.Dataset.ofRows(copy, plan), session)
    except Py4JError:
        return rows


def jar_settings(lake: Lake, catalog: str = JAR_CATALOG) -> dict[str, str]:
    """The settings of the Iceberg jar's catalog of this lake; BadInput for one that it cannot be pointed at."""
    prefix = f"spark.sql.catalog.{catalog}"
    said = {**lake.identity(), **lake.storage} if lake.other is None else lake.properties
    options = {
        **{_JAR_STORAGE.get(key, key): value for key, value in said.items()},
        "type": "rest",
        "uri": _uri_of(lake),
        "cache-enabled": "false",  # what it shows is what the catalog says
    }
    if "s3.endpoint" in lake.storage:
        options |= {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.path-style-access": "true"}
    found = {f"{prefix}.{key}": value for key, value in options.items()}
    return {**found, prefix: _ICEBERG_CATALOG}


def hadoop_settings(lake: Lake) -> dict[str, str]:
    """How Hadoop's file systems reach the lake's storage, for Spark's own readers and writers."""
    found = {_HADOOP_S3[key]: value for key, value in lake.storage.items() if key in _HADOOP_S3}
    if not found:
        return {}
    if "s3.endpoint" in lake.storage:
        found["fs.s3a.path.style.access"] = "true"
        found["fs.s3a.connection.ssl.enabled"] = str(lake.storage["s3.endpoint"].startswith("https")).lower()
    return {**found, "fs.s3.impl": _S3A}


def has_jar_catalog(spark: SparkSession, lake: Lake | None = None) -> bool:
    """Whether this session reads tables through the Iceberg jar; those of a catalog that is not ours, if one is given."""
    if spark.conf.get(f"spark.sql.catalog.{JAR_CATALOG}", None) is None:
        return False
    return lake is None or lake.other is None or spark.conf.get(_JAR_URI, None) == lake.properties.get("uri")


def _uri_of(lake: Lake) -> str:
    """Where the jar finds the catalog. It speaks REST; what it has for other catalogs has other names and settings."""
    if lake.other is None:
        return lake.uri
    uri = lake.properties.get("uri", "")
    if lake.properties.get("type", "rest") != "rest" or not uri.startswith("http"):
        raise BadInput(
            f"jar: the Iceberg jar is pointed at REST catalogs only, and {lake.other} is none", field="jar"
        )
    return uri
