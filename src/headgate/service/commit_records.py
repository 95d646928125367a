"""What a commit leaves in the store beside the heads: its key with the verdict, and its events in the outbox.

Both are written in the transaction of the swap. Events hold what was applied as plain updates, whatever the
client sent; a key's record holds enough to answer again. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

import msgspec

from headgate.core.commit import Candidate, Head, Share, TableCommit, Target
from headgate.core.table import Snapshot
from headgate.core.updates import AddSnapshot, TableUpdate
from headgate.core.value import Record
from headgate.service.roles import Caller
from headgate.store.base import EntryId, Event, KeyRecord, Operation, PutEvent, PutKey

# Updates of one event beyond this are left out of it; the metadata file of the event holds their effect.
_UPDATES_BYTES_MAX = 64 << 10
_FOLDED_MAX = 1000  # members that the event of a folded snapshot names
_ENCODE = msgspec.json.Encoder().encode
_ID_OF = attrgetter("snapshot_id")


class Work(Record):
    """Who commits what, under which key, and how the answer is rebuilt when the key comes again."""

    caller: Caller
    key: str
    commits: tuple[TableCommit, ...]
    replay: dict[str, object]
    status: int
    event: str
    also: tuple[Operation, ...] = ()  # written in the same transaction as the key
    fold: bool | None = None  # whether its append may share a snapshot; None: as the table says


class Landed(Record):
    """A table's commit that was published: where its metadata is, and which snapshots it brought."""

    metadata_location: str
    snapshot_ids: tuple[int, ...]


Part = tuple[Target, tuple[TableUpdate, ...]]  # what a member did to one table
Published = Mapping[Target, tuple[Candidate, Head]]  # what one swap publishes, by table


class _LastSeen:
    """Updates and the snapshots that they bring: for each commit that is asked several times in a row."""

    pair: tuple[tuple[TableUpdate, ...], tuple[Snapshot, ...]] = (
        (),
        (),
    )  # one value: threads read and replace it


_LAST_SEEN = _LastSeen()


def added_snapshots(updates: tuple[TableUpdate, ...]) -> tuple[Snapshot, ...]:
    """The snapshots that updates bring, in order."""
    seen, added = _LAST_SEEN.pair
    if seen != updates:
        added = tuple([update.snapshot for update in updates if isinstance(update, AddSnapshot)])
        _LAST_SEEN.pair = updates, added
    return added


def key_operation(
    work: Work,
    share: Share,
    published: Published,
    *,
    now_ms: int,
    heads: Sequence[Head | None] = (),
    is_first: bool = False,
) -> PutKey:
    """The verdict of a member that is published by the same write; without parts it changed nothing.

    `heads` are those of a commit that changed nothing; `is_first`: no write was sent for it before.
    """
    caller, parts, replay = work.caller, share.parts, work.replay.copy()
    if replay["kind"] == "table":
        found = published.get(work.commits[0].target)
        head = found[1] if found is not None else next(iter(heads), None)
        if head is not None:
            replay["id"] = head.id
    if len(parts) == 1:
        replay["tables"] = (_describe(parts[0], published),)
    else:
        replay["tables"] = [_describe(part, published) for part in parts]
    return PutKey(
        KeyRecord(
            key=work.key,
            principal=caller.principal,
            fingerprint=caller.fingerprint,
            status=work.status,
            body=_ENCODE(replay),
            created_at_ms=now_ms,
        ),
        is_new=is_first and caller.key is None,
    )


def _describe(part: Part, published: Published) -> dict[str, object]:
    """What a replayed answer says of a table."""
    target, updates = part
    return {
        "namespace": target[0],
        "name": target[1],
        "metadata-location": published[target][1].metadata_location,
        "snapshot-ids": tuple(map(_ID_OF, added_snapshots(updates))),
    }


def event_operations(
    works: Sequence[Work], shares: Sequence[Share], published: Published, *, now_ms: int
) -> list[PutEvent]:
    """Rows of the outbox: one for each member and table, but one for all members that share a snapshot."""
    if len(shares) == 1:
        (share,) = shares
        if len(share.parts) == 1 and share.shares_with is None:
            return [_event(works[share.member], share.parts[0], published, now_ms)]
    folded: dict[int, list[Work]] = {}
    for share in shares:
        if share.shares_with is not None:
            folded.setdefault(share.shares_with, []).append(works[share.member])
    return [
        _event(works[share.member], part, published, now_ms, len(share.parts), folded.get(share.member, ()))
        for share in shares
        if share.shares_with is None
        for part in share.parts
    ]


def _event(
    work: Work,
    part: Part,
    published: Published,
    now_ms: int,
    event_count: int = 1,
    others: Sequence[Work] = (),
) -> PutEvent:
    """What a member did to one table; `others` did it with him."""
    target, updates = part
    candidate, head = published[target]
    envelope, added, encoded = head.metadata.envelope, added_snapshots(updates), _ENCODE(updates)
    ids: tuple[int, ...] = tuple(map(_ID_OF, added))
    payload: dict[str, object] = {
        "table-uuid": envelope.table_uuid,
        "metadata-location": head.metadata_location,
        "version": head.version,
        "snapshot-id": ids[-1] if ids else envelope.current_snapshot_id,
        "added-snapshots": [
            {"snapshot-id": s.snapshot_id, "operation": s.summary.get("operation")} for s in added
        ],
        "event-count": event_count,
    }
    if len(encoded) <= _UPDATES_BYTES_MAX:
        payload["updates"] = msgspec.Raw(encoded)
    else:
        payload["updates-omitted"] = True
    if others:
        payload["folded"] = [
            {"key": one.key, "principal": one.caller.principal} for one in (work, *others)[:_FOLDED_MAX]
        ]
        payload["folded-count"] = 1 + len(others)
    kind = "create-table" if candidate.base is None else work.event
    (namespace, name), principal = target, work.caller.principal
    return PutEvent(
        Event(kind, namespace, name, EntryId(head.id), principal, work.key, now_ms, _ENCODE(payload)), ids
    )


def landed_in(stored: Mapping[str, object]) -> Landed | None:
    """What the stored success of a single table's commit says about it, if it changed the table."""
    tables = msgspec.convert(stored.get("tables", []), type=list[dict[str, object]])
    if len(tables) != 1:
        return None
    ids = msgspec.convert(tables[0]["snapshot-ids"], type=tuple[int, ...])
    return Landed(str(tables[0]["metadata-location"]), ids)
