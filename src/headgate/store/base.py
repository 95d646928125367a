"""What the catalog asks of its database: reads, and one write that is all or nothing.

Theory. The state is: namespaces; entries (tables and views share one name space); each entry's head (an
envelope of JSON plus the items of its logs, one row an item); idempotency keys; the outbox. `write` takes a
tuple of operations and applies them in one database transaction, in order. Each operation carries the
predicate that makes it safe (the version it expects, the name it needs free); if one does not hold, nothing
is applied and a `Refused` names the operation and the reason. So head, key and event move together, a
multi-table commit is one transaction, and there is no write to an entry's row that skips its version.

Outcomes of `write`:
- returns `None`: applied and durable;
- returns `Refused`: certainly not applied;
- raises `StorageFailed` or `Overloaded`: certainly not applied (busy, no connection, before COMMIT);
- raises `CommitUnknown`: COMMIT was sent and nobody knows. Look for the key.

Writes of several threads that arrive together share one database transaction, each behind a savepoint: one that
is refused is taken back alone, and the others pay for one sync between them.

Implementations (`memory`, `sqlite`, `postgres`) share the contract suite in tests/store, not a base class.
All methods are synchronous and may be called from many threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Protocol

import msgspec

from headgate.core.encoded_log import LogDelta, LogItem
from headgate.core.value import Record
from headgate.store.upkeep import (
    DoomedFile as DoomedFile,
)
from headgate.store.upkeep import (
    DropFootprints as DropFootprints,
)
from headgate.store.upkeep import (
    DropJob as DropJob,
)
from headgate.store.upkeep import (
    EntryId as EntryId,
)
from headgate.store.upkeep import (
    Job as Job,
)
from headgate.store.upkeep import (
    JournalledFile as JournalledFile,
)
from headgate.store.upkeep import (
    Levels as Levels,
)
from headgate.store.upkeep import (
    PutDoomed as PutDoomed,
)
from headgate.store.upkeep import (
    PutFile as PutFile,
)
from headgate.store.upkeep import (
    PutFootprint as PutFootprint,
)
from headgate.store.upkeep import (
    PutJob as PutJob,
)

SCHEMA_VERSION_TABLE = "headgate_schema"


class Kind(StrEnum):
    """What stands at a name."""

    TABLE = "table"
    VIEW = "view"


class Stream(IntEnum):
    """The two logs of a table's head."""

    SNAPSHOTS = 0
    HISTORY = 1


class Reason(StrEnum):
    """Why a write was refused."""

    NAMESPACE_EXISTS = "namespace-exists"
    NAMESPACE_MISSING = "namespace-missing"  # the namespace, or the parent of one to create
    NAMESPACE_NOT_EMPTY = "namespace-not-empty"
    NAMESPACE_CHANGED = "namespace-changed"  # its version is not the expected one
    NAME_TAKEN = "name-taken"  # `kind` of the Refused says what stands there
    LOCATION_TAKEN = "location-taken"  # another live table's location is equal, above or below
    ENTRY_MISSING = "entry-missing"  # no entry of that id any more
    ENTRY_CHANGED = "entry-changed"  # its version is not the expected one: the swap was lost
    DUPLICATE_TAG = "duplicate-tag"  # an added log item's tag is already in that log
    KEY_EXISTS = "key-exists"  # this idempotency key has been stored already


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace as stored."""

    levels: Levels
    properties: Mapping[str, str]
    version: int


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """An entry without its head: enough to know whether a cached head is still the head."""

    id: EntryId
    namespace: Levels
    name: str
    kind: Kind
    uuid: str
    version: int  # the head token: 1 at creation, +1 with every write to the row
    epoch: int  # +1 whenever log items were removed; equal epochs mean the logs only grew
    location: str
    metadata_location: str
    checkpoint_location: str | None  # the newest metadata file known to be written
    checkpoint_version: int | None  # the version that file holds


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry with its head. `logs` holds the items asked for, in order of position."""

    header: EntryHeader
    envelope: bytes
    logs: Mapping[Stream, tuple[LogItem, ...]] = field(default_factory=dict)
    next_positions: Mapping[Stream, int] = field(default_factory=dict)


class KeyRecord(Record):
    """The verdict of one commit under its idempotency key."""

    key: str
    principal: str
    fingerprint: str  # hash of what was asked: the same key for other work is refused
    status: int
    body: bytes  # what is needed to answer again: an error, or a small JSON about the success
    created_at_ms: int


class Event(Record):
    """One row of the outbox, as written."""

    kind: str
    namespace: Levels
    name: str
    entry_id: EntryId | None
    principal: str
    key: str | None
    at_ms: int
    payload: bytes  # JSON


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One row of the outbox, as read: `sequence` orders the feed."""

    sequence: int
    event: Event


@dataclass(frozen=True, slots=True)
class Principal:
    """Someone who may ask for tokens. The secret is stored hashed (scrypt)."""

    client_id: str
    secret_hash: str
    role: str
    created_at_ms: int


# --- operations of `write` ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    """Its parent must exist (when it has one); it must not."""

    levels: Levels
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SetNamespaceProperties:
    """Replace all properties, if the namespace still has the expected version."""

    levels: Levels
    expected_version: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DropNamespace:
    """It must exist and hold nothing."""

    levels: Levels


@dataclass(frozen=True, slots=True)
class CreateEntry:
    """The namespace must exist, the name be free; for tables, the location overlap no live table's."""

    id: EntryId
    namespace: Levels
    name: str
    kind: Kind
    uuid: str
    location: str  # canonical, without trailing slash
    metadata_location: str
    checkpointed: bool  # the file at metadata_location is written
    envelope: bytes
    logs: Mapping[Stream, tuple[LogItem, ...]] = field(default_factory=dict)
    next_positions: Mapping[Stream, int] = field(default_factory=dict)  # where beyond the last item


class SwapEntry(Record):
    """The swap: publish a candidate if the head is still the one it was built on."""

    id: EntryId
    expected_version: int
    uuid: str
    location: str
    metadata_location: str
    checkpointed: bool
    envelope: bytes
    logs: Mapping[Stream, LogDelta] = msgspec.field(default_factory=dict)
    tags_are_new: bool = (
        False  # what they stand for was just made: a store need not look for others that have them
    )


@dataclass(frozen=True, slots=True)
class CheckEntry:
    """Change nothing, but hold the entry as it is until this transaction ends: it must have the expected version."""

    id: EntryId
    expected_version: int


@dataclass(frozen=True, slots=True)
class RenameEntry:
    """Give the entry another name, if it still has the expected version and the name is free."""

    id: EntryId
    expected_version: int
    namespace: Levels
    name: str


@dataclass(frozen=True, slots=True)
class DropEntry:
    """Remove the entry and its logs, if it still has the expected version. Keys and events stay."""

    id: EntryId
    expected_version: int


@dataclass(frozen=True, slots=True)
class MarkCheckpoint:
    """Remember that the metadata file of this version is written. Does not move the head's version.

    A newer checkpoint already marked, or an entry that is gone, makes this a no-op, not a refusal.
    """

    id: EntryId
    version: int
    location: str


class PutKey(Record):
    """Store a verdict; refused when the (principal, key) is already there.

    A key that was drawn for this very write is new: nobody else can have stored it.
    """

    record: KeyRecord
    is_new: bool = False


class PutEvent(Record):
    """Add a row to the outbox. `snapshot_ids` are the snapshots of its entry that it brought."""

    event: Event
    snapshot_ids: tuple[int, ...] = ()


Operation = (
    CreateNamespace
    | SetNamespaceProperties
    | DropNamespace
    | CreateEntry
    | SwapEntry
    | CheckEntry
    | RenameEntry
    | DropEntry
    | MarkCheckpoint
    | PutKey
    | PutEvent
    | PutFile
    | PutFootprint
    | DropFootprints
    | PutJob
    | DropJob
    | PutDoomed
)


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was applied: operation `index` did not hold, for `reason`."""

    index: int
    reason: Reason
    kind: Kind | None = None  # NAME_TAKEN: what stands there
    detail: str = ""


class Store(Protocol):
    """The catalog's state. See the module's docstring for the rules."""

    is_near: bool  # it is on this machine: a write waits for no more than its disk

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        """Apply all of them in one durable transaction, or none."""

    def at_once(self) -> AbstractContextManager[None]:
        """While it lasts, a write of this thread that would have to wait long for another's raises WouldWait instead.

        Nothing was written then. Where `is_near` is false, a write waits all the same.
        """

    def load_namespace(self, levels: Levels) -> Namespace | None:
        """One namespace, or None."""

    def list_namespaces(self, parent: Levels, *, after: str | None, limit: int) -> list[Levels]:
        """Direct children of `parent` (the root is `()`), by name; names greater than `after`."""

    def load_header(self, namespace: Levels, name: str) -> EntryHeader | None:
        """The header of the table or view at this name."""

    def load_header_by_id(self, id: EntryId) -> EntryHeader | None:
        """The header of an entry, whatever its name is now."""

    def load_entries(
        self,
        names: Sequence[tuple[Levels, str]],
        *,
        known: Mapping[EntryId, tuple[int, int, int]] | None = None,
    ) -> list[Entry | None]:
        """Heads of several entries, read at one point in time, in the order asked.

        `known` maps an entry to (epoch, next snapshot position, next history position) that the caller
        holds: while the epoch is the same, only items from those positions on are read.
        """

    def list_entries(self, namespace: Levels, kind: Kind, *, after: str | None, limit: int) -> list[str]:
        """Names in a namespace, sorted; names greater than `after`."""

    def stale_checkpoints(self, *, limit: int) -> list[EntryHeader]:
        """Tables whose newest metadata file is behind their head."""

    def recent_tables(self, *, limit: int) -> list[EntryHeader]:
        """Tables of which the newest events tell, the latest first; only so many events are looked at."""

    def load_key(self, principal: str, key: str) -> KeyRecord | None:
        """The verdict stored under a key."""

    def load_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], KeyRecord]:
        """The verdicts stored under these (principal, key) pairs, of those that are there."""

    def turn(self, id: EntryId, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Take turns with other processes that swap this entry; True when it is ours.

        A courtesy that spares lost swaps, never a lock that correctness rests on: False after the timeout or
        when the database cannot say, and the caller goes on all the same. SQLite and memory have one gate per
        process and always say True.
        """

    def claim(self) -> bool | None:
        """Have this process be the one that may write its journalled files after their swap, until it closes the store.

        True when it is, False when another is, None where nobody may: where several processes read heads of each other.
        """

    def read_journal(self, *, before_ms: int, limit: int) -> list[JournalledFile]:
        """Files that may not be durable yet, put before this time, oldest first."""

    def drop_files(self, locations: Sequence[str]) -> None:
        """These files are durable, or not wanted any more."""

    def load_footprints(self, id: EntryId, snapshot_ids: Sequence[int]) -> dict[int, bytes]:
        """What these snapshots brought, of those that it is known of."""

    def load_job(self, principal: str, id: str) -> Job | None:
        """A job that is not done yet."""

    def claim_jobs(self, *, owner: str, now_ms: int, lease_ms: int, limit: int) -> list[Job]:
        """Jobs that are due and that nobody holds, oldest first; held by `owner` until the lease ends."""

    def count_jobs(self) -> int:
        """How many are not done yet."""

    def read_doomed(self, *, now_ms: int, limit: int) -> list[DoomedFile]:
        """Files whose grace time is over, oldest first."""

    def drop_doomed(self, locations: Sequence[str]) -> None:
        """These are deleted, or in use again."""

    def expire_keys(self, *, before_ms: int, limit: int) -> int:
        """Forget keys older than this; returns how many."""

    def read_events(self, *, after: int, limit: int) -> list[StoredEvent]:
        """Outbox rows after a sequence, in order, never skipping one that commits later."""

    def read_entry_events(self, id: EntryId, *, after: int, limit: int) -> list[StoredEvent]:
        """As `read_events`, of one entry, whatever its names were."""

    def find_snapshot_event(self, id: EntryId, snapshot_id: int) -> StoredEvent | None:
        """The newest event that brought this snapshot of an entry; seen as soon as it is committed."""

    def put_principal(self, principal: Principal) -> None:
        """Create or replace a principal."""

    def load_principal(self, client_id: str) -> Principal | None:
        """One principal, or None."""

    def list_principals(self) -> list[Principal]:
        """All of them, by client id."""

    def drop_principal(self, client_id: str) -> bool:
        """False when there was none."""

    def load_secret(self, name: str, *, create: bytes) -> bytes:
        """A secret shared by all replicas (the token signing key); stored as `create` if there was none."""

    def ping(self) -> None:
        """Raise StorageFailed unless the database answers."""

    def close(self) -> None:
        """Let go of connections. Safe to call twice."""

    def iter_headers(self) -> Iterator[EntryHeader]:
        """Every entry, by namespace and name."""
