"""The ids of snapshots: the same for every attempt of one commit, and neighbours when their commits are.

A store looks up what it knows of a snapshot by its id. If ids were random altogether, each commit of a group would touch a
page of its own in every index of them. So the first bits are the moment at which the commit's key was made, if it is a
uuid7, and tells. Moments begin again after 70 minutes: ids are spread over all numbers, and meet as seldom as random ones.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from headgate.core.table import TableMetadata
from headgate.errors import InvariantBroken

_MOMENT_BITS, _REST_BITS = 16, 47  # 63: an id is a positive long
_MOMENT_MAX, _REST_MAX = (1 << _MOMENT_BITS) - 1, (1 << _REST_BITS) - 1
_MOMENT_MS = 64
_UUID7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7", re.IGNORECASE)
_SALTS_MAX = 1000


def seed_of(key: str, table: tuple[tuple[str, ...], str], place: int = 0) -> str:
    """What ids are drawn from: the same in every attempt of a commit, and another for each of its tables and changes."""
    return f"{key}/{'.'.join((*table[0], table[1]))}/{place}"


def choose_snapshot_id(seed: str, table: TableMetadata) -> int:
    """A positive id that is the same for every attempt of one commit, and free in the table. A seed begins with its key."""
    found = _UUID7.match(seed)
    # When the key was made, in the first bits of an id, if it tells.
    moment = None if found is None else int(found[1] + found[2], 16) // _MOMENT_MS & _MOMENT_MAX
    for salt in range(_SALTS_MAX):
        digest = blake2b(f"{seed}/{salt}".encode(), digest_size=8).digest()
        id_ = int.from_bytes(digest, "big") >> 1
        if moment is not None:
            id_ = moment << _REST_BITS | id_ & _REST_MAX
        if id_ and id_ not in table.snapshots:
            return id_
    raise InvariantBroken("invariant broken: a thousand snapshot ids in a row are taken")
