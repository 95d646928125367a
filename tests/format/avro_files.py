"""Builders of Avro containers, sound and hostile, byte by byte."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from io import BytesIO

import fastavro

SYNC = bytes(range(16))

MANIFEST_LIST_SCHEMA: dict[str, object] = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        {"name": "manifest_path", "type": "string", "field-id": 500},
        {"name": "manifest_length", "type": "long", "field-id": 501},
        {"name": "partition_spec_id", "type": "int", "field-id": 502},
        {"name": "added_snapshot_id", "type": "long", "field-id": 503},
    ],
}


def long(value: int) -> bytes:
    """A zig-zag number."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value & ~0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def sized(value: bytes) -> bytes:
    """A string or bytes."""
    return long(len(value)) + value


def header(
    schema: object = MANIFEST_LIST_SCHEMA, *, codec: str = "null", schema_text: bytes | None = None
) -> bytes:
    """The header of a container."""
    text = json.dumps(schema).encode() if schema_text is None else schema_text
    entries = sized(b"avro.schema") + sized(text) + sized(b"avro.codec") + sized(codec.encode())
    return b"Obj\x01" + long(2) + entries + long(0) + SYNC


def block(body: bytes, *, count: int = 1, size: int | None = None, sync: bytes = SYNC) -> bytes:
    """One block, its numbers true unless told."""
    return long(count) + long(len(body) if size is None else size) + body + sync


def manifest_record(path: str = "m.avro") -> bytes:
    """One record of MANIFEST_LIST_SCHEMA."""
    return sized(path.encode()) + long(10) + long(0) + long(7)


def deflate(body: bytes) -> bytes:
    """A raw deflate stream."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(body) + compressor.flush()


def deflate_bomb(*, segments: int, segment_bytes: int) -> bytes:
    """A deflate stream of zeros, made without inflating it: flushed segments can be repeated."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    segment = compressor.compress(bytes(segment_bytes)) + compressor.flush(zlib.Z_FULL_FLUSH)
    return segment * segments + compressor.flush()


def container(schema: Mapping[str, object], records: Iterable[object], *, codec: str = "deflate") -> bytes:
    """A sound container, by fastavro."""
    out = BytesIO()
    fastavro.writer(out, dict(schema), records, codec=codec)
    return out.getvalue()
