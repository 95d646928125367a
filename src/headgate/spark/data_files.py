"""Rows to the data files of a table: Spark's own Parquet writer, then the footers for the commit.

Files go into a folder of the run's own, so that whatever a run leaves behind is known as its own. Nothing here
commits: until `landing` has, nobody sees the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import uuid4

from pyarrow.fs import FileType, LocalFileSystem
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, ListType, MapType, UUIDType
from pyspark.sql import DataFrame

from headgate.client.changes import File
from headgate.errors import BadInput, StorageFailed
from headgate.spark.arrow_road import write_by_arrow
from headgate.spark.columns import carry, fit
from headgate.spark.footers import Written, describe_files
from headgate.spark.lake import TableState
from headgate.spark.layout import arrange, folders_at_once, folders_of, rows_per_file
from headgate.spark.partitions import partition_columns
from headgate.spark.runs import Run
from headgate.spark.session import check_session, with_setting
from headgate.spark.writer_options import writer_options

NATIVE, PYTHON = "native", "python"
_COMMITTERS_FOLDER = "_temporary/0/_temporary"
_FOREIGN = (FixedType, ListType, MapType, UUIDType)


def write_files(
    df: DataFrame,
    state: TableState,
    run: Run,
    *,
    spec_id: int | None = None,
    extra: Sequence[str] = (),
    road: str | None = None,
    partition: Mapping[str, object] | None = None,
) -> tuple[File, ...]:
    """Write the rows as data files of the table; what there is to commit, described. Empty for no rows.

    `extra` names columns of row lineage that the files keep. `partition` is for rows that were read from one partition of
    the table: values in single-value JSON by the name of the partition field; nothing is checked, computed or distributed
    then. Without `road`, Spark's own writer is taken wherever it can write the table's types as Iceberg has them.
    """
    if road not in (None, NATIVE, PYTHON):
        raise BadInput(f"road: expected {NATIVE} or {PYTHON}, got {road!r}", field="road")
    spec = state.spec_by_id(spec_id)
    by_arrow = (road or road_of(state)) == PYTHON
    if partition is None or by_arrow:
        rows = fit(df, state, extra=extra)
        folders = folders_of(partition_columns(spec, state.schema))
    else:
        rows, folders = carry(df, state, extra=extra), ()
    arranged = arrange(rows, state, folders)
    order_id = state.sort_order.order_id  # 0 says that the rows are in no order
    location = f"{folder_of(state, run)}/{uuid4().hex[:8]}"
    if by_arrow:
        plain = arranged.drop(*(part.folder for part in folders))
        return write_by_arrow(
            plain, state, location, spec_id=spec.spec_id, sort_order_id=order_id, extra=extra
        )
    _check_native(state.schema)
    check_session(df.sparkSession)
    if folders:
        at_once = str(folders_at_once(state, folders))
        arranged = with_setting(arranged, "spark.sql.maxConcurrentOutputFileWriters", at_once)
    writer = arranged.write.options(**writer_options(state.properties))
    writer = writer.option("maxRecordsPerFile", rows_per_file(state))
    if folders:
        writer = writer.partitionBy(*(part.folder for part in folders))
    _make_folders(state, location)
    writer.mode("append").parquet(location)  # the folder is there, and is this call's own
    return describe_files(Written(state, location, folders, spec.spec_id, order_id, partition or {}))


def _make_folders(state: TableState, location: str) -> None:
    """On a disk, the folders that Spark's committer would make one by one, each with a process that sets its mode."""
    filesystem, path = state.filesystem(location)
    if isinstance(filesystem, LocalFileSystem):
        try:
            filesystem.create_dir(f"{path}/{_COMMITTERS_FOLDER}", recursive=True)
        except OSError as error:  # no room, no right, or a file in its way
            raise StorageFailed(f"{location}: {error}") from error


def road_of(state: TableState) -> str:
    """The faster road that writes this table's files right.

    Spark's writer gives no field ids to the elements of lists and maps, and readers lose columns of files that have
    ids in part; it has no bytes of fixed length; and on S3 it copies what it wrote, to rename it.
    """
    is_native = state.data_location.startswith(("file:", "/", "hdfs:")) and not _foreign(state.schema)
    return NATIVE if is_native else PYTHON


def discard_files(state: TableState, run: Run, files: Sequence[File] = ()) -> None:
    """Remove everything that a run has written: only for a run that certainly was not committed.

    `files` may be elsewhere than in the run's folder; one that is not there any more is no error.
    """
    folder = folder_of(state, run)
    filesystem, path = state.filesystem(folder)
    if filesystem.get_file_info(path).type is FileType.Directory:
        filesystem.delete_dir(path)
    for file in files:
        if not file["file-path"].startswith(f"{folder}/"):
            with suppress(FileNotFoundError):
                filesystem.delete_file(state.filesystem(file["file-path"])[1])


def folder_of(state: TableState, run: Run) -> str:
    """Where a run writes."""
    return f"{state.data_location}/{run.id}"


def _foreign(schema: Schema) -> list[str]:
    """Columns that Spark's own writer does not write as Iceberg has them."""
    types = {name: schema.find_type(name) for name in schema.column_names}
    return sorted(name for name, type_ in types.items() if isinstance(type_, _FOREIGN))


def _check_native(schema: Schema) -> None:
    if foreign := _foreign(schema):
        raise BadInput(
            f"road: Spark's own writer cannot write {', '.join(foreign)} as Iceberg has them; take road={PYTHON!r}",
            field="road",
        )
