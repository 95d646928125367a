"""The result table of a view: which of its files a change concerns, and the commit of result and progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.expressions import BooleanExpression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from headgate.client import Committed
from headgate.client.changes import Changes
from headgate.core.isolation import Wire
from headgate.core.own_properties import VIEW_PROGRESS
from headgate.errors import BadInput
from headgate.spark.columns import spark_schema
from headgate.spark.lake import TableState
from headgate.spark.landing import land
from headgate.spark.runs import Run
from headgate.spark.scan import FILE, ScannedFile, plan
from headgate.spark.view_job import RUN_SUMMARY, Progress
from headgate.spark.view_merge import quoted
from headgate.spark.view_plan import PREFIX
from headgate.spark.view_sources import Meter, read_metered
from headgate.spark.writes import write_run

_KEYS_MAX = 2_000  # keys that files are pruned by; with more of them hardly a file is left out
_VALUES_MAX = 200  # of one IN that statistics are compared with
# Of these, values in Python mean what they mean in the table, whatever the time zone of this process.
_PRUNED = (
    spark.BooleanType,
    spark.ByteType,
    spark.ShortType,
    spark.IntegerType,
    spark.LongType,
    spark.StringType,
    spark.DateType,
    spark.DecimalType,
)


def find_files(
    session: SparkSession, state: TableState, keys: DataFrame, columns: Sequence[str], meter: Meter
) -> tuple[ScannedFile, ...]:
    """The files of the result that hold rows with these keys: pruned by statistics, then looked into."""
    wanted = keys.select(*(sf.col(quoted(name)) for name in columns)).distinct()
    found = wanted.limit(_KEYS_MAX + 1).collect() if columns else []
    if columns and not found:
        return ()
    expression = None if len(found) > _KEYS_MAX else _expression(found, wanted.schema)
    files = plan(state, row_filter=expression).files
    if len(files) < 2 or not columns or len(found) > _KEYS_MAX:
        return files
    rows = read_metered(session, files, state, meter, positions=True)
    few = session.createDataFrame(found, wanted.schema)
    same = [rows[quoted(name)].eqNullSafe(few[quoted(name)]) for name in columns]
    met = rows.join(sf.broadcast(few), on=same, how="left_semi").select(FILE).distinct().collect()
    paths = {row[0] for row in met}
    return tuple(scanned for scanned in files if scanned.path in paths)


def _expression(rows: Sequence[spark.Row], schema: spark.StructType) -> BooleanExpression | None:
    """What all these rows satisfy, as far as statistics can tell."""
    parts = [
        _one_of(field.name, {row[at] for row in rows})
        for at, field in enumerate(schema.fields)
        if isinstance(field.dataType, _PRUNED)
    ]
    if not parts:
        return None
    found: BooleanExpression = BooleanExpression.model_validate(reduce(_both, parts))
    return found


def _one_of(name: str, values: set[Any]) -> Wire:
    """A column has one of the values, in JSON."""
    known = sorted(values - {None})
    absent: Wire = {"type": "is-null", "term": name}
    if not known:
        return absent
    if len(known) <= _VALUES_MAX:
        inside: Wire = {"type": "in", "term": name, "values": [_json(value) for value in known]}
    else:
        low: Wire = {"type": "gt-eq", "term": name, "value": _json(known[0])}
        inside = _both(low, {"type": "lt-eq", "term": name, "value": _json(known[-1])})
    return {"type": "or", "left": absent, "right": inside} if None in values else inside


def _both(left: Wire, right: Wire) -> Wire:
    return {"type": "and", "left": left, "right": right}


def _json(value: Any) -> object:
    return str(value) if isinstance(value, date | Decimal) else value


def result_schema(rows: DataFrame) -> pa.Schema:
    """The columns of a result table for such rows. All may be null: what a query promises today it may not tomorrow."""
    fields = [spark.StructField(one.name, one.dataType, nullable=True) for one in rows.schema.fields]
    return to_arrow_schema(spark.StructType(fields))


def fit_result(state: TableState, rows: DataFrame) -> TableState:
    """The result table with columns for such rows: new and wider ones are added; one that the query lost is refused."""
    if lost := sorted(
        one.name
        for one in state.schema.fields
        if one.name not in rows.columns and not one.name.startswith(PREFIX)
    ):
        raise BadInput(
            f"column {lost[0]}: the query does not give it any more; drop {state.table.name} and create the view anew",
            field=lost[0],
        )
    have = {one.name: one.dataType.simpleString() for one in spark_schema(state.schema).fields}
    if all(have.get(one.name) == one.dataType.simpleString() for one in rows.schema.fields):
        return state
    table = state.table.lake.catalog().load_table(state.table.identifier)
    try:
        with table.update_schema() as update:
            update.union_by_name(result_schema(rows))
    except (ValueError, ValidationError) as error:
        raise BadInput(
            f"{state.table.name} cannot take the columns of the query: {error}", field="query"
        ) from error
    return state.table.load()


def put(
    state: TableState,
    run: Run,
    *,
    rows: DataFrame | None,
    remove: Sequence[str] | None,
    progress: Progress,
) -> Committed:
    """Write rows in the place of files (None: of all there are), and commit them with the progress.

    The progress names this run only if it makes a snapshot. The head of the result must still be the one that was
    read: two refreshes of one view would add the same rows twice, and so the second of them begins again.
    """
    files = () if rows is None else write_run(rows, state, run)
    head = state.snapshot_id()
    said: Mapping[str, str] = {RUN_SUMMARY: run.id}
    changes: Changes[Wire] = Changes(lambda update, _: update, lambda: state.properties)
    updates: list[Wire] = []
    if remove is None and head is not None:
        updates.append(changes.overwrite(add=files, row_filter=True, isolation=None, summary=said))
    elif remove:
        updates.append(changes.overwrite(add=files, remove=remove, isolation=None, summary=said))
    elif files:
        updates.append(changes.append(files, summary=said))
    if updates:
        progress = replace(progress, run=run.id)
    updates.append({"action": "set-properties", "updates": {VIEW_PROGRESS: progress.encode()}})
    requirements: list[Wire] = [
        {"type": "assert-table-uuid", "uuid": str(state.raw["table-uuid"])},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head},
    ]
    client = state.table.client
    return land(
        state.table,
        run,
        files,
        lambda key: client.commit(updates, requirements=requirements, key=key),
        state=state,
    )
