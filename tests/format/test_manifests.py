"""Manifests of other writers become our values; broken ones become BadInput, whatever the damage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestEntryStatus, read_manifest_list

from headgate.core.manifest import (
    FieldSummary,
    FileContent,
    ManifestContent,
    ManifestFile,
    Metrics,
)
from headgate.errors import BadInput, Unsupported
from headgate.format.avro import Limits
from headgate.format.manifests import decode_manifest, decode_manifest_list
from tests.format.avro_files import block, container, header
from tests.format.manifest_files import (
    SNAPSHOT_ID,
    V3_ENTRY,
    entry,
    v3_entry,
    v3_manifest,
    written_list,
    written_manifest,
)

V3_DATA = ManifestFile("m.avro", 1, 0, ManifestContent.DATA, 9, 1, 42, first_row_id=1000)
V3_DELETES = replace(V3_DATA, content=ManifestContent.DELETES, first_row_id=None)

Version = Literal[1, 2]
LIST_FIELDS = (
    "manifest_path", "manifest_length", "partition_spec_id", "sequence_number", "min_sequence_number",
    "added_snapshot_id", "added_files_count", "existing_files_count", "deleted_files_count",
    "added_rows_count", "existing_rows_count", "deleted_rows_count", "key_metadata",
)  # fmt: skip
FILE_FIELDS = ("file_path", "record_count", "file_size_in_bytes", "sort_order_id", "key_metadata", "spec_id")
METRIC_FIELDS = (
    "column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds",
)  # fmt: skip
BOTH = pytest.mark.parametrize("version", [1, 2])


@BOTH
def test_a_manifest_list_of_pyiceberg_reads_as_pyiceberg_reads_it(tmp_path: Path, version: Version) -> None:
    _, manifest = written_manifest(str(tmp_path), [entry("a"), entry("b", rows=7)], version=version)
    data = written_list(str(tmp_path), [manifest], version=version)
    (ours,) = decode_manifest_list(data, location="x")
    (theirs,) = read_manifest_list(PyArrowFileIO().new_input(f"{tmp_path}/snap.avro"))
    for name in LIST_FIELDS:
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.content is ManifestContent.DATA
    assert (ours.sequence_number, ours.added_rows_count) == (0 if version == 1 else 4, 12)
    assert ours.partitions is not None
    assert ours.partitions[1] == FieldSummary(False, False, b"a", b"a")


@BOTH
@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_entries_of_pyiceberg_read_as_pyiceberg_reads_them(
    tmp_path: Path, version: Version, codec: Literal["null", "deflate", "zstandard"]
) -> None:
    entries = [entry(f"f{n}", rows=n) for n in range(3)]
    data, _ = written_manifest(str(tmp_path), entries, version=version, codec=codec)
    listed = written_list(
        str(tmp_path),
        [written_manifest(str(tmp_path), entries, version=version, codec=codec)[1]],
        version=version,
    )
    (manifest,) = decode_manifest_list(listed, location="x")
    (reference,) = read_manifest_list(PyArrowFileIO().new_input(f"{tmp_path}/snap.avro"))
    theirs = reference.fetch_manifest_entry(PyArrowFileIO())
    ours = tuple(decode_manifest(data, manifest, location="x", metrics=True))
    assert len(ours) == len(theirs) == 3
    for one, other in zip(ours, theirs, strict=True):
        assert (one.status.value, one.snapshot_id) == (other.status.value, other.snapshot_id)
        assert one.data_sequence_number == other.sequence_number
        assert one.file_sequence_number == other.file_sequence_number
        for name in FILE_FIELDS:
            assert getattr(one.file, name) == getattr(other.data_file, name), name
        assert one.file.file_format == other.data_file.file_format.value
        assert one.file.partition == ((1000, 19_000), (1001, "a"))
        assert one.file.split_offsets == (4,)
        assert one.file.metrics == Metrics(*(getattr(other.data_file, name) for name in METRIC_FIELDS))


def test_metrics_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    data, _ = written_manifest(str(tmp_path), [entry("a")], version=2)
    (one,) = decode_manifest(data, V3_DATA, location="x")
    assert one.file.metrics is None


def test_entries_of_v1_have_sequence_number_zero_whatever_their_status(tmp_path: Path) -> None:
    statuses = [ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED]
    data, _ = written_manifest(str(tmp_path), [entry(str(s), s, snapshot_id=5) for s in statuses], version=1)
    manifest = ManifestFile("m", 1, 3, ManifestContent.DATA, 0, 0, SNAPSHOT_ID)
    entries = list(decode_manifest(data, manifest, location="x"))
    assert [(e.snapshot_id, e.data_sequence_number, e.file_sequence_number) for e in entries] == [
        (5, 0, 0)
    ] * 3
    assert [e.is_live for e in entries] == [True, True, False]
    assert all(e.file.content is FileContent.DATA for e in entries)


def test_added_entries_inherit_what_they_lack_and_keep_what_they_have() -> None:
    data = v3_manifest(
        v3_entry(),
        v3_entry(snapshot_id=6, sequence_number=3),
        v3_entry(status=0, snapshot_id=5, sequence_number=2, file_sequence_number=1),
        v3_entry(status=0, snapshot_id=5, sequence_number=2),
    )
    found = [
        (e.snapshot_id, e.data_sequence_number, e.file_sequence_number)
        for e in decode_manifest(data, V3_DATA, location="x")
    ]
    assert found == [(42, 9, 9), (6, 3, 9), (5, 2, 1), (5, 2, None)]


def test_an_existing_entry_without_a_sequence_number_is_refused_above_v1() -> None:
    with pytest.raises(BadInput, match="sequence number"):
        list(decode_manifest(v3_manifest(v3_entry(status=0)), V3_DATA, location="x"))


def test_row_ids_are_handed_out_in_order_to_live_files_that_have_none() -> None:
    numbered: dict[str, Any] = {"sequence_number": 1, "file_sequence_number": 1}
    data = v3_manifest(
        v3_entry(record_count=10),
        v3_entry(record_count=99, first_row_id=5, status=0, **numbered),
        v3_entry(record_count=99, status=2, **numbered),
        v3_entry(record_count=20, status=0, **numbered),
        v3_entry(record_count=1),
    )
    entries = decode_manifest(data, V3_DATA, location="x")
    assert [e.file.first_row_id for e in entries] == [1000, 5, None, 1010, 1030]


def test_a_manifest_without_row_ids_gives_none() -> None:
    data = v3_manifest(v3_entry(first_row_id=5))
    (one,) = decode_manifest(data, replace(V3_DATA, first_row_id=None), location="x")
    assert one.file.first_row_id is None


def test_a_deletion_vector_is_known_by_its_blob() -> None:
    data = v3_manifest(
        v3_entry("dv.puffin", content=1, file_format="puffin", content_offset=4, content_size_in_bytes=40,
                 referenced_data_file="d.parquet"),
        v3_entry("p.parquet", content=1),
        v3_entry("e.parquet", content=2),
    )  # fmt: skip
    dv, position, equality = (e.file for e in decode_manifest(data, V3_DELETES, location="x"))
    assert (dv.is_dv, dv.identity, dv.referenced_data_file) == (True, ("dv.puffin", 4), "d.parquet")
    assert dv.content_size_in_bytes == 40
    assert (position.is_dv, position.identity) == (False, ("p.parquet", None))
    assert (equality.is_dv, equality.content) == (False, FileContent.EQUALITY_DELETES)


def test_partition_values_keep_what_a_datetime_would_lose() -> None:
    one, two = UUID(int=1), UUID(int=2**127)
    far = 2**62  # microseconds: far beyond the year 9999
    partition = {
        "u": one.bytes, "v": two.bytes, "price": (-12345).to_bytes(5, "big", signed=True),
        "at": far, "ratio": 0.5, "flag": True,
    }  # fmt: skip
    (read,) = decode_manifest(_raw_partition(partition), V3_DATA, location="x")
    assert dict(read.file.partition) == {
        1000: one, 1001: two, 1002: Decimal("-123.45"), 1003: far, 1004: 0.5, 1005: True,
    }  # fmt: skip


def _raw_partition(partition: dict[str, object]) -> bytes:
    # fastavro converts by logical type, so the record is written under the bare schema and the file then gets
    # the schema with logical types: the bytes are the same.
    bare = fastavro.parse_schema(_without_logic(V3_ENTRY))
    out = BytesIO()
    fastavro.schemaless_writer(out, bare, v3_entry(partition=partition))
    return header(V3_ENTRY) + block(out.getvalue())


def _without_logic(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_logic(value) for key, value in node.items() if key != "logicalType"}
    return [_without_logic(item) for item in node] if isinstance(node, list) else node


@pytest.mark.parametrize(
    ("facts", "manifest", "what"),
    [
        ({"status": 3}, V3_DATA, "code 3"),
        ({"content": 7}, V3_DATA, "code 7"),
        ({"content": 1}, V3_DATA, "content 1"),
        ({"content": 0}, V3_DELETES, "content 0"),
        ({"record_count": -1}, V3_DATA, "negative"),
        ({"file_size_in_bytes": -1}, V3_DATA, "negative"),
    ],
)
def test_an_entry_that_the_specification_forbids_is_refused(
    facts: dict[str, Any], manifest: ManifestFile, what: str
) -> None:
    with pytest.raises(BadInput, match=f"^the-place: .*{what}"):
        list(decode_manifest(v3_manifest(v3_entry(**facts)), manifest, location="the-place"))


def test_a_list_that_java_wrote_with_nullable_fields_reads_alike() -> None:
    schema = {
        "type": "record",
        "name": "manifest_file",
        "fields": [
            {"name": "manifest_path", "type": "string", "field-id": 500},
            {"name": "manifest_length", "type": "long", "field-id": 501},
            {"name": "partition_spec_id", "type": "int", "field-id": 502},
            {"name": "added_snapshot_id", "type": ["null", "long"], "field-id": 503},
            # The names changed over the years; the ids did not.
            {"name": "added_data_files_count", "type": ["null", "int"], "field-id": 504},
        ],
    }
    record = {
        "manifest_path": "m", "manifest_length": 1, "partition_spec_id": 0, "added_snapshot_id": 5,
        "added_data_files_count": 3,
    }  # fmt: skip
    (manifest,) = decode_manifest_list(container(schema, [record]), location="x")
    assert manifest == ManifestFile("m", 1, 0, ManifestContent.DATA, 0, 0, 5, added_files_count=3)
    with pytest.raises(BadInput, match="field-id=503"):
        decode_manifest_list(container(schema, [{**record, "added_snapshot_id": None}]), location="x")


# --- damage ----------------------------------------------------------------------------------------------

SMALL = Limits(block_bytes_max=1 << 20, file_bytes_max=1 << 20, records_max=10_000, block_items_max=10_000)
SAMPLES = {
    codec: v3_manifest(v3_entry(), v3_entry("e", first_row_id=3, referenced_data_file="d"), codec=codec)
    for codec in ("null", "deflate", "zstandard")
}


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sound manifest with some bytes changed, put in, cut out or repeated."""
    data = bytearray(SAMPLES[draw(st.sampled_from(sorted(SAMPLES)))])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(("change", "insert", "cut", "repeat"))):
            case "change":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=10))
            case "cut":
                del data[at : at + draw(st.integers(1, 40))]
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 40))]
    return bytes(data)


def outcome(decode: Callable[[], object]) -> str:
    """What came out: values, or a message of ours. Any other exception is the failure we look for."""
    try:
        decode()
    except (BadInput, Unsupported) as error:
        return error.message
    return "x: values"


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_damage_gives_values_or_bad_input_and_nothing_else(data: bytes) -> None:
    for decode in (
        lambda: list(decode_manifest(data, V3_DATA, location="x", metrics=True, limits=SMALL)),
        lambda: decode_manifest_list(data, location="x", limits=SMALL),
    ):
        assert outcome(decode).startswith("x: ")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_block_gives_values_or_bad_input_and_nothing_else(body: bytes) -> None:
    data = header(V3_ENTRY) + block(body)
    assert outcome(lambda: list(decode_manifest(data, V3_DATA, location="x"))).startswith("x: ")
