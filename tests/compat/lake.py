"""What the compatibility tests say to Spark and PyIceberg, in few words. Builders default everything."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import DataFrame, SparkSession

from headgate.cli.main import main
from tests.spark_session import use_catalog

CATALOG = "lake"
Rows = list[tuple[object, ...]]


def catalog_of(uri: str) -> RestCatalog:
    """A client that keeps nothing: what it says is what the service says."""
    return RestCatalog(CATALOG, uri=uri)


def audit_namespace(catalog: RestCatalog, uri: str, namespace: str) -> None:
    """Every table of the namespace, every snapshot of it, every file: no error."""
    for identifier in catalog.list_tables(namespace):
        audit_table(uri, ".".join(identifier))


def audit_table(uri: str, table: str) -> None:
    """`headgate audit` of one table finds no error."""
    output = io.StringIO()
    with redirect_stdout(output):
        code = main(["audit", table, "--uri", uri, "--files", "--all-snapshots"])
    assert code == 0, output.getvalue()


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

    def fresh(self, **settings: str) -> Lake:
        """The same place through a new Spark session with settings of its own."""
        session = self.session.newSession()
        use_catalog(session, CATALOG, self.uri, **{"cache-enabled": "false"})
        for name, value in settings.items():
            session.conf.set(name, value)
        return replace(self, session=session)

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
        self.sql(f"CREATE TABLE {self.name(table)} ({columns}) USING iceberg {by} {self.properties(properties)}")
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
        described = dict((row[0], row[1]) for row in self.rows(f"DESCRIBE TABLE EXTENDED {table}"))
        return str(described["Location"])
