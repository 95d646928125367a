"""MERGE: rows of a source update, delete or insert rows of a table, by one commit.

The source is put down once, because it is asked several times and must answer alike; only then is the table read, so
that what others commit meanwhile is no conflict. One join over the columns of the condition finds the pairs; then only
files with rows to change are read whole. A row of the table may be matched by one row of the source only: which of two
would win?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Unpack

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf

from headgate.core.isolation import Command
from headgate.errors import BadInput
from headgate.spark.columns import LAST_UPDATED, ROW_ID
from headgate.spark.filters import Filter, from_wire
from headgate.spark.lake import LakeTable
from headgate.spark.merge_clauses import (
    DELETE,
    SOURCE,
    SOURCE_ID,
    TARGET,
    UPDATE,
    Clauses,
    Values,
    names_of,
    read_clauses,
    target_column,
)
from headgate.spark.merge_keys import find_scope
from headgate.spark.row_changes import COPY, MERGE, Changed, Counts, Job, JobOptions, begin
from headgate.spark.scan import FILE, POSITION, Scan, ScannedFile, plan, read

_ACTION, _VERSION = "__action", "__version"
_MATCHES, _UPDATES, _DELETES = "__matches", "__updates", "__deletes"


@dataclass(frozen=True)
class _Matched:
    """What the join found: the pairs, and how many rows of each file are to be changed.

    For merge-on-read the pairs have the columns of the table after the merge, too: nothing is read twice.
    """

    pairs: DataFrame
    updates: Mapping[str, int]
    deletes: Mapping[str, int]

    def touched(self, files: Sequence[ScannedFile]) -> list[ScannedFile]:
        """The files that have rows to change."""
        return [one for one in files if self.updates.get(one.path) or self.deletes.get(one.path)]


def merge(
    table: LakeTable,
    source: DataFrame,
    on: Sequence[str] | str,
    *,
    when_matched_update: Values = None,
    when_matched_update_if: str | None = None,
    when_matched_delete: str | None = None,
    when_not_matched_insert: Values = None,
    when_not_matched_insert_if: str | None = None,
    **options: Unpack[JobOptions],
) -> Changed:
    """Merge a source into the table. SQL says `target.x` and `source.x`; `on` may be names that both have.

    A matched row is deleted where `when_matched_delete` is true ("true": always), else updated if that is asked for.
    At `serializable`, rows that somebody adds meanwhile within the range of the source's keys refuse the commit.
    """
    options.setdefault("spark", source.sparkSession)
    job = begin(Command.MERGE, table, options)
    if job.landed is not None:
        return job.nothing()

    def read_said(job: Job) -> Clauses:
        return read_clauses(
            job.spark,
            job.state,
            source,
            on,
            update=(when_matched_update, when_matched_update_if),
            delete=when_matched_delete,
            insert=(when_not_matched_insert, when_not_matched_insert_if),
        )

    read_said(job)  # what does not fit is refused before the source is asked
    # A lost block of a local checkpoint stops the job, where a cache would quietly ask a source that has moved on.
    fixed = source.withColumn(SOURCE_ID, sf.monotonically_increasing_id()).localCheckpoint(eager=True)
    job = job.renewed()  # a slow source is no reason to be overtaken: nothing of the table was read so far
    return job.carry_out(lambda job: _merge(job, fixed, read_said(job)))


def _merge(job: Job, source: DataFrame, clauses: Clauses) -> Changed:
    where = from_wire(find_scope(job.state, source, clauses.on), sql="true")
    scan = plan(job.state, row_filter=where.expression, branch=job.branch)
    matched = _match(job, scan, source, clauses)
    try:
        return _apply(job, scan, where, source, clauses, matched)
    finally:
        matched.pairs.unpersist()


def _match(job: Job, scan: Scan, source: DataFrame, clauses: Clauses) -> _Matched:
    """Join the table's scanned rows with the source; BadInput when a row is matched twice."""
    lineage = job.mode == MERGE and job.keeps_lineage
    rows = read(job.spark, scan.files, job.state, positions=True, lineage=lineage)
    columns = [
        target_column(FILE).alias(FILE),
        target_column(POSITION).alias(POSITION),
        sf.col(f"{SOURCE}.{SOURCE_ID}").alias(SOURCE_ID),
        clauses.action().alias(_ACTION),
    ]
    if job.mode == MERGE and clauses.update:
        versions = sf.struct(_versions(job, clauses, changes=sf.lit(True)))
        columns.append(sf.when(clauses.action() == UPDATE, versions).alias(_VERSION))
    # What is asked for a second time comes out alike: the files do not change, and the source was put down.
    pairs = _join(rows, source, clauses, how="inner").select(columns).persist()
    try:
        found = _count(pairs)
        if not clauses.deletes_every_match and any(row[_MATCHES] > 1 for row in found):
            raise _matched_twice(job, scan, source, clauses)
    except BaseException:
        pairs.unpersist()
        raise
    return _Matched(
        pairs,
        {row[FILE]: row[_UPDATES] for row in found if row[_UPDATES]},
        {row[FILE]: row[_DELETES] for row in found if row[_DELETES]},
    )


def _count(pairs: DataFrame) -> list[Row]:
    """For each file, how many of its rows are updated and deleted, and how many pairs a row is in at most."""
    by_row = pairs.groupBy(FILE, POSITION).agg(
        sf.count("*").alias(_MATCHES),
        sf.max(sf.when(sf.col(_ACTION) == UPDATE, 1).otherwise(0)).alias(_UPDATES),
        sf.max(sf.when(sf.col(_ACTION) == DELETE, 1).otherwise(0)).alias(_DELETES),
    )
    by_file = by_row.groupBy(FILE).agg(
        sf.max(_MATCHES).alias(_MATCHES), sf.sum(_UPDATES).alias(_UPDATES), sf.sum(_DELETES).alias(_DELETES)
    )
    return by_file.collect()


def _apply(
    job: Job, scan: Scan, where: Filter, source: DataFrame, clauses: Clauses, matched: _Matched
) -> Changed:
    touched = matched.touched(scan.files)
    updated, deleted = sum(matched.updates.values()), sum(matched.deletes.values())
    new = _new_rows(job, source, clauses, matched)
    if not touched and new is None:
        return job.nothing()
    if job.mode == COPY:
        kept = [one for one in touched if not _goes_wholly(one, matched)]
        old = _rewritten(job, kept, source, clauses) if kept else None
        counts = Counts(updated, deleted, _rows_left(kept, old, matched) if new is not None else None)
        return job.replace(scan, where, remove=touched, rows=_union(old, new), counts=counts)
    old = matched.pairs.where(sf.col(_ACTION) == UPDATE).select(f"{_VERSION}.*") if updated else None
    gone = matched.pairs.where(sf.col(_ACTION).isNotNull()).select(FILE, POSITION) if touched else None
    counts = Counts(updated, deleted, updated)
    return job.add_delta(scan, where, positions=gone, rows=_union(old, new), counts=counts)


def _rows_left(files: Sequence[ScannedFile], rows: DataFrame | None, matched: _Matched) -> int:
    """How many rows of these files stay.

    They are counted where that cannot be told: delete files for other data too took some, or two may name the same row.
    """
    if rows is not None and any(one.deletes != one.own_deletes[:1] for one in files):
        return rows.count()
    return sum(one.live_rows - matched.deletes.get(one.path, 0) for one in files)


def _rewritten(job: Job, files: Sequence[ScannedFile], source: DataFrame, clauses: Clauses) -> DataFrame:
    """All rows of the files that stay, changed or not."""
    rows = read(job.spark, files, job.state, lineage=job.keeps_lineage)
    joined = _join(rows, source, clauses, how="left")
    is_matched = sf.col(f"{SOURCE}.{SOURCE_ID}").isNotNull()
    marked = joined.withColumn(_ACTION, sf.when(is_matched, clauses.action()))
    left = marked.where(sf.col(_ACTION).isNull() | (sf.col(_ACTION) != DELETE))
    return left.select(_versions(job, clauses, changes=sf.coalesce(sf.col(_ACTION) == UPDATE, sf.lit(False))))


def _versions(job: Job, clauses: Clauses, *, changes: Column) -> list[Column]:
    """The columns of rows after the merge; those that it changes lose what says when they were changed last."""
    columns = []
    for name in names_of(job.state):
        old = target_column(name)
        new = clauses.update.get(name)
        columns.append((old if new is None else sf.when(changes, new).otherwise(old)).alias(name))
    if job.keeps_lineage:
        last = sf.when(changes, sf.lit(None)).otherwise(target_column(LAST_UPDATED))
        columns += [target_column(ROW_ID).alias(ROW_ID), last.cast("bigint").alias(LAST_UPDATED)]
    return columns


def _new_rows(job: Job, source: DataFrame, clauses: Clauses, matched: _Matched) -> DataFrame | None:
    """Rows of the source that match nothing, as rows of the table. Row ids are not theirs to bring."""
    if clauses.insert is None:
        return None
    left = source.join(matched.pairs.select(SOURCE_ID), on=SOURCE_ID, how="left_anti").alias(SOURCE)
    if clauses.insert_if is not None:
        left = left.where(clauses.insert_if)
    columns = [value.alias(name) for name, value in clauses.insert.items()]
    columns += [sf.lit(None).cast("bigint").alias(name) for name in job.lineage]
    return left.select(columns)


def _join(rows: DataFrame, source: DataFrame, clauses: Clauses, *, how: str) -> DataFrame:
    return rows.alias(TARGET).join(source.alias(SOURCE), on=sf.expr(clauses.on), how=how)


def _union(*parts: DataFrame | None) -> DataFrame | None:
    found = [part for part in parts if part is not None]
    return (
        reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), found)
        if found
        else None
    )


def _goes_wholly(scanned: ScannedFile, matched: _Matched) -> bool:
    """Whether every row of the file is deleted; not known where some were deleted before."""
    return not scanned.deletes and matched.deletes.get(scanned.path, 0) == scanned.file.record_count


def _matched_twice(job: Job, scan: Scan, source: DataFrame, clauses: Clauses) -> BadInput:
    """The refusal, with a row that shows why."""
    joined = _join(read(job.spark, scan.files, job.state, positions=True), source, clauses, how="inner")
    shown = [target_column(name).alias(name) for name in names_of(job.state)]
    places = [target_column(name) for name in (FILE, POSITION)]
    firsts = [sf.first(column).alias(name) for column, name in zip(shown, names_of(job.state), strict=True)]
    row = (
        joined.groupBy(*places)
        .agg(sf.count("*").alias(_MATCHES), *firsts)
        .where(sf.col(_MATCHES) > 1)
        .first()
    )
    text = "" if row is None else ", ".join(f"{name}={row[name]!r}" for name in names_of(job.state))
    times = "several" if row is None else row[_MATCHES]
    return BadInput(
        f"source: {times} of its rows match one row of the table ({text[:300]}); "
        f"leave one for each, as in source.dropDuplicates([…]), or say more in on={clauses.on[:200]!r}",
        field="source",
    )
