"""Several writes in one PostgreSQL transaction: the members of one batch of `group`.

Theory. A batch must not wait for long, or one member's trouble is everyone's. So the rows of all its entries are
locked first, and those that another transaction holds are passed over; who needs one of them, or waits too long for
anything else, or loses a race, is told to write alone, in a transaction of his own where he may wait and try again.
Batches of two replicas therefore never wait for each other in a circle on entries, and on anything else not for
longer than the lock timeout. What makes or names entries and namespaces takes other locks, and never joins a batch.

Each member runs behind a savepoint: what is refused or fails is taken back alone. Nobody is answered before COMMIT,
not even with a refusal: it may rest on what a neighbour wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import psycopg

from headgate.store import postgres_write
from headgate.store.base import (
    CheckEntry,
    DropFootprints,
    DropJob,
    EntryId,
    MarkCheckpoint,
    Operation,
    PutDoomed,
    PutEvent,
    PutFile,
    PutFootprint,
    PutJob,
    PutKey,
    Refused,
    SwapEntry,
)
from headgate.store.postgres_records import EVENTS_MAX
from headgate.store.postgres_session import commit, may_pass_later, translate
from headgate.store.postgres_upkeep import Connection
from headgate.store.postgres_write import entries_of

# With more savepoints than this in one transaction, every other session's look at a row gets slower.
MEMBERS_MAX = 64

# The server syncs several commits at once by itself, so a few in flight are quicker than one. Fewer than the
# connections there are, so that reads always find one.
BATCHES_MAX = 4


class Told(Enum):
    """What a member can be told instead of an outcome."""

    WRITE_ALONE = "write alone"


Outcome = Refused | Told | None

_JOINING = frozenset(
    {
        CheckEntry,
        DropFootprints,
        DropJob,
        MarkCheckpoint,
        PutDoomed,
        PutEvent,
        PutFile,
        PutFootprint,
        PutJob,
        PutKey,
        SwapEntry,
    }
)


def may_join(operations: Sequence[Operation]) -> bool:
    """Whether a write may share a transaction with others."""
    return _JOINING.issuperset(map(type, operations))


_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '200ms'"


def write_together(db: Connection, works: Sequence[Sequence[Operation]]) -> list[Outcome | Exception]:
    """What became of each, durable; raises what befell the transaction."""
    db.execute(_BEGIN)
    outcomes = _apply_each(db, works) if len(works) > 1 else _apply_alone(db, works[0])
    if any(outcome is None for outcome in outcomes):
        commit(db)
    else:
        db.execute("ROLLBACK")
    return outcomes


def _apply_alone(db: Connection, work: Sequence[Operation]) -> list[Outcome | Exception]:
    """Without a savepoint: what befalls it is what befalls the transaction."""
    return [postgres_write.apply(db, work)]


_LOCK_FREE_ENTRIES = "SELECT id FROM entries WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"


def _apply_each(db: Connection, works: Sequence[Sequence[Operation]]) -> list[Outcome | Exception]:
    wanted: set[EntryId] = set().union(*(entries_of(work) for work in works))
    held = {row[0] for row in db.execute(_LOCK_FREE_ENTRIES, (sorted(wanted),))} if wanted else set()
    outcomes: list[Outcome | Exception] = []
    events, savepoint = 0, "SAVEPOINT member"
    for work in works:
        count = sum(isinstance(one, PutEvent) for one in work)
        if not entries_of(work) <= held or events + count > EVENTS_MAX:
            outcomes.append(Told.WRITE_ALONE)
            continue
        if savepoint:
            db.execute(savepoint)
        outcomes.append(_attempt(db, work, events=events))
        if outcomes[-1] is None:
            events += count
            savepoint = "RELEASE member; SAVEPOINT member"  # one round trip
        else:
            db.execute("ROLLBACK TO member")
            savepoint = ""  # it stands, and is the next member's
    return outcomes


def _attempt(db: Connection, work: Sequence[Operation], *, events: int) -> Outcome | Exception:
    try:
        return postgres_write.apply(db, work, events=events)
    except psycopg.Error as error:
        if db.closed:
            raise
        return Told.WRITE_ALONE if may_pass_later(error) else translate(error)
    except Exception as error:  # outermost edge of this member's work: it is raised in its own thread
        return error
