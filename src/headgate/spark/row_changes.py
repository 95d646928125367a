"""What DELETE, UPDATE and MERGE share: one load, one run, one commit, copy-on-write or merge-on-read.

    copy-on-write   files that hold changed rows are written anew without or with them, and replaced
    merge-on-read   delete files hide the changed rows where they are; new versions are added beside

Everything is judged from the snapshot that was scanned and by the filter that was scanned with. Rows keep their ids in
format version 3: a copied row also keeps when it was last changed, a changed row has none there and so gets the commit's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as spark_types

from headgate.client import Committed
from headgate.client.changes import FROM_TABLE, File
from headgate.client.results import MAIN
from headgate.core.isolation import Command
from headgate.core.write_modes import COPY as COPY
from headgate.core.write_modes import MERGE as MERGE
from headgate.core.write_modes import mode_of
from headgate.errors import BadInput, CommitRefused, InvariantBroken, RequirementFailed
from headgate.spark.columns import LAST_UPDATED, ROW_ID
from headgate.spark.delete_files import Deletes, write_deletes
from headgate.spark.filters import Filter
from headgate.spark.lake import LakeTable, TableState
from headgate.spark.landing import discard_quietly, land
from headgate.spark.repeats import find_landed
from headgate.spark.runs import Run, new_run
from headgate.spark.scan import FILE, Scan, ScannedFile
from headgate.spark.session import SETTINGS
from headgate.spark.writes import write_run

_LINEAGE_VERSION = 3
_NUMBERS = (
    spark_types.ByteType,
    spark_types.ShortType,
    spark_types.IntegerType,
    spark_types.LongType,
    spark_types.FloatType,
    spark_types.DoubleType,
    spark_types.DecimalType,
)
_TIMES = (spark_types.DateType, spark_types.TimestampType, spark_types.TimestampNTZType)


class JobOptions(TypedDict, total=False):
    """What every command may say: how, where, how strictly, under which key, in which session."""

    mode: str | None  # copy-on-write or merge-on-read; None is what the table says
    isolation: str | None
    branch: str
    key: str | None
    summary: Mapping[str, str] | None
    spark: SparkSession | None
    attempts: int  # how often the work is done at most while others are in its way; 1 by default


@dataclass(frozen=True, slots=True)
class Changed:
    """What a command has done. `committed` is None when no row was in question, and nothing was committed."""

    committed: Committed | None
    run: Run
    updated: int = 0
    deleted: int = 0
    inserted: int = 0
    added: tuple[File, ...] = ()  # data and delete files
    removed: tuple[str, ...] = ()  # data files
    attempts: int = 1  # how often the work was done


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows a command is about; those that it writes beyond `old` ones are new."""

    updated: int = 0
    deleted: int = 0
    old: int | None = None  # rows that were there before and are written; None: nothing is inserted


@dataclass(frozen=True)
class Job:
    """One command on one table, from its load to its commit."""

    command: Command
    spark: SparkSession
    table: LakeTable
    state: TableState
    run: Run
    mode: str
    branch: str
    isolation: str | None
    summary: Mapping[str, str] | None
    landed: Committed | None = None  # by an earlier run under the same key
    attempts: int = 1

    @property
    def keeps_lineage(self) -> bool:
        """Whether rows of this table have ids."""
        return self.state.format_version >= _LINEAGE_VERSION

    @property
    def lineage(self) -> tuple[str, ...]:
        """The columns of row ids that written files keep."""
        return (ROW_ID, LAST_UPDATED) if self.keeps_lineage else ()

    def renewed(self) -> Job:
        """The same job on the table as it is now, for one that has read nothing of it yet."""
        return replace(self, state=self.table.load())

    def carry_out(self, once: Callable[[Job], Changed]) -> Changed:
        """Do the work; where others were in its way, do it anew on what they made of the table."""
        job = self
        for attempt in range(1, self.attempts + 1):
            try:
                return replace(once(job), attempts=attempt)
            except CommitRefused as error:  # and has removed its files
                if attempt == self.attempts or isinstance(error, RequirementFailed):
                    raise
            job = replace(job, state=job.table.load(), run=new_run())
        raise InvariantBroken("invariant broken: the last attempt ends the work")

    def nothing(self) -> Changed:
        """The end of a job that changes no row, now or because it did all before."""
        return Changed(self.landed, self.run)

    def replace(
        self,
        scan: Scan,
        where: Filter,
        *,
        remove: Sequence[ScannedFile],
        rows: DataFrame | None,
        counts: Counts,
    ) -> Changed:
        """Copy-on-write: these rows in new files take the place of these files."""
        added = () if rows is None else write_run(rows, self.state, self.run, extra=self.lineage)
        removed = tuple(scanned.path for scanned in remove)
        if not added and not removed:
            return self.nothing()
        # A vector goes with its data file; position delete files for it alone would stay until all data is younger.
        deletes = tuple(
            {"file-path": old.file_path} for scanned in remove for old in scanned.own_deletes if not old.is_dv
        )

        def commit(key: str) -> Committed:
            return self.table.client.overwrite(
                add=added,
                remove=removed,
                remove_deletes=deletes,
                base_snapshot_id=scan.snapshot_id,
                conflict_filter=where.conflict_filter,
                isolation=self.isolation,
                command=self.command,
                branch=self.branch,
                summary=self.summary,
                key=key,
            )

        return self._landed(commit, added, removed, counts, written=added)

    def add_delta(
        self,
        scan: Scan,
        where: Filter,
        *,
        positions: DataFrame | None,
        rows: DataFrame | None,
        counts: Counts | None = None,
    ) -> Changed:
        """Merge-on-read: rows at these positions are gone, and these rows are new; without the first no second.

        Without counts, all that is gone was deleted or updated, as the command says.
        """
        deletes = Deletes()
        if positions is not None:
            try:
                deletes = write_deletes(positions, scan, self.run)
            except BaseException:
                discard_quietly(self.table, self.run, (), self.state)
                raise
            if not deletes.add:
                return self.nothing()
        data = () if rows is None else write_run(rows, self.state, self.run, extra=self.lineage)
        if not data and not deletes.add:
            return self.nothing()

        def commit(key: str) -> Committed:
            return self.table.client.row_delta(
                add_data=data,
                add_deletes=deletes.add,
                remove_deletes=deletes.remove,
                referenced=deletes.referenced,
                base_snapshot_id=scan.snapshot_id,
                conflict_filter=where.conflict_filter,
                isolation=self.isolation,
                command=self.command,
                branch=self.branch,
                summary=self.summary,
                key=key,
            )

        if counts is None:
            updates = self.command is Command.UPDATE
            counts = Counts(updated=deletes.rows) if updates else Counts(deleted=deletes.rows)
        return self._landed(commit, (*data, *deletes.add), (), counts, written=data)

    def _landed(
        self,
        commit: Callable[[str], Committed],
        added: tuple[File, ...],
        removed: tuple[str, ...],
        counts: Counts,
        *,
        written: Sequence[File],
    ) -> Changed:
        committed = land(self.table, self.run, added, commit, state=self.state)
        rows = sum(int(file["record-count"]) for file in written)
        inserted = 0 if counts.old is None else rows - counts.old
        return Changed(committed, self.run, counts.updated, counts.deleted, inserted, added, removed)


def begin(command: Command, table: LakeTable, options: JobOptions) -> Job:
    """Load the table once: what is scanned, written and judged is all about this state."""
    key, attempts = options.get("key"), options.get("attempts", 1)
    if attempts < 1:
        raise BadInput(f"attempts: expected a number from 1 on, got {attempts}", field="attempts")
    if attempts > 1 and key is not None:
        raise BadInput("attempts: a key stands for one attempt; leave one of the two out", field="attempts")
    run, state = new_run(key), table.load()
    return Job(
        command=command,
        spark=session_of(options.get("spark")),
        table=table,
        state=state,
        run=run,
        mode=mode_of(state.properties, state.format_version, command, options.get("mode")),
        branch=options.get("branch", MAIN),
        isolation=options.get("isolation", FROM_TABLE),
        summary=options.get("summary"),
        landed=None if key is None else find_landed(table, key),
        attempts=attempts,
    )


def session_of(given: SparkSession | None) -> SparkSession:
    """The session of a job: the given one, or the one of this thread."""
    found = given or SparkSession.getActiveSession()
    if found is None:
        raise BadInput("spark: there is no session yet; make one with build_session(…)", field="spark")
    for name, value in SETTINGS.items():
        if str(found.conf.get(name, None)).lower() != value.lower():
            raise BadInput(
                f"spark: the session has {name}={found.conf.get(name, None)}, expected {value}; make it with "
                "build_session(…), or bring it there with prepare_session(…)",
                field=name,
            )
    return found


def count_by_file(rows: DataFrame) -> dict[str, int]:
    """How many of the rows each data file holds; rows have `_file`."""
    return {row[FILE]: row["count"] for row in rows.groupBy(FILE).count().collect()}


def assign(
    value: Column, have: spark_types.DataType, want: spark_types.DataType, *, column: str, clause: str
) -> Column:
    """A value as SQL stores it in a column: numbers and times become its kind, and too large a one stops the job."""
    if have.simpleString() == want.simpleString():
        return value
    numbers = isinstance(have, _NUMBERS) and isinstance(want, _NUMBERS)
    times = isinstance(have, _TIMES) and isinstance(want, _TIMES)
    text = isinstance(want, spark_types.StringType) and isinstance(have, spark_types.AtomicType)
    if numbers or times or text or isinstance(have, spark_types.NullType):
        return value.cast(want)
    raise BadInput(
        f"{clause} {column}: the value is {have.simpleString()}, the column {want.simpleString()}; "
        f"cast it, as in CAST(… AS {want.simpleString().upper()})",
        field=column,
    )
