"""The change feed: rows of the outbox as events of the REST events proposal (apache/iceberg PR 12584).

In order, nothing skipped: the store sees to that. A cursor is the last row looked at, so a filter that matches
nothing still moves on. Reads only; every look is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from headgate.core.value import Int, Long, Value
from headgate.errors import BadInput
from headgate.service.paging import decode_token, encode_token
from headgate.store.base import Event, StoredEvent

WAIT_MS_MAX = 30_000
_BATCH = 500
_SCANNED_MAX = 10_000  # rows one request looks at; it then answers what it has, with a token to go on

_TABLE, _VIEW, _NAMESPACE = "table", "view", "namespace"
_CUSTOM = "custom"
# Kinds of the outbox: the type of the proposal's operation and of its object. `x-` marks our own.
_OPERATIONS: dict[str, tuple[str, str]] = {
    "create-table": ("create-table", _TABLE),
    "register-table": ("register-table", _TABLE),
    "commit-table": ("update-table", _TABLE),
    "rename-table": ("rename-table", _TABLE),
    "drop-table": ("drop-table", _TABLE),
    "purge-table": ("drop-table", _TABLE),
    "unregister-table": ("x-unregister-table", _TABLE),
    "create-view": ("create-view", _VIEW),
    "register-view": ("x-register-view", _VIEW),
    "replace-view": ("update-view", _VIEW),
    "rename-view": ("rename-view", _VIEW),
    "drop-view": ("drop-view", _VIEW),
    "create-namespace": ("create-namespace", _NAMESPACE),
    "update-namespace": ("update-namespace-properties", _NAMESPACE),
    "drop-namespace": ("drop-namespace", _NAMESPACE),
}
_WITH_UPDATES = frozenset(("create-table", "update-table", "create-view", "update-view"))
_PASSED_ON = (
    "updates",
    "updates-omitted",
    "metadata-location",
    "added-snapshots",
    "properties",
    "folded",
    "folded-count",
)
_NAMESPACE_CHANGES = ("updated", "removed", "missing")


class ObjectId(Value):
    """A table or view by its uuid."""

    uuid: str
    type: str


class EventsRequest(Value):
    """POST /v1/events. `wait-ms` is ours: how long to wait for an event when there is none."""

    continuation_token: str | None = None
    page_size: Int | None = None
    wait_ms: Int = 0
    after_timestamp_ms: Long | None = None
    operation_types: tuple[str, ...] | None = None
    catalog_objects_by_name: tuple[tuple[str, ...], ...] | None = None
    catalog_objects_by_id: tuple[ObjectId, ...] | None = None
    object_types: tuple[str, ...] | None = None
    custom_filters: dict[str, Any] | None = None

    @property
    def has_filters(self) -> bool:
        """Whether some events may be left out."""
        filters = (self.after_timestamp_ms, self.operation_types, self.object_types)
        objects = (self.catalog_objects_by_name, self.catalog_objects_by_id)
        return any(one is not None for one in (*filters, *objects))


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last row looked at, and the newest time seen so far."""

    sequence: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """Events in order, and where to go on. `is_end` when the feed has no more rows now."""

    events: tuple[dict[str, object], ...]
    cursor: Cursor
    is_end: bool


Load = Callable[[int, int], list[StoredEvent]]  # rows after a sequence, at most so many


def encode_cursor(cursor: Cursor, listing: str) -> str:
    """An opaque token."""
    return encode_token(f"{cursor.sequence}:{cursor.at_ms}", listing)


def decode_cursor(token: str | None, listing: str, *, field: str) -> Cursor:
    """The cursor of a token; the beginning of the feed without one."""
    if not token:
        return Cursor()
    sequence, _, at_ms = decode_token(token, listing, field=field).partition(":")
    return Cursor(int(sequence), int(at_ms))


def check_wait(wait_ms: int) -> int:
    """How long a client may wait."""
    if not 0 <= wait_ms <= WAIT_MS_MAX:
        raise BadInput(f"wait-ms: expected 0 to {WAIT_MS_MAX}, got {wait_ms}", field="wait-ms")
    return wait_ms


def check_request(request: EventsRequest) -> EventsRequest:
    """Refuse what this feed cannot do, rather than leave it out in silence."""
    if request.custom_filters:
        raise BadInput("custom-filters: this catalog has none", field="custom-filters")
    if request.page_size is not None and request.page_size < 1:
        raise BadInput("page-size: expected a number of at least 1", field="page-size")
    known = {type_ for _, type_ in _OPERATIONS.values()}
    if wrong := sorted(set(request.object_types or ()) - known):
        raise BadInput(
            f"object-types: expected {', '.join(sorted(known))}, not {wrong[0][:50]!r}", field="object-types"
        )
    check_wait(request.wait_ms)
    return request


def read_page(load: Load, cursor: Cursor, *, size: int, wanted: EventsRequest) -> Page:
    """The next events after a cursor that are wanted."""
    found: list[dict[str, object]] = []
    scanned = 0
    while scanned < _SCANNED_MAX:
        limit = _BATCH if wanted.has_filters else min(_BATCH, size - len(found))
        rows = load(cursor.sequence, limit)
        for row in rows:
            cursor = Cursor(row.sequence, max(cursor.at_ms, row.event.at_ms))
            event = show_event(row)
            if not wanted.has_filters or _is_wanted(wanted, row.event, event):
                found.append(event)
            if len(found) == size:
                return Page(tuple(found), cursor, is_end=False)
        scanned += len(rows)
        if len(rows) < limit:
            return Page(tuple(found), cursor, is_end=True)
    return Page(tuple(found), cursor, is_end=False)


def show_event(stored: StoredEvent) -> dict[str, object]:
    """One row as the proposal shows it; `key` and `sequence` are ours."""
    event = stored.event
    payload = msgspec.json.decode(event.payload, type=dict[str, Any])
    id_ = str(stored.sequence)
    return {
        "event-id": id_,
        "request-id": event.key or id_,
        "request-event-count": payload.get("event-count", 1),
        "timestamp-ms": event.at_ms,
        "actor": {"principal": event.principal},
        "key": event.key,
        "operation": _operation(event, payload),
    }


def _operation(event: Event, payload: dict[str, Any]) -> dict[str, object]:
    type_, object_type = _OPERATIONS.get(event.kind, (f"x-{event.kind}", _TABLE))
    shown: dict[str, object] = {"operation-type": type_}
    if type_.startswith("x-"):
        shown = {"operation-type": _CUSTOM, "custom-type": type_}
    if object_type == _NAMESPACE:
        shown["namespace"] = event.namespace
        shown.update({name: payload[name] for name in _NAMESPACE_CHANGES if name in payload})
    else:
        identifier = {"namespace": event.namespace, "name": event.name}
        if type_ == "rename-table":
            shown |= {"source": payload.get("source"), "destination": identifier}
        elif type_ == "rename-view":
            shown |= {"source": identifier, "destination": payload["destination"]}
        else:
            shown["identifier"] = identifier
        if (uuid := payload.get("table-uuid", payload.get("uuid"))) is not None:
            shown[f"{object_type}-uuid"] = uuid
    if type_ == "drop-table":
        shown["purge"] = event.kind == "purge-table"
    if type_ in _WITH_UPDATES:
        shown["updates"] = []
    shown.update({name: payload[name] for name in _PASSED_ON if name in payload})
    added = payload.get("added-snapshots") or []
    if added:
        shown["snapshot-id"], shown["action"] = added[-1]["snapshot-id"], added[-1]["operation"]
    return shown


def _is_wanted(wanted: EventsRequest, event: Event, shown: dict[str, object]) -> bool:
    operation = msgspec.convert(shown["operation"], type=dict[str, Any])
    type_ = operation.get("custom-type", operation["operation-type"])
    object_type = _OPERATIONS.get(event.kind, ("", _TABLE))[1]
    if wanted.after_timestamp_ms is not None and event.at_ms < wanted.after_timestamp_ms:
        return False
    if wanted.operation_types is not None and type_ not in wanted.operation_types:
        return False
    if wanted.object_types is not None and object_type not in wanted.object_types:
        return False
    names, ids = wanted.catalog_objects_by_name, wanted.catalog_objects_by_id
    if names is None and ids is None:
        return True
    by_name = names is not None and any(_is_below(path, name) for path in _paths(operation) for name in names)
    return by_name or any(operation.get(f"{one.type}-uuid") == one.uuid for one in ids or ())


def _paths(operation: dict[str, Any]) -> list[tuple[str, ...]]:
    """Every name that an event is about: a rename has two."""
    named = [operation[field] for field in ("identifier", "source", "destination") if operation.get(field)]
    paths = [(*name["namespace"], name["name"]) for name in named]
    return paths if named else [tuple(operation["namespace"])]


def _is_below(path: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """A namespace stands for all that is in it."""
    return path[: len(name)] == name
