"""Delete files as bytes and as the wire has them: position deletes in format version 2, vectors in version 3.

Shared by the library and by Spark's executors, so it knows neither PyIceberg nor Spark. Writes nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from headgate.core.manifest import DELETE_PATH_ID, ContentFile
from headgate.errors import BadInput
from headgate.format.deletion_vectors import encode_puffin

GRANULARITY = "write.delete.granularity"
BY_FILE, BY_PARTITION = "file", "partition"
POSITION_ID = 2147483545  # the column `pos` of position delete files (spec, "Reserved Field IDs")
_SCHEMA = pa.schema(
    [
        pa.field(
            "file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(DELETE_PATH_ID)}
        ),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
    ]
)

Fields = dict[str, Any]  # a part of a content file


def granularity_of(properties: Mapping[str, str]) -> str:
    """Whether a position delete file is for one data file or for many of a partition; Spark's default is one."""
    said = properties.get(GRANULARITY, BY_FILE).lower()
    if said not in (BY_FILE, BY_PARTITION):
        raise BadInput(
            f"{GRANULARITY}: expected {BY_FILE} or {BY_PARTITION}, got {said[:40]!r}", field=GRANULARITY
        )
    return said


def encode_positions(deleted: Mapping[str, BitMap64]) -> tuple[bytes, Fields]:
    """A position delete file for the rows of some data files, and what a content file says of it."""
    paths = sorted(deleted, key=str.encode)  # readers rely on both orders
    tables = []
    for path in paths:
        positions = pa.array(deleted[path].to_array(), pa.int64())
        names = pa.repeat(pa.scalar(path, pa.string()), len(positions))
        tables.append(pa.table([names, positions], schema=_SCHEMA))
    sink = pa.BufferOutputStream()
    # No position is there twice, so a dictionary of them is only in the way: 2.7 x the bytes.
    pq.write_table(pa.concat_tables(tables), sink, compression="zstd", use_dictionary=[_SCHEMA.names[0]])
    content = sink.getvalue().to_pybytes()
    count = sum(len(bitmap) for bitmap in deleted.values())
    bounds = (
        (paths[0].encode(), min(bitmap.min() for bitmap in deleted.values())),
        (paths[-1].encode(), max(bitmap.max() for bitmap in deleted.values())),
    )
    ids = [DELETE_PATH_ID, POSITION_ID]
    lower, upper = ([name.hex(), at.to_bytes(8, "little").hex()] for name, at in bounds)
    fields: Fields = {
        "content": "position-deletes",
        "file-format": "parquet",
        "file-size-in-bytes": len(content),
        "record-count": count,
        "value-counts": {"keys": ids, "values": [count, count]},
        "null-value-counts": {"keys": ids, "values": [0, 0]},
        "lower-bounds": {"keys": ids, "values": lower},
        "upper-bounds": {"keys": ids, "values": upper},
    }
    if len(paths) == 1:
        fields["referenced-data-file"] = paths[0]
    return content, fields


def encode_vectors(deleted: Mapping[str, BitMap64]) -> tuple[bytes, dict[str, Fields]]:
    """A Puffin file with a vector for each data file, and what a content file says of each."""
    content, blobs = encode_puffin(deleted)
    return content, {
        path: {
            "content": "position-deletes",
            "file-format": "puffin",
            "file-size-in-bytes": len(content),
            "record-count": blob.rows,
            "referenced-data-file": path,
            "content-offset": blob.offset,
            "content-size-in-bytes": blob.size_bytes,
        }
        for path, blob in blobs.items()
    }


def reference_to(old: ContentFile) -> Fields:
    """A delete file as a change names it that removes it: a vector by its blob too."""
    offset = {"content-offset": old.content_offset} if old.is_dv else {}
    return {"file-path": old.file_path, "file-format": old.file_format.lower(), **offset}
