"""Orphans: old files below a table that nothing reaches, such as killed writers leave. Over any PyIceberg catalog.

A file that no snapshot names may be one that a writer is about to commit, so only old ones are orphans. What lies
beside the table's location (`write.data.path` may say so) may be another table's, and is never looked at.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyarrow.fs import FileInfo, FileSelector, FileType
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import Identifier

from headgate.core.locations import find_spellings
from headgate.core.reach import Proof
from headgate.errors import BadInput, StorageFailed
from headgate.format.table_metadata import decode_metadata
from headgate.library.adapters import to_error
from headgate.library.manifests import metadata_folder
from headgate.library.pending_files import read_file
from headgate.library.unreached import (
    Filesystems,
    Load,
    Reader,
    Seen,
    Tick,
    delete_unreached,
    find_unreached,
    silent,
)

AGE_MIN = timedelta(days=1)
_METADATA_FILES = (".metadata.json", ".metadata.json.gz")
_HIDDEN = (".", "_")  # marks and checksums of other programs: Hadoop's, Spark's


@dataclass(frozen=True)
class Orphans:
    """Files that nothing reaches; deleted, unless it was a dry run or `failed` says why not."""

    files: tuple[str, ...]
    size_bytes: int
    are_deleted: bool
    failed: Mapping[str, str] = field(default_factory=dict)


def remove_orphans(
    load: Load,
    *,
    older_than: timedelta = AGE_MIN,
    dry_run: bool = True,
    now: datetime | None = None,
    tick: Tick = silent,
) -> Orphans:
    """Delete files below the table's location that nothing reaches and that are older than a time.

    Less than a day is refused: jobs write their files first and commit them later, and nobody can tell such files
    from orphans but by their age.
    """
    if older_than < AGE_MIN:
        raise BadInput(
            f"older_than: expected at least {AGE_MIN}, got {older_than}: files of a job that still runs look like "
            "orphans",
            field="older_than",
        )
    seen = load()
    seen.check_gc()
    before_s = (now.timestamp() if now else time.time()) - older_than.total_seconds()
    found = dict(_list_files(seen, tick))
    _check_alone(seen, found)
    old = {
        name: info
        for name, info in found.items()
        if info.mtime is not None and info.mtime.timestamp() < before_s
    }
    reader = Reader(seen.filesystem, tick=tick)
    unreached, failed = tuple(find_unreached(Proof(old), seen, reader)), dict[str, str]()
    if not dry_run:
        done = delete_unreached(load, unreached, reader, tick=tick)
        unreached, failed = done.files, done.failed
    size_bytes = sum(old[name].size or 0 for name in unreached)
    return Orphans(unreached, size_bytes, are_deleted=not dry_run, failed=failed)


def see(catalog: Catalog, identifier: Identifier) -> Seen:
    """The table as the catalog has it now. Errors are ours."""
    name = ".".join(identifier)
    try:
        table = catalog.load_table(identifier)
    except Exception as error:  # outermost edge: of foreign code; a load changes nothing
        raise to_error(error, name) from error
    location = table.metadata_location
    metadata = decode_metadata(read_file(table.io, location), location=location, uuid=str(uuid.uuid4()))
    return Seen(name, metadata, location, filesystems_of(table.io.properties))


def filesystems_of(properties: Mapping[str, str]) -> Filesystems:
    """PyArrow's file systems by the properties of a catalog, which can list files as PyIceberg's own cannot."""
    io = PyArrowFileIO(dict(properties))

    def find(location: str) -> tuple[object, str]:
        scheme, authority, path = PyArrowFileIO.parse_location(location, io.properties)
        try:
            return io.fs_by_scheme(scheme, authority), path
        except ValueError as error:
            raise BadInput(
                f"{location[:200]}: files there cannot be listed: {error}", field="location"
            ) from error

    return find


def _list_files(seen: Seen, tick: Tick) -> Iterator[tuple[str, FileInfo]]:
    """Every file below the table's location, named as the table would name it."""
    filesystem, path = seen.filesystem(seen.location)
    selector = FileSelector(path, recursive=True, allow_not_found=True)
    try:
        infos = filesystem.get_file_info(selector)
    except OSError as error:
        raise StorageFailed(f"{seen.location}: its files could not be listed: {error}") from error
    tick("files listed", len(infos), None)
    for info in infos:
        if info.type is FileType.File and not info.base_name.startswith(_HIDDEN):
            yield f"{seen.location}{info.path.removeprefix(path.rstrip('/'))}", info


def _check_alone(seen: Seen, found: Mapping[str, FileInfo]) -> None:
    """Refuse when another table seems to live below this one: its files would look like orphans."""
    envelope = seen.metadata.envelope
    folder = metadata_folder(envelope.location, envelope.properties)
    known = {spelling for entry in envelope.metadata_log for spelling in find_spellings(entry.metadata_file)}
    known.update(find_spellings(seen.metadata_location))
    homes = tuple(f"{spelling}/" for spelling in find_spellings(folder))
    for name in sorted(found):
        if name.endswith(_METADATA_FILES) and name not in known and not name.startswith(homes):
            raise BadInput(
                f"{seen.name}: the metadata file of another table is below it, so that table's files cannot be told "
                f"from orphans: {name}",
                field="location",
            )
