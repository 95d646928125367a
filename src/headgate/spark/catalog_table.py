"""A table of a catalog that is not Headgate, with the calls of `TableClient`: changes are judged, built and swapped here.

What the service does for a job, the commit library does in the driver, over PyIceberg's catalog. Two things it must find
elsewhere. Such a catalog keeps no keys, so what has landed under one is found in the summaries of the snapshots. It has
no change feed, so what a snapshot changed is read from the manifests that it wrote.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from pyiceberg.catalog import Catalog
from pyiceberg.types import IcebergType

import headgate
from headgate.client import Committed, LoadedTable
from headgate.client.changes import Changes, File
from headgate.client.feed import SnapshotChanges
from headgate.client.keys import new_key
from headgate.core.commit import Head
from headgate.core.isolation import Wire
from headgate.core.manifest import EntryStatus, ManifestContent, ManifestEntry
from headgate.core.table import Snapshot
from headgate.core.window import OwnManifests, ReadManifest, ReadOwn
from headgate.errors import BadInput, HeadgateError, NotFound
from headgate.format.content_files import encode_content_file, partition_types
from headgate.format.table_metadata import encode_parts
from headgate.library import opening
from headgate.library.driver import load_head
from headgate.library.handle import Handle
from headgate.library.pending_files import PendingFiles
from headgate.library.proof import find_landed
from headgate.library.requests import Request

KEY_FIELD = "Idempotency-Key"  # what the service calls it when a key stands for another request
REQUEST = "headgate.request"  # in the summary of a snapshot: what its key stands for
STORAGE = ("s3.", "client.", "gcs.", "adls.", "hdfs.", "hf.", "py-io-impl")  # properties that reach files
_CATALOGS_MAX = 16
_LISTS = {
    (EntryStatus.ADDED, ManifestContent.DATA): "added_data",
    (EntryStatus.ADDED, ManifestContent.DELETES): "added_deletes",
    (EntryStatus.DELETED, ManifestContent.DATA): "removed_data",
    (EntryStatus.DELETED, ManifestContent.DELETES): "removed_deletes",
}


@lru_cache(_CATALOGS_MAX)
def open_catalog(name: str, properties: tuple[tuple[str, str], ...]) -> Catalog:
    """A catalog by its name and properties; one for the process, since it holds connections."""
    return opening.open_catalog(name, dict(properties))


def storage_in(properties: Mapping[str, str]) -> dict[str, str]:
    """Those of a catalog's properties that say how files are reached: all of it that executors need."""
    return {name: str(value) for name, value in properties.items() if name.startswith(STORAGE)}


def open_in(catalog: Catalog, identifier: tuple[str, ...]) -> Handle:
    """A table of a catalog, for commits that are made here; BadInput where the catalog is Headgate."""
    handle = headgate.open(identifier, catalog).handle
    if handle.sender is not None:
        raise BadInput(
            "the catalog is Headgate itself: take Lake(uri), so that it judges and builds", field="catalog"
        )
    return handle


class CatalogTable(Changes[Committed]):
    """A table, opened when it is first asked for. May be shared by threads."""

    def __init__(self, identifier: tuple[str, ...], open_table: Callable[[], Handle]) -> None:
        super().__init__(self._commit_one, self._load_properties)
        self.identifier = identifier
        self._open_table = open_table
        self._lock = threading.Lock()
        self._handle: Handle | None = None

    def load(self, *, all_snapshots: bool = False) -> LoadedTable:
        """The table as it is now; unless all are wanted, with the snapshots that refs point at only."""
        handle, head = self._load_head()
        parts = encode_parts(head.metadata, refs_only=not all_snapshots)
        metadata = msgspec.json.decode(b"".join(parts), type=dict[str, Any])
        return LoadedTable(metadata, head.metadata_location, storage_in(handle.road.io.properties))

    def commit(
        self,
        updates: Sequence[Mapping[str, Any]],
        *,
        requirements: Sequence[Mapping[str, Any]] = (),
        key: str | None = None,
        fold: bool = False,
        expected: Mapping[str, str | None] | None = None,
    ) -> Committed:
        """Updates as they are, plain ones and changes, all or none. `expected` are properties as they were read.

        Nobody gathers the commits of others here, so with or without `fold` an append has its own snapshot.
        """
        key = key or new_key()
        handle, mark = self._open(), _mark_of(updates, requirements)
        request = Request(
            tuple(_marked(update, mark) for update in updates),
            tuple(requirements),
            properties=expected or {},
            key=key,
        )
        done = handle.commit(request)
        if self._find_mark(key) not in (None, mark):
            raise BadInput(
                f"{KEY_FIELD}: the key was used for another request; make a new key for new work",
                field=KEY_FIELD,
            )
        return done

    def find(self, key: str) -> Committed | None:
        """The commit that landed under a key; None when no snapshot that is left tells of one."""
        _, head = self._load_head()
        landed = find_landed(key, head)
        if landed is None:
            return None
        return Committed(key, head.metadata_location, landed.snapshot_id, landed.sequence_number)

    def changes_of(self, snapshot_id: int) -> SnapshotChanges:
        """The files that a snapshot added and removed; NotFound when it has expired."""
        handle, head = self._load_head()
        snapshot = head.metadata.find_snapshot(snapshot_id)
        if snapshot is None:
            raise NotFound(f"Snapshot does not exist: {snapshot_id}; it may have expired", kind="snapshot")
        types: dict[int, Mapping[int, IcebergType]] = {}
        lists: dict[str, list[File]] = {name: [] for name in _LISTS.values()}
        for content, entry in _read_own(handle, snapshot):
            name = _LISTS.get((entry.status, content))
            if name is None or entry.snapshot_id != snapshot_id:
                continue
            spec_id = entry.file.spec_id
            if spec_id not in types:
                types[spec_id] = partition_types(head.metadata, spec_id)
            lists[name].append(encode_content_file(entry.file, types[spec_id]))
        return SnapshotChanges(
            snapshot_id=snapshot_id,
            parent_snapshot_id=snapshot.parent_snapshot_id,
            sequence_number=snapshot.sequence_number,
            action=snapshot.summary.get("operation"),
            **{name: tuple(files) for name, files in lists.items()},
        )

    def _find_mark(self, key: str) -> str | None:
        """What a key that has landed stands for, if that can be told."""
        try:
            landed = find_landed(key, self._load_head()[1])
        except HeadgateError:
            return None  # the commit has landed, whatever happened to the catalog since
        return None if landed is None else landed.summary.get(REQUEST)

    def _open(self) -> Handle:
        with self._lock:
            if self._handle is None:
                self._handle = self._open_table()
            return self._handle

    def _load_head(self) -> tuple[Handle, Head]:
        """The head of now; commits are about the table that was loaded last."""
        handle = self._open()
        handle.head = head = load_head(handle.road, handle.policy)
        return handle, head

    def _commit_one(self, update: Wire, key: str | None) -> Committed:
        return self.commit([update], key=key)

    def _load_properties(self) -> Mapping[str, str]:
        return self._open().head.metadata.envelope.properties


def _read_own(handle: Handle, snapshot: Snapshot) -> list[tuple[ManifestContent, ManifestEntry]]:
    """The entries of the manifests that a snapshot itself wrote: others hold none of its."""
    files = PendingFiles(handle.road.io)
    own = handle.manifests.answer(ReadOwn((snapshot,)), files, frozenset())
    found = []
    for manifest in own.of[0] if isinstance(own, OwnManifests) else ():
        entries: Any = handle.manifests.answer(ReadManifest(manifest), files, frozenset())
        found += [(manifest.content, entry) for entry in entries]
    return found


def _mark_of(updates: Sequence[Mapping[str, Any]], requirements: Sequence[Mapping[str, Any]]) -> str:
    """What a key stands for, in short: the same request has the same mark."""
    body = msgspec.json.encode((list(updates), list(requirements)), order="deterministic")
    return hashlib.sha256(body).hexdigest()[:32]


def _marked(update: Mapping[str, Any], mark: str) -> Mapping[str, Any]:
    """A change with the mark in the summary of its snapshot; what makes no snapshot stays as it is."""
    if update.get("action") not in ("append", "overwrite", "delete", "replace"):
        return update
    return {**update, "summary": {**(update.get("summary") or {}), REQUEST: mark}}
