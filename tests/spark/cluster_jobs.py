"""Every kind of job, one after the other, by one driver on a cluster: `python -m tests.spark.cluster_jobs <plan as JSON>`.

Prints what each job did as one JSON object; the last line is all of it. Rows that are left are the caller's to check.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from tools.spark_local import UNCOMPILED

from headgate.spark import delete_files
from headgate.spark.compaction import compact
from headgate.spark.create_table import create_if_missing
from headgate.spark.data_source import register
from headgate.spark.deletes import delete
from headgate.spark.job_session import SessionOptions, job_session
from headgate.spark.lake import Lake, LakeTable
from headgate.spark.maintain import expire, remove_orphans
from headgate.spark.merges import merge
from headgate.spark.pipeline_spec import TableShape
from headgate.spark.session import JAR_CATALOG
from headgate.spark.streams import AVAILABLE_NOW, stream
from headgate.spark.updates import update
from headgate.spark.views import create_view_job, refresh
from headgate.spark.writes import write

COLUMNS = "id BIGINT, kind STRING, amount DECIMAL(10,2), at TIMESTAMP"
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # of small data most time would go into compiling
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": _BRIEF,
    "spark.driver.extraJavaOptions": _BRIEF,
    **UNCOMPILED,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
_AT = "TIMESTAMP '2024-01-01 00:00:00' + make_interval(0, 0, 0, id % 2)"


@dataclass(frozen=True, slots=True)
class JobsPlan:
    """Where the jobs run, and on what. `road` is the road of the appends; `jars` are those of the session."""

    master: str
    uri: str
    namespace: str
    folder: str
    road: str
    version: int
    storage: dict[str, str] = field(default_factory=dict)
    iceberg_jar: str | None = None
    jars: tuple[str, ...] = ()

    def to_argument(self) -> str:
        """The plan as the command line has it."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Jobs:
    """The jobs of one driver on one table."""

    spark: SparkSession
    plan: JobsPlan
    lake: Lake

    @property
    def table(self) -> LakeTable:
        """The table that all of them change."""
        return self.lake.table((self.plan.namespace, "payments"))

    def rows(self, first: int, count: int, *, kind: str = "concat('k', id % 3)") -> DataFrame:
        """Rows with ids from the first on."""
        ids = self.spark.range(first, first + count, numPartitions=2)
        amount = "CAST(id AS DECIMAL(10,2)) AS amount"
        return ids.selectExpr("id", f"{kind} AS kind", amount, f"{_AT} AS at")

    def write(self) -> object:
        """Two appends."""
        shape = TableShape(
            partition_by=("day(at)", "bucket(2, id)"), properties={"format-version": str(self.plan.version)}
        )
        create_if_missing(self.table, self.rows(0, 1), shape)
        done = [write(self.rows(first, 30), self.table, road=self.plan.road) for first in (0, 30)]
        return sum(one.rows for one in done)

    def stream(self) -> object:
        """Two runs of a stream from files."""
        source, brought = f"{self.plan.folder}/source", 0
        for first in (100, 110):
            self.rows(first, 10).write.mode("append").parquet(source)
            query = stream(
                self.spark.readStream.schema(COLUMNS).parquet(source),
                self.table,
                checkpoint=f"{self.plan.folder}/checkpoint",
                trigger=AVAILABLE_NOW,
                road=self.plan.road,
            )
            query.awaitTermination()
            brought += int(query.lastProgress["numInputRows"] if query.lastProgress else 0)
        return brought

    def delete(self) -> object:
        """By delete files, and by new files."""
        hidden = delete(self.table, "id % 10 = 3", mode="merge-on-read", spark=self.spark)
        copied = delete(self.table, "id = 4 OR id = 115", mode="copy-on-write", spark=self.spark)
        return [hidden.deleted, copied.deleted]

    def update(self) -> object:
        """By delete files with new versions of the rows."""
        values = {"amount": "amount + 1000", "kind": "'raised'"}
        return update(self.table, values, "id IN (5, 6, 105)", mode="merge-on-read", spark=self.spark).updated

    def merge(self) -> object:
        """Some that are there, some that are not."""
        done = merge(
            self.table,
            self.rows(58, 4, kind="'merged'"),
            ["id"],
            when_matched_update="all",
            when_not_matched_insert="all",
        )
        return [done.updated, done.inserted]

    def compact(self) -> object:
        """Everything, once."""
        done = compact(self.table, rewrite_all=True, min_files=1, spark=self.spark)
        return [len(done.landed) > 0, len(done.skipped)]

    def refresh(self) -> object:
        """A view, built, then brought up to date by what changed."""
        name = (self.plan.namespace, "by_kind")
        query = "SELECT kind, count(*) AS payments, sum(amount) AS total FROM payments GROUP BY kind"
        create_view_job(self.lake, name, query, [self.table.name], spark=self.spark)
        first = refresh(self.lake, name, spark=self.spark)
        write(self.rows(200, 2, kind="'late'"), self.table, road=self.plan.road)
        delete(self.table, "id = 7", mode="merge-on-read", spark=self.spark)
        return [first.kind.value, refresh(self.lake, name, spark=self.spark).kind.value]

    def upkeep(self) -> object:
        """Old snapshots go with their files, and so does a stray file, but nothing that is in use."""
        state = self.table.load()
        stray = f"{state.data_location}/stray.parquet"
        filesystem, path = state.filesystem(stray)
        with filesystem.open_output_stream(path) as output:
            output.write(b"nobody needs it")
        # A day on from here: what the service writes behind the expiry, its checkpoint, is younger than a day then.
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        gone = expire(self.table, older_than=timedelta(0), keep=1)
        orphans = remove_orphans(self.table, older_than=timedelta(days=1), now=tomorrow)
        others = [file for file in orphans.files if file.startswith(state.data_location) and file != stray]
        return [len(gone.snapshot_ids) > 0, stray in orphans.files, others]

    def read_by_jar(self) -> object:
        """What the Iceberg jar finds in both tables at the end."""
        payments = f"{JAR_CATALOG}.{self.plan.namespace}.payments"
        found = self.spark.sql(f"SELECT id, kind, CAST(amount AS STRING) FROM {payments}").collect()
        return sorted([list(row) for row in found])

    def run(self) -> dict[str, object]:
        """All of them; what each did, by its name."""
        done: dict[str, object] = {}
        steps: list[Callable[[], object]] = [self.write, self.stream, self.delete, self.update, self.merge]
        steps += [self.compact, self.refresh, self.upkeep]
        for step in steps if self.plan.iceberg_jar is None else [*steps, self.read_by_jar]:
            done[step.__name__] = step()
            sys.stderr.write(f"{step.__name__}: {done[step.__name__]}\n")
        return done


def main() -> None:
    """Run the plan of the command line."""
    delete_files.DRIVER_ROWS_MAX = 0  # the tables are small, and the workers shall have something to do
    said = json.loads(sys.argv[1])
    plan = JobsPlan(**{**said, "jars": tuple(said["jars"])})
    lake = Lake(plan.uri, storage=plan.storage)
    conf = dict(SETTINGS)
    if plan.jars:
        conf["spark.jars"] = ",".join(plan.jars)
        # The Iceberg jar reaches S3 through Hadoop, too: it brings nothing of its own to do that with.
        conf[f"spark.sql.catalog.{JAR_CATALOG}.io-impl"] = "org.apache.iceberg.hadoop.HadoopFileIO"
    options = SessionOptions(master=plan.master, jar=plan.iceberg_jar, conf=conf)
    with job_session("headgate-cluster-jobs", lake, options) as spark:
        register(spark)
        sys.stdout.write(f"{json.dumps(Jobs(spark, plan, lake).run())}\n")


if __name__ == "__main__":
    main()
