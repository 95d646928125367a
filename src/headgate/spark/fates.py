"""What became of a commit, by its key: looked up, or settled for good before anything is deleted.

Spark calls a writer's `abort` after any failure, also when the commit landed and only its answer was lost. So nobody
deletes before the service has said that the key never landed, and that it never will: a **fence** uses the key up
with a request that must be refused. Whichever of the two was first, the other is refused.

A catalog that is not ours keeps no keys, so none can be used up there. What has landed is in the snapshots; who deletes
must know by himself that nothing was sent.
"""

from __future__ import annotations

from enum import Enum
from uuid import uuid4

from headgate.errors import (
    AlreadyExists,
    BadInput,
    CommitRefused,
    CommitUnknown,
    NotFound,
    RequirementFailed,
    Unsupported,
    invariant,
)
from headgate.spark.catalog_table import KEY_FIELD, CatalogTable
from headgate.spark.lake import LakeTable

_VERDICTS = (CommitRefused, BadInput, AlreadyExists, Unsupported)


class Fate(Enum):
    """What is known of a key."""

    LANDED = "landed"
    REFUSED = "refused"  # used up by a refusal
    PENDING = "pending"
    ABSENT = "absent"  # never used, in flight, or forgotten
    FENCED = "fenced"  # absent until now, and used up by us


def find_fate(table: LakeTable, key: str) -> Fate:
    """Look the key up: with the service, which knows those of all tables, or in the snapshots of the table."""
    if isinstance(table.client, CatalogTable):
        try:
            return Fate.ABSENT if table.client.find(key) is None else Fate.LANDED
        except NotFound:
            return Fate.ABSENT  # the job was to make the table
    with table.lake.client() as client:
        try:
            landed = client.pending(key).look()
        except NotFound as error:
            # The verdict may itself be that a table is not there; a key without a verdict has no kind.
            return Fate.ABSENT if error.kind == "unknown" else Fate.REFUSED
        except _VERDICTS:
            return Fate.REFUSED
    return Fate.PENDING if landed is None else Fate.LANDED


def fence(table: LakeTable, key: str) -> Fate:
    """Use the key up, unless it has a verdict: what is in flight under it cannot land afterwards.

    Proves nothing of a commit that is older than the lifetime of keys: that may have landed and be forgotten.
    """
    if isinstance(table.client, CatalogTable):
        raise Unsupported(f"{table.name}: its catalog keeps no keys, so none can be used up")
    nobody = {
        "type": "assert-table-uuid",
        "uuid": str(uuid4()),
    }  # another body each time: see two fences apart
    try:
        table.client.commit([], requirements=[nobody], key=key)
    except BadInput as error:
        if not is_key_taken(error):
            raise
        fate = find_fate(table, key)
        if fate in (Fate.ABSENT, Fate.PENDING):
            raise CommitUnknown(f"the verdict under this key is not known; key={key}", key=key) from error
        return fate
    except (RequirementFailed, NotFound):
        return Fate.FENCED
    invariant(False, "no table has a uuid that was made up")
    return Fate.REFUSED


def is_key_taken(error: BadInput) -> bool:
    """Whether a request was refused because its key stands for another one."""
    return error.field == KEY_FIELD
