"""Batches of a stream, each in the table exactly once, by the id of the query and the number of the batch.

Two things make it so, and both move with the files in one commit. The **key** is made from them and the table, so that
two drivers of one stream cannot both land a batch. The **table property** `headgate.stream.<query id>` is the number
of the last batch, so that a driver that starts again knows, when the key is long forgotten, whether the batch is there;
and so does the service, which refuses a batch that the table has passed, from a driver that looked and hung since then.

A catalog that is not ours keeps no keys. There the commit expects the property as it was read, so that of two drivers
the second is refused, and finds the batch in the table.

Numbers are compared for equality. A table that is ahead of the checkpoint means that the checkpoint was set back:
whether the rows of that batch are in the table cannot be known then, and it is said instead of guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from headgate.client import Committed
from headgate.client.changes import Changes, File
from headgate.client.results import MAIN
from headgate.core.isolation import Wire
from headgate.core.stream_progress import progress_name
from headgate.errors import BadInput, CommitRefused, CommitUnknown, Diverged, RequirementFailed, Retry
from headgate.spark.catalog_table import CatalogTable
from headgate.spark.fates import Fate, fence, find_fate, is_key_taken
from headgate.spark.lake import LakeTable

_PROPERTY = "property"  # the requirement that a property is as it was read
TRIES_MAX = 8  # refusals that a repeat cures; each takes another key
_VERSION, _VARIANT = 0x7 << 76, 0x2 << 62
_VERSION_MASK, _VARIANT_MASK = ~(0xF << 76), ~(0x3 << 62)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One batch of one stream for one table. The id is the checkpoint's, so it stays the same over restarts."""

    query_id: str
    number: int
    table_uuid: str

    def key(self, attempt: int) -> str:
        """The key of the so-manieth try to commit the batch; a refusal uses a key up. Of the form of a UUIDv7."""
        text = f"headgate.stream/{self.table_uuid}/{self.query_id.lower()}/{self.number}/{attempt}"
        bits = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")
        return str(UUID(int=((bits & _VERSION_MASK | _VERSION) & _VARIANT_MASK) | _VARIANT))


@dataclass(frozen=True, slots=True)
class Sink:
    """Where a stream goes."""

    table: LakeTable
    branch: str = MAIN
    fold: bool = False  # share snapshots with others that append at the same time
    summary: Mapping[str, str] = field(default_factory=dict)


class There(Enum):
    """A batch that was in the table before."""

    OTHERS = "others"  # another driver brought it, and these files are in no commit
    UNTOLD = "untold"  # whose files it is nobody can tell: the key is forgotten, and they may be these


def is_in_table(properties: Mapping[str, str], epoch: Epoch) -> bool:
    """Whether the batch is in a table with these properties; Diverged when the table is ahead of the checkpoint."""
    name = progress_name(epoch.query_id)
    text = properties.get(name)
    if text is None:
        return False
    if not text.isdecimal():
        raise BadInput(f"{name}: expected a whole number, got {text[:40]!r}", field=name)
    if int(text) > epoch.number:
        raise Diverged(
            f"the table has batch {text} of this stream, and its checkpoint is at {epoch.number}: the checkpoint "
            f"was set back; start with a new checkpoint, or remove the property {name} to write these rows again",
            property=name,
        )
    return int(text) == epoch.number


def commit_epoch(sink: Sink, epoch: Epoch, files: Sequence[File]) -> Committed | There:
    """Add the files of a batch that is not in the table; else how it came to be there.

    Raises the error of a refusal, or that nobody knows. Call it with files, and only if `is_in_table` said no.
    """
    updates = [_append(sink, files), _note(epoch)]
    same_table: Wire = {"type": "assert-table-uuid", "uuid": epoch.table_uuid}
    for attempt in range(TRIES_MAX):
        key = epoch.key(attempt)
        try:
            return _commit(sink, epoch, updates, same_table, key)
        except BadInput as error:
            if not is_key_taken(error):
                raise
            fate = find_fate(sink.table, key)
            if fate is Fate.LANDED:
                return There.OTHERS
            if fate is not Fate.REFUSED:
                raise CommitUnknown(f"the verdict under this key is not known; key={key}", key=key) from error
        except RequirementFailed as error:
            if error.evidence.get("requirement") != _PROPERTY:
                raise  # another table has this name now
            if is_in_table(sink.table.client.load().properties, epoch):
                # The library looks for what it sent. The service goes by the key, and a resend may have outlived it.
                is_direct = isinstance(sink.table.client, CatalogTable)
                return There.OTHERS if is_direct else There.UNTOLD
        except CommitRefused as error:
            if error.retry is not Retry.REFRESH:
                raise
    raise CommitRefused(
        f"batch {epoch.number} of stream {epoch.query_id} was refused {TRIES_MAX} times; start the stream again"
    )


def is_lost(sink: Sink, epoch: Epoch) -> bool:
    """Whether a batch is not in the table, and what was sent of it cannot land any more: its files may go.

    Of a catalog that keeps no keys only the first can be told: whoever asks must know that nothing is on its way.
    """
    if isinstance(sink.table.client, CatalogTable):
        return not is_in_table(sink.table.client.load().properties, epoch)
    for attempt in range(TRIES_MAX):
        fate = fence(sink.table, epoch.key(attempt))
        if fate is Fate.LANDED:
            return False
        if fate is Fate.FENCED:  # nobody has tried more often than this
            break
    return not is_in_table(sink.table.client.load().properties, epoch)


def _commit(sink: Sink, epoch: Epoch, updates: Sequence[Wire], same_table: Wire, key: str) -> Committed:
    client = sink.table.client
    if not isinstance(client, CatalogTable):
        return client.commit(updates, requirements=[same_table], key=key, fold=sink.fold)
    name, properties = progress_name(epoch.query_id), client.load().properties
    if is_in_table(properties, epoch):
        raise RequirementFailed(f"batch {epoch.number} is in the table already", requirement=_PROPERTY)
    return client.commit(updates, requirements=[same_table], key=key, expected={name: properties.get(name)})


def _append(sink: Sink, files: Sequence[File]) -> Wire:
    def as_it_is(update: Wire, key: str | None) -> Wire:
        return update

    return Changes(as_it_is, dict).append(files, branch=sink.branch, summary=sink.summary or None)


def _note(epoch: Epoch) -> Wire:
    return {"action": "set-properties", "updates": {progress_name(epoch.query_id): str(epoch.number)}}
