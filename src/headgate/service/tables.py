"""Operations on tables: create, load, commit, transactions. Synchronous; raises our errors.

What needs a table's files (register, drop, purge, rename) is in `table_lifecycle`. A location from outside is
allowed or refused before anything is written; a name before anything is looked up.
"""

from __future__ import annotations

import logging

import msgspec

from headgate.core.commit import Candidate, Committed, Head, Target
from headgate.core.create import TableDefinition, build_table
from headgate.core.locations import check_properties
from headgate.core.own_properties import check_own_properties
from headgate.core.table import MetadataLogEntry, TableMetadata
from headgate.errors import BadInput, CommitUnknown, HeadgateError, NotFound, Overloaded, StorageFailed
from headgate.format.table_metadata import encode_file
from headgate.service.commit_records import Landed, Work, added_snapshots, landed_in
from headgate.service.commit_requests import check_target, dotted
from headgate.service.idempotency import key_operations, raise_if_key_taken, unread
from headgate.service.logs import log
from headgate.service.namespaces import load_namespace
from headgate.service.paging import PageRequest, load_page
from headgate.service.placement import default_location, metadata_location
from headgate.service.roles import Caller, Role
from headgate.service.services import Services
from headgate.service.swaps import describe_refusal, swap_operation
from headgate.service.table_requests import CreateTableRequest
from headgate.store.base import EntryId, Event, Kind, PutEvent, Reason, Refused


def list_tables(
    services: Services, levels: tuple[str, ...], page: PageRequest
) -> tuple[list[str], str | None]:
    """Names of the tables of a namespace."""
    namespace = load_namespace(services, levels)
    return load_page(
        page,
        lambda after, limit: services.store.list_entries(
            namespace.levels, Kind.TABLE, after=after, limit=limit
        ),
        name_of=lambda name: name,
        listing=listing_of(levels),
    )


def listing_of(levels: tuple[str, ...]) -> str:
    """What a page token of this listing belongs to."""
    return "tables:" + "\x1f".join(levels)


def load_table(services: Services, target: Target) -> Head:
    """The head of a table, or NotFound; a name that no table can have is one that does not exist."""
    (head,) = services.heads.load((target,)) if may_exist(target) else (None,)
    if head is None:
        raise NotFound(f"Table does not exist: {dotted(target)}", kind="table")
    return head


def load_landed(services: Services, id_: str, *, key: str | None) -> Head:
    """The table of a commit that landed, whatever its name is now. Never NotFound: a client takes that for a verdict."""
    header = services.store.load_header_by_id(EntryId(id_))
    if header is not None and header.kind is Kind.TABLE:
        (head,) = services.heads.load(((header.namespace, header.name),))
        if head is not None and head.id == id_:
            return head
    raise CommitUnknown("the commit landed; its table has been dropped or renamed since", key=key)


def ensure_file(services: Services, head: Head) -> None:
    """Have the metadata file of a head that is handed out: engines open it for their metadata tables.

    One that is due is written now. One that was written and is gone is reported, as a reader of it would find.
    """
    if head.checkpoint is None or head.checkpoint.metadata_file != head.metadata_location:
        services.housekeeper.checkpoint(head)
    elif not services.files.exists(head.metadata_location):
        raise NotFound(f"Failed to open input stream for file: {head.metadata_location}", kind="file")


def write_late(services: Services) -> None:
    """Have the files of a commit that landed stand, if that can be: it is told of whatever becomes of them now."""
    try:
        services.journal.write_late()
    except HeadgateError as error:
        log(logging.WARNING, "late files were not written; will try again", error=str(error))


def may_exist(target: Target) -> bool:
    """Whether a table could have this name. One that could not is never asked of the store."""
    try:
        check_target(*target, field="")
    except BadInput:
        return False
    return True


def build_new_table(services: Services, target: Target, wanted: CreateTableRequest) -> TableMetadata:
    """Metadata of a table to be; nothing is written."""
    namespace = load_namespace(services, target[0])
    properties = wanted.properties or {}
    check_properties(properties, services.locations)
    check_own_properties(properties, field="properties")
    uuid = services.new_uuid()
    if wanted.location is not None:
        services.locations.allow(wanted.location, field="location")
        location = wanted.location.rstrip("/")  # in the client's spelling: engines compare strings
    else:
        location = default_location(services.locations.roots[0], *target, uuid, namespace.properties)
    definition = TableDefinition(
        schema=wanted.schema,
        location=location,
        uuid=uuid,
        spec=wanted.partition_spec,
        order=wanted.write_order,
        properties=properties,
    )
    return build_table(definition, now_ms=services.clock_ms())


def stage_table(services: Services, target: Target, wanted: CreateTableRequest) -> TableMetadata:
    """A table that its client will create later, by a commit that asserts it is not there."""
    metadata = build_new_table(services, target, wanted)
    _refuse_taken(services, target)
    return metadata


def _refuse_taken(services: Services, target: Target) -> None:
    header = services.store.load_header(*target)
    if header is not None:
        raise describe_refusal(Refused(0, Reason.NAME_TAKEN, header.kind), target)


def create_table(services: Services, caller: Caller, target: Target, wanted: CreateTableRequest) -> Head:
    """A new table without snapshots."""
    metadata = build_new_table(services, target, wanted)
    _refuse_taken(services, target)  # before the file is written; the store decides
    return publish_new(services, caller, target, metadata, event="create-table")


def publish_new(
    services: Services,
    caller: Caller,
    target: Target,
    metadata: TableMetadata,
    *,
    event: str,
    written_at: str | None = None,
) -> Head:
    """Put a table that nobody has seen into the catalog; `written_at` is its metadata file if there is one."""
    envelope = metadata.envelope
    location = written_at or metadata_location(
        envelope.location, envelope.properties, version=1, uuid=services.new_uuid()
    )
    if written_at is None:
        services.files.write_new(location, encode_file(metadata))
    checkpoint = MetadataLogEntry(metadata_file=location, timestamp_ms=envelope.last_updated_ms)
    head = Head(services.new_uuid(), 1, metadata, location, checkpoint)
    refused = services.store.write(
        (
            swap_operation(Candidate(target, None, metadata), head, checkpointed=True),
            *key_operations(services, caller, {"kind": "table", "id": head.id}, role=Role.ADMIN),
            table_event(
                services,
                caller,
                target,
                head.id,
                event,
                {"table-uuid": envelope.table_uuid, "metadata-location": location},
            ),
        )
    )
    if refused is not None:
        raise_if_key_taken(refused)
        # Only a load may delete: the file goes when the store shows that our entry is not there.
        if written_at is None and services.store.load_header_by_id(EntryId(head.id)) is None:
            services.files.delete((location,))
        raise describe_refusal(refused, target)
    services.heads.put(target, head, epoch=0)
    return head


def table_event(
    services: Services, caller: Caller, target: Target, id_: str, kind: str, payload: dict[str, object]
) -> PutEvent:
    """A row of the outbox about one table."""
    return PutEvent(
        Event(
            kind=kind,
            namespace=target[0],
            name=target[1],
            entry_id=EntryId(id_),
            principal=caller.principal,
            key=caller.key,
            at_ms=services.clock_ms(),
            payload=msgspec.json.encode(payload),
        )
    )


def describe_commit(services: Services, work: Work, verdict: Committed) -> tuple[Head, Landed | None]:
    """What a commit that landed is answered by: the head, and what was published if anything was."""
    head = verdict.heads[0]
    if head is None or verdict.replayed:  # a swap of ours landed unheard, and the head may have moved on
        try:
            record = services.store.load_key(work.caller.principal, work.key)
            stored = {} if record is None else msgspec.json.decode(record.body, type=dict[str, object])
            if head is None or stored.get("id", head.id) != head.id:
                head = load_landed(services, str(stored.get("id", "")), key=work.key)
        except (Overloaded, StorageFailed) as failed:
            raise unread(failed, work.key) from failed
        return head, landed_in(stored)
    if not verdict.candidates:
        return head, None
    added = added_snapshots(verdict.candidates[0].updates)
    return head, Landed(head.metadata_location, tuple(snapshot.snapshot_id for snapshot in added))
