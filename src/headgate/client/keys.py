"""Idempotency keys: UUIDv7 (RFC 9562), made here because Python before 3.14 makes none."""

from __future__ import annotations

import secrets
import time
from uuid import UUID

_VERSION, _VARIANT = 0x7 << 76, 0x2 << 62


def new_key() -> str:
    """A fresh key: milliseconds since 1970, then 74 random bits."""
    random = secrets.randbits(74)
    high, low = random >> 62, random & (2**62 - 1)
    now_ms = time.time_ns() // 1_000_000
    return str(UUID(int=(now_ms << 80) | _VERSION | (high << 64) | _VARIANT | low))
