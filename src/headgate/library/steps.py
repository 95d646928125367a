"""One write of the library as a value, what a caller may say about it, and the files that are written for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from pyiceberg.manifest import DataFile
from pyiceberg.table import DataScan

from headgate.client.changes import File
from headgate.core.isolation import Wire
from headgate.library.data_files import Files, Rows, is_rows, to_wire, write_rows
from headgate.library.pending_files import delete_files, write_file
from headgate.library.reading import Reading
from headgate.library.row_filters import Filter
from headgate.library.staged import RowDeletes


@dataclass(frozen=True, slots=True)
class Step:
    """A change that is ready to be committed. Without an update it only read, which a transaction must have judged.

    `deletes` is what the delete files do that the library wrote for it, `written` are all files that it wrote.
    """

    reading: Reading
    update: Wire | None
    reads: Wire | None = None
    deletes: Mapping[str, RowDeletes] = field(default_factory=dict)
    written: tuple[str, ...] = ()
    key: str | None = None


class Options(TypedDict, total=False):
    """What every write may say: where it goes, what its summary holds, and its key."""

    branch: str
    create_branch: bool
    summary: Mapping[str, str] | None
    stage_only: bool
    key: str | None


class Reads(Options, total=False):
    """What a write that read the table says besides.

    `scan` is what the caller read of the table to make the data: its snapshot is the base, its filter the conflict
    filter. `base_snapshot_id` and `conflict_filter` say it one by one.
    """

    isolation: str | None
    scan: DataScan
    base_snapshot_id: int | None
    conflict_filter: Filter


class Written:
    """The files that a step writes; they go again when it does not get as far as being taken."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._paths: list[str] = []

    def __enter__(self) -> Written:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None and self._paths:  # of a step that is made, whoever takes it has them
            delete_files(self.reading.io, self._paths)

    def take_in(self, given: Rows | Files) -> list[File | DataFile]:
        """Rows written as files, or files as they are."""
        if not is_rows(given):
            return list(given)
        files: list[File | DataFile] = []
        for file in write_rows(given, self.reading.definition, self.reading.io):
            self._paths.append(file.file_path)
            files.append(file)
        return files

    def keep(self, location: str, content: bytes) -> None:
        """Write a file that is no data file."""
        self._paths.append(location)
        write_file(self.reading.io, location, content)

    def wire(self, files: Iterable[File | DataFile]) -> list[File]:
        """The files as content-file JSON."""
        return to_wire(files, self.reading.table)

    def step(
        self,
        update: Wire,
        options: Options,
        deletes: Mapping[str, RowDeletes] | None = None,
    ) -> Step:
        """The step that needs these files; from here on they are for its taker to delete."""
        paths, self._paths = tuple(self._paths), []
        # Filters speak of the columns as they were named when they were read.
        named: Wire = {**update, "schema-id": self.reading.table.envelope.current_schema_id}
        return Step(
            self.reading,
            named if update.get("commit-validations") else update,
            deletes=deletes or {},
            written=paths,
            key=options.get("key"),
        )
