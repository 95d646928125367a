"""Which names namespaces, tables and views may have, and how a name becomes a folder name.

A refused name never reaches a path, a policy, a log line or a page. Never repairs a name: it is taken as sent
or refused, because a catalog that normalises silently makes two callers disagree about what exists.
Quotes and wildcards are refused: in another catalog they widened storage policies (CVE-2026-42810, -42811).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from headgate.errors import BadInput

NAME_BYTES_MAX = 255
LEVELS_MAX = 32
SEGMENT_BYTES_MAX = 200  # a file name has 255; the rest is for what a caller appends (a uuid, say)

# The unit separator 0x1F joins namespace levels on the wire; it is one of the control characters.
_PUNCTUATION = frozenset("/\\*?'\"`%")
_CATEGORIES = {
    "Cc": "a control character",
    "Cf": "a format or bidirectional control character",
    "Cs": "a lone surrogate",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}

_PLAIN = re.compile(r"[A-Za-z0-9_.-]")
_LOOKS_ESCAPED = re.compile(r"_u[0-9a-f]{4}")


def check_name(name: str, *, field: str) -> str:
    """The name itself when it may be used; BadInput that names the field otherwise."""
    if (fault := _find_fault(name)) is not None:
        shown = repr(name if len(name) <= NAME_BYTES_MAX else name[:NAME_BYTES_MAX] + "…")
        raise BadInput(f"name refused: {fault}; field={field} name={shown}", field=field, name=shown)
    return name


def check_levels(levels: Iterable[str], *, field: str) -> tuple[str, ...]:
    """The levels of a namespace when each may be used; BadInput that names the field and level otherwise."""
    checked = tuple(levels)
    if not checked:
        raise BadInput(f"namespace refused: it has no levels; field={field}", field=field)
    if len(checked) > LEVELS_MAX:
        raise BadInput(
            f"namespace refused: too many levels; field={field} levels={len(checked)} max={LEVELS_MAX}",
            field=field,
        )
    return tuple(check_name(level, field=f"{field}[{at}]") for at, level in enumerate(checked))


def path_segment(name: str) -> str:
    """A safe ASCII folder name for a checked name; different names give different segments.

    Letters, digits, `-`, `_` and inner dots stay; any other UTF-16 unit becomes `_u` and four hex digits. An
    underscore that would read as such an escape is escaped itself, so the mapping can be reversed. A result
    that reaches the length limit is cut to it and ends in a hash of the whole name.
    """
    encoded = "".join(_encode(name, at) for at in range(len(name)))
    if len(encoded) < SEGMENT_BYTES_MAX:
        return encoded
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return f"{encoded[: SEGMENT_BYTES_MAX - 33]}-{digest}"


def _encode(name: str, at: int) -> str:
    char = name[at]
    plain = _PLAIN.match(char) is not None
    if plain and not (char == "." and at == 0) and _LOOKS_ESCAPED.match(name, at) is None:
        return char
    units = char.encode("utf-16-be")
    return "".join(f"_u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _find_fault(name: str) -> str | None:
    if not name:
        return "it is empty"
    if len(name) > NAME_BYTES_MAX:
        return f"it is longer than {NAME_BYTES_MAX} bytes"
    return _find_short_fault(name)


@lru_cache(maxsize=4096)
def _find_short_fault(name: str) -> str | None:
    """Remembered: the same few names come with every request."""
    if name in (".", ".."):
        return "it is a dot segment of a path"
    for char in name:
        if char in _PUNCTUATION:
            return f"it has the character {char!r}"
        if (what := _CATEGORIES.get(unicodedata.category(char))) is not None:
            return f"it has {what}, U+{ord(char):04X}"
        if _is_noncharacter(char):
            return f"it has a noncharacter, U+{ord(char):04X}"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"it is longer than {NAME_BYTES_MAX} bytes"
    if name != name.strip():
        return "it begins or ends with whitespace"
    if not unicodedata.is_normalized("NFC", name):
        return "it is not in Unicode normal form C"
    return None


def _is_noncharacter(char: str) -> bool:
    point = ord(char)
    return 0xFDD0 <= point <= 0xFDEF or (point & 0xFFFE) == 0xFFFE
