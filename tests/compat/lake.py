"""What the compatibility tests say to Spark and PyIceberg, in few words. Builders default everything."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import DataFrame, SparkSession

from headgate.cli.main import main
from tests.spark_session import use_catalog

CATALOG = "lake"
Rows = list[tuple[object, ...]]
# A few rows need one task, and no plan that changes while it runs: half the time of a statement.
SMALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.shuffle.partitions": "1",
}
# What Java Iceberg 1.12 itself writes wrong into a snapshot's summary, by the name of the table in the test: the
# service takes an engine's snapshot as it is. A write that makes its branch counts from nothing instead of from
# the parent; a file added by manifest is counted without its size.
_ENGINES_OWN = {
    "first_on_branch": frozenset({"total-data-files", "total-records", "total-files-size"}),
    "added_by_manifest": frozenset({"total-files-size"}),
}


def catalog_of(uri: str) -> RestCatalog:
    """A client that keeps nothing: what it says is what the service says."""
    return RestCatalog(CATALOG, uri=uri)


def session_at(spark: SparkSession, uri: str) -> SparkSession:
    """A Spark session of its own that knows the service."""
    session = spark.newSession()
    use_catalog(session, CATALOG, uri, **{"cache-enabled": "false"})
    for name, value in SMALL.items():
        session.conf.set(name, value)
    return session


def audit_namespace(catalog: RestCatalog, uri: str, namespace: str) -> None:
    """Every table of the namespace, every snapshot of it, every file: no error."""
    for identifier in catalog.list_tables(namespace):
        audit_table(uri, ".".join(identifier))


def audit_table(uri: str, table: str) -> None:
    """`headgate audit` of one table finds no error but those known to be the engine's own."""
    _audit(table, "--uri", uri)


def audit_metadata(location: str, table: str) -> None:
    """The same of a table by its metadata file, wherever its catalog is."""
    _audit(table, "--metadata", location)


def _audit(table: str, *source: str) -> None:
    output = io.StringIO()
    with redirect_stdout(output):
        code = main(["audit", table, *source, "--files", "--all-snapshots", "--json"])
    assert code in (0, 1), output.getvalue()
    found = [
        finding for finding in json.loads(output.getvalue())["findings"] if finding["severity"] == "error"
    ]
    known = _ENGINES_OWN.get(table.rsplit(".", 1)[-1], frozenset())
    assert [finding for finding in found if finding["subject"] not in known] == [], table


def local_files(location: str, pattern: str = "*") -> set[Path]:
    """The files below a location on this disk."""
    return {file for file in Path(urlsplit(location).path).rglob(pattern) if file.is_file()}


@dataclass(frozen=True)
class Lake:
    """A Spark session, and the namespace and format version that a test works in."""

    session: SparkSession
    uri: str
    namespace: str
    version: int

    def name(self, table: str) -> str:
        """A table's full name in Spark."""
        return f"{CATALOG}.{self.namespace}.{table}"

    @contextmanager
    def setting(self, name: str, value: str) -> Iterator[None]:
        """A session setting for a few statements."""
        self.session.conf.set(name, value)
        try:
            yield
        finally:
            self.session.conf.unset(name)

    def create(
        self, table: str, columns: str, *, partitioned: str = "", properties: dict[str, str] | None = None
    ) -> str:
        """An empty table; returns its full name."""
        by = f"PARTITIONED BY ({partitioned})" if partitioned else ""
        self.sql(
            f"CREATE TABLE {self.name(table)} ({columns}) USING iceberg {by} {self.properties(properties)}"
        )
        return self.name(table)

    def properties(self, more: dict[str, str] | None = None) -> str:
        """The TBLPROPERTIES clause with the format version of the test."""
        wanted = {"format-version": str(self.version), **(more or {})}
        return "TBLPROPERTIES (" + ", ".join(f"'{k}' = '{v}'" for k, v in wanted.items()) + ")"

    def sql(self, *statements: str) -> DataFrame:
        """Run the statements; the answer of the last one."""
        for statement in statements:
            answer = self.session.sql(statement)
        return answer

    def lands(self, statement: str) -> bool:
        """Run a statement; False when the engine found that another commit conflicts with it."""
        try:
            self.session.sql(statement)
        except Py4JJavaError as error:
            if "org.apache.iceberg.exceptions.ValidationException" not in str(error):
                raise
            return False
        return True

    def rows(self, query: str) -> Rows:
        """The answer in a fixed order. A bare name is a whole table."""
        query = query if " " in query else f"SELECT * FROM {query}"
        return sorted((tuple(row) for row in self.session.sql(query).collect()), key=repr)

    def one(self, query: str) -> object:
        """The only column of the only row."""
        ((value,),) = self.rows(query)
        return value

    def call(self, procedure: str, table: str, arguments: str = "") -> dict[str, object]:
        """A stored procedure on a table; its first row."""
        more = f", {arguments}" if arguments else ""
        name = table.removeprefix(f"{CATALOG}.")
        row = self.sql(f"CALL {CATALOG}.system.{procedure}(table => '{name}'{more})").first()
        return {} if row is None else row.asDict()

    def head(self, table: str, ref: str = "main") -> object:
        """The snapshot that a branch or tag points at."""
        return self.one(f"SELECT snapshot_id FROM {table}.refs WHERE name = '{ref}'")

    def location(self, table: str) -> str:
        """Where the table's files are."""
        described = {row[0]: row[1] for row in self.rows(f"DESCRIBE TABLE EXTENDED {table}")}
        return str(described["Location"])
