"""Manifests merged into one: bytes in, bytes out, by the rules of `core.manifest_merge`. No I/O.

Three roads, the cheapest that a manifest allows: the blocks of a settled manifest are copied still compressed;
entries that the caller has kept are written with new numbers before the bytes of their files; anything else is
decoded and encoded. The result reads the same whichever was taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.core.manifest import ManifestContent, ManifestEntry, ManifestFile
from headgate.core.manifest_merge import AddedTwice
from headgate.core.merged_entries import merge_entries
from headgate.core.partitioning import PartitionSpec
from headgate.core.schema import Schema
from headgate.core.value import Record
from headgate.errors import InvariantBroken
from headgate.format.manifest_encode import EncodedFile, EncodedManifest, ManifestEncoder
from headgate.format.manifests import decode_manifest


class Source(Record):
    """A manifest to be merged, as the head lists it, and what the caller has of it: its bytes, its entries or both.

    `files` are those of `entries`, in order, as they were encoded for the manifest.
    """

    manifest: ManifestFile
    data: bytes | None = None
    entries: tuple[ManifestEntry, ...] | None = None
    files: tuple[EncodedFile, ...] | None = None


def splice_manifests(
    sources: Sequence[Source],
    *,
    snapshot_id: int,
    spec: PartitionSpec,
    schema: Schema,
    format_version: int,
    content: ManifestContent,
    codec: str = "deflate",
) -> EncodedManifest | AddedTwice | None:
    """The manifest that replaces these when snapshot `snapshot_id` writes it; None when nothing is left to hold.

    A file that is live twice is a finding where both entries are seen, which they are not in blocks that are copied.
    """
    encoder = ManifestEncoder(
        spec=spec, schema=schema, format_version=format_version, content=content, codec=codec
    )
    blocks = [None if s.data is None else encoder.find_blocks(s.manifest, s.data) for s in sources]
    seen = [() if found else _entries_of(source) for source, found in zip(sources, blocks, strict=True)]
    merged = merge_entries(seen, snapshot_id=snapshot_id)
    if isinstance(merged, AddedTwice):
        return merged
    for source, found, entries, kept in zip(sources, blocks, seen, merged, strict=True):
        if found is not None:
            encoder.copy(source.manifest, found)
            continue
        # By the object: a path may be there twice, once live and once removed, as two files.
        known = {id(entry.file): file for entry, file in zip(entries, source.files or (), strict=False)}
        for entry in kept:
            encoder.add(entry, known.get(id(entry.file)))
    made = encoder.finish()
    return made if made.added_files_count + made.existing_files_count + made.deleted_files_count else None


def _entries_of(source: Source) -> tuple[ManifestEntry, ...]:
    if source.entries is not None:
        return source.entries
    location = source.manifest.manifest_path
    if source.data is None:
        raise InvariantBroken(
            f"invariant broken: neither bytes nor entries of a manifest; manifest={location}"
        )
    return tuple(decode_manifest(source.data, source.manifest, location=location, metrics=True))
