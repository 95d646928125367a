"""The positions that delete files name: vectors from Puffin files, position deletes from Parquet."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.core.manifest import ContentFile
from headgate.errors import BadInput, StorageFailed
from headgate.format.deletion_vectors import decode_vector
from headgate.spark.lake import filesystem_of

_TASKS_MAX = 64
_DRIVER_ROWS_MAX = 100_000  # so many positions are loaded by the driver itself
_READERS = 8  # files that it reads at the same time


@dataclass(frozen=True, slots=True)
class Previous:
    """A delete file that a data file has: all that is needed to read it."""

    location: str
    offset: int | None  # of a vector in its Puffin file
    size_bytes: int | None


def previous_of(delete: ContentFile) -> Previous:
    """The place of a delete file; BadInput when it is of a format that has no reader here."""
    if not delete.is_dv and delete.file_format != "PARQUET":
        raise BadInput(
            f"{delete.file_path}: a delete file of the format {delete.file_format.lower()} cannot be read",
            field="file-format",
        )
    return Previous(delete.file_path, delete.content_offset, delete.content_size_in_bytes)


def load_positions(path: str, deletes: Iterable[Previous], storage: Mapping[str, str]) -> BitMap64:
    """The rows of a data file that these delete files delete."""
    found = BitMap64()
    for old in deletes:
        filesystem, place = filesystem_of(old.location, storage)
        try:
            with filesystem.open_input_file(place) as file:
                if old.offset is not None and old.size_bytes is not None:
                    file.seek(old.offset)
                    found |= decode_vector(file.read(old.size_bytes), location=old.location)
                    continue
                rows = pq.read_table(file, columns=["file_path", "pos"])
        except pa.ArrowInvalid as error:
            raise BadInput(f"not a Parquet file: {old.location}; {error}", location=old.location) from error
        except OSError as error:
            raise StorageFailed(f"{old.location}: {error}") from error
        own = rows.filter(pc.equal(rows["file_path"], path))["pos"].to_pylist()
        found |= BitMap64(array("Q", own))
    return found


Target = tuple[int, str, tuple[Previous, ...]]  # a number for the data file, its path, its delete files


def deleted_rows(
    spark: SparkSession,
    targets: list[Target],
    storage: Mapping[str, str],
    *,
    count: int,
    number: str,
    position: str,
) -> DataFrame:
    """A row with the data file's number and the position for every row that is deleted; `count` is about how many."""
    if count <= _DRIVER_ROWS_MAX:  # executors would need longer to start Python
        with ThreadPoolExecutor(_READERS) as threads:
            parts = list(threads.map(lambda one: load_positions(one[1], one[2], storage), targets))
        numbers = [
            pa.repeat(pa.scalar(one[0], pa.int32()), len(part))
            for one, part in zip(targets, parts, strict=True)
        ]
        positions = [pa.array(part.to_array(), pa.int64()) for part in parts]
        table = pa.table([pa.chunked_array(numbers), pa.chunked_array(positions)], names=[number, position])
        return spark.createDataFrame(table)
    tasks = spark.sparkContext.parallelize(targets, min(len(targets), _TASKS_MAX))
    rows = tasks.mapPartitions(partial(_load_task, dict(storage)))
    frame = spark.createDataFrame(rows, f"{number} int, positions array<bigint>", verifySchema=False)
    return frame.select(number, sf.explode("positions").alias(position))


def _load_task(storage: Mapping[str, str], targets: Iterable[Target]) -> Iterator[tuple[int, list[int]]]:
    for number, path, deletes in targets:
        yield number, load_positions(path, deletes, storage).to_array().tolist()
