"""Planned files as rows: by Spark's own Parquet reader where it means what Iceberg means, else through the jar.

The jar is for equality deletes, for other formats than Parquet, for files that know their columns by name only, and for
names inside structs that stood for another column once. Then exactly the files in question are read, never the
whole table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce

from pyiceberg.types import BinaryType, FixedType, UUIDType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.core.manifest import FileContent
from headgate.spark.expression_sql import quote_name
from headgate.spark.jar_read import read_by_jar
from headgate.spark.lake import TableState
from headgate.spark.native_read import FILE, POSITION, added_columns, read_natively
from headgate.spark.scan_plan import Scan, ScannedFile, plan

__all__ = ["FILE", "POSITION", "Scan", "ScannedFile", "plan", "read", "why_by_jar"]

_PATTERN = re.compile(r"[*?\[\]{}\\]")
_HIDDEN = re.compile(r"/[_.][^/]*$")
_NAME_MAPPING = "schema.name-mapping.default"


def read(
    spark: SparkSession,
    files: Sequence[ScannedFile],
    state: TableState,
    *,
    positions: bool = False,
    lineage: bool = False,
) -> DataFrame:
    """The live rows of these files, in the table's columns; with `_file` and `_pos`, and with row ids, if asked for."""
    every = _why_all(state)
    reasons = [every or _why_file(scanned) for scanned in files]
    by_jar = [one for one, why in zip(files, reasons, strict=True) if why is not None]
    plain = [one for one, why in zip(files, reasons, strict=True) if why is None]
    parts = []
    if plain or not by_jar:
        parts.append(read_natively(spark, plain, state, positions=positions, lineage=lineage))
    if by_jar:
        why = next(why for why in reasons if why is not None)
        added = added_columns(positions=positions, lineage=lineage)
        columns = [sf.col(quote_name(field.name)) for field in state.schema.fields]
        parts.append(read_by_jar(spark, by_jar, state, why=why, added=added).select(*columns, *added))
    return reduce(DataFrame.unionByName, parts)


def why_by_jar(scanned: ScannedFile, state: TableState) -> str | None:
    """Why Spark's own reader would not read the file as Iceberg means it; None when it would."""
    return _why_all(state) or _why_file(scanned)


def _why_file(scanned: ScannedFile) -> str | None:
    if any(one.content is FileContent.EQUALITY_DELETES for one in scanned.deletes):
        return "it has equality deletes"
    if scanned.file.file_format != "PARQUET":
        return f"it is of the format {scanned.file.file_format.lower()}"
    if _PATTERN.search(scanned.path) or _HIDDEN.search(scanned.path):
        return "Spark would take its name for a pattern, or for a hidden file"
    return None


def _why_all(state: TableState) -> str | None:
    """What stands in the way for all files of the table."""
    if _NAME_MAPPING in state.properties:
        return f"the table has {_NAME_MAPPING}"
    top = {field.field_id for field in state.schema.fields}
    for field in state.schema.fields:
        if field.initial_default is not None and isinstance(
            field.field_type, BinaryType | FixedType | UUIDType
        ):
            return f"column {field.name} has a default of type {field.field_type}"
    inner: dict[str, int] = {}
    for schema in state.metadata.schemas:
        for id_ in schema.field_ids:
            if id_ in {field.field_id for field in schema.fields} | top:
                continue
            name = schema.find_column_name(id_) or ""
            if inner.setdefault(name, id_) != id_:
                return f"the name {name} stood for another column once"
            column = schema.find_field(id_)
            if column.initial_default is not None or isinstance(column.field_type, UUIDType):
                return f"column {name} has a default, or is a UUID, inside another"
    return None
