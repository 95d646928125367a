"""What a view's query is, seen from its analysed plan: whether, and how, its result can follow changes. Pure.

A query is *linear* in a source when the rows of two parts of the source, put together, give the results of the
parts put together: Q(S + D) = Q(S) + Q(D), as bags of rows. Projections, filters, generators and sorts are. A
join is linear in each side that it only multiplies or drops rows of, as long as the other side stands still: both
sides of an inner join, the preserved side of an outer one. So a change of a source, rows that came and rows
that went, is followed by running the very same query over these rows alone.

Aggregates over a linear input are followed group by group, from the state that each `Measure` keeps.

Whatever is not known here is not followed: the result is then built anew each time, and the reason is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

# Columns that the result has beside the query's own.
PREFIX = "_headgate_"
ROWS = f"{PREFIX}rows"  # how many input rows a group has

_LINEAR = frozenset(("Project", "Filter", "SubqueryAlias", "Sort", "Generate", "ResolvedHint", "Repartition"))
_FUNCTIONS = {"count": "count", "sum": "sum", "min": "min", "max": "max", "avg": "avg", "mean": "avg"}
_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# Expressions whose value is not a matter of the row alone. `Current…` are times, users and catalogs.
_NOT_OF_THE_ROW = re.compile(
    r"Current.*|Now|LocalTimestamp|ScalarSubquery|Exists|InSubquery|ListQuery|LateralSubquery|"
    r"WindowExpression|OuterReference|UserDefinedGenerator|.*UDF|InputFile.*"
)


class Function(StrEnum):
    """The aggregates that can be followed."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression of Catalyst: its class, its SQL, its type, and what an aggregate says besides."""

    kind: str
    sql: str
    type: str = ""
    children: tuple[Expression, ...] = ()
    name: str = ""  # of an attribute or alias; of a function, as SQL calls it
    is_distinct: bool = False
    condition: Expression | None = None  # FILTER (WHERE …) of an aggregate


@dataclass(frozen=True, slots=True)
class Node:
    """A node of an analysed plan. `source` is the alias of a source; `groupings` and `outputs` are an aggregate's."""

    kind: str
    children: tuple[Node, ...] = ()
    expressions: tuple[Expression, ...] = ()
    groupings: tuple[Expression, ...] = ()
    outputs: tuple[Expression, ...] = ()
    join: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Key:
    """A column that tells the groups apart. One that the query does not show has a name of ours."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregate of the result: `argument` over the input gives column `name`. Its state is beside it."""

    name: str
    function: Function
    argument: str
    argument_type: str
    type: str
    number: int

    @property
    def count_name(self) -> str:
        """The column with the number of values that are not null: without any, a sum is null and not 0."""
        return f"{PREFIX}n{self.number}"

    @property
    def sum_name(self) -> str:
        """The column with the sum that an average is made from."""
        return f"{PREFIX}sum{self.number}"

    @property
    def sum_type(self) -> str:
        """The type that values are added up in: exact wherever the values are."""
        if self.function is Function.SUM:
            return self.type
        if (decimal := _DECIMAL.fullmatch(self.argument_type)) is not None:
            return f"decimal({min(38, int(decimal[1]) + 10)},{decimal[2]})"
        return "decimal(38,0)" if self.argument_type in _WHOLE_NUMBERS else "double"

    @property
    def is_invertible(self) -> bool:
        """Whether a value that went can be taken out again. Binary fractions add up inexactly, and NaN stays."""
        if self.function in (Function.MIN, Function.MAX):
            return False
        return self.function is Function.COUNT or self.sum_type != "double"

    @property
    def count_max(self) -> int | None:
        """Up to how many values an average of decimals is exact when it is made from the sum.

        Spark divides to 39 digits and rounds once. We divide to 28 - p + s digits behind the point (those that 38
        leave) and round again to s + 4; a quotient by n stays clear of every tie by more than that while n is below
        10^(24-p).
        """
        decimal = _DECIMAL.fullmatch(self.argument_type)
        if self.function is not Function.AVG or decimal is None:
            return None
        return int(10 ** max(0, 24 - int(decimal[1])))


@dataclass(frozen=True, slots=True)
class Rows:
    """The result is a bag of rows, linear in some sources."""

    linear: frozenset[str]


@dataclass(frozen=True, slots=True)
class Groups:
    """The result is groups with measures, over an input that is linear in some sources."""

    linear: frozenset[str]
    keys: tuple[Key, ...]
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """The result cannot follow any change, for this reason."""

    reason: str
    linear: frozenset[str] = frozenset()


Shape = Rows | Groups | Whole


def classify(root: Node) -> Shape:
    """How the result of a query can follow changes of its sources."""
    for expression in _every_expression(root):
        if _NOT_OF_THE_ROW.fullmatch(expression.kind):
            return Whole(f"the query uses {expression.sql or expression.kind}, which is no matter of one row")
    top = root
    while top.kind == "Sort":
        (top,) = top.children
    if top.kind in ("Aggregate", "Distinct"):
        (input_,) = top.children
        uses = _uses(input_)
        if isinstance(uses, Whole):
            return uses
        return _groups(top, uses.linear)
    uses = _uses(top)
    return uses if isinstance(uses, Whole) else Rows(uses.linear)


def find_sources(root: Node) -> frozenset[str]:
    """The sources that a plan reads."""
    below = (find_sources(child) for child in root.children)
    return frozenset({root.source} if root.source else ()).union(*below)


@dataclass(frozen=True, slots=True)
class _Uses:
    """The sources below a node: those it is linear in, and all."""

    linear: frozenset[str]
    every: frozenset[str]


def _uses(node: Node) -> _Uses | Whole:
    if node.source:
        return _Uses(frozenset((node.source,)), frozenset((node.source,)))
    below: list[_Uses] = []
    for child in node.children:
        uses = _uses(child)
        if isinstance(uses, Whole):
            return uses
        below.append(uses)
    if node.kind in _LINEAR and len(below) == 1:
        return below[0]
    if node.kind == "Join" and len(below) == 2:
        return _join_uses(node.join, *below)
    if node.kind == "Union" and below:
        if any(one.every != below[0].every for one in below):
            return Whole("the query unites different sources")
        return _Uses(frozenset.intersection(*(one.linear for one in below)), below[0].every)
    return Whole(f"the query has a step that cannot be followed: {node.kind}")


def _join_uses(join: str, left: _Uses, right: _Uses) -> _Uses | Whole:
    # Which sides a join is linear in. Rows of the other side may make or unmake rows without a match.
    sides = {
        "INNER": (True, True),
        "CROSS": (True, True),
        "LEFT OUTER": (True, False),
        "RIGHT OUTER": (False, True),
        "LEFT SEMI": (True, False),
        "LEFT ANTI": (True, False),
        "FULL OUTER": (False, False),
    }
    if join not in sides:
        return Whole(f"the query has a join that cannot be followed: {join}")
    in_left, in_right = sides[join]
    twice = left.every & right.every  # joined with itself, a change meets itself too
    linear = (left.linear if in_left else frozenset()) | (right.linear if in_right else frozenset())
    return _Uses(linear - twice, left.every | right.every)


def _groups(node: Node, linear: frozenset[str]) -> Groups | Whole:
    if node.kind == "Distinct":
        return Groups(linear, tuple(Key(one.name, _quoted(one.name)) for one in node.outputs), ())
    keys: list[Key] = []
    measures: list[Measure] = []
    shown = {grouping.sql: "" for grouping in node.groupings}
    for output in node.outputs:
        inner = output.children[0] if output.kind == "Alias" else output
        if inner.sql in shown:
            keys.append(Key(output.name, inner.sql))
            shown[inner.sql] = output.name
            continue
        if inner.kind != "AggregateExpression":
            return Whole(f"column {output.name} is computed from aggregates: {inner.sql}")
        measure = _measure(output.name, inner, len(measures))
        if isinstance(measure, Whole):
            return measure
        measures.append(measure)
    hidden = [sql for sql, name in shown.items() if not name]
    keys += [Key(f"{PREFIX}key{number}", sql) for number, sql in enumerate(hidden)]
    return Groups(linear, tuple(keys), tuple(measures))


def _measure(name: str, aggregate: Expression, number: int) -> Measure | Whole:
    (call,) = aggregate.children
    function = _FUNCTIONS.get(call.name)
    if function is None or aggregate.is_distinct or len(call.children) != 1:
        return Whole(f"column {name} is an aggregate that cannot be followed: {aggregate.sql}")
    (argument,) = call.children
    sql = argument.sql
    if aggregate.condition is not None:
        sql = f"CASE WHEN {aggregate.condition.sql} THEN {sql} END"
    is_number = argument.type in (*_WHOLE_NUMBERS, "float", "double") or _DECIMAL.fullmatch(argument.type)
    if function in ("sum", "avg") and not is_number:
        return Whole(f"column {name} adds up values of type {argument.type}")
    measure = Measure(name, Function(function), sql, argument.type, aggregate.type, number)
    if measure.count_max is not None and measure.count_max <= 1:
        return Whole(f"column {name} is an average of {argument.type}, which a sum does not give exactly")
    return measure


def _every_expression(node: Node) -> Iterator[Expression]:
    for expression in (*node.expressions, *node.groupings, *node.outputs):
        yield from _nested((expression,))
    for child in node.children:
        yield from _every_expression(child)


def _nested(expressions: Sequence[Expression]) -> Iterator[Expression]:
    for expression in expressions:
        yield expression
        yield from _nested(expression.children)
        if expression.condition is not None:
            yield from _nested((expression.condition,))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
