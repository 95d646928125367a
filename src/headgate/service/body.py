"""Reading a request's body: of the right type, up to a limit, in time. Async, at the edge of HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from headgate.errors import BadInput
from headgate.service.exchange import Body
from headgate.service.http_errors import BodyTooLarge, BodyTooSlow, WrongMediaType

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_DRAIN_TIMEOUT_S = 2.0
_JSON = Body.JSON.value


class Disconnected(Exception):  # noqa: N818 — nobody is there to be told of an error
    """The client went away before its request was complete."""


def check_media_type(kind: Body, headers: Mapping[str, str]) -> None:
    """Refuse a body that the route would misread. A form is never JSON: browsers send forms unasked."""
    text = headers.get("content-type", "")
    if text == _JSON and kind is Body.JSON and "content-encoding" not in headers:
        return  # as it almost always is
    media, _, parameters = text.partition(";")
    if media.strip().lower() != kind.value:
        raise WrongMediaType(f"Content-Type: expected {kind.value}, got {text!r}", field="Content-Type")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise WrongMediaType("Content-Encoding: compressed bodies are not read", field="Content-Encoding")
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "charset" and value.strip('"').lower() not in ("utf-8", "utf8", "us-ascii"):
            raise WrongMediaType(f"Content-Type: expected UTF-8, got {text!r}", field="Content-Type")


def check_length(headers: Mapping[str, str], limit_bytes: int) -> None:
    """Refuse a body by its declared length."""
    declared = headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()):
        raise BadInput("Content-Length: expected a number", field="Content-Length")
    if int(declared) > limit_bytes:
        raise too_large(limit_bytes)


async def read_body(
    receive: Receive, headers: Mapping[str, str], *, limit_bytes: int, timeout_s: float
) -> bytes:
    """The whole body. Over the limit, a bounded rest is read and dropped, so that the client sees why."""
    try:
        check_length(headers, limit_bytes)
    except BodyTooLarge:
        await _drain(receive, limit_bytes)
        raise
    parts: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(timeout_s):
            async for part in _parts(receive):
                size_bytes += len(part)
                if size_bytes > limit_bytes:
                    break
                parts.append(part)
    except TimeoutError as error:
        raise BodyTooSlow(f"the body did not arrive within {timeout_s:g} s", field="body") from error
    if size_bytes > limit_bytes:
        await _drain(receive, limit_bytes)
        raise too_large(limit_bytes)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def too_large(limit_bytes: int) -> BodyTooLarge:
    """What is said of a body over the limit, whatever was declared."""
    text = f"the body is over the limit of {limit_bytes} bytes"
    return BodyTooLarge(text, field="body", limit_bytes=limit_bytes)


async def _parts(receive: Receive) -> Any:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def _drain(receive: Receive, limit_bytes: int) -> None:
    """A socket closed with unread bytes resets the connection, and the client would never see why."""
    left_bytes = limit_bytes
    try:
        async with asyncio.timeout(_DRAIN_TIMEOUT_S):
            async for part in _parts(receive):
                left_bytes -= len(part)
                if left_bytes < 0:
                    return
    except TimeoutError:
        return
