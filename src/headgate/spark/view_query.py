"""Reads Spark's analysed plan of a query into values, and takes plans apart: the only module that knows Catalyst.

Spark itself parses and analyses; nothing here looks at the text of a query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from headgate.errors import BadInput
from headgate.spark.view_plan import Expression, Node, Whole

_DEPTH_MAX = 200
_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_COMMANDS = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement", f"{_LOGICAL}.CompoundPlanStatement")


def run_query(session: SparkSession, query: str) -> DataFrame:
    """The query over the temporary views of a session; BadInput when it is no query or names what is not there."""
    try:
        # Only parsed: `sql` carries a command out at once, whatever becomes of its answer.
        if _is_command(session._jsparkSession.sessionState().sqlParser().parsePlan(query)):
            raise BadInput("query: expected a SELECT, got a command", field="query")
        return session.sql(query)
    except (ParseException, AnalysisException) as error:
        raise BadInput(f"query: {str(error).splitlines()[0]}", field="query") from error


def read_plan(query: DataFrame, sources: Collection[str]) -> Node | Whole:
    """The analysed plan as values; `Whole` where it holds what this module cannot read."""
    plan = _analysed(query)
    if not plan.deterministic():
        return Whole("the query is not deterministic")
    try:
        return _node(plan, frozenset(sources), _DEPTH_MAX)
    except (Py4JError, RecursionError) as error:
        return Whole(f"the plan of the query cannot be read: {type(error).__name__}")


def find_foreign(query: DataFrame, sources: Collection[str]) -> tuple[str, ...]:
    """What the query reads that is not among its sources, subqueries included."""
    found: set[str] = set()
    for name, plan in _relations(_analysed(query)):
        if name not in sources:
            found.add(name or str(plan.nodeName()))
    return tuple(sorted(found))


def input_of(query: DataFrame) -> DataFrame:
    """The input of the aggregate (or DISTINCT) that a query ends in."""
    plan = _analysed(query)
    while plan.nodeName() == "Sort":
        plan = plan.child()
    session = query.sparkSession
    rows = session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan.child())  # type: ignore[union-attr]
    return DataFrame(rows, session)


def _analysed(query: DataFrame) -> Any:
    return query._jdf.queryExecution().analyzed()


def _is_command(plan: Any) -> bool:
    loader = plan.getClass().getClassLoader()
    return any(loader.loadClass(name).isInstance(plan) for name in _COMMANDS) or any(
        _is_command(child) for child in _each(plan.children())
    )


def _relations(plan: Any) -> Iterator[tuple[str, Any]]:
    """Relations that a plan reads, by the name of the temporary view; '' for those that are none."""
    kind = str(plan.nodeName())
    if kind == "View":
        yield str(plan.desc().identifier().table()), plan
        return
    children = list(_each(plan.children()))
    inner = list(_each(plan.subqueries())) if kind != "LocalRelation" else []
    if not children and kind not in ("OneRowRelation", "LocalRelation", "Range", "CTERelationRef"):
        yield "", plan
    for child in (*children, *inner):
        yield from _relations(child)


def _node(plan: Any, sources: frozenset[str], depth: int) -> Node:
    if depth == 0:
        raise RecursionError
    kind = str(plan.nodeName())
    if kind == "View":
        name = str(plan.desc().identifier().table())
        return Node(kind, source=name if name in sources else "")
    children = tuple(_node(child, sources, depth - 1) for child in _each(plan.children()))
    if kind == "Aggregate":
        groupings = tuple(_expression(one, depth - 1) for one in _each(plan.groupingExpressions()))
        outputs = tuple(_expression(one, depth - 1) for one in _each(plan.aggregateExpressions()))
        return Node(kind, children, groupings=groupings, outputs=outputs)
    if kind == "Distinct":
        outputs = tuple(_expression(one, depth - 1) for one in _each(plan.output()))
        return Node(kind, children, outputs=outputs)
    expressions = tuple(_expression(one, depth - 1) for one in _each(plan.expressions()))
    return Node(kind, children, expressions, join=str(plan.joinType().sql()) if kind == "Join" else "")


def _expression(value: Any, depth: int) -> Expression:
    if depth == 0:
        raise RecursionError
    kind = str(value.getClass().getSimpleName())
    if kind == "AggregateExpression":
        return _aggregate(value, depth)
    children = tuple(_expression(child, depth - 1) for child in _each(value.children()))
    name = str(value.name()) if kind in ("Alias", "AttributeReference") else ""
    return Expression(kind, str(value.sql()), children=children, name=name)


def _aggregate(value: Any, depth: int) -> Expression:
    """An aggregate: the only expression whose types matter, and those of its arguments."""
    function, condition = value.aggregateFunction(), value.filter()
    call = Expression(
        str(function.getClass().getSimpleName()),
        str(function.sql()),
        children=tuple(
            replace(_expression(child, depth - 1), type=_type(child)) for child in _each(function.children())
        ),
        name=str(function.prettyName()),
    )
    return Expression(
        "AggregateExpression",
        str(value.sql()),
        _type(value),
        (call,),
        is_distinct=bool(value.isDistinct()),
        condition=_expression(condition.get(), depth - 1) if condition.isDefined() else None,
    )


def _type(value: Any) -> str:
    return str(value.dataType().sql()).lower()


def _each(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    for at in range(sequence.size()):
        yield sequence.apply(at)
