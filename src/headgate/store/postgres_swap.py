"""The swap of an entry in one round trip, when all that it expects holds; `postgres_write` has the long way.

Never says why it did not hold: the long way looks again, and does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headgate.core.encoded_log import LogDelta, LogItem
from headgate.store.base import Stream, SwapEntry
from headgate.store.postgres_upkeep import Connection
from headgate.store.rows import repeated_tag

_ITEMS_MAX = 1000

# While the version is the expected one, the logs are those that the statement's snapshot shows: no log changes
# without its entry's version. If the row was locked, PostgreSQL compares the version again after the wait.
_SWAP = """
WITH swapped AS (
    UPDATE entries SET version = version + 1, uuid = %(uuid)s, metadata_location = %(metadata_location)s,
        checkpoint_location = CASE WHEN %(checkpointed)s THEN %(metadata_location)s ELSE checkpoint_location END,
        checkpoint_version = CASE WHEN %(checkpointed)s THEN version + 1 ELSE checkpoint_version END,
        next_snapshot_position = greatest(%(snapshots_end)s::bigint, next_snapshot_position),
        next_history_position = greatest(%(history_end)s::bigint, next_history_position),
        envelope = %(envelope)s
    WHERE id = %(id)s AND version = %(version)s AND location = %(location)s
        AND next_snapshot_position <= coalesce(%(snapshots_start)s::bigint, next_snapshot_position)
        AND next_history_position <= coalesce(%(history_start)s::bigint, next_history_position)
        AND NOT EXISTS (
            SELECT 1 FROM entry_log WHERE entry_id = %(id)s AND stream = 0 AND tag = ANY(%(snapshots_tags)s)
        )
        AND NOT EXISTS (
            SELECT 1 FROM entry_log WHERE entry_id = %(id)s AND stream = 1 AND tag = ANY(%(history_tags)s)
        )
    RETURNING id
), logged AS (
    INSERT INTO entry_log (entry_id, stream, position, key, tag, body)
    SELECT swapped.id, added.* FROM swapped, unnest(%(streams)s::smallint[], %(positions)s::bigint[],
        %(keys)s::bigint[], %(tags)s::bigint[], %(bodies)b::bytea[]) AS added
)
SELECT count(*) FROM swapped
"""


def swap_at_once(db: Connection, swap: SwapEntry) -> bool:
    """False when something did not hold, or the swap does more than this statement can: nothing was written."""
    deltas = {stream: swap.logs.get(stream, LogDelta()) for stream in Stream}
    logs = {stream: delta.added for stream, delta in deltas.items()}
    rows = [(stream.value, one) for stream, items in logs.items() for one in items]
    if len(rows) > _ITEMS_MAX or any(delta.removed for delta in deltas.values()):
        return False
    if any(repeated_tag(items) is not None or not _is_ordered(items) for items in logs.values()):
        return False
    by_name = {"snapshots": logs[Stream.SNAPSHOTS], "history": logs[Stream.HISTORY]}
    parameters = {
        "id": swap.id,
        "version": swap.expected_version,
        "uuid": swap.uuid,
        "location": swap.location,
        "metadata_location": swap.metadata_location,
        "checkpointed": swap.checkpointed,
        "envelope": swap.envelope,
        "streams": [stream for stream, _ in rows],
        "positions": [one.position for _, one in rows],
        "keys": [one.key for _, one in rows],
        "tags": [one.tag for _, one in rows],
        "bodies": [one.body for _, one in rows],
        **{f"{name}_start": items[0].position if items else None for name, items in by_name.items()},
        "snapshots_end": _end(deltas[Stream.SNAPSHOTS]),
        "history_end": _end(deltas[Stream.HISTORY]),
        **{f"{name}_tags": [one.tag for one in items] for name, items in by_name.items()},
    }
    return db.execute(_SWAP, parameters).fetchone() == (1,)


def _end(delta: LogDelta) -> int:
    return max(delta.next_position, delta.added[-1].position + 1 if delta.added else 0)


def _is_ordered(items: Sequence[LogItem]) -> bool:
    return all(one.position < other.position for one, other in pairwise(items))
