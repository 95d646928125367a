"""Values of the contract ↔ columns of a row, for both SQL stores and the model in memory.

Pure: no SQL, no connection. Both databases keep their columns in the order written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from headgate.core.encoded_log import LogItem
from headgate.errors import BadInput, invariant
from headgate.store.base import (
    DoomedFile,
    Entry,
    EntryHeader,
    EntryId,
    Event,
    Job,
    JournalledFile,
    KeyRecord,
    Kind,
    Levels,
    Namespace,
    Principal,
    Stream,
)

# One character below all that a name may hold, so that paths sort as the tuples of their levels do. It is
# also the separator of the REST protocol, where no level can contain it either.
_SEPARATOR = "\x1f"

RECENT_EVENTS = 1000  # so far back a store looks for the tables of the newest events
HEADER_COLUMNS = (
    "id, namespace, name, kind, uuid, version, epoch, location, metadata_location, "
    "checkpoint_location, checkpoint_version"
)
HEAD_COLUMNS = HEADER_COLUMNS + ", next_snapshot_position, next_history_position, envelope"
RECENT_TABLES = f"""
SELECT {HEADER_COLUMNS} FROM entries JOIN (
    SELECT entry_id, max(sequence) AS latest
    FROM (SELECT entry_id, sequence FROM events ORDER BY sequence DESC LIMIT {RECENT_EVENTS}) AS newest
    WHERE entry_id IS NOT NULL GROUP BY entry_id
) AS told ON told.entry_id = entries.id
WHERE entries.kind = 'table' ORDER BY latest DESC
"""

Row = tuple[Any, ...]


def path_of(levels: Levels) -> str:
    """A namespace as one column; the root is the empty path."""
    for level in levels:
        if not level or min(level) <= _SEPARATOR:
            raise BadInput(
                f"a namespace level is empty or has a control character: {level!r}", field="namespace"
            )
    return _SEPARATOR.join(levels)


# Of namespaces that stand, as those of commits do. Whoever asks for others could fill this with names of any length.
standing_path_of = lru_cache(maxsize=256)(path_of)


def levels_of(path: str) -> Levels:
    """The levels of a path."""
    return tuple(path.split(_SEPARATOR)) if path else ()


def child_path_of(levels: Levels) -> str:
    """The path of a namespace that can be created: any but the root."""
    if not levels:
        raise BadInput("the root namespace is not to be created; name at least one level", field="namespace")
    return path_of(levels)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Where a location that overlaps this one can be: equal to one of `above`, or in [low, high)."""

    above: tuple[str, ...]
    low: str
    high: str


def overlap_of(location: str) -> Overlap:
    """The index probes for `location`: itself and its ancestors, and the range of what is below it."""
    bare = location.rstrip("/")
    ancestors = [bare[:end] for end, letter in enumerate(bare) if letter == "/" and end > 0]
    above = tuple(form for place in (*ancestors, bare) for form in (place, place + "/"))
    # "0" is the character after "/", so the range is all that starts with `bare/` and nothing else.
    return Overlap(above=above, low=bare + "/", high=bare + "0")


def encode_properties(properties: Mapping[str, str]) -> str:
    """Properties as one column of JSON text."""
    return msgspec.json.encode(dict(properties)).decode()


def namespace_of(row: Row) -> Namespace:
    """From (path, properties, version)."""
    path, properties, version = row
    return Namespace(levels_of(path), msgspec.json.decode(properties, type=dict[str, str]), version)


def header_of(row: Row) -> EntryHeader:
    """From the columns of HEADER_COLUMNS."""
    return EntryHeader(EntryId(row[0]), levels_of(row[1]), row[2], Kind(row[3]), *row[4:11])


def entry_of(row: Row, logs: Mapping[Stream, tuple[LogItem, ...]]) -> Entry:
    """From the columns of HEAD_COLUMNS and the log items that were read."""
    positions = {Stream.SNAPSHOTS: row[11], Stream.HISTORY: row[12]}
    return Entry(header_of(row[:11]), row[13], logs, positions)


def event_of(row: Row) -> Event:
    """From (kind, namespace, name, entry_id, principal, key, at_ms, payload)."""
    kind, path, name, entry_id, principal, key, at_ms, payload = row
    return Event(kind, levels_of(path), name, entry_id, principal, key, at_ms, payload)


def event_row(event: Event) -> Row:
    """The columns of an event, as `event_of` reads them."""
    path = path_of(event.namespace)
    return (
        event.kind,
        path,
        event.name,
        event.entry_id,
        event.principal,
        event.key,
        event.at_ms,
        event.payload,
    )


def key_of(row: Row) -> KeyRecord:
    """From (key, principal, fingerprint, status, body, created_at_ms)."""
    return KeyRecord(*row)


def key_row(record: KeyRecord) -> Row:
    """The columns of a key, as `key_of` reads them."""
    return (
        record.key,
        record.principal,
        record.fingerprint,
        record.status,
        record.body,
        record.created_at_ms,
    )


def principal_of(row: Row) -> Principal:
    """From (client_id, secret_hash, role, created_at_ms)."""
    return Principal(*row)


def principal_row(principal: Principal) -> Row:
    """The columns of a principal, as `principal_of` reads them."""
    return (principal.client_id, principal.secret_hash, principal.role, principal.created_at_ms)


def file_of(row: Row) -> JournalledFile:
    """From (location, data, created_at_ms, base, tail_bytes)."""
    return JournalledFile(*row)


def file_row(file: JournalledFile) -> Row:
    """The columns of a journalled file, as `file_of` reads them."""
    return (file.location, file.data, file.created_at_ms, file.base, file.tail_bytes)


JOB_COLUMNS = "id, kind, namespace, name, principal, role, fingerprint, due_at_ms, created_at_ms"


def job_of(row: Row) -> Job:
    """From the columns of JOB_COLUMNS and the body."""
    id, kind, path, name, principal, role, fingerprint, due_at_ms, created_at_ms, body = row
    namespace = levels_of(path)
    return Job(id, kind, namespace, name, principal, role, fingerprint, body, due_at_ms, created_at_ms)


def job_row(job: Job) -> Row:
    """The columns of a job, as `job_of` reads them."""
    named = (job.id, job.kind, path_of(job.namespace), job.name, job.principal, job.role)
    return (*named, job.fingerprint, job.due_at_ms, job.created_at_ms, job.body)


def doomed_of(row: Row) -> DoomedFile:
    """From (location, entry_id, due_at_ms)."""
    return DoomedFile(*row)


def doomed_row(file: DoomedFile) -> Row:
    """The columns of a doomed file, as `doomed_of` reads them."""
    return (file.location, file.entry_id, file.due_at_ms)


def wanted_from(
    known: Mapping[EntryId, tuple[int, int, int]] | None, *, id: EntryId, epoch: int
) -> dict[Stream, int]:
    """The first position to read of each log, given what the caller holds already."""
    held_epoch, snapshots, history = (known or {}).get(id, (None, 0, 0))
    if held_epoch != epoch:
        return {Stream.SNAPSHOTS: 0, Stream.HISTORY: 0}
    return {Stream.SNAPSHOTS: snapshots, Stream.HISTORY: history}


def position_after(items: Sequence[LogItem], *, least: int, told: int) -> int:
    """The next free position once `items` are in the log: `told` by who adds them, if that is beyond the last.

    A position below `least` was given out before, and a reader who holds the log up to there would never see
    an item that is put back under it.
    """
    for item in items:
        invariant(item.position >= least, f"log items come in order of position; {item.position} < {least}")
        least = item.position + 1
    return max(least, told)


def repeated_tag(items: Sequence[LogItem]) -> int | None:
    """A tag that two of these items share, or None."""
    seen: set[int] = set()
    for item in items:
        if item.tag in seen:
            return item.tag
        if item.tag is not None:
            seen.add(item.tag)
    return None
