"""Partition values as manifests hold them: their Avro type and bytes, and the bounds of a field over many files.

Types are those of the transforms' results (PyIceberg knows them); Avro types are those that Java writes.
Raises BadInput for a value that is not of its field's type. No I/O.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Context, Decimal, DecimalException
from typing import Any, cast
from uuid import UUID

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_required_bytes

from headgate.core.manifest import FieldSummary, PartitionValue
from headgate.core.partitioning import PartitionField, PartitionSpec
from headgate.core.schema import Schema, parse_primitive, walk_fields
from headgate.core.value import LONG_MAX
from headgate.errors import BadInput, invariant
from headgate.format.avro_write import encode_long, encode_sized

# What a value that is not of its type makes the encoders raise.
_MISFITS = (TypeError, ValueError, AttributeError, KeyError, OverflowError, DecimalException, struct.error)
_DECIMALS = Context(prec=60)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_BOOLEANS = {False: b"\x00", True: b"\x01"}

Encode = Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a partition tuple: how it is described and how its values are written."""

    field_id: int
    name: str
    type: PrimitiveType
    avro: object
    encode: Encode

    def encode_optional(self, value: PartitionValue) -> bytes:
        """The value as a branch of the union with null, or of null alone when the type is unknown."""
        if value is None:
            return b"" if isinstance(self.type, UnknownType) else b"\x00"
        try:
            return b"\x02" + self.encode(value)
        except _MISFITS as error:
            raise _misfit(self, value) from error


def find_columns(spec: PartitionSpec, schema: Schema) -> tuple[Column, ...]:
    """The partition tuple of a spec. `schema` is one that still has the columns the spec is computed from."""
    types = {id_: type_ for _, _, id_, type_ in walk_fields(schema)}
    columns = []
    for field in spec.fields:
        source = types.get(field.sources()[0])
        primitive = parse_primitive(source) if isinstance(source, str) else None
        # A dropped source leaves fixed result types as they are and makes the others unknown, as in Java.
        columns.append(
            _column(field, parse_transform(field.transform).result_type(primitive or UnknownType()))
        )
    return tuple(columns)


def _column(field: PartitionField, type_: Any) -> Column:
    invariant(field.field_id is not None, f"partition field {field.name} has an id")
    invariant(isinstance(type_, PrimitiveType), f"partition field {field.name} is of a primitive type")
    avro, encode = _encoding(type_)
    return Column(cast(int, field.field_id), field.name, type_, avro, encode)


def partition_record(columns: Iterable[Column]) -> dict[str, object]:
    """The Avro record of a partition tuple."""
    fields: list[dict[str, object]] = []
    named: set[object] = set()
    for column in columns:
        name = _NOT_IN_NAMES.sub(lambda found: f"_x{ord(found[0]):X}", column.name)
        name = f"_{name}" if name[:1].isdigit() else name
        kind = column.avro
        if isinstance(kind, dict) and kind["type"] == "fixed":
            # Avro defines a name once. Java refers to it afterwards, which PyIceberg cannot read; another name is
            # read by all, for nobody looks at it.
            if kind["name"] in named:
                kind = {**kind, "name": f"{kind['name']}_{column.field_id}"}
            named.add(kind["name"])
        described: dict[str, object] = {"name": name, "type": kind if kind == "null" else ["null", kind]}
        described |= {"default": None, "field-id": column.field_id}
        if name != column.name:
            described["iceberg-field-name"] = column.name
        fields.append(described)
    return {"type": "record", "name": "r102", "fields": fields}


# --- one value ------------------------------------------------------------------------------------------


def _number(value: int) -> bytes:
    if isinstance(value, bool) or not -LONG_MAX - 1 <= value <= LONG_MAX:
        raise TypeError(value)
    return encode_long(value)


def _text(value: str) -> bytes:
    return encode_sized(value.encode())


def _boolean(value: bool) -> bytes:
    return _BOOLEANS[value]


def _binary(value: bytes) -> bytes:
    return encode_sized(bytes(memoryview(value)))


def _uuid(value: UUID) -> bytes:
    return value.bytes


def _unknown(value: object) -> bytes:
    raise TypeError(value)


def _long(logical: str, **more: bool) -> object:
    return {"type": "long", "logicalType": logical, **more}


_SIMPLE: dict[type[PrimitiveType], tuple[object, Encode]] = {
    BooleanType: ("boolean", _boolean),
    IntegerType: ("int", _number),
    LongType: ("long", _number),
    FloatType: ("float", _FLOAT.pack),
    DoubleType: ("double", _DOUBLE.pack),
    DateType: ({"type": "int", "logicalType": "date"}, _number),
    TimeType: (_long("time-micros"), _number),
    TimestampType: (_long("timestamp-micros", **{"adjust-to-utc": False}), _number),
    TimestamptzType: (_long("timestamp-micros", **{"adjust-to-utc": True}), _number),
    TimestampNanoType: (_long("timestamp-nanos", **{"adjust-to-utc": False}), _number),
    TimestamptzNanoType: (_long("timestamp-nanos", **{"adjust-to-utc": True}), _number),
    StringType: ("string", _text),
    BinaryType: ("bytes", _binary),
    UUIDType: ({"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}, _uuid),
    UnknownType: ("null", _unknown),
}


def _encoding(type_: PrimitiveType) -> tuple[object, Encode]:
    match type_:
        case DecimalType():
            return _decimal_encoding(type_)
        case FixedType():
            size = len(type_)

            def encode(value: bytes) -> bytes:
                if len(value) != size:
                    raise ValueError(value)
                return bytes(memoryview(value))

            return {"type": "fixed", "name": f"fixed_{size}", "size": size}, encode
        case _:
            return _SIMPLE[type(type_)]


def _decimal_encoding(type_: DecimalType) -> tuple[object, Encode]:
    precision, scale = type_.precision, type_.scale
    size = decimal_required_bytes(precision)
    name = f"decimal_{precision}_{scale}"
    kind = {"type": "fixed", "name": name, "size": size, "logicalType": "decimal"}

    def encode(value: Decimal) -> bytes:
        return _unscaled(value, precision, scale).to_bytes(size, "big", signed=True)

    return {**kind, "precision": precision, "scale": scale}, encode


def _unscaled(value: Decimal, precision: int, scale: int) -> int:
    shifted = value.scaleb(scale, _DECIMALS)
    number = int(shifted)
    if number != shifted or abs(number) >= 10**precision:
        raise ValueError(value)
    return number


def _misfit(column: Column, value: object) -> BadInput:
    return BadInput(
        f"partition value {str(value)[:80]!r} of field {column.name} is not a {column.type}",
        field=f"partition.{column.name}",
    )


# --- bounds ---------------------------------------------------------------------------------------------


def summarise(column: Column, values: Iterable[PartitionValue]) -> FieldSummary | None:
    """What a field holds over these values, as Java sums it up: bounds leave out null and NaN.

    None when no bounds would be right for every reader: Java orders UUIDs by signed halves, others by bytes,
    and a reader that prunes by the other order loses rows.
    """
    seen = list(values)
    present: list[Any] = [value for value in seen if value is not None and value == value]
    nulls = any(value is None for value in seen)
    nan = any(value is not None and value != value for value in seen)
    if not present:
        return FieldSummary(nulls, nan)
    order = _ORDERS.get(type(column.type))
    lower, upper = min(present, key=order), max(present, key=order)
    if isinstance(column.type, UUIDType) and (lower, upper) != (min(present), max(present)):
        return None
    return FieldSummary(nulls, nan, encode_bound(column, lower), encode_bound(column, upper))


def _signed_halves(value: UUID) -> tuple[int, int]:
    return cast("tuple[int, int]", struct.unpack(">qq", value.bytes))


_ORDERS: dict[type[PrimitiveType], Callable[[Any], Any]] = {
    FloatType: lambda value: (value, math.copysign(1, value)),  # -0.0 comes before 0.0
    DoubleType: lambda value: (value, math.copysign(1, value)),
    UUIDType: _signed_halves,
}


def encode_bound(column: Column, value: Any) -> bytes:
    """Single-value bytes (spec, appendix D)."""
    try:
        if isinstance(column.type, DecimalType):  # with the scale of its type, which PyIceberg insists on
            value = Decimal(_unscaled(value, column.type.precision, column.type.scale))
            value = value.scaleb(-column.type.scale, _DECIMALS)
        return to_bytes(column.type, value)
    except _MISFITS as error:
        raise _misfit(column, value) from error


def decode_bound(type_text: str, data: bytes) -> PartitionValue:
    """The value of single-value bytes, as partition values are: days, micro- or nanoseconds, UUID, Decimal."""
    primitive = parse_primitive(type_text)
    if primitive is None:
        raise BadInput(f"bounds of type {type_text[:80]!r} cannot be read")
    try:
        value: Any = from_bytes(primitive, data)
        return UUID(bytes=value) if isinstance(primitive, UUIDType) else cast(PartitionValue, value)
    except _MISFITS as error:
        raise BadInput(f"{len(data)} bytes are not a bound of type {primitive}") from error
