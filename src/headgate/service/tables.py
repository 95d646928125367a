"""Operations on tables: create, load, commit, transactions. Synchronous; raises our errors.

What needs a table's files (register, drop, purge, rename) is in `table_lifecycle`. A location from outside is
allowed or refused before anything is written; a name before anything is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus

import msgspec

from headgate.core.change import Action, ChangeUpdate, Overwrite, action_of
from headgate.core.create import TableDefinition, build_table
from headgate.core.flow import Candidate, Head, TableCommit, Target
from headgate.core.locations import check_properties
from headgate.core.names import check_levels, check_name
from headgate.core.table import MetadataLogEntry, TableMetadata
from headgate.core.updates import (
    AddSnapshot,
    AssertCreate,
    RemovePartitionStatistics,
    RemoveSnapshotRef,
    RemoveSnapshots,
    RemoveStatistics,
    SetPartitionStatistics,
    SetSnapshotRef,
    SetStatistics,
    TableUpdate,
)
from headgate.core.vetting import check_updates
from headgate.errors import BadInput, NotFound
from headgate.format.table_metadata import encode_file
from headgate.service.commit_records import Landed, Work, added_snapshots, landed_in
from headgate.service.commits import describe_refusal, run_commit, swap_operation
from headgate.service.idempotency import key_operations, raise_if_key_taken
from headgate.service.namespaces import load_namespace
from headgate.service.paging import PageRequest, load_page
from headgate.service.placement import default_location, metadata_location
from headgate.service.roles import Caller, Role, require
from headgate.service.services import Services
from headgate.service.table_requests import CommitTableRequest, CreateTableRequest
from headgate.store.base import EntryId, Event, Kind, PutEvent, Reason, Refused

TABLES_PER_TRANSACTION_MAX = 1000

# What changes a table's data; everything else changes what the table is, and needs more.
_DATA_UPDATES = (
    AddSnapshot,
    SetSnapshotRef,
    RemoveSnapshots,
    RemoveSnapshotRef,
    SetStatistics,
    RemoveStatistics,
    SetPartitionStatistics,
    RemovePartitionStatistics,
)


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


def check_target(namespace: Sequence[str], name: str, *, field: str) -> Target:
    """A table's name as a client gave it, checked."""
    prefix = f"{field}." if field else ""
    return check_levels(namespace, field=f"{prefix}namespace"), check_name(name, field=f"{prefix}name")


def dotted(target: Target) -> str:
    """A name as error messages show it."""
    return ".".join((*target[0], target[1]))


def load_table(services: Services, target: Target) -> Head:
    """The head of a table, or NotFound; a name that no table can have is one that does not exist."""
    (head,) = services.heads.load((target,)) if may_exist(target) else (None,)
    if head is None:
        raise NotFound(f"Table does not exist: {dotted(target)}", kind="table")
    return head


def ensure_file(services: Services, head: Head) -> None:
    """Have the metadata file of a head that is handed out: engines open it for their metadata tables.

    One that is due is written now. One that was written and is gone is reported, as a reader of it would find.
    """
    if head.checkpoint is None or head.checkpoint.metadata_file != head.metadata_location:
        services.housekeeper.checkpoint(head)
    elif not services.files.exists(head.metadata_location):
        raise NotFound(f"Failed to open input stream for file: {head.metadata_location}", kind="file")


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


def commit_table(
    services: Services, caller: Caller, target: Target, request: CommitTableRequest
) -> tuple[Head, Landed | None]:
    """One table's commit: the head, and what was published if anything was."""
    if request.identifier is not None:
        named = (tuple(request.identifier.namespace), request.identifier.name)
        if named != target:
            raise BadInput(
                f"the body is for {dotted(named)}, the path for {dotted(target)}", field="identifier"
            )
    if not may_exist(target):
        if any(isinstance(requirement, AssertCreate) for requirement in request.requirements):
            check_target(*target, field="")  # raises, and says what is wrong with the name
        raise NotFound(f"Table does not exist: {dotted(target)}", kind="table")
    commit = _vet(services, caller, target, request)
    work = Work(
        caller=caller,
        key=caller.key or services.new_uuid(),
        commits=(commit,),
        replay={"kind": "table", "role": _role_for(request.updates).value},
        status=HTTPStatus.OK,
        event="commit-table",
    )
    verdict = run_commit(services, work)
    head = verdict.heads[0]
    if head is None:  # committed, and dropped by somebody since
        raise NotFound(f"Table does not exist: {dotted(target)}", kind="table")
    if verdict.replayed:  # a swap of ours landed unheard, and the head may have moved on
        stored = services.store.load_key(caller.principal, work.key)
        return head, None if stored is None else landed_in(msgspec.json.decode(stored.body))
    if not verdict.candidates:
        return head, None
    added = added_snapshots(verdict.candidates[0])
    return head, Landed(head.metadata_location, tuple(snapshot.snapshot_id for snapshot in added))


def commit_transaction(services: Services, caller: Caller, changes: Sequence[CommitTableRequest]) -> None:
    """Several tables' plain commits: every one is judged before any has an effect, and all land or none."""
    if not changes:
        raise BadInput("a transaction needs at least one table change", field="table-changes")
    if len(changes) > TABLES_PER_TRANSACTION_MAX:
        raise BadInput(
            f"a transaction takes at most {TABLES_PER_TRANSACTION_MAX} tables, not {len(changes)}",
            field="table-changes",
        )
    commits: dict[Target, TableCommit] = {}
    role = Role.INSERT
    for i, change in enumerate(changes):
        field = f"table-changes[{i}].identifier"
        if change.identifier is None:
            raise BadInput("a table change needs an identifier", field=field)
        target = check_target(change.identifier.namespace, change.identifier.name, field=field)
        if target in commits:
            raise BadInput(f"the table is there twice: {dotted(target)}", field=field)
        vetted = _vet(services, caller, target, change)
        commits[target] = replace(vetted, field=f"table-changes[{i}]")
        role = max(role, _role_for(change.updates), key=tuple(Role).index)
    run_commit(
        services,
        Work(
            caller=caller,
            key=caller.key or services.new_uuid(),
            commits=tuple(commits.values()),
            replay={"kind": "none", "role": role.value},
            status=HTTPStatus.NO_CONTENT,
            event="commit-table",
        ),
    )


def _role_for(updates: Sequence[TableUpdate | ChangeUpdate]) -> Role:
    """By intent: only what we build ourselves can be known to add files and nothing else."""
    roles = {_role_for_one(update) for update in updates}
    return max(roles, key=tuple(Role).index, default=Role.INSERT)


def _role_for_one(update: TableUpdate | ChangeUpdate) -> Role:
    if isinstance(update, ChangeUpdate):
        return Role.INSERT if action_of(update) is Action.APPEND and not update.create_branch else Role.MODIFY
    return Role.MODIFY if isinstance(update, _DATA_UPDATES) else Role.ADMIN


def _vet(services: Services, caller: Caller, target: Target, request: CommitTableRequest) -> TableCommit:
    """What can be refused without a look at the table is refused here, before anything is written."""
    require(caller, _role_for(request.updates))
    reads = None
    if request.commit_validations:
        reads = Overwrite(
            commit_validations=request.commit_validations,
            base_snapshot_id=request.base_snapshot_id,
            branch=request.branch,
        )
    commit = TableCommit(target, request.requirements, request.updates, reads)
    if commit.creates() and len(request.requirements) > 1:
        raise BadInput("Invalid create requirements: assert-create stands alone", field="requirements")
    for manifest_list in check_updates(request.updates, services.locations):
        # What the service did not build, it checks: a snapshot without its manifest list is no snapshot.
        if not services.files.exists(manifest_list):
            raise BadInput(
                f"the snapshot's manifest list does not exist: {manifest_list}",
                field="updates.snapshot.manifest-list",
            )
    if commit.creates():
        load_namespace(services, target[0])
    return commit
