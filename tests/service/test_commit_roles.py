"""The role that the updates of a commit take: of one append alone it is known at once, and no other."""

from __future__ import annotations

import pytest

from headgate.core.change import Append, ChangeUpdate, Delete, Overwrite, ProduceSnapshot, Replace
from headgate.core.updates import SetProperties, SetSnapshotRef, TableUpdate
from headgate.service.commit_requests import role_for
from headgate.service.roles import Role


@pytest.mark.parametrize(
    ("update", "role"),
    [
        (Append(), Role.INSERT),
        (Append(create_branch=True, branch="b"), Role.MODIFY),
        (ProduceSnapshot(snapshot_action="append"), Role.INSERT),
        (ProduceSnapshot(snapshot_action="append", create_branch=True), Role.MODIFY),
        (ProduceSnapshot(snapshot_action="delete"), Role.MODIFY),
        (Overwrite(), Role.MODIFY),
        (Delete(), Role.MODIFY),
        (Replace(), Role.MODIFY),
        (SetSnapshotRef(ref_name="main", type="branch", snapshot_id=1), Role.MODIFY),
        (SetProperties(updates={"a": "b"}), Role.ADMIN),
    ],
)
def test_one_update_takes_the_role_that_it_takes_twice(
    update: TableUpdate | ChangeUpdate, role: Role
) -> None:
    assert role_for((update,)) is role
    assert role_for((update, update)) is role


def test_no_updates_take_the_least() -> None:
    assert role_for(()) is Role.INSERT
