"""Which locations this catalog may touch: one form, one allow-list, for every location from outside.

A location that passes `LocationPolicy.allow` names the same object to every reader of it, also to one that
resolves dot segments, folds slashes or decodes percent escapes, and that object is inside an allowed root.
Never repairs: what two readers could understand differently is refused. Engines compare locations as strings,
so the canonical form is stable: `file:///abs/path` or `s3://bucket/key`, no trailing slash.

Escapes are never decoded for use: `%3A` in a location is three characters of the object's name, as engines
mean it. They are decoded only to ask what a careless reader would see. Places that people and clients choose
(table locations, path properties, metadata files) may not escape a dot, slash, backslash, control or percent.
Files that engines name (`canonical_file`) may: a partition value `a/b` is written `a%2Fb`, and refusing that
would refuse the rows. There, no decoding may produce a dot segment or NUL, so no reading leaves the root.

Symlinks are not visible here; `files.local` refuses them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn
from urllib.parse import unquote

from headgate.errors import LocationRefused

S3_KEY_BYTES_MAX = 1024
FILE_PATH_BYTES_MAX = 4095  # PATH_MAX of Linux is 4096 with its closing NUL
FILE_SEGMENT_BYTES_MAX = 255

# Table and view properties whose value is a location. `write.location-provider.impl` is none: it is the name
# of a class that engines load and this service never does.
PATH_PROPERTIES = frozenset(
    {
        "write.data.path",
        "write.folder-storage.path",
        "write.metadata.path",
        "write.object-storage.path",
    }
)

# s3a and s3n are Hadoop's names for the same objects.
_SCHEMES = {"file": "file", "s3": "s3", "s3a": "s3", "s3n": "s3"}
_SPELLINGS = (("file:///", "file://localhost/", "file:/", "/"), ("s3://", "s3a://", "s3n://"))
# In canonical form whatever one asks: no escape, no dot segment, nothing that is empty or too long. A match, or None.
find_plain_file = re.compile(
    rf"(?=.{{1,{S3_KEY_BYTES_MAX}}}\Z)file://(?:/[A-Za-z0-9_=-][A-Za-z0-9_=.-]{{0,200}})+"
).fullmatch
_SPELLED = re.compile("|".join(sorted((p for way in _SPELLINGS for p in way), key=len, reverse=True)))
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9-]|\.(?![.-])){1,61}[a-z0-9]")
_ADDRESS = re.compile(r"[0-9]+(?:\.[0-9]+){3}")

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_FORBIDDEN_CHARS = re.compile(f"[\\\\?#*\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff{_BIDI}]")
_FORBIDDEN_TEXT: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\\"), "a backslash"),
    (re.compile(r"[?#]"), "a query or fragment"),
    (re.compile(r"\*"), "a wildcard"),
    (re.compile("[\ud800-\udfff]"), "a lone surrogate"),
    (re.compile(f"[\ufeff{_BIDI}]"), "a bidirectional or invisible control character"),
    (re.compile(""), "a control character"),
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_DOT_OR_NUL_ESCAPE = re.compile(r"%(?:2[eE]|00)")
_SEPARATORS = re.compile(r"[/\\]")
_SHOWN_CHARS_MAX = 300


def canonical(location: str, *, field: str) -> str:
    """The one form of a place that a client chose; LocationRefused that names the field otherwise."""
    try:
        return _known(location)
    except LocationRefused:
        return _canonical(location, field, _find_strict_escape_fault)


@lru_cache(maxsize=1024)
def _known(location: str) -> str:
    """Tables' locations are asked for with every commit; an error is not remembered."""
    return _canonical(location, "", _find_strict_escape_fault)


def canonical_file(location: str, *, field: str) -> str:
    """The one form of a file that an engine named: as `canonical`, but it may hold escaped values."""
    if find_plain_file(location) is not None:
        return location
    return _canonical(location, field, _find_file_escape_fault)


@dataclass(frozen=True, slots=True)
class LocationPolicy:
    """The roots that locations must be inside: the warehouse first, then what the operator added."""

    roots: tuple[str, ...]
    _prefixes: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        roots = tuple(canonical(root, field="warehouse") for root in self.roots)
        object.__setattr__(self, "roots", roots)
        # The slash keeps `/warehouse-of-someone-else` out of `/warehouse`.
        object.__setattr__(self, "_prefixes", tuple(root + "/" for root in roots))

    def allow(self, location: str, *, field: str) -> str:
        """The canonical form of a chosen place strictly inside a root; LocationRefused otherwise."""
        return self._inside(canonical(location, field=field), field)

    def allow_file(self, location: str, *, field: str) -> str:
        """The canonical form of an engine's data, delete or manifest file strictly inside a root."""
        if location.startswith(self._prefixes) and find_plain_file(location) is not None:
            return location
        return self._inside(canonical_file(location, field=field), field)

    def allow_under(self, location: str, parent: str, *, field: str) -> str:
        """As `allow`, and strictly inside `parent`, which must itself be allowed."""
        inner = self.allow(location, field=field)
        outer = self.allow(parent, field=field)
        if not inner.startswith(outer + "/"):
            _refuse(location, field, f"it is not inside {outer!r}")
        return inner

    def _inside(self, location: str, field: str) -> str:
        if not location.startswith(self._prefixes):
            _refuse(location, field, "it is not inside an allowed root")
        return location


def check_properties(properties: Mapping[str, str], policy: LocationPolicy) -> None:
    """Apply the policy to each property that holds a location; LocationRefused names the first that fails."""
    for name in sorted(PATH_PROPERTIES & properties.keys()):
        policy.allow(properties[name], field=f"properties.{name}")


def find_spellings(location: str) -> tuple[str, ...]:
    """All ways in which engines write the same location, this one first: Hadoop says `file:/a` for `file:///a`."""
    for spellings in _SPELLINGS:
        if not location.startswith(spellings):
            continue
        for prefix in spellings:
            rest = location.removeprefix(prefix)
            if rest != location and not rest.startswith("/"):
                return (location, *[other + rest for other in spellings if other != prefix])
    return (location,)


def find_stem(location: str) -> str:
    """What all spellings of a location have in common: they have one stem, though not only they."""
    found = _SPELLED.match(location)
    return location if found is None else location[found.end() :]


def _canonical(location: str, field: str, find_escape_fault: Callable[[str], str | None]) -> str:
    if (fault := _find_text_fault(location)) is not None:
        _refuse(location, field, fault)
    prefix, path = _split(location, field)
    if (fault := _find_path_fault(path)) is not None:
        _refuse(location, field, fault)
    if "%" in path and (fault := find_escape_fault(path)) is not None:
        _refuse(location, field, fault)
    path = path.removesuffix("/")
    if prefix == "file://" and not path:
        _refuse(location, field, "it is the root of the file system")
    if (fault := _find_size_fault(path, is_file=prefix == "file://")) is not None:
        _refuse(location, field, fault)
    return prefix + path


def _find_text_fault(location: str) -> str | None:
    if not location:
        return "it is empty"
    if len(location) > 2 * FILE_PATH_BYTES_MAX:  # bounds the work of the checks below
        return "it is too long"
    if (found := _FORBIDDEN_CHARS.search(location)) is not None:
        return "it has " + next(what for which, what in _FORBIDDEN_TEXT if which.match(found.group()))
    if location != location.strip():
        return "it begins or ends with whitespace"
    if not location.isascii() and not unicodedata.is_normalized("NFC", location):
        return "it is not in Unicode normal form C"
    return None


def _split(location: str, field: str) -> tuple[str, str]:
    """What comes before the path in canonical form, and the path: empty or beginning with a slash."""
    if location.startswith("/"):
        return "file://", location
    found = _SCHEME.match(location)
    if found is None:
        _refuse(location, field, "it is relative")
    scheme = _SCHEMES.get(found.group(1).lower())
    if scheme is None:
        _refuse(location, field, "its scheme is not file or s3")
    rest = location[found.end() :]
    if scheme == "file" and rest.startswith("/") and not rest.startswith("//"):
        return "file://", rest  # Java prints `file:/abs`
    if not rest.startswith("//"):
        _refuse(location, field, "it is relative")
    authority, slash, path = rest[2:].partition("/")
    if scheme == "file":
        if authority not in ("", "localhost"):
            _refuse(location, field, "it names a host")
        return "file://", slash + path
    if _BUCKET.fullmatch(authority) is None or _ADDRESS.fullmatch(authority) is not None:
        _refuse(location, field, "its bucket name is not valid")
    return f"s3://{authority}", slash + path


def _find_path_fault(path: str) -> str | None:
    if "//" in path:
        return "it has an empty path segment"
    if "/." in path and not {".", ".."}.isdisjoint(path.split("/")):
        return "it has a dot segment"
    return None


def _find_size_fault(path: str, *, is_file: bool) -> str | None:
    size_bytes = len(path) if path.isascii() else len(path.encode())
    if not is_file:
        return "its key is over 1024 bytes" if size_bytes - 1 > S3_KEY_BYTES_MAX else None
    if size_bytes > FILE_PATH_BYTES_MAX:
        return "its path is over 4095 bytes"
    if size_bytes > FILE_SEGMENT_BYTES_MAX and any(
        len(segment.encode()) > FILE_SEGMENT_BYTES_MAX for segment in path.split("/")
    ):
        return "a path segment is over 255 bytes"
    return None


def _find_broken_escape_fault(path: str) -> str | None:
    runs = _ESCAPES.findall(path)
    if sum(map(len, runs)) != 3 * path.count("%"):
        return "it has a percent sign that begins no escape"  # `%%32e` is a dot to who decodes twice
    try:
        for run in runs:
            bytes.fromhex(run.replace("%", "")).decode()
    except UnicodeDecodeError:
        return "it has an escape that is not UTF-8"  # `%c0%ae`, an overlong dot
    return None


def _find_strict_escape_fault(path: str) -> str | None:
    if (fault := _find_broken_escape_fault(path)) is not None:
        return fault
    for run in _ESCAPES.findall(path):
        decoded = unquote(run)
        if not {".", "/", "\\", "%"}.isdisjoint(decoded) or _CONTROL.search(decoded) is not None:
            return "it has an escaped dot, slash, backslash, control character or percent sign"
    return None


def _find_file_escape_fault(path: str) -> str | None:
    if (fault := _find_broken_escape_fault(path)) is not None:
        return fault
    if _DOT_OR_NUL_ESCAPE.search(path) is not None:  # engines escape neither
        return "it has an escaped dot or NUL"
    once = unquote(path)
    for reading in (once, unquote(once)):
        if "\0" in reading or not {".", ".."}.isdisjoint(_SEPARATORS.split(reading)):
            return "it has an escaped dot segment or NUL"
    return None


def _refuse(location: str, field: str, fault: str) -> NoReturn:
    # The representation escapes what could forge a log line or fail to encode.
    shown = repr(location if len(location) <= _SHOWN_CHARS_MAX else location[:_SHOWN_CHARS_MAX] + "…")
    raise LocationRefused(
        f"location refused: {fault}; field={field} location={shown}", field=field, location=shown
    )
