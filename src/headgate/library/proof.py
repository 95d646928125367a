"""What a loaded head proves about a swap that was sent: it landed, it missed for good, or neither. Pure.

Where we named the candidate's metadata file, the chain of metadata files tells: what followed the base was ours or
somebody else's, whatever was expired since. Elsewhere the snapshot tells: it is there; or its sequence number is
taken, which no catalog gives out again (v1: its branch has moved), and no ref descends from it, which is known only
where no ancestor is missing: it might have landed and been expired, and its manifests be needed by its children.
Updates without a snapshot have landed when they would change nothing any more: whoever made them, the table is as
asked. What is not there when the catalog said that somebody was first, and its head is another one, was beaten: the
caller is told so, and nothing is deleted.

Only a head that was loaded after the swap proves anything. "Busy" and "refused" are hearsay like any other reply, since
a client may have resent the request below us and tell of the last of them; not so where the transaction was ours.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from headgate.core.apply import apply
from headgate.core.commit import Candidate, Head
from headgate.core.table import Snapshot
from headgate.core.updates import AddSnapshot, SetSnapshotRef
from headgate.errors import HeadgateError
from headgate.library.adapters import Heard
from headgate.library.roads import Sent

KEY = "headgate.key"  # in the summary of a snapshot: the key of the commit that made it


class Outcome(Enum):
    """What is known about a swap."""

    LANDED = "landed"
    MISSED = "missed"
    OPEN = "open"  # it has not landed yet, as far as anybody has looked, and may still
    BEATEN = "beaten"  # it has not landed, and the catalog said that somebody was first: to be told, not to delete by
    UNTOLD = "untold"  # it may have landed, and what would tell is gone: to send it again might do it twice


def find_outcome(sent: Sent, head: Head | None) -> Outcome:
    """What this head proves about the swap; None when none was loaded after it."""
    if sent.heard is None:
        return Outcome.LANDED
    is_denied = sent.heard in (Heard.BUSY, Heard.REFUSED)
    if head is None:
        return Outcome.MISSED if is_denied and sent.is_certain else Outcome.OPEN
    found, base = _by_head(sent, head), sent.candidate.base
    if found is Outcome.OPEN and is_denied:
        return Outcome.MISSED  # the load does not contradict it
    is_moved = base is not None and base.metadata_location != head.metadata_location
    if found is Outcome.OPEN and sent.heard is Heard.LOST and is_moved:
        return (
            Outcome.BEATEN
        )  # a resend that met its own commit would have left it there; a late copy might still land
    if found is Outcome.UNTOLD and sent.is_certain:
        return Outcome.OPEN if sent.heard is Heard.UNKNOWN else Outcome.MISSED
    return found


def _by_head(sent: Sent, head: Head) -> Outcome:
    snapshots, base = snapshots_of(sent.candidate), sent.candidate.base
    # A list that was written for the swap proves all of it, whatever was expired since; a caller's own, only itself.
    written = sent.candidate.written
    if any(is_there(snapshot, head) for snapshot in snapshots if snapshot.manifest_list in written):
        return Outcome.LANDED
    if snapshots and all(is_there(snapshot, head) for snapshot in snapshots):
        return Outcome.LANDED
    if sent.location is not None and base is not None:
        return _by_chain(sent.location, base, head)
    if not snapshots:
        return Outcome.LANDED if _changes_nothing(sent.candidate, head) else Outcome.OPEN
    if not _number_is_taken(sent.candidate, snapshots, head):
        return Outcome.OPEN
    return Outcome.MISSED if _has_no_child(sent.candidate, head) else Outcome.UNTOLD


def snapshots_of(candidate: Candidate) -> tuple[Snapshot, ...]:
    """The snapshots that a candidate adds."""
    return tuple(update.snapshot for update in candidate.updates if isinstance(update, AddSnapshot))


def is_there(snapshot: Snapshot, head: Head) -> bool:
    """Whether the head has this very snapshot: all attempts have one id, but each a manifest list of its own."""
    found = head.metadata.find_snapshot(snapshot.snapshot_id)
    return found is not None and found.manifest_list == snapshot.manifest_list


def find_landed(key: str, head: Head, *, after: int | None = None) -> Snapshot | None:
    """The newest snapshot that was made under this key; O(history), for a key that the caller brought.

    `after` is the newest snapshot of an earlier look: nothing behind it is looked at again.
    """
    mark = msgspec.json.encode(key)
    for item in reversed(head.metadata.snapshots):
        if item.key == after:
            return None
        if mark in item.body:
            found = head.metadata.find_snapshot(item.key)
            if found is not None and found.summary.get(KEY) == key:
                return found
    return None


def _by_chain(location: str, base: Head, head: Head) -> Outcome:
    files = [entry.metadata_file for entry in head.metadata.envelope.metadata_log]
    files.append(head.metadata_location)
    if location in files:
        return Outcome.LANDED
    if base.metadata_location == head.metadata_location:
        return Outcome.OPEN
    # What follows the base in the chain is not ours, or the swap would be in it. A base that fell off the log was
    # followed by more commits than the log holds, and ours might have been the first.
    return Outcome.MISSED if base.metadata_location in files else Outcome.UNTOLD


def _number_is_taken(candidate: Candidate, snapshots: tuple[Snapshot, ...], head: Head) -> bool:
    envelope = head.metadata.envelope
    if envelope.format_version > 1:
        return any(envelope.last_sequence_number >= snapshot.sequence_number > 0 for snapshot in snapshots)
    refs, base = envelope.refs, candidate.base
    moved = [update.ref_name for update in candidate.updates if isinstance(update, SetSnapshotRef)]
    return base is not None and any(refs.get(n) != base.metadata.envelope.refs.get(n) for n in moved)


def _has_no_child(candidate: Candidate, head: Head) -> bool:
    """Whether no ref can descend from the candidate's snapshots: walking back from each, none is missing."""
    before = candidate.base.metadata.snapshots if candidate.base is not None else ()
    for ref in head.metadata.envelope.refs.values():
        snapshot_id: int | None = ref.snapshot_id
        for _ in range(len(head.metadata.snapshots) + 1):
            if snapshot_id is None or snapshot_id in before:
                break
            found = head.metadata.find_snapshot(snapshot_id)
            if found is None:
                return False
            snapshot_id = found.parent_snapshot_id
    return True


def _changes_nothing(candidate: Candidate, head: Head) -> bool:
    try:
        return apply(head.metadata, candidate.updates, now_ms=head.metadata.envelope.last_updated_ms) is None
    except HeadgateError:
        return False
