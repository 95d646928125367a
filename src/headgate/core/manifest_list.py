"""The manifests of one snapshot, newest first, in blocks that snapshots share.

A commit that appends adds one small block in front of the blocks its parent has, so building the next list, and
encoding it, costs what the commit brings and not what the table holds. Small blocks are merged in tiers: sixteen of
a size become one. Immutable. Holds no rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from headgate.core.manifest import DATA_MANIFEST, DELETE_MANIFEST, ManifestContent, ManifestFile
from headgate.core.manifest_merge import Rest
from headgate.core.value import Record

_TIER = 16
_BLOCK_MAX = 1024


class Block(Record, eq=False):
    """Manifests that are encoded together, once. Compared by identity: that is what makes its bytes reusable.

    `notes` is room for what others know about the block and would have to look up otherwise: its encoded bytes, or
    that it is in an index. `parts` are the blocks that it was made of, until somebody took over what they noted.
    """

    manifests: tuple[ManifestFile, ...]
    by_path: Mapping[str, ManifestFile]
    parts: list[Block]
    notes: dict[object, object] = msgspec.field(default_factory=dict)


def _block(manifests: Sequence[ManifestFile], parts: Sequence[Block] = ()) -> Block:
    return Block(tuple(manifests), {manifest.manifest_path: manifest for manifest in manifests}, list(parts))


def has_live_files(manifest: ManifestFile) -> bool:
    """Whether a manifest may hold live files; counts may be unknown in v1."""
    added, existing = manifest.added_files_count, manifest.existing_files_count
    return added is None or existing is None or added > 0 or existing > 0


class ManifestList(Record, eq=False):
    """A value; every change is a new one that shares the unchanged blocks. Compared by identity, for its `notes`.

    They are as those of a block, of what holds for all its blocks.
    """

    blocks: tuple[Block, ...] = ()
    length: int = 0
    dead: tuple[str, ...] = ()  # paths of manifests without live files: the next commit leaves them out
    unnumbered: int = 0  # data manifests without a first row id
    deletes: tuple[ManifestFile, ...] = ()  # the delete manifests, in order
    rest: Rest | None = None  # how long there is nothing to merge, if that is known
    notes: dict[object, object] = msgspec.field(default_factory=dict)

    @staticmethod
    def of(manifests: Iterable[ManifestFile]) -> ManifestList:
        """A list of these manifests, in order."""
        everything = tuple(manifests)
        blocks = tuple(
            _block(everything[at : at + _BLOCK_MAX]) for at in range(0, len(everything), _BLOCK_MAX)
        )
        return _with_notes(blocks)

    def __iter__(self) -> Iterator[ManifestFile]:
        for block in self.blocks:
            yield from block.manifests

    def __len__(self) -> int:
        return self.length

    def find(self, path: str) -> ManifestFile | None:
        """The manifest at this path, if the list has it."""
        for block in self.blocks:
            if (found := block.by_path.get(path)) is not None:
                return found
        return None

    def only(self, content: ManifestContent) -> Iterable[ManifestFile]:
        """The manifests of data, or those of deletes."""
        if content is ManifestContent.DELETES:
            return self.deletes
        return (manifest for manifest in self if manifest.content is content)

    def next(
        self,
        new: Sequence[ManifestFile],
        replaced: Mapping[str, ManifestFile | None] | None = None,
        rest: Rest | None = None,
    ) -> ManifestList:
        """The list with new manifests in front, some replaced or (by None) left out, and the dead ones left out.

        `rest` is how long there is nothing to merge in it, if manifests are new.
        """
        if not replaced and not self.dead:
            return self._add(new, rest)
        replaced = {**dict.fromkeys(self.dead), **(replaced or {})}
        blocks = []
        for block in self.blocks:
            if replaced.keys().isdisjoint(block.by_path):
                blocks.append(block)
                continue
            kept = [replaced.get(manifest.manifest_path, manifest) for manifest in block.manifests]
            if left := [manifest for manifest in kept if manifest is not None]:
                blocks.append(_block(left))
        return _with_notes(tuple(blocks))._add(new, rest)

    def numbered(self, next_row_id: int) -> tuple[ManifestList, int]:
        """The list with row ids for data manifests that have none yet, from `next_row_id` on (spec v3)."""
        if not self.unnumbered:
            return self, next_row_id
        blocks = []
        for block in self.blocks:
            listed, next_row_id = number(block.manifests, next_row_id)
            changed = any(a is not b for a, b in zip(listed, block.manifests, strict=True))
            blocks.append(_block(listed) if changed else block)
        return _with_notes(tuple(blocks)), next_row_id

    def resting(self, rest: Rest | None) -> ManifestList:
        """The same list, and how long there is nothing in it to merge."""
        return ManifestList(self.blocks, self.length, self.dead, self.unnumbered, self.deletes, rest)

    def _add(self, new: Sequence[ManifestFile], rest: Rest | None) -> ManifestList:
        if not new:
            return self
        first = new[0]
        if (
            len(new) == 1 and first.added_files_count and first.content is DATA_MANIFEST
        ):  # what an append brings
            block, dead, deletes = Block((first,), {first.manifest_path: first}, []), self.dead, self.deletes
            unnumbered = int(first.first_row_id is None)
        else:
            dead, unnumbered, deletes = _look_through(new)
            block, dead, deletes = _block(new), dead + self.dead, deletes + self.deletes
        blocks = (block, *self.blocks)
        if len(blocks) >= _TIER:
            blocks = _merge(blocks)
        return ManifestList(blocks, self.length + len(new), dead, self.unnumbered + unnumbered, deletes, rest)


def _with_notes(blocks: tuple[Block, ...]) -> ManifestList:
    manifests = [manifest for block in blocks for manifest in block.manifests]
    return ManifestList(blocks, len(manifests), *_look_through(manifests))


def _look_through(
    manifests: Iterable[ManifestFile],
) -> tuple[tuple[str, ...], int, tuple[ManifestFile, ...]]:
    """What a list notes of its manifests: which are dead, how many are unnumbered, which are of deletes."""
    dead: list[str] = []
    deletes: list[ManifestFile] = []
    unnumbered = 0
    for manifest in manifests:
        if not (manifest.added_files_count or has_live_files(manifest)):
            dead.append(manifest.manifest_path)
        if manifest.content is DELETE_MANIFEST:
            deletes.append(manifest)
        elif manifest.first_row_id is None:
            unnumbered += 1
    return tuple(dead), unnumbered, tuple(deletes)


def number(manifests: Iterable[ManifestFile], next_row_id: int) -> tuple[list[ManifestFile], int]:
    """The manifests with row ids for those of data that have none yet, and the next id after them (spec v3)."""
    listed: list[ManifestFile] = []
    for manifest in manifests:
        if manifest.content is DATA_MANIFEST and manifest.first_row_id is None:
            rows = (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
            manifest = msgspec.structs.replace(manifest, first_row_id=next_row_id)
            next_row_id += rows
        listed.append(manifest)
    return listed, next_row_id


def _merge(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks, with every run of sixteen of one tier at the front made into one of the next."""
    tier = 1
    while tier < _BLOCK_MAX:
        size = tier * _TIER
        if len(blocks) < _TIER or len(blocks[_TIER - 1].manifests) >= size:
            break  # the run at the front is shorter
        run = 0
        while run < len(blocks) and len(blocks[run].manifests) < size:
            run += 1
        if run < _TIER:
            break
        merged = _block([manifest for block in blocks[:run] for manifest in block.manifests], blocks[:run])
        blocks = (merged, *blocks[run:])
        tier = size
    return blocks
