"""Deleting what expired snapshots left behind, when its grace time is over.

Only a load may delete: a file goes when the head of this moment has been shown not to use it (`core.reach.Proof`),
by all its snapshots and under every spelling, and when it is the table's own (`own_files`). What turns out to be in
use is forgotten; the snapshot that uses it will name it again. What belongs to a table that is gone is forgotten
too: the table may come back from its metadata file. A purge takes such files with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from headgate.core.commit import Head
from headgate.core.expire import GC_ENABLED
from headgate.core.reach import Proof
from headgate.errors import HeadgateError, Retry, StorageFailed
from headgate.service.cold_reads import ColdReader
from headgate.service.logs import log
from headgate.service.own_files import OwnFiles
from headgate.service.services import Services
from headgate.store.base import DoomedFile, EntryId, Kind, PutDoomed

_FILES_MAX = 10_000  # of one sweep
_POSTPONED_MS = 3_600_000
_RENAMES_MAX = 5


def sweep(services: Services, reader: ColdReader) -> int:
    """Delete files whose grace time is over; returns how many were there."""
    due = services.store.read_doomed(now_ms=services.clock_ms(), limit=_FILES_MAX)
    deleted = 0
    for id_ in dict.fromkeys(file.entry_id for file in due):
        files = [file for file in due if file.entry_id == id_]
        try:
            deleted += _sweep_table(services, reader, id_, files)
        except HeadgateError as error:
            log(logging.WARNING, "expired files were not deleted", entry=id_, error=str(error))
            if error.retry is not Retry.LATER:
                # A manifest is broken, or another engine deleted it under our eyes. Others need not wait for it.
                _postpone(services, files)
    return deleted


def _sweep_table(services: Services, reader: ColdReader, id_: EntryId, files: list[DoomedFile]) -> int:
    head = _find_head(services, id_)
    if head is None or head.metadata.envelope.properties.get(GC_ENABLED, "true").lower() == "false":
        _forget(services, files)
        return 0
    proof = Proof(file.location for file in files)
    reader.run(proof.look(head.metadata))
    # The look may have taken minutes. A second one sees what was committed meanwhile, and takes moments.
    latest = _find_head(services, id_)
    if latest is None:
        _forget(services, files)
        return 0
    reader.run(proof.look(latest.metadata))
    unused = proof.unreached() - {latest.metadata_location}
    if latest.checkpoint is not None:
        unused -= {latest.checkpoint.metadata_file}
    envelope = latest.metadata.envelope
    deleted = OwnFiles(services, envelope, entry_id=id_, exclusive=True).delete(unused)
    services.metrics.expired_files.inc(deleted)
    log(
        logging.INFO,
        "deleted expired files",
        location=envelope.location,
        files=deleted,
        in_use=len(files) - len(unused),
    )
    _forget(services, files)
    return deleted


def _find_head(services: Services, id_: EntryId) -> Head | None:
    """The table's head under whatever name it has now, or None when it is gone."""
    for _ in range(_RENAMES_MAX):
        header = services.store.load_header_by_id(id_)
        if header is None or header.kind is not Kind.TABLE:
            return None
        (head,) = services.heads.load(((header.namespace, header.name),))
        if head is not None and head.id == id_:
            return head
    raise StorageFailed(f"the table of entry {id_} is renamed again and again")


def _forget(services: Services, files: Iterable[DoomedFile]) -> None:
    services.store.drop_doomed([file.location for file in files])


def _postpone(services: Services, files: list[DoomedFile]) -> None:
    due_at_ms = services.clock_ms() + _POSTPONED_MS
    _forget(services, files)
    services.store.write((PutDoomed(tuple(replace(file, due_at_ms=due_at_ms) for file in files)),))
