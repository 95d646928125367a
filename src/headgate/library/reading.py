"""A table as it stood at one snapshot: which of its files match a filter, and their rows. By PyIceberg; reads only.

PyIceberg gets metadata that holds this one snapshot: parsing and copying thousands of others is what makes it slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import msgspec
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _expression_to_complementary_pyarrow, _read_deletes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.metadata import TableMetadata as IcebergMetadata
from pyiceberg.table.metadata import TableMetadataUtil
from pyroaring import BitMap64

from headgate.client.changes import File
from headgate.core.delete_index import referenced_data_file
from headgate.core.encoded_log import EncodedLog
from headgate.core.filters import RowFilter
from headgate.core.manifest import ManifestContent, ManifestFile
from headgate.core.manifest_list import has_live_files
from headgate.core.table import MAIN, Snapshot, SnapshotRef, TableMetadata, append_snapshot
from headgate.core.taken import partition_of
from headgate.errors import BadInput, StorageFailed, Unsupported
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.format.table_metadata import encode_parts
from headgate.library.data_files import to_content_file, to_data_file
from headgate.library.delete_files import reference_to
from headgate.library.pending_files import read_file
from headgate.library.staged import Staged

_POSITION = "__headgate_position"


class Reading:
    """A branch of a table at its head of some time, with what a transaction has staged on it."""

    def __init__(
        self, table: TableMetadata, io: FileIO, branch: str = MAIN, staged: Staged | None = None
    ) -> None:
        self.table, self.io, self.branch = table, io, branch
        self.snapshot = find_branch_head(table, branch)
        self._staged = staged or Staged()
        self._metadata: IcebergMetadata | None = None
        self._read_before: dict[
            str, Mapping[str, pa.ChunkedArray]
        ] = {}  # positions by delete file and data file

    @property
    def base_snapshot_id(self) -> int | None:
        """The base of a change that comes of this reading."""
        return None if self.snapshot is None else self.snapshot.snapshot_id

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.table.envelope.properties

    @property
    def metadata(self) -> IcebergMetadata:
        """PyIceberg's view of the table, with this snapshot alone."""
        if self._metadata is None:
            self._metadata = to_iceberg(self.table, self.snapshot)
        return self._metadata

    @property
    def definition(self) -> IcebergMetadata:
        """PyIceberg's view of the table without snapshots: all that a writer of data files looks at."""
        return to_definition(self.table)

    def plan(self, row_filter: BooleanExpression) -> Iterator[FileScanTask]:
        """Files that may hold rows of the filter."""
        if self.snapshot is not None:
            scan = DataScan(
                table_metadata=self.metadata,
                io=self.io,
                row_filter=row_filter,
                snapshot_id=self.snapshot.snapshot_id,
            )
            for task in scan.plan_files():
                if not self._is_gone(task.file):
                    yield task
        judge = self.to_row_filter(row_filter)
        for file in self._staged.added.values():
            if judge.some_rows_match(file):
                yield FileScanTask(to_data_file(file))

    def _is_gone(self, file: DataFile) -> bool:
        if file.file_path in self._staged.removed:
            return True
        replaced = self._staged.replaced
        return bool(replaced) and partition_of(to_content_file(file, self.table)) in replaced

    def read(self, task: FileScanTask) -> pa.Table:
        """The live rows of one file, in the table's schema."""
        self._staged.require_known(task)
        staged = self._staged.deletes.get(task.file.file_path)
        if staged is None:
            return self._scan(task, self.metadata.schema())
        rows = self._scan(FileScanTask(task.file), self.metadata.schema())
        live = BitMap64(range(rows.num_rows)) - staged.positions
        return rows.take(pa.array(live.to_array(), pa.int64()))

    def find_positions(self, task: FileScanTask, row_filter: BooleanExpression) -> tuple[BitMap64, int]:
        """Where in a file the rows of the filter are, deleted ones too, and how many rows the file has."""
        self._staged.require_known(task)
        schema = self.metadata.schema()
        bound = bind(schema, row_filter, case_sensitive=True)
        rows = self._scan(FileScanTask(task.file), prune_columns(schema, extract_field_ids(bound)))
        if rows.num_rows != task.file.record_count:
            raise StorageFailed(
                f"{task.file.file_path}: {rows.num_rows} rows were read, its manifest says {task.file.record_count}"
            )
        numbered = rows.append_column(_POSITION, pa.array(range(rows.num_rows), pa.int64()))
        others = numbered.filter(_expression_to_complementary_pyarrow(bound, schema))[_POSITION].to_pylist()
        return BitMap64(range(rows.num_rows)) - BitMap64(others), rows.num_rows

    def deleted_positions(self, task: FileScanTask) -> BitMap64:
        """The positions of a file's rows that are deleted already."""
        path = task.file.file_path
        if path in self._staged.deletes:
            return self._staged.deletes[path].positions
        found = BitMap64()
        for deletes in task.delete_files:
            place = deletes.file_path
            if place not in self._read_before:  # many data files may share it
                self._read_before[place] = _read_deletes(self.io, deletes)
            if (positions := self._read_before[place].get(path)) is not None:
                found |= BitMap64(positions.to_pylist())
        return found

    def own_deletes(self, paths: frozenset[str]) -> dict[str, list[File]]:
        """Delete files that are for one of these data files alone, as a change names those that it removes."""
        found: dict[str, list[File]] = {}
        location = None if self.snapshot is None else self.snapshot.manifest_list
        if location is not None:
            for manifest in decode_manifest_list(read_file(self.io, location), location=location):
                if manifest.content is ManifestContent.DELETES and has_live_files(manifest):
                    self._find_own(manifest, paths, found)
        for path in paths & self._staged.deletes.keys():
            staged = self._staged.deletes[path].file
            found[path] = [] if staged is None else [staged]
        return found

    def _find_own(self, manifest: ManifestFile, paths: frozenset[str], found: dict[str, list[File]]) -> None:
        place = manifest.manifest_path
        for entry in decode_manifest(read_file(self.io, place), manifest, location=place, metrics=True):
            path = referenced_data_file(entry.file)
            if entry.is_live and path in paths:
                found.setdefault(path, []).append(reference_to(entry.file))

    def _scan(self, task: FileScanTask, schema: Schema) -> pa.Table:
        try:
            return ArrowScan(
                table_metadata=self.metadata, io=self.io, projected_schema=schema, row_filter=AlwaysTrue()
            ).to_table(tasks=[task])
        except ValueError as error:  # equality deletes, which PyIceberg does not read
            raise Unsupported(f"{task.file.file_path}: {error}") from error

    def to_row_filter(self, row_filter: BooleanExpression) -> RowFilter:
        """The filter as the core judges files by it."""
        specs = {spec.spec_id: spec for spec in self.table.envelope.partition_specs}
        return RowFilter(row_filter, self.table.schema(), specs)

    def split(self, row_filter: BooleanExpression) -> Iterator[tuple[DataFile, pa.Table | None]]:
        """Files with rows of the filter, each with the rows that it holds besides; None when there are none.

        A file that its statistics say to be wholly inside is not read; one without such a row is left out.
        """
        judge = self.to_row_filter(row_filter)
        others = _expression_to_complementary_pyarrow(
            bind(self.metadata.schema(), row_filter, case_sensitive=True), self.metadata.schema()
        )
        for task in self.plan(row_filter):
            if judge.all_rows_match(to_content_file(task.file, self.table)):
                yield task.file, None
                continue
            rows = self.read(task)
            kept = rows.filter(others)
            if kept.num_rows < rows.num_rows:
                yield task.file, kept if kept.num_rows else None


def find_branch_head(table: TableMetadata, branch: str) -> Snapshot | None:
    """The snapshot of a branch; a branch that is to be made starts at main's."""
    ref = table.envelope.refs.get(branch)
    if ref is not None and ref.type != "branch":
        raise BadInput(f"{branch} is a tag, not a branch", field="branch")
    snapshot_id = table.envelope.current_snapshot_id if ref is None else ref.snapshot_id
    return None if snapshot_id is None else table.find_snapshot(snapshot_id)


def to_iceberg(table: TableMetadata, snapshot: Snapshot | None) -> IcebergMetadata:
    """Metadata for PyIceberg, with one snapshot at most, which is main's."""
    log, refs = EncodedLog(), dict[str, SnapshotRef]()
    if snapshot is not None:
        log = append_snapshot(log, snapshot)
        refs[MAIN] = SnapshotRef(snapshot_id=snapshot.snapshot_id, type="branch")
    envelope = msgspec.structs.replace(
        table.envelope,
        current_snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        refs=refs,
        metadata_log=(),
        statistics=(),
        partition_statistics=(),
    )
    return to_whole_iceberg(TableMetadata(envelope, log, EncodedLog()))


def to_definition(table: TableMetadata) -> IcebergMetadata:
    """Metadata for PyIceberg, without snapshots; the same object from commit to commit while no definition changes."""
    envelope = msgspec.structs.replace(
        table.envelope,
        current_snapshot_id=None,
        refs={},
        metadata_log=(),
        statistics=(),
        partition_statistics=(),
        last_sequence_number=0,
        last_updated_ms=0,
        next_row_id=None if table.envelope.next_row_id is None else 0,
    )
    return _parse(b"".join(encode_parts(TableMetadata(envelope, EncodedLog(), EncodedLog()))))


@lru_cache(maxsize=64)
def _parse(text: bytes) -> IcebergMetadata:
    return TableMetadataUtil.parse_raw(text.decode())


def to_whole_iceberg(table: TableMetadata) -> IcebergMetadata:
    """Metadata for PyIceberg, all of it."""
    return TableMetadataUtil.parse_raw(b"".join(encode_parts(table)).decode())
