"""Which manifest lists end alike: a new one adds a block in front of its parent's, and the journal needs only that."""

from __future__ import annotations

import threading
from collections import OrderedDict

from headgate.core.manifest_list import Block, ManifestList
from headgate.format.manifest_list_encode import encoded_size
from headgate.service.journal import Tail

_LISTS_MAX = 1000


class ListTails:
    """The blocks of lists that were encoded here, by location. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: OrderedDict[str, tuple[int, tuple[Block, ...]]] = (
            OrderedDict()
        )  # with the format version

    def keep(self, location: str, manifests: ManifestList, version: int) -> None:
        """A list was encoded from these blocks."""
        with self._lock:
            self._blocks[location] = (version, manifests.blocks)
            while len(self._blocks) > _LISTS_MAX:
                self._blocks.popitem(last=False)

    def find(self, manifests: ManifestList, version: int, *, base: str | None) -> Tail | None:
        """How a list ends as the one at `base`, its parent's, does, if that was encoded here in the same version."""
        if base is None:
            return None
        with self._lock:
            encoded_as, theirs = self._blocks.get(base, (0, ()))
        if encoded_as != version:
            return None
        ours = manifests.blocks
        shared = len(theirs)
        if ours[len(ours) - shared :] != theirs:  # blocks are compared by identity
            shared = 0
            while shared < min(len(ours), len(theirs)) and ours[-1 - shared] is theirs[-1 - shared]:
                shared += 1
        size_bytes = encoded_size(ours[len(ours) - shared :], version)
        return Tail(base, size_bytes) if size_bytes else None
