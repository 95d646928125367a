"""Manifests and lists written by PyIceberg (v1, v2) and, for v3 which it cannot write, by fastavro."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any, Literal

import fastavro
import zstandard
from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, StringType

from tests.format.avro_files import block, deflate, header

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "day", DateType(), required=False),
    NestedField(3, "price", DecimalType(10, 2), required=False),
    NestedField(4, "name", StringType(), required=False),
)
SPEC = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "day"),
    PartitionField(4, 1001, IdentityTransform(), "odd.name"),
    spec_id=3,
)
SNAPSHOT_ID = 7001


def data_file(path: str, *, rows: int = 5, partition: Record | None = None) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(19_000, "a") if partition is None else partition,
        record_count=rows,
        file_size_in_bytes=100 * rows,
        column_sizes={1: 10, 4: 300},
        value_counts={1: rows},
        null_value_counts={1: 0},
        nan_value_counts={},
        lower_bounds={1: b"\x01"},
        upper_bounds={1: b"\xff"},
        key_metadata=None,
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=0,
    )


def entry(path: str, status: ManifestEntryStatus = ManifestEntryStatus.ADDED, **facts: Any) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=facts.get("snapshot_id", SNAPSHOT_ID),
        sequence_number=facts.get("sequence_number"),
        file_sequence_number=facts.get("file_sequence_number"),
        data_file=data_file(path, rows=facts.get("rows", 5), partition=facts.get("partition")),
    )


def written_manifest(
    folder: str,
    entries: list[ManifestEntry],
    *,
    version: Literal[1, 2],
    codec: AvroCompressionCodec = "deflate",
) -> tuple[bytes, ManifestFile]:
    io = PyArrowFileIO()
    path = f"{folder}/manifest.avro"
    with write_manifest(version, SPEC, SCHEMA, io.new_output(path), SNAPSHOT_ID, codec) as writer:
        for one in entries:
            writer.add_entry(one)
    return _read(path), writer.to_manifest_file()


def written_list(
    folder: str, manifests: list[ManifestFile], *, version: Literal[1, 2], sequence_number: int = 4
) -> bytes:
    io = PyArrowFileIO()
    path = f"{folder}/snap.avro"
    with write_manifest_list(
        version, io.new_output(path), SNAPSHOT_ID, None, sequence_number, "deflate"
    ) as writer:
        writer.add_manifests(manifests)
    return _read(path)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _optional(name: str, kind: object, field_id: int) -> dict[str, object]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}


def _required(name: str, kind: object, field_id: int) -> dict[str, object]:
    return {"name": name, "type": kind, "field-id": field_id}


UUID_TYPE = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
DECIMAL_TYPE = {
    "type": "fixed", "name": "decimal_10_2", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2,
}  # fmt: skip

V3_PARTITION: dict[str, object] = {
    "type": "record",
    "name": "r102",
    "fields": [
        _optional("u", UUID_TYPE, 1000),
        _optional("v", "uuid_fixed", 1001),  # Avro names a type that it has written before
        _optional("price", DECIMAL_TYPE, 1002),
        _optional("at", {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}, 1003),
        _optional("ratio", "double", 1004),
        _optional("flag", "boolean", 1005),
    ],
}

V3_ENTRY: dict[str, object] = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        _required("status", "int", 0),
        _optional("snapshot_id", "long", 1),
        _optional("sequence_number", "long", 3),
        _optional("file_sequence_number", "long", 4),
        _required(
            "data_file",
            {
                "type": "record",
                "name": "r2",
                "fields": [
                    _required("content", "int", 134),
                    _required("file_path", "string", 100),
                    _required("file_format", "string", 101),
                    _required("partition", V3_PARTITION, 102),
                    _required("record_count", "long", 103),
                    _required("file_size_in_bytes", "long", 104),
                    _optional("first_row_id", "long", 142),
                    _optional("referenced_data_file", "string", 143),
                    _optional("content_offset", "long", 144),
                    _optional("content_size_in_bytes", "long", 145),
                    _optional("a_field_from_the_future", {"type": "map", "values": "string"}, 9999),
                ],
            },
            2,
        ),
    ],
}


def v3_entry(path: str = "d.parquet", **facts: Any) -> dict[str, Any]:
    """One entry; `facts` overrides fields of the entry and of the file alike."""
    file = {
        "content": 0,
        "file_path": path,
        "file_format": "parquet",
        "partition": {},
        "record_count": 10,
        "file_size_in_bytes": 1000,
    }
    known = {"status": 1, "snapshot_id": None, "sequence_number": None, "file_sequence_number": None}
    file.update({name: value for name, value in facts.items() if name not in known})
    known.update({name: value for name, value in facts.items() if name in known})
    return {**known, "data_file": file}


def v3_manifest(*entries: dict[str, Any], codec: str = "deflate") -> bytes:
    """A manifest of one block. fastavro encodes the records; it lacks zstandard here, so we compress."""
    schema = fastavro.parse_schema(V3_ENTRY)
    out = BytesIO()
    for one in entries:
        fastavro.schemaless_writer(out, schema, one)
    codecs: dict[str, Callable[[bytes], bytes]] = {
        "null": bytes,
        "deflate": deflate,
        "zstandard": zstandard.compress,
    }
    compress = codecs[codec]
    return header(V3_ENTRY, codec=codec) + block(compress(out.getvalue()), count=len(entries))
