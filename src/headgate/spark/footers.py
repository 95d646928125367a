"""The files that Spark has written, as content files: found in their folder, described by their footers.

No row is read, but for a float column that has NaNs in it, and the first row of a partition with a very long value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow.parquet as pq
from pyarrow.fs import FileInfo, FileSelector, FileSystem

from headgate.client import describe_parquet
from headgate.client.changes import File
from headgate.spark.lake import TableState
from headgate.spark.partitions import Partitioned, decode_folder, decode_value

_THREADS_MAX = 16


@dataclass(frozen=True, slots=True)
class Written:
    """A folder of Parquet files as Spark leaves it: one folder in another for each partition field."""

    state: TableState
    location: str
    folders: tuple[Partitioned, ...]
    spec_id: int
    sort_order_id: int
    partition: Mapping[str, object] = field(default_factory=dict)  # of all of them, where no folder tells


def describe_files(written: Written) -> tuple[File, ...]:
    """The content files of a folder, in the order of their names; files without rows are removed."""
    filesystem, root = written.state.filesystem(written.location)
    found = sorted(_parquet_files(filesystem, root), key=lambda info: str(info.path))
    with ThreadPoolExecutor(min(_THREADS_MAX, max(1, len(found)))) as threads:
        files = list(threads.map(lambda info: _describe(written, filesystem, root, info), found))
    for file, info in zip(files, found, strict=True):
        if not file["record-count"]:
            filesystem.delete_file(info.path)
    return tuple(file for file in files if file["record-count"])


def _parquet_files(filesystem: FileSystem, root: str) -> Iterator[FileInfo]:
    for info in filesystem.get_file_info(FileSelector(root, allow_not_found=True, recursive=True)):
        if info.is_file and info.extension == "parquet":
            yield info


def _describe(written: Written, filesystem: FileSystem, root: str, info: FileInfo) -> File:
    inside = str(info.path)[len(root) :].lstrip("/")
    folders = inside.split("/")[:-1]
    return describe_parquet(
        info.path,
        written.state.raw,
        location=f"{written.location}/{inside}",
        partition={**written.partition, **_partition(written.folders, folders, filesystem, info.path)},
        spec_id=written.spec_id,
        sort_order_id=written.sort_order_id,
        filesystem=filesystem,
        reads_nans=True,
    )


def _partition(
    parts: Sequence[Partitioned], names: Sequence[str], filesystem: FileSystem, path: str
) -> dict[str, object]:
    found: dict[str, object] = {}
    for part, name in zip(parts, names, strict=True):
        try:
            found[part.field.name] = decode_folder(name, part.type)
        except KeyError:
            found[part.field.name] = _first_value(part, filesystem, path)
    return found


def _first_value(part: Partitioned, filesystem: FileSystem, path: str) -> object:
    """The value that all rows of the file share, for one that is too long for the name of a folder."""
    with pq.ParquetFile(path, filesystem=filesystem) as file:
        (batch,) = next(file.iter_batches(batch_size=1, columns=[".".join(part.source)])).to_pylist()
    value = batch
    for name in part.source:
        value = value[name]
    return decode_value(value, part.field, part.source_type)
