"""The sources of a pipeline as DataFrames, and its transform over them. Reads lazily: nothing runs here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headgate.errors import BadInput, HeadgateError
from headgate.spark import demo_source
from headgate.spark.data_source import register
from headgate.spark.lake import Lake
from headgate.spark.pipeline_spec import FILE_FORMATS, SourceSpec, TransformSpec
from headgate.spark.scan import plan, read
from headgate.spark.spark_errors import spark_errors_as_ours
from headgate.spark.view_query import run_query

# A row that cannot be read stops the job: by default Spark would make it nulls, and nobody would be told.
_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "csv": {"header": "true", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
}


def open_sources(
    session: SparkSession, lake: Lake, sources: Mapping[str, SourceSpec], *, streaming: bool
) -> dict[str, DataFrame]:
    """Each source as rows; in a stream, those that are not static come as they arrive."""
    register(session)
    found = {}
    for name, source in sources.items():
        with spark_errors_as_ours(f"sources.{name}"):
            if source.table is not None:
                found[name] = _read_table(session, lake, source)
            elif streaming and not source.static:
                found[name] = _read_stream(session, name, source)
            else:
                found[name] = _read_once(session, name, source)
    return found


def transform_sources(
    session: SparkSession, frames: Mapping[str, DataFrame], transform: TransformSpec
) -> DataFrame:
    """What the transform makes of the sources."""
    if transform.sql is not None:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        try:
            return run_query(session, transform.sql)
        except BadInput as error:
            raise BadInput(
                f"transform.sql: {error.message.removeprefix('query: ')}", field="transform.sql"
            ) from error
    if transform.function is not None:
        with spark_errors_as_ours("transform"):
            return _call(transform.function, session, frames)
    (only,) = frames.values()
    return only


def _read_table(session: SparkSession, lake: Lake, source: SourceSpec) -> DataFrame:
    state = lake.table(str(source.table)).load(all_snapshots=source.snapshot_id is not None)
    scan = plan(state, snapshot_id=source.snapshot_id, branch=source.branch)
    return read(session, scan.files, state)


def _read_once(session: SparkSession, name: str, source: SourceSpec) -> DataFrame:
    if source.format == demo_source.FORMAT:
        raise BadInput(
            f"sources.{name}: {demo_source.FORMAT} has no end; it goes with schedule.run = 'stream'",
            field=f"sources.{name}.format",
        )
    options = {**_defaults(source), **source.options}
    if source.format == "csv" and source.schema is None:
        options = {"inferSchema": "true", **options}
    reader = session.read.format(str(source.format)).options(**options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    return reader.load(list(source.paths)) if source.paths else reader.load()


def _read_stream(session: SparkSession, name: str, source: SourceSpec) -> DataFrame:
    if source.format in FILE_FORMATS and source.schema is None:
        raise BadInput(
            f"sources.{name}.schema: needed: a stream of files does not guess its columns, as in "
            'schema = "id BIGINT, name STRING"',
            field=f"sources.{name}.schema",
        )
    if len(source.paths) > 1:
        raise BadInput(
            f"sources.{name}.path: a stream has one; it may be a pattern", field=f"sources.{name}.path"
        )
    reader = session.readStream.format(str(source.format))
    reader = reader.options(**{**_defaults(source), **source.options})
    if source.schema is not None:
        reader = reader.schema(source.schema)
    return reader.load(*source.paths)


def _defaults(source: SourceSpec) -> Mapping[str, str]:
    return _DEFAULTS.get(str(source.format), {})


def _call(function: Callable[..., Any], session: SparkSession, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Call with the sources that its parameters name, and with the session if it asks for `spark`."""
    known = {"spark": session, **frames}
    taken: dict[str, object] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            taken |= {name: frame for name, frame in frames.items() if name not in taken}
        elif parameter.name in known and parameter.kind is not parameter.POSITIONAL_ONLY:
            taken[parameter.name] = known[parameter.name]
        elif parameter.default is parameter.empty:
            raise BadInput(
                f"transform: parameter {parameter.name} of {function.__name__} is no source; "
                f"there are spark, {', '.join(frames)}",
                field="transform",
            )
    try:
        result = function(**taken)
    except (HeadgateError, PySparkException, Py4JError):
        raise
    except Exception as error:  # outermost edge of code that is not ours
        raise BadInput(
            f"transform: {function.__name__} raised {type(error).__name__}: {error}", field="transform"
        ) from error
    if not isinstance(result, DataFrame):
        raise BadInput(
            f"transform: {function.__name__} gave {type(result).__name__}, not a DataFrame", field="transform"
        )
    return result
