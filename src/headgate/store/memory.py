"""The catalog's state in dictionaries: the model that the SQL stores are compared with, and for tests.

Written for plainness, not to share the SQL stores' ways: locations are compared pair by pair, tags by a look.
Keeps nothing on disk.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import assert_never

from headgate.core.encoded_log import LogItem
from headgate.errors import StorageFailed, invariant
from headgate.store.base import (
    CheckEntry,
    CreateEntry,
    CreateNamespace,
    DropEntry,
    DropNamespace,
    Entry,
    EntryHeader,
    EntryId,
    Event,
    KeyRecord,
    Kind,
    Levels,
    MarkCheckpoint,
    Namespace,
    Operation,
    Principal,
    PutEvent,
    PutKey,
    Reason,
    Refused,
    RenameEntry,
    SetNamespaceProperties,
    StoredEvent,
    Stream,
    SwapEntry,
)
from headgate.store.journal import Journal
from headgate.store.rows import child_path_of, path_of, position_after, repeated_tag, wanted_from


@dataclass(slots=True)
class _Head:
    """An entry as kept; replaced, never changed, except for its logs, which the journal covers."""

    header: EntryHeader
    envelope: bytes
    next_positions: Mapping[Stream, int]
    logs: Mapping[Stream, dict[int, LogItem]] = field(
        default_factory=lambda: {stream: {} for stream in Stream}
    )


class MemoryStore:
    """`Store` for one process and its lifetime."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._namespaces: dict[Levels, Namespace] = {}
        self._counters = {
            "namespace-version": 1
        }  # what the next namespace starts at: above every dropped one's
        self._heads: dict[EntryId, _Head] = {}
        self._names: dict[tuple[Levels, str], EntryId] = {}
        self._keys: dict[tuple[str, str], KeyRecord] = {}
        self._events: dict[int, Event] = {}
        self._event_snapshots: dict[tuple[EntryId | None, int], int] = {}
        self._principals: dict[str, Principal] = {}
        self._secrets: dict[str, bytes] = {}
        self._journal = Journal()

    # --- the one write ---------------------------------------------------------------------------------

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        """Apply all of them, or none."""
        with self._held():
            self._journal.begin()
            try:
                for index, operation in enumerate(operations):
                    if (refused := self._apply(operation)) is not None:
                        self._journal.play_back()
                        return replace(refused, index=index)
            except BaseException:
                self._journal.play_back()
                raise
            return None

    def _apply(self, operation: Operation) -> Refused | None:
        match operation:
            case CheckEntry(id, expected_version):
                standing = self._find_standing(id, expected_version=expected_version)
                return standing if isinstance(standing, Refused) else None
            case SwapEntry():
                return self._swap_entry(operation)
            case PutKey(record):
                if (record.principal, record.key) in self._keys:
                    return _refused(Reason.KEY_EXISTS, record.key)
                self._journal.put(self._keys, (record.principal, record.key), record)
                return None
            case PutEvent(event, snapshot_ids):
                path_of(event.namespace)
                sequence = len(self._events) + 1
                self._journal.put(self._events, sequence, event)
                for snapshot_id in snapshot_ids:
                    self._journal.put(self._event_snapshots, (event.entry_id, snapshot_id), sequence)
                return None
            case MarkCheckpoint():
                self._mark_checkpoint(operation)
                return None
            case CreateEntry():
                return self._create_entry(operation)
            case RenameEntry():
                return self._rename_entry(operation)
            case DropEntry():
                return self._drop_entry(operation)
            case CreateNamespace():
                return self._create_namespace(operation)
            case SetNamespaceProperties():
                return self._set_namespace_properties(operation)
            case DropNamespace():
                return self._drop_namespace(operation)
            case _:
                assert_never(operation)

    # --- writes to namespaces --------------------------------------------------------------------------

    def _create_namespace(self, create: CreateNamespace) -> Refused | None:
        child_path_of(create.levels)
        parent = create.levels[:-1]
        if create.levels in self._namespaces:
            return _refused(Reason.NAMESPACE_EXISTS, path_of(create.levels))
        if parent and parent not in self._namespaces:
            return _refused(Reason.NAMESPACE_MISSING, path_of(parent))
        namespace = Namespace(create.levels, dict(create.properties), self._counters["namespace-version"])
        self._journal.put(self._namespaces, create.levels, namespace)
        return None

    def _set_namespace_properties(self, change: SetNamespaceProperties) -> Refused | None:
        path = path_of(change.levels)
        standing = self._namespaces.get(change.levels)
        if standing is None:
            return _refused(Reason.NAMESPACE_MISSING, path)
        if standing.version != change.expected_version:
            detail = f"expected version {change.expected_version}, found {standing.version}"
            return _refused(Reason.NAMESPACE_CHANGED, detail)
        namespace = Namespace(change.levels, dict(change.properties), standing.version + 1)
        self._journal.put(self._namespaces, change.levels, namespace)
        return None

    def _drop_namespace(self, drop: DropNamespace) -> Refused | None:
        path = path_of(drop.levels)
        standing = self._namespaces.get(drop.levels)
        if standing is None:
            return _refused(Reason.NAMESPACE_MISSING, path)
        has_entries = any(namespace == drop.levels for namespace, _ in self._names)
        if has_entries or any(levels[:-1] == drop.levels for levels in self._namespaces):
            return _refused(Reason.NAMESPACE_NOT_EMPTY, path)
        least = max(self._counters["namespace-version"], standing.version + 1)
        self._journal.put(self._counters, "namespace-version", least)
        self._journal.remove(self._namespaces, drop.levels)
        return None

    # --- writes to entries -----------------------------------------------------------------------------

    def _find_standing(self, id: EntryId, *, expected_version: int) -> _Head | Refused:
        head = self._heads.get(id)
        if head is None:
            return _refused(Reason.ENTRY_MISSING, id)
        if head.header.version != expected_version:
            detail = f"expected version {expected_version}, found {head.header.version}"
            return _refused(Reason.ENTRY_CHANGED, detail)
        return head

    def _find_name_taken(self, namespace: Levels, name: str) -> Refused | None:
        path = path_of(namespace)
        if namespace not in self._namespaces:
            return _refused(Reason.NAMESPACE_MISSING, path)
        if (id := self._names.get((namespace, name))) is None:
            return None
        return _refused(Reason.NAME_TAKEN, name, kind=self._heads[id].header.kind)

    def _find_overlap(self, location: str, *, but: EntryId) -> Refused | None:
        ours = location.rstrip("/") + "/"
        for id, head in self._heads.items():
            theirs = head.header.location.rstrip("/") + "/"
            overlaps = ours.startswith(theirs) or theirs.startswith(ours)
            if id != but and head.header.kind is Kind.TABLE and overlaps:
                return _refused(Reason.LOCATION_TAKEN, head.header.location)
        return None

    def _create_entry(self, create: CreateEntry) -> Refused | None:
        if (taken := self._find_name_taken(create.namespace, create.name)) is not None:
            return taken
        if create.kind is Kind.TABLE and (overlap := self._find_overlap(create.location, but=create.id)):
            return overlap
        invariant(create.id not in self._heads, "the id of an entry is never used again")
        logs = {stream: create.logs.get(stream, ()) for stream in Stream}
        header = EntryHeader(
            id=create.id,
            namespace=create.namespace,
            name=create.name,
            kind=create.kind,
            uuid=create.uuid,
            version=1,
            epoch=0,
            location=create.location,
            metadata_location=create.metadata_location,
            checkpoint_location=create.metadata_location if create.checkpointed else None,
            checkpoint_version=1 if create.checkpointed else None,
        )
        positions = {stream: position_after(items, least=0) for stream, items in logs.items()}
        items = {stream: {item.position: item for item in logs[stream]} for stream in Stream}
        self._journal.put(self._heads, create.id, _Head(header, create.envelope, positions, items))
        self._journal.put(self._names, (create.namespace, create.name), create.id)
        return None

    def _swap_entry(self, swap: SwapEntry) -> Refused | None:
        standing = self._find_standing(swap.id, expected_version=swap.expected_version)
        if isinstance(standing, Refused):
            return standing
        header = standing.header
        moves = swap.location != header.location and header.kind is Kind.TABLE
        if moves and (overlap := self._find_overlap(swap.location, but=swap.id)):
            return overlap
        positions = dict(standing.next_positions)
        for stream, delta in swap.logs.items():
            log = standing.logs[stream]
            for position in delta.removed:
                self._journal.remove(log, position)
            positions[stream] = position_after(delta.added, least=positions[stream])
            tags = {item.tag for item in log.values() if item.tag is not None} if delta.added else set()
            taken = [item.tag for item in delta.added if item.tag in tags]
            if taken or repeated_tag(delta.added) is not None:
                return _refused(Reason.DUPLICATE_TAG, str(taken[0] if taken else repeated_tag(delta.added)))
            for item in delta.added:
                self._journal.put(log, item.position, item)
        candidate = replace(
            header,
            uuid=swap.uuid,
            version=header.version + 1,
            epoch=header.epoch + any(delta.removed for delta in swap.logs.values()),
            location=swap.location,
            metadata_location=swap.metadata_location,
        )
        if swap.checkpointed:
            candidate = replace(
                candidate, checkpoint_location=swap.metadata_location, checkpoint_version=candidate.version
            )
        self._journal.put(self._heads, swap.id, _Head(candidate, swap.envelope, positions, standing.logs))
        return None

    def _rename_entry(self, rename: RenameEntry) -> Refused | None:
        standing = self._find_standing(rename.id, expected_version=rename.expected_version)
        if isinstance(standing, Refused):
            return standing
        if (taken := self._find_name_taken(rename.namespace, rename.name)) is not None:
            return taken
        old = standing.header
        header = replace(old, namespace=rename.namespace, name=rename.name, version=old.version + 1)
        if old.checkpoint_version == old.version:
            # The file of the head still holds the head: metadata does not know the table's name.
            header = replace(header, checkpoint_version=header.version)
        self._journal.remove(self._names, (old.namespace, old.name))
        self._journal.put(self._names, (rename.namespace, rename.name), rename.id)
        self._put_header(rename.id, header)
        return None

    def _drop_entry(self, drop: DropEntry) -> Refused | None:
        standing = self._find_standing(drop.id, expected_version=drop.expected_version)
        if isinstance(standing, Refused):
            return standing
        self._journal.remove(self._names, (standing.header.namespace, standing.header.name))
        self._journal.remove(self._heads, drop.id)
        return None

    def _mark_checkpoint(self, mark: MarkCheckpoint) -> None:
        head = self._heads.get(mark.id)
        if head is None or not (head.header.checkpoint_version or 0) < mark.version <= head.header.version:
            return
        header = replace(head.header, checkpoint_location=mark.location, checkpoint_version=mark.version)
        self._put_header(mark.id, header)

    def _put_header(self, id: EntryId, header: EntryHeader) -> None:
        self._journal.put(self._heads, id, replace(self._heads[id], header=header))

    # --- reads -----------------------------------------------------------------------------------------

    def load_namespace(self, levels: Levels) -> Namespace | None:
        """One namespace, or None."""
        path_of(levels)
        with self._held():
            return self._namespaces.get(levels)

    def list_namespaces(self, parent: Levels, *, after: str | None, limit: int) -> list[Levels]:
        """Direct children of `parent` (the root is `()`), by name; names greater than `after`."""
        path_of(parent)
        with self._held():
            children = sorted(levels for levels in self._namespaces if levels[:-1] == parent)
        return [levels for levels in children if levels[-1] > (after or "")][:limit]

    def load_header(self, namespace: Levels, name: str) -> EntryHeader | None:
        """The header of the table or view at this name."""
        path_of(namespace)
        with self._held():
            id = self._names.get((namespace, name))
            return None if id is None else self._heads[id].header

    def load_header_by_id(self, id: EntryId) -> EntryHeader | None:
        """The header of an entry, whatever its name is now."""
        with self._held():
            head = self._heads.get(id)
            return None if head is None else head.header

    def load_entries(
        self,
        names: Sequence[tuple[Levels, str]],
        *,
        known: Mapping[EntryId, tuple[int, int, int]] | None = None,
    ) -> list[Entry | None]:
        """Heads of several entries, read at one point in time, in the order asked."""
        for namespace, _ in names:
            path_of(namespace)
        with self._held():
            return [self._load_entry(place, known) for place in names]

    def _load_entry(
        self, place: tuple[Levels, str], known: Mapping[EntryId, tuple[int, int, int]] | None
    ) -> Entry | None:
        if (id := self._names.get(place)) is None:
            return None
        head = self._heads[id]
        logs = {
            stream: tuple(item for _, item in sorted(head.logs[stream].items()) if item.position >= position)
            for stream, position in wanted_from(known, id=id, epoch=head.header.epoch).items()
        }
        return Entry(head.header, head.envelope, logs, dict(head.next_positions))

    def list_entries(self, namespace: Levels, kind: Kind, *, after: str | None, limit: int) -> list[str]:
        """Names in a namespace, sorted; names greater than `after`."""
        path_of(namespace)
        with self._held():
            headers = [head.header for head in self._heads.values()]
        names = sorted(
            header.name for header in headers if (header.namespace, header.kind) == (namespace, kind)
        )
        return [name for name in names if name > (after or "")][:limit]

    def stale_checkpoints(self, *, limit: int) -> list[EntryHeader]:
        """Tables whose newest metadata file is behind their head."""
        with self._held():
            tables = [head.header for head in self._heads.values() if head.header.kind is Kind.TABLE]
        stale = [header for header in tables if (header.checkpoint_version or 0) < header.version]
        return sorted(stale, key=lambda header: header.id)[:limit]

    def iter_headers(self) -> Iterator[EntryHeader]:
        """Every entry, by namespace and name."""
        with self._held():
            headers = [head.header for head in self._heads.values()]
        yield from sorted(headers, key=lambda header: (header.namespace, header.name))

    def load_key(self, principal: str, key: str) -> KeyRecord | None:
        """The verdict stored under a key."""
        with self._held():
            return self._keys.get((principal, key))

    def expire_keys(self, *, before_ms: int, limit: int) -> int:
        """Forget keys older than this; returns how many."""
        with self._held():
            old = [record for record in self._keys.values() if record.created_at_ms < before_ms]
            old.sort(key=lambda record: record.created_at_ms)
            for record in old[:limit]:
                del self._keys[record.principal, record.key]
            return len(old[:limit])

    def read_events(self, *, after: int, limit: int) -> list[StoredEvent]:
        """Outbox rows after a sequence, in order."""
        with self._held():
            last = min(after + limit, len(self._events))
            return [StoredEvent(at, self._events[at]) for at in range(max(after, 0) + 1, last + 1)]

    def read_entry_events(self, id: EntryId, *, after: int, limit: int) -> list[StoredEvent]:
        """As `read_events`, of one entry."""
        with self._held():
            ours = [(at, event) for at, event in self._events.items() if at > after and event.entry_id == id]
        return [StoredEvent(at, event) for at, event in sorted(ours, key=lambda pair: pair[0])[:limit]]

    def find_snapshot_event(self, id: EntryId, snapshot_id: int) -> StoredEvent | None:
        """The newest event that brought this snapshot of an entry."""
        with self._held():
            at = self._event_snapshots.get((id, snapshot_id))
            return None if at is None else StoredEvent(at, self._events[at])

    # --- principals, secrets, life ---------------------------------------------------------------------

    def put_principal(self, principal: Principal) -> None:
        """Create or replace a principal."""
        with self._held():
            self._principals[principal.client_id] = principal

    def load_principal(self, client_id: str) -> Principal | None:
        """One principal, or None."""
        with self._held():
            return self._principals.get(client_id)

    def list_principals(self) -> list[Principal]:
        """All of them, by client id."""
        with self._held():
            return sorted(self._principals.values(), key=lambda principal: principal.client_id)

    def drop_principal(self, client_id: str) -> bool:
        """False when there was none."""
        with self._held():
            return self._principals.pop(client_id, None) is not None

    def load_secret(self, name: str, *, create: bytes) -> bytes:
        """A secret; stored as `create` if there was none."""
        with self._held():
            return self._secrets.setdefault(name, create)

    def ping(self) -> None:
        """Raise StorageFailed once closed."""
        with self._held():
            return

    def close(self) -> None:
        """Forget everything. Safe to call twice."""
        self._closed = True

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the lock of a store that is open."""
        with self._lock:
            if self._closed:
                raise StorageFailed("the store is closed")
            yield


def _refused(reason: Reason, detail: str, *, kind: Kind | None = None) -> Refused:
    return Refused(index=0, reason=reason, kind=kind, detail=detail)
