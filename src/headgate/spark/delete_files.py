"""Delete files from the positions of rows: position deletes in format version 2, deletion vectors in version 3.

Written by executors, one task for all positions of a data file, so that each data file gets one delete file; by the
driver itself where the scanned files are small, because executors need longer to start Python than it takes. What
was deleted from it before is put into the new file, and the old one goes: a data file may have one vector only, and
many small position delete files are slow to read. The names have the run and the attempt in them; a file of an
attempt that failed is never committed.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.client.changes import File
from headgate.core.delete_index import referenced_data_file
from headgate.core.manifest import ContentFile, FileContent
from headgate.core.write_modes import VECTORS_VERSION
from headgate.errors import BadInput, StorageFailed
from headgate.library.delete_files import (
    BY_FILE,
    encode_positions,
    encode_vectors,
    granularity_of,
    reference_to,
)
from headgate.spark.data_files import folder_of
from headgate.spark.delete_positions import Previous, load_positions, previous_of
from headgate.spark.lake import filesystem_of
from headgate.spark.runs import Run
from headgate.spark.scan import FILE, POSITION, Scan, ScannedFile

_GROUP, _POSITIONS, _MADE = "__group", "__positions", "__made"
_VECTORS_MAX = 1_000  # in one Puffin file
DRIVER_ROWS_MAX = 1_000_000  # rows of all scanned files: no more than so many positions come to the driver


@dataclass(frozen=True)
class Deletes:
    """Delete files to commit, those that they take the place of, and the data files that they are for."""

    add: tuple[File, ...] = ()
    remove: tuple[File, ...] = ()
    referenced: tuple[str, ...] = ()
    rows: int = 0  # that were not deleted before


@dataclass(frozen=True, slots=True)
class _Target:
    """A data file that rows are deleted from: all that a task must know of it."""

    path: str
    group: int  # files of one group may share a delete file
    spec_id: int
    partition: tuple[object, ...]
    previous: tuple[Previous, ...]  # delete files that it has already


@dataclass(frozen=True, slots=True)
class _Job:
    """What every task gets: plain values only."""

    targets: Mapping[str, _Target]
    folder: str
    storage: Mapping[str, str]
    vectors: bool


def write_deletes(rows: DataFrame, scan: Scan, run: Run) -> Deletes:
    """Write the delete files for rows given by `_file` and `_pos`, which were read by the scan."""
    state = scan.state
    vectors = state.format_version >= VECTORS_VERSION
    by_file = vectors or granularity_of(state.properties) == BY_FILE
    scanned = {one.path: one for one in scan.files}
    targets = _targets(scan, by_file=by_file, vectors=vectors)
    job = _Job(targets, folder_of(state, run), state.storage, vectors)
    placed = rows.groupBy(FILE).agg(sf.collect_list(POSITION).alias(_POSITIONS))
    if sum(one.file.record_count for one in scan.files) <= DRIVER_ROWS_MAX:
        made = _write_here(placed, job)
    else:
        made = _write_there(placed, job, by_file=by_file)
    referenced = tuple(path for _, paths, _ in made for path in paths)
    removed = {
        old.identity: old
        for path in referenced
        for old in _merged(scanned[path], by_file=by_file, vectors=vectors)
        if referenced_data_file(old) == path  # others may be for more data files than this one
    }
    return Deletes(
        add=tuple(file for file, _, _ in made),
        remove=tuple(reference_to(old) for old in removed.values()),
        referenced=referenced,
        rows=sum(count for _, _, count in made),
    )


def _write_here(placed: DataFrame, job: _Job) -> list[_Made]:
    """By this process: files of one group one after the other."""
    rows = [row for batch in placed.toArrow().to_batches() for row in _read_batch(batch)]
    groups = {path: target.group for path, target in job.targets.items()}
    return list(_write_task(job, sorted(rows, key=lambda row: (groups.get(row[0], -1), row[0]))))


def _write_there(placed: DataFrame, job: _Job, *, by_file: bool) -> list[_Made]:
    """By executors."""
    if not by_file:
        # The files of a group in one task, one after the other.
        names, numbers = zip(*((one.path, one.group) for one in job.targets.values()), strict=True)
        groups = placed.sparkSession.createDataFrame(pa.table([names, numbers], names=[FILE, _GROUP]))
        joined = placed.join(sf.broadcast(groups), on=FILE, how="left")
        placed = joined.repartition(sf.col(_GROUP)).sortWithinPartitions(_GROUP, FILE)
    ordered = placed.select(FILE, _POSITIONS)
    told = ordered.mapInArrow(partial(_write_batches, job), f"{_MADE} binary").collect()
    return [pickle.loads(row[_MADE]) for row in told]  # by our own tasks


def _targets(scan: Scan, *, by_file: bool, vectors: bool) -> dict[str, _Target]:
    groups: dict[object, int] = {}
    found: dict[str, _Target] = {}
    for one in scan.files:
        key = one.path if by_file else (one.spec_id, repr(one.partition))
        found[one.path] = _Target(
            path=one.path,
            group=groups.setdefault(key, len(groups)),
            spec_id=one.spec_id,
            partition=tuple(scan.partition_wire(one)),
            previous=tuple(previous_of(old) for old in _merged(one, by_file=by_file, vectors=vectors)),
        )
    return found


def _merged(scanned: ScannedFile, *, by_file: bool, vectors: bool) -> tuple[ContentFile, ...]:
    """Which of its deletes go into the new file: a vector hides all position deletes, so it must have them all."""
    positional = tuple(one for one in scanned.deletes if one.content is FileContent.POSITION_DELETES)
    if vectors:
        return positional
    return tuple(one for one in positional if by_file and referenced_data_file(one) == scanned.path)


# --- on executors -------------------------------------------------------------------------------------------

_Made = tuple[dict[str, Any], tuple[str, ...], int]  # a content file, its data files, rows newly deleted


def _write_batches(job: _Job, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The delete files of one task, a row for each."""
    rows = (row for batch in batches for row in _read_batch(batch))
    made = [pickle.dumps(one) for one in _write_task(job, rows)]
    yield pa.record_batch([pa.array(made, pa.binary())], names=[_MADE])


def _read_batch(batch: pa.RecordBatch) -> Iterator[tuple[str, BitMap64]]:
    """Each data file, and the positions in it; they stay packed, because there may be millions."""
    paths, lists = batch.columns
    numbers, offsets = lists.values.to_numpy(zero_copy_only=False), lists.offsets.to_pylist()
    for at, path in enumerate(paths.to_pylist()):
        packed = array("Q")
        packed.frombytes(numbers[offsets[at] : offsets[at + 1]].tobytes())
        yield path, BitMap64(packed)


def _write_task(job: _Job, rows: Iterable[tuple[str, BitMap64]]) -> Iterator[_Made]:
    waiting: dict[str, BitMap64] = {}
    fresh, group = 0, None
    for path, now in rows:
        target = job.targets.get(path)
        if target is None:
            raise BadInput(f"{path}: rows of a file that was not scanned", field=FILE)
        full = len(waiting) >= _VECTORS_MAX if job.vectors else group not in (None, target.group)
        if full:
            yield from _write(job, waiting, fresh)
            waiting, fresh = {}, 0
        group = target.group
        before = load_positions(target.path, target.previous, job.storage)
        fresh += now.difference_cardinality(before)
        waiting[target.path] = now | before
    if waiting:
        yield from _write(job, waiting, fresh)


def _write(job: _Job, deleted: Mapping[str, BitMap64], fresh: int) -> Iterator[_Made]:
    if job.vectors:
        yield from _write_vectors(job, deleted, fresh)
    else:
        yield _write_positions(job, deleted, fresh)


def _write_vectors(job: _Job, deleted: Mapping[str, BitMap64], fresh: int) -> Iterator[_Made]:
    location = f"{job.folder}/deletes-{uuid4().hex}.puffin"
    content, fields = encode_vectors(deleted)
    _store(job, location, content)
    for path, described in fields.items():
        yield _placed(job.targets[path], location, described), (path,), fresh
        fresh = 0  # counted once for the whole file


def _write_positions(job: _Job, deleted: Mapping[str, BitMap64], fresh: int) -> _Made:
    location = f"{job.folder}/deletes-{uuid4().hex}.parquet"
    content, described = encode_positions(deleted)
    _store(job, location, content)
    paths = tuple(sorted(deleted))
    return _placed(job.targets[paths[0]], location, described), paths, fresh


def _placed(target: _Target, location: str, described: dict[str, Any]) -> dict[str, Any]:
    """A delete file has the spec and partition of its data, whatever the table's spec is by now."""
    place = {"file-path": location, "spec-id": target.spec_id, "partition": list(target.partition)}
    return {**described, **place}


def _store(job: _Job, location: str, content: bytes) -> None:
    filesystem, path = filesystem_of(location, job.storage)
    try:
        if filesystem.type_name == "local":
            filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
        with filesystem.open_output_stream(path) as sink:
            sink.write(content)
    except OSError as error:
        raise StorageFailed(f"{location}: {error}") from error
