"""The Prefer header (RFC 7240): what a client would like of an answer. What is not known is ignored."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache

HEADER = "prefer"


def wants_minimal(headers: Mapping[str, str]) -> bool:
    """Whether the first `return` preference is `minimal`; of two of one name the first counts."""
    value = _find(headers, "return")
    return value is not None and value.lower() == "minimal"


def wants_async(headers: Mapping[str, str]) -> bool:
    """Whether an acknowledgement will do, and the verdict is asked for later."""
    return _find(headers, "respond-async") is not None


def find_wait(headers: Mapping[str, str]) -> str | None:
    """How many seconds the client would wait for an answer, as it says so; None when it does not."""
    return _find(headers, "wait")


def _find(headers: Mapping[str, str], wanted: str) -> str | None:
    """The value of a preference, empty when it has none; None when it is not there."""
    text = headers.get(HEADER)
    return None if text is None else _parse(text).get(wanted)


@lru_cache(maxsize=256)
def _parse(text: str) -> Mapping[str, str]:
    """All preferences of a header; clients send few different ones."""
    found: dict[str, str] = {}
    for preference in text.split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        found.setdefault(name.strip().lower(), value.strip().strip('"'))
    return found


def wants_fold(headers: Mapping[str, str]) -> bool | None:
    """Whether an append may share its snapshot with others (`group=fold`), or not (`group=chain`); None: not said."""
    value = _find(headers, "group")
    return {"fold": True, "chain": False}.get((value or "").lower())


def find_deadline(headers: Mapping[str, str]) -> float | None:
    """When the client's patience ends (`wait=<seconds>`), by the monotonic clock; None when it does not say."""
    value = find_wait(headers)
    if value is None or not value.isascii() or not value.isdigit() or len(value) > 6:
        return None
    return time.monotonic() + int(value)
