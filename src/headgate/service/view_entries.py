"""What every operation on views shares: looking a view up, and writing so that an outcome can be proved.

A write carries change, key and event in one transaction. Deletes a file only when its caller has loaded that
the expected head is gone, and the key stored here does not say that the file is the commit's.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from headgate.core.names import check_name
from headgate.core.view import ViewMetadata
from headgate.errors import (
    AlreadyExists,
    BadInput,
    CommitUnknown,
    HeadgateError,
    InvariantBroken,
    NotFound,
    StorageFailed,
)
from headgate.format.view_metadata import encode_file
from headgate.service.http_errors import KeyTaken
from headgate.service.idempotency import key_operations, raise_if_key_taken
from headgate.service.namespaces import dotted, existing_levels, no_such_namespace
from headgate.service.roles import Caller
from headgate.service.services import Services
from headgate.store.base import (
    Entry,
    EntryHeader,
    EntryId,
    Event,
    Kind,
    Levels,
    Operation,
    PutEvent,
    Reason,
    Refused,
)

REPLAY_KIND = "view"
_PLACE = "metadata-location"

Target = tuple[Levels, str]  # namespace levels and name


@dataclass(frozen=True, slots=True)
class LoadedView:
    """A view as it is answered: where its metadata file is, and the metadata as JSON."""

    metadata_location: str
    metadata: bytes


def shown(target: Target) -> str:
    """A name as messages show it."""
    return dotted((*target[0], target[1]))


def load_header(services: Services, target: Target) -> EntryHeader:
    """The header of a view; NotFound when there is none."""
    _check_lookup(target)
    header = services.store.load_header(*target)
    if header is None or header.kind is not Kind.VIEW:
        raise _no_such_view(target)
    return header


def load_entry(services: Services, target: Target) -> Entry:
    """A view with its metadata; NotFound when there is none."""
    _check_lookup(target)
    (entry,) = services.store.load_entries((target,))
    if entry is None or entry.header.kind is not Kind.VIEW:
        raise _no_such_view(target)
    return entry


def _check_lookup(target: Target) -> None:
    """A name that could not have been created does not exist; the store is not asked."""
    try:
        existing_levels(target[0])
        check_name(target[1], field="view")
    except (BadInput, NotFound) as error:
        raise _no_such_view(target) from error


def _no_such_view(target: Target) -> NotFound:
    return NotFound(f"View does not exist: {shown(target)}", kind="view")


def check_free(services: Services, target: Target) -> None:
    """Refuse a taken name before a file is written; the store decides once more in the write."""
    header = services.store.load_header(*target)
    if header is not None:
        raise _name_taken(header.kind, target)


def _name_taken(kind: Kind | None, target: Target) -> AlreadyExists:
    if kind is Kind.TABLE:
        return AlreadyExists(f"Table with same name already exists: {shown(target)}", kind="table")
    return AlreadyExists(f"View already exists: {shown(target)}", kind="view")


def with_key(services: Services, caller: Caller) -> Caller:
    """Every commit has a key, the client's or a fresh one, so that an unknown outcome can be looked up."""
    return caller if caller.key is not None else replace(caller, key=services.new_uuid())


def replay_of(loaded: LoadedView) -> dict[str, object]:
    """What is stored under the key, to answer it again."""
    return {"kind": REPLAY_KIND, _PLACE: loaded.metadata_location}


def write_file(services: Services, file: str, view: ViewMetadata) -> None:
    """Write a metadata file, under the allowed form of its location."""
    place = services.locations.allow(file, field=_PLACE)
    with services.metrics.time_files("write-metadata"):
        services.files.write_new(place, (encode_file(view),))


def write(
    services: Services, caller: Caller, change: Operation, event: Event, replay: Mapping[str, object]
) -> Refused | None:
    """Change, key and event in one transaction; after an unknown outcome, look for the key."""
    (key,) = key_operations(services, caller, replay)
    try:
        with services.metrics.time_store("swap"):
            return services.store.write((change, key, PutEvent(event)))
    except CommitUnknown:
        stored = services.store.load_key(caller.principal, key.record.key)
        if stored is None:
            raise  # it may still land: nothing is deleted, and the caller is told to probe
        if stored.body != key.record.body:
            raise KeyTaken from None  # another request with this key was first
        return None


def settle(services: Services, caller: Caller, attempt: LoadedView, *, head_is_gone: bool) -> bool:
    """Whether a refused attempt landed all the same, by its key; if not, its file may be deleted.

    `head_is_gone` says that a load, made before this one, showed that the attempt cannot land any more.
    """
    stored = services.store.load_key(caller.principal, str(caller.key))
    if stored is not None:
        landed = msgspec.json.decode(stored.body, type=dict[str, object]).get(_PLACE)
        if landed == attempt.metadata_location:
            return True
    if head_is_gone:
        with suppress(StorageFailed):  # a file too many does no harm, and the refusal is the answer
            services.files.delete((services.locations.allow(attempt.metadata_location, field=_PLACE),))
    if stored is not None:
        raise KeyTaken  # another request with this key was first
    return False


def refusal(refused: Refused, target: Target) -> HeadgateError:
    """A store's refusal in the words that clients know."""
    raise_if_key_taken(refused)
    match refused.reason:
        case Reason.NAME_TAKEN:
            return _name_taken(refused.kind, target)
        case Reason.NAMESPACE_MISSING:
            return no_such_namespace(target[0])
        case Reason.ENTRY_MISSING:
            return _no_such_view(target)
        case reason:
            return InvariantBroken(f"invariant broken: a view was refused for {reason}")


def payload_of(view: ViewMetadata, loaded: LoadedView, *, version: int) -> dict[str, object]:
    """What an event says about a view."""
    return {
        "uuid": view.view_uuid,
        _PLACE: loaded.metadata_location,
        "version": version,
        "view-version-id": view.current_version_id,
    }


def event_of(
    services: Services, caller: Caller, kind: str, target: Target, id_: EntryId, payload: Mapping[str, object]
) -> Event:
    """One row of the outbox."""
    return Event(
        kind=kind,
        namespace=target[0],
        name=target[1],
        entry_id=id_,
        principal=caller.principal,
        key=caller.key,
        at_ms=services.clock_ms(),
        payload=msgspec.json.encode(payload),
    )
