"""Single values of the specification's JSON (appendix C) to the form manifests store them in: days, micros, bytes."""

from __future__ import annotations

import struct
from datetime import date, datetime, time
from decimal import Decimal
from typing import TypeVar
from uuid import UUID

from pyiceberg.conversions import from_bytes, from_json
from pyiceberg.types import (
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
    TimestampNanoType,
    TimestamptzNanoType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from headgate.core.manifest import PartitionValue
from headgate.errors import BadInput

_T = TypeVar("_T")
_NON_NUMBERS = frozenset(("NaN", "Infinity", "-Infinity"))  # as Java's JSON writer spells them
_NANOS = (TimestampNanoType, TimestamptzNanoType)


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
        return float(raw)
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
            if isinstance(type_, DecimalType) and -int(value.as_tuple().exponent) != type_.scale:
                raise ValueError("another scale")
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


def check_bound(type_: PrimitiveType, data: bytes, *, field: str) -> None:
    """Refuse bytes that are no single value of the type."""
    try:
        from_bytes(type_, data)
    except (ValueError, TypeError, ArithmeticError, LookupError, AssertionError, struct.error) as error:
        raise BadInput(f"the bound does not decode as {type_}", field=field) from error
