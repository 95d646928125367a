"""Builders that default everything, so that a test shows only what matters."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from headgate.core.encoded_log import LogDelta, LogItem
from headgate.store.base import (
    CreateEntry,
    CreateNamespace,
    DoomedFile,
    DropEntry,
    Entry,
    EntryHeader,
    EntryId,
    Event,
    Job,
    JournalledFile,
    KeyRecord,
    Kind,
    Levels,
    PutDoomed,
    PutEvent,
    PutFile,
    PutJob,
    PutKey,
    RenameEntry,
    Store,
    Stream,
    SwapEntry,
)

NS: Levels = ("db",)


def new_id() -> EntryId:
    return EntryId(str(uuid.uuid4()))


def namespace(*levels: str, **properties: str) -> CreateNamespace:
    return CreateNamespace(levels, properties)


def item(position: int, *, tag: int | None = None, key: int | None = None) -> LogItem:
    return LogItem(position, 1000 + position if key is None else key, b'{"at":%d}' % position, tag)


def added(*items: LogItem, removed: Iterable[int] = ()) -> LogDelta:
    return LogDelta(tuple(removed), items)


def table(
    name: str = "t",
    *,
    id: EntryId | None = None,
    namespace: Levels = NS,
    kind: Kind = Kind.TABLE,
    location: str | None = None,
    checkpointed: bool = True,
    snapshots: tuple[LogItem, ...] = (),
    history: tuple[LogItem, ...] = (),
) -> CreateEntry:
    place = location or f"s3://lake/{'/'.join(namespace)}/{name}"
    return CreateEntry(
        id=id or new_id(),
        namespace=namespace,
        name=name,
        kind=kind,
        uuid=f"uuid-{name}",
        location=place,
        metadata_location=f"{place}/metadata/1.json",
        checkpointed=checkpointed,
        envelope=b'{"v":1}',
        logs={Stream.SNAPSHOTS: snapshots, Stream.HISTORY: history},
    )


def view(name: str = "v", **more: object) -> CreateEntry:
    return table(name, kind=Kind.VIEW, **more)  # type: ignore[arg-type]  # the same builder's arguments


def swap(
    header: EntryHeader,
    *,
    expected: int | None = None,
    location: str | None = None,
    checkpointed: bool = False,
    snapshots: LogDelta | None = None,
    history: LogDelta | None = None,
) -> SwapEntry:
    version = header.version if expected is None else expected
    logs = {Stream.SNAPSHOTS: snapshots, Stream.HISTORY: history}
    return SwapEntry(
        id=header.id,
        expected_version=version,
        uuid=header.uuid,
        location=location or header.location,
        metadata_location=f"{header.location}/metadata/{version + 1}.json",
        checkpointed=checkpointed,
        envelope=b'{"v":%d}' % (version + 1),
        logs={stream: delta for stream, delta in logs.items() if delta is not None},
    )


def rename(
    header: EntryHeader, name: str, *, namespace: Levels = NS, expected: int | None = None
) -> RenameEntry:
    return RenameEntry(header.id, header.version if expected is None else expected, namespace, name)


def drop(header: EntryHeader, *, expected: int | None = None) -> DropEntry:
    return DropEntry(header.id, header.version if expected is None else expected)


def put_key(key: str = "k", *, principal: str = "ann", status: int = 200, at_ms: int = 1) -> PutKey:
    return PutKey(KeyRecord(key, principal, "fp-" + key, status, b'{"ok":true}', at_ms))


def put_event(
    kind: str = "swap",
    *,
    name: str = "t",
    key: str | None = None,
    id: EntryId | None = None,
    snapshot_ids: tuple[int, ...] = (),
) -> PutEvent:
    event = Event(kind, NS, name, id, "ann", key, 7, b'{"kind":"%s"}' % kind.encode())
    return PutEvent(event, snapshot_ids)


def put_file(location: str = "s3://lake/m.avro", *, data: bytes = b"\x00bytes", at_ms: int = 1) -> PutFile:
    return PutFile(JournalledFile(location, data, at_ms))


def put_job(id: str = "j", *, principal: str = "ann", due_ms: int = 0, at_ms: int = 1) -> PutJob:
    job = Job(id, "async", NS, "t", principal, "writer", "fp-" + id, b"\x00{}", due_ms, at_ms)
    return PutJob(job)


def doom(*locations: str, due_ms: int = 5, id: EntryId = EntryId("e")) -> PutDoomed:  # noqa: B008 - a plain string
    return PutDoomed(tuple(DoomedFile(location, id, due_ms) for location in locations))


@dataclass(frozen=True, slots=True)
class Catalog:
    """A store with shorthands for what tests look at."""

    store: Store

    def must(self, *operations: object) -> None:
        refused = self.store.write(operations)  # type: ignore[arg-type]  # the builders' values
        assert refused is None, refused

    def create(self, name: str = "t", **more: object) -> EntryHeader:
        """Create a table in a namespace that is made when it is not there; its header."""
        create = table(name, **more)  # type: ignore[arg-type]  # the builder's arguments
        if self.store.load_namespace(create.namespace) is None:
            self.must(CreateNamespace(create.namespace, {}))
        self.must(create)
        return self.header(name, namespace=create.namespace)

    def header(self, name: str = "t", *, namespace: Levels = NS) -> EntryHeader:
        header = self.store.load_header(namespace, name)
        assert header is not None
        return header

    def entry(self, name: str = "t", *, known: tuple[int, int, int] | None = None) -> Entry:
        held = None if known is None else {self.header(name).id: known}
        (entry,) = self.store.load_entries([(NS, name)], known=held)
        assert entry is not None
        return entry

    def positions(
        self, name: str = "t", *, known: tuple[int, int, int] | None = None
    ) -> tuple[list[int], list[int]]:
        logs = self.entry(name, known=known).logs
        return [one.position for one in logs[Stream.SNAPSHOTS]], [
            one.position for one in logs[Stream.HISTORY]
        ]

    def event_kinds(self) -> list[str]:
        return [stored.event.kind for stored in self.store.read_events(after=0, limit=10_000)]
