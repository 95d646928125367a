"""The dictionaries of the store in memory, and the operations of `write` on them.

Knows nothing of threads: `memory.py` holds the lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from headgate.core.encoded_log import LogItem
from headgate.errors import invariant
from headgate.store.base import (
    CheckEntry,
    CreateEntry,
    CreateNamespace,
    DoomedFile,
    DropEntry,
    DropFootprints,
    DropJob,
    DropNamespace,
    EntryHeader,
    EntryId,
    Event,
    Job,
    JournalledFile,
    KeyRecord,
    Kind,
    Levels,
    MarkCheckpoint,
    Namespace,
    Operation,
    PutDoomed,
    PutEvent,
    PutFile,
    PutFootprint,
    PutJob,
    PutKey,
    Reason,
    Refused,
    RenameEntry,
    SetNamespaceProperties,
    Stream,
    SwapEntry,
)
from headgate.store.journal import Journal
from headgate.store.rows import child_path_of, path_of, position_after, repeated_tag


@dataclass(slots=True)
class Head:
    """An entry as kept; replaced, never changed, except for its logs, which the journal covers."""

    header: EntryHeader
    envelope: bytes
    next_positions: Mapping[Stream, int]
    logs: Mapping[Stream, dict[int, LogItem]] = field(
        default_factory=lambda: {stream: {} for stream in Stream}
    )


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job as kept: its number in order of arrival, and who has it until when."""

    number: int
    job: Job
    owner: str = ""
    held_until_ms: int = 0


class MemoryRows:
    """Everything that the store knows, and `apply`, which changes it wholly or not at all."""

    def __init__(self) -> None:
        self.namespaces: dict[Levels, Namespace] = {}
        # The version the next namespace starts at is above every dropped one's.
        self.counters = {"namespace-version": 1, "job-number": 1}
        self.heads: dict[EntryId, Head] = {}
        self.names: dict[tuple[Levels, str], EntryId] = {}
        self.keys: dict[tuple[str, str], KeyRecord] = {}
        self.events: dict[int, Event] = {}
        self.event_snapshots: dict[tuple[EntryId | None, int], int] = {}
        self.files: dict[str, JournalledFile] = {}
        self.footprints: dict[EntryId, dict[int, bytes]] = {}
        self.jobs: dict[tuple[str, str], WaitingJob] = {}
        self.doomed: dict[str, DoomedFile] = {}
        self._journal = Journal()

    def apply(self, operations: Sequence[Operation]) -> Refused | None:
        """Run the operations in order; at the first that does not hold, take all of them back."""
        self._journal.begin()
        try:
            for index, operation in enumerate(operations):
                if (refused := self._apply_one(operation)) is not None:
                    self._journal.play_back()
                    return replace(refused, index=index)
        except BaseException:
            self._journal.play_back()
            raise
        return None

    def _apply_one(self, operation: Operation) -> Refused | None:
        match operation:
            case CheckEntry(id, expected_version):
                standing = self._find_standing(id, expected_version=expected_version)
                return standing if isinstance(standing, Refused) else None
            case SwapEntry():
                return self._swap_entry(operation)
            case PutKey(record):
                if (record.principal, record.key) in self.keys:
                    return _refused(Reason.KEY_EXISTS, record.key)
                self._journal.put(self.keys, (record.principal, record.key), record)
                return None
            case PutEvent(event, snapshot_ids):
                path_of(event.namespace)
                sequence = len(self.events) + 1
                self._journal.put(self.events, sequence, event)
                for snapshot_id in snapshot_ids:
                    self._journal.put(self.event_snapshots, (event.entry_id, snapshot_id), sequence)
                return None
            case PutFile(file):
                invariant(file.location not in self.files, f"a location is journalled once: {file.location}")
                self._journal.put(self.files, file.location, file)
                return None
            case PutFootprint(id, snapshot_id, body):
                self._journal.put(self.footprints.setdefault(id, {}), snapshot_id, body)
                return None
            case DropFootprints(id, snapshot_ids):
                for snapshot_id in snapshot_ids:
                    self._journal.remove(self.footprints.get(id, {}), snapshot_id)
                return None
            case PutJob(job):
                if (job.principal, job.id) in self.jobs:
                    return _refused(Reason.KEY_EXISTS, job.id)
                path_of(job.namespace)
                number = self.counters["job-number"]
                self._journal.put(self.counters, "job-number", number + 1)
                self._journal.put(self.jobs, (job.principal, job.id), WaitingJob(number, job))
                return None
            case DropJob(principal, job_id):
                self._journal.remove(self.jobs, (principal, job_id))
                return None
            case PutDoomed(files):
                for doomed in files:
                    if doomed.location not in self.doomed:
                        self._journal.put(self.doomed, doomed.location, doomed)
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
        if create.levels in self.namespaces:
            return _refused(Reason.NAMESPACE_EXISTS, path_of(create.levels))
        if parent and parent not in self.namespaces:
            return _refused(Reason.NAMESPACE_MISSING, path_of(parent))
        namespace = Namespace(create.levels, dict(create.properties), self.counters["namespace-version"])
        self._journal.put(self.namespaces, create.levels, namespace)
        return None

    def _set_namespace_properties(self, change: SetNamespaceProperties) -> Refused | None:
        path = path_of(change.levels)
        standing = self.namespaces.get(change.levels)
        if standing is None:
            return _refused(Reason.NAMESPACE_MISSING, path)
        if standing.version != change.expected_version:
            detail = f"expected version {change.expected_version}, found {standing.version}"
            return _refused(Reason.NAMESPACE_CHANGED, detail)
        namespace = Namespace(change.levels, dict(change.properties), standing.version + 1)
        self._journal.put(self.namespaces, change.levels, namespace)
        return None

    def _drop_namespace(self, drop: DropNamespace) -> Refused | None:
        path = path_of(drop.levels)
        standing = self.namespaces.get(drop.levels)
        if standing is None:
            return _refused(Reason.NAMESPACE_MISSING, path)
        has_entries = any(namespace == drop.levels for namespace, _ in self.names)
        if has_entries or any(levels[:-1] == drop.levels for levels in self.namespaces):
            return _refused(Reason.NAMESPACE_NOT_EMPTY, path)
        least = max(self.counters["namespace-version"], standing.version + 1)
        self._journal.put(self.counters, "namespace-version", least)
        self._journal.remove(self.namespaces, drop.levels)
        return None

    # --- writes to entries -----------------------------------------------------------------------------

    def _find_standing(self, id: EntryId, *, expected_version: int) -> Head | Refused:
        head = self.heads.get(id)
        if head is None:
            return _refused(Reason.ENTRY_MISSING, id)
        if head.header.version != expected_version:
            detail = f"expected version {expected_version}, found {head.header.version}"
            return _refused(Reason.ENTRY_CHANGED, detail)
        return head

    def _find_name_taken(self, namespace: Levels, name: str) -> Refused | None:
        path = path_of(namespace)
        if namespace not in self.namespaces:
            return _refused(Reason.NAMESPACE_MISSING, path)
        if (id := self.names.get((namespace, name))) is None:
            return None
        return _refused(Reason.NAME_TAKEN, name, kind=self.heads[id].header.kind)

    def _find_overlap(self, location: str, *, but: EntryId) -> Refused | None:
        ours = location.rstrip("/") + "/"
        for id, head in self.heads.items():
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
        invariant(create.id not in self.heads, "the id of an entry is never used again")
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
        told = create.next_positions
        positions = {one: position_after(logs[one], least=0, told=told.get(one, 0)) for one in Stream}
        items = {stream: {item.position: item for item in logs[stream]} for stream in Stream}
        self._journal.put(self.heads, create.id, Head(header, create.envelope, positions, items))
        self._journal.put(self.names, (create.namespace, create.name), create.id)
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
            positions[stream] = position_after(delta.added, least=positions[stream], told=delta.next_position)
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
        self._journal.put(self.heads, swap.id, Head(candidate, swap.envelope, positions, standing.logs))
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
        self._journal.remove(self.names, (old.namespace, old.name))
        self._journal.put(self.names, (rename.namespace, rename.name), rename.id)
        self._put_header(rename.id, header)
        return None

    def _drop_entry(self, drop: DropEntry) -> Refused | None:
        standing = self._find_standing(drop.id, expected_version=drop.expected_version)
        if isinstance(standing, Refused):
            return standing
        self._journal.remove(self.names, (standing.header.namespace, standing.header.name))
        self._journal.remove(self.heads, drop.id)
        self._journal.remove(self.footprints, drop.id)
        return None

    def _mark_checkpoint(self, mark: MarkCheckpoint) -> None:
        head = self.heads.get(mark.id)
        if head is None or not (head.header.checkpoint_version or 0) < mark.version <= head.header.version:
            return
        header = replace(head.header, checkpoint_location=mark.location, checkpoint_version=mark.version)
        self._put_header(mark.id, header)

    def _put_header(self, id: EntryId, header: EntryHeader) -> None:
        self._journal.put(self.heads, id, replace(self.heads[id], header=header))


def _refused(reason: Reason, detail: str, *, kind: Kind | None = None) -> Refused:
    return Refused(index=0, reason=reason, kind=kind, detail=detail)
