"""Idempotency-Key: the same request again gets the first verdict again.

A success is stored by the operation itself, in the same `store.write` as its effect (`key_operations`), as a
small JSON that tells how to rebuild the answer; a final refusal is stored by `run` afterwards. A failure of
ours (5xx) is never stored. Two requests with one key at once: the store lets one write its verdict, the other
finds KEY_EXISTS, raises `KeyTaken`, and is answered from what the first stored.

A key belongs to a principal and to one request: with another method, path or body it is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from headgate.errors import BadInput, CommitUnknown, HeadgateError, Overloaded, StorageFailed, invariant
from headgate.service import http_errors
from headgate.service.exchange import Replayer, Reply, Request, Route, json_reply, no_content
from headgate.service.roles import Caller, Role, require
from headgate.service.services import Services
from headgate.store.base import KeyRecord, PutKey, Reason, Refused

HEADER = "idempotency-key"
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def parse_key(text: str | None) -> str | None:
    """The key of a request in its one spelling; BadInput unless it is a UUIDv7 (RFC 9562)."""
    if text is None:
        return None
    key = text.lower()
    if _UUID7.fullmatch(key) is None:
        raise BadInput("Idempotency-Key: expected a UUIDv7 of 36 characters", field="Idempotency-Key")
    return key


def fingerprint(*, method: str, target: str, body: bytes) -> str:
    """What was asked. `target` is the path with its query, as sent."""
    digest = hashlib.sha256()
    for part in (method.encode(), target.encode(), body):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def key_operations(
    services: Services, caller: Caller, replay: Mapping[str, object], *, role: Role = Role.READ
) -> tuple[PutKey, ...]:
    """What a mutation adds to its write: nothing without a key.

    `replay` has a `kind`: `none` (204), `json` (its `body` is the answer) or one of the service's replayers.
    `role` is what the body of the request needed, if that is more than its route's role.
    """
    if caller.key is None:
        return ()
    status = HTTPStatus.NO_CONTENT if replay["kind"] == "none" else HTTPStatus.OK
    return (PutKey(_record(services, caller, status, msgspec.json.encode({**replay, "role": role.value}))),)


def raise_if_key_taken(refused: Refused) -> None:
    """Call this with every `Refused` of a write that held `key_operations`."""
    if refused.reason is Reason.KEY_EXISTS:
        raise http_errors.KeyTaken


def run(services: Services, route: Route, request: Request, replayers: Mapping[str, Replayer]) -> Reply:
    """Answer a mutation under its key: from the stored verdict, or by doing the work."""
    if request.caller.key is None:
        return route.handler(services, request)
    if (reply := _find_reply(services, request, replayers)) is not None:
        return reply
    try:
        return route.handler(services, request)
    except HeadgateError as error:
        return answer_error(services, request, error, replayers)


def answer_error(
    services: Services, request: Request, error: HeadgateError, replayers: Mapping[str, Replayer]
) -> Reply:
    """What a mutation under a key answers when it fails: the error, stored if it is final, or the first verdict."""
    if not isinstance(error, http_errors.KeyTaken):
        if not http_errors.is_terminal(error):
            raise error
        if _store_refusal(services, request.caller, http_errors.error_reply(error)):
            raise error
    try:
        reply = _find_reply(services, request, replayers)
    except (Overloaded, StorageFailed) as failed:
        raise unread(failed, request.caller.key) from failed
    if reply is None:  # it expired between the write and this read
        raise CommitUnknown(
            "the key's verdict is gone; load the table to see what happened", key=request.caller.key
        )
    return reply


def _find_reply(services: Services, request: Request, replayers: Mapping[str, Replayer]) -> Reply | None:
    caller = request.caller
    invariant(caller.key is not None, "a replay has a key")
    record = services.store.load_key(caller.principal, str(caller.key))
    if record is None:
        return None
    if record.fingerprint != caller.fingerprint:
        raise BadInput(
            "Idempotency-Key: the key was used for another request; make a new key for new work",
            field="Idempotency-Key",
        )
    services.metrics.replays.inc()
    if http_errors.is_failure(record.status):
        return http_errors.stored_reply(record.status, record.body)
    stored = msgspec.json.decode(record.body, type=dict[str, object])
    require(caller, Role(stored["role"]))
    match stored["kind"]:
        case "none":
            return no_content()
        case "json":
            return json_reply(stored["body"])
        case kind:
            try:
                return replayers[str(kind)](services, request, stored)
            except (Overloaded, StorageFailed) as failed:
                raise unread(failed, caller.key) from failed


def unread(failed: HeadgateError, key: str | None) -> CommitUnknown:
    """Instead of "nothing happened", about a request that has landed: the verdict could not be read."""
    return CommitUnknown(f"the verdict could not be read: {failed.message}; send the same again", key=key)


def _store_refusal(services: Services, caller: Caller, reply: Reply) -> bool:
    """Store a final refusal in a write of its own; False when another verdict was first."""
    return services.store.write((PutKey(_record(services, caller, reply.status, reply.body)),)) is None


def _record(services: Services, caller: Caller, status: int, body: bytes) -> KeyRecord:
    return KeyRecord(
        key=str(caller.key),
        principal=caller.principal,
        fingerprint=caller.fingerprint,
        status=int(status),
        body=body,
        created_at_ms=services.clock_ms(),
    )
