"""What a merge does with its pairs: the clauses in SQL, checked against the table and the source before anything is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as spark_types

from headgate.errors import BadInput
from headgate.spark.columns import LINEAGE
from headgate.spark.expression_sql import quote_name
from headgate.spark.filters import empty_rows, first_line
from headgate.spark.lake import TableState
from headgate.spark.row_changes import assign
from headgate.spark.scan import FILE, POSITION

TARGET, SOURCE, SOURCE_ID = "target", "source", "__source_id"
UPDATE, DELETE = "update", "delete"
ALL = "all"
_RESERVED = frozenset({FILE, POSITION, SOURCE_ID, *LINEAGE})
_ALWAYS = "true"

Values = Mapping[str, str] | str | None  # SQL by column; "all": every column from the source's of that name


@dataclass(frozen=True)
class Clauses:
    """The clauses of a merge, ready to be applied to a join of `target` and `source`."""

    on: str
    update: Mapping[str, Column]
    update_if: Column | None  # None: no update
    delete_if: Column | None  # None: no delete
    insert: Mapping[str, Column] | None  # over `source` alone
    insert_if: Column | None
    deletes_every_match: bool

    def action(self) -> Column:
        """What becomes of a pair: update, delete, or null for nothing."""
        chosen = sf.lit(None).cast("string")
        if self.update_if is not None:
            chosen = sf.when(_holds(self.update_if), sf.lit(UPDATE)).otherwise(chosen)
        if self.delete_if is not None:
            chosen = sf.when(_holds(self.delete_if), sf.lit(DELETE)).otherwise(chosen)
        return chosen


def read_clauses(
    spark: SparkSession,
    state: TableState,
    source: DataFrame,
    on: Sequence[str] | str,
    *,
    update: tuple[Values, str | None],
    delete: str | None,
    insert: tuple[Values, str | None],
) -> Clauses:
    """Check everything that a merge says; BadInput names the clause and column at fault."""
    if taken := sorted(_RESERVED & {name.lower() for name in source.columns}):
        raise BadInput(
            f"source: its column {taken[0]} has a name that is reserved; rename it", field=taken[0]
        )
    if update[0] is None and delete is None and insert[0] is None:
        raise BadInput(
            "merge: nothing is asked for; give when_matched_update, when_matched_delete or when_not_matched_insert",
            field="when_matched_update",
        )
    for name, (values, condition) in {
        "when_matched_update": update,
        "when_not_matched_insert": insert,
    }.items():
        if values is None and condition is not None:
            raise BadInput(f"{name}_if: there is no {name} that it could restrict", field=f"{name}_if")
    target = empty_rows(spark, state)
    alone = source.alias(SOURCE)
    both = target.alias(TARGET).crossJoin(alone)
    joined_on = _on(state, source, on)
    _check(both, joined_on, "on")
    return Clauses(
        on=joined_on,
        update=_assigned(both, state, source, update[0], "when_matched_update"),
        update_if=None if update[0] is None else _condition(both, update[1], "when_matched_update_if"),
        delete_if=None if delete is None else _condition(both, delete, "when_matched_delete"),
        insert=None
        if insert[0] is None
        else _assigned(alone, state, source, insert[0], "when_not_matched_insert"),
        insert_if=None if insert[1] is None else _condition(alone, insert[1], "when_not_matched_insert_if"),
        deletes_every_match=update[0] is None and delete is not None and delete.strip().lower() == _ALWAYS,
    )


def target_column(name: str) -> Column:
    """A column of the table in the join."""
    return sf.col(f"{TARGET}.{quote_name(name)}")


def names_of(state: TableState) -> list[str]:
    """The columns of the table."""
    return [field.name for field in state.schema.fields]


def _on(state: TableState, source: DataFrame, on: Sequence[str] | str) -> str:
    if isinstance(on, str):
        return on
    if not on:
        raise BadInput("on: expected names of columns, or a condition; got none", field="on")
    parts = []
    for name in on:
        ours, theirs = _alike(name, names_of(state)), _alike(name, source.columns)
        if ours is None or theirs is None:
            whose = "the table" if ours is None else "the source"
            raise BadInput(f"on: {whose} has no column {name}", field=name)
        parts.append(f"{TARGET}.{quote_name(ours)} = {SOURCE}.{quote_name(theirs)}")
    return " AND ".join(parts)


def _assigned(
    rows: DataFrame, state: TableState, source: DataFrame, values: Values, clause: str
) -> dict[str, Column]:
    """The values of a clause by column, of the table's types."""
    found: dict[str, Column] = {}
    types = {field.name: field.dataType for field in empty_rows(source.sparkSession, state).schema.fields}
    for said, sql in _values(state, source, values, clause):
        name = _alike(said, names_of(state))
        if name is None:
            raise BadInput(f"{clause}: the table has no column {said}", field=said)
        if name in found:
            raise BadInput(f"{clause}: the column {name} is given twice", field=said)
        have = _type(rows, sql, f"{clause} {said}", said)
        found[name] = assign(sf.expr(sql), have, types[name], column=said, clause=clause)
    return found


def _values(state: TableState, source: DataFrame, values: Values, clause: str) -> Iterator[tuple[str, str]]:
    if values is None:
        return
    if not isinstance(values, str):
        if not values:
            raise BadInput(f"{clause}: expected columns and their values, got none", field=clause)
        yield from values.items()
        return
    if values != ALL:
        raise BadInput(
            f"{clause}: expected {ALL!r} or columns and their values, got {values!r}", field=clause
        )
    for name in names_of(state):
        theirs = _alike(name, source.columns)
        if theirs is None:
            raise BadInput(f"{clause}: {ALL!r} needs a column {name} in the source", field=name)
        yield name, f"{SOURCE}.{quote_name(theirs)}"


def _condition(rows: DataFrame, sql: str | None, clause: str) -> Column:
    text = _ALWAYS if sql is None else sql
    _check(rows, text, clause)
    return sf.expr(text)


def _check(rows: DataFrame, sql: str, clause: str) -> None:
    """A condition must be one, and say the same each time: it is asked more than once."""
    if not isinstance(_type(rows, sql, clause, clause), spark_types.BooleanType):
        raise BadInput(f"{clause}: expected a condition, got {sql[:300]!r}", field=clause)
    plan = rows.select(sf.expr(sql))._jdf.queryExecution().analyzed()
    if not plan.projectList().apply(0).deterministic():  # the condition alone: the source is put down once
        raise BadInput(f"{clause}: every row would be judged by chance: {sql[:300]!r}", field=clause)


def _type(rows: DataFrame, sql: str, what: str, field: str) -> spark_types.DataType:
    try:
        return rows.select(sf.expr(sql)).schema.fields[0].dataType
    except (AnalysisException, ParseException) as error:
        raise BadInput(f"{what}: {first_line(error)}; in {sql[:300]!r}", field=field) from error


def _alike(name: str, among: Sequence[str]) -> str | None:
    """The column of this name: to the letter, or else but for case."""
    if name in among:
        return name
    found = [one for one in among if one.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def _holds(condition: Column) -> Column:
    return sf.coalesce(condition, sf.lit(False))
