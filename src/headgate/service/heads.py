"""Parsed heads, cached against the head token. A cached head is used only while the store says it is the head.

Bounded in bytes; the least recently used heads go first. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from headgate.core.commit import Head, Target
from headgate.core.encoded_log import EncodedLog
from headgate.core.table import MetadataLogEntry, TableMetadata
from headgate.format.table_metadata import decode_envelope
from headgate.store.base import Entry, EntryId, Kind, Store, Stream

Cached = tuple[Head, int]  # a head and its epoch
_NO_ID = EntryId("")


class HeadCache:
    """Heads of tables by entry id."""

    def __init__(self, store: Store, *, limit_bytes: int) -> None:
        self._store = store
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._heads: OrderedDict[EntryId, Cached] = OrderedDict()
        # A head has one name, the one that it had at its version: a rename makes a version, so a swap proves both.
        self._ids: dict[Target, EntryId] = {}
        self._names: dict[EntryId, Target] = {}
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """How much the cached heads take, roughly."""
        return self._bytes

    def load(self, targets: Sequence[Target]) -> tuple[Head | None, ...]:
        """Heads as they are now, all at one point in time; None where no table stands."""
        # What the store leaves out is what we told it we hold: it is kept here, whatever the cache does meanwhile.
        held: dict[EntryId, Cached] = {}
        with self._lock:
            for target in targets:
                id_ = self._ids.get(target)
                if id_ is not None and (cached := self._heads.get(id_)) is not None:
                    self._heads.move_to_end(id_)
                    held[id_] = cached
        entries = self._store.load_entries(
            targets, known={id_: _known(cached) for id_, cached in held.items()}
        )
        if any(entry is not None and _is_behind(entry, held.get(entry.header.id)) for entry in entries):
            held, entries = {}, self._store.load_entries(targets)
        return tuple(
            self._head_of(target, entry, held) for target, entry in zip(targets, entries, strict=True)
        )

    def peek(self, targets: Sequence[Target]) -> tuple[Head, ...] | None:
        """The heads as last seen, if all of them are remembered: hints, which only a swap or a load proves."""
        try:  # without the lock: what is just being changed is as good as what it was
            if len(targets) == 1:
                return (self._heads[self._ids[targets[0]]][0],)
            return tuple([self._heads[self._ids[target]][0] for target in targets])
        except KeyError:
            return None

    def find_hint(self, target: Target) -> Head | None:
        """As `peek`, of one table."""
        cached = self._heads.get(self._ids.get(target, _NO_ID))
        return None if cached is None else cached[0]

    def put(self, target: Target, head: Head, *, epoch: int) -> None:
        """Remember a head whose epoch is known."""
        with self._lock:
            self._put(target, head, epoch)

    def put_swapped(self, target: Target, head: Head, *, base: Head | None, removes: bool) -> None:
        """Remember a head that we just published, if we know its epoch.

        An epoch that is too high would one day equal the store's, and hide that items were removed. So it is
        reckoned from the very base only: if the cache has moved on or lost it, the next load tells.
        """
        with self._lock:
            if base is None:
                self._put(target, head, 0)
                return
            id_ = EntryId(base.id)
            cached = self._heads.get(id_)
            if cached is None:
                return
            seen, epoch = cached
            if seen is not base:
                if seen.version != base.version:
                    return
                if head.checkpoint == base.checkpoint:  # no file came with it; one noted meanwhile is newer
                    head = Head(head.id, head.version, head.metadata, head.metadata_location, seen.checkpoint)
            if head.id != id_ or head.version <= base.version or self._names[id_] != target:
                self._put(target, head, epoch + removes)
                return
            # It takes the place of the one before it, under the same name.
            self._heads[id_] = head, epoch + removes
            self._heads.move_to_end(id_)
            self._bytes += head.metadata.size_bytes() - seen.metadata.size_bytes()
            if self._bytes > self._limit_bytes:
                self._shrink()

    def forget(self, target: Target) -> None:
        """What was remembered at this name stands there no longer."""
        with self._lock:
            self._drop(self._ids.get(target))

    def _put(self, target: Target, head: Head, epoch: int) -> None:
        """With the lock held."""
        id_ = EntryId(head.id)
        old = self._heads.get(id_)
        if old is not None and old[0].version > head.version:
            self._heads.move_to_end(id_)
            return
        self._drop(id_)
        self._drop(self._ids.get(target))
        self._heads[id_] = (head, epoch)
        self._bytes += head.metadata.size_bytes()
        self._ids[target], self._names[id_] = id_, target
        self._shrink()

    def _shrink(self) -> None:
        """With the lock held."""
        while self._bytes > self._limit_bytes and len(self._heads) > 1:
            self._drop(next(iter(self._heads)))

    def _drop(self, id_: EntryId | None) -> None:
        """A head and its name, if it is there. With the lock held."""
        if id_ is not None and (cached := self._heads.pop(id_, None)) is not None:
            self._bytes -= cached[0].metadata.size_bytes()
            del self._ids[self._names.pop(id_)]

    def _head_of(self, target: Target, entry: Entry | None, held: Mapping[EntryId, Cached]) -> Head | None:
        if entry is None or entry.header.kind is not Kind.TABLE:
            self.forget(target)
            return None
        header = entry.header
        cached = held.get(header.id)
        checkpoint_at_version = header.checkpoint_version == header.version
        if cached is not None and cached[0].version == header.version:
            head = cached[0]
            if checkpoint_at_version == (
                head.checkpoint is not None and head.checkpoint.metadata_file == head.metadata_location
            ):
                return head
            metadata = head.metadata
        else:
            metadata = TableMetadata(
                decode_envelope(entry.envelope),
                _extended(entry, Stream.SNAPSHOTS, cached),
                _extended(entry, Stream.HISTORY, cached),
            )
        checkpoint = None
        if header.checkpoint_location is not None:
            checkpoint = MetadataLogEntry(
                metadata_file=header.checkpoint_location, timestamp_ms=metadata.envelope.last_updated_ms
            )
        head = Head(header.id, header.version, metadata, header.metadata_location, checkpoint)
        self.put(target, head, epoch=header.epoch)
        return head


def _known(cached: Cached) -> tuple[int, int, int]:
    """Epoch and the next positions of the two logs."""
    metadata = cached[0].metadata
    return cached[1], metadata.snapshots.next_position, metadata.history.next_position


def _is_behind(entry: Entry, cached: Cached | None) -> bool:
    """Whether the store may give out positions that we hold already: what it left out need not be what we hold."""
    if cached is None:
        return False
    _, snapshots, history = _known(cached)
    positions = entry.next_positions
    return positions[Stream.SNAPSHOTS] < snapshots or positions[Stream.HISTORY] < history


def _extended(entry: Entry, stream: Stream, cached: Cached | None) -> EncodedLog:
    items, after = entry.logs.get(stream, ()), entry.next_positions.get(stream, 0)
    if cached is None or cached[1] != entry.header.epoch:
        return EncodedLog.of(items, next_position=after)
    metadata = cached[0].metadata
    base = metadata.snapshots if stream is Stream.SNAPSHOTS else metadata.history
    return base.extend(items, next_position=after)
