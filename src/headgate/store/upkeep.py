"""What the store keeps beside heads, keys and events, and the operations of `write` on it. See `base` for the rules.

Files that are not durable yet, footprints of snapshots, acknowledged jobs, and files to be deleted later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from headgate.core.value import Record

EntryId = NewType("EntryId", str)  # a uuid4 made by the caller, never used again
Levels = tuple[str, ...]


class JournalledFile(Record):
    """A file whose bytes are kept in the database until they are known to be durable at their location.

    With a `base` it is `data` and then the last `tail_bytes` of the file there, which was put before it or is durable.
    """

    location: str
    data: bytes
    created_at_ms: int
    base: str | None = None
    tail_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """Of the whole file."""
        return len(self.data) + self.tail_bytes


@dataclass(frozen=True, slots=True)
class Job:
    """A request that was acknowledged before it was carried out. Its `id` is the key it commits under."""

    id: str
    kind: str  # `async` or `stream`
    namespace: Levels
    name: str
    principal: str
    role: str
    fingerprint: str
    body: bytes  # the request
    due_at_ms: int
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class DoomedFile:
    """A file that nothing refers to any more, to be deleted when its grace time is over."""

    location: str
    entry_id: EntryId
    due_at_ms: int


# --- operations ------------------------------------------------------------------------------------------


class PutFile(Record):
    """Keep a file's bytes until `drop_files`: after a crash they are written again. The same location twice is a bug."""

    file: JournalledFile


class PutFootprint(Record):
    """What a snapshot of an entry brought, for judging later changes. Put again, it is replaced."""

    id: EntryId
    snapshot_id: int
    body: bytes


@dataclass(frozen=True, slots=True)
class DropFootprints:
    """Forget what these snapshots brought; those that are not there are no error."""

    id: EntryId
    snapshot_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PutJob:
    """Acknowledge a request; refused (KEY_EXISTS) when the (principal, id) is already there."""

    job: Job


@dataclass(frozen=True, slots=True)
class DropJob:
    """The job is done, or refused for good; one that is not there is no error."""

    principal: str
    id: str


@dataclass(frozen=True, slots=True)
class PutDoomed:
    """Have files deleted later. A location already there keeps its earlier time."""

    files: tuple[DoomedFile, ...]
