"""Views: list, create, load, replace, drop, rename, register. Messages are the ones that clients know.

A view's metadata is small: the whole of it is the entry's envelope in the store, and its file is written
before every swap. Locations are kept as they were sent, because engines compare them as text; files are
touched under the allowed form only. A lost attempt's file is deleted only after a load has proved that it
cannot land.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import msgspec

from headgate.core.locations import check_properties
from headgate.core.names import check_name
from headgate.core.schema import Schema
from headgate.core.updates import LAST_ADDED, AddSchema, AssignUuid, SetLocation, SetProperties
from headgate.core.view import AddViewVersion, SetCurrentViewVersion, ViewMetadata, ViewUpdate, ViewVersion
from headgate.core.view_apply import apply, find_failed
from headgate.errors import (
    AlreadyExists,
    BadInput,
    CommitRefused,
    CommitUnknown,
    InvariantBroken,
    NotFound,
    Overloaded,
    StorageFailed,
)
from headgate.format.view_metadata import VIEW_BYTES_MAX, ViewCommit, decode_stored, decode_view, encode_view
from headgate.service.idempotency import key_operations
from headgate.service.logs import CommitLine, log_commits
from headgate.service.namespaces import load_namespace, no_such_namespace
from headgate.service.paging import PageRequest, load_page
from headgate.service.placement import default_location, metadata_location
from headgate.service.roles import Caller
from headgate.service.services import Services
from headgate.service.view_entries import (
    LoadedView,
    Target,
    check_free,
    event_of,
    load_entry,
    load_header,
    payload_of,
    refusal,
    replay_of,
    settle,
    shown,
    with_key,
    write,
    write_file,
)
from headgate.store.base import (
    CreateEntry,
    DropEntry,
    Entry,
    EntryId,
    Kind,
    Levels,
    Reason,
    RenameEntry,
    SwapEntry,
)

ATTEMPTS_MAX = 20
_WAIT_MAX_S = 0.1


@dataclass(frozen=True, slots=True)
class NewView:
    """What a client asks for when it creates a view."""

    name: str
    schema: Schema
    version: ViewVersion
    properties: dict[str, str]
    location: str | None = None


def listing_of(namespace: Levels) -> str:
    """The name of the listing, for page tokens."""
    return "views:" + "\x1f".join(namespace)


def list_views(services: Services, namespace: Levels, page: PageRequest) -> tuple[list[str], str | None]:
    """Names of the views in a namespace that exists, and the token of the next page."""
    load_namespace(services, namespace)
    return load_page(
        page,
        lambda after, limit: services.store.list_entries(namespace, Kind.VIEW, after=after, limit=limit),
        name_of=lambda name: name,
        listing=listing_of(namespace),
    )


def load_view(services: Services, target: Target) -> LoadedView:
    """One view; NotFound when it is not there."""
    entry = load_entry(services, target)
    return LoadedView(entry.header.metadata_location, entry.envelope)


def check_exists(services: Services, target: Target) -> None:
    """NotFound unless the view is there."""
    load_header(services, target)


def load_stored(services: Services, location: str) -> LoadedView:
    """The view as one commit left it, by that commit's metadata file: the answer to a repeated key."""
    file = services.locations.allow(location, field="metadata-location")
    try:
        data = services.files.read(file, limit_bytes=VIEW_BYTES_MAX)
    except NotFound as error:
        raise StorageFailed(f"the metadata file of a commit is missing: {location}") from error
    return LoadedView(location, encode_view(decode_view(data, location=location)))


# --- create and register --------------------------------------------------------------------------------


def create_view(services: Services, caller: Caller, namespace: Levels, wanted: NewView) -> LoadedView:
    """Create a view at a free name of a namespace that exists."""
    target = (namespace, check_name(wanted.name, field="name"))
    parent = load_namespace(services, namespace)
    check_free(services, target)
    uuid, location = services.new_uuid(), wanted.location
    if location is None:
        location = default_location(
            services.locations.roots[0], namespace, wanted.name, uuid, parent.properties
        )
    services.locations.allow(location, field="location")
    check_properties(wanted.properties, services.locations)
    view = _build(wanted, location=location, uuid=uuid, now_ms=services.clock_ms())
    file = metadata_location(location, view.properties, version=1, uuid=services.new_uuid())
    envelope = encode_view(view)
    write_file(services, file, view)
    return _publish_new(services, caller, target, view, LoadedView(file, envelope), event="create-view")


def register_view(
    services: Services, caller: Caller, namespace: Levels, *, name: str, location: str
) -> LoadedView:
    """Take in a view by its metadata file, which stays where it is."""
    target = (namespace, check_name(name, field="name"))
    load_namespace(services, namespace)
    check_free(services, target)
    file = services.locations.allow(location, field="metadata-location")
    try:
        data = services.files.read(file, limit_bytes=VIEW_BYTES_MAX)
    except NotFound as error:
        raise BadInput(f"metadata file does not exist: {location}", field="metadata-location") from error
    except BadInput as error:  # a symlink, a folder, or a file that is too large
        raise type(error)(error.message, field="metadata-location") from error
    view = decode_view(data, location=location)
    # Later commits write below what the file says, so it is held to the same rule as a request.
    services.locations.allow(view.location, field="metadata.location")
    check_properties(view.properties, services.locations)
    loaded = LoadedView(location, encode_view(view))
    return _publish_new(services, caller, target, view, loaded, event="register-view")


def _build(wanted: NewView, *, location: str, uuid: str, now_ms: int) -> ViewMetadata:
    version = msgspec.structs.replace(wanted.version, schema_id=LAST_ADDED)
    updates: tuple[ViewUpdate, ...] = (
        AssignUuid(uuid=uuid),
        SetLocation(location=location),
        SetProperties(updates=wanted.properties),
        AddSchema(schema=wanted.schema),
        AddViewVersion(view_version=version),
        SetCurrentViewVersion(view_version_id=LAST_ADDED),
    )
    try:
        view = apply(None, updates, now_ms=now_ms)
    except BadInput as error:
        # The client sent these as fields of the request, not as updates.
        raise BadInput(error.message, field=(error.field or "").removeprefix("updates.")) from error
    if view is None:
        raise InvariantBroken("invariant broken: a new view is a change")
    return view


def _publish_new(
    services: Services, caller: Caller, target: Target, view: ViewMetadata, loaded: LoadedView, *, event: str
) -> LoadedView:
    caller = with_key(services, caller)
    id_ = EntryId(services.new_uuid())
    create = CreateEntry(
        id=id_,
        namespace=target[0],
        name=target[1],
        kind=Kind.VIEW,
        uuid=view.view_uuid,
        location=services.locations.allow(view.location, field="location"),
        metadata_location=loaded.metadata_location,
        checkpointed=True,
        envelope=loaded.metadata,
    )
    record = event_of(services, caller, event, target, id_, payload_of(view, loaded, version=1))
    refused = write(services, caller, create, record, replay_of(loaded))
    if refused is None:
        return loaded
    standing = services.store.load_header(*target)
    taken = event == "create-view" and standing is not None and standing.id != id_
    if settle(services, caller, loaded, head_is_gone=taken):
        return loaded
    raise refusal(refused, target)


# --- replace --------------------------------------------------------------------------------------------


def commit_view(services: Services, caller: Caller, target: Target, commit: ViewCommit) -> LoadedView:
    """Apply updates to a view. A concurrent change is no conflict while the requirements hold."""
    for update in commit.updates:
        if isinstance(update, SetLocation):
            services.locations.allow(update.location, field="updates.location")
        elif isinstance(update, SetProperties):
            check_properties(update.updates, services.locations)
    started, verdict, attempt = time.perf_counter(), "refused", 0
    first: EntryId | None = None
    keyed = with_key(services, caller)
    try:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            entry = load_entry(services, target)
            if first not in (None, entry.header.id):
                raise CommitRefused(f"Cannot commit: the view was dropped and made anew: {shown(target)}")
            first = entry.header.id
            loaded = _commit_onto(services, keyed, entry, target, commit)
            if loaded is not None:
                verdict = "committed"
                return loaded
            services.metrics.swap_retries.inc()
            time.sleep(random.uniform(0, min(_WAIT_MAX_S, 0.001 * 2**attempt)))
        raise CommitRefused(
            f"Cannot commit: the view changed {ATTEMPTS_MAX} times meanwhile: {shown(target)}; try again"
        )
    except CommitUnknown:
        verdict = "unknown"
        raise
    finally:
        services.metrics.count_commit(verdict)
        elapsed_ms = (time.perf_counter() - started) * 1000
        log_commits([CommitLine(shown(target), keyed.key, attempt, None, None, verdict, elapsed_ms)])


def _commit_onto(
    services: Services, caller: Caller, entry: Entry, target: Target, commit: ViewCommit
) -> LoadedView | None:
    """Judge the commit against this head and swap; None when the head moved meanwhile."""
    header, head = entry.header, decode_stored(entry.envelope)
    if (failed := find_failed(commit.requirements, head)) is not None:
        raise failed
    candidate = apply(head, commit.updates, now_ms=services.clock_ms())
    if candidate is None:
        return _keep(services, caller, LoadedView(header.metadata_location, entry.envelope), target)
    version = header.version + 1
    file = metadata_location(
        candidate.location, candidate.properties, version=version, uuid=services.new_uuid()
    )
    loaded = LoadedView(file, encode_view(candidate))
    write_file(services, file, candidate)
    swap = SwapEntry(
        id=header.id,
        expected_version=header.version,
        uuid=candidate.view_uuid,
        location=services.locations.allow(candidate.location, field="updates.location"),
        metadata_location=file,
        checkpointed=True,
        envelope=loaded.metadata,
    )
    actions = sorted({str(type(update).__struct_config__.tag) for update in commit.updates})
    payload = {**payload_of(candidate, loaded, version=version), "updates": actions}
    record = event_of(services, caller, "replace-view", target, header.id, payload)
    refused = write(services, caller, swap, record, replay_of(loaded))
    if refused is None:
        return loaded
    standing = services.store.load_header_by_id(header.id)
    moved = standing is None or standing.version != header.version
    if settle(services, caller, loaded, head_is_gone=moved):
        return loaded
    if refused.reason is Reason.ENTRY_CHANGED:
        return None
    raise refusal(refused, target)


def _keep(services: Services, caller: Caller, loaded: LoadedView, target: Target) -> LoadedView:
    """Nothing to change. The verdict is stored all the same: later, the request might change something."""
    refused = services.store.write(key_operations(services, caller, replay_of(loaded)))
    if refused is not None:
        raise refusal(refused, target)
    return loaded


# --- drop and rename ------------------------------------------------------------------------------------


def drop_view(services: Services, caller: Caller, target: Target) -> None:
    """Remove the view from the catalog. Its files stay."""
    keyed = with_key(services, caller)
    for _ in range(ATTEMPTS_MAX):
        header = load_header(services, target)
        payload = {"uuid": header.uuid, "metadata-location": header.metadata_location}
        record = event_of(services, keyed, "drop-view", target, header.id, payload)
        refused = write(services, keyed, DropEntry(header.id, header.version), record, {"kind": "none"})
        if refused is None:
            return
        if refused.reason is not Reason.ENTRY_CHANGED:
            raise refusal(refused, target)
    raise Overloaded(f"the view changed {ATTEMPTS_MAX} times meanwhile: {shown(target)}")


def rename_view(services: Services, caller: Caller, source: Target, destination: Target) -> None:
    """Give the view another name, also in another namespace. Its metadata stays as it is."""
    check_name(destination[1], field="destination.name")
    keyed = with_key(services, caller)
    for _ in range(ATTEMPTS_MAX):
        header = load_header(services, source)
        if source == destination:
            return
        load_namespace(services, destination[0])
        rename = RenameEntry(header.id, header.version, destination[0], destination[1])
        names = {"namespace": destination[0], "name": destination[1]}
        payload = {"uuid": header.uuid, "destination": names}
        record = event_of(services, keyed, "rename-view", source, header.id, payload)
        refused = write(services, keyed, rename, record, {"kind": "none"})
        if refused is None:
            return
        if refused.reason is Reason.NAME_TAKEN:
            what = "Table" if refused.kind is Kind.TABLE else "View"
            raise AlreadyExists(
                f"Cannot rename {shown(source)} to {shown(destination)}. {what} already exists",
                kind=what.lower(),
            )
        if refused.reason is Reason.NAMESPACE_MISSING:
            raise no_such_namespace(destination[0])
        if refused.reason is not Reason.ENTRY_CHANGED:
            raise refusal(refused, source)
    raise Overloaded(f"the view changed {ATTEMPTS_MAX} times meanwhile: {shown(source)}")
