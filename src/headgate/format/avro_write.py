"""Avro object containers, written: numbers, sized bytes, headers and blocks. Bytes out; no I/O.

The sync marker is made from the schema instead of drawn, so that the same entries are the same bytes, and so
that blocks of files with one schema and codec can be copied from one to the other verbatim.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from struct import Struct

from headgate.errors import InvariantBroken, Unsupported

NULL = b"\x00"
SOME = b"\x02"  # then the value
_END = b"\x00"  # of a list or map
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
# Deflate looks back 32 KiB, so larger blocks gain little; and a block's list items, of two bytes or more each,
# stay well below what our reader takes at once.
_BLOCK_BYTES = 256 * 1024
_STORED_BYTES_MAX = 1024  # blocks up to this size are not worth compressing
_DEFLATE_LEVEL = 1  # 3 % larger than level 6, and cheaper (docs/adr/0005)
_STORED_BEGIN = Struct("<BHH")  # that it is the last block, its size, and that size's complement
_STORED_BEGIN_BYTES, _begin_stored = _STORED_BEGIN.size, _STORED_BEGIN.pack


def _encode_digits(left: int) -> bytes:
    """A number after zig-zag: seven bits a byte, the lowest first."""
    out = bytearray()
    while left > 0x7F:  # at most nine turns
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


# Numbers of fourteen bits, as two digits that more follow, and as the last ones: a snapshot's id is five look-ups.
_PAIR_MAX = 0x3FFF
_PAIRS = [bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(_PAIR_MAX + 1)]
_LAST = [_encode_digits(number) for number in range(_PAIR_MAX + 1)]


@lru_cache(maxsize=4096)
def _encode_large(number: int) -> bytes:
    """Mostly the id of a snapshot, which is said again and again."""
    left = number << 1 ^ number >> 63
    if left >> 64:
        raise InvariantBroken("invariant broken: a number has more than 64 bits")
    if left >> 56:
        return b"".join(
            (
                _PAIRS[left & 0x3FFF],
                _PAIRS[left >> 14 & 0x3FFF],
                _PAIRS[left >> 28 & 0x3FFF],
                _PAIRS[left >> 42 & 0x3FFF],
                _LAST[left >> 56],
            )
        )
    encoded = b""
    while left > _PAIR_MAX:  # at most four turns
        encoded += _PAIRS[left & _PAIR_MAX]
        left >>= 14
    return encoded + _LAST[left]


class _Longs(dict[int, bytes]):
    """The small numbers, looked up without a line of Python; any other is encoded when it is asked for."""

    def __missing__(self, number: int) -> bytes:
        return _encode_large(number)


_SMALL_MAX = 0x2000  # what two bytes hold
encode_long: Callable[[int], bytes] = _Longs(
    {number: _LAST[number << 1] for number in range(_SMALL_MAX)}
).__getitem__
"""A zig-zag number of at most 64 bits."""


def encode_longs(numbers: Iterable[int]) -> bytes:
    """Several numbers, one after the other."""
    return b"".join(map(encode_long, numbers))


def encode_sized(data: bytes) -> bytes:
    """A string or bytes: a length, then that much."""
    return encode_long(len(data)) + data


# --- values in a union with null, which is its first branch ---------------------------------------------


def encode_optional_long(number: int | None) -> bytes:
    """A number or null."""
    return NULL if number is None else SOME + encode_long(number)


def encode_optional_bytes(data: bytes | None) -> bytes:
    """Bytes or null."""
    return NULL if data is None else SOME + encode_sized(data)


def encode_optional_text(text: str | None) -> bytes:
    """A string or null."""
    return NULL if text is None else SOME + encode_sized(text.encode())


def encode_list(size: int, items: Iterable[bytes]) -> bytes:
    """A list that is not null."""
    return b"".join((SOME, encode_long(size), *items, _END)) if size else SOME + _END


# --- containers -----------------------------------------------------------------------------------------


CloseBlock = Callable[[bytes, int, bytes], bytes]  # of so many records, before this sync marker


def _close_plain(records: bytes, count: int, sync: bytes) -> bytes:
    return b"".join((encode_long(count), encode_long(len(records)), records, sync))


def _close_deflated(records: bytes, count: int, sync: bytes) -> bytes:
    size = len(records)
    if size > _STORED_BYTES_MAX:
        compressor = zlib.compressobj(_DEFLATE_LEVEL, zlib.DEFLATED, -15)
        return _close_plain(compressor.compress(records) + compressor.flush(), count, sync)
    # One stored block (RFC 1951, 3.2.4): setting up a compressor costs more than a few hundred bytes are worth.
    begin = _begin_stored(1, size, size ^ 0xFFFF)
    return b"".join((encode_long(count), encode_long(_STORED_BEGIN_BYTES + size), begin, records, sync))


_CODECS: dict[str, CloseBlock] = {"null": _close_plain, "deflate": _close_deflated}


@dataclass(frozen=True, slots=True)
class Container:
    """How the files of one schema, metadata and codec begin, and what parts their blocks."""

    header: bytes
    metadata: Mapping[str, bytes]  # what the header says
    sync: bytes
    close_block: CloseBlock


def open_container(schema: bytes, metadata: Mapping[str, bytes], *, codec: str) -> Container:
    """The beginning of a file of records of this schema (JSON). Unsupported for a codec we do not write."""
    close_block = _CODECS.get(codec)
    if close_block is None:
        raise Unsupported(f"codec {codec[:80]!r} is not one we write; codecs={', '.join(sorted(_CODECS))}")
    entries = {"avro.schema": schema, "avro.codec": codec.encode(), **metadata}
    sync = sha256(schema).digest()[:_SYNC_BYTES]
    return Container(encode_header(len(entries), encode_metadata(entries), sync), entries, sync, close_block)


def encode_metadata(entries: Mapping[str, bytes]) -> bytes:
    """What a header says, without its size and its end."""
    parts: list[bytes] = []
    for key, value in entries.items():
        parts += (encode_sized(key.encode()), encode_sized(value))
    return b"".join(parts)


def encode_header(size: int, metadata: bytes, sync: bytes) -> bytes:
    """The header that says these `size` entries."""
    begin, end = split_header(size, sync)
    return b"".join((begin, metadata, end))


def split_header(size: int, sync: bytes) -> tuple[bytes, bytes]:
    """What stands before and after the `size` entries of a header."""
    return _MAGIC + encode_long(size), _END + sync


def write_blocks(container: Container, records: Sequence[bytes]) -> bytes:
    """What follows the header. Records share blocks: one each would make the file 1.7 times larger."""
    if len(records) == 1:
        return container.close_block(records[0], 1, container.sync)
    out: list[bytes] = []
    begin = size = 0
    for end, record in enumerate(records, 1):
        size += len(record)
        if size >= _BLOCK_BYTES or end == len(records):
            out.append(container.close_block(b"".join(records[begin:end]), end - begin, container.sync))
            begin, size = end, 0
    return b"".join(out)
