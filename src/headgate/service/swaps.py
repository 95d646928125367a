"""A candidate as operations of the store, what the store's refusals mean, and verdicts as they are counted."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.core.commit import Candidate, Head, Reply, SwapLost, SwapRefused, Target
from headgate.core.locations import canonical
from headgate.core.updates import AddSnapshot
from headgate.errors import (
    AlreadyExists,
    BadInput,
    CommitRefused,
    CommitUnknown,
    Diverged,
    HeadgateError,
    NotFound,
)
from headgate.format.table_metadata import encode_envelope
from headgate.store import base as store
from headgate.store.base import EntryId, Kind, Reason, Stream

_SNAPSHOTS, _HISTORY = Stream  # an attribute of an enum takes longer than a call
_KINDS: tuple[tuple[type[HeadgateError], str], ...] = (
    (CommitUnknown, "unknown"),
    (Diverged, "diverged"),
    (CommitRefused, "conflict"),
    (BadInput, "invalid"),
    (NotFound, "invalid"),
    (AlreadyExists, "invalid"),
)


def swap_operation(
    candidate: Candidate, head: Head, *, checkpointed: bool
) -> store.CreateEntry | store.SwapEntry:
    """The operation that publishes a candidate."""
    base, metadata = candidate.base, candidate.metadata
    envelope = metadata.envelope
    if base is None:
        return store.CreateEntry(
            id=EntryId(head.id),
            namespace=candidate.target[0],
            name=candidate.target[1],
            kind=Kind.TABLE,
            uuid=envelope.table_uuid,
            location=canonical(envelope.location, field="location"),
            metadata_location=head.metadata_location,
            checkpointed=checkpointed,
            envelope=encode_envelope(envelope),
            logs={Stream.SNAPSHOTS: tuple(metadata.snapshots), Stream.HISTORY: tuple(metadata.history)},
            next_positions={
                Stream.SNAPSHOTS: metadata.snapshots.next_position,
                Stream.HISTORY: metadata.history.next_position,
            },
        )
    return store.SwapEntry(
        id=EntryId(base.id),
        expected_version=base.version,
        uuid=envelope.table_uuid,
        location=canonical(envelope.location, field="location"),
        metadata_location=head.metadata_location,
        checkpointed=checkpointed,
        envelope=encode_envelope(envelope),
        logs={
            _SNAPSHOTS: metadata.snapshots.since(base.metadata.snapshots),
            _HISTORY: metadata.history.since(base.metadata.history),
        },
        tags_are_new=_has_own_lists(candidate),
    )


def _has_own_lists(candidate: Candidate) -> bool:
    """Whether the manifest lists of its new snapshots were all written for it, under names that nobody else has."""
    lists = {one.snapshot.manifest_list for one in candidate.updates if isinstance(one, AddSnapshot)}
    return lists.issubset(candidate.written)


def to_reply(refused: store.Refused, candidates: Sequence[Candidate]) -> Reply:
    """What a refused write means for the conversation."""
    match refused.reason:
        case Reason.ENTRY_CHANGED | Reason.ENTRY_MISSING | Reason.KEY_EXISTS:
            return SwapLost()
        case Reason.NAME_TAKEN if refused.kind is Kind.TABLE:
            return SwapLost()
        case _:
            return SwapRefused(
                describe_refusal(refused, candidates[min(refused.index, len(candidates) - 1)].target)
            )


def describe_refusal(refused: store.Refused, target: Target) -> HeadgateError:
    """A store's refusal in the words that clients know."""
    name = ".".join((*target[0], target[1]))
    match refused.reason:
        case Reason.NAMESPACE_MISSING:
            return NotFound(f"Namespace does not exist: {'.'.join(target[0])}", kind="namespace")
        case Reason.NAME_TAKEN if refused.kind is Kind.VIEW:
            return AlreadyExists(f"View with same name already exists: {name}", kind="view")
        case Reason.NAME_TAKEN:
            return AlreadyExists(f"Table already exists: {name}", kind="table")
        case Reason.LOCATION_TAKEN:
            return BadInput(
                f"the location overlaps another table's: {refused.detail}; choose another", field="location"
            )
        case Reason.DUPLICATE_TAG:
            return BadInput(
                "the snapshot's manifest list is already used by another snapshot of the table",
                field="updates.snapshot.manifest-list",
            )
        case Reason.ENTRY_MISSING:
            return NotFound(f"Table does not exist: {name}", kind="table")
        case _:
            return CommitRefused(f"{name}: {refused.reason.value}; refresh and try again")


def kind_of(error: HeadgateError) -> str:
    """The verdict of an error, as it is counted."""
    for kind, word in _KINDS:
        if isinstance(error, kind):
            return word
    return "failed"
