"""Statistics against a filter: prepared once, and never another answer than PyIceberg's."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    Or,
    StartsWith,
)
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from headgate.core.manifest import ContentFile, FileContent, Metrics
from headgate.core.metrics_filter import prepare, statistics_of

_SCHEMA = Schema(
    NestedField(1, "number", LongType(), required=False),
    NestedField(2, "text", StringType(), required=False),
    NestedField(3, "ratio", DoubleType(), required=False),
)
_COMPARISONS = (EqualTo, NotEqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)
_numbers = st.integers(-3, 3)
_texts = st.text("ab", max_size=2)
_ratios = st.sampled_from([-1.5, 0.0, 1.5])
_counts = st.none() | st.integers(0, 2)


def _make(kind: Any, *parts: Any) -> BooleanExpression:
    """A predicate; PyIceberg's own types know only how pydantic makes them."""
    made: BooleanExpression = kind(*parts)
    return made


def _compare() -> st.SearchStrategy[BooleanExpression]:
    kinds = st.sampled_from(_COMPARISONS)
    columns = st.one_of(
        st.tuples(st.just("number"), _numbers),
        st.tuples(st.just("text"), _texts),
        st.tuples(st.just("ratio"), _ratios),
    )
    return st.builds(lambda kind, column: _make(kind, *column), kinds, columns)


_leaves = st.one_of(
    _compare(),
    st.builds(lambda values: _make(In, "number", values), st.sets(_numbers, min_size=2)),
    st.builds(lambda text: _make(StartsWith, "text", text), _texts.filter(bool)),
    st.just(_make(IsNull, "number")),
)
_filters = st.recursive(
    _leaves,
    lambda parts: st.one_of(st.builds(And, parts, parts), st.builds(Or, parts, parts), st.builds(Not, parts)),
    max_leaves=4,
)


@st.composite
def _bounds(draw: st.DrawFn) -> dict[int, bytes] | None:
    if draw(st.integers(0, 4)) == 0:
        return None
    found = {}
    if (number := draw(st.none() | _numbers)) is not None:
        found[1] = struct.pack("<q", number)
    if (text := draw(st.none() | _texts)) is not None:
        found[2] = text.encode()
    if (ratio := draw(st.none() | st.sampled_from([-1.5, 0.0, 1.5, float("nan")]))) is not None:
        found[3] = struct.pack("<d", ratio)
    return found


def _by_id(count: int | None) -> dict[int, int] | None:
    return None if count is None else {1: count, 2: count, 3: count}


def _file(records: int, metrics: Metrics | None) -> ContentFile:
    return ContentFile(FileContent.DATA, "d.parquet", "PARQUET", 0, (), records, 100, metrics=metrics)


@given(_filters, st.integers(-1, 2), _counts, _counts, _bounds(), _bounds())
def test_the_answer_is_that_of_pyiceberg_for_every_filter_and_every_statistics(
    wanted: BooleanExpression,
    records: int,
    values: int | None,
    nulls: int | None,
    lower: dict[int, bytes] | None,
    upper: dict[int, bytes] | None,
) -> None:
    metrics = Metrics(None, _by_id(values), _by_id(nulls), None, lower, upper)
    one = _file(records, metrics)
    theirs = _InclusiveMetricsEvaluator(_SCHEMA, wanted).eval(statistics_of(one))
    assert prepare(_SCHEMA, wanted)(one) == theirs


@pytest.mark.parametrize("records", [0, 5, -1])
def test_a_file_without_statistics_may_match_unless_it_is_empty(records: int) -> None:
    assert prepare(_SCHEMA, _make(EqualTo, "number", 1))(_file(records, None)) is (records != 0)
