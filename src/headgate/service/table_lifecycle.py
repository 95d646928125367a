"""Operations on a table as a whole: register, unregister, rename, drop, purge.

Every one goes through the version predicate of the table's row. Files are deleted only by a purge, after the
drop is durable, and only below the table's own folders.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from headgate.core.commit import Head, Target
from headgate.core.encoded_log import EncodedLog, LogDelta
from headgate.core.locations import canonical
from headgate.core.table import TableMetadata
from headgate.core.value import LONG_MAX
from headgate.core.vetting import check_metadata, statistics_paths
from headgate.errors import AlreadyExists, BadInput, CommitRefused, HeadgateError, NotFound
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.format.table_metadata import METADATA_BYTES_MAX, decode_metadata, encode_envelope
from headgate.service.commit_requests import dotted
from headgate.service.idempotency import key_operations, raise_if_key_taken
from headgate.service.logs import log
from headgate.service.namespaces import load_namespace
from headgate.service.own_files import OwnFiles
from headgate.service.placement import folder_of
from headgate.service.roles import Caller, Role
from headgate.service.services import Services
from headgate.service.swaps import describe_refusal
from headgate.service.table_requests import RegisterTableRequest
from headgate.service.tables import load_landed, load_table, may_exist, publish_new, table_event
from headgate.store.base import (
    DropEntry,
    EntryId,
    Kind,
    Reason,
    Refused,
    RenameEntry,
    Stream,
    SwapEntry,
)

_ATTEMPTS_MAX = 20
_MANIFEST_BYTES_MAX = 256 * 1024 * 1024
_DOOMED_MAX = 1_000_000  # of all tables; what is beyond stays, and is forgotten when its time comes


def register_table(services: Services, caller: Caller, target: Target, wanted: RegisterTableRequest) -> Head:
    """Put a table whose metadata file exists into the catalog, or over the one that is there."""
    location = services.locations.allow(wanted.metadata_location, field="metadata-location")
    load_namespace(services, target[0])
    try:
        data = services.files.read(location, limit_bytes=METADATA_BYTES_MAX)
    except NotFound as error:
        raise NotFound(
            f"Failed to open input stream for file: {wanted.metadata_location}", kind="file"
        ) from error
    except BadInput as error:  # a symlink, a folder, or a file that is too large
        raise type(error)(error.message, field="metadata-location") from error
    metadata = decode_metadata(data, location=location, uuid=services.new_uuid())
    check_metadata(metadata, services.locations)
    standing = services.store.load_header(*target)
    if not wanted.overwrite or standing is None or standing.kind is not Kind.TABLE:
        return publish_new(services, caller, target, metadata, event="register-table", written_at=location)
    return _replace_table(services, caller, target, metadata, location)


def _replace_table(
    services: Services, caller: Caller, target: Target, metadata: TableMetadata, location: str
) -> Head:
    for _ in range(_ATTEMPTS_MAX):
        old = load_table(services, target)
        shifted = TableMetadata(
            metadata.envelope,
            _after(metadata.snapshots, old.metadata.snapshots, keyed=True),
            _after(metadata.history, old.metadata.history, keyed=False),
        )
        swap = SwapEntry(
            id=EntryId(old.id),
            expected_version=old.version,
            uuid=metadata.envelope.table_uuid,
            location=canonical(metadata.envelope.location, field="location"),
            metadata_location=location,
            checkpointed=True,
            envelope=encode_envelope(metadata.envelope),
            logs={
                Stream.SNAPSHOTS: _replacement(old.metadata.snapshots, shifted.snapshots),
                Stream.HISTORY: _replacement(old.metadata.history, shifted.history),
            },
        )
        refused = services.store.write(
            (
                swap,
                *key_operations(services, caller, {"kind": "table", "id": old.id}, role=Role.ADMIN),
                table_event(
                    services,
                    caller,
                    target,
                    old.id,
                    "register-table",
                    {"table-uuid": metadata.envelope.table_uuid, "metadata-location": location},
                ),
            )
        )
        if refused is None:
            head = load_landed(services, old.id, key=caller.key)  # a commit may have come after it
            services.journal.stand(folder_of(head.metadata))
            return head
        raise_if_key_taken(refused)
        _raise_unless_moved(refused, target)
    raise CommitRefused(f"{dotted(target)} keeps changing; try again")


def _after(log_: EncodedLog, old: EncodedLog, *, keyed: bool) -> EncodedLog:
    """The same items at positions behind those of the log they replace; without keys, the position is the key."""
    moved = EncodedLog(next_position=old.next_position)
    for item in log_:
        moved = moved.append(item.body, key=item.key if keyed else None, tag=item.tag)
    return moved


def _replacement(old: EncodedLog, new: EncodedLog) -> LogDelta:
    return LogDelta(tuple(item.position for item in old), tuple(new), new.next_position)


def rename_table(services: Services, caller: Caller, source: Target, destination: Target) -> None:
    """Give a table another name, in this or another namespace."""
    for _ in range(_ATTEMPTS_MAX):
        header = services.store.load_header(*source) if may_exist(source) else None
        if header is None or header.kind is not Kind.TABLE:
            raise NotFound(f"Table does not exist: {dotted(source)}", kind="table")
        refused = services.store.write(
            (
                RenameEntry(header.id, header.version, destination[0], destination[1]),
                *key_operations(services, caller, {"kind": "none"}, role=Role.ADMIN),
                table_event(
                    services,
                    caller,
                    destination,
                    header.id,
                    "rename-table",
                    {"table-uuid": header.uuid, "source": {"namespace": source[0], "name": source[1]}},
                ),
            )
        )
        if refused is None:
            services.heads.forget(source)
            # A checkpoint that was due under the old name finds nothing there.
            services.housekeeper.checkpoint_soon(destination)
            return
        raise_if_key_taken(refused)
        if refused.reason is Reason.NAME_TAKEN:
            what = "View" if refused.kind is Kind.VIEW else "Table"
            raise AlreadyExists(
                f"Cannot rename {dotted(source)} to {dotted(destination)}. {what} already exists",
                kind=what.lower(),
            )
        _raise_unless_moved(refused, destination)
    raise CommitRefused(f"{dotted(source)} keeps changing; try again")


def drop_table(services: Services, caller: Caller, target: Target, *, purge: bool) -> None:
    """Take a table out of the catalog, with its files if the client asks for that."""
    kind = "purge-table" if purge else "drop-table"
    head = _take_out(services, caller, target, kind=kind, replay={"kind": "none"})
    if purge:
        services.background.submit(purge_files, services, head)


def unregister_table(services: Services, caller: Caller, target: Target) -> Head:
    """Take a table out of the catalog so that another catalog can register it."""
    return _take_out(services, caller, target, kind="unregister-table", replay={"kind": "unregistered"})


def _take_out(
    services: Services, caller: Caller, target: Target, *, kind: str, replay: dict[str, object]
) -> Head:
    for _ in range(_ATTEMPTS_MAX):
        head = load_table(services, target)
        if kind != "purge-table":
            services.housekeeper.checkpoint(
                head
            )  # the file must hold every commit, so that the table can come back
        elif head.metadata.envelope.properties.get("gc.enabled", "true").lower() == "false":
            raise BadInput(
                "Cannot purge table: GC is disabled (deleting files may corrupt other tables)",
                field="purgeRequested",
            )
        about: dict[str, object] = {
            "table-uuid": head.metadata.envelope.table_uuid,
            "metadata-location": head.metadata_location,
        }
        refused = services.store.write(
            (
                DropEntry(EntryId(head.id), head.version),
                *key_operations(services, caller, {**replay, **about}, role=Role.ADMIN),
                table_event(services, caller, target, head.id, kind, about),
            )
        )
        if refused is None:
            services.heads.forget(target)
            return head
        raise_if_key_taken(refused)
        _raise_unless_moved(refused, target)
    raise CommitRefused(f"{dotted(target)} keeps changing; try again")


def _raise_unless_moved(refused: Refused, target: Target) -> None:
    if refused.reason not in (Reason.ENTRY_CHANGED, Reason.ENTRY_MISSING):
        raise describe_refusal(refused, target)


def purge_files(services: Services, head: Head) -> None:
    """Delete what a dropped table reached: data first, then what names it, so that a crash leaves a trail."""
    data: set[str] = set()
    manifests: set[str] = set()
    lists: set[str] = set()
    for snapshot in head.metadata.iter_snapshots():
        if snapshot.manifest_list is None:
            manifests.update(snapshot.manifests or ())
            continue
        lists.add(snapshot.manifest_list)
        try:
            for path in _reached(services, snapshot.manifest_list, manifests):
                data.add(path)
        except HeadgateError as error:
            log(
                logging.WARNING,
                "purge could not read a manifest",
                file=snapshot.manifest_list,
                error=str(error),
            )
    envelope = head.metadata.envelope
    metadata = {entry.metadata_file for entry in envelope.metadata_log} | {head.metadata_location}
    if head.checkpoint is not None:
        metadata.add(head.checkpoint.metadata_file)
    deleted = 0
    try:
        doomed = _doomed_of(services, head)
        own = OwnFiles(services, envelope, entry_id=head.id, exclusive=False)
        for files in (data, statistics_paths(head.metadata), manifests, lists, metadata, doomed):
            deleted += own.delete(files)
        services.store.drop_doomed(sorted(doomed))
    except HeadgateError as error:
        log(logging.WARNING, "purge stopped", location=envelope.location, files=deleted, error=str(error))
        return
    log(logging.INFO, "purged", location=envelope.location, files=deleted)


def _doomed_of(services: Services, head: Head) -> set[str]:
    """What snapshots that expired before the purge left behind, still in its grace time."""
    rows = services.store.read_doomed(now_ms=LONG_MAX, limit=_DOOMED_MAX)
    return {file.location for file in rows if file.entry_id == head.id}


def _reached(services: Services, manifest_list: str, seen: set[str]) -> Iterator[str]:
    location = services.locations.allow_file(manifest_list, field="manifest-list")
    listed = decode_manifest_list(
        services.files.read(location, limit_bytes=_MANIFEST_BYTES_MAX), location=location
    )
    for manifest in listed:
        if manifest.manifest_path in seen:
            continue
        seen.add(manifest.manifest_path)
        location = services.locations.allow_file(manifest.manifest_path, field="manifest")
        data = services.files.read(location, limit_bytes=_MANIFEST_BYTES_MAX)
        for entry in decode_manifest(data, manifest, location=location):
            yield entry.file.file_path
