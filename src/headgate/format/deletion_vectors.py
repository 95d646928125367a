"""Deletion vectors as bytes: Roaring bitmaps of row positions, framed, in Puffin files (spec v3, "Deletion Vectors").

PyIceberg 0.12 reads Puffin files and writes none. The bitmap is CRoaring's portable 64-bit form, which is what the
specification names; around it stand a length, a magic number and a checksum.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from pyroaring import BitMap64

from headgate import __version__
from headgate.errors import BadInput

PUFFIN_MAGIC = b"PFA1"
_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
_POSITION_FIELD_ID = 2147483645  # the reserved column `_pos`, which the blob is about
_FRAME_BYTES = 12  # length, magic number, checksum
_INHERITED = -1


@dataclass(frozen=True, slots=True)
class Blob:
    """Where one vector stands in its file, and how many rows it deletes."""

    offset: int
    size_bytes: int
    rows: int


def encode_vector(bitmap: BitMap64) -> bytes:
    """The blob of one vector."""
    bitmap.run_optimize()
    body = _VECTOR_MAGIC + bitmap.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def decode_vector(blob: bytes, *, location: str) -> BitMap64:
    """The positions of one vector; BadInput names the file whose bytes are not one."""
    if len(blob) < _FRAME_BYTES:
        raise _broken(location, f"it has {len(blob)} bytes")
    (size,), (checksum,) = struct.unpack_from(">I", blob), struct.unpack_from(">I", blob, len(blob) - 4)
    body = blob[4:-4]
    if size != len(body):
        raise _broken(location, f"it says {size} bytes and has {len(body)}")
    if body[:4] != _VECTOR_MAGIC:
        raise _broken(location, "it does not begin with the magic number")
    if zlib.crc32(body) != checksum:
        raise _broken(location, "its checksum is wrong")
    try:
        return BitMap64.deserialize(body[4:])
    except ValueError as error:
        raise _broken(location, str(error)) from error


def encode_puffin(vectors: Mapping[str, BitMap64]) -> tuple[bytes, dict[str, Blob]]:
    """A Puffin file with a vector for each data file, and where each one stands."""
    content, placed, described = bytearray(PUFFIN_MAGIC), {}, []
    for path, bitmap in vectors.items():
        blob = encode_vector(bitmap)
        placed[path] = Blob(len(content), len(blob), len(bitmap))
        described.append(
            {
                "type": "deletion-vector-v1",
                "fields": [_POSITION_FIELD_ID],
                "snapshot-id": _INHERITED,
                "sequence-number": _INHERITED,
                "offset": len(content),
                "length": len(blob),
                "properties": {"referenced-data-file": path, "cardinality": str(len(bitmap))},
            }
        )
        content += blob
    footer = {"blobs": described, "properties": {"created-by": f"headgate {__version__}"}}
    payload = json.dumps(footer, ensure_ascii=False, separators=(",", ":")).encode()
    content += PUFFIN_MAGIC + payload + struct.pack("<i", len(payload)) + bytes(4) + PUFFIN_MAGIC
    return bytes(content), placed


def _broken(location: str, what: str) -> BadInput:
    return BadInput(f"not a deletion vector: {location}: {what}", location=location)
