"""Which manifest lists end alike: a new one adds a block in front of its parent's, and the journal needs only that."""

from __future__ import annotations

from headgate.core.manifest_list import ManifestList
from headgate.core.value import Record
from headgate.format.manifest_list_encode import encoded_size
from headgate.service.journal import Tail

_NOTE = "encoded"
_NOTED_MAX = 4  # locations of one list: commits that bring no manifest have their parent's


class _Encoded(Record):
    """What is noted of a list by the locations that it was encoded for last: the version, and how large its blocks are."""

    version: int
    size_bytes: int


def note_encoded(manifests: ManifestList, location: str, version: int, size_bytes: int) -> None:
    """A list was encoded here, to be put at this location: its blocks have so many bytes."""
    encoded = _Encoded(version, size_bytes)
    noted = manifests.notes.get(_NOTE)
    if isinstance(noted, tuple):  # as one value: another thread may look at it
        manifests.notes[_NOTE] = (*noted[1 - _NOTED_MAX :], (location, encoded))
    else:
        manifests.notes[_NOTE] = ((location, encoded),)


def find_tail(
    manifests: ManifestList, version: int, *, parent: ManifestList | None, base: str | None
) -> Tail | None:
    """How a list ends as the one at `base`, its parent's, does, if that was encoded here in the same version."""
    if parent is None or base is None:
        return None
    noted = _find_noted(parent, base)
    if noted is None or noted.version != version:
        return None
    ours, theirs, size_bytes = manifests.blocks, parent.blocks, noted.size_bytes
    if ours[1:] != theirs:  # more changed than one block in front; blocks are compared by identity
        shared = 0
        while shared < min(len(ours), len(theirs)) and ours[-1 - shared] is theirs[-1 - shared]:
            shared += 1
        size_bytes = encoded_size(ours[len(ours) - shared :], version) or 0
    return Tail(base, size_bytes) if size_bytes else None


def _find_noted(manifests: ManifestList, location: str) -> _Encoded | None:
    noted = manifests.notes.get(_NOTE)
    if isinstance(noted, tuple):
        for place, encoded in noted:
            if place == location and isinstance(encoded, _Encoded):
                return encoded
    return None
