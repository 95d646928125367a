"""Each requirement, holding and failing, with the texts that Java's client knows."""

from __future__ import annotations

import pytest

from headgate.core.requirements import find_failed
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
from headgate.errors import Retry
from tests.core.builders import UUID, commit, point, table

HEAD = commit(table(snapshots=2), point("t", 1, "tag"))
OTHER = "00000000-0000-0000-0000-000000000000"

HOLDING: list[TableRequirement] = [
    AssertTableUuid(uuid=UUID),
    AssertTableUuid(uuid=UUID.upper()),
    AssertRefSnapshotId(ref="main", snapshot_id=2),
    AssertRefSnapshotId(ref="t", snapshot_id=1),
    AssertRefSnapshotId(ref="absent"),
    AssertLastAssignedFieldId(last_assigned_field_id=3),
    AssertCurrentSchemaId(current_schema_id=0),
    AssertLastAssignedPartitionId(last_assigned_partition_id=999),
    AssertDefaultSpecId(default_spec_id=0),
    AssertDefaultSortOrderId(default_sort_order_id=0),
]
FAILING: list[tuple[TableRequirement, str]] = [
    (AssertCreate(), "table already exists"),
    (AssertTableUuid(uuid=OTHER), f"UUID does not match: expected {UUID} != {OTHER}"),
    (AssertRefSnapshotId(ref="main", snapshot_id=1), "branch main has changed: expected id 1 != 2"),
    (AssertRefSnapshotId(ref="t", snapshot_id=2), "tag t has changed: expected id 2 != 1"),
    (AssertRefSnapshotId(ref="t"), "tag t was created concurrently"),
    (AssertRefSnapshotId(ref="absent", snapshot_id=1), "branch or tag absent is missing, expected 1"),
    (
        AssertLastAssignedFieldId(last_assigned_field_id=2),
        "last assigned field id changed: expected id 2 != 3",
    ),
    (AssertCurrentSchemaId(current_schema_id=1), "current schema changed: expected id 1 != 0"),
    (
        AssertLastAssignedPartitionId(last_assigned_partition_id=1000),
        "last assigned partition id changed: expected id 1000 != 999",
    ),
    (AssertDefaultSpecId(default_spec_id=1), "default partition spec changed: expected id 1 != 0"),
    (AssertDefaultSortOrderId(default_sort_order_id=1), "default sort order changed: expected id 1 != 0"),
]


@pytest.mark.parametrize("requirement", HOLDING, ids=repr)
def test_a_requirement_that_holds_is_no_finding(requirement: TableRequirement) -> None:
    assert find_failed([requirement], HEAD) is None


@pytest.mark.parametrize(("requirement", "reason"), FAILING, ids=repr)
def test_a_requirement_that_fails_says_what_changed(requirement: TableRequirement, reason: str) -> None:
    failed = find_failed([requirement], HEAD)
    assert failed is not None
    assert failed.message == f"Requirement failed: {reason}"
    assert failed.retry is Retry.REFRESH


def test_only_a_creation_may_meet_no_table() -> None:
    assert find_failed([AssertCreate()], None) is None
    for requirement in HOLDING:
        failed = find_failed([requirement], None)
        assert failed is not None
        assert failed.message == "Requirement failed: table does not exist"


def test_the_first_of_several_failures_is_the_one_reported() -> None:
    failed = find_failed([HOLDING[0], FAILING[1][0], FAILING[0][0]], HEAD)
    assert failed is not None
    assert "UUID" in failed.message


def test_no_requirements_hold_anywhere() -> None:
    assert find_failed([], HEAD) is None
    assert find_failed([], None) is None


EVIDENCE: list[tuple[TableRequirement, dict[str, int] | None]] = [
    (AssertCreate(), None),
    (AssertTableUuid(uuid=OTHER), None),
    (AssertRefSnapshotId(ref="main", snapshot_id=1), {"snapshot-id": 2}),
    (AssertRefSnapshotId(ref="gone", snapshot_id=1), None),
    (AssertLastAssignedFieldId(last_assigned_field_id=1), {"schema-id": 0}),
    (AssertCurrentSchemaId(current_schema_id=1), {"schema-id": 0}),
    (AssertLastAssignedPartitionId(last_assigned_partition_id=1), {"spec-id": 0}),
    (AssertDefaultSpecId(default_spec_id=1), {"spec-id": 0}),
    (AssertDefaultSortOrderId(default_sort_order_id=1), {"sort-order-id": 0}),
]


@pytest.mark.parametrize(("requirement", "theirs"), EVIDENCE, ids=lambda value: type(value).__name__)
def test_a_failed_requirement_says_which_it_is_and_what_stands_at_the_head(
    requirement: TableRequirement, theirs: dict[str, int] | None
) -> None:
    failed = find_failed([requirement], HEAD)
    assert failed is not None
    assert failed.evidence["requirement"] == requirement.__struct_config__.tag
    assert failed.evidence.get("theirs") == theirs
