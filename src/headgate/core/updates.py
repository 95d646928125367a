"""The updates and requirements of the REST specification, as closed unions told apart by their tag.

A value that exists is well-formed; whether it fits a table is decided in `apply` and `requirements`.
"""

from __future__ import annotations

from headgate.core.partitioning import PartitionSpec, SortOrder
from headgate.core.schema import Schema
from headgate.core.table import EncryptedKey, PartitionStatisticsFile, Snapshot, StatisticsFile
from headgate.core.value import Int, Long, Value

LAST_ADDED = -1


class AssignUuid(Value, tag_field="action", tag="assign-uuid"):
    """Only while a table is being created."""

    uuid: str


class UpgradeFormatVersion(Value, tag_field="action", tag="upgrade-format-version"):
    """Never downwards."""

    format_version: Int


class AddSchema(Value, tag_field="action", tag="add-schema"):
    """The id is reassigned; an equal schema is reused."""

    schema: Schema
    last_column_id: Int | None = None


class SetCurrentSchema(Value, tag_field="action", tag="set-current-schema"):
    """-1 is the schema added last in this request."""

    schema_id: Int


class AddSpec(Value, tag_field="action", tag="add-spec"):
    """The id is reassigned; a compatible spec is reused."""

    spec: PartitionSpec


class SetDefaultSpec(Value, tag_field="action", tag="set-default-spec"):
    """-1 is the spec added last in this request."""

    spec_id: Int


class AddSortOrder(Value, tag_field="action", tag="add-sort-order"):
    """The id is reassigned; an equal order is reused."""

    sort_order: SortOrder


class SetDefaultSortOrder(Value, tag_field="action", tag="set-default-sort-order"):
    """-1 is the order added last in this request."""

    sort_order_id: Int


class AddSnapshot(Value, tag_field="action", tag="add-snapshot"):
    """A snapshot that the client built."""

    snapshot: Snapshot


class SetSnapshotRef(Value, tag_field="action", tag="set-snapshot-ref"):
    """Create or move a branch or tag."""

    ref_name: str
    snapshot_id: Long
    type: str
    min_snapshots_to_keep: Int | None = None
    max_snapshot_age_ms: Long | None = None
    max_ref_age_ms: Long | None = None


class RemoveSnapshots(Value, tag_field="action", tag="remove-snapshots"):
    """Forget snapshots that no ref needs."""

    snapshot_ids: tuple[Long, ...]


class RemoveSnapshotRef(Value, tag_field="action", tag="remove-snapshot-ref"):
    """Remove a branch or tag; removing what is not there is no error."""

    ref_name: str


class SetLocation(Value, tag_field="action", tag="set-location"):
    """Where new files go from now on."""

    location: str


class SetProperties(Value, tag_field="action", tag="set-properties"):
    """Add or replace properties."""

    updates: dict[str, str]


class RemoveProperties(Value, tag_field="action", tag="remove-properties"):
    """Remove properties."""

    removals: tuple[str, ...]


class SetStatistics(Value, tag_field="action", tag="set-statistics"):
    """Attach a statistics file to its snapshot, replacing the one before."""

    statistics: StatisticsFile
    snapshot_id: Long | None = None


class RemoveStatistics(Value, tag_field="action", tag="remove-statistics"):
    """Detach a snapshot's statistics file."""

    snapshot_id: Long


class SetPartitionStatistics(Value, tag_field="action", tag="set-partition-statistics"):
    """Attach partition statistics to their snapshot."""

    partition_statistics: PartitionStatisticsFile


class RemovePartitionStatistics(Value, tag_field="action", tag="remove-partition-statistics"):
    """Detach a snapshot's partition statistics."""

    snapshot_id: Long


class RemovePartitionSpecs(Value, tag_field="action", tag="remove-partition-specs"):
    """Forget specs other than the default."""

    spec_ids: tuple[Int, ...]


class RemoveSchemas(Value, tag_field="action", tag="remove-schemas"):
    """Forget schemas other than the current."""

    schema_ids: tuple[Int, ...]


class AddEncryptionKey(Value, tag_field="action", tag="add-encryption-key"):
    """Add a key; one that is already there is left alone."""

    encryption_key: EncryptedKey


class RemoveEncryptionKey(Value, tag_field="action", tag="remove-encryption-key"):
    """Remove a key."""

    key_id: str


TableUpdate = (
    AssignUuid
    | UpgradeFormatVersion
    | AddSchema
    | SetCurrentSchema
    | AddSpec
    | SetDefaultSpec
    | AddSortOrder
    | SetDefaultSortOrder
    | AddSnapshot
    | SetSnapshotRef
    | RemoveSnapshots
    | RemoveSnapshotRef
    | SetLocation
    | SetProperties
    | RemoveProperties
    | SetStatistics
    | RemoveStatistics
    | SetPartitionStatistics
    | RemovePartitionStatistics
    | RemovePartitionSpecs
    | RemoveSchemas
    | AddEncryptionKey
    | RemoveEncryptionKey
)


class AssertCreate(Value, tag_field="type", tag="assert-create"):
    """The table must not exist."""


class AssertTableUuid(Value, tag_field="type", tag="assert-table-uuid"):
    """The table must still be the one the client loaded."""

    uuid: str


class AssertRefSnapshotId(Value, tag_field="type", tag="assert-ref-snapshot-id"):
    """A ref must point at this snapshot; null: must not exist."""

    ref: str
    snapshot_id: Long | None = None


class AssertLastAssignedFieldId(Value, tag_field="type", tag="assert-last-assigned-field-id"):
    """No column was added since."""

    last_assigned_field_id: Int


class AssertCurrentSchemaId(Value, tag_field="type", tag="assert-current-schema-id"):
    """The current schema is still this one."""

    current_schema_id: Int


class AssertLastAssignedPartitionId(Value, tag_field="type", tag="assert-last-assigned-partition-id"):
    """No partition field was added since."""

    last_assigned_partition_id: Int


class AssertDefaultSpecId(Value, tag_field="type", tag="assert-default-spec-id"):
    """The default spec is still this one."""

    default_spec_id: Int


class AssertDefaultSortOrderId(Value, tag_field="type", tag="assert-default-sort-order-id"):
    """The default sort order is still this one."""

    default_sort_order_id: Int


TableRequirement = (
    AssertCreate
    | AssertTableUuid
    | AssertRefSnapshotId
    | AssertLastAssignedFieldId
    | AssertCurrentSchemaId
    | AssertLastAssignedPartitionId
    | AssertDefaultSpecId
    | AssertDefaultSortOrderId
)
