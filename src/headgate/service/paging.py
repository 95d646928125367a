"""Pages of a listing: an opaque token that says where the next page begins.

A token belongs to the listing that gave it: one that was made up, or given for another listing, is refused.
It holds no secret and proves nothing; it is checked so that garbage is not read as a place to begin.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headgate.errors import BadInput

_T = TypeVar("_T")
_CHECK_BYTES = 8
_TOKEN_CHARS_MAX = 2048


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What a client asked for. Without a token it wants everything at once: the specification's rule."""

    paged: bool
    after: str | None
    size: int


def read_page(query: Mapping[str, str], *, listing: str, size_max: int) -> PageRequest:
    """The page that a query asks for. `listing` names what is listed, like `tables:a.b`."""
    size = read_size(query.get("pageSize", ""), size_max)
    token = query.get("pageToken")
    if token is None:
        return PageRequest(paged=False, after=None, size=size_max)
    return PageRequest(paged=True, after=decode_token(token, listing) if token else None, size=size)


def load_page(
    page: PageRequest,
    load: Callable[[str | None, int], Sequence[_T]],
    *,
    name_of: Callable[[_T], str],
    listing: str,
) -> tuple[list[_T], str | None]:
    """The items of a page, and the token of the next one. `load(after, limit)` reads sorted items."""
    if page.paged:
        found = list(load(page.after, page.size + 1))
        items = found[: page.size]
        return items, encode_token(name_of(items[-1]), listing) if len(found) > page.size else None
    items, after = [], None
    while True:  # bounded by the number of items: each turn moves `after` on
        found = list(load(after, page.size))
        items += found
        if len(found) < page.size:
            return items, None
        after = name_of(found[-1])


def read_size(text: str, size_max: int, *, field: str = "pageSize") -> int:
    """How many items a client wants at most; all that it may have when it does not say."""
    if not text:
        return size_max
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= 1):
        raise BadInput(f"{field}: expected a number of at least 1, got {text[:50]!r}", field=field)
    return min(int(text), size_max)


def encode_token(after: str, listing: str) -> str:
    """The place behind `after` in a listing, as an opaque text."""
    text = after.encode()
    return base64.urlsafe_b64encode(_check(text, listing) + text).decode("ascii").rstrip("=")


def decode_token(token: str, listing: str, *, field: str = "pageToken") -> str:
    """The place that a token names; BadInput when it is not of this listing."""
    refused = BadInput(f"{field}: not a token of this listing", field=field)
    if len(token) > _TOKEN_CHARS_MAX or not token.isascii():
        raise refused
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        check, text = raw[:_CHECK_BYTES], raw[_CHECK_BYTES:]
        if check != _check(text, listing):
            raise refused
        return text.decode("utf-8")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise refused from error


def _check(text: bytes, listing: str) -> bytes:
    return hashlib.sha256(listing.encode("utf-8", "surrogatepass") + b"\0" + text).digest()[:_CHECK_BYTES]
