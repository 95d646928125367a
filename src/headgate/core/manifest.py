"""Manifest lists and manifests as values: what a snapshot's files are, after inheritance.

`format.manifests` decodes Avro into these; nothing here reads, and nothing here is half inherited: sequence
numbers, snapshot ids and first row ids are the effective ones (spec, "Sequence Number Inheritance" and
"First Row ID Inheritance").
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import IntEnum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headgate.core.value import Record

if TYPE_CHECKING:
    # Dates are days and times are micro- or nanoseconds, as the specification stores them.
    PartitionValue = bool | int | float | str | bytes | Decimal | UUID | None
else:
    PartitionValue = Any  # footprints hold plain ones only, and msgspec decodes no union of several texts
# The path column of position delete files (spec, "Reserved Field IDs"); its bounds may name the one file they are for.
DELETE_PATH_ID = 2147483546


class ManifestContent(IntEnum):
    """What a manifest's entries are."""

    DATA = 0
    DELETES = 1


class FileContent(IntEnum):
    """What a file holds."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


class EntryStatus(IntEnum):
    """What the snapshot that wrote the manifest did to the file."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


# Members by names of their own, for what is done for every file: an attribute of an enum takes Python 3.11 longer than a
# call does.
DATA_MANIFEST, DELETE_MANIFEST = ManifestContent
DATA_FILE, POSITION_DELETES, EQUALITY_DELETES = FileContent
EXISTING, ADDED, DELETED = EntryStatus


class FieldSummary(Record):
    """What one partition field holds over all entries of a manifest; bounds are single-value bytes."""

    contains_null: bool
    contains_nan: bool | None = None
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None


class ManifestFile(Record):
    """One entry of a manifest list. Counts may be unknown (`None`) in v1 only."""

    manifest_path: str
    manifest_length: int
    partition_spec_id: int
    content: ManifestContent
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added_files_count: int | None = None
    existing_files_count: int | None = None
    deleted_files_count: int | None = None
    added_rows_count: int | None = None
    existing_rows_count: int | None = None
    deleted_rows_count: int | None = None
    partitions: tuple[FieldSummary, ...] | None = None
    key_metadata: bytes | None = None
    first_row_id: int | None = None


class Metrics(Record):
    """Column statistics by field id; bounds are single-value bytes."""

    column_sizes: Mapping[int, int] | None = None
    value_counts: Mapping[int, int] | None = None
    null_value_counts: Mapping[int, int] | None = None
    nan_value_counts: Mapping[int, int] | None = None
    lower_bounds: Mapping[int, bytes] | None = None
    upper_bounds: Mapping[int, bytes] | None = None


class ContentFile(Record):
    """A data or delete file. `partition` pairs each partition field's id with its value."""

    content: FileContent
    file_path: str
    file_format: str
    spec_id: int
    partition: tuple[tuple[int, PartitionValue], ...]
    record_count: int
    file_size_in_bytes: int
    equality_ids: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    metrics: Metrics | None = None  # None when the caller did not ask for them

    @property
    def is_dv(self) -> bool:
        """Whether this is a deletion vector: one blob in a Puffin file, for one data file."""
        return self.content is POSITION_DELETES and self.file_format == "PUFFIN"

    @property
    def identity(self) -> tuple[str, int | None]:
        """What may be live only once: the path, and for deletion vectors the blob within it."""
        return (self.file_path, self.content_offset if self.is_dv else None)


class ManifestEntry(Record):
    """A file, and what happened to it. `file_sequence_number` is unknown for some old EXISTING entries."""

    status: EntryStatus
    snapshot_id: int
    data_sequence_number: int
    file_sequence_number: int | None
    file: ContentFile

    @property
    def is_live(self) -> bool:
        """Whether the file belongs to the snapshot, rather than being recorded as removed."""
        return self.status is not DELETED


class NewEntry(Record):
    """An entry of a manifest to be written; a number left None is inherited by an ADDED file from the commit.

    Other files keep the numbers they have; only a file sequence number that was never known stays None.
    """

    status: EntryStatus
    file: ContentFile
    snapshot_id: int
    data_sequence_number: int | None
    file_sequence_number: int | None
