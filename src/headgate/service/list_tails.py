"""Which manifest lists end alike: a new one adds a block in front of its parent's, and the journal needs only that."""

from __future__ import annotations

from collections import OrderedDict

from headgate.core.manifest_list import Block, ManifestList
from headgate.format.manifest_list_encode import encoded_size
from headgate.service.journal import Tail

_LISTS_MAX = 1000
_UNKNOWN: tuple[int, tuple[Block, ...], int] = (0, (), 0)


class ListTails:
    """The blocks of lists that were encoded here, by location. Thread-safe without a lock: each step is one of a dict."""

    def __init__(self) -> None:
        # With the format version, and the size of all blocks.
        self._encoded: OrderedDict[str, tuple[int, tuple[Block, ...], int]] = OrderedDict()

    def follow(
        self, base: str | None, location: str, manifests: ManifestList, version: int, size_bytes: int
    ) -> Tail | None:
        """How a list ends as the one at `base`, its parent's, does, if that was encoded here in the same version.

        It is remembered itself: it is to be at `location`, and its blocks have so many bytes.
        """
        encoded, ours = self._encoded, manifests.blocks
        encoded[location] = (version, ours, size_bytes)
        if len(encoded) > _LISTS_MAX:  # each that comes lets one go
            encoded.popitem(last=False)
        if base is None:
            return None
        encoded_as, theirs, size_bytes = encoded.get(base, _UNKNOWN)
        if encoded_as != version:
            return None
        if ours[1:] != theirs:  # more changed than one block in front; blocks are compared by identity
            shared = 0
            while shared < min(len(ours), len(theirs)) and ours[-1 - shared] is theirs[-1 - shared]:
                shared += 1
            size_bytes = encoded_size(ours[len(ours) - shared :], version) or 0
        return Tail(base, size_bytes) if size_bytes else None
