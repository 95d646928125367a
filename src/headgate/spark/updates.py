"""UPDATE: rows for which a condition is true get new values; the others stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from pyiceberg.expressions import BooleanExpression
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headgate.core.isolation import Command
from headgate.errors import BadInput
from headgate.spark.columns import LAST_UPDATED, ROW_ID
from headgate.spark.expression_sql import quote_name
from headgate.spark.filters import Filter, empty_rows, first_line, read_filter
from headgate.spark.lake import LakeTable, TableState
from headgate.spark.row_changes import COPY, Changed, Counts, Job, JobOptions, assign, begin, count_by_file
from headgate.spark.scan import FILE, POSITION, Scan, plan, read

_HOLDS = "__holds"


def update(
    table: LakeTable,
    set: Mapping[str, str],
    where: str | BooleanExpression | None = None,
    **options: Unpack[JobOptions],
) -> Changed:
    """Set columns to values (SQL over the row as it was) where a condition is true, by one commit."""
    job = begin(Command.UPDATE, table, options)
    if job.landed is not None:
        return job.nothing()
    return job.carry_out(lambda job: _update(job, set, where))


def _update(job: Job, set: Mapping[str, str], where: str | BooleanExpression | None) -> Changed:
    condition = read_filter(job.spark, where, job.state, name="where")
    values = _values(job, set)
    scan = plan(job.state, row_filter=condition.expression, branch=job.branch)
    if not scan.files:
        return job.nothing()
    if job.mode == COPY:
        return _copy(job, scan, condition, values)
    return _move(job, scan, condition, values)


def _copy(job: Job, scan: Scan, where: Filter, values: Mapping[str, Column]) -> Changed:
    """Write the files with such rows anew."""
    found = count_by_file(
        read(job.spark, scan.files, job.state, positions=True).where(where.keep()).select(FILE)
    )
    touched = [one for one in scan.files if one.path in found]
    if not touched:
        return job.nothing()
    rows = read(job.spark, touched, job.state, lineage=job.keeps_lineage).withColumn(_HOLDS, where.holds())
    columns = [
        sf.when(sf.col(_HOLDS), values[name]).otherwise(sf.col(quote_name(name))).alias(name)
        if name in values
        else sf.col(quote_name(name))
        for name in _names(job.state)
    ]
    if job.keeps_lineage:
        last = sf.when(sf.col(_HOLDS), sf.lit(None)).otherwise(sf.col(LAST_UPDATED))
        columns += [sf.col(ROW_ID), last.cast("bigint").alias(LAST_UPDATED)]
    counts = Counts(updated=sum(found.values()))
    return job.replace(scan, where, remove=touched, rows=rows.select(columns), counts=counts)


def _move(job: Job, scan: Scan, where: Filter, values: Mapping[str, Column]) -> Changed:
    """Name such rows in delete files, and add their new versions."""
    rows = read(job.spark, scan.files, job.state, positions=True, lineage=job.keeps_lineage)
    found = rows.where(where.keep())
    # Two kinds of files are made of these rows. A condition that may answer differently is asked once and its rows
    # put down: a lost block stops the job then, where a cache would ask again.
    found = found.persist() if where.is_stable else found.localCheckpoint(eager=True)
    try:
        rows = _new_versions(job, found, values)
        return job.add_delta(scan, where, positions=found.select(FILE, POSITION), rows=rows)
    finally:
        found.unpersist()


def _new_versions(job: Job, rows: DataFrame, values: Mapping[str, Column]) -> DataFrame:
    columns = [
        values[name].alias(name) if name in values else sf.col(quote_name(name)) for name in _names(job.state)
    ]
    if job.keeps_lineage:
        columns += [sf.col(ROW_ID), sf.lit(None).cast("bigint").alias(LAST_UPDATED)]
    return rows.select(columns)


def _values(job: Job, given: Mapping[str, str]) -> dict[str, Column]:
    """The new values as columns of the table's types; BadInput names the column at fault."""
    if not given:
        raise BadInput("set: expected columns and their new values, got none", field="set")
    names = _names(job.state)
    empty = empty_rows(job.spark, job.state)
    found: dict[str, Column] = {}
    for said, sql in given.items():
        alike = [name for name in names if name == said] or [n for n in names if n.lower() == said.lower()]
        if len(alike) != 1:
            raise BadInput(f"set: the table has no column {said}", field=said)
        if alike[0] in found:
            raise BadInput(f"set: the column {alike[0]} is set twice", field=said)
        try:
            have = empty.select(sf.expr(sql)).schema.fields[0].dataType
        except (AnalysisException, ParseException) as error:
            raise BadInput(f"set {said}: {first_line(error)}; in {sql[:300]!r}", field=said) from error
        want = empty.schema[alike[0]].dataType
        found[alike[0]] = assign(sf.expr(sql), have, want, column=said, clause="set")
    return found


def _names(state: TableState) -> list[str]:
    return [field.name for field in state.schema.fields]
