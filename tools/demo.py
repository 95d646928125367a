"""`./dev demo`: a payments table that everybody changes at once, through Headgate, and not a row is lost or comes back.

Starts the service on the embedded default (SQLite and local disk, nothing configured) in a temporary folder. Then, all
at the same time: three streams and two writers of micro-batches append, a privacy delete removes one customer, a merge
corrects amounts, and a compaction rewrites the small files. At the end it prints who committed what, which commits were
refused and why, and compares the table row by row with what was acknowledged. Exit code 0 only if all is well.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.spark.compaction import Compacted, compact
from headgate.spark.create_table import create_if_missing
from headgate.spark.deletes import delete
from headgate.spark.demo_source import FORMAT, Demo, DemoSource, payments
from headgate.spark.lake import Lake, LakeTable
from headgate.spark.merges import merge
from headgate.spark.pipeline_spec import TableShape
from headgate.spark.session import JAR_CATALOG, build_session
from headgate.spark.streams import Batch, stream
from headgate.spark.writes import write
from tools.demo_story import Ledger, Row, adds, corrects, removes, together, until_it_lands
from tools.iceberg_jar import JarError, find_java, load_iceberg_jar
from tools.service_process import Service, running_service
from tools.spark_local import brief_settings

TABLE = "demo.payments"
REGIONS = ("asia", "europe", "america")
STREAM_ROWS, ROWS_PER_SECOND, ROWS_PER_BATCH = 1_500, 500, 250
BATCHES, BATCH_ROWS = 5, 200
CUSTOMERS = 40  # in each region
LEAVING = 47  # the customer who asks to be forgotten; lives in Europe
CORRECTIONS = 100
PATIENCE_S = 100
PROPERTIES = {"write.merge.mode": "merge-on-read", "format-version": "2"}
BY = "headgate.demo.by"


@dataclass(frozen=True)
class World:
    """Where the story takes place."""

    spark: SparkSession
    table: LakeTable
    ledger: Ledger
    folder: Path
    has_jar: bool


def make_row(region: str, payment: tuple[int, int, str, Decimal, object]) -> Row:
    """A payment as the table has it."""
    return payment[0], payment[1] % CUSTOMERS + _first_customer(region), region, payment[3]


def shape(rows: DataFrame, region: str) -> DataFrame:
    """The same in Spark."""
    customer = sf.col("customer") % CUSTOMERS + _first_customer(region)
    return rows.select("id", customer.alias("customer"), sf.lit(region).alias("region"), "amount", "at")


def _first_customer(region: str) -> int:
    return CUSTOMERS * REGIONS.index(region)


# --- the actors ---------------------------------------------------------------------------------------------


def stream_region(world: World, number: int) -> None:
    """A stream of one region, until it has brought all its rows."""
    region, first = REGIONS[number], (number + 1) * 1_000_000
    demo = Demo(rows=STREAM_ROWS, seed=number, first_id=first)
    brought = 0

    def note(batch: Batch) -> None:
        nonlocal brought
        rows = [make_row(region, row) for row in payments(demo, brought, brought + batch.rows)]
        brought += batch.rows
        world.ledger.note(f"stream {region}", batch.committed, adds(rows))

    source = world.spark.readStream.format(FORMAT)
    options = {"rows": STREAM_ROWS, "rows-per-second": ROWS_PER_SECOND, "rows-per-batch": ROWS_PER_BATCH}
    options |= {"seed": number, "first-id": first}
    for name, value in options.items():
        source = source.option(name, value)
    query = stream(
        shape(source.load(), region),
        world.table,
        checkpoint=str(world.folder / f"checkpoint-{region}"),
        trigger="1 second",
        summary={BY: f"stream {region}"},
        on_batch=note,
    )
    deadline = time.monotonic() + PATIENCE_S
    while brought < STREAM_ROWS and query.isActive and time.monotonic() < deadline:
        time.sleep(0.1)
    failed = query.exception()
    query.stop()
    if failed is not None or brought < STREAM_ROWS:
        raise RuntimeError(f"the stream brought {brought} of {STREAM_ROWS} rows: {failed}")


def write_batches(world: World, number: int) -> None:
    """Micro-batches of one office, in the region where the customer lives who leaves."""
    name, region = f"batch {number + 1}", REGIONS[1]
    demo = Demo(seed=100 + number, first_id=(number + 10) * 1_000_000)
    for turn in range(BATCHES):
        raw = list(payments(demo, turn * BATCH_ROWS, (turn + 1) * BATCH_ROWS))
        made = world.spark.createDataFrame(raw, DemoSource({}).schema())
        done = write(shape(made, region), world.table, summary={BY: name})
        world.ledger.note(name, done.committed, adds(make_row(region, row) for row in raw))
        time.sleep(0.5)


def forget_customer(world: World) -> None:
    """The privacy delete: every row of the customer that is committed before it is gone when it lands."""
    world.ledger.wait_for(commits=6, patience_s=PATIENCE_S)
    condition = f"customer = {LEAVING}"
    until_it_lands(
        world.ledger,
        "privacy delete",
        lambda: delete(world.table, condition, spark=world.spark, summary={BY: "privacy delete"}).committed,
        removes(LEAVING),
    )


def correct_amounts(world: World) -> None:
    """A merge of corrections for payments that were acknowledged."""
    deadline = time.monotonic() + PATIENCE_S
    while len(ids := world.ledger.acknowledged_ids(below=2_000_000)) < CORRECTIONS:
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {len(ids)} payments to correct after {PATIENCE_S} s")
        time.sleep(0.2)
    amounts = {id_: Decimal(id_ % 1000).scaleb(-2) for id_ in ids[:CORRECTIONS]}
    source = world.spark.createDataFrame(list(amounts.items()), "id bigint, amount decimal(12,2)")
    until_it_lands(
        world.ledger,
        "merge",
        lambda: (
            merge(
                world.table,
                source,
                ["id"],
                when_matched_update={"amount": "source.amount"},
                mode=None if world.has_jar else "copy-on-write",  # delete files are read through the jar
                summary={BY: "merge"},
            ).committed
        ),
        corrects(amounts),
    )


def compact_files(world: World) -> None:
    """Rewrite small files while everybody writes; twice, as a schedule would."""
    for commits in (12, 24):
        world.ledger.wait_for(commits=commits, patience_s=PATIENCE_S)
        done: Compacted = compact(world.table, min_files=3, spark=world.spark)
        for group in done.landed:
            world.ledger.note("compaction", group.committed, lambda rows: None)
        for group in done.skipped:
            print(f"  compaction left a group to others: {group.reason}")


# --- the end ------------------------------------------------------------------------------------------------


def _rows_left(summary: Mapping[str, str]) -> int:
    """The rows of the table after a commit; Iceberg's total counts those that delete files hide, too."""
    return int(summary.get("total-records", "0")) - int(summary.get("total-position-deletes", "0"))


def print_commits(world: World, began_ms: int) -> None:
    """The table's snapshots, oldest first, with who made each."""
    state = world.table.load(all_snapshots=True)
    print("\n   #      at  committed by     operation   rows added  rows in table  files")
    for number, snapshot in enumerate(state.metadata.snapshots, 1):
        said = {} if snapshot.summary is None else snapshot.summary.additional_properties
        operation = "" if snapshot.summary is None else snapshot.summary.operation.value
        by = said.get(BY, "compaction" if operation == "replace" else "")
        print(
            f"  {number:2d}  {(snapshot.timestamp_ms - began_ms) / 1000:5.1f} s  {by:15s}  {operation:10s}"
            f"  {said.get('added-records', '0'):>10s}  {_rows_left(said):>13d}"
            f"  {said.get('total-data-files', '?'):>5s}"
        )


def print_actors(ledger: Ledger) -> None:
    """Who committed how often, and what was refused."""
    refused: dict[str, int] = {}
    for refusal in ledger.refusals:
        refused[refusal.actor] = refused.get(refusal.actor, 0) + 1
    print(f"\n  {'actor':15s}  commits  conflicts (each done again from the new head)")
    for actor, (commits, _) in sorted(ledger.counts.items()):
        print(f"  {actor:15s}  {commits:7d}  {refused.get(actor, 0):9d}")
    if ledger.refusals:
        print("\n  refused, with the evidence:")
    for refusal in ledger.refusals[:5]:
        print(f"   {refusal.at_s:5.1f} s  {refusal.actor}: {refusal.rule} by {refusal.theirs}")
        print(f"            {refusal.message[:150]}")
    if len(ledger.refusals) > 5:
        print(f"   and {len(ledger.refusals) - 5} more like these")
    for failure in ledger.failures:
        print(f"  FAILED  {failure}")


def read_by_pyiceberg(world: World) -> list[Row]:
    """All rows of the table, as PyIceberg sees them."""
    table = RestCatalog("demo", uri=world.table.lake.uri).load_table(TABLE)
    columns = table.scan(selected_fields=("id", "customer", "region", "amount")).to_arrow()
    names = ("id", "customer", "region", "amount")
    return sorted(zip(*(columns[name].to_pylist() for name in names), strict=True))


def read_by_spark(world: World) -> list[Row]:
    """The same through the Iceberg jar."""
    frame = world.spark.table(f"{JAR_CATALOG}.{TABLE}").select("id", "customer", "region", "amount")
    return sorted(tuple(row) for row in frame.collect())


def audit(service: Service) -> bool:
    """The structural audit that operators have."""
    command = [sys.executable, "-m", "headgate.cli.main", "audit", TABLE, "--uri", service.uri, "--files"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout + done.stderr)
    return done.returncode == 0


def check(world: World, service: Service) -> bool:
    """Compare the table with what was acknowledged, by every reader that is there."""
    expected = sorted(world.ledger.replay().values())
    readers: dict[str, Callable[[World], list[Row]]] = {"PyIceberg": read_by_pyiceberg}
    if world.has_jar:
        readers["Spark SQL"] = read_by_spark
    good = not world.ledger.failures
    print()
    for name, read in readers.items():
        same = read(world) == expected
        good = good and same
        said = "row by row what was acknowledged" if same else "ROWS DIFFER"
        print(f"  read back by {name:10s}  {said} ({len(expected):,})")
    clean = audit(service)
    print(f"  structural audit           {'clean' if clean else 'FINDINGS'}")
    return good and clean


def open_world(service: Service, folder: Path) -> World:
    """A session and an empty table."""
    lake = Lake(service.uri)
    jar = None
    try:
        jar = str(load_iceberg_jar())
    except JarError as error:
        print(f"without the Iceberg jar the merge copies files, and Spark SQL does not read back: {error}")
    settings = {**brief_settings(folder / "spark"), "spark.scheduler.mode": "FAIR"}
    spark = build_session("headgate-demo", master="local[2]", lake=lake, jar=jar, settings=settings)
    spark.dataSource.register(DemoSource)
    table = lake.table(TABLE)
    rows = shape(spark.createDataFrame([], DemoSource({}).schema()), REGIONS[0])
    spark.range(10).repartition(
        2
    ).count()  # the first job of a session takes seconds; a race with it would be none
    create_if_missing(table, rows, TableShape(partition_by=("region",), properties=PROPERTIES))
    return World(spark, table, Ledger(), folder, jar is not None)


def run(folder: Path) -> int:
    """The whole story; returns the exit code."""
    with running_service(folder / "service") as service:
        print(f"headgate serves {service.uri} (SQLite and local disk, nothing configured)")
        print("starting Spark …", flush=True)
        world = open_world(service, folder)
        print(
            f"{TABLE}: {len(REGIONS)} streams and 2 writers of micro-batches append, customer {LEAVING} is deleted, "
            f"{CORRECTIONS} amounts are corrected, small files are compacted; all at once",
            flush=True,
        )
        world.ledger.began, began_ms = time.monotonic(), time.time_ns() // 1_000_000
        actors: dict[str, Callable[[], None]] = {
            **{f"stream {region}": partial(stream_region, world, i) for i, region in enumerate(REGIONS)},
            **{f"batch {i + 1}": partial(write_batches, world, i) for i in range(2)},
            "privacy delete": partial(forget_customer, world),
            "merge": partial(correct_amounts, world),
            "compaction": partial(compact_files, world),
        }
        together(world.ledger, actors)
        seconds = time.monotonic() - world.ledger.began
        print_commits(world, began_ms)
        print_actors(world.ledger)
        good = check(world, service)
        world.spark.stop()
    rows = len(world.ledger.replay())
    print(
        f"\n{'all good' if good else 'NOT GOOD'}: {rows:,} rows by {len(actors)} writers in {seconds:.1f} s"
    )
    return 0 if good else 1


def main() -> int:
    """Run in a folder that goes away."""
    if find_java() is None:
        print(
            "no Java was found, and Spark needs one (17 to 23); ./dev says what it could not get",
            file=sys.stderr,
        )
        return 1
    with tempfile.TemporaryDirectory(prefix="headgate-demo-") as folder:
        return run(Path(folder))


if __name__ == "__main__":
    sys.exit(main())
