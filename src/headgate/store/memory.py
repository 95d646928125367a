"""The catalog's state in dictionaries: the model that the SQL stores are compared with, and for tests.

Written for plainness, not to share the SQL stores' ways: locations are compared pair by pair, tags by a look.
Keeps nothing on disk.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import islice

from headgate.errors import StorageFailed
from headgate.store.base import (
    DoomedFile,
    Entry,
    EntryHeader,
    EntryId,
    Job,
    JournalledFile,
    KeyRecord,
    Kind,
    Levels,
    Namespace,
    Operation,
    Principal,
    Refused,
    StoredEvent,
)
from headgate.store.memory_write import MemoryRows
from headgate.store.rows import RECENT_EVENTS, path_of, wanted_from


class MemoryStore:
    """`Store` for one process and its lifetime."""

    is_near = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._rows = MemoryRows()
        self._principals: dict[str, Principal] = {}
        self._secrets: dict[str, bytes] = {}

    # --- the one write ---------------------------------------------------------------------------------

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        """Apply all of them, or none."""
        with self._held():
            return self._rows.apply(operations)

    # --- reads -----------------------------------------------------------------------------------------

    def at_once(self) -> AbstractContextManager[None]:
        """A write waits for no more than another's assignments."""
        return nullcontext()

    def claim(self) -> bool | None:
        """Nobody: several services read heads of each other."""
        return None

    def load_namespace(self, levels: Levels) -> Namespace | None:
        """One namespace, or None."""
        path_of(levels)
        with self._held():
            return self._rows.namespaces.get(levels)

    def list_namespaces(self, parent: Levels, *, after: str | None, limit: int) -> list[Levels]:
        """Direct children of `parent` (the root is `()`), by name; names greater than `after`."""
        path_of(parent)
        with self._held():
            children = sorted(levels for levels in self._rows.namespaces if levels[:-1] == parent)
        return [levels for levels in children if levels[-1] > (after or "")][:limit]

    def load_header(self, namespace: Levels, name: str) -> EntryHeader | None:
        """The header of the table or view at this name."""
        path_of(namespace)
        with self._held():
            id = self._rows.names.get((namespace, name))
            return None if id is None else self._rows.heads[id].header

    def load_header_by_id(self, id: EntryId) -> EntryHeader | None:
        """The header of an entry, whatever its name is now."""
        with self._held():
            head = self._rows.heads.get(id)
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
        if (id := self._rows.names.get(place)) is None:
            return None
        head = self._rows.heads[id]
        logs = {
            stream: tuple(item for _, item in sorted(head.logs[stream].items()) if item.position >= position)
            for stream, position in wanted_from(known, id=id, epoch=head.header.epoch).items()
        }
        return Entry(head.header, head.envelope, logs, dict(head.next_positions))

    def list_entries(self, namespace: Levels, kind: Kind, *, after: str | None, limit: int) -> list[str]:
        """Names in a namespace, sorted; names greater than `after`."""
        path_of(namespace)
        with self._held():
            headers = [head.header for head in self._rows.heads.values()]
        names = sorted(
            header.name for header in headers if (header.namespace, header.kind) == (namespace, kind)
        )
        return [name for name in names if name > (after or "")][:limit]

    def stale_checkpoints(self, *, limit: int) -> list[EntryHeader]:
        """Tables whose newest metadata file is behind their head."""
        with self._held():
            tables = [head.header for head in self._rows.heads.values() if head.header.kind is Kind.TABLE]
        stale = [header for header in tables if (header.checkpoint_version or 0) < header.version]
        return sorted(stale, key=lambda header: header.id)[:limit]

    def recent_tables(self, *, limit: int) -> list[EntryHeader]:
        """Tables of which the newest events tell, the latest first."""
        with self._held():
            newest = islice(reversed(self._rows.events.values()), RECENT_EVENTS)
            ids = dict.fromkeys(event.entry_id for event in newest)
            found = [head.header for id_ in ids if id_ and (head := self._rows.heads.get(id_)) is not None]
        return [header for header in found if header.kind is Kind.TABLE][:limit]

    def iter_headers(self) -> Iterator[EntryHeader]:
        """Every entry, by namespace and name."""
        with self._held():
            headers = [head.header for head in self._rows.heads.values()]
        yield from sorted(headers, key=lambda header: (header.namespace, header.name))

    def load_key(self, principal: str, key: str) -> KeyRecord | None:
        """The verdict stored under a key."""
        with self._held():
            return self._rows.keys.get((principal, key))

    def load_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], KeyRecord]:
        """The verdicts stored under these (principal, key) pairs, of those that are there."""
        with self._held():
            return {pair: self._rows.keys[pair] for pair in keys if pair in self._rows.keys}

    def expire_keys(self, *, before_ms: int, limit: int) -> int:
        """Forget keys older than this; returns how many."""
        with self._held():
            old = [record for record in self._rows.keys.values() if record.created_at_ms < before_ms]
            old.sort(key=lambda record: record.created_at_ms)
            for record in old[:limit]:
                del self._rows.keys[record.principal, record.key]
            return len(old[:limit])

    def read_events(self, *, after: int, limit: int) -> list[StoredEvent]:
        """Outbox rows after a sequence, in order."""
        with self._held():
            last = min(after + limit, len(self._rows.events))
            return [StoredEvent(at, self._rows.events[at]) for at in range(max(after, 0) + 1, last + 1)]

    def read_entry_events(self, id: EntryId, *, after: int, limit: int) -> list[StoredEvent]:
        """As `read_events`, of one entry."""
        with self._held():
            ours = [
                (at, event) for at, event in self._rows.events.items() if at > after and event.entry_id == id
            ]
        return [StoredEvent(at, event) for at, event in sorted(ours, key=lambda pair: pair[0])[:limit]]

    def find_snapshot_event(self, id: EntryId, snapshot_id: int) -> StoredEvent | None:
        """The newest event that brought this snapshot of an entry."""
        with self._held():
            at = self._rows.event_snapshots.get((id, snapshot_id))
            return None if at is None else StoredEvent(at, self._rows.events[at])

    # --- journalled files, footprints, jobs, doomed files ----------------------------------------------

    @contextmanager
    def turn(self, id: EntryId, *, timeout_s: float) -> Iterator[bool]:
        """There is no other process to take turns with."""
        yield True

    def read_journal(self, *, before_ms: int, limit: int) -> list[JournalledFile]:
        """Files that may not be durable yet, put before this time, in the order they were put."""
        with self._held():
            files = list(self._rows.files.values())
        return [file for file in files if file.created_at_ms < before_ms][:limit]

    def drop_files(self, locations: Sequence[str]) -> None:
        """These files are durable, or not wanted any more."""
        with self._held():
            for location in locations:
                self._rows.files.pop(location, None)

    def load_footprints(self, id: EntryId, snapshot_ids: Sequence[int]) -> dict[int, bytes]:
        """What these snapshots brought, of those that it is known of."""
        with self._held():
            known = self._rows.footprints.get(id, {})
            return {snapshot_id: known[snapshot_id] for snapshot_id in snapshot_ids if snapshot_id in known}

    def load_job(self, principal: str, id: str) -> Job | None:
        """A job that is not done yet."""
        with self._held():
            waiting = self._rows.jobs.get((principal, id))
            return None if waiting is None else waiting.job

    def claim_jobs(self, *, owner: str, now_ms: int, lease_ms: int, limit: int) -> list[Job]:
        """Jobs that are due and that nobody holds, in the order they were put; held until the lease ends."""
        with self._held():
            free = [
                (place, waiting)
                for place, waiting in self._rows.jobs.items()
                if waiting.job.due_at_ms <= now_ms and waiting.held_until_ms <= now_ms
            ]
            free.sort(key=lambda pair: pair[1].number)
            for place, waiting in free[:limit]:
                self._rows.jobs[place] = replace(waiting, owner=owner, held_until_ms=now_ms + lease_ms)
        return [waiting.job for _, waiting in free[:limit]]

    def count_jobs(self) -> int:
        """How many are not done yet."""
        with self._held():
            return len(self._rows.jobs)

    def read_doomed(self, *, now_ms: int, limit: int) -> list[DoomedFile]:
        """Files whose grace time is over, oldest first."""
        with self._held():
            due = [file for file in self._rows.doomed.values() if file.due_at_ms <= now_ms]
        return sorted(due, key=lambda file: (file.due_at_ms, file.location))[:limit]

    def drop_doomed(self, locations: Sequence[str]) -> None:
        """These are deleted, or in use again."""
        with self._held():
            for location in locations:
                self._rows.doomed.pop(location, None)

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
