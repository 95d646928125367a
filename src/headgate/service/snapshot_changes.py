"""What one snapshot added and removed, file by file, read from its manifests: also for commits of other engines.

In the order of the manifest list and of each manifest, which never change, so a page has a stable place. Only
manifests that the snapshot itself wrote are read: others hold no entry of its.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.types import IcebergType

from headgate.core.commit import Head
from headgate.core.manifest import EntryStatus, ManifestContent
from headgate.core.table import Snapshot
from headgate.errors import BadInput, NotFound, Unsupported
from headgate.format.content_files import encode_content_file, partition_types
from headgate.service.paging import decode_token, encode_token
from headgate.service.services import Services

_LISTS = {
    (EntryStatus.ADDED, ManifestContent.DATA): "added-data-files",
    (EntryStatus.ADDED, ManifestContent.DELETES): "added-delete-files",
    (EntryStatus.DELETED, ManifestContent.DATA): "removed-data-files",
    (EntryStatus.DELETED, ManifestContent.DELETES): "removed-delete-files",
}


@dataclass(frozen=True, slots=True)
class Place:
    """The next entry to look at: a manifest's number in the list, and the entry's in the manifest."""

    manifest: int = 0
    entry: int = 0


def find_snapshot(head: Head, text: str) -> Snapshot:
    """The snapshot of an id in a path."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise BadInput(f"snapshot-id: expected a number, got {text[:50]!r}", field="snapshot-id")
    snapshot = head.metadata.find_snapshot(int(text))
    if snapshot is None:
        raise NotFound(f"Snapshot does not exist: {text}; it may have expired", kind="snapshot")
    return snapshot


def read_changes(
    services: Services, head: Head, snapshot: Snapshot, *, token: str | None, size: int
) -> dict[str, object]:
    """One page of the files that a snapshot added and removed."""
    if snapshot.manifest_list is None:
        raise Unsupported(f"snapshot {snapshot.snapshot_id} has no manifest list")
    listing = f"changes:{head.id}:{snapshot.snapshot_id}"
    place = _decode(token, listing)
    lists: dict[str, list[dict[str, object]]] = {name: [] for name in _LISTS.values()}
    types: dict[int, Mapping[int, IcebergType]] = {}
    count, after = 0, None
    for number, manifest in enumerate(services.manifests.read_list(snapshot.manifest_list)):
        if number < place.manifest or manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        entries = services.manifests.read_entries(manifest)
        for at in range(place.entry if number == place.manifest else 0, len(entries)):
            entry = entries[at]
            name = _LISTS.get((entry.status, manifest.content))
            if name is None or entry.snapshot_id != snapshot.snapshot_id:
                continue
            if count == size:
                after = Place(number, at)
                break
            if entry.file.spec_id not in types:
                types[entry.file.spec_id] = partition_types(head.metadata, entry.file.spec_id)
            lists[name].append(encode_content_file(entry.file, types[entry.file.spec_id]))
            count += 1
        if after is not None:
            break
    return {
        "snapshot-id": snapshot.snapshot_id,
        "parent-snapshot-id": snapshot.parent_snapshot_id,
        "sequence-number": snapshot.sequence_number,
        "timestamp-ms": snapshot.timestamp_ms,
        "action": snapshot.summary.get("operation"),
        **lists,
        "next-page-token": None
        if after is None
        else encode_token(f"{after.manifest}:{after.entry}", listing),
    }


def _decode(token: str | None, listing: str) -> Place:
    if not token:
        return Place()
    manifest, _, entry = decode_token(token, listing, field="cursor").partition(":")
    return Place(int(manifest), int(entry))
