"""Spark's own reading of a condition, as an expression of the Iceberg specification.

Spark parses, resolves and simplifies the text over a relation with the table's columns; what stands in its optimised plan
is turned, piece by piece, into what every row that it keeps must satisfy. A piece that Iceberg has no words for
becomes "always true", so the expression may keep more than the condition, never less. Values are true as in SQL: no
comparison holds for null. NaN is above every number in Spark, and in Iceberg it is not compared: both are said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from headgate.format.content_files import encode_value

Wire = object  # an expression in JSON: an object, or True or False
_VALUES_MAX = 1_000  # of one IN
_DEPTH_MAX = 200
_FLIPPED = {"lt": "gt", "lt-eq": "gt-eq", "gt": "lt", "gt-eq": "lt-eq", "eq": "eq", "not-eq": "not-eq"}
_NEGATED = {"lt": "gt-eq", "lt-eq": "gt", "gt": "lt-eq", "gt-eq": "lt", "eq": "not-eq"}
_COMPARISONS = {
    "EqualTo": "eq",
    "LessThan": "lt",
    "LessThanOrEqual": "lt-eq",
    "GreaterThan": "gt",
    "GreaterThanOrEqual": "gt-eq",
}
_ABOVE = ("gt", "gt-eq")
# Plans that hand on rows of their first child, perhaps fewer or with more columns.
_PASSING = ("Project", "Join")
_PLAIN = (BooleanType, IntegerType, LongType, StringType, DateType, TimestampType, TimestamptzType)


@dataclass(frozen=True, slots=True)
class Found:
    """What rows that a condition keeps satisfy; when `is_exact`, no other rows do."""

    wire: Wire
    is_exact: bool


_ANY = Found(wire=True, is_exact=False)
_NONE = Found(wire=False, is_exact=True)
_ALL = Found(wire=True, is_exact=True)


def read_plan(plan: Any, relation: Any, schema: Schema) -> Found:
    """The condition of an optimised plan that filters `relation` (its output attributes, as Java objects)."""
    reader = _Reader(schema, {id_of(attribute) for attribute in each(relation)})
    parts: list[Found] = []
    is_plain = True
    while True:
        match kind_of(plan):
            case "Filter":
                parts.append(reader.read(plan.condition(), negated=False, depth=0))
            case "LocalRelation":
                return _NONE if plan.data().isEmpty() else Found(_all_of(parts), is_exact=False)
            case kind if kind in _PASSING:
                is_plain = False
            case _:
                break
        plan = plan.children().apply(0)
    return Found(_all_of(parts), is_plain and all(part.is_exact for part in parts))


def split_conjuncts(condition: Any) -> Iterator[Any]:
    """The parts of a condition that must all hold."""
    if kind_of(condition) == "And":
        yield from split_conjuncts(condition.left())
        yield from split_conjuncts(condition.right())
    else:
        yield condition


def join_all(parts: list[Wire]) -> Wire:
    """One expression that all parts are in; balanced, because readers bound the depth."""
    return _join("and", [part for part in parts if part is not True], unit=True, zero=False)


class _Reader:
    def __init__(self, schema: Schema, attributes: set[str]) -> None:
        self._schema, self._attributes = schema, attributes

    def read(self, node: Any, *, negated: bool, depth: int) -> Found:
        """What rows satisfy for which the node is true; with `negated`, those for which it is false."""
        if depth > _DEPTH_MAX:
            return _ANY
        kind = kind_of(node)
        match kind:
            case "Not":
                return self.read(node.child(), negated=not negated, depth=depth + 1)
            case "And" | "Or":
                sides = self._sides(node, kind, negated=negated, depth=depth)
                joins_all = (kind == "And") != negated
                return Found(
                    _all_of(sides) if joins_all else _any_of(sides), all(side.is_exact for side in sides)
                )
            case "Literal":
                value = node.value()
                return _NONE if value is None or value == negated else _ALL
            case "EqualNullSafe":
                return self._null_safe(node, negated=negated)
            case "In" | "InSet":
                return self._in(node, kind, negated=negated)
            case _ if kind in _COMPARISONS:
                return self._compare(node, _COMPARISONS[kind], negated=negated)
            case _:
                return self._test(node, kind, negated=negated)

    def _sides(self, node: Any, kind: str, *, negated: bool, depth: int) -> list[Found]:
        """All that is joined by one kind of node: long chains lean to one side and are read without depth."""
        left, found = node, []
        while kind_of(left) == kind:
            found.append(self.read(left.right(), negated=negated, depth=depth + 1))
            left = left.left()
        found.append(self.read(left, negated=negated, depth=depth + 1))
        return found[::-1]

    def _test(self, node: Any, kind: str, *, negated: bool) -> Found:
        """A predicate of one column."""
        if kind in ("AttributeReference", "GetStructField"):  # a boolean column is a condition itself
            column = self._column(node)
            if column is None or not isinstance(column[1], BooleanType):
                return _ANY
            return Found({"type": "eq", "term": column[0], "value": not negated}, is_exact=True)
        column = self._column(node.children().apply(0)) if node.children().length() else None
        if column is None:
            return _ANY
        name, type_ = column
        match kind:
            case "IsNull" | "IsNotNull":
                is_null = (kind == "IsNull") != negated
                return Found({"type": "is-null" if is_null else "not-null", "term": name}, is_exact=True)
            case "IsNaN" if isinstance(type_, FloatType | DoubleType):
                # IsNaN is false for null in Spark, so its negation holds there.
                wire: Wire = {"type": "is-nan", "term": name}
                if negated:
                    wire = _any_of_wires(
                        [{"type": "not-nan", "term": name}, {"type": "is-null", "term": name}]
                    )
                return Found(wire, is_exact=False)
            case "StartsWith" if isinstance(type_, StringType):
                prefix = _literal(node.right(), type_)
                if not isinstance(prefix, str):
                    return _ANY
                if not negated:
                    return Found({"type": "starts-with", "term": name, "value": prefix}, is_exact=True)
                return _not_null(name, {"type": "not-starts-with", "term": name, "value": prefix})
            case _:
                return _ANY

    def _compare(self, node: Any, operation: str, *, negated: bool) -> Found:
        """A column against a value, in either order."""
        column, value = self._column(node.left()), node.right()
        if column is None:
            column, value, operation = self._column(node.right()), node.left(), _FLIPPED[operation]
        if column is None:
            return _ANY
        name, type_ = column
        read = _literal(value, type_)
        if read is None:
            return _ANY
        if negated:
            operation = _NEGATED[operation]
        wire = {"type": operation, "term": name, "value": read}
        if operation == "not-eq":
            return _not_null(name, wire, is_exact=not isinstance(type_, FloatType | DoubleType))
        if isinstance(type_, FloatType | DoubleType):
            above = operation in _ABOVE
            return Found(
                _any_of_wires([wire, {"type": "is-nan", "term": name}]) if above else wire, is_exact=False
            )
        return Found(wire, is_exact=True)

    def _null_safe(self, node: Any, *, negated: bool) -> Found:
        """`<=>` with a value: null differs from every value instead of being compared to none."""
        for column, value in ((node.left(), node.right()), (node.right(), node.left())):
            if kind_of(value) == "Literal" and value.value() is not None:
                found = self._compare(node, "eq", negated=negated)
                if not negated or found is _ANY or (name := self._column(column)) is None:
                    return found
                return Found(
                    _any_of_wires([found.wire, {"type": "is-null", "term": name[0]}]), found.is_exact
                )
        return _ANY

    def _in(self, node: Any, kind: str, *, negated: bool) -> Found:
        """A column among values. A null among them makes the negation hold for nothing."""
        column = self._column(node.children().apply(0))
        if column is None:
            return _ANY
        name, type_ = column
        raw = _set_values(node) if kind == "InSet" else _list_values(node)
        if raw is None:
            return _ANY
        if negated and None in raw:
            return _NONE
        values = [_encode(value, type_) for value in raw if value is not None]
        if not values or any(value is None for value in values):
            return _ANY if values else _NONE
        exact = not isinstance(type_, FloatType | DoubleType)
        wire: dict[str, object] = {"type": "not-in" if negated else "in", "term": name}
        wire["values"] = sorted(values, key=repr)
        if len(values) == 1:
            wire = {"type": "not-eq" if negated else "eq", "term": name, "value": values[0]}
        return _not_null(name, wire, is_exact=exact) if negated else Found(wire, exact)

    def _column(self, node: Any) -> tuple[str, IcebergType] | None:
        """The name and type of a column of the table, which may stand inside structs."""
        parts: list[str] = []
        while kind_of(node) == "GetStructField":
            parts.append(str(node.extractFieldName()))
            node = node.child()
        if kind_of(node) != "AttributeReference" or id_of(node) not in self._attributes:
            return None
        parts.append(str(node.name()))
        if any("." in part for part in parts):
            return None  # the name of a path could not be told from it
        name = ".".join(reversed(parts))
        try:
            type_ = self._schema.find_field(name, case_sensitive=True).field_type
        except ValueError:
            return None
        return (name, type_) if isinstance(type_, PrimitiveType) else None


# --- values -------------------------------------------------------------------------------------------------


def _literal(node: Any, type_: IcebergType) -> object | None:
    """A literal as JSON has it; None when it is none, or null, or of no use."""
    return _encode(node.value(), type_) if kind_of(node) == "Literal" else None


def _encode(value: Any, type_: IcebergType) -> object | None:
    """A value of Catalyst (days, microseconds, Java objects) as single-value JSON; None when Iceberg has no use for it."""
    if isinstance(type_, DecimalType):
        number: Decimal = value.toJavaBigDecimal()  # which py4j hands over as Python's
        exponent = number.as_tuple().exponent
        return f"{number:f}" if exponent == -type_.scale else None
    if isinstance(type_, FloatType | DoubleType):
        return float(value) if math.isfinite(value) else None
    if not isinstance(type_, _PLAIN):
        return None
    plain = value if isinstance(value, bool | int) else str(value.toString())
    return encode_value(type_, plain)


def _list_values(node: Any) -> list[Any] | None:
    items = node.list()
    if items.length() > _VALUES_MAX:
        return None
    found = list(each(items))
    return [item.value() for item in found] if all(kind_of(item) == "Literal" for item in found) else None


def _set_values(node: Any) -> list[Any] | None:
    items = node.hset()
    if items.size() > _VALUES_MAX:
        return None
    iterator, found = items.iterator(), []
    while iterator.hasNext():
        found.append(iterator.next())
    return found


# --- putting together ---------------------------------------------------------------------------------------


def _not_null(name: str, wire: Mapping[str, object], *, is_exact: bool = True) -> Found:
    return Found(join_all([{"type": "not-null", "term": name}, wire]), is_exact)


def _all_of(parts: list[Found]) -> Wire:
    return join_all([part.wire for part in parts])


def _any_of(parts: list[Found]) -> Wire:
    return _any_of_wires([part.wire for part in parts])


def _any_of_wires(wires: list[Wire]) -> Wire:
    return _join("or", [wire for wire in wires if wire is not False], unit=False, zero=True)


def _join(type_: str, wires: list[Wire], *, unit: bool, zero: bool) -> Wire:
    """A balanced tree without repetitions; `unit` when nothing is joined, `zero` when one part decides."""
    if any(wire is zero for wire in wires):
        return zero
    single = list({repr(wire): wire for wire in wires}.values())
    if not single:
        return unit
    while len(single) > 1:
        pairs = [single[i : i + 2] for i in range(0, len(single), 2)]
        single = [
            {"type": type_, "left": pair[0], "right": pair[1]} if len(pair) == 2 else pair[0]
            for pair in pairs
        ]
    return single[0]


# --- Java objects -------------------------------------------------------------------------------------------


def kind_of(node: Any) -> str:
    """The class of a node of a plan or an expression."""
    return str(node.getClass().getSimpleName())


def id_of(attribute: Any) -> str:
    """What tells an attribute from every other one of the session."""
    return str(attribute.exprId().toString())


def each(sequence: Any) -> Iterator[Any]:
    """The items of a Scala sequence."""
    take: Callable[[int], Any] = sequence.apply
    return (take(i) for i in range(sequence.length()))
