"""Random writes: SQLite and PostgreSQL must do what the model in memory does."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.core.encoded_log import LogDelta, LogItem
from headgate.store.base import (
    CreateNamespace,
    DropEntry,
    DropFootprints,
    DropJob,
    DropNamespace,
    EntryHeader,
    EntryId,
    JournalledFile,
    Kind,
    MarkCheckpoint,
    Operation,
    PutFootprint,
    RenameEntry,
    SetNamespaceProperties,
    Store,
    Stream,
)
from headgate.store.memory import MemoryStore
from headgate.store.sqlite import SqliteStore
from tests.store.builders import NS, doom, put_event, put_file, put_job, put_key, swap, table
from tests.store.conftest import empty_postgres

LEVELS: tuple[tuple[str, ...], ...] = (NS, ("a",), ("a", "b"), ("a", "b", "c"), ("ä b",))
NAMES = ("t", "u", "T")
IDS = tuple(EntryId(f"id-{number}") for number in range(5))
LOCATIONS = ("s3://l/x", "s3://l/x/y", "s3://l/xy", "s3://l/z", "s3://l/w", "s3://l")


@dataclass(frozen=True)
class Draft:
    """An operation in which versions and positions are still relative to the head it will meet."""

    kind: str
    id: EntryId
    levels: tuple[str, ...]
    name: str
    location: str
    off: int  # of the version; 0 is the right one
    flag: bool
    tags: tuple[int | None, ...]
    removed: tuple[int, ...]
    stream: Stream


KINDS = (
    *("swap",) * 6,
    *("create",) * 4,
    *("namespace",) * 3,
    *("rename", "drop", "drop-namespace", "properties", "mark", "key", "event", "view"),
    *("key", "event", "file", "footprint", "drop-footprints", "job", "drop-job", "doom"),
)

DRAFTS = st.builds(
    Draft,
    kind=st.sampled_from(KINDS),
    id=st.sampled_from(IDS),
    levels=st.sampled_from(LEVELS),
    name=st.sampled_from(NAMES),
    location=st.sampled_from(LOCATIONS),
    off=st.sampled_from((0, 0, 0, 0, -1, 1)),
    flag=st.booleans(),
    tags=st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=3).map(tuple),
    removed=st.lists(st.integers(0, 4), max_size=2, unique=True).map(tuple),
    stream=st.sampled_from(Stream),
)
BATCHES = st.lists(st.lists(DRAFTS, min_size=1, max_size=4), max_size=14)

NOWHERE = EntryHeader(EntryId(""), NS, "t", Kind.TABLE, "uuid", 1, 0, "s3://l/q", "m", None, None)


def settle(draft: Draft, model: Store) -> Operation | None:
    """The operation, given the state before its batch; None for a caller's bug (an id used twice)."""
    header = model.load_header_by_id(draft.id)
    here = replace(NOWHERE, id=draft.id) if header is None else header
    version = here.version + draft.off
    match draft.kind:
        case "create" | "view":
            if header is not None:
                return None
            kind = Kind.VIEW if draft.kind == "view" else Kind.TABLE
            items = tuple(LogItem(at, at, b"%d" % at, tag) for at, tag in enumerate(draft.tags))
            return replace(
                table(draft.name, id=draft.id, namespace=draft.levels, kind=kind, location=draft.location),
                checkpointed=draft.flag,
                logs={draft.stream: items},
            )
        case "swap":
            (entry,) = model.load_entries([(here.namespace, here.name)])
            start = entry.next_positions[draft.stream] if entry and header else 0
            items = tuple(LogItem(start + at, at, b"%d" % at, tag) for at, tag in enumerate(draft.tags))
            moved = draft.location if draft.removed == (0,) else here.location
            ahead = LOCATIONS.index(draft.location) - 1  # of the store's own next position, or behind it
            return replace(
                swap(here, expected=version, location=moved, checkpointed=draft.flag),
                logs={draft.stream: LogDelta(draft.removed if draft.flag else (), items, start + ahead)},
            )
        case "namespace":
            return CreateNamespace(draft.levels, {"name": draft.name})
        case "rename":
            return RenameEntry(draft.id, version, draft.levels, draft.name)
        case "drop":
            return DropEntry(draft.id, version)
        case "drop-namespace":
            return DropNamespace(draft.levels)
        case "properties":
            standing = model.load_namespace(draft.levels)
            found = standing.version if standing else 1
            return SetNamespaceProperties(draft.levels, found + draft.off, {"to": draft.location})
        case "mark":
            return MarkCheckpoint(draft.id, version, draft.location)
        case "key":
            return put_key(draft.name, principal=draft.location, at_ms=len(draft.tags))
        case "file":
            location = f"{draft.location}/{draft.name}"
            is_journalled = any(file.location == location for file in journal_of(model))
            return None if is_journalled else put_file(location, data=draft.name.encode())
        case "footprint":
            return PutFootprint(draft.id, len(draft.tags), draft.location.encode())
        case "drop-footprints":
            return DropFootprints(draft.id, draft.removed)
        case "job":
            return put_job(draft.name, principal=draft.location, due_ms=len(draft.tags))
        case "drop-job":
            return DropJob(draft.location, draft.name)
        case "doom":
            return doom(draft.location, draft.name, due_ms=len(draft.tags), id=draft.id)
        case _:
            return put_event(draft.location, name=draft.name, id=draft.id, snapshot_ids=draft.removed)


def journal_of(store: Store) -> list[JournalledFile]:
    return store.read_journal(before_ms=9, limit=1000)


def settle_all(drafts: Sequence[Draft], model: Store) -> list[Operation]:
    """At most one create, one swap of an id and one file in a batch: more would be a bug of the caller."""
    operations: list[Operation] = []
    used: set[str] = set()
    for draft in drafts:
        if draft.kind in ("create", "view", "swap", "file"):
            place = "file" if draft.kind == "file" else draft.id
            if place in used:
                continue
            used.add(place)
        if (operation := settle(draft, model)) is not None:
            operations.append(operation)
    return operations


def picture(store: Store) -> dict[str, object]:
    """Everything that can be seen of a store, but for the numbers of its events."""
    headers = list(store.iter_headers())
    places = [(header.namespace, header.name) for header in headers]
    known = {header.id: (0, 1, 1) for header in headers}
    return {
        "headers": headers,
        "by id": [store.load_header_by_id(id) for id in IDS],
        "entries": store.load_entries(places),
        "news": store.load_entries(places, known=known),
        "namespaces": [store.load_namespace(levels) for levels in LEVELS],
        "children": [store.list_namespaces(levels, after="a", limit=2) for levels in ((), *LEVELS)],
        "names": [
            store.list_entries(levels, kind, after=None, limit=9) for levels in LEVELS for kind in Kind
        ],
        "stale": store.stale_checkpoints(limit=3),
        "recent": store.recent_tables(limit=3),
        "keys": [store.load_key(principal, key) for principal in LOCATIONS for key in NAMES],
        "keys at once": store.load_keys([(principal, key) for principal in LOCATIONS for key in NAMES]),
        "journal": journal_of(store),
        "footprints": [store.load_footprints(id, range(5)) for id in IDS],
        "jobs": [store.load_job(principal, id) for principal in LOCATIONS for id in NAMES],
        "count of jobs": store.count_jobs(),
        "doomed": [store.read_doomed(now_ms=now_ms, limit=7) for now_ms in (1, 9)],
        "events": [stored.event for stored in store.read_events(after=0, limit=1000)],
        "events by id": [
            [stored.event for stored in store.read_entry_events(id, after=0, limit=1000)] for id in IDS
        ],
        "snapshots": [
            None if (stored := store.find_snapshot_event(id, snapshot_id)) is None else stored.event
            for id in IDS
            for snapshot_id in range(5)
        ],
    }


def compare(store: Store, batches: list[list[Draft]]) -> None:
    model = MemoryStore()
    for drafts in batches:
        operations = settle_all(drafts, model)
        expected, found = model.write(operations), store.write(operations)
        # Of several locations that overlap, either may be named.
        assert found == (expected and replace(expected, detail=found.detail if found else "")), operations
        assert picture(store) == picture(model), operations
    for limit in (2, 1000):  # of keys of one age, either may be forgotten first
        assert store.expire_keys(before_ms=2, limit=limit) == model.expire_keys(before_ms=2, limit=limit)
    assert upkeep_of(store) == upkeep_of(model)
    assert picture(store) == picture(model)


def upkeep_of(store: Store) -> list[object]:
    """The jobs that are claimed one time after the other, while some leases end; some files are dropped before."""
    store.drop_files([f"{location}/{name}" for location in LOCATIONS[:3] for name in NAMES])
    store.drop_doomed(LOCATIONS[:3])
    return [
        store.claim_jobs(owner="x", now_ms=now_ms, lease_ms=10, limit=limit)
        for now_ms, limit in ((1, 1), (2, 2), (3, 9), (11, 1), (99, 9))
    ]


@settings(max_examples=150, deadline=None)
@given(batches=BATCHES)
def test_sqlite_does_what_the_model_does(batches: list[list[Draft]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = SqliteStore(Path(directory) / "catalog.db")
        try:
            compare(store, batches)
        finally:
            store.close()


@pytest.mark.postgres
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_postgres_does_what_the_model_does(emptied_postgres_url: str, batches: list[list[Draft]]) -> None:
    import psycopg

    from headgate.store.postgres import PostgresStore

    with psycopg.connect(emptied_postgres_url, autocommit=True) as connection:
        empty_postgres(connection)
    store = PostgresStore(emptied_postgres_url)
    try:
        compare(store, batches)
    finally:
        store.close()
