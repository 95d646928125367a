"""The Prefer header (RFC 7240): what a client would like of an answer. What is not known is ignored."""

from __future__ import annotations

from collections.abc import Mapping

HEADER = "prefer"


def wants_minimal(headers: Mapping[str, str]) -> bool:
    """Whether the first `return` preference is `minimal`; of two of one name the first counts."""
    for preference in headers.get(HEADER, "").split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "return":
            return value.strip().strip('"').lower() == "minimal"
    return False
