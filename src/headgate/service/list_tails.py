"""Which manifest lists end alike: a new one adds a block in front of its parent's, and the journal needs only that."""

from __future__ import annotations

from headgate.core.manifest_list import ManifestList
from headgate.core.value import Record
from headgate.format.manifest_list_encode import encoded_size
from headgate.service.journal import Tail


class _Encoded(Record):
    """What is noted of a list by each location that it was encoded for: in which version, and how large its blocks are."""

    version: int
    size_bytes: int


def note_encoded(manifests: ManifestList, location: str, version: int, size_bytes: int) -> None:
    """A list was encoded here, to be put at this location: its blocks have so many bytes."""
    manifests.notes[location] = _Encoded(version, size_bytes)


def find_tail(
    manifests: ManifestList, version: int, *, parent: ManifestList | None, base: str | None
) -> Tail | None:
    """How a list ends as the one at `base`, its parent's, does, if that was encoded here in the same version."""
    if parent is None or base is None:
        return None
    noted = parent.notes.get(base)
    if not isinstance(noted, _Encoded) or noted.version != version:
        return None
    ours, theirs, size_bytes = manifests.blocks, parent.blocks, noted.size_bytes
    if ours[1:] != theirs:  # more changed than one block in front; blocks are compared by identity
        shared = 0
        while shared < min(len(ours), len(theirs)) and ours[-1 - shared] is theirs[-1 - shared]:
            shared += 1
        size_bytes = encoded_size(ours[len(ours) - shared :], version) or 0
    return Tail(base, size_bytes) if size_bytes else None
