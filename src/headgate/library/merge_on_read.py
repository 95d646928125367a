"""Deleting rows by their positions: which rows a filter matches, and the delete files that hide them.

What was deleted from a data file before is put into its new delete file, and the old one goes: a data file may have one
vector only, and many small position delete files are slow to read. A file that has no row left goes whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import FileScanTask
from pyiceberg.table.locations import load_location_provider
from pyroaring import BitMap64

from headgate.client.changes import File
from headgate.core.write_modes import VECTORS_VERSION
from headgate.library.data_files import to_content_file
from headgate.library.delete_files import BY_FILE, encode_positions, encode_vectors, granularity_of
from headgate.library.reading import Reading
from headgate.library.staged import RowDeletes
from headgate.library.steps import Written

_VECTORS_MAX = 1_000  # in one Puffin file


@dataclass
class Made:
    """Delete files to add and those that they take the place of, data files that go whole, and what is deleted."""

    add: list[File] = field(default_factory=list)
    remove: list[File] = field(default_factory=list)
    remove_data: list[str] = field(default_factory=list)
    deletes: dict[str, RowDeletes] = field(default_factory=dict)


def write_deletes(written: Written, row_filter: BooleanExpression) -> Made:
    """Write the delete files for the rows of a filter."""
    reading, made = written.reading, Made()
    found: dict[str, tuple[FileScanTask, BitMap64]] = {}
    for task, gone in _find_rows(reading, row_filter):
        if gone is None:
            made.remove_data.append(task.file.file_path)
        else:
            found[task.file.file_path] = task, gone
    if not found:
        return made
    vectors = reading.table.envelope.format_version >= VECTORS_VERSION
    for group in _groups(reading, found, vectors=vectors):
        deleted = {path: found[path][1] for path in group}
        for file in _write_vectors(written, deleted) if vectors else _write_positions(written, deleted):
            # Without one data file of its own it is for a group, which is of one partition.
            task, _ = found[str(file.get("referenced-data-file", group[0]))]
            made.add.append({**file, **_place(written, task)})
    alone = {str(file["referenced-data-file"]): file for file in made.add if "referenced-data-file" in file}
    old = reading.own_deletes(frozenset(found))
    for path, (_, gone) in found.items():
        made.remove += old.get(path, [])
        made.deletes[path] = RowDeletes(gone, alone.get(path))
    return made


def _place(written: Written, task: FileScanTask) -> dict[str, Any]:
    """A delete file has the spec and partition of its data, whatever the table's spec is by now."""
    (file,) = written.wire([task.file])
    return {name: file[name] for name in ("spec-id", "partition")}


def _find_rows(
    reading: Reading, row_filter: BooleanExpression
) -> Iterator[tuple[FileScanTask, BitMap64 | None]]:
    """Files with live rows of the filter, each with all its deleted positions; None when no row is left."""
    judge = reading.to_row_filter(row_filter)
    for task in reading.plan(row_filter):
        if judge.all_rows_match(to_content_file(task.file, reading.table)):
            yield task, None
            continue
        matched, count = reading.find_positions(task, row_filter)
        before = reading.deleted_positions(task)
        if matched.difference_cardinality(before):
            gone = matched | before
            yield task, None if len(gone) == count else gone


def _groups(
    reading: Reading, found: Mapping[str, tuple[FileScanTask, BitMap64]], *, vectors: bool
) -> Iterator[Sequence[str]]:
    """Data files whose deletes go into one file."""
    paths = sorted(found)
    if vectors:
        yield from (paths[i : i + _VECTORS_MAX] for i in range(0, len(paths), _VECTORS_MAX))
    elif granularity_of(reading.properties) == BY_FILE:
        yield from ([path] for path in paths)
    else:
        groups: dict[object, list[str]] = {}
        for path in paths:
            content = to_content_file(found[path][0].file, reading.table)
            groups.setdefault((content.spec_id, content.partition), []).append(path)
        yield from groups.values()


def _write_vectors(written: Written, deleted: Mapping[str, BitMap64]) -> list[File]:
    content, fields = encode_vectors(deleted)
    location = _location(written.reading, "puffin")
    written.keep(location, content)
    return [{**described, "file-path": location} for described in fields.values()]


def _write_positions(written: Written, deleted: Mapping[str, BitMap64]) -> list[File]:
    content, described = encode_positions(deleted)
    location = _location(written.reading, "parquet")
    written.keep(location, content)
    return [{**described, "file-path": location}]


def _location(reading: Reading, suffix: str) -> str:
    provider = load_location_provider(reading.table.envelope.location, dict(reading.properties))
    return provider.new_data_location(f"{uuid.uuid4()}-deletes.{suffix}")
