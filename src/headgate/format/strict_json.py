"""JSON in, strictly: one meaning per text, or `BadInput` with a position or a path.

Refuses what parsers disagree about (duplicate keys, NaN, integers beyond 64 bits, bytes that are not UTF-8)
and what costs more to read than to send (depth, millions of containers). Never keeps the last of two keys.

How duplicates are found at C speed: a text without its strings is its structure, and in the structure each
colon is one member. msgspec keeps one of two equal keys, so a decoded value printed again has fewer colons
than the text it came from. Measured on 7 MB of data files: 0.3 s, against 0.5 s for `json` with a pairs hook.

A small text without escapes and without blanks behind strings needs no structure: `":` ends a key or begins a string
that begins with a colon, and is printed again where it stood. 500 bytes of one file: 8 µs instead of 22.

And a small text that is just as its typed value would be printed needs nothing else: nothing is printed twice. That is
what a client sends that has the same kinds. So no kind that is read here may hold `Raw`, which is printed as it came.
"""

from __future__ import annotations

import json
import re
from array import array
from itertools import accumulate
from typing import TypeVar

import msgspec

from headgate.core.value import Record
from headgate.errors import BadInput, TooLarge

DEPTH_MAX = 64
CONTAINERS_MAX = 2_000_000  # 100,000 files of a commit are below this; a bomb of "[]," is above

_T = TypeVar("_T")

_SCAN_BYTES = (
    1 << 20
)  # split by quotes in windows, so that a text of quotes does not become a list of millions
_NAMING_BYTES_MAX = 4 << 20  # a duplicate key is looked up by name in texts up to this size
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: +1 and -1
_PLAIN_BYTES_MAX = 1 << 16
_NOT_PLAIN = (
    b"\\",
    b'" ',
    b'"\t',
    b'"\r',
    b'"\n',
)  # five searches take a tenth of one for all by an expression
_DIGITS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_LONG = b"0" * 19
_ENCODE, _DECODE = msgspec.json.Encoder().encode, msgspec.json.decode
_LONG_DIGITS = re.compile(rb"(?<![\d.eE+-])(-?\d{19,})(?![\d.eE])")
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def decode(text: bytes, max_depth: int = DEPTH_MAX) -> object:
    """The value of a JSON text, read strictly."""
    if (plain := _decode_plain(text, max_depth)) is not None:
        return plain
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput("the body is not UTF-8", position=error.start) from error
    structure = _structure(text)
    _check_size(structure, max_depth)
    value = _decode_any(text)
    _check_integers(structure, text)
    if _structure(msgspec.json.encode(value)).count(b":") != structure.count(b":"):
        name = _find_duplicate(text)
        known = "" if name is None else f": {name!r}"
        raise BadInput(f"the JSON has a key twice in one object{known}", field=name)
    return value


def decode_into(kind: type[_T], text: bytes, field_prefix: str = "", max_depth: int = DEPTH_MAX) -> _T:
    """The value of a JSON text as `kind`, read strictly; a wrong type names its JSON path as `field`."""
    if _is_tame(text, max_depth):
        try:
            value = _DECODE(text, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # what is wrong is said below
        else:
            if _ENCODE(value) == text:  # what is printed has no key twice
                return value
    decode(text, max_depth)
    try:
        return _DECODE(text, type=kind)
    except msgspec.ValidationError as error:
        raise _wrong_shape(error, field_prefix) from error


def prepare_kinds() -> None:
    """Make decoders of all kinds known so far. Call it once, before threads decode.

    msgspec 0.22 learns what a Struct holds when it is first asked to decode one, and two threads that ask at once
    end the process (SIGSEGV): a service restarted under load died in its first second.
    """
    # Records are never decoded, and some hold what JSON cannot tell apart.
    kinds = [kind for kind in msgspec.Struct.__subclasses__() if kind is not Record]
    for kind in kinds:  # grows while it is walked
        kinds.extend(kind.__subclasses__())
        msgspec.json.Decoder(kind)


def convert_into(kind: type[_T], value: object, field_prefix: str = "") -> _T:
    """A decoded value as `kind`; a wrong type names its JSON path as `field`."""
    try:
        return msgspec.convert(value, type=kind)
    except msgspec.ValidationError as error:
        raise _wrong_shape(error, field_prefix) from error


def _decode_plain(text: bytes, max_depth: int) -> object | None:
    """The value of a text that is plainly right; None says nothing."""
    if not _is_tame(text, max_depth):
        return None
    for sign in _NOT_PLAIN:
        if sign in text:
            return None
    try:
        value = _DECODE(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value if _ENCODE(value).count(b'":') == text.count(b'":') else None


def _is_tame(text: bytes, max_depth: int) -> bool:
    """Whether it is small, and has neither many brackets nor long numbers, wherever they stand."""
    return (
        len(text) <= _PLAIN_BYTES_MAX
        and text.count(b"[") + text.count(b"{") <= max_depth
        and _LONG not in text.translate(_DIGITS)
    )


def _structure(text: bytes) -> bytes:
    """The text without its strings. Exact for valid JSON, where backslashes stand in strings only."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    kept: list[bytes] = []
    inside = False
    for start in range(0, len(text), _SCAN_BYTES):
        pieces = text[start : start + _SCAN_BYTES].split(b'"')
        kept.append(b"".join(pieces[int(inside) :: 2]))
        inside ^= len(pieces) % 2 == 0
    return b"".join(kept)


def _check_size(structure: bytes, max_depth: int) -> None:
    brackets = structure.translate(_STEPS, _NOT_BRACKETS)
    if len(brackets) > 2 * CONTAINERS_MAX:
        raise TooLarge(f"the JSON has more than {CONTAINERS_MAX} objects and arrays", limit=CONTAINERS_MAX)
    if max(accumulate(array("b", brackets)), default=0) > max_depth:
        raise BadInput(f"the JSON is nested deeper than {max_depth} levels", limit=max_depth)


def _decode_any(text: bytes) -> object:
    try:
        return _DECODE(text)
    except (msgspec.DecodeError, RecursionError) as error:
        # The brackets of a malformed text need not be balanced, so the depth may still be beyond the parser.
        raise BadInput(f"the body is not valid JSON: {error}") from error


def _check_integers(structure: bytes, text: bytes) -> None:
    for found in _LONG_DIGITS.finditer(structure):
        digits = found.group(1)
        if len(digits) > 20 or not _INT64_MIN <= int(digits) <= _INT64_MAX:
            raise BadInput("the JSON has an integer beyond 64 bits", position=text.find(digits))


def _find_duplicate(text: bytes) -> str | None:
    if len(text) > _NAMING_BYTES_MAX:
        return None
    found: list[str] = []

    def watch(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                found.append(name)
            seen.add(name)

    json.loads(text, object_pairs_hook=watch)
    return found[0] if found else None


def _wrong_shape(error: msgspec.ValidationError, prefix: str) -> BadInput:
    """msgspec says "Expected `int`, got `str` - at `$.updates[0].x`"; the path becomes the field."""
    message = str(error)
    text, _, path = message.rpartition(" - at `")
    if not text:
        text, path = message, "$"
    path = path.removesuffix("`").removeprefix("$").removeprefix(".")
    missing = re.search(r"missing required field `([^`]+)`", text)
    if missing:
        path = f"{path}.{missing.group(1)}" if path else missing.group(1)
    field = ".".join(part for part in (prefix, path) if part) or None
    where = f"{field}: " if field else ""
    return BadInput(f"{where}{text[:1].lower()}{text[1:]}", field=field)
