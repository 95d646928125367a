"""Which rows of the table a merge can match at all: what its condition says of the table, and the range of its keys.

A file, or somebody's commit, that has no key between the smallest and the largest of the source has no part in the
merge: the one is not read, the other is no conflict. That is narrower than the scan of an engine that joins first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark_types

from headgate.format.content_files import encode_value
from headgate.spark.catalyst import each, id_of, join_all, kind_of, read_plan, split_conjuncts
from headgate.spark.expression_sql import quote_name
from headgate.spark.filters import empty_rows
from headgate.spark.lake import TableState
from headgate.spark.merge_clauses import SOURCE, TARGET

KEYS_MAX = 100  # so many different keys are named one by one
_FACTS, _DOUBT = (
    3,
    1.2,
)  # facts that are asked of each key; an estimate of their number may be so much too high
_WHOLE = (
    spark_types.ByteType,
    spark_types.ShortType,
    spark_types.IntegerType,
    spark_types.LongType,
    spark_types.DecimalType,
)
# Types of the source whose values, brought to the table's type, are the only ones that can equal them.
_FAMILIES: Mapping[type[IcebergType], tuple[type[spark_types.DataType], ...]] = {
    IntegerType: _WHOLE,
    LongType: _WHOLE,
    DecimalType: _WHOLE,
    DateType: (spark_types.DateType,),
    StringType: (spark_types.StringType,),
    TimestampType: (spark_types.TimestampNTZType,),
    TimestamptzType: (spark_types.TimestampType,),
}
_DDL: Mapping[type[IcebergType], str] = {
    IntegerType: "int",
    LongType: "bigint",
    DateType: "date",
    StringType: "string",
    TimestampType: "timestamp_ntz",
    TimestamptzType: "timestamp",
}


@dataclass(frozen=True, slots=True)
class _Key:
    """A column of the table that must equal a column of the source."""

    name: str
    type: IcebergType
    values: Column  # of the source, as the table's type; null for what no value of it can equal


def find_scope(state: TableState, source: DataFrame, on: str) -> object:
    """What every row of the table that the condition can match satisfies, as an expression in JSON."""
    target = empty_rows(source.sparkSession, state)
    joined = target.alias(TARGET).join(source.alias(SOURCE), on=sf.expr(on), how="inner")
    join = _find_join(joined._jdf.queryExecution().optimizedPlan())
    if join is None:
        return True
    relation = target._jdf.queryExecution().analyzed().output()
    said = read_plan(join.left(), relation, state.schema).wire
    return join_all([said, *_ranges(source, list(_keys(join, relation, source, state)))])


def _find_join(plan: Any) -> Any | None:
    while kind_of(plan) in ("Project", "Filter"):
        plan = plan.child()
    return plan if kind_of(plan) == "Join" else None


def _keys(join: Any, relation: Any, source: DataFrame, state: TableState) -> Iterator[_Key]:
    """The equalities of a join between a column of the table and one of the source."""
    condition = join.condition()
    if condition.isEmpty():
        return
    ours = {id_of(one): str(one.name()) for one in each(relation)}
    output = source._jdf.queryExecution().analyzed().output()
    theirs = {id_of(one): str(one.name()) for one in each(output)}
    for part in split_conjuncts(condition.get()):
        if kind_of(part) != "EqualTo":
            continue
        sides = [
            id_of(attribute) for side in (part.left(), part.right()) if (attribute := _bare(side)) is not None
        ]
        name = next((ours[id_] for id_ in sides if id_ in ours), None)
        other = next((theirs[id_] for id_ in sides if id_ in theirs), None)
        if name is None or other is None:
            continue
        type_ = state.schema.find_field(name).field_type
        kinds = _FAMILIES.get(type(type_), ())
        if isinstance(source.schema[other].dataType, kinds):
            yield _Key(name, type_, sf.col(quote_name(other)).try_cast(_ddl(type_)))


def _bare(node: Any) -> Any | None:
    """The attribute below casts: whether they lose anything is for the types to say."""
    while kind_of(node) == "Cast":
        node = node.child()
    return node if kind_of(node) == "AttributeReference" else None


def _ranges(source: DataFrame, keys: list[_Key]) -> list[object]:
    """What each key can be: one of few values, or between two."""
    if not keys:
        return []
    columns = [_number(key).alias(f"k{n}") for n, key in enumerate(keys)]
    facts = [fact for one in columns for fact in (sf.min(one), sf.max(one), sf.approx_count_distinct(one))]
    ends = source.agg(*facts).first()
    if ends is None:
        return []
    if max(ends[2::_FACTS]) <= KEYS_MAX * _DOUBT:
        few = source.select(columns).distinct().limit(KEYS_MAX + 1).collect()
        if len(few) <= KEYS_MAX:
            return [_among(key, {row[n] for row in few if row[n] is not None}) for n, key in enumerate(keys)]
    return [_between(key, ends[_FACTS * n], ends[_FACTS * n + 1]) for n, key in enumerate(keys)]


def _among(key: _Key, values: set[Any]) -> object:
    encoded = sorted((_encode(key, value) for value in values), key=repr)
    if not encoded:
        return False  # null equals nothing
    if len(encoded) == 1:
        return {"type": "eq", "term": key.name, "value": encoded[0]}
    return {"type": "in", "term": key.name, "values": encoded}


def _between(key: _Key, low: Any, high: Any) -> object:
    if low is None:
        return False
    return join_all(
        [
            {"type": "gt-eq", "term": key.name, "value": _encode(key, low)},
            {"type": "lt-eq", "term": key.name, "value": _encode(key, high)},
        ]
    )


def _number(key: _Key) -> Column:
    """A key as manifests store it: times are numbers."""
    match key.type:
        case DateType():
            return sf.unix_date(key.values)
        case TimestamptzType():
            return sf.unix_micros(key.values)
        case TimestampType():
            return sf.unix_micros(key.values.cast("timestamp"))  # the zone of our sessions is UTC
        case _:
            return key.values


def _encode(key: _Key, value: Any) -> object:
    return f"{value:f}" if isinstance(value, Decimal) else encode_value(key.type, value)


def _ddl(type_: IcebergType) -> str:
    if isinstance(type_, DecimalType):
        return f"decimal({type_.precision}, {type_.scale})"
    return _DDL[type(type_)]
