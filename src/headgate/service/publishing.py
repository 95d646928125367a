"""From a candidate to the one write that publishes it, and what is left to do when that has landed. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headgate.core.commit import Candidate, Head, Swap, Target
from headgate.core.table import TableMetadata
from headgate.service.commit_records import Work, added_snapshots, event_operations, key_operation
from headgate.service.placement import metadata_location
from headgate.service.services import Services
from headgate.store import base as store
from headgate.store.base import EntryId

_DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"


class Prepared(NamedTuple):
    """A swap whose files are written."""

    operations: list[store.Operation]
    heads: list[Head]
    removing: set[Target]  # tables of which it removes snapshots
    journalled: list[store.PutFile]


def cleans_up(metadata: TableMetadata) -> bool:
    """Whether a table wants its old metadata files deleted after each commit."""
    return metadata.envelope.properties.get(_DELETE_AFTER_COMMIT, "").lower() == "true"


def name_head(services: Services, candidate: Candidate, base: Head) -> Head:
    """The head that a candidate becomes when it is swapped in, its metadata file not written yet."""
    envelope, version = candidate.metadata.envelope, base.version + 1
    location = metadata_location(
        envelope.location, envelope.properties, version=version, uuid=services.new_uuid()
    )
    return Head(base.id, version, candidate.metadata, location, base.checkpoint)


def records_of(
    services: Services, works: Sequence[Work], effect: Swap, heads: Sequence[Head]
) -> list[store.Operation]:
    """Keys, events and footprints, each kind in one run: the store writes a run at once."""
    now_ms, manifests = services.clock_ms(), services.manifests
    published = {c.target: (c, head) for c, head in zip(effect.candidates, heads, strict=True)}
    records: list[store.Operation] = [
        key_operation(works[share.member], share, published, now_ms=now_ms, is_first=effect.attempt == 1)
        for share in effect.shares
    ]
    records += event_operations(works, effect.shares, published, now_ms=now_ms)
    for candidate, head in published.values():
        for snapshot in added_snapshots(candidate.updates):
            body = None if snapshot.manifest_list is None else manifests.footprint(snapshot)
            if body is not None:
                records.append(store.PutFootprint(EntryId(head.id), snapshot.snapshot_id, body))
    for share in effect.shares:
        records += works[share.member].also
    return records


def settle_swapped(services: Services, prepared: Prepared, candidates: Sequence[Candidate]) -> None:
    """What is left to do for a swap that landed: its files are to be synced, and its heads remembered."""
    if journalled := prepared.journalled:
        size_bytes = sum([put.file.size_bytes for put in journalled])
        services.journal.settle([put.file.location for put in journalled], size_bytes=size_bytes)
    for candidate, head in zip(candidates, prepared.heads, strict=True):
        removes = candidate.target in prepared.removing
        services.heads.put_swapped(candidate.target, head, base=candidate.base, removes=removes)
        if head.checkpoint is None or head.checkpoint.metadata_file != head.metadata_location:
            services.housekeeper.checkpoint_soon(candidate.target)
