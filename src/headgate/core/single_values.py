"""Single values of the specification's JSON (appendix C) to the form manifests store them in: days, micros, bytes."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

from pyiceberg.conversions import from_bytes, from_json
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from headgate.core.manifest import PartitionValue
from headgate.errors import BadInput

_T = TypeVar("_T")
_NON_NUMBERS = frozenset(("NaN", "Infinity", "-Infinity"))  # as Java's JSON writer spells them
_NANOS = (TimestampNanoType, TimestamptzNanoType)
_ORDERED = (
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    *_NANOS,
)
_WIDE = re.compile(r"(bucket|truncate)\[(\d+)\]")


def decode_value(type_: IcebergType, raw: object, *, field: str) -> PartitionValue:
    """One value as a manifest stores it; BadInput names the field when it does not fit its type."""
    if raw is None:
        return None
    try:
        return _decode(type_, raw)
    except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
        raise BadInput(f"{raw!r} is not a {type_}", field=field) from error


def _decode(type_: IcebergType, raw: object) -> PartitionValue:
    if isinstance(type_, BooleanType):
        return _exactly(raw, bool)
    if isinstance(type_, IntegerType | LongType):
        return _integer(_exactly(raw, int), 31 if isinstance(type_, IntegerType) else 63)
    if isinstance(type_, FloatType | DoubleType):
        if isinstance(raw, str) and raw in _NON_NUMBERS:
            return float(raw)
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise TypeError("not a number")
        return _finite(float(raw), single=isinstance(type_, FloatType))
    if isinstance(raw, int) and not isinstance(raw, bool) and isinstance(type_, (DateType, *_NANOS)):
        # In storage form already, as older writers send it.
        return _integer(raw, 31 if isinstance(type_, DateType) else 63)
    text = _exactly(raw, str)
    if isinstance(type_, _NANOS):
        return _nanos(text)
    if not isinstance(type_, PrimitiveType):
        raise TypeError("not a primitive type")
    value = from_json(type_, text)
    match value:
        case datetime():
            return datetime_to_micros(value)
        case date():
            return date_to_days(value)
        case time():
            return time_to_micros(value)
        case Decimal():
            digits = value.as_tuple()
            if isinstance(type_, DecimalType) and (
                -int(digits.exponent) != type_.scale or len(digits.digits) > type_.precision
            ):
                raise ValueError("another scale, or too many digits")
            return value
        case bytes():
            if isinstance(type_, FixedType) and len(value) != len(type_):
                raise ValueError("another length")
            return value
        case str() | UUID():
            return value
    raise TypeError("not a single value")


def _exactly(raw: object, kind: type[_T]) -> _T:
    if type(raw) is not kind:
        raise TypeError(f"not a {kind.__name__}")
    return raw


def _integer(value: int, bits: int) -> int:
    if not -(2**bits) <= value < 2**bits:
        raise ValueError("out of range")
    return value


def _finite(value: float, *, single: bool) -> float:
    if not math.isfinite(value):
        raise ValueError("out of range")
    if single:
        struct.pack("<f", value)  # raises when it does not fit
    return value


def _nanos(text: str) -> int:
    stem, dot, fraction = text.partition(".")
    digits, zone = fraction, ""
    for sign in ("+", "-", "Z"):
        if sign in fraction:
            at = fraction.index(sign)
            digits, zone = fraction[:at], fraction[at:]
    parsed = datetime.fromisoformat((stem + zone).replace("Z", "+00:00"))
    nanos = int(digits.ljust(9, "0")[:9]) if dot else 0
    return datetime_to_micros(parsed) * 1000 + nanos


def fits_transform(transform: str, value: PartitionValue) -> bool:
    """Whether a transform can have given this value."""
    found = _WIDE.fullmatch(transform)
    if found is None or value is None:
        return True
    width = int(found.group(2))
    if isinstance(value, int):
        return 0 <= value < width if found.group(1) == "bucket" else value % width == 0
    return not isinstance(value, str | bytes) or len(value) <= width


# What PyIceberg raises for bytes that are no value of a type.
UNREADABLE = (ValueError, TypeError, ArithmeticError, LookupError, AssertionError, struct.error)


# Reads without a step of Python's. A value alone in a tuple is ordered as the value is; a bound from before its column was
# promoted is shorter, and refused.
_QUICK: dict[type[PrimitiveType], Callable[[bytes], Any]] = {
    **dict.fromkeys((IntegerType, DateType), struct.Struct("<i").unpack),
    **dict.fromkeys(
        (LongType, TimeType, TimestampType, TimestamptzType, *_NANOS), struct.Struct("<q").unpack
    ),
    FloatType: struct.Struct("<f").unpack,
    DoubleType: struct.Struct("<d").unpack,
    StringType: bytes.decode,
    BinaryType: bytes,
}


class BoundReader:
    """Reads the bounds of columns of one type.

    `read_quickly` refuses more than `read` does, never less, and gives values that are in the same order.
    """

    def __init__(self, type_: PrimitiveType) -> None:
        self._type = type_
        self._read: Callable[[PrimitiveType, bytes], Any] = from_bytes.dispatch(type(type_))
        self._size_bytes = len(type_) if isinstance(type_, FixedType) else None
        self.is_ordered = isinstance(type_, _ORDERED)
        self.read_quickly: Callable[[bytes], Any] = _QUICK.get(type(type_), self.read)

    def decode(self, data: bytes, *, field: str) -> Any:
        """The value of a bound; BadInput for bytes that are no single value of the type."""
        try:
            return self.read(data)
        except UNREADABLE as error:
            raise BadInput(f"the bound does not decode as {self._type}", field=field) from error

    def read(self, data: bytes) -> Any:
        """The value of a bound; one of `UNREADABLE` for bytes that are no single value of the type."""
        if self._size_bytes is not None and len(data) != self._size_bytes:
            raise ValueError("another length")
        return self._read(self._type, data)

    def are_reversed(self, lower: Any, upper: Any) -> bool:
        """Whether a lower bound is above its upper one; numbers and times only, whose order nobody disputes."""
        return self.is_ordered and bool(lower > upper)
