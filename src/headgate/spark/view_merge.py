"""Changed rows into the rows of a result: DataFrames in, DataFrames out. Reads and writes no table.

A change is a bag of rows with a sign: how often each came, less how often it went. What came and went cancels out
first, so a file that was rewritten for one row weighs one row. Then

    rows     result + change                    as bags: a row that stands n times is written n times
    groups   state of the result + state of the change, added up group by group

Adding up is the same for a first build, where the result is empty and everything came. A group of which the state
cannot tell the answer (its minimum went) is reported, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from headgate.spark.view_plan import PREFIX, ROWS, Function, Groups, Measure, Rows
from headgate.spark.view_query import input_of

SIGN = f"{PREFIX}sign"


def changed_rows(query: DataFrame, shape: Rows | Groups, *, sign: int) -> DataFrame:
    """What a view is made of, over the rows that a query reads: its result, or the input of its aggregate."""
    if isinstance(shape, Rows):
        return query.withColumn(SIGN, sf.lit(sign).cast("bigint"))
    wanted = [f"{key.sql} AS {quoted(key.name)}" for key in shape.keys]
    for measure in shape.measures:
        argument = measure.argument
        if measure.function is Function.COUNT:
            argument = f"CASE WHEN ({argument}) IS NOT NULL THEN 1 END"
        wanted.append(f"{argument} AS {_argument(measure)}")
    return input_of(query).selectExpr(*wanted, f"CAST({sign} AS BIGINT) AS {SIGN}")


def cancel(changes: Sequence[DataFrame], *, has_went: bool) -> DataFrame:
    """The changes as one bag; rows that came as often as they went are not in it."""
    together = reduce(DataFrame.unionAll, changes)
    if not has_went:
        return together
    columns = [name for name in together.columns if name != SIGN]
    net = together.groupBy(*_columns(columns)).agg(sf.sum(SIGN).alias(SIGN))
    return net.where(sf.col(SIGN) != 0)


def find_incomparable(df: DataFrame) -> str | None:
    """A column whose values cannot be told apart by Spark, so that rows that went cannot be found."""
    for field in df.schema.fields:
        if _holds_map(field.dataType):
            return f"column {field.name} of type {field.dataType.simpleString()} cannot be compared"
    return None


# --- rows ---------------------------------------------------------------------------------------------------


def add_rows(change: DataFrame, stored: DataFrame | None) -> DataFrame:
    """The bag of rows that stands after a change, each with how often it stands."""
    columns = [name for name in change.columns if name != SIGN]
    if stored is None:
        return change
    before = stored.select(*_columns(columns)).withColumn(SIGN, sf.lit(1).cast("bigint"))
    return before.unionAll(change).groupBy(*_columns(columns)).agg(sf.sum(SIGN).alias(SIGN))


def repeat_rows(bag: DataFrame) -> DataFrame:
    """Every row as often as it stands."""
    copies = sf.explode(sf.array_repeat(sf.lit(1), sf.col(SIGN).cast("int")))
    return bag.select("*", copies.alias(f"{PREFIX}copy")).drop(SIGN, f"{PREFIX}copy")


def find_row_fault(bag: DataFrame) -> str | None:
    """A reason not to trust the bag: a row stands fewer than no times."""
    if bag.where(sf.col(SIGN) < 0).isEmpty():
        return None
    return "rows went that the result does not have"


# --- groups -------------------------------------------------------------------------------------------------


def state_of(change: DataFrame, shape: Groups) -> DataFrame:
    """The state of the groups of a change: what has to be added to theirs in the result."""
    sign = sf.col(SIGN)
    totals = [sf.sum(sign).alias(ROWS)]
    for measure in shape.measures:
        value = sf.col(_argument(measure))
        count = sf.sum(sf.when(value.isNotNull(), sign).otherwise(sf.lit(0)))
        came, went = sf.when(sign > 0, value), sf.when(sign < 0, value)
        match measure.function:
            case Function.COUNT:
                totals.append(count.alias(measure.name))
            case Function.SUM | Function.AVG:
                times = sign.cast("decimal(10,0)") if measure.sum_type.startswith("decimal") else sign
                product = (value.cast(measure.sum_type) * times).cast(measure.sum_type)
                totals.append(_sum(product, measure))
                totals.append(count.alias(measure.count_name))
                if not measure.is_invertible:
                    totals.append(sf.max(sf.when(went.isNotNull(), sf.lit(1))).alias(_went(measure)))
            case Function.MIN:
                totals += [sf.min(came).alias(name) for name in (measure.name, _came(measure))]
                totals.append(sf.min(went).alias(_went(measure)))
            case Function.MAX:
                totals += [sf.max(came).alias(name) for name in (measure.name, _came(measure))]
                totals.append(sf.max(went).alias(_went(measure)))
    return change.groupBy(*_columns(key.name for key in shape.keys)).agg(*totals)


def add_groups(change: DataFrame, stored: DataFrame | None, shape: Groups) -> DataFrame:
    """The groups that stand after a change, with all their columns and what `find_group_fault` looks at."""
    together = state_of(change, shape)
    if stored is not None:
        kept = [name for name in together.columns if name in stored.columns]
        together = stored.select(*_columns(kept)).unionByName(together, allowMissingColumns=True)
    totals = [sf.coalesce(sf.sum(ROWS), sf.lit(0)).alias(ROWS)]
    for measure in shape.measures:
        match measure.function:
            case Function.COUNT:
                totals.append(sf.coalesce(sf.sum(_column(measure.name)), sf.lit(0)).alias(measure.name))
            case Function.SUM | Function.AVG:
                totals.append(_sum(_column(_sum_column(measure)), measure))
                totals.append(sf.coalesce(sf.sum(measure.count_name), sf.lit(0)).alias(measure.count_name))
                if not measure.is_invertible:
                    totals.append(sf.max(_went(measure)).alias(_went(measure)))
            case Function.MIN:
                names = (measure.name, _came(measure), _went(measure))
                totals += [sf.min(_column(name)).alias(name) for name in names]
            case Function.MAX:
                names = (measure.name, _came(measure), _went(measure))
                totals += [sf.max(_column(name)).alias(name) for name in names]
    added = together.groupBy(*_columns(key.name for key in shape.keys)).agg(*totals)
    return added.select("*", *_averages(shape))


def shown_groups(added: DataFrame, shape: Groups, columns: Sequence[str]) -> DataFrame:
    """The groups as the result has them: without those of no rows, unless the group is all there is."""
    shown = added if not shape.keys else added.where(sf.col(ROWS) != 0)
    for measure in shape.measures:
        # The sum of nothing is null, and so are its extremes.
        count = measure.count_name if measure.function is Function.SUM else ROWS
        if measure.function in (Function.SUM, Function.MIN, Function.MAX):
            shown = shown.withColumn(measure.name, sf.when(sf.col(count) != 0, _column(measure.name)))
    return shown.select(*_columns(columns))


def stored_columns(shape: Groups, shown: Sequence[str]) -> tuple[str, ...]:
    """The columns of the result: the query's own, then ours."""
    hidden = [key.name for key in shape.keys if key.name not in shown]
    for measure in shape.measures:
        if measure.function is Function.AVG:
            hidden.append(measure.sum_name)
        if measure.function in (Function.AVG, Function.SUM):
            hidden.append(measure.count_name)
    return (*shown, *hidden, ROWS)


def find_group_fault(added: DataFrame, shape: Groups, *, has_went: bool) -> str | None:
    """A reason why the state does not tell the answer for some group."""
    faults = [(text, test) for text, test, needs_went in _faults(shape) if has_went or not needs_went]
    if not faults:
        return None
    row = added.agg(
        *(sf.max(test.cast("int")).alias(f"f{at}") for at, (_, test) in enumerate(faults))
    ).first()
    found = [text for at, (text, _) in enumerate(faults) if row is not None and row[at]]
    return found[0] if found else None


def _faults(shape: Groups) -> list[tuple[str, Column, bool]]:
    lives = sf.col(ROWS) > 0
    faults = [("rows went that the result does not have", sf.col(ROWS) < 0, True)]
    for measure in shape.measures:
        came, went, value = sf.col(_came(measure)), sf.col(_went(measure)), _column(measure.name)
        match measure.function:
            # An extreme that went is no loss when one as good came: rows often come back with another column changed.
            case Function.MIN:
                lost = (went <= value) & (came.isNull() | (came > went))
                faults.append((f"the minimum of {measure.name} went", lives & lost, True))
            case Function.MAX:
                lost = (went >= value) & (came.isNull() | (came < went))
                faults.append((f"the maximum of {measure.name} went", lives & lost, True))
            case Function.SUM | Function.AVG if not measure.is_invertible:
                reason = f"values of {measure.name} went, and binary fractions do not subtract exactly"
                faults.append((reason, lives & went.isNotNull(), True))
        if measure.count_max is not None:
            reason = f"{measure.name} averages too many decimals to be exact from their sum"
            faults.append((reason, sf.col(measure.count_name) >= measure.count_max, False))
    return faults


def _averages(shape: Groups) -> list[Column]:
    columns = []
    for measure in shape.measures:
        if measure.function is Function.AVG:
            total, count = sf.col(measure.sum_name), sf.col(measure.count_name)
            if measure.type == "double":
                total, count = total.cast("double"), count.cast("double")
            columns.append(sf.when(count != 0, (total / count).cast(measure.type)).alias(measure.name))
    return columns


def _sum(value: Column, measure: Measure) -> Column:
    return sf.sum(value).cast(measure.sum_type).alias(_sum_column(measure))


def _sum_column(measure: Measure) -> str:
    return measure.name if measure.function is Function.SUM else measure.sum_name


def _argument(measure: Measure) -> str:
    return f"{PREFIX}a{measure.number}"


def _came(measure: Measure) -> str:
    return f"{PREFIX}came{measure.number}"


def _went(measure: Measure) -> str:
    return f"{PREFIX}went{measure.number}"


def _columns(names: Iterable[str]) -> list[Column]:
    return [_column(name) for name in names]


def _column(name: str) -> Column:
    return sf.col(quoted(name))


def quoted(name: str) -> str:
    """A column's name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def _holds_map(type_: spark.DataType) -> bool:
    if isinstance(type_, spark.MapType | spark.VariantType):
        return True
    if isinstance(type_, spark.ArrayType):
        return _holds_map(type_.elementType)
    return isinstance(type_, spark.StructType) and any(_holds_map(field.dataType) for field in type_.fields)
