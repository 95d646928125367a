"""The sources of a view: what came and went since a snapshot, and the rows of files, metered.

The window is walked along the change feed from the head to the snapshot that was read before, one small request a
commit; no two snapshots are ever compared file by file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

from pyarrow.fs import FileType
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyspark.sql import DataFrame, SparkSession

from headgate.client.feed import SnapshotChanges
from headgate.core.manifest import ContentFile, FileContent
from headgate.errors import NotFound
from headgate.spark.lake import LakeTable, TableState
from headgate.spark.scan import ScannedFile, plan, read, why_by_jar
from headgate.spark.view_changes import Deletes, Delta, FileVersion, Lost, find_delta, list_window

_COMMITS_MAX = 10_000


@dataclass
class Meter:
    """How many files were read, and how large they are. A file that is read twice counts twice."""

    files: int = 0
    size_bytes: int = 0

    def take(self, files: Sequence[ScannedFile]) -> None:
        """Count files that are about to be read, and the deletes that are read with them."""
        self.files += len(files)
        for scanned in files:
            deletes = (one.content_size_in_bytes or one.file_size_in_bytes for one in scanned.deletes)
            self.size_bytes += scanned.file.file_size_in_bytes + sum(deletes)


@dataclass(frozen=True)
class Place:
    """How far a source was read: the table, the snapshot, the schema that its rows had."""

    uuid: str
    snapshot_id: int | None
    schema_id: int


@dataclass(frozen=True)
class Source:
    """A table as one refresh sees it: everything is read at this head."""

    alias: str
    state: TableState
    meter: Meter = field(repr=False)

    @property
    def table(self) -> LakeTable:
        """The table itself."""
        return self.state.table

    @property
    def place(self) -> Place:
        """How far a refresh that ends now has read."""
        raw = self.state.raw
        return Place(str(raw["table-uuid"]), self.state.snapshot_id(), int(raw["current-schema-id"]))

    @cached_property
    def history(self) -> TableState:
        """The table with all its snapshots; it may have got new ones meanwhile."""
        return self.table.load(all_snapshots=True)

    def find_delta(self, since: Place) -> Delta | Lost:
        """What came and went since a place."""
        now = self.place
        if now.uuid != since.uuid:
            return Lost(f"{self.alias} is another table now")
        if now.schema_id != since.schema_id:
            return Lost(f"{self.alias} has another schema now")
        if now.snapshot_id == since.snapshot_id:
            return Delta()
        try:
            window = list_window(self._walk(), base_id=since.snapshot_id, commits_max=_COMMITS_MAX)
        except NotFound:
            return Lost(f"{self.alias}: snapshots since {since.snapshot_id} have expired")
        delta = window if isinstance(window, Lost) else find_delta(window)
        if isinstance(delta, Lost):
            return Lost(f"{self.alias}: {delta.reason}")
        return self._find_lost(delta, since) or delta

    def read_all(self, session: SparkSession, snapshot_id: int | None) -> DataFrame:
        """All rows of a snapshot; None is the time when the table had none."""
        if snapshot_id is None:
            return read(session, (), self.state)
        state = self.state if snapshot_id == self.place.snapshot_id else self.history
        return self._read(session, plan(state, snapshot_id=snapshot_id).files)

    def read_versions(
        self, session: SparkSession, versions: Sequence[FileVersion], since: Place
    ) -> DataFrame:
        """The rows of versions of files, with the deletes that applied to each."""
        found = [_plain(version) for version in versions if self._is_plain(version, since)]
        planned: dict[int, set[str]] = {}
        for version in versions:
            if not self._is_plain(version, since):
                at = since.snapshot_id if version.snapshot_id is None else version.snapshot_id
                planned.setdefault(at or 0, set()).add(version.path)
        for snapshot_id, paths in planned.items():
            scan = plan(self.history, snapshot_id=snapshot_id)
            found += [scanned for scanned in scan.files if scanned.path in paths]
        return self._read(session, found)

    def _walk(self) -> Iterator[SnapshotChanges]:
        at = self.place.snapshot_id
        while at is not None:
            changes = self.table.client.changes_of(at)
            yield changes
            at = changes.parent_snapshot_id

    def _find_lost(self, delta: Delta, since: Place) -> Lost | None:
        """What of the past is needed and gone: rows that went are read from files that only old snapshots hold."""
        versions = (*delta.came, *delta.went)
        if all(version.deletes is Deletes.NONE for version in versions):
            return None
        if since.snapshot_id is not None and self._snapshot(since.snapshot_id) is None:
            return Lost(f"{self.alias}: snapshot {since.snapshot_id}, which was read before, has expired")
        if int(self.history.raw["current-schema-id"]) != since.schema_id:
            return Lost(f"{self.alias} has another schema now")
        filesystem, _ = self.state.filesystem()
        paths = [PyArrowFileIO.parse_location(version.path)[2] for version in versions]
        infos = filesystem.get_file_info(paths) if paths else []
        gone = [info.path for info in infos if info.type is not FileType.File]
        return Lost(f"{self.alias}: files of the past are gone, like {gone[0]}") if gone else None

    def _is_plain(self, version: FileVersion, since: Place) -> bool:
        if version.deletes is Deletes.NONE:
            return True
        if version.deletes is Deletes.SOME or version.file is None or since.snapshot_id is None:
            return False
        before = self._snapshot(since.snapshot_id) or {}
        summary = before.get("summary", {})
        return isinstance(summary, dict) and str(summary.get("total-delete-files")) == "0"

    def _snapshot(self, snapshot_id: int) -> dict[str, object] | None:
        every: list[dict[str, object]] = self.history.raw.get("snapshots", [])
        return next((one for one in every if one["snapshot-id"] == snapshot_id), None)

    def _read(self, session: SparkSession, files: Sequence[ScannedFile]) -> DataFrame:
        return read_metered(session, files, self.state, self.meter)


def read_metered(
    session: SparkSession,
    files: Sequence[ScannedFile],
    state: TableState,
    meter: Meter,
    *,
    positions: bool = False,
) -> DataFrame:
    """The rows of files of one or more snapshots, counted."""
    meter.take(files)
    parts: dict[int | None, list[ScannedFile]] = {}
    for scanned in files:
        # The jar reads files of one snapshot at a time; what Spark reads itself may be of any.
        at = None if why_by_jar(scanned, state) is None else scanned.snapshot_id
        parts.setdefault(at, []).append(scanned)
    frames = [read(session, part, state, positions=positions) for part in parts.values()]
    return reduce(DataFrame.unionByName, frames) if frames else read(session, (), state, positions=positions)


def _plain(version: FileVersion) -> ScannedFile:
    file = version.file or {}
    content = ContentFile(
        content=FileContent.DATA,
        file_path=version.path,
        file_format=str(file["file-format"]).upper(),
        spec_id=int(file["spec-id"]),
        partition=(),  # nobody asks: the rows have it
        record_count=int(file["record-count"]),
        file_size_in_bytes=int(file["file-size-in-bytes"]),
    )
    return ScannedFile(content, data_sequence_number=0, snapshot_id=version.snapshot_id or 0)
