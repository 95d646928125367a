"""Which rows a job is about: SQL or an expression of PyIceberg, as rows, files and conflicts each need it.

Rows are always judged by Spark's SQL, so that what is null stays null. Files are pruned, and conflicts judged, by an
expression that keeps at least those rows; it is as narrow as Iceberg can say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import BooleanExpression
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from headgate.core.filters import DEPTH_MAX, NODES_MAX
from headgate.errors import BadInput
from headgate.spark.catalyst import Found, kind_of, read_plan
from headgate.spark.columns import spark_schema
from headgate.spark.expression_sql import to_sql
from headgate.spark.lake import TableState

Condition = str | BooleanExpression | None
# Whatever Spark's plan calls "now" in its words; a false alarm only freezes what stands still anyway.
_NOW = re.compile(r"current_|localtimestamp|now\(|curdate|unix_timestamp\(\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition. `sql` says which rows; `wire` (JSON) and `expression` keep those and perhaps more.

    When `is_exact` they keep no more; when `is_stable` it says the same of the same row each time it is asked.
    """

    sql: str
    wire: object
    expression: BooleanExpression
    is_exact: bool
    is_stable: bool = True

    @property
    def conflict_filter(self) -> object | None:
        """What the service is told was read; None is the whole table."""
        return None if self.wire is True else self.wire

    def keep(self) -> Column:
        """The condition, for rows that it is true of: Spark's reader can skip by it."""
        return sf.expr(self.sql)

    def holds(self) -> Column:
        """True where the condition is true; false where it is false or null."""
        return sf.coalesce(sf.expr(self.sql), sf.lit(False))


def read_filter(
    spark: SparkSession, condition: Condition, state: TableState, *, name: str = "filter"
) -> Filter:
    """A condition over the columns of a table; None is every row. `name` is what errors call it."""
    if condition is None:
        return everything()
    sql = condition if isinstance(condition, str) else to_sql(condition, state.schema, name=name)
    relation = empty_rows(spark, state)
    try:
        execution = relation.where(sql)._jdf.queryExecution()
        analyzed, optimized = execution.analyzed(), execution.optimizedPlan()
    except (AnalysisException, ParseException) as error:
        raise BadInput(f"{name}: {first_line(error)}; in {sql[:300]!r}", field=name) from error
    filtered = _find_filter(analyzed)
    if not filtered.condition().deterministic():
        raise BadInput(f"{name}: every row would be judged by chance: {sql[:300]!r}", field=name)
    found = read_plan(optimized, relation._jdf.queryExecution().analyzed().output(), state.schema)
    is_plain = _is_plain(optimized)
    if _NOW.search(str(filtered.condition().toString())):
        # Each job has its own "now". One that is fixed here is the same for files, rows and conflicts.
        if not is_plain:
            return _filter(sql, Found(wire=True, is_exact=False), is_stable=False)
        sql = str(optimized.condition().sql()) if kind_of(optimized) == "Filter" else sql
    return _filter(sql, found, is_stable=is_plain)


def empty_rows(spark: SparkSession, state: TableState) -> DataFrame:
    """No rows of the table, and Spark does not know that there are none: for plans that are only looked at."""
    # An RDD of Java's own: one of Python takes eight times as long to make.
    java: Any = spark._jsparkSession
    shape = java.parseDataType(_nullable(spark_schema(state.schema)).json())
    return DataFrame(java.createDataFrame(spark.sparkContext._jsc.emptyRDD(), shape), spark)


def everything() -> Filter:
    """The filter of all rows."""
    return _filter("true", Found(wire=True, is_exact=True), is_stable=True)


def from_wire(wire: object, *, sql: str) -> Filter:
    """A filter of rows that satisfy more than Iceberg is told: `wire` must keep them all."""
    return _filter(sql, Found(wire, is_exact=False), is_stable=True)


def first_line(error: BaseException) -> str:
    """What an error of Spark says before it shows the plan."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def _filter(sql: str, found: Found, *, is_stable: bool) -> Filter:
    if not _is_small(found.wire):
        found = Found(wire=True, is_exact=False)
    expression: BooleanExpression = BooleanExpression.model_validate(found.wire)
    return Filter(sql, found.wire, expression, found.is_exact and is_stable, is_stable)


def _is_small(wire: object) -> bool:
    """Whether the service would take it: it bounds depth and size."""
    nodes, level = 0, [wire]
    for _ in range(DEPTH_MAX - 1):
        nodes += len(level)
        level = [
            inner
            for node in level
            if isinstance(node, dict | list)
            for inner in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return nodes <= NODES_MAX
    return False


def _find_filter(plan: Any) -> Any:
    while kind_of(plan) != "Filter":
        plan = plan.children().apply(0)
    return plan


def _is_plain(plan: Any) -> bool:
    """Whether the condition reads nothing but the table."""
    return (
        kind_of(plan) in ("Filter", "LogicalRDD", "LocalRelation")
        and (kind_of(plan) != "Filter" or not plan.child().children().length())
        and "subquery" not in str(plan.toString()).lower()
    )


def _nullable(schema: StructType) -> StructType:
    """Every column may be null: Spark must not conclude from what a table promises."""
    return StructType([StructField(field.name, field.dataType, nullable=True) for field in schema.fields])
