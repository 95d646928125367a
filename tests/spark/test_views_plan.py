"""What Spark's plan of a query tells: which changes the result can follow, and from which state."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headgate.errors import BadInput
from headgate.spark.view_plan import (
    Expression,
    Function,
    Groups,
    Measure,
    Node,
    Rows,
    Shape,
    Whole,
    classify,
    find_sources,
)
from headgate.spark.view_query import find_foreign, read_plan, run_query

_SOURCES = ("pay", "kinds")
_PAY = Node("SubqueryAlias", (Node("View", source="pay"),))
_KINDS = Node("SubqueryAlias", (Node("View", source="kinds"),))

# A query, and the sources whose changes it follows; or in brackets why it follows none.
_QUERIES = """
SELECT id, amount * 2 AS twice FROM pay WHERE kind <> 'x'                             | rows pay
SELECT * FROM (SELECT id AS n FROM pay) t ORDER BY n                                  | rows pay
SELECT id, explode(array(1, 2)) AS n FROM pay                                         | rows pay
SELECT p.id, k.label FROM pay p JOIN kinds k ON p.kind = k.kind                       | rows kinds pay
SELECT p.id, k.label FROM pay p LEFT JOIN kinds k ON p.kind = k.kind                  | rows pay
SELECT p.id, k.label FROM pay p RIGHT JOIN kinds k ON p.kind = k.kind                 | rows kinds
SELECT p.id, k.label FROM pay p FULL JOIN kinds k ON p.kind = k.kind                  | rows
SELECT p.id FROM pay p LEFT ANTI JOIN kinds k ON p.kind = k.kind                      | rows pay
SELECT p.id FROM pay p JOIN pay q ON p.id = q.id + 1                                  | rows
SELECT id FROM pay UNION ALL SELECT id + 1 FROM pay                                   | rows pay
SELECT kind FROM pay UNION ALL SELECT kind FROM kinds                                 | [different sources]
SELECT kind, count(*) AS n, sum(amount) AS s, avg(amount) AS a FROM pay GROUP BY kind | groups pay
SELECT count(*) AS n FROM pay                                                         | groups pay
SELECT max(id) AS m FROM pay GROUP BY kind                                            | groups pay
SELECT DISTINCT kind FROM pay                                                         | groups pay
SELECT k.label, sum(id) AS s FROM pay p LEFT JOIN kinds k ON p.kind = k.kind GROUP BY 1 | groups pay
SELECT kind, sum(id) FILTER (WHERE id > 3) AS s FROM pay GROUP BY kind ORDER BY 1     | groups pay
SELECT kind, count(DISTINCT id) AS n FROM pay GROUP BY kind                           | [count(DISTINCT]
SELECT kind, sum(id) / 2 AS half FROM pay GROUP BY kind                               | [column half]
SELECT kind, count(*) AS n FROM pay GROUP BY kind HAVING count(*) > 1                 | [Aggregate]
SELECT kind, first(id) AS f FROM pay GROUP BY kind                                    | [column f]
SELECT kind, count(*) AS n FROM pay GROUP BY ROLLUP (kind)                            | [Expand]
SELECT id, row_number() OVER (ORDER BY id) AS r FROM pay                              | [no matter of one row]
SELECT id FROM pay LIMIT 3                                                            | [LocalLimit]
SELECT id FROM pay WHERE id = (SELECT max(id) FROM pay)                               | [no matter of one row]
SELECT id FROM pay WHERE kind IN (SELECT kind FROM kinds)                             | [no matter of one row]
SELECT id, current_date() AS today FROM pay                                           | [no matter of one row]
SELECT id, rand() AS r FROM pay                                                       | [not deterministic]
SELECT id FROM pay TABLESAMPLE (10 PERCENT)                                           | [Sample]
SELECT id FROM pay EXCEPT ALL SELECT id FROM pay                                      | [Except]
WITH c AS (SELECT id FROM pay) SELECT id FROM c                                       | [CTERelationDef]
"""
_CASES = [tuple(part.strip() for part in line.split("|")) for line in _QUERIES.strip().splitlines()]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session that knows the sources, without rows."""
    session = spark.newSession()
    session.createDataFrame([], "id BIGINT, kind STRING, amount DECIMAL(12, 2)").createOrReplaceTempView(
        "pay"
    )
    session.createDataFrame([], "kind STRING, label STRING").createOrReplaceTempView("kinds")
    return session


def _shape(session: SparkSession, query: str) -> Shape:
    plan = read_plan(run_query(session, query), _SOURCES)
    return plan if isinstance(plan, Whole) else classify(plan)


@pytest.mark.parametrize(("query", "expected"), _CASES, ids=[query for query, _ in _CASES])
def test_a_query_follows_the_changes_that_it_is_linear_in(
    session: SparkSession, query: str, expected: str
) -> None:
    shape = _shape(session, query)
    if expected.startswith("["):
        assert isinstance(shape, Whole)
        assert expected.strip("[]") in shape.reason
    else:
        kind, *sources = expected.split()
        assert type(shape).__name__.lower() == kind
        assert sorted(shape.linear) == sources


def test_what_a_query_reads_beside_its_sources_is_found(session: SparkSession) -> None:
    assert find_foreign(run_query(session, "SELECT * FROM pay"), _SOURCES) == ()
    session.range(1).createOrReplaceTempView("other")
    assert find_foreign(run_query(session, "SELECT id FROM pay JOIN other USING (id)"), _SOURCES) == (
        "other",
    )
    hidden = "SELECT id FROM pay WHERE id IN (SELECT id FROM other)"
    assert find_foreign(run_query(session, hidden), _SOURCES) == ("other",)


@pytest.mark.parametrize(
    "query", ["SELECT nobody FROM pay", "SELECT FROM WHERE", "DROP VIEW pay", "INSERT INTO pay VALUES (1)"]
)
def test_what_is_no_query_is_refused_and_not_carried_out(session: SparkSession, query: str) -> None:
    with pytest.raises(BadInput, match="query"):
        run_query(session, query)
    assert session.table("pay").count() == 0


def test_columns_of_a_group_are_keys_and_measures(session: SparkSession) -> None:
    shape = _shape(session, "SELECT sum(amount) AS s, kind AS k, max(id) AS m FROM pay GROUP BY kind, id % 2")
    assert isinstance(shape, Groups)
    assert [(key.name, key.sql) for key in shape.keys] == [
        ("k", "pay.kind"),
        ("_headgate_key0", "(pay.id % CAST(2 AS BIGINT))"),
    ]
    assert [(one.name, one.function, one.argument, one.type) for one in shape.measures] == [
        ("s", Function.SUM, "pay.amount", "decimal(22,2)"),
        ("m", Function.MAX, "pay.id", "bigint"),
    ]


def test_a_join_with_a_side_that_is_not_linear_is_linear_in_the_other() -> None:
    node = Node("Join", (_PAY, Node("Join", (_KINDS, _KINDS), join="INNER")), join="INNER")
    assert classify(node) == Rows(frozenset({"pay"}))
    assert find_sources(node) == {"pay", "kinds"}


def test_a_join_of_a_kind_that_is_not_known_is_not_followed() -> None:
    assert isinstance(classify(Node("Join", (_PAY, _KINDS), join="LEFT SINGLE")), Whole)


def test_a_clock_deep_inside_an_expression_is_found() -> None:
    clock = Expression("CurrentTimestamp", "current_timestamp()")
    call = Expression("Count", "count(1)", condition=Expression("GreaterThan", ">", children=(clock,)))
    assert isinstance(classify(Node("Project", (_PAY,), (call,))), Whole)


def _measure(function: Function, type_: str, result: str = "double") -> Measure:
    return Measure("m", function, "x", type_, result, 0)


def test_sums_of_exact_numbers_can_be_taken_back_and_others_not() -> None:
    assert _measure(Function.SUM, "decimal(12,2)", "decimal(22,2)").is_invertible
    assert _measure(Function.SUM, "bigint", "bigint").is_invertible
    assert _measure(Function.AVG, "int").is_invertible
    assert _measure(Function.COUNT, "double", "bigint").is_invertible
    assert not _measure(Function.SUM, "double").is_invertible
    assert not _measure(Function.AVG, "float").is_invertible
    assert not _measure(Function.MIN, "int", "int").is_invertible


def test_averages_of_decimals_have_a_bound_up_to_which_they_are_exact() -> None:
    assert _measure(Function.AVG, "decimal(12,2)").count_max == 10**12
    assert _measure(Function.AVG, "decimal(18,2)").count_max == 10**6
    assert _measure(Function.AVG, "bigint").count_max is None
    assert _measure(Function.SUM, "decimal(12,2)").count_max is None
