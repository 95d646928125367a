"""Manifests and manifest lists as the service reads and writes them: immutable, so cached in bounded memory.

What is written here is known here: a list just made is the next commit's base, and its entries need not be read
back. "Is this path live?" is answered by one index of paths for all manifests, filled from footprints or, where
there is none, from the files. Names are unique to an attempt; nothing is ever overwritten. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

from headgate.core.build import Appended, AppendFiles, WriteManifest, WriteManifestList
from headgate.core.iceberg import schema_for_spec
from headgate.core.live import FindLive, FoundLive
from headgate.core.manifest import ADDED, ContentFile, EntryStatus, ManifestEntry, ManifestFile, NewEntry
from headgate.core.manifest_list import ManifestList
from headgate.core.manifest_merge import AddedTwice, MergeManifests
from headgate.core.table import Snapshot, TableMetadata
from headgate.core.window import ManifestChanges, OwnManifests, find_changes, find_list, find_own
from headgate.files.base import Files
from headgate.format.footprints import (
    OwnManifest,
    decode_footprint,
    encode_footprint,
    hash_path,
    hash_paths,
)
from headgate.format.manifest_encode import EncodedFile, EncodedManifest, ManifestEncoder
from headgate.format.manifest_list_encode import encode_blocks
from headgate.format.manifest_splice import Source, splice_manifests
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.service.append_files import WrittenAppend, write_append
from headgate.service.kept_entries import (
    CachedEntries,
    Written,
    count_bytes,
    inherit,
    keep_merged,
    keep_written,
)
from headgate.service.list_tails import find_tail, note_encoded
from headgate.service.live_paths import LivePaths, LoadFootprints
from headgate.service.outbox import Write
from headgate.service.placement import metadata_folder
from headgate.service.sized_cache import SizedCache

_BYTES_MAX = 256 * 1024 * 1024
_LISTS_MAX = 1000
_LISTED_MAX = 200_000  # manifests in cached lists, of all tables; what lists share counts each time
_SHARES = 32  # of what all may take: half is for the index of paths, the caches share the rest
_WRITTEN_BYTES_MAX = 32 << 20  # beside them: what a group has written may be read before it is on the disk
_DECODED_PER_ENCODED = 8  # what an encoded entry takes once decoded, roughly, as a multiple
_CHANGES_BYTES = 1000  # what is remembered of a manifest takes beside its entries
_OWN_BYTES, _MANIFEST_BYTES = 500, 900  # what is remembered of a snapshot takes, and of each of its manifests
_COPIED_BYTES_MAX = 256 << 10  # of manifests that are merged while others wait
_ENCODED_BYTES = 400  # what an encoded file takes beside its bytes

_Key = tuple[str, int, int | None]


def _key(manifest: ManifestFile) -> _Key:
    """Inherited numbers are part of what is cached, so they are part of the key."""
    return manifest.manifest_path, manifest.sequence_number, manifest.first_row_id


class ManifestStore:
    """Reads and writes the metadata files between a table's metadata and its data files."""

    def __init__(
        self,
        files: Files,
        *,
        limit_bytes: int,
        new_uuid: Callable[[], str],
    ) -> None:
        self._files = files
        self._new_uuid = new_uuid
        self._lock = threading.Lock()
        share = limit_bytes // _SHARES
        self._manifests: SizedCache[_Key, CachedEntries] = SizedCache(6 * share)
        self._changes: SizedCache[_Key, tuple[ManifestEntry, ...]] = SizedCache(2 * share)
        self._lists: OrderedDict[str, ManifestList] = OrderedDict()
        # By identity, and held so that it stays theirs.
        self._encoded: SizedCache[int, tuple[ContentFile, EncodedFile]] = SizedCache(2 * share)
        # By manifest list; of a whole group at least, whose footprints are made from it.
        self._own: SizedCache[str, tuple[ManifestFile, ...]] = SizedCache(max(2 * share, 1 << 20))
        self._made: OrderedDict[int, list[str]] = OrderedDict()  # manifests of snapshots without a list yet
        # Of appends, by manifest list, until they are asked for; each is asked for once, unless its list is not used.
        self._footprints: OrderedDict[str, bytes] = OrderedDict()
        self._written: OrderedDict[str, Written] = OrderedDict()
        self._written_bytes = 0
        # Entries in footprints, by manifest.
        self._inline: SizedCache[str, OwnManifest] = SizedCache(2 * share)
        self._listed = 0
        self._paths = LivePaths(limit_bytes=limit_bytes // 2, read_entries=self.read_entries)

    @property
    def size_bytes(self) -> int:
        """How much the cached manifests and the index of paths take, roughly."""
        caches = (self._manifests, self._changes, self._encoded, self._own, self._inline)
        return sum(cache.size_bytes for cache in caches) + self._paths.size_bytes + self._written_bytes

    def read_list(self, location: str) -> ManifestList:
        """The manifests of a snapshot."""
        cached = self._lists.get(location)
        if cached is not None:
            try:
                self._lists.move_to_end(location)
            except KeyError:
                return cached  # another thread let it go
            return cached
        data = self._read(location)
        found = ManifestList.of(decode_manifest_list(data, location=location))
        with self._lock:
            self._put_list(location, found)
        return found

    def read_entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """All entries of a manifest, with statistics."""
        return self._load(manifest).entries

    def read_own(self, snapshots: Sequence[Snapshot], footprints: LoadFootprints) -> OwnManifests:
        """The manifests that each snapshot itself added: remembered, from its footprint, or from its list."""
        with self._lock:
            known = self._own.get_all(map(find_list, snapshots))
        missing = [snapshot for snapshot, own in zip(snapshots, known, strict=True) if own is None]
        found: dict[int, tuple[ManifestFile, ...]] = {}
        if missing:
            bodies = footprints([snapshot.snapshot_id for snapshot in missing])
            inline: list[OwnManifest] = []
            for snapshot in missing:
                body = bodies.get(snapshot.snapshot_id)
                told = None if body is None else decode_footprint(body)
                if told is None:
                    own = find_own(self.read_list(find_list(snapshot)), snapshot)
                else:
                    own = tuple([one.manifest for one in told])
                    inline.extend(told)
                found[snapshot.snapshot_id] = own
            self._keep_inline(inline)
            self._keep_own({find_list(snapshot): found[snapshot.snapshot_id] for snapshot in missing})
        of = [found[s.snapshot_id] if own is None else own for s, own in zip(snapshots, known, strict=True)]
        return OwnManifests(tuple(of))

    def read_changes(self, manifests: Sequence[ManifestFile]) -> ManifestChanges:
        """What the snapshot of each manifest itself added and removed in it."""
        known = self._read_inline(manifests)
        return ManifestChanges(
            tuple([self._read_changes(m) if k is None else k for m, k in zip(manifests, known, strict=True)])
        )

    def find_changes(self, manifests: Sequence[ManifestFile]) -> ManifestChanges:
        """As `read_changes`, of those that are remembered; of others nothing, for files are not read."""
        return ManifestChanges(tuple([known or () for known in self._read_inline(manifests)]))

    def warm_up(self, snapshots: Sequence[Snapshot], footprints: LoadFootprints) -> bool:
        """Remember what footprints tell of these snapshots, and say whether they tell of all; files are not read."""
        bodies = footprints([snapshot.snapshot_id for snapshot in snapshots])
        told = [s for s in snapshots if decode_footprint(bodies.get(s.snapshot_id, b"")) is not None]
        own = self.read_own(told, lambda _: bodies)
        self._read_inline([manifest for of in own.of for manifest in of])
        return len(told) == len(snapshots)

    def _read_inline(self, manifests: Sequence[ManifestFile]) -> list[tuple[ManifestEntry, ...] | None]:
        """The changes of those that are remembered, or that a footprint held."""
        with self._lock:
            found = self._changes.get_all(map(_key, manifests))
            if None not in found:
                return found
            kept = [
                self._inline.get(manifest.manifest_path) if known is None else None
                for manifest, known in zip(manifests, found, strict=True)
            ]
        decoded = []
        for at, own in enumerate(kept):
            if own is not None and own.manifest == manifests[at] and (changes := own.changes()) is not None:
                found[at] = changes
                size_bytes = _CHANGES_BYTES + _DECODED_PER_ENCODED * len(own.encoded_changes or b"")
                decoded.append((_key(own.manifest), changes, size_bytes))
        with self._lock:
            for key, changes, size_bytes in decoded:
                self._changes.put(key, changes, size_bytes=size_bytes)
        return found

    def _read_changes(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        with self._lock:
            written = self._written.get(manifest.manifest_path)
        if written is not None and written.entries and manifest.first_row_id is None:
            found = inherit(find_changes(written.entries, manifest), manifest)
        else:
            known = None if written is None or written.listed is None else written.read(manifest)
            found = find_changes(self.read_entries(manifest) if known is None else known, manifest)
        with self._lock:
            self._changes.put(_key(manifest), found, size_bytes=_CHANGES_BYTES + count_bytes(found))
        return found

    def find_live(self, wanted: FindLive, footprints: LoadFootprints) -> FoundLive:
        """Which of the paths are live in which manifests."""
        found: list[tuple[ManifestFile, ManifestEntry]] = []
        for path, places in self._paths.look_up(wanted, footprints).items():
            for place in places:
                manifest = wanted.manifests.find(place)
                if manifest is None or wanted.content not in (None, manifest.content):
                    continue
                found.extend((manifest, entry) for entry in self._load(manifest).find_live(path))
        return FoundLive(tuple(found))

    def holds_none(self, wanted: FindLive) -> bool:
        """Whether it is certain, without reading anything, that none of the paths is live."""
        return self._paths.holds_none(wanted.manifests, hash_paths(wanted.paths))

    def holds_list(self, location: str) -> bool:
        """Whether `read_list` would read no file."""
        return location in self._lists

    def holds_sources(self, wanted: MergeManifests) -> bool:
        """Whether `merge_manifests` would read no file, and copy little."""
        size_bytes = sum(manifest.manifest_length for manifest in wanted.manifests)
        return size_bytes <= _COPIED_BYTES_MAX and all(
            manifest.manifest_path in self._written for manifest in wanted.manifests
        )

    def write_manifest(self, wanted: WriteManifest, write: Write) -> ManifestFile:
        """Encode a manifest under a name of its own, and have it written."""
        spec = wanted.table.find_spec(wanted.spec_id)
        encoder = ManifestEncoder(
            spec=spec,
            schema=schema_for_spec(spec, wanted.table.envelope.schemas, current=wanted.table.schema()),
            format_version=wanted.table.envelope.format_version,
            content=wanted.content,
        )
        for entry, known in zip(wanted.entries, self._find_encoded(wanted.entries), strict=True):
            encoder.add(entry, known)
        encoded = encoder.finish()
        self._keep_encoded(wanted.entries, encoded.files)
        hashes = hash_paths([entry.file.file_path for entry in wanted.entries])
        return self._publish(wanted, encoded, keep_written(hashes, wanted.entries, encoded.files), write)

    def merge_manifests(self, wanted: MergeManifests, write: Write) -> ManifestFile | AddedTwice | None:
        """Write one manifest of what several hold; or what is added twice in them."""
        spec = wanted.table.find_spec(wanted.spec_id)
        hashes = b"".join(map(self._find_manifest_hashes, wanted.manifests))  # what it decodes is remembered
        merged = splice_manifests(
            [self._find_source(manifest) for manifest in wanted.manifests],
            snapshot_id=wanted.snapshot_id,
            spec=spec,
            schema=schema_for_spec(spec, wanted.table.envelope.schemas, current=wanted.table.schema()),
            format_version=wanted.table.envelope.format_version,
            content=wanted.content,
        )
        if merged is None or isinstance(merged, AddedTwice):
            return merged
        return self._publish(wanted, merged, keep_merged(hashes, merged.data), write)

    def _find_encoded(self, entries: Sequence[NewEntry]) -> list[EncodedFile | None]:
        """What was encoded of these very files when a manifest was last written anew: all of it but a file or two."""
        found: list[EncodedFile | None] = []
        if entries[0].status is ADDED:  # so are the others
            return [None] * len(entries)
        with self._lock:
            for entry in entries:
                known = None if entry.status is EntryStatus.ADDED else self._encoded.get(id(entry.file))
                found.append(known[1] if known is not None and known[0] is entry.file else None)
        return found

    def _keep_encoded(self, entries: Sequence[NewEntry], files: Sequence[EncodedFile]) -> None:
        if entries[0].status is ADDED:
            return  # whoever merges them finds them with the manifest
        with self._lock:
            for entry, file in zip(entries, files, strict=True):
                if entry.status is EntryStatus.EXISTING:
                    size_bytes = len(file.begin) + len(file.end) + _ENCODED_BYTES
                    self._encoded.put(id(entry.file), (entry.file, file), size_bytes=size_bytes)

    def _find_source(self, manifest: ManifestFile) -> Source:
        with self._lock:
            written, cached = self._written.get(manifest.manifest_path), self._manifests.get(_key(manifest))
        if written is not None and (entries := written.read(manifest)) is not None:
            return Source(manifest, None, entries, written.files)
        data = (written and written.data) or self._read(manifest.manifest_path)
        return Source(manifest, data, None if cached is None else cached.entries)

    def _find_manifest_hashes(self, manifest: ManifestFile) -> bytes:
        with self._lock:
            written = self._written.get(manifest.manifest_path)
        if written is not None:
            return written.hashes
        return hash_paths(entry.file.file_path for entry in self.read_entries(manifest))

    def _publish(
        self, wanted: WriteManifest | MergeManifests, encoded: EncodedManifest, kept: Written, write: Write
    ) -> ManifestFile:
        location = self._name(wanted.table, f"{wanted.snapshot_id}-m")
        write(location, encoded.data)
        self._keep_written(location, kept)
        with self._lock:
            self._made.setdefault(wanted.snapshot_id, []).append(location)
            while len(self._made) > _LISTS_MAX:
                self._made.popitem(last=False)
        return encoded.describe(
            location,
            spec_id=wanted.spec_id,
            content=wanted.content,
            snapshot_id=wanted.snapshot_id,
            sequence_number=wanted.sequence_number,
        )

    def append(self, wanted: AppendFiles, write: Write) -> Appended | None:
        """As `write_manifest` and `write_list`, unless a path may be live; nothing is written before both are made."""
        made = self.make_append(wanted, write)
        if made is None:
            return None
        self.keep_append(made)
        return made.reply

    def make_append(self, wanted: AppendFiles, write: Write) -> WrittenAppend | None:
        """As `append`, and nothing of it is remembered but its footprint: for who knows soon whether it has landed."""
        files = wanted.files
        hashes = (
            hash_path(files[0].file_path) if len(files) == 1 else hash_paths([f.file_path for f in files])
        )
        if not self._paths.holds_none(wanted.manifests, hashes):
            return None
        made = write_append(wanted, hashes, write, self._new_uuid)
        self._footprints[made.reply.manifest_list] = made.footprint
        return made

    def drop_append(self, made: WrittenAppend) -> None:
        """It is not to be, and was written nowhere."""
        self._footprints.pop(made.reply.manifest_list, None)

    def keep_append(self, made: WrittenAppend) -> None:
        """Remember it: whoever comes next need not read its files."""
        path, location, listed = made.reply.manifest, made.reply.manifest_list, made.listed
        self._paths.append(listed, path, made.kept.hashes, parent=made.parent)
        with self._lock:
            self._put_written(path, made.kept)
            self._put_list(location, listed)
            self._own.put(location, (made.own,), size_bytes=_OWN_BYTES + _MANIFEST_BYTES)
            if len(self._footprints) > _LISTS_MAX:
                self._footprints.popitem(last=False)

    def write_list(self, wanted: WriteManifestList, write: Write) -> str:
        """Encode a manifest list under a name of its own, and have it written."""
        version = wanted.table.envelope.format_version
        parent_id = wanted.parent_snapshot_id
        ids = (wanted.snapshot_id, parent_id, wanted.sequence_number, wanted.first_row_id)
        encoded = encode_blocks(wanted.manifests.blocks, ids, version)
        location = self._name(wanted.table, f"snap-{wanted.snapshot_id}")
        parent = None if parent_id is None else wanted.table.find_snapshot(parent_id)
        base = None if parent is None else parent.manifest_list
        before = None if base is None else self._lists.get(base)
        write(location, encoded.data, find_tail(wanted.manifests, version, parent=before, base=base))
        note_encoded(wanted.manifests, location, version, encoded.blocks_bytes)
        with self._lock:
            self._put_list(location, wanted.manifests)
            made = self._made.pop(wanted.snapshot_id, ())
        # New ones stand in front, also those that a client wrote; what was rewritten in its place was made here.
        front = wanted.manifests.blocks[0].manifests if wanted.manifests.blocks else ()
        own = [manifest for manifest in front if manifest.added_snapshot_id == wanted.snapshot_id]
        known = [manifest.manifest_path for manifest in own]
        for path in made:
            if path not in known and (manifest := wanted.manifests.find(path)) is not None:
                own.append(manifest)
        self._keep_own({location: tuple(own)})
        return location

    def footprint(self, snapshot: Snapshot) -> bytes | None:
        """What a snapshot that was just built here brought; None when it was not built here."""
        location = find_list(snapshot)
        if (made := self._footprints.pop(location, None)) is not None:
            return made
        with self._lock:
            own = self._own.get(location)
            written = [self._written.get(manifest.manifest_path) for manifest in own or ()]
        if own is None:
            return None
        parts: list[tuple[ManifestFile, bytes, tuple[ManifestEntry, ...] | None]] = []
        for manifest, kept in zip(own, written, strict=True):
            if kept is None:
                return None
            parts.append((manifest, kept.hashes, kept.read(manifest)))
        return encode_footprint(parts)

    def _read(self, location: str) -> bytes:
        return self._files.read(location, limit_bytes=_BYTES_MAX)

    def _name(self, table: TableMetadata, stem: str) -> str:
        envelope = table.envelope
        return f"{metadata_folder(envelope.location, envelope.properties)}/{stem}-{self._new_uuid()}.avro"

    # --- memory ------------------------------------------------------------------------------------------

    def _put_list(self, location: str, manifests: ManifestList) -> None:
        """With the lock held, as the next one."""
        lists = self._lists
        if location not in lists:
            self._listed += manifests.length
        lists[location] = manifests
        while (self._listed > _LISTED_MAX or len(lists) > _LISTS_MAX) and len(lists) > 1:
            self._listed -= lists.popitem(last=False)[1].length

    def _keep_own(self, own: Mapping[str, tuple[ManifestFile, ...]]) -> None:
        with self._lock:
            for location, manifests in own.items():
                self._own.put(location, manifests, size_bytes=_OWN_BYTES + _MANIFEST_BYTES * len(manifests))

    def _keep_inline(self, known: Iterable[OwnManifest]) -> None:
        with self._lock:
            for own in known:
                if own.encoded_changes is not None:
                    size_bytes = _OWN_BYTES + _MANIFEST_BYTES + len(own.hashes) + len(own.encoded_changes)
                    self._inline.put(own.manifest.manifest_path, own, size_bytes=size_bytes)

    def _keep_written(self, location: str, kept: Written) -> None:
        self._paths.add(location, kept.hashes)
        with self._lock:
            self._put_written(location, kept)

    def _put_written(self, location: str, kept: Written) -> None:
        self._written[location] = kept
        self._written_bytes += kept.size_bytes
        while self._written_bytes > _WRITTEN_BYTES_MAX and len(self._written) > 1:
            self._written_bytes -= self._written.popitem(last=False)[1].size_bytes

    def _load(self, manifest: ManifestFile) -> CachedEntries:
        key = _key(manifest)
        with self._lock:
            cached = self._manifests.get(key)
        if cached is not None:
            return cached
        cached = CachedEntries(self._read_entries(manifest))
        with self._lock:
            self._manifests.put(key, cached, size_bytes=500 + count_bytes(cached.entries))
        return cached

    def _read_entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        location = manifest.manifest_path
        with self._lock:
            written = self._written.get(location)
            inline = self._inline.get(location)
        if written is not None and (entries := written.read(manifest)) is not None:
            return entries
        if inline is not None and inline.manifest == manifest and (known := inline.entries()) is not None:
            return known
        kept = None if written is None else written.data
        data = self._read(location) if kept is None else kept
        return tuple(decode_manifest(data, manifest, location=location, metrics=True))
