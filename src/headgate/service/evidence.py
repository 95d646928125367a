"""Who made the other commit of a conflict: its principal and key, from the outbox.

The core names the snapshot; only the store knows who brought it. Never changes a verdict: when the store does not
answer, the refusal goes out without the names.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from headgate.core.commit import Head
from headgate.errors import (
    ConflictFound,
    Diverged,
    HeadgateError,
    Overloaded,
    RequirementFailed,
    StorageFailed,
)
from headgate.store.base import EntryId, Store

_THEIRS = "theirs"


def name_other(error: HeadgateError, heads: Iterable[Head | None], store: Store) -> None:
    """Add `committed-by` and `key` to the evidence of a conflict; None when no commit of ours brought it."""
    if not isinstance(error, ConflictFound | Diverged | RequirementFailed):
        return
    theirs = error.evidence.get(_THEIRS)
    if not isinstance(theirs, dict) or "snapshot-id" not in theirs:
        return
    snapshot_id = theirs["snapshot-id"]
    named: dict[str, object] = {"committed-by": None, "key": None}
    with suppress(StorageFailed, Overloaded):
        for head in heads:
            if head is None or snapshot_id not in head.metadata.snapshots:
                continue
            stored = store.find_snapshot_event(EntryId(head.id), snapshot_id)
            if stored is not None:
                named = {"committed-by": stored.event.principal, "key": stored.event.key}
                break
    error.evidence[_THEIRS] = {**theirs, **named}
