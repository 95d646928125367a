"""Errors as HTTP: the only place that knows a status of failure.

The table goes from our classes (and, where the name decides, the kind of thing) to a status and to the error
type that Iceberg clients know. Messages pass through unchanged: clients and the compatibility kit read them.
An exception that is not ours becomes a 500 with an id that is in the log, and nothing else about the inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from headgate import errors
from headgate.errors import HeadgateError
from headgate.service.exchange import Reply


class KeyTaken(HeadgateError):  # noqa: N818 — it never leaves the service: it is answered by the key's first verdict
    """Somebody stored a verdict under this key while we worked. Nothing of ours was applied."""

    code = "key-taken"

    def __init__(self) -> None:
        super().__init__("a verdict is stored under the key already")


class NoSuchRoute(HeadgateError):  # noqa: N818 — our errors are named for what happened
    """No route has this path."""

    code = "no-such-route"


class WrongMethod(HeadgateError):  # noqa: N818 — as above
    """The path has routes, for other methods. `allowed` names them."""

    code = "wrong-method"


class WrongMediaType(errors.BadInput):
    """The body is not of the type that the route reads."""

    code = "wrong-media-type"


class HeadersTooLarge(errors.TooLarge):
    """Request line and headers are over their limit."""

    code = "headers-too-large"


class BodyTooLarge(errors.TooLarge):
    """The body of the request is over its limit."""

    code = "body-too-large"


class BodyTooSlow(errors.BadInput):
    """The body of the request did not arrive in time."""

    code = "body-too-slow"


class Unprocessable(errors.BadInput):
    """Two fields that must be disjoint share a key."""

    code = "unprocessable"


@dataclass(frozen=True, slots=True)
class Shape:
    """How an error looks on the wire."""

    status: int
    type: str


# The class decides, the nearest base first; where two errors apply, the earlier raise wins.
SHAPES: Mapping[type[HeadgateError], Shape] = {
    HeadgateError: Shape(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError"),
    errors.BadInput: Shape(
        HTTPStatus.BAD_REQUEST, "IllegalArgumentException"
    ),  # what the Java client raises its own for
    errors.TooLarge: Shape(HTTPStatus.BAD_REQUEST, "BadRequestException"),
    errors.LocationRefused: Shape(HTTPStatus.BAD_REQUEST, "BadRequestException"),
    errors.NotFound: Shape(HTTPStatus.NOT_FOUND, "NotFoundException"),
    errors.AlreadyExists: Shape(HTTPStatus.CONFLICT, "AlreadyExistsException"),
    errors.NotEmpty: Shape(HTTPStatus.CONFLICT, "NamespaceNotEmptyException"),
    errors.CommitRefused: Shape(HTTPStatus.CONFLICT, "CommitFailedException"),
    errors.ConflictFound: Shape(HTTPStatus.CONFLICT, "CommitConflictException"),
    errors.Diverged: Shape(HTTPStatus.CONFLICT, "CommitDivergedException"),
    errors.RequirementFailed: Shape(HTTPStatus.CONFLICT, "CommitFailedException"),
    errors.CommitUnknown: Shape(HTTPStatus.INTERNAL_SERVER_ERROR, "CommitStateUnknownException"),
    errors.Unauthenticated: Shape(HTTPStatus.UNAUTHORIZED, "NotAuthorizedException"),
    errors.Forbidden: Shape(HTTPStatus.FORBIDDEN, "ForbiddenException"),
    errors.Unsupported: Shape(HTTPStatus.NOT_ACCEPTABLE, "UnsupportedOperationException"),
    # Not 503: clients take a 5xx that outlives their retries as "unknown", and this refusal is certain.
    errors.Overloaded: Shape(HTTPStatus.TOO_MANY_REQUESTS, "SlowDownException"),
    errors.WouldWait: Shape(
        HTTPStatus.TOO_MANY_REQUESTS, "SlowDownException"
    ),  # a thread waits instead: not told
    # Retry-After goes with it, and clients wait and send again; one that gives up takes it as unknown and looks.
    errors.QueueFull: Shape(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailableException"),
    errors.StorageFailed: Shape(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailableException"),
    errors.JobFailed: Shape(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError"),  # no request runs one
    errors.InvariantBroken: Shape(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError"),
    KeyTaken: Shape(HTTPStatus.CONFLICT, "CommitFailedException"),
    NoSuchRoute: Shape(HTTPStatus.NOT_FOUND, "NoSuchRouteException"),
    WrongMethod: Shape(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowedException"),
    WrongMediaType: Shape(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "BadRequestException"),
    HeadersTooLarge: Shape(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "BadRequestException"),
    BodyTooLarge: Shape(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "BadRequestException"),
    BodyTooSlow: Shape(HTTPStatus.REQUEST_TIMEOUT, "BadRequestException"),
    Unprocessable: Shape(HTTPStatus.UNPROCESSABLE_ENTITY, "UnprocessableEntityException"),
}

# What is missing decides the type: engines fall back differently on a missing table and a missing namespace.
MISSING_TYPES: Mapping[str, str] = {
    "namespace": "NoSuchNamespaceException",
    "table": "NoSuchTableException",
    "view": "NoSuchViewException",
    "warehouse": "NoSuchWarehouseException",
    "file": "NotFoundException",
}

# A verdict that the same request would get again, whoever repeats it: stored under the idempotency key.
_TERMINAL = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.NOT_ACCEPTABLE,
        HTTPStatus.CONFLICT,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
_RETRY_AFTER_S = 1


def shape_of(error: HeadgateError) -> Shape:
    """Status and type of one of our errors."""
    shape = next(SHAPES[kind] for kind in type(error).__mro__ if kind in SHAPES)
    if isinstance(error, errors.NotFound):
        return Shape(shape.status, MISSING_TYPES.get(error.kind, shape.type))
    return shape


def is_terminal(error: HeadgateError) -> bool:
    """Whether the verdict is final, so that a repeat under the same key gets it again."""
    return shape_of(error).status in _TERMINAL


def error_reply(error: HeadgateError) -> Reply:
    """One of our errors as an answer."""
    shape = shape_of(error)
    details: dict[str, object] = {"code": error.code, "retry": error.retry.value}
    if isinstance(error, errors.BadInput) and error.field is not None:
        details["field"] = error.field
    conflict: dict[str, object] | None = None
    if isinstance(error, errors.ConflictFound | errors.Diverged):
        conflict = dict(error.evidence)
    else:
        for name, value in error.evidence.items():
            details.setdefault(name, value)
    body = _body(error.message, shape.type, shape.status, details, conflict)
    return Reply(shape.status, (body,), tuple(_headers(error, shape)))


def crash_reply(error_id: str) -> Reply:
    """An exception that is not ours: the client learns an id, the log the rest."""
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    details = {"code": HeadgateError.code, "retry": errors.Retry.PROBE.value, "error-id": error_id}
    message = f"internal error; error_id={error_id}; the service's log has the details"
    return Reply(status, (_body(message, "InternalServerError", status, details),))


def oauth_error_reply(error: str, description: str, *, client_failed: bool = False) -> Reply:
    """The token endpoint has an error model of its own (RFC 6749, 5.2)."""
    status = HTTPStatus.UNAUTHORIZED if client_failed else HTTPStatus.BAD_REQUEST
    headers: tuple[tuple[str, str], ...] = (("cache-control", "no-store"),)
    if client_failed:
        headers = (*headers, ("www-authenticate", 'Basic realm="headgate"'))
    body = msgspec.json.encode({"error": error, "error_description": description})
    return Reply(status, (body,), headers)


def not_ready_reply(reason: str) -> Reply:
    """What /readyz answers while the service cannot work."""
    return Reply(HTTPStatus.SERVICE_UNAVAILABLE, (msgspec.json.encode({"ready": False, "reason": reason}),))


def stored_reply(status: int, body: bytes) -> Reply:
    """An error that was stored under an idempotency key, once more."""
    return Reply(status, (body,))


def is_failure(status: int) -> bool:
    """Whether a stored or sent status is an error."""
    return status >= HTTPStatus.BAD_REQUEST


def is_our_failure(status: int) -> bool:
    """Whether the service, not the client, is at fault."""
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _headers(error: HeadgateError, shape: Shape) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    if isinstance(error, errors.Overloaded):
        headers.append(("retry-after", str(error.retry_after_s)))
    elif isinstance(error, errors.StorageFailed):
        headers.append(("retry-after", str(_RETRY_AFTER_S)))
    elif isinstance(error, errors.Unauthenticated):
        headers.append(("www-authenticate", 'Bearer realm="headgate"'))
    elif isinstance(error, WrongMethod):
        headers.append(("allow", str(error.evidence.get("allowed", ""))))
    elif isinstance(error, BodyTooLarge | BodyTooSlow | HeadersTooLarge):
        headers.append(("connection", "close"))  # the rest of the request is not read
    return headers


def _body(
    message: str,
    type_name: str,
    status: int,
    details: Mapping[str, object],
    conflict: Mapping[str, object] | None = None,
) -> bytes:
    error = {"message": message, "type": type_name, "code": int(status), "stack": [], "headgate": details}
    if conflict is not None:
        error["conflict"] = conflict
    return msgspec.json.encode({"error": error}, enc_hook=str)
