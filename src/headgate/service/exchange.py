"""Requests and replies as values, and the routes between them. Handlers see these, never ASGI.

A handler is a synchronous function `(services, request) -> Reply`, run in a worker thread. It raises our
errors; it never makes an error reply, and never sees a request that its route's role forbids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from http import HTTPStatus

import msgspec

from headgate.core.commit import Committed, Verdict
from headgate.core.value import Record
from headgate.errors import BadInput
from headgate.format import strict_json
from headgate.service.roles import Caller, Role
from headgate.service.services import Services

JSON = "application/json"
_OK, _ACCEPTED = int(HTTPStatus.OK), int(HTTPStatus.ACCEPTED)
LEVEL_SEPARATOR = "\x1f"
_ENCODE_JSON = msgspec.json.Encoder(decimal_format="number").encode


class Request(msgspec.Struct):
    """One request, read completely. Path parameters are decoded once; header names are lower case.

    `caller` is nobody until the application knows who it is; no handler sees it before.
    """

    method: str
    path: str  # as sent, still percent-encoded
    params: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    caller: Caller
    client_address: str = ""
    json_depth_max: int = strict_json.DEPTH_MAX

    @property
    def namespace(self) -> tuple[str, ...]:
        """The levels of the `{namespace}` in the path; not yet checked to be a name we would create."""
        return split_levels(self.params["namespace"])

    def json(self) -> object:
        """The body, strictly decoded."""
        return strict_json.decode(self.body, self.json_depth_max)

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean query parameter."""
        text = self.query.get(name, "").lower()
        if text in ("", "true", "false"):
            return default if not text else text == "true"
        raise BadInput(f"{name}: expected true or false, got {text!r}", field=name)


@dataclass(frozen=True, slots=True)
class Hold:
    """A reply may wait for an event after `seen`, without a worker; then `look` makes the reply anew.

    What no event tells of has no `seen`: it is looked for again and again, less and less often.
    """

    within_ms: int
    seen: int | None
    look: Callable[[], Reply]


class Later(Record, gc=True):
    """A reply that comes when a commit has its verdict: `start` begins it without waiting, `finish` makes the reply.

    `start` is given whom to tell, and may raise; `finish` raises the error of a refusal.
    """

    start: Callable[[Callable[[Verdict], None]], None]
    finish: Callable[[Committed], Reply]


class Reply(Record, gc=True):
    """An answer. The parts of the body are sent as they are, one after the other."""

    status: int
    parts: tuple[bytes, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = JSON
    hold: Hold | None = None  # there is nothing to tell yet: wait before this is sent
    later: Later | None = None  # this is no reply yet

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.parts)


Handler = Callable[[Services, Request], Reply]


class Body(Enum):
    """What a route reads."""

    NONE = "none"
    JSON = "application/json"
    FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the table of routes. A role of None means: open to everybody, also without a token."""

    method: str
    template: str
    handler: Handler
    role: Role | None
    body: Body = Body.NONE
    takes_key: bool = False  # a mutation: honours Idempotency-Key, and a timeout is reported as unknown
    advertised: bool = True
    inline: bool = False  # answered on the event loop, even under overload: may not wait for anything
    # Tried on the event loop first: no I/O in it, and None when the request needs a worker after all.
    quick: Callable[[Services, Request], Reply | None] | None = None

    @property
    def endpoint(self) -> str:
        """As /v1/config lists it."""
        return f"{self.method} {self.template.replace('/v1/', '/v1/{prefix}/', 1)}"


# What rebuilds the answer to a key's stored success, by the `kind` of the stored JSON.
Replayer = Callable[[Services, Request, Mapping[str, object]], Reply]


@dataclass(frozen=True, slots=True)
class RouteTable:
    """All routes and replayers of a service."""

    routes: tuple[Route, ...]
    replayers: Mapping[str, Replayer] = field(default_factory=dict)


def json_reply(value: object, *, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """200 with a JSON body."""
    return Reply(_OK, (_ENCODE_JSON(value),), headers)


def parts_reply(parts: tuple[bytes, ...], *, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """200 with a JSON body that is encoded already."""
    return Reply(HTTPStatus.OK, parts, headers)


def no_content() -> Reply:
    """204."""
    return Reply(HTTPStatus.NO_CONTENT)


def later(start: Callable[[Callable[[Verdict], None]], None], finish: Callable[[Committed], Reply]) -> Reply:
    """A reply that comes when a commit has its verdict."""
    return Reply(_ACCEPTED, later=Later(start, finish))


def not_modified(etag: str) -> Reply:
    """304: what the client holds is still true."""
    return Reply(HTTPStatus.NOT_MODIFIED, (), (("etag", etag),))


def text_reply(text: bytes, content_type: str) -> Reply:
    """200 with something else than JSON."""
    return Reply(HTTPStatus.OK, (text,), (), content_type)


@lru_cache(maxsize=256)
def split_levels(text: str) -> tuple[str, ...]:
    """The levels of a namespace on the wire; the empty text is the root."""
    return tuple(text.split(LEVEL_SEPARATOR)) if text else ()
