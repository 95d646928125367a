"""What a transaction has done to a branch so far, as the writes that come after must see it. No I/O.

It is taken from the changes as they go onto the wire, so whatever a write does to the branch is here. The one thing that is
not made visible is delete files that the caller gave: files that these may speak of are not read any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, fields

import msgspec
from pyiceberg.table import FileScanTask
from pyroaring import BitMap64

from headgate.client.changes import File
from headgate.core.change import ChangeUpdate
from headgate.core.delete_index import referenced_data_file
from headgate.core.intake import take_in
from headgate.core.isolation import Wire
from headgate.core.manifest import ContentFile
from headgate.core.table import TableMetadata
from headgate.core.taken import Change, Partition, partition_of
from headgate.errors import BadInput, Unsupported


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """All positions of a data file that are deleted, and the delete file that is for this data file alone, if any."""

    positions: BitMap64
    file: File | None


@dataclass(slots=True)
class Staged:
    """Data files that are added and gone, one by one or by partition, and rows deleted from others.

    `unread` are delete files that the caller added, by the data file that they are for (None: any), and `unread_gone` those
    that the caller removed.
    """

    added: dict[str, ContentFile] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    replaced: set[Partition] = field(default_factory=set)
    deletes: dict[str, RowDeletes] = field(default_factory=dict)
    unread: dict[str | None, str] = field(default_factory=dict)
    unread_gone: set[str] = field(default_factory=set)

    def take(self, change: Change, deletes: Mapping[str, RowDeletes]) -> Staged:
        """With one more change; `deletes` is what its delete files do, if the library wrote them."""
        after = Staged(*(copy(getattr(self, part.name)) for part in fields(self)))
        after._take(change, deletes)
        return after

    def _take(self, change: Change, deletes: Mapping[str, RowDeletes]) -> None:
        gone = set(change.removed_data)
        if change.drop_partitions:
            self.replaced |= change.drop_partitions
            gone |= {
                path for path, file in self.added.items() if partition_of(file) in change.drop_partitions
            }
        for path in gone:
            self.deletes.pop(path, None)
            if self.added.pop(path, None) is None:
                self.removed.add(path)
        self.added.update((file.file_path, file) for file in change.added_data)
        self.deletes.update(deletes)
        if not deletes:
            self.unread.update((referenced_data_file(file), file.file_path) for file in change.added_deletes)
            self.unread_gone.update(path for path, _ in change.removed_deletes)

    def require_known(self, task: FileScanTask) -> None:
        """Unsupported when nobody knows which rows of the file are live."""
        path = task.file.file_path
        named = {self.unread[key] for key in (path, None) if key in self.unread}
        named |= {file.file_path for file in task.delete_files} & self.unread_gone
        if named:
            raise Unsupported(
                f"{path}: cannot be read after delete files that this transaction was given to add or remove: "
                f"{', '.join(sorted(named))}; commit those first"
            )


def to_change(update: Wire, table: TableMetadata) -> Change:
    """What an update does to the table; BadInput when it is not well made."""
    try:
        return take_in(msgspec.convert(update, ChangeUpdate), table, field="updates")
    except msgspec.ValidationError as error:
        raise BadInput(f"the change is not well made: {error}", field="updates") from error
