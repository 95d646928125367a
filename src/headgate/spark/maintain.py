"""Upkeep of a table: snapshots that may go, and files that nobody reaches. Deletes only what a load has proved unused.

What is reachable is judged in `library.unreached`; a file that no snapshot names may be one that a writer is about to
commit, so only old ones are orphans.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from headgate.core.expire import Expiry, Terms, build_expiry, find_expired, read_terms
from headgate.core.reach import find_left_behind
from headgate.core.table import TableMetadata
from headgate.errors import BadInput
from headgate.format.table_metadata import decode_metadata
from headgate.library import orphans
from headgate.library.orphans import Orphans
from headgate.library.unreached import Reader, Seen, delete_unreached
from headgate.spark.lake import LakeTable

ORPHAN_AGE = timedelta(days=3)
_ROUNDS_MAX = 100


@dataclass(frozen=True)
class Expired:
    """Snapshots that went, and files that went with them."""

    snapshot_ids: tuple[int, ...]
    files: tuple[str, ...]


def expire(
    table: LakeTable,
    *,
    older_than: timedelta | None = None,
    keep: int | None = None,
    delete_files: bool = True,
    now_ms: int | None = None,
) -> Expired:
    """Let snapshots of a table go that are older than a time, but the last `keep` of every branch.

    What is not said is taken from the table's own properties. Files that only these snapshots reached are deleted.
    """
    if keep is not None and keep < 1:
        raise BadInput(f"keep: expected at least 1, got {keep}", field="keep")
    if older_than is not None and older_than < timedelta(0):
        raise BadInput(f"older_than: expected a time in the past, got {older_than}", field="older_than")
    now = int(time.time() * 1000) if now_ms is None else now_ms
    ids: list[int] = []
    files: list[str] = []
    for _ in range(_ROUNDS_MAX):
        seen = _see(table)
        seen.check_gc()
        metadata = seen.metadata
        found = find_expired(metadata, _terms(metadata, older_than, keep), now_ms=now)
        if found is None:
            break
        reader = Reader(seen.filesystem)
        left = reader.run(find_left_behind(metadata, frozenset(found.snapshot_ids)))
        _commit(table, metadata, found)
        ids += found.snapshot_ids
        if delete_files:
            done = delete_unreached(lambda: _see(table), left.files, reader)
            done.check()
            files += done.files
    return Expired(tuple(ids), tuple(files))


def remove_orphans(
    table: LakeTable,
    *,
    older_than: timedelta = ORPHAN_AGE,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Orphans:
    """Delete files below the table's location that nothing reaches and that are older than a time: a day at least."""
    return orphans.remove_orphans(lambda: _see(table), older_than=older_than, dry_run=dry_run, now=now)


# --- what goes ----------------------------------------------------------------------------------------------


def _terms(metadata: TableMetadata, older_than: timedelta | None, keep: int | None) -> Terms:
    terms = read_terms(metadata.envelope.properties)
    if older_than is not None:
        age_ms = int(older_than.total_seconds() * 1000)
        terms = Terms(age_ms, terms.snapshots_min, terms.ref_age_max_ms, terms.snapshots_max)
    if keep is not None:
        terms = Terms(terms.snapshot_age_max_ms, keep, terms.ref_age_max_ms, terms.snapshots_max)
    return terms


def _commit(table: LakeTable, metadata: TableMetadata, expiry: Expiry) -> None:
    requirements, updates = build_expiry(metadata, expiry)
    table.client.commit(
        [msgspec.to_builtins(update) for update in updates],
        requirements=[msgspec.to_builtins(requirement) for requirement in requirements],
    )


def _see(table: LakeTable) -> Seen:
    """The table as it is now, with all its snapshots."""
    state = table.load(all_snapshots=True)
    location, uuid = state.loaded.metadata_location, str(state.raw["table-uuid"])
    metadata = decode_metadata(msgspec.json.encode(state.raw), location=location, uuid=uuid)
    return Seen(table.name, metadata, location, state.filesystem)
