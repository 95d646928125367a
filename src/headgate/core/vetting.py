"""Every location that a plain commit carries, allowed or refused before anything is written. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.core.change import ChangeUpdate
from headgate.core.locations import LocationPolicy, check_properties
from headgate.core.own_properties import check_own_properties
from headgate.core.table import Snapshot, TableMetadata
from headgate.core.updates import (
    AddSnapshot,
    SetLocation,
    SetPartitionStatistics,
    SetProperties,
    SetStatistics,
    TableUpdate,
)


def check_updates(updates: Iterable[TableUpdate | ChangeUpdate], policy: LocationPolicy) -> tuple[str, ...]:
    """Refuse a location outside the allowed roots; returns the manifest lists, which must exist."""
    manifest_lists: list[str] = []
    for update in updates:
        match update:
            case SetLocation():
                policy.allow(update.location, field="updates.location")
            case SetProperties():
                check_properties(update.updates, policy)
                check_own_properties(update.updates, field="updates.updates")
            case AddSnapshot():
                manifest_lists.extend(_check_snapshot(update.snapshot, policy, field="updates.snapshot"))
            case SetStatistics():
                policy.allow_file(
                    update.statistics.statistics_path, field="updates.statistics.statistics-path"
                )
            case SetPartitionStatistics():
                path = update.partition_statistics.statistics_path
                policy.allow_file(path, field="updates.partition-statistics.statistics-path")
            case _:
                pass  # carries no location
    return tuple(manifest_lists)


def check_metadata(metadata: TableMetadata, policy: LocationPolicy) -> None:
    """The same for a whole metadata file that a client wants registered."""
    envelope = metadata.envelope
    policy.allow(envelope.location, field="metadata.location")
    check_properties(envelope.properties, policy)
    for entry in envelope.metadata_log:
        policy.allow_file(entry.metadata_file, field="metadata.metadata-log")
    for snapshot in metadata.iter_snapshots():
        _check_snapshot(snapshot, policy, field="metadata.snapshots")
    for path in statistics_paths(metadata):
        policy.allow_file(path, field="metadata.statistics")


def statistics_paths(metadata: TableMetadata) -> set[str]:
    """The statistics files of all snapshots."""
    envelope = metadata.envelope
    return {s.statistics_path for s in envelope.statistics} | {
        s.statistics_path for s in envelope.partition_statistics
    }


def _check_snapshot(snapshot: Snapshot, policy: LocationPolicy, *, field: str) -> list[str]:
    for manifest in snapshot.manifests or ():
        policy.allow_file(manifest, field=f"{field}.manifests")
    if snapshot.manifest_list is None:
        return []
    return [policy.allow_file(snapshot.manifest_list, field=f"{field}.manifest-list")]
