"""Column bounds and single values of the Iceberg specification (appendices C and D), from raw Parquet statistics.

Bounds may be wider than the column, never narrower: a reader that trusts a bound skips files. Pure.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

_CODE_POINT_MAX = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED = re.compile(r"fixed\[(\d+)\]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_UNIT = {"milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}  # in nanoseconds
# What may be read as what: a column may have been promoted since the file was written (spec, "Schema Evolution").
_NUMBERS = {
    "int": ("INT32",),
    "long": ("INT32", "INT64"),
    "float": ("FLOAT",),
    "double": ("FLOAT", "DOUBLE"),
}

Raw = int | float | bool | bytes
Stored = int | float | bool | str | bytes


@dataclass(frozen=True, slots=True)
class ParquetType:
    """How a Parquet column stores its values."""

    physical: str
    logical: Mapping[str, object]  # Type, and timeUnit, isAdjustedToUTC, scale, isSigned … where it has them

    @property
    def name(self) -> str:
        """The logical type, `None` when there is none."""
        return str(self.logical.get("Type", "None"))

    def __str__(self) -> str:
        return self.physical if self.name == "None" else f"{self.name} ({self.physical})"


def reader_of(type_: str, stored: ParquetType) -> Callable[[Raw], Stored] | None:
    """How a raw statistic becomes a value of the table's type; None when the column cannot hold that type."""
    found: Callable[[Raw], Stored] | None = None
    name = stored.name
    if type_ == "boolean" and stored.physical == "BOOLEAN":
        found = bool
    elif type_ in ("int", "long") and name in ("None", "Int") and stored.logical.get("isSigned", True):
        found = int if stored.physical in _NUMBERS[type_] else None
    elif type_ in ("float", "double"):
        found = float if stored.physical in _NUMBERS[type_] else None
    elif type_ == "date" and name == "Date":
        found = int
    elif type_.startswith("time") and name in ("Time", "Timestamp"):
        found = _time_reader(type_, stored)
    elif type_ == "string" and name in ("String", "Enum", "JSON"):
        found = _text
    elif type_ == "binary" and stored.physical == "BYTE_ARRAY":
        found = _octets
    elif (type_ == "uuid" or _FIXED.fullmatch(type_)) and stored.physical == "FIXED_LEN_BYTE_ARRAY":
        found = _octets if name in ("None", "UUID") else None
    elif (decimal := _DECIMAL.fullmatch(type_)) and name == "Decimal":
        found = _unscaled if stored.logical.get("scale") == int(decimal[2]) else None
    return found


def holds(type_: str, stored: ParquetType) -> bool:
    """Whether a Parquet column can be read as the table's type. Types without bounds here are not judged."""
    if type_ in ("unknown", "variant") or type_.startswith(("geometry", "geography")):
        return True
    return reader_of(type_, stored) is not None


def encode_bound(type_: str, value: Stored, *, upper: bool, length: int) -> bytes | None:
    """A bound in single-value serialization; None when there is none of the length allowed."""
    if isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    if isinstance(value, str):
        cut = _cut_text(value, length, upper=upper)
        return None if cut is None else cut.encode()
    if isinstance(value, bytes):
        return _cut_octets(value, length, upper=upper) if type_ == "binary" else value
    if isinstance(value, float):
        return struct.pack("<f" if type_ == "float" else "<d", value)
    if _DECIMAL.fullmatch(type_):
        return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)
    return struct.pack("<i" if type_ in ("int", "date") else "<q", value)


def to_json_value(type_: str, value: Stored) -> object:
    """A value as the JSON of a partition tuple has it."""
    if isinstance(value, bool | str | float):
        return value
    if isinstance(value, bytes):
        return str(UUID(bytes=value)) if type_ == "uuid" else value.hex().upper()
    if decimal := _DECIMAL.fullmatch(type_):
        return _decimal_text(value, int(decimal[2]))
    if type_ == "date":
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if type_ == "time":
        clock = (datetime.min + timedelta(microseconds=value)).time()
        return time.isoformat(clock)
    if type_.startswith("timestamp"):
        return _timestamp_text(value, nanos=type_.endswith("_ns"), zoned="tz" in type_)
    return value


def _time_reader(type_: str, stored: ParquetType) -> Callable[[Raw], Stored] | None:
    per_unit = _PER_UNIT.get(str(stored.logical.get("timeUnit")))
    if per_unit is None or (type_ == "time") is not (stored.name == "Time"):
        return None
    zoned = type_ in ("timestamptz", "timestamptz_ns")
    if type_ != "time" and zoned is not bool(stored.logical.get("isAdjustedToUTC")):
        return None
    wanted = 1 if type_.endswith("_ns") else 1_000
    if per_unit < wanted:
        return None  # finer than the table's type; readers do not agree on how to round
    return lambda raw: int(raw) * (per_unit // wanted)


def _text(raw: Raw) -> Stored:
    return bytes(raw).decode() if isinstance(raw, bytes) else str(raw)


def _octets(raw: Raw) -> Stored:
    return raw if isinstance(raw, bytes) else str(raw).encode()


def _unscaled(raw: Raw) -> Stored:
    return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)


def _cut_text(text: str, length: int, *, upper: bool) -> str | None:
    """At most so many code points; an upper bound is rounded up, past the surrogates, or given up."""
    if len(text) <= length:
        return text
    cut = text[:length]
    if not upper:
        return cut
    for at in range(len(cut) - 1, -1, -1):
        following = ord(cut[at]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _CODE_POINT_MAX:
            return cut[:at] + chr(following)
    return None


def _cut_octets(octets: bytes, length: int, *, upper: bool) -> bytes | None:
    if len(octets) <= length:
        return octets
    cut = octets[:length]
    if not upper:
        return cut
    cut = cut.rstrip(b"\xff")
    return cut[:-1] + bytes((cut[-1] + 1,)) if cut else None


def _decimal_text(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return ("-" if unscaled < 0 else "") + whole + (f".{fraction}" if scale else "")


def _timestamp_text(value: int, *, nanos: bool, zoned: bool) -> str:
    seconds, fraction = divmod(value, 1_000_000_000 if nanos else 1_000_000)
    stem = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{stem}.{fraction:0{9 if nanos else 6}d}{'+00:00' if zoned else ''}"
