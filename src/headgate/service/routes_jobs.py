"""The routes of acknowledged requests: files to be appended soon, and what became of a commit, for its owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from headgate.errors import BadInput, NotFound
from headgate.format.strict_json import decode_into
from headgate.service import jobs
from headgate.service.exchange import Body, Hold, Reply, Request, Route, json_reply
from headgate.service.feed import WAIT_MS_MAX
from headgate.service.http_errors import is_failure
from headgate.service.idempotency import parse_key
from headgate.service.preferences import find_wait
from headgate.service.roles import Role
from headgate.service.services import Services
from headgate.service.table_requests import AppendRequest
from headgate.store.base import Job, KeyRecord

_WAIT_S_MAX = WAIT_MS_MAX // 1000
_RETRY_AFTER = (("retry-after", "1"),)


def append_files(services: Services, request: Request) -> Reply:
    """POST /v1/namespaces/{namespace}/tables/{table}/append: take files in for the next commit of the table."""
    body = decode_into(AppendRequest, request.body, max_depth=request.json_depth_max)
    return jobs.accept_append(services, request, (request.namespace, request.params["table"]), body)


def load_verdict(services: Services, request: Request) -> Reply:
    """GET /v1/commits/{key}: the verdict of a commit that the caller sent under this key, or that it is pending."""
    key, wait_ms = str(parse_key(request.params["key"])), _read_wait(request)

    def look() -> Reply:
        reply, is_pending = _look(services, request.caller.principal, key)
        return replace(reply, hold=Hold(wait_ms, None, look)) if is_pending and wait_ms else reply

    return look()


def _look(services: Services, principal: str, key: str) -> tuple[Reply, bool]:
    # The job first: when it is gone by then, its verdict was stored no later.
    job = services.store.load_job(principal, key)
    record = services.store.load_key(principal, key)
    if record is not None:
        return json_reply(_show_verdict(record)), False
    if job is not None:
        return json_reply(_show_pending(job), headers=_RETRY_AFTER), True
    raise NotFound(
        f"no verdict under this key: the commit is unknown, or still running; key={key}", kind="commit"
    )


def _read_wait(request: Request) -> int:
    """Milliseconds to wait for a verdict: `?wait=` in seconds, else `Prefer: wait=`, which is only a wish."""
    asked = request.query.get("wait", "")
    if asked:
        if not (asked.isascii() and asked.isdigit() and len(asked) <= 9) or int(asked) > _WAIT_S_MAX:
            raise BadInput(f"wait: expected 0 to {_WAIT_S_MAX} seconds, got {asked[:50]!r}", field="wait")
        return int(asked) * 1000
    wished = find_wait(request.headers) or ""
    is_number = wished.isascii() and wished.isdigit() and len(wished) <= 9
    return min(int(wished), _WAIT_S_MAX) * 1000 if is_number else 0


def _show_pending(job: Job) -> dict[str, object]:
    return {
        "key": job.id,
        "status": "pending",
        "created-at-ms": job.created_at_ms,
        "due-at-ms": job.due_at_ms,
    }


def _show_verdict(record: KeyRecord) -> dict[str, object]:
    refused = is_failure(record.status)
    shown: dict[str, object] = {
        "key": record.key,
        "status": "refused" if refused else "committed",
        "http-status": record.status,
        "created-at-ms": record.created_at_ms,
    }
    stored = msgspec.json.decode(record.body, type=dict[str, object])
    return {**shown, "error": stored["error"]} if refused else {**shown, **_show_tables(stored)}


def _show_tables(stored: Mapping[str, object]) -> dict[str, object]:
    """What was published: of one table its fields, of none or several a list."""
    changed = msgspec.convert(stored.get("tables", []), type=list[dict[str, object]])
    found = [_show_table(table) for table in changed]
    return found[0] if len(found) == 1 else {"tables": found}


def _show_table(stored: dict[str, object]) -> dict[str, object]:
    ids = msgspec.convert(stored["snapshot-ids"], type=list[int])
    return {
        "table": {"namespace": stored["namespace"], "name": stored["name"]},
        "metadata-location": stored["metadata-location"],
        "snapshot-id": ids[-1] if ids else None,
        "snapshot-ids": ids,
    }


def replay_append(services: Services, request: Request, stored: Mapping[str, object]) -> Reply:
    """The answer to an append whose files are committed already."""
    headers = (("location", f"{jobs.COMMITS}/{request.caller.key}"),)
    return json_reply(
        {"id": request.caller.key, "status": "committed", **_show_tables(stored)}, headers=headers
    )


ROUTES = (
    Route(
        "POST",
        "/v1/namespaces/{namespace}/tables/{table}/append",
        append_files,
        Role.INSERT,
        Body.JSON,
        takes_key=True,
    ),
    Route("GET", f"{jobs.COMMITS}/{{key}}", load_verdict, Role.READ),
)
REPLAYERS = {jobs.APPEND_REPLAY: replay_append}
