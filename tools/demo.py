"""`./dev demo`: Spark SQL and PyIceberg create and write one table at the same time, through Headgate.

Starts the service on the embedded default (SQLite and local disk, nothing configured) in a temporary folder,
lets both engines race, reads the table back from both, audits it, and prints who committed what.
Exit code 0 only if every row that was acknowledged is there exactly once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from tools.iceberg_jar import JarError, find_java, load_iceberg_jar
from tools.service_process import Service, running_service
from tools.spark_local import open_spark, use_catalog

TABLE = "demo.payments"
COMMITS = 8
ROWS = 500
PAUSE_S = 0.2  # between commits, as micro-batches arrive; PyIceberg would be done before Spark has planned
# Engines give up after four retries unless the table says otherwise; a race should cost time, not work.
RETRIES = {"commit.retry.num-retries": "30", "commit.retry.min-wait-ms": "20"}


@dataclass
class Writer:
    """One engine in the race: what it does, and what it was told."""

    name: str
    create: Callable[[], None]
    append: Callable[[int], None]
    acknowledged: list[tuple[int, float]] = field(default_factory=list)  # first id and seconds
    created: bool = False
    failures: list[str] = field(default_factory=list)

    def run(self, start: threading.Barrier, first_id: int) -> None:
        """Create the table if nobody has, then append, each commit a batch of new ids."""
        start.wait()
        try:
            self.create()
        except Exception as error:
            self.failures.append(f"create: {type(error).__name__}: {error}")
        for i in range(COMMITS):
            began = time.perf_counter()
            try:
                self.append(first_id + i * ROWS)
            except Exception as error:
                self.failures.append(f"append {i}: {type(error).__name__}: {error}")
                continue
            self.acknowledged.append((first_id + i * ROWS, time.perf_counter() - began))
            time.sleep(PAUSE_S)


def pyiceberg_writer(uri: str) -> tuple[Writer, Callable[[], list[int]]]:
    """PyIceberg as a writer, and a reader of all ids."""
    catalog = RestCatalog("demo", uri=uri)
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "writer", StringType(), required=False),
        NestedField(3, "amount", DoubleType(), required=False),
    )
    tables: list[Table] = []

    def create() -> None:
        tables.append(catalog.create_table_if_not_exists(TABLE, schema, properties=RETRIES))

    def append(first: int) -> None:
        ids = pa.array(range(first, first + ROWS), pa.int64())
        amounts = pa.array([float(i % 97) for i in range(ROWS)])
        rows = pa.table({"id": ids, "writer": pa.array(["pyiceberg"] * ROWS), "amount": amounts})
        tables[0].append(rows)

    def read() -> list[int]:
        found: list[int] = catalog.load_table(TABLE).scan().to_arrow()["id"].to_pylist()
        return found

    return Writer("PyIceberg", create, append), read


def spark_writer(
    uri: str, jar: Path, folder: Path
) -> tuple[Writer, Callable[[], list[int]], Callable[[], None]]:
    """Spark SQL as a writer, a reader of all ids, and what ends the session."""
    spark = open_spark("headgate-demo", jar=jar, folder=folder)
    use_catalog(spark, "gate", uri)
    # The first statement of a session takes seconds; a race against it would be none.
    spark.sql("CREATE TABLE gate.demo.warm_up (id BIGINT) USING iceberg")
    spark.sql("INSERT INTO gate.demo.warm_up VALUES (1)")
    spark.sql("DROP TABLE gate.demo.warm_up PURGE")
    properties = ", ".join(f"'{k}'='{v}'" for k, v in RETRIES.items())

    def create() -> None:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS gate.{TABLE} (id BIGINT, writer STRING, amount DOUBLE) "
            f"USING iceberg TBLPROPERTIES ({properties})"
        )

    def append(first: int) -> None:
        spark.sql(
            f"INSERT INTO gate.{TABLE} SELECT id, 'spark', CAST(id % 97 AS DOUBLE) FROM range({first}, {first + ROWS})"
        )

    def read() -> list[int]:
        spark.sql(f"REFRESH TABLE gate.{TABLE}")
        return [row.id for row in spark.sql(f"SELECT id FROM gate.{TABLE}").collect()]

    return Writer("Spark SQL", create, append), read, spark.stop


def race(writers: list[Writer]) -> float:
    """Let them all go at once; returns the seconds it took."""
    start = threading.Barrier(len(writers))
    threads = [
        threading.Thread(target=writer.run, args=(start, i * 1_000_000)) for i, writer in enumerate(writers)
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def print_commits(uri: str, began_ms: int) -> int:
    """The table's snapshots, oldest first, with who made each; returns how many."""
    table = RestCatalog("demo", uri=uri).load_table(TABLE)
    print("\n  #  at      committed by  operation  rows added  rows in table")
    snapshots = table.metadata.snapshots
    for number, snapshot in enumerate(snapshots, 1):
        summary = snapshot.summary
        properties = {} if summary is None else summary.additional_properties
        by = "Spark SQL" if "spark.app.id" in properties else "PyIceberg"
        operation = "" if summary is None else summary.operation.value
        print(
            f" {number:2d}  {(snapshot.timestamp_ms - began_ms) / 1000:5.2f} s  {by:12s}  {operation:9s}  "
            f"{properties.get('added-records', '0'):>10s}  {properties.get('total-records', '?'):>13s}"
        )
    return len(snapshots)


def audit(service: Service) -> bool:
    """The structural audit that operators have."""
    command = [sys.executable, "-m", "headgate.cli.main", "audit", TABLE, "--uri", service.uri, "--files"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout + done.stderr)
    return done.returncode == 0


def run(folder: Path) -> int:
    """The whole story; returns the exit code."""
    with running_service(folder) as service:
        print(f"headgate serves {service.uri} (SQLite and local disk, nothing configured)")
        catalog = RestCatalog("demo", uri=service.uri)
        catalog.create_namespace("demo")
        writers, readers, enders = [], {}, []
        writer, readers["PyIceberg"] = pyiceberg_writer(service.uri)
        writers.append(writer)
        missing = ""
        try:
            if find_java() is None:
                raise JarError("no Java was found")
            print("starting Spark with the Iceberg runtime jar …", flush=True)
            writer, readers["Spark SQL"], stop = spark_writer(
                service.uri, load_iceberg_jar(), folder / "spark"
            )
            writers.append(writer)
            enders.append(stop)
        except JarError as error:
            missing = f"Spark took no part: {error}"
            print(missing)
        print(
            f"{' and '.join(w.name for w in writers)}: create {TABLE}, then {COMMITS} appends each, at the same time"
        )
        began_ms = time.time_ns() // 1_000_000
        seconds = race(writers)
        print_commits(service.uri, began_ms)
        expected = sorted(
            i for w in writers for first, _ in w.acknowledged for i in range(first, first + ROWS)
        )
        good = True
        print(f"\n  {'writer':10s}  acknowledged  failed  slowest commit")
        for writer in writers:
            slowest = max((s for _, s in writer.acknowledged), default=0.0)
            print(
                f"  {writer.name:10s}  {len(writer.acknowledged):5d} of {COMMITS}  {len(writer.failures):6d}"
                f"  {slowest * 1000:8.0f} ms"
            )
            for failure in writer.failures:
                print(f"      {failure[:160]}")
            good = good and not writer.failures
        print()
        for name, read in readers.items():
            same = sorted(read()) == expected
            good = good and same
            print(
                f"  read back by {name:10s} {'every acknowledged row once' if same else 'ROWS DIFFER'} ({len(expected)})"
            )
        clean = audit(service)
        print(f"  structural audit          {'clean' if clean else 'FINDINGS'}")
        for end in enders:
            end()
    good = good and clean and not missing
    print(
        f"\n{'all good' if good else 'NOT GOOD'}: {len(expected)} rows by {len(writers)} engines in {seconds:.1f} s"
    )
    return 0 if good or (missing and clean) else 1


def main() -> int:
    """Run in a folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="headgate-demo-") as folder:
        return run(Path(folder))


if __name__ == "__main__":
    sys.exit(main())
