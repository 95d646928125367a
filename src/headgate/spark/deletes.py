"""DELETE: rows for which a condition is true go; where it is false or null they stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from pyiceberg.expressions import BooleanExpression

from headgate.core.isolation import Command
from headgate.spark.filters import Filter, read_filter
from headgate.spark.lake import LakeTable
from headgate.spark.row_changes import COPY, Changed, Counts, Job, JobOptions, begin, count_by_file
from headgate.spark.scan import FILE, POSITION, Scan, ScannedFile, plan, read


def delete(
    table: LakeTable, filter: str | BooleanExpression | None, **options: Unpack[JobOptions]
) -> Changed:
    """Delete the rows that satisfy a condition (SQL, or an expression of PyIceberg; None: all rows), by one commit.

    Files that go as a whole are not read. At `serializable`, rows that somebody adds to the condition meanwhile
    refuse the commit with the evidence; at `snapshot` they stay.
    """
    job = begin(Command.DELETE, table, options)
    if job.landed is not None:
        return job.nothing()
    return job.carry_out(lambda job: _delete(job, filter))


def _delete(job: Job, filter: str | BooleanExpression | None) -> Changed:
    where = read_filter(job.spark, filter, job.state)
    scan = plan(job.state, row_filter=where.expression, branch=job.branch)
    if not scan.files:
        return job.nothing()
    whole = [one for one in scan.files if where.is_exact and scan.matches_wholly(one)]
    if len(whole) == len(scan.files):
        rows = sum(one.live_rows for one in whole)
        return job.replace(scan, where, remove=whole, rows=None, counts=Counts(deleted=rows))
    return _copy(job, scan, where, whole) if job.mode == COPY else _hide(job, scan, where)


def _copy(job: Job, scan: Scan, where: Filter, whole: Sequence[ScannedFile]) -> Changed:
    """Write the files with such rows anew without them; those of which all rows go are not even read."""
    gone = {one.path for one in whole}
    others = [one for one in scan.files if one.path not in gone]
    found = count_by_file(read(job.spark, others, job.state, positions=True).where(where.keep()).select(FILE))
    touched = [one for one in others if one.path in found]
    if not touched and not whole:
        return job.nothing()
    kept = [one for one in touched if one.deletes or found[one.path] < one.file.record_count]
    rows = None
    if kept:
        rows = read(job.spark, kept, job.state, lineage=job.keeps_lineage).where(~where.holds())
    deleted = sum(found.values()) + sum(one.live_rows for one in whole)
    return job.replace(scan, where, remove=[*whole, *touched], rows=rows, counts=Counts(deleted=deleted))


def _hide(job: Job, scan: Scan, where: Filter) -> Changed:
    """Name such rows in delete files."""
    rows = read(job.spark, scan.files, job.state, positions=True).where(where.keep())
    return job.add_delta(scan, where, positions=rows.select(FILE, POSITION), rows=None)
