"""How far a stream has come, as a table property that moves with its appends: `headgate.stream.<query id>`. Pure.

A stream writes the number of a batch in the commit that adds the batch's files, so that who starts it again knows
whether that commit landed, however long ago. Two streams' numbers never meet, so they do not keep appends from
sharing a snapshot. A batch that the table has passed is refused by whoever judges the commit: its driver may have hung
for longer than keys are remembered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headgate.core.change import ChangeUpdate
from headgate.core.table import TableMetadata
from headgate.core.updates import SetProperties, TableUpdate
from headgate.errors import RequirementFailed

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME = re.compile(rf"headgate\.stream\.{_UUID}")


def progress_name(query_id: str) -> str:
    """The property of a stream, by the id that its checkpoint has."""
    return f"headgate.stream.{query_id.lower()}"


def is_progress_name(name: str) -> bool:
    """Whether a property says how far a stream has come."""
    return _NAME.fullmatch(name) is not None


def is_progress(update: TableUpdate | ChangeUpdate) -> bool:
    """Whether an update says how far streams have come, and nothing else."""
    return isinstance(update, SetProperties) and all(is_progress_name(name) for name in update.updates)


def find_passed(
    updates: Iterable[TableUpdate | ChangeUpdate], head: TableMetadata | None
) -> RequirementFailed | None:
    """The first stream whose batch comes with these changes and is in the table already, or None.

    Without changes anything may be said: a property that is set back by hand is meant so.
    """
    updates = tuple(updates)
    if head is None or not any(isinstance(update, ChangeUpdate) for update in updates):
        return None
    for update in updates:
        if not isinstance(update, SetProperties):
            continue
        for name in filter(is_progress_name, update.updates):
            ours, theirs = update.updates[name], head.envelope.properties.get(name, "")
            if ours.isdecimal() and theirs.isdecimal() and int(ours) <= int(theirs):
                return RequirementFailed(
                    f"Requirement failed: batch {ours} is in the table: {name} is {theirs}",
                    requirement="property",
                    theirs={name: theirs},
                )
    return None
