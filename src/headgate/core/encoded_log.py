"""An append-mostly list of encoded items, shared between versions of a table's metadata.

Snapshots and history entries stay encoded bytes until someone looks at one. Appending to a log of 50,000
items copies a few hundred pointers; printing the whole joins a few hundred blocks. Never decodes an item.

Each item has a `position` (unique, increasing, the order on the wire), a `key` to find it by (a snapshot's
id; for history the position itself) and a `body` (one JSON value). Positions survive removals, so a store
can keep an item per row and apply exactly what changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, repeat
from operator import contains

from headgate.core.value import Record

_BLOCK_ITEMS = 64
_MERGED_BLOCKS = 16  # so many small blocks at the end become one large one


class LogItem(Record):
    """One encoded item. `tag` is an optional second key that the store indexes (a manifest list's hash)."""

    position: int
    key: int
    body: bytes
    tag: int | None = None


class LogDelta(Record):
    """What turns one version of a log into another: positions gone, items new.

    `next_position` is the new log's: what came and went in between has used positions that no item shows.
    """

    removed: tuple[int, ...] = ()
    added: tuple[LogItem, ...] = ()
    next_position: int = 0


@dataclass(frozen=True, slots=True)
class _Block:
    items: tuple[LogItem, ...]
    index: dict[int, LogItem]
    joined: bytes


def _seal(items: tuple[LogItem, ...]) -> _Block:
    return _Block(items, {item.key: item for item in items}, b",".join([item.body for item in items]))


class _Sealed(Record):
    """The full blocks of a log: one object for all versions of it until the next block is full."""

    blocks: tuple[_Block, ...] = ()
    indexes: tuple[dict[int, LogItem], ...] = ()  # of the blocks, side by side
    length: int = 0

    @staticmethod
    def of(blocks: tuple[_Block, ...]) -> _Sealed:
        """These blocks, counted."""
        indexes = tuple([block.index for block in blocks])
        return _Sealed(blocks, indexes, sum([len(block.items) for block in blocks]))


_NONE_SEALED = _Sealed()


def _keys(items: Iterable[LogItem]) -> frozenset[int]:
    return frozenset([item.key for item in items])


def _count_bytes(items: Iterable[LogItem]) -> int:
    return sum([len(item.body) for item in items])


def _merge(blocks: tuple[_Block, ...]) -> tuple[_Block, ...]:
    """The blocks, with the last sixteen small ones made into one: printing joins tens of parts, not hundreds."""
    last = blocks[-_MERGED_BLOCKS:]
    if len(last) < _MERGED_BLOCKS or len(last[0].items) > _BLOCK_ITEMS:
        return blocks
    return (*blocks[:-_MERGED_BLOCKS], _seal(tuple(item for block in last for item in block.items)))


class EncodedLog(Record):
    """An immutable value; every change is a new one that shares the unchanged blocks."""

    _sealed: _Sealed = _NONE_SEALED
    _tail: tuple[LogItem, ...] = ()
    next_position: int = 0
    _tail_keys: frozenset[int] = frozenset()  # searched faster than the items themselves
    size_bytes: int = 0  # of the items, without the commas between them

    @staticmethod
    def of(items: Iterable[LogItem], *, next_position: int | None = None) -> EncodedLog:
        """Build from items in order of position."""
        everything = tuple(items)
        blocks, full = [], 0
        for size in (_BLOCK_ITEMS * _MERGED_BLOCKS, _BLOCK_ITEMS):
            while len(everything) - full >= size:
                blocks.append(_seal(everything[full : full + size]))
                full += size
        after = everything[-1].position + 1 if everything else 0
        tail, next_position = everything[full:], max(after, next_position or 0)
        return EncodedLog(
            _Sealed.of(tuple(blocks)), tail, next_position, _keys(tail), _count_bytes(everything)
        )

    def append(self, body: bytes, *, key: int | None = None, tag: int | None = None) -> EncodedLog:
        """A log with one more item at the end. Without a key, the item's position is its key."""
        position = self.next_position
        if key is None:
            key = position
        tail = self._tail + (LogItem(position, key, body, tag),)  # noqa: RUF005 - a list made of both takes longer
        size_bytes = self.size_bytes + len(body)
        if len(tail) < _BLOCK_ITEMS:
            return EncodedLog(self._sealed, tail, position + 1, self._tail_keys | {key}, size_bytes)
        sealed = _Sealed.of(_merge((*self._sealed.blocks, _seal(tail))))
        return EncodedLog(sealed, (), position + 1, size_bytes=size_bytes)

    def extend(self, items: Iterable[LogItem], *, next_position: int) -> EncodedLog:
        """A log with items that another process appended, at the positions it gave them."""
        log = self
        for item in items:
            log = replace(log, next_position=item.position).append(item.body, key=item.key, tag=item.tag)
        return replace(log, next_position=max(log.next_position, next_position))

    def without(self, keys: Collection[int]) -> EncodedLog:
        """A log without the items of these keys; `self` when none of them is there."""
        gone = frozenset(keys)
        blocks: list[_Block] = []
        removed: list[LogItem] = [item for item in self._tail if item.key in gone]
        for block in self._sealed.blocks:
            if gone.isdisjoint(block.index):
                blocks.append(block)
                continue
            removed += [item for item in block.items if item.key in gone]
            if kept := tuple(item for item in block.items if item.key not in gone):
                blocks.append(_seal(kept))
        if not removed:
            return self
        tail = tuple(item for item in self._tail if item.key not in gone)
        size_bytes = self.size_bytes - _count_bytes(removed)
        return EncodedLog(_Sealed.of(tuple(blocks)), tail, self.next_position, _keys(tail), size_bytes)

    def find(self, key: int) -> LogItem | None:
        """The newest item of this key."""
        tail = self._tail
        if tail and tail[-1].key == key:  # mostly the head's is asked for
            return tail[-1]
        if key in self._tail_keys:
            for item in reversed(tail):
                if item.key == key:
                    return item
        for index in reversed(self._sealed.indexes):
            if (found := index.get(key)) is not None:
                return found
        return None

    def last(self) -> LogItem | None:
        """The item at the end."""
        if self._tail:
            return self._tail[-1]
        blocks = self._sealed.blocks
        return blocks[-1].items[-1] if blocks else None

    def __contains__(self, key: object) -> bool:
        # Every commit asks for an id that is nowhere, so the blocks of a long log are all asked, in one step.
        return isinstance(key, int) and (
            key in self._tail_keys or any(map(contains, self._sealed.indexes, repeat(key)))
        )

    def __len__(self) -> int:
        return self._sealed.length + len(self._tail)

    def __iter__(self) -> Iterator[LogItem]:
        for block in self._sealed.blocks:
            yield from block.items
        yield from self._tail

    def __reversed__(self) -> Iterator[LogItem]:
        # Without a step of the interpreter for each item: whoever walks a window reads thousands.
        sealed = (reversed(block.items) for block in reversed(self._sealed.blocks))
        return chain(reversed(self._tail), chain.from_iterable(sealed))

    def keys(self) -> set[int]:
        """The keys of all items."""
        return {item.key for item in self._tail}.union(*(block.index for block in self._sealed.blocks))

    def parts(self) -> list[bytes]:
        """Byte strings that, joined by commas, are the items of a JSON array."""
        parts = [block.joined for block in self._sealed.blocks]
        parts.extend(item.body for item in self._tail)
        return parts

    def since(self, base: EncodedLog) -> LogDelta:
        """What a store must do to turn `base` into this log."""
        since, tail, at = base.next_position, self._tail, len(base._tail)
        if self._sealed is base._sealed and len(tail) > at and tail[at].position == since:
            # As many old items as the base has, so none of them is gone: what nearly every commit does.
            return LogDelta((), tail[at:], self.next_position)
        at = len(tail)
        while at and tail[at - 1].position >= since:  # mostly the last ones
            at -= 1
        added: list[LogItem] = list(tail[at:])
        for block in reversed(self._sealed.blocks):
            if block.items[-1].position < since:
                break
            added[:0] = [item for item in block.items if item.position >= since]
        if len(self) == len(base) + len(added):
            return LogDelta((), tuple(added), self.next_position)
        # Blocks that both have are the same objects; what was removed is in the others.
        shared = {id(block) for block in self._sealed.blocks} & {id(block) for block in base._sealed.blocks}
        kept = {item.position for item in self._outside(shared)}
        gone = (item.position for item in base._outside(shared))
        removed = tuple(position for position in gone if position not in kept)
        return LogDelta(removed, tuple(added), self.next_position)

    def _outside(self, shared: set[int]) -> Iterator[LogItem]:
        for block in self._sealed.blocks:
            if id(block) not in shared:
                yield from block.items
        yield from self._tail
