"""A data file described and never written: what the clients of the benches append. Nobody reads it."""

from __future__ import annotations

import struct
import uuid
from typing import Any

ROWS = 1000


def describe_file(location: str) -> dict[str, Any]:
    """The content-file JSON of a new data file of the table."""
    counts = {"keys": [1], "values": [ROWS]}
    return {
        "content": "data",
        "file-path": f"{location}/data/{uuid.uuid4()}.parquet",
        "file-format": "parquet",
        "spec-id": 0,
        "partition": [],
        "file-size-in-bytes": 10_000,
        "record-count": ROWS,
        "column-sizes": counts,
        "value-counts": counts,
        "null-value-counts": {"keys": [1], "values": [0]},
        "lower-bounds": {"keys": [1], "values": [struct.pack("<q", 1).hex()]},
        "upper-bounds": {"keys": [1], "values": [struct.pack("<q", ROWS).hex()]},
    }
