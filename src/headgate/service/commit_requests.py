"""From the body of a commit to work that can be run: names, roles and locations, and what the head would refuse at once.

Nothing is written here, and nothing of a table's files is read. What passes may still be refused when it is run: the
head moves on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from http import HTTPStatus

from headgate.core.apply import Applying, find_format_version
from headgate.core.change import Action, Append, ChangeUpdate, Overwrite, action_of
from headgate.core.commit import Head, TableCommit, Target
from headgate.core.group import CHANGES_MAX
from headgate.core.intake import take_in
from headgate.core.names import check_levels, check_name
from headgate.core.plan import find_head
from headgate.core.rebase import is_landed, is_rebasable
from headgate.core.requirements import find_failed
from headgate.core.stream_progress import is_progress
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
from headgate.errors import BadInput, HeadgateError, NotFound
from headgate.service.commit_records import Work
from headgate.service.evidence import name_other
from headgate.service.namespaces import load_namespace
from headgate.service.roles import Caller, Role, includes, require
from headgate.service.services import Services
from headgate.service.table_requests import CommitTableRequest

TABLES_PER_TRANSACTION_MAX = 1000
EVENT = "commit-table"
_OK = int(HTTPStatus.OK)
# How the answer to one table's commit is rebuilt, by the role that it took. Never changed.
_REPLAYS: dict[Role, dict[str, object]] = {role: {"kind": "table", "role": role.value} for role in Role}

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


def check_target(namespace: Sequence[str], name: str, *, field: str) -> Target:
    """A table's name as a client gave it, checked."""
    prefix = f"{field}." if field else ""
    return check_levels(namespace, field=f"{prefix}namespace"), check_name(name, field=f"{prefix}name")


def dotted(target: Target) -> str:
    """A name as error messages show it."""
    return ".".join((*target[0], target[1]))


def refuse_impossible(target: Target) -> None:
    """A name that no table can have is one that does not exist; it is never asked of the store."""
    try:
        _check_known(target)
    except BadInput as error:
        raise NotFound(f"Table does not exist: {dotted(target)}", kind="table") from error


@lru_cache(maxsize=4096)
def _check_known(target: Target) -> None:
    """Good names are remembered, which are short: writers send to the same few tables again and again."""
    check_target(*target, field="")


def plan_table(
    services: Services,
    caller: Caller,
    target: Target,
    request: CommitTableRequest,
    *,
    fold: bool | None = None,
) -> Work:
    """One table's commit."""
    if request.identifier is not None:
        named = (tuple(request.identifier.namespace), request.identifier.name)
        if named != target:
            raise BadInput(
                f"the body is for {dotted(named)}, the path for {dotted(target)}", field="identifier"
            )
    if request.requirements and any(isinstance(given, AssertCreate) for given in request.requirements):
        check_target(*target, field="")
    refuse_impossible(target)
    role = role_for(request.updates)
    commit = vet(services, caller, target, request, role)
    return Work(
        caller=caller,
        key=caller.key or services.new_uuid(),
        commits=(commit,),
        replay=_REPLAYS[role],
        status=_OK,
        event=EVENT,
        fold=fold,
    )


def plan_transaction(services: Services, caller: Caller, changes: Sequence[CommitTableRequest]) -> Work:
    """Several tables' commits: every one is vetted before any has an effect, and all land or none."""
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
        needed = role_for(change.updates)
        commits[target] = replace(vet(services, caller, target, change, needed), field=f"table-changes[{i}]")
        role = max(role, needed, key=tuple(Role).index)
    return Work(
        caller=caller,
        key=caller.key or services.new_uuid(),
        commits=tuple(commits.values()),
        replay={"kind": "none", "role": role.value},
        status=HTTPStatus.NO_CONTENT,
        event=EVENT,
    )


def role_for(updates: Sequence[TableUpdate | ChangeUpdate]) -> Role:
    """By intent: only what we build ourselves can be known to add files and nothing else."""
    found = Role.INSERT
    if len(updates) == 1 and type(only := updates[0]) is Append and not only.create_branch:
        return found  # as it almost always is
    adds = tells = False
    for update in updates:
        if isinstance(update, ChangeUpdate):
            adds = True
            is_plain = action_of(update) is Action.APPEND and not update.create_branch
            role = Role.INSERT if is_plain else Role.MODIFY
        elif is_progress(update):
            tells = True
            continue
        else:
            role = Role.MODIFY if isinstance(update, _DATA_UPDATES) else Role.ADMIN
        if role is not found and includes(role, found):
            found = role
    # How far a stream has come, with what it brings: whoever may add the one may say the other. Alone it is a property.
    return Role.ADMIN if tells and not adds else found


def vet(
    services: Services, caller: Caller, target: Target, request: CommitTableRequest, needed: Role
) -> TableCommit:
    """What can be refused without a look at the table is refused here, before anything is written."""
    require(caller, needed)
    reads = None
    if request.commit_validations:
        reads = Overwrite(
            commit_validations=request.commit_validations,
            base_snapshot_id=request.base_snapshot_id,
            branch=request.branch,
        )
    requirements = request.requirements
    commit = TableCommit(target, requirements, request.updates, reads)
    creates = bool(requirements) and commit.creates()
    if creates and len(requirements) > 1:
        raise BadInput("Invalid create requirements: assert-create stands alone", field="requirements")
    for manifest_list in check_updates(request.updates, services.locations):
        # What the service did not build, it checks: a snapshot without its manifest list is no snapshot.
        if not services.files.exists(manifest_list):
            raise BadInput(
                f"the snapshot's manifest list does not exist: {manifest_list}",
                field="updates.snapshot.manifest-list",
            )
    if creates:
        load_namespace(services, target[0])
    return commit


# --- at the head -----------------------------------------------------------------------------------------


def check_at_head(services: Services, work: Work) -> tuple[Head | None, ...]:
    """Refuse what the heads of now would refuse without a look at any file; returns them, one a table."""
    heads = services.heads.load(tuple(commit.target for commit in work.commits))
    changes = 0
    try:
        for commit, head in zip(work.commits, heads, strict=True):
            changes += sum(isinstance(update, ChangeUpdate) for update in commit.updates)
            if changes > CHANGES_MAX:
                raise BadInput(f"a request takes at most {CHANGES_MAX} changes", field=commit.path("updates"))
            if len(heads) == 1 and head is not None and _is_for_the_gate(commit, head):
                continue
            _check_one(services, commit, head)
    except HeadgateError as error:
        name_other(error, heads, services.store)
        raise
    return heads


def _is_for_the_gate(commit: TableCommit, head: Head) -> bool:
    """Whether a commit that is not made for this head may land all the same."""
    return is_landed(commit, head.metadata) or is_rebasable(commit, head.metadata)


def _check_one(services: Services, commit: TableCommit, head: Head | None) -> None:
    base = None if head is None else head.metadata
    if base is None and not commit.creates():
        raise NotFound(f"Table does not exist: {dotted(commit.target)}", kind="table")
    failed = find_failed(commit.requirements, base)
    if failed is not None:
        raise failed
    if commit.reads is not None:
        if base is None:
            raise BadInput(
                "a table that is being created has nothing to read", field=commit.path("commit-validations")
            )
        take_in(commit.reads, base, field=commit.field)
    places = [i for i, update in enumerate(commit.updates) if isinstance(update, ChangeUpdate)]
    applying = Applying(base, now_ms=services.clock_ms(), format_version=find_format_version(commit.updates))
    for i, update in enumerate(commit.updates):
        if not isinstance(update, ChangeUpdate):
            # What follows the last change may speak of the snapshot that the change will have made.
            if not places or i < places[-1]:
                applying.add(update)
            continue
        field, table = commit.path(f"updates[{i}]"), applying.look()
        if table is None:
            raise BadInput("a table needs a schema before its first change", field=field)
        change = take_in(update, table, field=field, policy=services.locations)
        if i == places[0]:  # a later one may go to the branch that this one makes
            find_head(change, table)
    if not places:
        applying.finish(None if head is None else head.checkpoint)
