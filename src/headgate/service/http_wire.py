"""Headers in, headers out: between what a server hands over and requests and replies as values."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from headgate.errors import InvariantBroken
from headgate.service.exchange import Reply
from headgate.service.http_errors import HeadersTooLarge

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JOIN_BYTES_MAX = 1 << 20  # below this, one joined message is cheaper than several
REQUEST_ID = "x-request-id"
_REQUEST_ID_BYTES = REQUEST_ID.encode()
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_STATUS_LINES = {
    int(status): f"HTTP/1.1 {int(status)} {status.phrase}\r\n".encode("latin-1") for status in HTTPStatus
}


def read_headers(scope: Scope) -> dict[str, str]:
    """Headers by lower-case name; of a repeated one the first counts."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return headers


def check_header_size(scope: Scope, limit_bytes: int) -> None:
    """Refuse headers over the limit."""
    size_bytes = len(scope["raw_path"]) + len(scope["query_string"])
    for name, value in scope["headers"]:
        size_bytes += len(name) + len(value) + 4
    if size_bytes > limit_bytes:
        raise HeadersTooLarge(
            f"request line and headers are over {limit_bytes} bytes", limit_bytes=limit_bytes
        )


def find_request_id(headers: Mapping[str, str]) -> str | None:
    """The id that the client gave, if it is a plain one."""
    given = headers.get(REQUEST_ID)
    return given if given and _REQUEST_ID.fullmatch(given) else None


def reply_headers(reply: Reply, request_id: str) -> list[tuple[bytes, bytes]]:
    """The headers of a reply, its length among them."""
    headers = [(_REQUEST_ID_BYTES, request_id.encode())]
    for name, value in reply.headers:
        headers.append((name.encode("latin-1"), value.encode("latin-1")))
    if reply.parts:
        headers.append((b"content-type", reply.content_type.encode("latin-1")))
        headers.append((b"content-length", b"%d" % sum(map(len, reply.parts))))
    elif reply.status not in _BODILESS:
        headers.append((b"content-length", b"0"))
    return headers


def encode_reply(reply: Reply, request_id: str, *, keep_alive: bool) -> tuple[bytes, ...]:
    """A whole answer, for a server that is given bytes."""
    parts = reply.parts
    if parts:
        form, lines = _form_of(reply.status, reply.headers, reply.content_type, keep_alive)
        head = form % (request_id.encode(), sum(map(len, parts)))
    else:
        form, lines = _form_of(reply.status, reply.headers, None, keep_alive)
        head = form % request_id.encode()
    if head.count(b"\n") != lines:
        raise InvariantBroken("invariant broken: a header is one line")
    return (head, *parts)


@lru_cache(maxsize=256)
def _form_of(
    status: int, headers: tuple[tuple[str, str], ...], content_type: str | None, keep_alive: bool
) -> tuple[bytes, int]:
    """The head of a reply with holes for its id and its length, if it has any, and how many lines that is.

    Many replies differ in nothing else.
    """
    reply = Reply(status, () if content_type is None else (b"",), headers, content_type or "")
    (id_name, _), *others = reply_headers(reply, "")
    length = (others.pop()[0], b"%d") if content_type is not None else None
    escaped = [(name.replace(b"%", b"%%"), value.replace(b"%", b"%%")) for name, value in others]
    found = [(id_name, b"%b"), *escaped, *(() if length is None else (length,))]
    if not keep_alive:
        found.append((b"connection", b"close"))
    head = b"".join([b"%b: %b\r\n" % header for header in found])
    return _STATUS_LINES[status] + head + b"\r\n", len(found) + 2


async def send_reply(send: Send, reply: Reply, request_id: str, *, head: bool) -> None:
    """A whole answer, for a server that speaks ASGI; to HEAD without its body."""
    size_bytes = sum(map(len, reply.parts))
    headers = reply_headers(reply, request_id)
    await send({"type": "http.response.start", "status": int(reply.status), "headers": headers})
    if head or size_bytes <= _JOIN_BYTES_MAX:
        body = b"" if head else b"".join(reply.parts)
        await send({"type": "http.response.body", "body": body, "more_body": False})
        return
    for part in reply.parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
