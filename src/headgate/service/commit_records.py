"""What a commit leaves in the store beside the heads: its key with the verdict, and its events in the outbox.

Both are written in the transaction of the swap. Events hold what was applied as plain updates, whatever the
client sent; a key's record holds enough to answer again. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from headgate.core.flow import Candidate, Head, TableCommit
from headgate.core.table import Snapshot
from headgate.core.updates import AddSnapshot
from headgate.service.roles import Caller
from headgate.store.base import EntryId, Event, KeyRecord, PutEvent, PutKey

# Updates of one event beyond this are left out of it; the metadata file of the event holds their effect.
_UPDATES_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class Work:
    """Who commits what, under which key, and how the answer is rebuilt when the key comes again."""

    caller: Caller
    key: str
    commits: tuple[TableCommit, ...]
    replay: dict[str, object]
    status: int
    event: str


@dataclass(frozen=True, slots=True)
class Landed:
    """A table's commit that was published: where its metadata is, and which snapshots it brought."""

    metadata_location: str
    snapshot_ids: tuple[int, ...]


def added_snapshots(candidate: Candidate) -> tuple[Snapshot, ...]:
    """The snapshots that a candidate brings, in the order applied."""
    return tuple(update.snapshot for update in candidate.updates if isinstance(update, AddSnapshot))


def key_operation(
    work: Work, candidates: Sequence[Candidate], heads: Sequence[Head | None], *, now_ms: int
) -> PutKey:
    """The verdict of a commit that is published by the same write; without candidates it changed nothing."""
    replay = dict(work.replay)
    if replay["kind"] == "table" and heads[0] is not None:
        replay["id"] = heads[0].id
    replay["tables"] = [
        {
            "namespace": candidate.target[0],
            "name": candidate.target[1],
            "metadata-location": head.metadata_location,
            "snapshot-ids": [snapshot.snapshot_id for snapshot in added_snapshots(candidate)],
        }
        for candidate, head in zip(candidates, heads, strict=False)
        if head is not None
    ]
    return PutKey(
        KeyRecord(
            key=work.key,
            principal=work.caller.principal,
            fingerprint=work.caller.fingerprint,
            status=work.status,
            body=msgspec.json.encode(replay),
            created_at_ms=now_ms,
        )
    )


def event_operation(
    work: Work, candidate: Candidate, head: Head, *, now_ms: int, event_count: int
) -> PutEvent:
    """One table's row of the outbox. `event_count` is how many rows this commit has."""
    added = added_snapshots(candidate)
    envelope = head.metadata.envelope
    payload: dict[str, object] = {
        "table-uuid": envelope.table_uuid,
        "metadata-location": head.metadata_location,
        "version": head.version,
        "snapshot-id": envelope.current_snapshot_id,
        "added-snapshots": [
            {"snapshot-id": s.snapshot_id, "operation": s.summary.get("operation")} for s in added
        ],
        "event-count": event_count,
    }
    updates = msgspec.json.encode(candidate.updates)
    if len(updates) <= _UPDATES_BYTES_MAX:
        payload["updates"] = msgspec.Raw(updates)
    else:
        payload["updates-omitted"] = True
    event = Event(
        kind="create-table" if candidate.base is None else work.event,
        namespace=candidate.target[0],
        name=candidate.target[1],
        entry_id=EntryId(head.id),
        principal=work.caller.principal,
        key=work.key,
        at_ms=now_ms,
        payload=msgspec.json.encode(payload),
    )
    return PutEvent(event, tuple(snapshot.snapshot_id for snapshot in added))


def landed_in(stored: Mapping[str, object]) -> Landed | None:
    """What the stored success of a single table's commit says about it, if it changed the table."""
    tables = msgspec.convert(stored.get("tables", []), type=list[dict[str, object]])
    if len(tables) != 1:
        return None
    ids = msgspec.convert(tables[0]["snapshot-ids"], type=tuple[int, ...])
    return Landed(str(tables[0]["metadata-location"]), ids)
