"""Keys and events of a write in PostgreSQL's SQL; see `postgres.py` for the order of the feed.

Never begins or ends a transaction: that is `postgres.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.errors import invariant
from headgate.store.base import PutEvent, PutKey, Reason, Refused
from headgate.store.postgres_upkeep import Connection, columns_of, find_repeated
from headgate.store.rows import event_row, key_row

EVENT_BITS = 16  # of a sequence: the event's number in its transaction; the bits above are the transaction's
EVENTS_MAX = 1 << EVENT_BITS

# One row is written without arrays: the driver takes its time over each of them.
_PUT_KEY = """
INSERT INTO keys (key, principal, fingerprint, status, body, created_at_ms) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (principal, key) DO NOTHING
"""

_PUT_KEYS = """
INSERT INTO keys (key, principal, fingerprint, status, body, created_at_ms)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::integer[], %b::bytea[], %s::bigint[])
ON CONFLICT (principal, key) DO NOTHING RETURNING principal, key
"""


def put_keys(db: Connection, puts: Sequence[PutKey]) -> Refused | None:
    """Store verdicts; refused at the first whose (principal, key) is already there."""
    if len(puts) == 1:
        is_new = db.execute(_PUT_KEY, key_row(puts[0].record)).rowcount == 1
        return None if is_new else Refused(0, Reason.KEY_EXISTS, detail=puts[0].record.key)
    inserted: set[tuple[str, str]] = set()
    for columns in columns_of([key_row(put.record) for put in puts]):
        inserted.update((row[0], row[1]) for row in db.execute(_PUT_KEYS, columns))
    at = find_repeated([(put.record.principal, put.record.key) for put in puts], inserted)
    return None if at is None else Refused(at, Reason.KEY_EXISTS, detail=puts[at].record.key)


_PUT_EVENT = """
INSERT INTO events (sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload)
SELECT ((value + pg_current_xact_id()::text::bigint) << %s) | %s, %s, %s, %s, %s, %s, %s, %s, %s
FROM counters WHERE name = 'event-offset'
"""

_PUT_EVENT_AND_SNAPSHOTS = f"""
WITH written AS ({_PUT_EVENT} RETURNING entry_id, sequence)
INSERT INTO event_snapshots (entry_id, snapshot_id, sequence)
SELECT entry_id, unnest(%s::bigint[]), sequence FROM written
"""


def _put_event(db: Connection, put: PutEvent, *, number: int) -> None:
    row = (EVENT_BITS, number, *event_row(put.event))
    if put.snapshot_ids:
        db.execute(_PUT_EVENT_AND_SNAPSHOTS, (*row, list(dict.fromkeys(put.snapshot_ids))))
    else:
        db.execute(_PUT_EVENT, row)


_PUT_EVENTS = """
WITH first AS (
    SELECT (value + pg_current_xact_id()::text::bigint) << %s AS sequence
    FROM counters WHERE name = 'event-offset'
), written AS (
    INSERT INTO events (sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload)
    SELECT sequence | number, kind, namespace, name, entry_id, principal, key, at_ms, payload
    FROM first, unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
        %s::bigint[], %b::bytea[])
        AS added (number, kind, namespace, name, entry_id, principal, key, at_ms, payload)
)
INSERT INTO event_snapshots (entry_id, snapshot_id, sequence)
SELECT entry_id, snapshot_id, sequence | number
FROM first, unnest(%s::text[], %s::bigint[], %s::bigint[]) AS brought (entry_id, snapshot_id, number)
"""


def put_events(db: Connection, puts: Sequence[PutEvent], *, number: int) -> None:
    """Add rows to the outbox; `number` is how many this transaction has put before."""
    invariant(number + len(puts) <= EVENTS_MAX, f"one transaction has at most {EVENTS_MAX} events")
    if len(puts) == 1:
        _put_event(db, puts[0], number=number)
        return
    numbered = list(enumerate(puts, number))
    snapshots = [
        (put.event.entry_id, snapshot_id, at)
        for at, put in numbered
        for snapshot_id in dict.fromkeys(put.snapshot_ids)
    ]
    columns = zip(*((at, *event_row(put.event)) for at, put in numbered), strict=True)
    brought = [list(column) for column in zip(*snapshots, strict=True)] or [[], [], []]
    db.execute(_PUT_EVENTS, (EVENT_BITS, *map(list, columns), *brought))
