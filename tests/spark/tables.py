"""Tables of a test, made by the Iceberg jar and read back by it and by PyIceberg. Builders default everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pyspark.sql import DataFrame, Row, SparkSession

from headgate.spark.lake import Lake, LakeTable
from headgate.spark.session import JAR_CATALOG

Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class Tables:
    """The tables of one namespace and format version."""

    spark: SparkSession
    lake: Lake
    namespace: str
    version: int

    def name(self, table: str) -> str:
        """A table's full name in Spark, through the jar, which calls a SqlCatalog as the lake does."""
        return f"{self.lake.other or JAR_CATALOG}.{self.namespace}.{table}"

    def create(
        self,
        table: str,
        columns: str = "id BIGINT, name STRING",
        *,
        partitioned: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> LakeTable:
        """An empty table, by columns as Spark's SQL has them."""
        wanted = {"format-version": str(self.version), **(properties or {})}
        by = f"PARTITIONED BY ({partitioned})" if partitioned else ""
        said = ", ".join(f"'{key}' = '{value}'" for key, value in wanted.items())
        self.sql(f"CREATE TABLE {self.name(table)} ({columns}) USING iceberg {by} TBLPROPERTIES ({said})")
        return self.table(table)

    def table(self, table: str) -> LakeTable:
        """A table as our jobs know it."""
        return self.lake.table((self.namespace, table))

    def sql(self, *statements: str) -> DataFrame:
        """Run the statements; the answer of the last one."""
        for statement in statements:
            answer = self.spark.sql(statement)
        return answer

    def by_jar(self, table: str, columns: str = "*", where: str = "true") -> Rows:
        """The rows as Spark reads them through the Iceberg jar, in a fixed order."""
        found = self.spark.sql(f"SELECT {columns} FROM {self.name(table)} WHERE {where}").collect()
        return in_order(tuple(row) for row in found)

    def by_pyiceberg(self, table: str) -> Rows:
        """The rows as PyIceberg reads them, in the same order and of the same Python types."""
        found = self.lake.catalog().load_table((self.namespace, table)).scan().to_arrow()
        return in_order(tuple(row.values()) for row in found.to_pylist())

    def plain(self, rows: DataFrame) -> Rows:
        """Rows of Spark as the readers below show theirs."""
        return in_order(tuple(row) for row in rows.collect())

    def rows(self, table: str) -> Rows:
        """The rows of the table; both readers must see the same ones."""
        jar, python = self.by_jar(table), self.by_pyiceberg(table)
        assert jar == python, f"{table}: the jar reads {jar}, PyIceberg {python}"
        return jar


def source_options(table: LakeTable) -> dict[str, str]:
    """What `format("headgate")` is told to find a table."""
    lake = table.lake
    if lake.other is None:
        return {"uri": lake.uri, "table": table.name, **lake.storage}
    properties = {f"catalog.{name}": value for name, value in lake.properties.items()}
    return {"catalog": lake.other, "table": table.name, **properties}


def in_order(rows: Any) -> Rows:
    """Rows in a fixed order, their values as plain Python has them."""
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=repr)


def _plain(value: Any) -> object:
    """One spelling for what the readers hand out in several: rows and dicts, zones, UUIDs, byte arrays, maps."""
    if isinstance(value, Row):
        return {name: _plain(inner) for name, inner in value.asDict().items()}
    if isinstance(value, dict):
        return {_plain(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list) and value and all(type(one) is tuple and len(one) == 2 for one in value):
        return {_plain(name): _plain(inner) for name, inner in value}  # how PyArrow shows a map
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value
