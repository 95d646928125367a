"""What it takes to take in the changes of one table: how its files are read, and where they may be. Pure.

It is the same from commit to commit, as long as the table keeps its place, its properties and its shape, so it is made once.
"""

from __future__ import annotations

from headgate.core.identity_cache import IdentityCache
from headgate.core.locations import PATH_PROPERTIES, LocationPolicy, find_plain_file
from headgate.core.table import Envelope, TableMetadata
from headgate.core.taken import Change
from headgate.core.wire_files import wire_files_of
from headgate.errors import LocationRefused


class Desk:
    """What is needed to take in the changes of one table, and is the same from commit to commit."""

    def __init__(self, table: TableMetadata) -> None:
        self.files = wire_files_of(table)
        # How the paths of its files begin, once places were looked at; before that nobody knows whether they may.
        self.folders: tuple[str, ...] = ()


_DESKS: IdentityCache[Desk] = IdentityCache()


def desk_of(table: TableMetadata, policy: LocationPolicy | None) -> Desk:
    """The desk of a table of this place and shape, under this policy."""
    envelope = table.envelope
    same = (
        policy,
        envelope.location,
        envelope.properties,
        envelope.schemas,
        envelope.current_schema_id,
        envelope.partition_specs,
        envelope.sort_orders,
    )
    return _DESKS.get(same, lambda: Desk(table))


def check_places(change: Change, table: TableMetadata, policy: LocationPolicy, field: str) -> None:
    """LocationRefused for the first file of a change that is not inside its table's folders."""
    desk = desk_of(table, policy)
    inside = desk.folders = desk.folders or _find_folders(table.envelope, policy)
    for name, files in (("add-data-files", change.added_data), ("add-delete-files", change.added_deletes)):
        for i, file in enumerate(files):
            # What begins with one of the folders is inside a root, as they are.
            if file.file_path.startswith(inside) and find_plain_file(file.file_path) is not None:
                continue
            where = f"{field}.{name}[{i}].file-path"
            if not policy.allow_file(file.file_path, field=where).startswith(inside):
                raise LocationRefused(
                    f"the file is not inside the table's folders: {file.file_path}", field=where
                )


def _find_folders(envelope: Envelope, policy: LocationPolicy) -> tuple[str, ...]:
    """How the paths of a table's files begin."""
    properties = envelope.properties
    folders = (envelope.location, *(properties[name] for name in PATH_PROPERTIES if name in properties))
    return tuple(policy.allow(folder, field="location") + "/" for folder in folders)
