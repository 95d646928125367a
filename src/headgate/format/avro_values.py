"""Avro values: functions that read or skip one value and say where it ends. Never past the bytes.

A reader makes a value; a skipper only finds its end. Both raise Corrupt, or IndexError at the end of the
bytes; readers of lists raise OverBudget before they make more items than a block may hold.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from uuid import UUID

_DECIMAL_BYTES_MAX = 16
_DECIMALS = Context(prec=60)

Fields = dict[int, object]


class Corrupt(Exception):  # noqa: N818 - named for what happened, like the tree in errors.py
    """The bytes or the schema are not what the Avro or Iceberg specification allows."""


class OverBudget(Exception):  # noqa: N818 - as above
    """More items than one block may hold."""


class Budget:
    """How many list and map items may still be made from this block."""

    __slots__ = ("left",)

    def __init__(self, items: int) -> None:
        self.left = items

    def take(self, items: int) -> None:
        """Pay before making them."""
        self.left -= items
        if self.left < 0:
            raise OverBudget


Read = Callable[[bytes, int, Budget], tuple[object, int]]
ReadRecord = Callable[[bytes, int, Budget], tuple[Fields, int]]
Skip = Callable[[bytes, int], int]
Step = tuple[int | None, Read | None, Skip | None]  # (field id, reader, None) or (None, None, skipper)


# --- skipping -------------------------------------------------------------------------------------------


def skip_nothing(data: bytes, position: int) -> int:
    """Null takes no bytes."""
    return position


def skip_long(data: bytes, position: int) -> int:
    """A number of at most ten bytes."""
    start = position
    while data[position] >= 0x80:
        position += 1
    if position - start > 9:
        raise Corrupt("a number longer than ten bytes")
    return position + 1


def skip_sized(data: bytes, position: int) -> int:
    """A string or bytes: a length, then that much."""
    size, position = read_long(data, position)
    return _advance(data, position, size)


def _advance(data: bytes, position: int, size: int) -> int:
    end = position + size
    if size < 0 or end > len(data):
        raise Corrupt(f"a length of {size} with {len(data) - position} bytes left")
    return end


def width_skipper(width: int) -> Skip:
    """A value of fixed width."""
    return lambda data, position: _advance(data, position, width)


def record_skipper(skips: Sequence[Skip]) -> Skip:
    """One field after the other."""

    def skip(data: bytes, position: int) -> int:
        for step in skips:
            position = step(data, position)
        return position

    return skip


def union_skipper(branches: Sequence[Skip]) -> Skip:
    """Whichever branch the bytes name."""

    def skip(data: bytes, position: int) -> int:
        index, position = read_long(data, position)
        if not 0 <= index < len(branches):
            raise Corrupt(f"branch {index} of a union of {len(branches)}")
        return branches[index](data, position)

    return skip


def items_skipper(item: Skip) -> Skip:
    """A list; its items must take at least a byte each."""

    def skip(data: bytes, position: int) -> int:
        while True:
            count, position = read_long(data, position)
            if count == 0:
                return position
            if count < 0:  # the bytes of this run are counted, so it can be jumped over
                size, position = read_long(data, position)
                position = _advance(data, position, size)
                continue
            for _ in range(count):
                position = item(data, position)

    return skip


# --- reading --------------------------------------------------------------------------------------------


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """A zig-zag number of at most 64 bits, and where it ends. IndexError at the end of the bytes."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise Corrupt("a number longer than ten bytes")
    if value >> 64:
        raise Corrupt("a number of more than 64 bits")
    return (value >> 1) ^ -(value & 1), position


def read_null(data: bytes, position: int, budget: Budget) -> tuple[object, int]:
    """Null takes no bytes."""
    return None, position


def _read_number(data: bytes, position: int, budget: Budget) -> tuple[object, int]:
    return read_long(data, position)


def _read_boolean(data: bytes, position: int, budget: Budget) -> tuple[object, int]:
    return data[position] != 0, position + 1


def _read_bytes(data: bytes, position: int, budget: Budget) -> tuple[bytes, int]:
    size, start = read_long(data, position)
    end = _advance(data, start, size)
    return data[start:end], end


def _read_string(data: bytes, position: int, budget: Budget) -> tuple[object, int]:
    size, start = read_long(data, position)
    end = _advance(data, start, size)
    return data[start:end].decode("utf-8"), end


def fixed_reader(size: int) -> Read:
    """Bytes of a length that the schema gives."""

    def read(data: bytes, position: int, budget: Budget) -> tuple[bytes, int]:
        end = _advance(data, position, size)
        return data[position:end], end

    return read


def _packed_reader(layout: str) -> Read:
    unpack = struct.Struct(layout)

    def read(data: bytes, position: int, budget: Budget) -> tuple[object, int]:
        end = _advance(data, position, unpack.size)
        return unpack.unpack_from(data, position)[0], end

    return read


SCALARS: dict[str, Read] = {
    "null": read_null,
    "boolean": _read_boolean,
    "int": _read_number,
    "long": _read_number,
    "float": _packed_reader("<f"),
    "double": _packed_reader("<d"),
    "string": _read_string,
    "bytes": _read_bytes,
}


def decimal_reader(raw: Read, scale: int) -> Read:
    """Two's-complement big-endian bytes as an exact Decimal."""

    def read(data: bytes, position: int, budget: Budget) -> tuple[object, int]:
        value, end = raw(data, position, budget)
        if not isinstance(value, bytes) or len(value) > _DECIMAL_BYTES_MAX:
            raise Corrupt(f"a decimal of more than {_DECIMAL_BYTES_MAX} bytes")
        unscaled = int.from_bytes(value, byteorder="big", signed=True)
        return Decimal(unscaled).scaleb(-scale, _DECIMALS), end

    return read


def uuid_reader(raw: Read) -> Read:
    """Sixteen bytes, or the text form, as a UUID."""

    def read(data: bytes, position: int, budget: Budget) -> tuple[object, int]:
        value, end = raw(data, position, budget)
        try:
            return UUID(bytes=value) if isinstance(value, bytes) else UUID(str(value)), end
        except ValueError as error:
            raise Corrupt("a UUID that is none") from error

    return read


def record_reader(steps: Sequence[Step]) -> ReadRecord:
    """A dict by field id; steps are in the order of the bytes."""

    def read(data: bytes, position: int, budget: Budget) -> tuple[Fields, int]:
        fields: Fields = {}
        for field_id, reader, skipper in steps:
            if reader is not None and field_id is not None:
                fields[field_id], position = reader(data, position, budget)
            elif skipper is not None:
                position = skipper(data, position)
        return fields, position

    return read


def union_reader(branches: Sequence[Read]) -> Read:
    """The value of whichever branch the bytes name."""

    def read(data: bytes, position: int, budget: Budget) -> tuple[object, int]:
        index, position = read_long(data, position)
        if not 0 <= index < len(branches):
            raise Corrupt(f"branch {index} of a union of {len(branches)}")
        return branches[index](data, position, budget)

    return read


def _next_run(data: bytes, position: int, budget: Budget) -> tuple[int, int]:
    count, position = read_long(data, position)
    if count < 0:  # the run's size in bytes follows, for readers that skip
        count = -count
        _, position = read_long(data, position)
    budget.take(count)
    return count, position


def items_reader(item: Read) -> Read:
    """A list as a tuple."""

    def read(data: bytes, position: int, budget: Budget) -> tuple[object, int]:
        items: list[object] = []
        while True:
            count, position = _next_run(data, position, budget)
            if count == 0:
                return tuple(items), position
            for _ in range(count):
                value, position = item(data, position, budget)
                items.append(value)

    return read


def pairs_reader(read_key: Read, read_value: Read) -> Read:
    """A list of key-value records as a dict."""

    def read(data: bytes, position: int, budget: Budget) -> tuple[object, int]:
        pairs: dict[object, object] = {}
        while True:
            count, position = _next_run(data, position, budget)
            if count == 0:
                return pairs, position
            for _ in range(count):
                key, position = read_key(data, position, budget)
                pairs[key], position = read_value(data, position, budget)

    return read
