"""The routes of the change feed: what happened, for everybody, down to the files of a snapshot.

All of them only read. A feed that is at its end may be waited for; the wait itself is in `waiting`.
"""

from __future__ import annotations

from dataclasses import replace

from headgate.errors import BadInput
from headgate.format.strict_json import decode_into
from headgate.service import feed, tables
from headgate.service.exchange import Body, Hold, Reply, Request, Route, json_reply
from headgate.service.feed import Cursor, EventsRequest, Load
from headgate.service.paging import read_size
from headgate.service.roles import Role
from headgate.service.services import Services
from headgate.service.snapshot_changes import find_snapshot, read_changes
from headgate.store.base import EntryId, StoredEvent

_CATALOG_FEED = "events"


def read_events(services: Services, request: Request) -> Reply:
    """POST /v1/events: the feed of the whole catalog."""
    body = feed.check_request(decode_into(EventsRequest, request.body, max_depth=request.json_depth_max))
    cursor = feed.decode_cursor(body.continuation_token, _CATALOG_FEED, field="continuation-token")
    size_max = services.settings.page_size_max
    size = size_max if body.page_size is None else min(body.page_size, size_max)

    def load(after: int, limit: int) -> list[StoredEvent]:
        return _told(services, services.store.read_events(after=after, limit=limit))

    return _answer(load, cursor, listing=_CATALOG_FEED, size=size, wanted=body)


def read_table_events(services: Services, request: Request) -> Reply:
    """GET /v1/namespaces/{namespace}/tables/{table}/events: the feed of one table, whatever its names were."""
    head = tables.load_table(services, (request.namespace, request.params["table"]))
    id_ = EntryId(head.id)
    listing = f"events:{id_}"
    cursor = feed.decode_cursor(request.query.get("cursor"), listing, field="cursor")
    size = read_size(request.query.get("limit", ""), services.settings.page_size_max, field="limit")
    wanted = EventsRequest(wait_ms=_read_wait(request.query.get("wait-ms", "")))

    def load(after: int, limit: int) -> list[StoredEvent]:
        return _told(services, services.store.read_entry_events(id_, after=after, limit=limit))

    return _answer(load, cursor, listing=listing, size=size, wanted=wanted)


def _told(services: Services, events: list[StoredEvent]) -> list[StoredEvent]:
    """Events name the manifest lists of snapshots."""
    if events:
        tables.write_late(services)
    return events


def _answer(load: Load, cursor: Cursor, *, listing: str, size: int, wanted: EventsRequest) -> Reply:
    page = feed.read_page(load, cursor, size=size, wanted=wanted)
    reply = json_reply(
        {
            "continuation-token": feed.encode_cursor(page.cursor, listing),
            "highest-processed-timestamp-ms": page.cursor.at_ms,
            "events": page.events,
        }
    )
    if page.events or not page.is_end or not wanted.wait_ms:
        return reply

    def look() -> Reply:
        return _answer(load, page.cursor, listing=listing, size=size, wanted=wanted)

    return replace(reply, hold=Hold(wanted.wait_ms, page.cursor.sequence, look))


def _read_wait(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise BadInput(f"wait-ms: expected a number, got {text[:50]!r}", field="wait-ms")
    return feed.check_wait(int(text))


def load_changes(services: Services, request: Request) -> Reply:
    """GET …/tables/{table}/snapshots/{snapshot-id}/changes: the files that a snapshot added and removed."""
    head = tables.load_table(services, (request.namespace, request.params["table"]))
    snapshot = find_snapshot(head, request.params["snapshot-id"])
    size = read_size(request.query.get("limit", ""), services.settings.page_size_max, field="limit")
    return json_reply(read_changes(services, head, snapshot, token=request.query.get("cursor"), size=size))


_TABLE = "/v1/namespaces/{namespace}/tables/{table}"

ROUTES = (
    Route("POST", "/v1/events", read_events, Role.READ, Body.JSON),
    Route("GET", f"{_TABLE}/events", read_table_events, Role.READ),
    Route("GET", f"{_TABLE}/snapshots/{{snapshot-id}}/changes", load_changes, Role.READ),
)
