"""Conditions as Spark, Iceberg and the service each have them: what is pruned is never more than SQL leaves out."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNaN,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.visitors import expression_evaluator
from pyiceberg.typedef import Record
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from headgate.errors import BadInput
from headgate.spark.filters import read_filter
from headgate.spark.lake import TableState
from tests.spark.tables import Tables

COLUMNS = (
    "id BIGINT, i INT, name STRING, d DATE, ts TIMESTAMP, n TIMESTAMP_NTZ, x DOUBLE, dec DECIMAL(10,2), b BOOLEAN, "
    "s STRUCT<a: INT, t: STRING>"
)
_DAY = 86_400_000_000
# As Spark takes them; None in every column somewhere.
ROWS = [
    (
        1,
        1,
        "a",
        date(2024, 1, 1),
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1),
        1.5,
        "1.50",
        True,
        (1, "u"),
    ),
    (2, None, "ab", date(2024, 1, 2), None, datetime(2024, 1, 2, 12), math.nan, "2.00", False, (2, None)),
    (3, 3, None, None, datetime(2023, 12, 31, 23, tzinfo=UTC), None, None, None, None, None),
    (
        None,
        -4,
        "b'\\",
        date(1969, 12, 31),
        datetime(1969, 1, 1, tzinfo=UTC),
        None,
        -0.0,
        "-3.25",
        True,
        (None, ""),
    ),
    (
        5,
        5,
        "ü",
        date(2024, 2, 29),
        datetime(2030, 1, 1, tzinfo=UTC),
        datetime(1960, 1, 1),
        math.inf,
        "0.00",
        False,
        (5, "u"),
    ),
]

# The condition, and what the service is told of it: "=" exactly that, "+" at least that.
CONDITIONS = """
    id = 2                                            | =
    2 = id                                            | =
    i < 3000000000                                    | =
    i >= 3 or i is null                               | =
    not (id = 2 or name is null)                      | =
    id <> 2                                           | =
    not (id <=> 2)                                    | =
    i <=> null                                        | =
    id in (1, 5)                                      | =
    id in (1, null)                                   | =
    id not in (1, 5)                                  | =
    id not in (1, null)                               | =
    id in (1,2,3,4,5,6,7,8,9,10,11,12,13,14)          | =
    id not in (1,2,4,6,7,8,9,10,11,12,13,14)          | =
    id between 2 and 4                                | =
    id = null                                         | =
    name like 'a%'                                    | =
    not name like 'a%'                                | =
    name like 'a%b'                                   | +
    name > 'a'                                        | =
    name = 'b\\'\\\\'                                 | =
    name = 'ü'                                        | =
    length(name) = 2                                  | +
    length(name) = 2 and id < 5                       | +
    length(name) = 2 or id < 2                        | +
    d = '2024-01-02'                                  | =
    d < date '1970-01-01'                             | =
    ts < '2024-01-01 00:00:00'                        | =
    date(ts) = date '2024-01-01'                      | =
    n >= timestamp_ntz '2024-01-01 00:00:00'          | =
    x > 1.4                                           | +
    not (x <= 1.4)                                    | +
    x < 2                                             | +
    x = 0                                             | +
    x <> 1.5                                          | +
    isnan(x)                                          | +
    not isnan(x)                                      | +
    x = double('NaN')                                 | +
    x in (1.5, 7)                                     | +
    dec = 1.5                                         | =
    dec > -4                                          | =
    dec > 1.234                                       | =
    b                                                 | =
    not b                                             | =
    not b or b is null                                | =
    s.a = 2                                           | =
    s.t is null                                       | =
    s is null                                         | +
    s.a + 1 = 3                                       | +
    id + 1 = 3                                        | +
    i = id                                            | +
    year(ts) = 2024                                   | +
    true                                              | =
    false                                             | =
    ts < current_timestamp() - interval 1 day         | =
    id in (select 2)                                  | +
    i = 3 and id in (select 3)                        | +
    i = 3 or id in (select 2)                         | +
    id = (select max(v) from values (2), (1) t(v))    | +
"""


def cases() -> list[tuple[str, bool]]:
    lines = (line.rsplit("|", 1) for line in CONDITIONS.strip().splitlines())
    return [(sql.strip(), mark.strip() == "=") for sql, mark in lines]


@pytest.fixture
def state(tables_v2: Tables) -> TableState:
    return tables_v2.create("t", COLUMNS).load()


def by_sql(spark: SparkSession, conditions: list[str]) -> list[set[int]]:
    """Which of the rows Spark keeps for each condition, by their place in the list; all in one query."""
    rows = spark.createDataFrame(
        [(at, *row) for at, row in enumerate(ROWS)], f"at INT, {COLUMNS.replace('DECIMAL(10,2)', 'STRING')}"
    )
    rows = rows.withColumn("dec", sf.col("dec").cast("decimal(10,2)"))
    told = rows.select("at", *(sf.expr(sql).alias(f"c{n}") for n, sql in enumerate(conditions))).collect()
    return [{row["at"] for row in told if row[f"c{n}"]} for n in range(len(conditions))]


def by_iceberg(state: TableState, expression: BooleanExpression) -> set[int]:
    """Which of the rows the expression keeps, judged by PyIceberg."""
    keeps = expression_evaluator(state.schema, expression, case_sensitive=True)
    return {at for at, row in enumerate(ROWS) if keeps(_record(row))}


def _record(row: tuple[object, ...]) -> Record:
    id_, i, name, d, ts, n, x, dec, b, s = row
    days = (d - date(1970, 1, 1)).days if isinstance(d, date) else None
    return Record(
        id_,
        i,
        name,
        days,
        _micros(ts),
        _micros(n),
        x,
        None if dec is None else Decimal(str(dec)),
        b,
        Record(*s) if isinstance(s, tuple) else Record(None, None),
    )


def _micros(moment: object) -> int | None:
    if not isinstance(moment, datetime):
        return None
    since = moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * _DAY + since.seconds * 1_000_000


def test_what_iceberg_is_told_keeps_every_row_that_sql_keeps(spark: SparkSession, state: TableState) -> None:
    all_kept = by_sql(spark, [condition for condition, _ in cases()])
    for (condition, is_exact), kept in zip(cases(), all_kept, strict=True):
        found = read_filter(spark, condition, state)
        told = by_iceberg(state, found.expression)
        assert kept <= told, f"{condition}: SQL keeps {kept}, {found.wire} keeps {told}"
        assert not is_exact or kept == told, f"{condition}: SQL keeps {kept}, {found.wire} keeps {told}"
        assert found.is_exact == is_exact, condition


EXPRESSIONS: list[BooleanExpression] = [
    EqualTo("id", 2),
    NotEqualTo("id", 2),
    In("name", {"a", "ü"}),
    NotIn("name", {"a", "ü"}),
    And(GreaterThan("d", "2024-01-01"), Not(EqualTo("b", True))),
    Or(LessThanOrEqual("ts", "2024-01-01T00:00:00+00:00"), EqualTo("ts", "2030-01-01T00:00:00+00:00")),
    IsNaN("x"),
    StartsWith("name", "b'\\"),
    NotStartsWith("name", "a"),
    EqualTo("dec", "1.50"),
    EqualTo("s.a", 2),
    EqualTo("n", "2024-01-02T12:00:00"),
    EqualTo("x", 1.5),
]


def test_an_expression_of_pyiceberg_means_what_it_says_but_for_null(
    spark: SparkSession, state: TableState
) -> None:
    """Null is neither equal to a value nor unequal to it, as in SQL."""
    names = [field.name for field in state.schema.fields]
    all_kept = by_sql(spark, [read_filter(spark, expression, state).sql for expression in EXPRESSIONS])
    for expression, kept in zip(EXPRESSIONS, all_kept, strict=True):
        told = by_iceberg(state, expression)
        column = next(at for at, name in enumerate(names) if f"'{name}" in repr(expression))
        nulls = {at for at, row in enumerate(ROWS) if row[column] is None}
        assert kept == told - nulls, f"{expression}: {kept} {told}"


def test_the_service_is_told_the_whole_table_where_iceberg_has_no_words(
    spark: SparkSession, state: TableState
) -> None:
    assert read_filter(spark, "coalesce(name, 'a') = 'a'", state).conflict_filter is None
    assert read_filter(spark, None, state).conflict_filter is None
    assert read_filter(spark, "id = 2 and coalesce(name, 'a') = 'a'", state).conflict_filter is not None


def test_now_is_fixed_once_for_files_rows_and_conflicts(spark: SparkSession, state: TableState) -> None:
    found = read_filter(spark, "ts < current_timestamp()", state)
    assert "current" not in found.sql
    assert isinstance(found.wire, dict)
    assert found.is_stable
    mixed = read_filter(spark, "ts < current_timestamp() and id in (select 2)", state)
    assert not mixed.is_stable
    assert mixed.conflict_filter is None


def test_a_long_chain_stays_within_what_the_service_takes(spark: SparkSession, state: TableState) -> None:
    chain = " or ".join(f"(id = {n} and i > {n})" for n in range(150))
    found = read_filter(spark, chain, state)
    assert found.is_exact
    assert by_sql(spark, [found.sql]) == [by_iceberg(state, found.expression)]


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("idd = 1", "idd"),
        ("id = ", "filter"),
        ("id + 1", "filter"),
        ("rand() < 0.5", "rand"),
        (EqualTo("idd", 1), "idd"),
        (EqualTo("id", "x"), "x"),
    ],
)
def test_a_condition_that_does_not_fit_is_refused_by_name(
    spark: SparkSession, state: TableState, condition: str | BooleanExpression, named: str
) -> None:
    with pytest.raises(BadInput, match=named) as refused:
        read_filter(spark, condition, state)
    assert refused.value.field == "filter"
