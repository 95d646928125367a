"""Whether the requirements of a plain commit hold at the head. Pure; returns the first that does not.

The texts are those that Java's client and the REST Compatibility Kit know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from headgate.core.table import TableMetadata
from headgate.core.updates import (
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUuid,
    TableRequirement,
)
from headgate.errors import RequirementFailed


def find_failed(
    requirements: Iterable[TableRequirement], head: TableMetadata | None
) -> RequirementFailed | None:
    """The first requirement that does not hold at this head, or None."""
    for requirement in requirements:
        if (reason := _find_reason(requirement, head)) is not None:
            return RequirementFailed(f"Requirement failed: {reason}", **_evidence(requirement, head))
    return None


def find_changed(expected: Mapping[str, str | None], head: TableMetadata | None) -> RequirementFailed | None:
    """The first property that is not as the writer read it, or None. The specification has no such requirement."""
    if not expected:
        return None
    found = {} if head is None else head.envelope.properties
    for name, value in expected.items():
        if found.get(name) != value:
            return RequirementFailed(
                f"Requirement failed: property {name} changed: expected {value!r} != {found.get(name)!r}",
                requirement="property",
                theirs={name: found.get(name)},
            )
    return None


def _evidence(requirement: TableRequirement, head: TableMetadata | None) -> dict[str, object]:
    """Which requirement failed, and what stands at the head instead: *theirs*, by the id that its commit gave it."""
    found: dict[str, object] = {"requirement": str(requirement.__struct_config__.tag)}
    if head is None:
        return found
    envelope = head.envelope
    match requirement:
        case AssertCurrentSchemaId():
            found["theirs"] = {"schema-id": envelope.current_schema_id}
        case AssertLastAssignedFieldId():
            found["theirs"] = {"schema-id": max(schema.schema_id for schema in envelope.schemas)}
        case AssertDefaultSpecId():
            found["theirs"] = {"spec-id": envelope.default_spec_id}
        case AssertLastAssignedPartitionId():
            found["theirs"] = {"spec-id": max(spec.spec_id for spec in envelope.partition_specs)}
        case AssertDefaultSortOrderId():
            found["theirs"] = {"sort-order-id": envelope.default_sort_order_id}
        case AssertRefSnapshotId(ref=name) if name in envelope.refs:
            found["theirs"] = {"snapshot-id": envelope.refs[name].snapshot_id}
        case _:
            pass
    return found


def _find_reason(requirement: TableRequirement, head: TableMetadata | None) -> str | None:
    if isinstance(requirement, AssertCreate):
        return None if head is None else "table already exists"
    if head is None:
        return "table does not exist"
    envelope = head.envelope
    match requirement:
        case AssertTableUuid(uuid=uuid):
            if uuid.lower() != envelope.table_uuid.lower():
                return f"UUID does not match: expected {envelope.table_uuid} != {uuid}"
        case AssertRefSnapshotId():
            return _find_ref_reason(requirement, head)
        case AssertLastAssignedFieldId(last_assigned_field_id=expected):
            return _changed("last assigned field id", expected, envelope.last_column_id)
        case AssertCurrentSchemaId(current_schema_id=expected):
            return _changed("current schema", expected, envelope.current_schema_id)
        case AssertLastAssignedPartitionId(last_assigned_partition_id=expected):
            return _changed("last assigned partition id", expected, envelope.last_partition_id)
        case AssertDefaultSpecId(default_spec_id=expected):
            return _changed("default partition spec", expected, envelope.default_spec_id)
        case AssertDefaultSortOrderId(default_sort_order_id=expected):
            return _changed("default sort order", expected, envelope.default_sort_order_id)
        case _:
            assert_never(requirement)
    return None


def _changed(what: str, expected: int, actual: int) -> str | None:
    return None if expected == actual else f"{what} changed: expected id {expected} != {actual}"


def _find_ref_reason(requirement: AssertRefSnapshotId, head: TableMetadata) -> str | None:
    ref, expected = head.envelope.refs.get(requirement.ref), requirement.snapshot_id
    if ref is None:
        if expected is None:
            return None
        return f"branch or tag {requirement.ref} is missing, expected {expected}"
    if expected is None:
        return f"{ref.type} {requirement.ref} was created concurrently"
    if expected != ref.snapshot_id:
        return f"{ref.type} {requirement.ref} has changed: expected id {expected} != {ref.snapshot_id}"
    return None
