"""Headers in, headers out: between what a server hands over and requests and replies as values."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any

from headgate.errors import invariant
from headgate.service.exchange import Reply
from headgate.service.http_errors import HeadersTooLarge
from headgate.service.services import Services

Scope = MutableMapping[str, Any]

REQUEST_ID = "x-request-id"
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


def request_id_of(headers: dict[str, str], services: Services) -> str:
    """The id that the client gave, if it is a plain one, or a new one."""
    given = headers.get(REQUEST_ID)
    return given if given and _REQUEST_ID.fullmatch(given) else services.new_uuid()


def reply_headers(reply: Reply, request_id: str) -> list[tuple[bytes, bytes]]:
    """The headers of a reply, its length among them."""
    headers = [(REQUEST_ID.encode(), request_id.encode())]
    headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers]
    if reply.parts:
        headers.append((b"content-type", reply.content_type.encode("latin-1")))
        headers.append((b"content-length", b"%d" % sum(map(len, reply.parts))))
    elif reply.status not in _BODILESS:
        headers.append((b"content-length", b"0"))
    return headers


def encode_reply(reply: Reply, request_id: str, *, keep_alive: bool) -> tuple[bytes, ...]:
    """A whole answer, for a server that is given bytes."""
    head = b"".join([b"%b: %b\r\n" % header for header in reply_headers(reply, request_id)])
    invariant(head.count(b"\n") == len(reply.headers) + (3 if reply.parts else 2), "a header is one line")
    ending = b"\r\n" if keep_alive else b"connection: close\r\n\r\n"
    return (b"".join((_STATUS_LINES[int(reply.status)], head, ending)), *reply.parts)
