"""How far a stream has come, as a table property that moves with its appends: `headgate.stream.<query id>`. Pure.

A stream writes the number of a batch in the commit that adds the batch's files, so that who starts it again knows
whether that commit landed, however long ago. Two streams' numbers never meet, so they do not keep appends from
sharing a snapshot.
"""

from __future__ import annotations

import re

from headgate.core.change import ChangeUpdate
from headgate.core.updates import SetProperties, TableUpdate

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
