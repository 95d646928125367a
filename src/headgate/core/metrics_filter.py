"""Whether the statistics of a file leave room for a row that matches a filter: PyIceberg's answer, prepared once.

PyIceberg walks the bound expression anew for every file, by dispatch on types; a window of a thousand files pays for
that a thousand times (docs/adr/0009). Here the expression becomes nested functions once. Comparisons with a bound are
ours; every other predicate, and how bounds are decoded, stays PyIceberg's. A test holds both to one answer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundLiteralPredicate,
    Or,
)
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator  # it has no public name
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType

from headgate.core.manifest import ContentFile, Metrics

_JUDGED_MAX = 10_000
_NO_METRICS = Metrics()
# What bytes that are no single value of their type make PyIceberg raise. Files come from any writer; such bounds say
# nothing.
UNREADABLE = (ValueError, TypeError, ArithmeticError, LookupError, AssertionError, struct.error)

MayMatch = Callable[[ContentFile], bool]
MayMatchBounds = Callable[[Metrics], bool]
# What refuses a file: how its lower bound, and how its upper bound, stands to the literal.
_REFUSED: dict[type, tuple[Any, Any]] = {
    BoundLessThan: (ge, None),
    BoundLessThanOrEqual: (gt, None),
    BoundGreaterThan: (None, le),
    BoundGreaterThanOrEqual: (None, lt),
    BoundEqualTo: (gt, lt),
}


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """What PyIceberg's evaluators look at in a file."""

    record_count: int
    value_counts: Mapping[int, int] | None
    null_value_counts: Mapping[int, int] | None
    nan_value_counts: Mapping[int, int] | None
    lower_bounds: Mapping[int, bytes] | None
    upper_bounds: Mapping[int, bytes] | None


def statistics_of(file: ContentFile) -> Any:
    """A file as PyIceberg's evaluators see it."""
    metrics = file.metrics or _NO_METRICS
    return FileStatistics(
        record_count=file.record_count,
        value_counts=metrics.value_counts,
        null_value_counts=metrics.null_value_counts,
        nan_value_counts=metrics.nan_value_counts,
        lower_bounds=metrics.lower_bounds,
        upper_bounds=metrics.upper_bounds,
    )


def ask(evaluator: Any, file: ContentFile, *, unreadable: bool) -> bool:
    """What an evaluator of PyIceberg's says of a file; `unreadable` when it cannot read the file's bounds."""
    try:
        return bool(evaluator.eval(statistics_of(file)))
    except UNREADABLE:
        return unreadable


def prepare(schema: IcebergSchema, expression: BooleanExpression) -> MayMatch:
    """A function of files: False where no row can match."""
    evaluator = _InclusiveMetricsEvaluator(schema, expression)
    test = _prepare(evaluator.expr)
    if test is None:
        return lambda file: ask(evaluator, file, unreadable=True)

    def may_match(file: ContentFile) -> bool:
        # A count below zero is not known (spec, Avro imports): such a file may hold anything.
        return file.record_count != 0 and (file.record_count < 0 or test(file.metrics or _NO_METRICS))

    return may_match


def prepare_bounds(schema: IcebergSchema, expression: BooleanExpression) -> MayMatchBounds | None:
    """A function of bounds: False where no value between them can match. None: the expression is left to PyIceberg."""
    return _prepare(_InclusiveMetricsEvaluator(schema, expression).expr)


def _prepare(bound: BooleanExpression) -> MayMatchBounds | None:
    """A function of statistics; None when a part of the expression is left to PyIceberg."""
    if isinstance(bound, And | Or):
        left, right = _prepare(bound.left), _prepare(bound.right)
        if left is None or right is None:
            return None
        if isinstance(bound, And):
            return lambda metrics: left(metrics) and right(metrics)
        return lambda metrics: left(metrics) or right(metrics)
    refused = _REFUSED.get(type(bound))
    if refused is None or not isinstance(bound, BoundLiteralPredicate):
        return None
    column = bound.term.ref().field
    if not isinstance(column.field_type, PrimitiveType):
        return None
    # NaN compares with nothing: floating columns have rules of their own in PyIceberg, and are left to it.
    if isinstance(column.field_type, FloatType | DoubleType):
        return None
    return _compare(column, bound.literal.value, *refused)


def _compare(column: NestedField, wanted: Any, below: Any, above: Any) -> MayMatchBounds:
    field_id = column.field_id
    is_below, knows_below = _refuser(column.field_type, below, wanted)
    is_above, knows_above = _refuser(column.field_type, above, wanted)

    def test(metrics: Metrics) -> bool:
        if below is not None and (bounds := metrics.lower_bounds) is not None:
            bound = bounds.get(field_id)
            if bound is not None:
                refused = knows_below.get(bound)
                if is_below(bound) if refused is None else refused:
                    return False
        if above is not None and (bounds := metrics.upper_bounds) is not None:
            bound = bounds.get(field_id)
            if bound is not None:
                refused = knows_above.get(bound)
                if is_above(bound) if refused is None else refused:
                    return False
        values, nulls = metrics.value_counts, metrics.null_value_counts
        count = None if values is None else values.get(field_id)
        # All of them null, none of them matches. (NaN is of floating columns.)
        return not count or nulls is None or nulls.get(field_id) != count

    return test


def _refuser(type_: Any, refuses: Any, wanted: Any) -> tuple[Callable[[bytes], bool], dict[bytes, bool]]:
    """Whether a bound, as PyIceberg reads it, refuses its file; and what is known of which: files share many bounds."""
    known: dict[bytes, bool] = {}

    def judge(raw: bytes) -> bool:
        if len(known) >= _JUDGED_MAX:
            known.clear()
        try:
            found = bool(refuses(from_bytes(type_, raw), wanted))
        except UNREADABLE:
            found = False
        known[raw] = found
        return found

    return judge, known
