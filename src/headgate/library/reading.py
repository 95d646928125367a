"""A table as it stood at one snapshot: which of its files match a filter, and their rows. By PyIceberg; reads only.

PyIceberg gets metadata that holds this one snapshot: parsing and copying thousands of others is what makes it slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _expression_to_complementary_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.metadata import TableMetadata as IcebergMetadata
from pyiceberg.table.metadata import TableMetadataUtil

from headgate.core.encoded_log import EncodedLog
from headgate.core.filters import RowFilter
from headgate.core.table import MAIN, Snapshot, SnapshotRef, TableMetadata, append_snapshot
from headgate.errors import BadInput, Unsupported
from headgate.format.table_metadata import encode_parts
from headgate.library.data_files import to_content_file


@dataclass(slots=True)
class Staged:
    """What a transaction has done to a branch so far: files that are added and files that are gone."""

    added: dict[str, DataFile] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)


class Reading:
    """A branch of a table at its head of some time, with what a transaction has staged on it."""

    def __init__(
        self, table: TableMetadata, io: FileIO, branch: str = MAIN, staged: Staged | None = None
    ) -> None:
        self.table, self.io, self.branch = table, io, branch
        self.snapshot = find_branch_head(table, branch)
        self._staged = staged or Staged()
        self._metadata: IcebergMetadata | None = None

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
                if task.file.file_path not in self._staged.removed:
                    yield task
        judge = self.to_row_filter(row_filter)
        for file in self._staged.added.values():
            if judge.some_rows_match(to_content_file(file, self.table)):
                yield FileScanTask(file)

    def read(self, task: FileScanTask) -> pa.Table:
        """The live rows of one file, in the table's schema."""
        try:
            return ArrowScan(
                table_metadata=self.metadata,
                io=self.io,
                projected_schema=self.metadata.schema(),
                row_filter=AlwaysTrue(),
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


def to_whole_iceberg(table: TableMetadata) -> IcebergMetadata:
    """Metadata for PyIceberg, all of it."""
    return TableMetadataUtil.parse_raw(b"".join(encode_parts(table)).decode())
