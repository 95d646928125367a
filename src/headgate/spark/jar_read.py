"""Files read through the Iceberg jar, with all their delete files applied.

Where it can, exactly the planned files: tasks are staged as the jar's own compaction stages its groups. Of a table with
row lineage that road hides `_file` and `_pos`; then the snapshot is read by name and other files' rows are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.errors import BadInput, InvariantBroken
from headgate.spark.expression_sql import quote_name
from headgate.spark.lake import TableState
from headgate.spark.native_read import FILE
from headgate.spark.scan_plan import ScannedFile, paths_of
from headgate.spark.session import JAR_CATALOG, has_jar_catalog

# Tasks stay staged while a frame may still be run, and nobody says when; a run of an older one is an error.
_STAGED_MAX = 256
_LINEAGE_VERSION = 3
_staged: deque[tuple[Any, Any, Any, str]] = deque()


def read_by_jar(
    spark: SparkSession,
    files: Sequence[ScannedFile],
    state: TableState,
    *,
    why: str,
    added: Sequence[str] = (),
) -> DataFrame:
    """The live rows of these files of one snapshot; `why` they need the jar is for the error when it is not there."""
    if not has_jar_catalog(spark, state.table.lake):
        raise BadInput(
            f"{files[0].path}: {why}, so it is read through the Iceberg jar, which this session has not; "
            "start it with build_session(…, jar=…, lake=…), or the command with --jar",
            field="session",
        )
    name = ".".join(quote_name(part) for part in (JAR_CATALOG, *state.table.identifier))
    if FILE in added and state.format_version >= _LINEAGE_VERSION:
        return _read_snapshot(spark, name, files, state, added)
    java: Any = spark._jvm
    table = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    tasks = java.java.util.ArrayList()
    wanted = set(paths_of(files))
    planned = table.newScan().useSnapshot(files[0].snapshot_id).planFiles()
    try:
        iterator = planned.iterator()
        while iterator.hasNext():
            task = iterator.next()
            if str(task.file().location()) in wanted:
                tasks.add(task)
    finally:
        planned.close()
    if tasks.size() != len(wanted):
        raise InvariantBroken(f"invariant broken: the jar plans {tasks.size()} of {len(wanted)} files")
    return spark.read.format("iceberg").load(_stage(spark, table, tasks))


def _read_snapshot(
    spark: SparkSession, name: str, files: Sequence[ScannedFile], state: TableState, added: Sequence[str]
) -> DataFrame:
    """A snapshot by its id, in the columns that the table had then: they must be the ones it has now."""
    snapshot = state.metadata.snapshot_by_id(files[0].snapshot_id)
    if snapshot is None or snapshot.schema_id != state.metadata.current_schema_id:
        raise BadInput(
            f"{files[0].path}: the columns of the table changed since its last commit, and the Iceberg jar reads "
            "its rows with the columns of then; append something, then run the job again",
            field="schema",
        )
    columns = ", ".join([*(quote_name(field.name) for field in state.schema.fields), *added])
    rows = spark.sql(f"SELECT {columns} FROM {name} VERSION AS OF {files[0].snapshot_id}")
    paths = spark.createDataFrame(pa.table([paths_of(files)], names=[FILE]))
    return rows.join(sf.broadcast(paths), on=FILE, how="left_semi")


def _stage(spark: SparkSession, table: Any, tasks: Any) -> str:
    """Make tasks known to the jar under a fresh name."""
    group = str(uuid4())
    java: Any = spark._jvm
    tables, sets = _table_cache(spark, table), java.org.apache.iceberg.spark.ScanTaskSetManager.get()
    tables.add(group, table)
    sets.stageTasks(table, group, tasks)
    _staged.append((tables, sets, table, group))
    while len(_staged) > _STAGED_MAX:
        old_tables, old_sets, old_table, old_group = _staged.popleft()
        old_sets.removeTasks(old_table, old_group)
        old_tables.remove(old_group)
    return group


def _table_cache(spark: SparkSession, table: Any) -> Any:
    """The jar's cache of tables that are being rewritten; py4j cannot tell its `get()` from its `get(String)`."""
    java: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    cache = table.getClass().getClassLoader().loadClass("org.apache.iceberg.spark.SparkTableCache")
    get = cache.getMethod("get", gateway.new_array(java.java.lang.Class, 0))
    return get.invoke(None, gateway.new_array(java.java.lang.Object, 0))
