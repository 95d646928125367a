"""Avro object containers, read within bounds: header, codecs and blocks. Never trusts a length.

A manifest comes from whoever may write to the table's folder, so every number in it is an attack until it
has been compared with the bytes that are really there: PyIceberg 0.12 inflates a block of 1 MB to 1 GiB.
Blocks are inflated one at a time up to a cap, and records are decoded by `avro_records`, ours because
fastavro loops for 2^62 turns on a skipped array and follows recursive schemas down the C stack.
Bytes in, values out; no I/O.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from headgate.errors import BadInput, TooLarge, Unsupported
from headgate.format.avro_records import Struct, compile_struct
from headgate.format.avro_values import Budget, Corrupt, Fields, OverBudget, ReadRecord, read_long

try:
    import zstandard
except ImportError:  # PyIceberg brings it; without it only that codec is refused
    zstandard = None  # type: ignore[assignment]  # the absence is tested where it is used

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_ZSTD_WINDOW_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one container may ask of us."""

    block_bytes_max: int = 16 * 1024 * 1024  # inflated
    file_bytes_max: int = 256 * 1024 * 1024  # inflated, all blocks together
    records_max: int = 1_000_000
    block_items_max: int = 1_000_000  # list and map items decoded from one block
    header_entries_max: int = 1_000
    schema_bytes_max: int = 4 * 1024 * 1024


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class _Header:
    metadata: dict[str, bytes]
    sync: bytes
    end: int


def read_metadata(data: bytes, *, location: str, limits: Limits = LIMITS) -> dict[str, bytes]:
    """The key-value metadata of a container's header."""
    return _read_header(data, location, limits).metadata


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a container, still compressed: what follows its header."""

    metadata: dict[str, bytes]
    sync: bytes
    records: int
    data: bytes


def read_blocks(data: bytes, *, location: str, limits: Limits = LIMITS) -> Blocks:
    """The blocks of a container, to be copied into another; their frames are checked, not what is in them."""
    header = _read_header(data, location, limits)
    records, position = 0, header.end
    while position < len(data):
        count, _, position = _next_block(data, position, header.sync, location)
        records += count
    return Blocks(header.metadata, header.sync, records, data[header.end :])


def read_records(data: bytes, want: Struct, *, location: str, limits: Limits = LIMITS) -> Iterator[Fields]:
    """Decode a container's records, only the fields that `want` names, keyed by field id.

    Raises BadInput for corrupt input and TooLarge for input over a limit, also while iterating.
    """
    header = _read_header(data, location, limits)
    read = _compile(header, want, location, limits)
    inflated_bytes = records = 0
    position = header.end
    while position < len(data):
        count, body, position = _next_block(data, position, header.sync, location)
        records += count
        if records > limits.records_max:
            raise TooLarge(
                f"{location}: more records than a manifest may hold; limit={limits.records_max}",
                location=location,
            )
        left_bytes = min(limits.block_bytes_max, limits.file_bytes_max - inflated_bytes)
        block = _inflate(body, header.metadata.get("avro.codec", b"null"), left_bytes, location)
        inflated_bytes += len(block)
        yield from _read_block(block, count, read, location, limits)


def _read_header(data: bytes, location: str, limits: Limits) -> _Header:
    if data[: len(_MAGIC)] != _MAGIC:
        raise _corrupt(location, "it does not begin like an Avro file")
    try:
        metadata, position = _read_header_map(data, len(_MAGIC), limits)
    except (Corrupt, IndexError, UnicodeDecodeError) as error:
        raise _corrupt(location, f"the header is broken ({error})") from error
    sync = data[position : position + _SYNC_BYTES]
    if len(sync) != _SYNC_BYTES:
        raise _corrupt(location, "the header ends early")
    return _Header(metadata, sync, position + _SYNC_BYTES)


def _read_header_map(data: bytes, position: int, limits: Limits) -> tuple[dict[str, bytes], int]:
    metadata: dict[str, bytes] = {}
    while True:
        count, position = read_long(data, position)
        if count == 0:
            return metadata, position
        if count < 0:  # then the size in bytes follows, for readers that skip
            count = -count
            _, position = read_long(data, position)
        if len(metadata) + count > limits.header_entries_max:
            raise Corrupt(f"more than {limits.header_entries_max} header entries")
        for _ in range(count):
            key, position = _read_header_bytes(data, position)
            value, position = _read_header_bytes(data, position)
            metadata[key.decode("utf-8")] = value


def _read_header_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    size, start = read_long(data, position)
    end = start + size
    if size < 0 or end > len(data):
        raise Corrupt(f"a length of {size} at byte {position}")
    return data[start:end], end


# Files of a table have one schema each kind, and compiling it takes longer than reading a small manifest. Readers hold
# no state. What was wanted is held with its reader, so an identity is never another's.
_READERS: dict[tuple[bytes, int], tuple[Struct, ReadRecord]] = {}
_READERS_MAX = 64
_READER_SCHEMA_BYTES_MAX = 64 * 1024


def _compile(header: _Header, want: Struct, location: str, limits: Limits) -> ReadRecord:
    encoded = header.metadata.get("avro.schema")
    if encoded is None:
        raise _corrupt(location, "the header has no avro.schema")
    if len(encoded) > limits.schema_bytes_max:
        raise TooLarge(
            f"{location}: the schema in the header is too long; limit_bytes={limits.schema_bytes_max}",
            location=location,
        )
    known = _READERS.get(key := (encoded, id(want)))
    if known is not None:
        return known[1]
    try:
        read = compile_struct(msgspec.json.decode(encoded), want)
    except (Corrupt, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _corrupt(location, f"the schema is not one we read ({error})") from error
    if len(encoded) <= _READER_SCHEMA_BYTES_MAX:
        if len(_READERS) >= _READERS_MAX:
            _READERS.clear()
        _READERS[key] = (want, read)
    return read


def _next_block(data: bytes, position: int, sync: bytes, location: str) -> tuple[int, bytes, int]:
    start = position
    try:
        count, position = read_long(data, position)
        size, position = read_long(data, position)
    except (Corrupt, IndexError) as error:
        raise _corrupt(location, f"the block at byte {start} is cut off") from error
    end = position + size
    if count < 0 or size < 0 or end + _SYNC_BYTES > len(data):
        raise _corrupt(location, f"the block at byte {start} declares {count} records in {size} bytes")
    if data[end : end + _SYNC_BYTES] != sync:
        raise _corrupt(location, f"the block at byte {start} does not end in the sync marker")
    return count, data[position:end], end + _SYNC_BYTES


def _read_block(
    block: bytes, count: int, read: ReadRecord, location: str, limits: Limits
) -> Iterator[Fields]:
    budget = Budget(limits.block_items_max)
    position = 0
    for index in range(count):
        try:
            record, position = read(block, position, budget)
        except OverBudget as error:
            raise TooLarge(
                f"{location}: more list items in one block than a manifest needs;"
                f" limit={limits.block_items_max}",
                location=location,
            ) from error
        except (Corrupt, IndexError, UnicodeDecodeError) as error:
            raise _corrupt(location, f"record {index} of a block is broken ({error})") from error
        yield record
    if position != len(block):
        raise _corrupt(location, f"{len(block) - position} bytes are left after a block's last record")


# --- codecs ---------------------------------------------------------------------------------------------


def _inflate(body: bytes, codec: bytes, limit_bytes: int, location: str) -> bytes:
    match codec:
        case b"null":
            block = body
        case b"deflate":
            block = _inflate_deflate(body, limit_bytes, location)
        case b"zstandard":
            block = _inflate_zstandard(body, limit_bytes, location)
        case b"snappy" | b"bzip2" | b"xz":
            raise Unsupported(f"{location}: the Avro codec is not supported; codec={codec.decode()}")
        case _:
            raise _corrupt(location, f"the codec {codec[:40]!r} is unknown")
    if len(block) > limit_bytes:
        raise TooLarge(
            f"{location}: a block inflates beyond the limit; limit_bytes={limit_bytes}"
            f" compressed_bytes={len(body)}",
            location=location,
        )
    return block


def _inflate_deflate(body: bytes, limit_bytes: int, location: str) -> bytes:
    inflater = zlib.decompressobj(-15)
    try:
        block = inflater.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise _corrupt(location, f"a block does not inflate ({error})") from error
    # Bytes after the end are let pass: PyIceberg leaves part of zlib's checksum there.
    if len(block) <= limit_bytes and not inflater.eof:
        raise _corrupt(location, "a deflated block is cut off")
    return block


def _inflate_zstandard(body: bytes, limit_bytes: int, location: str) -> bytes:
    if zstandard is None:
        raise Unsupported(f"{location}: the Avro codec zstandard needs the package zstandard")
    if not body:
        return b""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    try:
        with decompressor.stream_reader(body) as stream:
            return stream.read(limit_bytes + 1)
    except (zstandard.ZstdError, MemoryError) as error:
        raise _corrupt(location, f"a block does not inflate ({error})") from error


def _corrupt(location: str, what: str) -> BadInput:
    return BadInput(f"{location}: not a readable Avro file: {what}", location=location)
