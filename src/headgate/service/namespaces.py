"""Namespaces: list, create, load, drop, and change properties. Messages are the ones that clients know.

Strict: a parent must exist. A name that could not have been created does not exist: a lookup answers "not
found", never "bad name", because engines probe `db<sep>table` as a namespace and go on only after a 404.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from headgate.core.names import check_levels
from headgate.errors import (
    AlreadyExists,
    BadInput,
    HeadgateError,
    InvariantBroken,
    NotEmpty,
    NotFound,
    Overloaded,
)
from headgate.service.http_errors import Unprocessable
from headgate.service.idempotency import key_operations, raise_if_key_taken
from headgate.service.paging import PageRequest, load_page
from headgate.service.roles import Caller
from headgate.service.services import Services
from headgate.store.base import (
    CreateNamespace,
    DropNamespace,
    Event,
    Levels,
    Namespace,
    PutEvent,
    Reason,
    Refused,
    SetNamespaceProperties,
)

LOCATION = "location"
_ATTEMPTS_MAX = 10
PROPERTIES_MAX = 1000
PROPERTY_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class PropertyChanges:
    """What an update of properties did."""

    updated: tuple[str, ...]
    removed: tuple[str, ...]
    missing: tuple[str, ...]


def dotted(levels: Levels) -> str:
    """A namespace as messages show it."""
    return ".".join(levels)


def no_such_namespace(levels: Levels) -> NotFound:
    """The error for a namespace that is not there."""
    return NotFound(f"Namespace does not exist: {dotted(levels)}", kind="namespace")


def existing_levels(levels: Levels) -> Levels:
    """The levels, if a namespace may have them; NotFound otherwise, without asking the store."""
    try:
        return check_levels(levels, field="namespace")
    except BadInput as error:
        raise no_such_namespace(levels) from error


def load_namespace(services: Services, levels: Levels) -> Namespace:
    """One namespace; NotFound when it is not there."""
    namespace = services.store.load_namespace(existing_levels(levels))
    if namespace is None:
        raise no_such_namespace(levels)
    return namespace


def list_namespaces(services: Services, parent: Levels, page: PageRequest) -> tuple[list[Levels], str | None]:
    """Children of a namespace that exists, or of the root; and the token of the next page."""
    if parent:
        load_namespace(services, parent)
    return load_page(
        page,
        lambda after, limit: services.store.list_namespaces(parent, after=after, limit=limit),
        name_of=lambda levels: levels[-1],
        listing=listing_of(parent),
    )


def listing_of(parent: Levels) -> str:
    """The name of the listing, for page tokens."""
    return "namespaces:" + "\x1f".join(parent)


def create_namespace(
    services: Services, caller: Caller, levels: Levels, properties: Mapping[str, str]
) -> Namespace:
    """Create it below a parent that exists."""
    check_levels(levels, field="namespace")
    stored = _check_properties(services, properties)
    answer = {"namespace": list(levels), "properties": stored}
    refused = services.store.write(
        (
            CreateNamespace(levels, stored),
            _event(services, caller, "create-namespace", levels, {"properties": stored}),
            *key_operations(services, caller, {"kind": "json", "body": answer}),
        )
    )
    if refused is not None:
        raise _refusal(levels, refused, missing=levels[:-1])
    return Namespace(levels, stored, version=1)


def drop_namespace(services: Services, caller: Caller, levels: Levels) -> None:
    """Drop it, if it is empty."""
    refused = services.store.write(
        (
            DropNamespace(existing_levels(levels)),
            _event(services, caller, "drop-namespace", levels, {}),
            *key_operations(services, caller, {"kind": "none"}),
        )
    )
    if refused is not None:
        raise _refusal(levels, refused, missing=levels)


def update_properties(
    services: Services,
    caller: Caller,
    levels: Levels,
    *,
    updates: Mapping[str, str],
    removals: tuple[str, ...],
) -> PropertyChanges:
    """Set and remove properties at once. A concurrent change is no conflict: ours is applied on top."""
    both = sorted(set(removals) & updates.keys())
    if both:
        raise Unprocessable(f"Invalid namespace update, cannot also set and remove: {both}", field="removals")
    checked = _check_properties(services, updates)
    for _ in range(_ATTEMPTS_MAX):
        before = load_namespace(services, levels)
        after = {name: value for name, value in before.properties.items() if name not in removals} | checked
        _check_count(after)
        changes = PropertyChanges(
            updated=tuple(sorted(checked)),
            removed=tuple(sorted(set(removals) & before.properties.keys())),
            missing=tuple(sorted(set(removals) - before.properties.keys())),
        )
        answer = {"updated": changes.updated, "removed": changes.removed, "missing": changes.missing}
        refused = services.store.write(
            (
                SetNamespaceProperties(levels, before.version, after),
                _event(services, caller, "update-namespace", levels, answer),
                *key_operations(services, caller, {"kind": "json", "body": answer}),
            )
        )
        if refused is None:
            return changes
        if refused.reason is not Reason.NAMESPACE_CHANGED:
            raise _refusal(levels, refused, missing=levels)
    raise Overloaded(f"the namespace changed {_ATTEMPTS_MAX} times meanwhile: {dotted(levels)}")


def _refusal(levels: Levels, refused: Refused, *, missing: Levels) -> HeadgateError:
    raise_if_key_taken(refused)
    name = dotted(levels)
    match refused.reason:
        case Reason.NAMESPACE_EXISTS:
            return AlreadyExists(f"Namespace already exists: {name}", kind="namespace")
        case Reason.NAMESPACE_MISSING:
            return no_such_namespace(missing)
        case Reason.NAMESPACE_NOT_EMPTY:
            return NotEmpty(f"Namespace is not empty: {name}")
        case reason:
            return InvariantBroken(f"invariant broken: a namespace was refused for {reason}")


def _check_properties(services: Services, properties: Mapping[str, str]) -> dict[str, str]:
    """Properties that may be stored; a location is stored in its canonical form."""
    _check_count(properties)
    checked = dict(properties)
    for name, value in properties.items():
        if not name or "\x00" in name or "\x00" in value:
            raise BadInput(
                f"properties: a name is empty, or a NUL is in it: {name!r}", field=f"properties.{name}"
            )
        if len(name) + len(value) > PROPERTY_BYTES_MAX:
            raise BadInput(f"properties: longer than {PROPERTY_BYTES_MAX}", field=f"properties.{name[:255]}")
    if LOCATION in checked:
        checked[LOCATION] = services.locations.allow(checked[LOCATION], field="properties.location")
    return checked


def _check_count(properties: Mapping[str, str]) -> None:
    if len(properties) > PROPERTIES_MAX:
        raise BadInput(f"properties: more than {PROPERTIES_MAX}", field="properties", limit=PROPERTIES_MAX)


def _event(
    services: Services, caller: Caller, kind: str, levels: Levels, payload: Mapping[str, object]
) -> PutEvent:
    return PutEvent(
        Event(
            kind=kind,
            namespace=levels,
            name="",
            entry_id=None,
            principal=caller.principal,
            key=caller.key,
            at_ms=services.clock_ms(),
            payload=msgspec.json.encode(payload),
        )
    )
