"""The Prefer header (RFC 7240): what a client would like of an answer. What is not known is ignored."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache

from headgate.core.value import Record

HEADER = "prefer"
_FOLDS = {"fold": True, "chain": False}


class Preferences(Record):
    """All that a header says and we know. Of two preferences of one name the first counts."""

    is_minimal: bool = False  # `return=minimal`
    is_async: bool = False  # `respond-async`: an acknowledgement will do, and the verdict is asked for later
    fold: bool | None = (
        None  # `group=fold`: an append may share its snapshot; `group=chain`: it may not; None: not said
    )
    wait: str | None = None  # `wait=<seconds>` that the client would wait for an answer, as it says so
    wait_s: int | None = None  # the same, if it is a plain number


_NONE = Preferences()


def read_preferences(headers: Mapping[str, str]) -> Preferences:
    """The preferences of a request."""
    text = headers.get(HEADER)
    return _NONE if text is None else _parse(text)


@lru_cache(maxsize=256)
def _parse(text: str) -> Preferences:
    """Clients send few different ones."""
    found: dict[str, str] = {}
    for preference in text.split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        found.setdefault(name.strip().lower(), value.strip().strip('"'))
    wait = found.get("wait")
    is_number = wait is not None and wait.isascii() and wait.isdigit() and len(wait) <= 6
    return Preferences(
        is_minimal=found.get("return", "").lower() == "minimal",
        is_async="respond-async" in found,
        fold=_FOLDS.get(found.get("group", "").lower()),
        wait=wait,
        wait_s=int(wait) if is_number and wait is not None else None,
    )


def wants_minimal(headers: Mapping[str, str]) -> bool:
    """Whether the answer need not tell what was there before."""
    return read_preferences(headers).is_minimal


def find_wait(headers: Mapping[str, str]) -> str | None:
    """How many seconds the client would wait for an answer, as it says so; None when it does not."""
    return read_preferences(headers).wait


def find_deadline(preferences: Preferences) -> float | None:
    """When the client's patience ends, by the monotonic clock; None when it does not say."""
    wait_s = preferences.wait_s
    return None if wait_s is None else time.monotonic() + wait_s
