"""Manifests and lists that we write: our decoder, PyIceberg and fastavro read back what went in."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import read_manifest_list

from headgate.core.manifest import (
    EntryStatus,
    FieldSummary,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    Metrics,
    NewEntry,
    PartitionValue,
)
from headgate.core.manifest_list import ManifestList
from headgate.core.partitioning import PartitionField, PartitionSpec
from headgate.core.schema import Field, Schema
from headgate.errors import BadInput, InvariantBroken, Unsupported
from headgate.format.avro import read_metadata
from headgate.format.avro_values import read_long
from headgate.format.avro_write import encode_long
from headgate.format.manifest_encode import EncodedManifest, encode_manifest
from headgate.format.manifest_list_encode import encode_manifest_list
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.format.partition_values import decode_bound
from tests.format.entries import ALL_METRICS, RESULTS, SNAPSHOT_ID, added, file, kept, listed, spec_of

DATA, DELETES = ManifestContent.DATA, ManifestContent.DELETES
EVERY = pytest.mark.parametrize("version", [1, 2, 3])


def _encode(
    entries: Sequence[NewEntry],
    *names: str,
    version: int = 2,
    content: ManifestContent = DATA,
    codec: str = "deflate",
) -> EncodedManifest:
    spec, schema = spec_of(*names)
    return encode_manifest(
        entries, spec=spec, schema=schema, format_version=version, content=content, codec=codec
    )


def _decode(encoded: EncodedManifest, content: ManifestContent = DATA, **facts: Any) -> list[ManifestEntry]:
    manifest = listed(encoded, content, **facts)
    return list(decode_manifest(encoded.data, manifest, location="m", metrics=True))


def _encode_list(manifests: ManifestList | Sequence[ManifestFile], version: int, **facts: Any) -> bytes:
    known: dict[str, Any] = {
        "snapshot_id": SNAPSHOT_ID,
        "parent_snapshot_id": 6999,
        "sequence_number": 9,
        "first_row_id": 100 if version == 3 else None,
    }
    return encode_manifest_list(manifests, format_version=version, **{**known, **facts})


def _names(version: int) -> list[str]:
    return [name for name, result in RESULTS.items() if version == 3 or not result[3]]


def _values(names: Sequence[str]) -> list[PartitionValue]:
    return [RESULTS[name][2] for name in names]


# --- round trips ----------------------------------------------------------------------------------------


@EVERY
def test_every_transform_result_comes_back_as_a_value_and_as_null(version: int) -> None:
    names = _names(version)
    files = [file("a", *_values(names)), file("b", *[None] * len(names))]
    encoded = _encode([added(one) for one in files], *names, version=version)
    assert [entry.file for entry in _decode(encoded)] == files


@EVERY
def test_data_files_come_back_with_all_their_facts(version: int) -> None:
    facts = {"sort_order_id": 1, "split_offsets": (4, 2**40), "key_metadata": b"key"}
    full = file("s3://b/ä.parquet", record_count=2**50, file_size_in_bytes=2**60, **facts)
    bare = file("b", metrics=Metrics(), file_format="ORC")
    encoded = _encode([added(full), added(bare)], version=version)
    assert [entry.file for entry in _decode(encoded)] == [full, bare]


@pytest.mark.parametrize("version", [2, 3])
def test_delete_files_come_back_with_all_their_facts(version: int) -> None:
    files = [
        file("p", content=FileContent.POSITION_DELETES, referenced_data_file="d.parquet"),
        file("e", content=FileContent.EQUALITY_DELETES, equality_ids=(1, 5), sort_order_id=0),
    ]
    if version == 3:
        vector = {"referenced_data_file": "d", "content_offset": 4, "content_size_in_bytes": 40}
        files.append(file("v", content=FileContent.POSITION_DELETES, file_format="PUFFIN", **vector))
    encoded = _encode([added(one) for one in files], version=version, content=DELETES)
    assert [entry.file for entry in _decode(encoded, DELETES)] == files


def test_numbers_are_inherited_where_they_are_left_out_and_kept_where_they_are_given() -> None:
    entries = [
        added(file("a")),
        replace(added(file("b")), data_sequence_number=4),
        kept(file("c"), number=2),
        kept(file("d"), number=1, status=EntryStatus.DELETED),
    ]
    decoded = _decode(_encode(entries))
    assert [(e.status, e.snapshot_id, e.data_sequence_number, e.file_sequence_number) for e in decoded] == [
        (EntryStatus.ADDED, SNAPSHOT_ID, 9, 9),
        (EntryStatus.ADDED, SNAPSHOT_ID, 4, 9),
        (EntryStatus.EXISTING, 6999, 2, 2),
        (EntryStatus.DELETED, 6999, 1, 1),
    ]


def test_row_ids_are_inherited_by_added_files_and_kept_by_others() -> None:
    entries = [added(file("a")), kept(file("b", first_row_id=70)), added(file("c"))]
    decoded = _decode(_encode(entries, version=3), first_row_id=1000)
    assert [entry.file.first_row_id for entry in decoded] == [1000, 70, 1005]


def test_v1_has_no_sequence_numbers_and_reads_as_zero() -> None:
    encoded = _encode([kept(file("a"), number=0)], version=1)
    (entry,) = _decode(encoded, sequence_number=0)
    assert (entry.snapshot_id, entry.data_sequence_number, entry.file_sequence_number) == (6999, 0, 0)


@EVERY
def test_a_manifest_list_comes_back_as_it_went_in(version: int) -> None:
    names = ("day", "ratio")
    entries = [added(file("a", 5, math.nan)), kept(file("b", None, 2.0)), kept(file("c", 7, 1.0))]
    encoded = _encode(entries, *names, version=version)
    row_id = 100 if version == 3 else None
    manifests = [
        listed(encoded, DATA, first_row_id=row_id, key_metadata=b"k"),
        listed(encoded, DATA, first_row_id=row_id, partitions=None, manifest_path="ä.avro"),
    ]
    if version == 1:
        manifests = [replace(one, sequence_number=0, min_sequence_number=0) for one in manifests]
        manifests.append(ManifestFile("old.avro", 1, 0, DATA, 0, 0, 5))
    else:
        manifests.append(listed(encoded, DELETES, partitions=()))
    assert decode_manifest_list(_encode_list(manifests, version), location="l") == tuple(manifests)


@pytest.mark.parametrize("step", [1, 3, 400])
def test_a_list_that_grew_says_the_same_whenever_it_was_encoded_on_the_way(step: int) -> None:
    encoded = _encode([added(file("a"))], version=2)
    grown, everything = ManifestList(), list[ManifestFile]()
    for n in range(300):
        new = listed(encoded, DATA, manifest_path=f"m{n}.avro")
        grown, everything = grown.next([new]), [new, *everything]
        if n % step == 0:
            assert decode_manifest_list(_encode_list(grown, 2), location="l") == tuple(everything)
    assert decode_manifest_list(_encode_list(grown, 2), location="l") == tuple(everything)


_LONGS = st.integers(-(2**63), 2**63 - 1)
_COUNTS = st.integers(0, 2**63 - 1)
_IDS = st.integers(0, 2**31 - 1)
_METRICS = st.builds(
    Metrics,
    **dict.fromkeys(
        ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"),
        st.none() | st.dictionaries(_IDS, _LONGS),
    ),
    **dict.fromkeys(
        ("lower_bounds", "upper_bounds"), st.none() | st.dictionaries(_IDS, st.binary(max_size=99))
    ),
)
_UTF8 = st.text(st.characters(exclude_categories=("Cs",)))
_FILES = st.builds(
    file,
    _UTF8,
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | _UTF8,
    st.none() | st.decimals(min_value=-99_999_999, max_value=99_999_999, places=2),
    st.none() | st.uuids(),
    record_count=st.integers(0, 2**40),
    file_size_in_bytes=_COUNTS,
    metrics=_METRICS,
    split_offsets=st.none() | st.lists(_LONGS, max_size=4).map(tuple),
    key_metadata=st.none() | st.binary(max_size=9),
    sort_order_id=st.none() | _IDS,
)


@given(st.lists(_FILES, max_size=4), st.sampled_from([1, 2, 3]), st.sampled_from(["null", "deflate"]))
@settings(max_examples=150, deadline=None)
def test_any_files_come_back_as_they_went_in(files: list[Any], version: int, codec: str) -> None:
    names = ("number", "odd.name", "price", "u")
    encoded = _encode([added(one) for one in files], *names, version=version, codec=codec)
    assert [entry.file for entry in _decode(encoded)] == files


_MANIFESTS = st.builds(
    ManifestFile,
    manifest_path=_UTF8,
    manifest_length=_COUNTS,
    partition_spec_id=_IDS,
    content=st.just(DATA),
    **dict.fromkeys(("sequence_number", "min_sequence_number", "added_snapshot_id"), _LONGS),
    **{f"{what}_files_count": _IDS for what in ("added", "existing", "deleted")},
    **{f"{what}_rows_count": _COUNTS for what in ("added", "existing", "deleted")},
    partitions=st.none()
    | st.lists(
        st.builds(
            FieldSummary,
            st.booleans(),
            st.none() | st.booleans(),
            st.none() | st.binary(),
            st.none() | st.binary(),
        ),
        max_size=3,
    ).map(tuple),
    key_metadata=st.none() | st.binary(max_size=9),
    first_row_id=_COUNTS,
)


@given(st.lists(_MANIFESTS, max_size=4))
@settings(deadline=None)
def test_any_manifest_list_comes_back_as_it_went_in(manifests: list[ManifestFile]) -> None:
    assert decode_manifest_list(_encode_list(manifests, 3), location="l") == tuple(manifests)


@given(_LONGS)
def test_any_number_of_64_bits_comes_back_and_as_short_as_can_be(number: int) -> None:
    encoded = encode_long(number)
    assert read_long(encoded, 0) == (number, len(encoded))
    assert len(encoded) == 1 or encoded[-1] != 0


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**80])
def test_a_number_of_more_than_64_bits_is_never_written(number: int) -> None:
    with pytest.raises(InvariantBroken, match="64 bits"):
        encode_long(number)


# --- other readers --------------------------------------------------------------------------------------


def _block(data: bytes) -> tuple[dict[str, Any], list[Any]]:
    reader = fastavro.reader(BytesIO(data))
    return json.loads(reader.metadata["avro.schema"]), list(reader)


@EVERY
def test_fastavro_writes_the_same_bytes_from_what_it_reads(version: int) -> None:
    names = _names(version)
    entries = [added(file("a", *_values(names), split_offsets=(4,))), kept(file("b", *[None] * len(names)))]
    if version == 3:
        entries.append(kept(file("c", *_values(names), first_row_id=7, equality_ids=())))
    encoded = _encode(entries, *names, version=version, codec="null")
    manifests = [listed(encoded, DATA, first_row_id=7 if version == 3 else None)]
    for data in (encoded.data, _encode_list(manifests, version)):
        schema, records = _block(data)
        out = BytesIO()
        for record in records:
            fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
        if data is encoded.data:
            assert out.getvalue() in data
        else:
            again = BytesIO()
            fastavro.writer(again, schema, records)
            assert decode_manifest_list(again.getvalue(), location="l") == decode_manifest_list(
                data, location="l"
            )


@EVERY
def test_pyiceberg_reads_the_list_the_entries_and_the_partitions(tmp_path: Path, version: int) -> None:
    # PyIceberg 0.12 rounds doubles to floats and cannot read nanoseconds.
    unread = ("ratio2", "at_ns", "atz_ns")
    names = [name for name in _names(version) if name not in unread]
    one = file("a", *_values(names), split_offsets=(4, 8), sort_order_id=1, key_metadata=b"k")
    entries = [added(one), kept(file("b", *[None] * len(names), metrics=Metrics()), number=2)]
    encoded = _encode(entries, *names, version=version)
    path = tmp_path / "m.avro"
    path.write_bytes(encoded.data)
    manifest = listed(encoded, DATA, manifest_path=str(path), first_row_id=5 if version == 3 else None)
    (tmp_path / "l.avro").write_bytes(_encode_list([manifest], version))
    io = PyArrowFileIO()
    (theirs,) = read_manifest_list(io.new_input(str(tmp_path / "l.avro")))
    assert theirs.partitions is not None
    assert encoded.partitions is not None
    assert [(s.contains_null, s.contains_nan, s.lower_bound, s.upper_bound) for s in theirs.partitions] == [
        (s.contains_null, s.contains_nan, s.lower_bound, s.upper_bound) for s in encoded.partitions
    ]
    assert (theirs.added_rows_count, theirs.existing_files_count) == (5, 1)
    first, second = theirs.fetch_manifest_entry(io)
    assert (first.status.value, second.status.value) == (1, 0)
    assert (first.sequence_number, second.sequence_number) == ((0, 0) if version == 1 else (9, 2))
    found = first.data_file
    assert (found.file_path, found.split_offsets, found.sort_order_id) == ("a", [4, 8], 1)
    assert found.key_metadata == b"k"
    for name in Metrics.__struct_fields__:
        assert getattr(found, name) == getattr(ALL_METRICS, name), name
        assert getattr(second.data_file, name) is None
    expected = [value.bytes if isinstance(value, UUID) else value for value in _values(names)]
    got = [value.bytes if isinstance(value, UUID) else value for value in found.partition]
    assert got == expected
    assert list(second.data_file.partition) == [None] * len(names)


@EVERY
def test_the_metadata_of_a_manifest_is_what_java_writes(version: int) -> None:
    metadata = read_metadata(_encode([], "day", version=version).data, location="m")
    assert json.loads(metadata["schema"])["fields"][0]["type"] == "date"
    assert json.loads(metadata["partition-spec"]) == [
        {"name": "day", "transform": "identity", "source-id": 1, "field-id": 1000}
    ]
    assert (metadata["schema-id"], metadata["partition-spec-id"]) == (b"2", b"3")
    assert metadata["format-version"] == str(version).encode()
    assert metadata.get("content") == (None if version == 1 else b"data")


def test_the_metadata_of_a_list_is_what_java_writes() -> None:
    v1 = read_metadata(_encode_list([], 1, parent_snapshot_id=None), location="l")
    v3 = read_metadata(_encode_list([], 3), location="l")
    for metadata in (v1, v3):
        del metadata["avro.schema"], metadata["avro.codec"]
    assert v1 == {"snapshot-id": b"7001", "parent-snapshot-id": b"null", "format-version": b"1"}
    assert v3 == {
        "snapshot-id": b"7001", "parent-snapshot-id": b"6999", "sequence-number": b"9",
        "first-row-id": b"100", "format-version": b"3",
    }  # fmt: skip


@EVERY
def test_types_and_names_of_partition_fields_are_those_of_java(version: int) -> None:
    schema, _ = _block(_encode([], *_names(version), version=version).data)
    (found,) = (field for field in schema["fields"][-1]["type"]["fields"] if field["name"] == "partition")
    fields = {field.get("iceberg-field-name", field["name"]): field for field in found["type"]["fields"]}
    decimal = {"type": "fixed", "name": "decimal_10_2", "size": 5, "logicalType": "decimal"}
    assert fields["price"]["type"] == ["null", {**decimal, "precision": 10, "scale": 2}]
    # A second name where Java refers to the first, which PyIceberg cannot read.
    other = {**decimal, "name": f"decimal_10_2_{fields['cost']['field-id']}", "precision": 10, "scale": 2}
    assert fields["cost"]["type"] == ["null", other]
    assert fields["by_day"]["type"] == ["null", {"type": "int", "logicalType": "date"}]
    assert fields["by_hour"]["type"] == ["null", "int"]
    assert fields["at"]["type"][1] == {
        "type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False,
    }  # fmt: skip
    assert fields["odd.name"]["name"] == "odd_x2Ename"
    assert fields["1st"]["name"] == "_1st"


# --- what a list says of a manifest ---------------------------------------------------------------------


def test_counts_rows_and_the_smallest_live_number_are_added_up() -> None:
    entries = [
        added(file("a", record_count=1)),
        kept(file("b", record_count=20), number=4),
        kept(file("c", record_count=300), number=3),
        kept(file("d", record_count=4000), number=1, status=EntryStatus.DELETED),
    ]
    one = _encode(entries)
    assert (one.added_files_count, one.existing_files_count, one.deleted_files_count) == (1, 2, 1)
    assert (one.added_rows_count, one.existing_rows_count, one.deleted_rows_count) == (1, 320, 4000)
    assert (one.min_sequence_number, _encode(entries[:1]).min_sequence_number) == (3, None)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("day", [3, None, 1, 2], FieldSummary(True, False, b"\x01\0\0\0", b"\x03\0\0\0")),
        ("day", [None], FieldSummary(True, False)),
        ("day", [], FieldSummary(False, False)),
        ("ratio", [math.nan], FieldSummary(False, True)),
        ("ratio", [1.0, math.nan, 2.0], FieldSummary(False, True, b"\0\0\x80\x3f", b"\0\0\0\x40")),
        ("ratio", [0.0, -0.0], FieldSummary(False, False, b"\0\0\0\x80", b"\0\0\0\0")),
        ("price", [Decimal("1"), Decimal("-0.5")], FieldSummary(False, False, b"\xce", b"\x64")),
        ("odd.name", ["\uffff", "🚰"], FieldSummary(False, False, b"\xef\xbf\xbf", "🚰".encode())),
        ("raw", [b"\xff", b"\x01\x02"], FieldSummary(False, False, b"\x01\x02", b"\xff")),
        ("flag", [True, False], FieldSummary(False, False, b"\0", b"\x01")),
    ],
)
def test_a_summary_bounds_what_is_neither_null_nor_nan(
    name: str, values: list[PartitionValue], expected: FieldSummary
) -> None:
    encoded = _encode([added(file(str(n), value)) for n, value in enumerate(values)], name)
    assert encoded.partitions == (expected,)


def test_deleted_files_count_in_summaries_too() -> None:
    encoded = _encode([added(file("a", 5)), kept(file("b", 1), status=EntryStatus.DELETED)], "day")
    assert encoded.partitions == (FieldSummary(False, False, b"\x01\0\0\0", b"\x05\0\0\0"),)


def test_zeros_of_both_signs_keep_their_sign() -> None:
    decoded = _decode(_encode([added(file("a", 0.0)), added(file("b", -0.0))], "ratio2"))
    assert [str(entry.file.partition[0][1]) for entry in decoded] == ["0.0", "-0.0"]


def test_uuids_that_readers_order_differently_get_no_summary() -> None:
    low, middle, high = UUID(int=1), UUID(int=2), UUID(int=2**127)
    same = _encode([added(file("a", low)), added(file("b", middle))], "u")
    assert same.partitions == (FieldSummary(False, False, low.bytes, middle.bytes),)
    assert _encode([added(file("a", low)), added(file("b", high))], "u").partitions is None


@pytest.mark.parametrize("name", [name for name in RESULTS if RESULTS[name][2] is not None])
def test_a_bound_decodes_to_the_value_it_was_made_from(name: str) -> None:
    transform, source, value, _ = RESULTS[name]
    (summary,) = _encode([added(file("a", value))], name, version=3).partitions or ()
    result = {"identity": source, "day": "date"}.get(transform, source if "truncate" in transform else "int")
    assert summary.lower_bound is not None
    assert decode_bound(result, summary.lower_bound) == value


@pytest.mark.parametrize(
    ("kind", "data"), [("int", b"\1"), ("uuid", b"\1"), ("string", b"\xff"), ("list", b"")]
)
def test_a_broken_bound_is_bad_input(kind: str, data: bytes) -> None:
    with pytest.raises(BadInput):
        decode_bound(kind, data)


# --- the file -------------------------------------------------------------------------------------------


def test_the_same_entries_are_the_same_bytes() -> None:
    entries = [added(file("a", 5))]
    assert _encode(entries, "day").data == _encode(list(entries), "day").data


def test_many_entries_share_few_blocks_that_our_reader_takes() -> None:
    entries = [added(file(f"s3://bucket/data/{n:05}.parquet")) for n in range(5000)]
    encoded = _encode(entries)
    blocks = list(fastavro.block_reader(BytesIO(encoded.data)))
    assert 1 < len(blocks) < 20
    assert len(_decode(encoded)) == 5000
    assert len(list(fastavro.block_reader(BytesIO(_encode(entries[:500]).data)))) == 1


def test_a_column_default_without_a_hash_does_no_harm() -> None:
    column = Field(id=1, name="c", type="string", required=False, initial_default=["unhashable"])
    encoded = encode_manifest(
        [],
        spec=PartitionSpec(fields=(), spec_id=3),
        schema=Schema(fields=(column,)),
        format_version=3,
        content=DATA,
    )
    assert b"unhashable" in encoded.data


@pytest.mark.parametrize(("transform", "value"), [("void", None), ("identity", None), ("bucket[4]", 3)])
def test_a_field_whose_source_was_dropped_is_null_or_of_its_fixed_type(
    transform: str, value: PartitionValue
) -> None:
    field = PartitionField(name="p", transform=transform, source_id=9, field_id=1000)
    spec = PartitionSpec(fields=(field,), spec_id=3)
    one = file("a", value)
    encoded = encode_manifest(
        [added(one)], spec=spec, schema=Schema(fields=()), format_version=2, content=DATA
    )
    assert [entry.file for entry in _decode(encoded)] == [one]
    with pytest.raises(BadInput, match="field p"):
        encode_manifest(
            [added(file("a", "text"))], spec=spec, schema=Schema(fields=()), format_version=2, content=DATA
        )


# --- refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", 2**31), ("number", "1"), ("number", True), ("number", 1.5), ("big", 2**63), ("flag", "true"),
        ("ratio", 1e300), ("ratio", "x"), ("price", Decimal("0.001")), ("price", Decimal(10**9)),
        ("price", Decimal("NaN")), ("odd.name", 5), ("odd.name", "\ud800"), ("u", "x"), ("fixed", b"four"),
        ("raw", "text"), ("by_day", -(2**31) - 1),
    ],
)  # fmt: skip
def test_a_partition_value_of_the_wrong_type_is_refused_by_name(name: str, value: PartitionValue) -> None:
    with pytest.raises(BadInput, match="of field") as refusal:
        _encode([added(file("a", value))], name)
    assert refusal.value.field == f"partition.{name}"


def test_a_partition_with_other_fields_than_the_spec_is_refused() -> None:
    with pytest.raises(BadInput, match="not those of the spec"):
        _encode([added(file("a"))], "day")


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (replace(kept(file()), data_sequence_number=None), "inherits"),
        (kept(file(metrics=None)), "metrics"),
        (added(file(spec_id=4)), "spec"),
        (added(file(content=FileContent.POSITION_DELETES)), "manifests of their own"),
    ],
)
def test_an_entry_that_could_not_be_read_back_is_never_written(entry: NewEntry, what: str) -> None:
    with pytest.raises(InvariantBroken, match=what):
        _encode([entry])


def test_a_deletion_vector_is_not_written_before_v3() -> None:
    vector = file(content=FileContent.POSITION_DELETES, file_format="PUFFIN")
    with pytest.raises(InvariantBroken, match="v3"):
        _encode([added(vector)], content=DELETES)


def test_v1_takes_no_delete_manifest() -> None:
    with pytest.raises(InvariantBroken):
        _encode([], version=1, content=DELETES)
    with pytest.raises(InvariantBroken):
        _encode_list([listed(_encode([]), DELETES)], 1)


def test_a_v2_list_refuses_a_manifest_without_counts_by_name() -> None:
    with pytest.raises(BadInput, match=r"old\.avro"):
        _encode_list([ManifestFile("old.avro", 1, 0, DATA, 0, 0, 5)], 2)


def test_row_ids_are_given_to_the_data_manifests_of_v3_alone() -> None:
    manifest = listed(_encode([]), DATA)
    for version, manifests, row_id in ((3, [manifest], 5), (3, [], None), (2, [], 5)):
        with pytest.raises(InvariantBroken, match="row id"):
            _encode_list(manifests, version, first_row_id=row_id)


def test_a_codec_we_do_not_write_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="lzma"):
        _encode([], codec="lzma")
