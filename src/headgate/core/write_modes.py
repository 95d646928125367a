"""How rows are deleted, updated and merged: by new files for old ones, or by delete files beside them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.core.isolation import Command
from headgate.errors import BadInput

COPY, MERGE = "copy-on-write", "merge-on-read"
DELETES_VERSION = 2  # of the format: before it, there are no delete files
VECTORS_VERSION = 3  # from it on, positions are deleted by vectors


def mode_of(
    properties: Mapping[str, str], format_version: int, command: Command, said: str | None = None
) -> str:
    """Copy-on-write or merge-on-read, as the caller says or else the table (`write.<command>.mode`)."""
    name = "mode" if said is not None else f"write.{command}.mode"
    found = (said if said is not None else properties.get(name, COPY)).lower()
    if found not in (COPY, MERGE):
        raise BadInput(f"{name}: expected {COPY} or {MERGE}, got {found[:40]!r}", field=name)
    if found == MERGE and format_version < DELETES_VERSION:
        raise BadInput(
            f"{name}: {MERGE} needs format version {DELETES_VERSION}, the table has {format_version}",
            field=name,
        )
    return found
