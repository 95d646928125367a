"""Our Spark jobs beside the Iceberg jar: the same operation on the same rows, in one session and on one service.

    ./dev bench spark [--rows 5000000] [--layouts unpartitioned,day] [--operations append,delete,merge,compact]
                      [--modes copy-on-write,merge-on-read] [--rounds 3] [--format-version 2] [--file FILE]

For each operation both have a table with the same files; it is put back to that snapshot before every round. A round is
one run of each, in turns who comes first; the first rounds warm the JVM up and are not counted. Wall time is the
median of the rounds, and the ratio that of the medians; CPU time is that of the JVM with its Python workers and of this
process. After every round both tables must hold the same rows, by the jar's count and sums; live files and their bytes
are printed, since less output would be less work.

`jobs` is the part of the wall time in which Spark ran a job; the rest is the driver's: planning, listing, footers, commit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from tools.iceberg_jar import load_iceberg_jar
from tools.service_process import Service, running_service
from tools.spark_local import quiet_settings

from bench.common import NAMESPACE, RESULTS, Json, create_namespace, says, write_result
from bench.ground import fresh_folder
from bench.spark_meter import Meter, Taken
from headgate.spark import Lake, LakeTable, build_session, compact, delete, merge, write
from headgate.spark.session import JAR_CATALOG

OURS, JAR = "ours", "jar"
SIDES = (OURS, JAR)
APPEND, DELETE, MERGE, COMPACT = OPERATIONS = ("append", "delete", "merge", "compact")
GOALS = {APPEND: 1.05, DELETE: 1.2, MERGE: 1.2, COMPACT: 1.2}
LAYOUTS = {"unpartitioned": "", "day": "PARTITIONED BY (days(at))"}
MODES = COPY, HIDE = ("copy-on-write", "merge-on-read")
_DAYS, _CUSTOMERS, _SMALL_FILES = 30, 50_000, 16
_GONE = f"customer < {_CUSTOMERS // 100}"  # about one row of a hundred, in every file
_MERGED_PART = 50  # of the rows, one in so many is merged: half of them new
_COMPACT_TARGET_BYTES = 64 * 2**20
_COLUMNS = """id BIGINT, customer BIGINT, kind STRING, amount DECIMAL(12,2), price DOUBLE, quantity INT,
              at TIMESTAMP, note STRING"""


@dataclass(frozen=True, slots=True)
class Case:
    """One operation on one layout; the mode matters to delete and merge only."""

    layout: str
    operation: str
    mode: str | None

    @property
    def name(self) -> str:
        """What it is called in the figures."""
        return " ".join(part for part in (self.layout, self.operation, self.mode) if part)

    def table(self, side: str) -> str:
        """The table of a side."""
        return "_".join((self.layout, self.operation, (self.mode or "").replace("-", "_"), side))


@dataclass(frozen=True, slots=True)
class Bench:
    """The session, the service, and the rows that are written."""

    spark: SparkSession
    lake: Lake
    meter: Meter
    folder: Path
    rows: int
    version: int

    def name(self, table: str) -> str:
        """A table in the jar's words."""
        return f"{JAR_CATALOG}.{NAMESPACE}.{table}"

    def table(self, table: str) -> LakeTable:
        """A table in ours."""
        return self.lake.table((NAMESPACE, table))

    def source(self) -> DataFrame:
        """The rows to append, read from Parquet files that both read alike."""
        return self.spark.read.parquet(str(self.folder / "source"))

    def changes(self) -> DataFrame:
        """The rows to merge: half have ids of the table, all over it."""
        return self.spark.read.parquet(str(self.folder / "changes"))

    def prepare(self) -> None:
        """Write the sources, once."""
        self.made(0, self.rows).write.parquet(str(self.folder / "source"))
        step, count = _MERGED_PART * 2, self.rows // _MERGED_PART // 2
        known = self.made(0, self.rows).where(f"id % {step} = 7")
        fresh = self.made(self.rows, self.rows + count)
        known.union(fresh).coalesce(2).write.parquet(str(self.folder / "changes"))

    def made(self, start: int, end: int) -> DataFrame:
        """Rows that look like payments; the same for the same ids. Days come in order, as they do in life."""
        day = f"CAST(id * {_DAYS} DIV {max(end, 1)} AS INT)"
        return self.spark.range(start, end, 1, 8).selectExpr(
            "id",
            f"pmod(hash(id), {_CUSTOMERS}) AS customer",
            "concat('kind-', pmod(hash(id, 1), 20)) AS kind",
            "CAST(pmod(hash(id, 2), 1000000) / 100 AS DECIMAL(12,2)) AS amount",
            "pmod(hash(id, 3), 100000) / 7.0D AS price",
            "CAST(pmod(hash(id, 4), 100) AS INT) AS quantity",
            f"timestamp_seconds(1704067200 + ({day}) * 86400 + pmod(hash(id, 5), 86400)) AS at",
            "substr(sha1(CAST(id AS STRING)), 1, 16) AS note",
        )

    def create(self, table: str, case: Case) -> None:
        """An empty table."""
        said = {
            "format-version": str(self.version),
            "write.delete.mode": case.mode or COPY,
            "write.merge.mode": case.mode or COPY,
        }
        if case.operation == COMPACT:
            said["write.target-file-size-bytes"] = str(_COMPACT_TARGET_BYTES)
            said["write.distribution-mode"] = (
                "none"  # every task writes a file of each day: that makes small ones
            )
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in said.items())
        self.spark.sql(
            f"CREATE TABLE {self.name(table)} ({_COLUMNS}) USING iceberg {LAYOUTS[case.layout]} "
            f"TBLPROPERTIES ({properties})"
        )

    def fill(self, table: str, case: Case) -> None:
        """The rows that an operation begins with: few files, or many small ones for a compaction."""
        if case.operation == APPEND:
            return
        rows = self.source()
        if case.operation == COMPACT:
            rows = rows.repartition(_SMALL_FILES)
        write(rows, self.table(table))


def run_ours(bench: Bench, case: Case, table: LakeTable) -> None:
    """The operation by our jobs."""
    match case.operation:
        case "append":
            write(bench.source(), table)
        case "delete":
            delete(table, _GONE, spark=bench.spark)
        case "merge":
            merge(table, bench.changes(), on=["id"], when_matched_update="all", when_not_matched_insert="all")
        case _:
            compact(table, spark=bench.spark)


def run_jar(bench: Bench, case: Case, table: str) -> None:
    """The operation by the Iceberg jar, in Spark's SQL."""
    name, spark = bench.name(table), bench.spark
    match case.operation:
        case "append":
            bench.source().writeTo(name).append()
        case "delete":
            spark.sql(f"DELETE FROM {name} WHERE {_GONE}")
        case "merge":
            bench.changes().createOrReplaceTempView("changes")
            spark.sql(
                f"MERGE INTO {name} target USING changes source ON target.id = source.id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        case _:
            spark.sql(f"CALL {JAR_CATALOG}.system.rewrite_data_files(table => '{NAMESPACE}.{table}')")


def run_case(bench: Bench, case: Case, *, warm_ups: int, rounds: int) -> Json:
    """All rounds of one case, with its figures."""
    bases: dict[str, int | None] = {}
    for side in SIDES:
        bench.create(case.table(side), case)
        bench.fill(case.table(side), case)
        bases[side] = bench.table(case.table(side)).load().snapshot_id()
    taken: dict[str, list[Taken]] = {side: [] for side in SIDES}
    output: dict[str, Json] = {}
    for number in range(warm_ups + rounds):
        for side in SIDES if number % 2 == 0 else reversed(SIDES):
            once = bench.meter.measure(_operation(bench, case, side))
            if number >= warm_ups:
                taken[side].append(once)
        output = {side: describe_output(bench, case.table(side)) for side in SIDES}
        if output[OURS]["rows"] != output[JAR]["rows"]:
            raise RuntimeError(f"{case.name}: the tables differ: {output}")
        for side in SIDES:
            put_back(bench, case.table(side), bases[side])
    for side in SIDES:
        bench.spark.sql(f"DROP TABLE {bench.name(case.table(side))} PURGE")
    return judge(case, taken, output)


def _operation(bench: Bench, case: Case, side: str) -> Callable[[], None]:
    table = case.table(side)
    if side == OURS:
        return lambda: run_ours(bench, case, bench.table(table))
    return lambda: run_jar(bench, case, table)


def put_back(bench: Bench, table: str, base: int | None) -> None:
    """The table as it was before the operation."""
    if base is None:
        bench.spark.sql(f"DELETE FROM {bench.name(table)}")  # by whole files: nothing is read
        return
    bench.spark.sql(
        f"CALL {JAR_CATALOG}.system.set_current_snapshot(table => '{NAMESPACE}.{table}', snapshot_id => {base})"
    )


def describe_output(bench: Bench, table: str) -> Json:
    """What a table holds: its rows by count and sums, its live files and their bytes."""
    name = bench.name(table)
    columns = "count(*), sum(id), sum(customer), sum(amount), sum(quantity), sum(crc32(note))"
    rows = bench.spark.sql(f"SELECT {columns} FROM {name}").first()
    files = bench.spark.sql(
        f"SELECT content > 0, count(*), sum(file_size_in_bytes) FROM {name}.files GROUP BY 1"
    ).collect()
    found: Json = {"rows": [] if rows is None else [str(value) for value in rows]}
    for is_delete, count, size in files:
        kind = "delete" if is_delete else "data"
        found |= {f"{kind}_files": count, f"{kind}_bytes": size}
    return found


def judge(case: Case, taken: dict[str, list[Taken]], output: dict[str, Json]) -> Json:
    """The figures of one case, printed."""
    found: Json = {"goal": GOALS[case.operation]}
    for side in SIDES:
        found[side] = {
            "wall_s": statistics.median(one.wall_s for one in taken[side]),
            "cpu_s": statistics.median(one.cpu_s for one in taken[side]),
            "jobs_s": statistics.median(one.jobs_s for one in taken[side]),
            "rounds_wall_s": [round(one.wall_s, 3) for one in taken[side]],
            "stages": [stage.described() for stage in taken[side][-1].stages],
            "output": output[side],
        }
    found["ratio"] = found[OURS]["wall_s"] / found[JAR]["wall_s"]
    found["cpu_ratio"] = found[OURS]["cpu_s"] / found[JAR]["cpu_s"]
    found["reached"] = found["ratio"] <= found["goal"]
    print(
        f"{case.name:34s} ours {_figures(found[OURS])}   jar {_figures(found[JAR])}   "
        f"{found['ratio']:5.2f} x (CPU {found['cpu_ratio']:.2f} x), goal {found['goal']} x: {says(found['reached'])}",
        flush=True,
    )
    return found


def _figures(side: Json) -> str:
    output = side["output"]
    text = (
        f"{side['wall_s']:6.2f} s, jobs {side['jobs_s']:6.2f} s, CPU {side['cpu_s']:6.2f} s, "
        f"{output['data_files']:3d} files {output['data_bytes'] / 2**20:6.1f} MiB"
    )
    if "delete_files" in output:
        text += f" + {output['delete_files']} of deletes {output['delete_bytes'] / 2**10:.0f} KiB"
    return text


def show_stages(found: Json) -> None:
    """Where the last round of each side spent its time."""
    for side in SIDES:
        print(f"  {side}: wall {found[side]['rounds_wall_s'][-1]} s")
        for line in found[side]["stages"]:
            print(f"    {line}")


def cases_of(asked: argparse.Namespace) -> list[Case]:
    """What was asked for; an append and a compaction have no mode."""
    found = []
    for layout in asked.layouts:
        for operation in asked.operations:
            modes = asked.modes if operation in (DELETE, MERGE) else [None]
            found += [Case(layout, operation, mode) for mode in modes]
    return found


def run(asked: argparse.Namespace, service: Service, folder: Path) -> None:
    """All cases, each kept when it is done."""
    lake = Lake(service.uri)
    create_namespace(service.port)
    settings = {
        **quiet_settings(folder / "spark"),
        "spark.driver.memory": asked.memory,
        # Both sides are left to Spark's own planning, which brings the number down to what the rows are worth.
        "spark.sql.shuffle.partitions": "200",
    }
    spark = build_session(
        "bench", master=asked.master, lake=lake, jar=str(load_iceberg_jar()), settings=settings
    )
    try:
        bench = Bench(spark, lake, Meter(spark), folder, asked.rows, asked.format_version)
        bench.prepare()
        for case in cases_of(asked):
            found = run_case(bench, case, warm_ups=asked.warm_ups, rounds=asked.rounds)
            keep(asked, case, found)
            if asked.stages:
                show_stages(found)
    finally:
        spark.stop()


def keep(asked: argparse.Namespace, case: Case, found: Json) -> None:
    """Put the figures of one case beside those of other cases with as many rows, which stay if they were kept before."""
    kept: Json = {"rows": asked.rows, "format_version": asked.format_version, "cases": {}}
    file = asked.file or RESULTS / "spark.json"
    if file.exists():
        before = json.loads(file.read_text())
        if all(before.get(name) == kept[name] for name in ("rows", "format_version")):
            kept["cases"] = before["cases"]
    kept["cases"][case.name] = found
    write_result("spark", kept, file=file)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, keep the figures."""
    parser = argparse.ArgumentParser(
        prog="bench spark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of eight columns")
    parser.add_argument("--layouts", type=_among(LAYOUTS), default=tuple(LAYOUTS))
    parser.add_argument("--operations", type=_among(OPERATIONS), default=OPERATIONS)
    parser.add_argument("--modes", type=_among(MODES), default=MODES, help="of delete and merge")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    parser.add_argument("--warm-ups", type=int, default=2, help="rounds before them")
    parser.add_argument("--format-version", type=int, choices=(2, 3), default=2, help="of the tables")
    parser.add_argument("--master", default="local[2]", help="where Spark runs")
    parser.add_argument("--memory", default="4g", help="of the driver")
    parser.add_argument(
        "--stages", action="store_true", help="print where the last round of each spent its time"
    )
    parser.add_argument("--file", type=Path, help="where the figures go, instead of bench/results/spark.json")
    asked = parser.parse_args(words)
    with fresh_folder() as folder, running_service(folder) as service:
        run(asked, service, folder)
    return 0


def _among(known: Sequence[str] | dict[str, str]) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        parts = tuple(text.split(","))
        if unknown := sorted(set(parts) - set(known)):
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}, got {', '.join(unknown)}")
        return parts

    return read


if __name__ == "__main__":
    sys.exit(main())
