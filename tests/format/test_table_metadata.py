"""Table metadata files: golden bytes, round trips, PyIceberg as the foreign reader, and broken files."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil

from headgate.core.apply import apply
from headgate.core.table import MAIN, TableMetadata
from headgate.core.updates import (
    AddEncryptionKey,
    AddSchema,
    AddSortOrder,
    AddSpec,
    RemoveSnapshotRef,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetPartitionStatistics,
    SetProperties,
    SetStatistics,
    TableUpdate,
)
from headgate.errors import BadInput, HeadgateError, TooLarge
from headgate.format.table_metadata import (
    METADATA_BYTES_MAX,
    decode_envelope,
    decode_metadata,
    encode_envelope,
    encode_file,
    encode_parts,
    inflate,
    is_gzipped,
)
from tests.core.builders import (
    COLUMNS,
    LOCATION,
    UUID,
    append,
    column,
    commit,
    encryption_key,
    list_of,
    map_of,
    metadata_file,
    order,
    part,
    partition_statistics,
    point,
    schema,
    sort,
    spec,
    statistics,
    struct,
    table,
)

GOLDEN = Path(__file__).parent / "golden"
OTHER_UUID = "00000000-0000-0000-0000-000000000001"


def read(data: bytes) -> TableMetadata:
    return decode_metadata(data, location="s3://b/v1.metadata.json", uuid=OTHER_UUID)


def write(metadata: TableMetadata, **options: bool) -> bytes:
    return b"".join(encode_parts(metadata, **options))


def refusal(data: bytes) -> BadInput:
    with pytest.raises(BadInput) as caught:
        read(data)
    return caught.value


def golden_table(version: int) -> TableMetadata:
    """A table that uses everything its version has."""
    wide = schema(
        *COLUMNS,
        column(4, "place", struct(column(5, "zip", "string", doc="of the city"))),
        column(6, "tags", list_of("string", 7)),
        column(8, "attributes", map_of("string", "long", key_id=9, value_id=10)),
        *(
            (column(11, "at", "timestamp_ns", write_default=None, initial_default=None),)
            if version == 3
            else ()
        ),
        identifiers=(1,),
    )
    updates: list[TableUpdate] = [
        AddSchema(schema=wide),
        SetCurrentSchema(schema_id=-1),
        AddSpec(spec=spec(part(3), part(1, "bucket[4]"), part(2, "day"))),
        SetDefaultSpec(spec_id=-1),
        AddSortOrder(sort_order=order(sort(2, direction="desc", null_order="nulls-last"))),
        SetDefaultSortOrder(sort_order_id=-1),
        SetProperties(updates={"owner": 'a "b" \\ é'}),
        point("audit", 1, max_snapshot_age_ms=5, min_snapshots_to_keep=2, max_ref_age_ms=9),
        point("t", 2, "tag"),
        SetPartitionStatistics(partition_statistics=partition_statistics(1)),
    ]
    if version == 3:
        updates.append(AddEncryptionKey(encryption_key=encryption_key()))
    made = apply(table(version=version, snapshots=3), updates, now_ms=0, previous_file=metadata_file(1))
    assert made is not None
    return made


# --- golden bytes and round trips -----------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_table_is_written_to_the_bytes_it_was_always_written_to(version: int) -> None:
    assert write(golden_table(version)) == (GOLDEN / f"table_v{version}.json").read_bytes()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_file_read_and_written_is_the_same_bytes(version: int) -> None:
    data = (GOLDEN / f"table_v{version}.json").read_bytes()
    assert write(read(data)) == data
    assert read(data) == golden_table(version)
    assert read(gzip.compress(data)) == golden_table(version)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("snapshots", [0, 1, 64, 130])
def test_any_number_of_snapshots_is_read_back(version: int, snapshots: int) -> None:
    made = table(version=version, snapshots=snapshots)
    assert read(write(made)) == made


TEXTS = st.text(max_size=20)


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(TEXTS, TEXTS, max_size=5),
    st.sampled_from([1, 2, 3]),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
)
def test_text_of_any_kind_is_read_back(
    properties: dict[str, str], version: int, summary: dict[str, str]
) -> None:
    made = commit(table(version=version), SetProperties(updates={"always": "changed", **properties}))
    made = commit(made, *append(1, version=version, summary={**summary, "operation": "append"}))
    assert read(write(made)) == made
    assert decode_envelope(encode_envelope(made.envelope)) == made.envelope


def test_no_key_is_written_twice() -> None:
    def watch(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    for version in (1, 2, 3):
        for made in (golden_table(version), table(version=version)):
            json.loads(write(made), object_pairs_hook=watch)


def test_the_parts_share_the_bytes_of_the_log() -> None:
    made = table(snapshots=70)
    block = made.snapshots.parts()[0]
    assert any(piece is block for piece in encode_parts(made))


@pytest.mark.parametrize("codec", ["none", "gzip", "GZIP", "zstd"])
def test_a_file_is_gzipped_if_the_table_asks_for_it(codec: str) -> None:
    made = table(snapshots=70, properties={"write.metadata.compression-codec": codec})
    data = b"".join(encode_file(made))
    assert data.startswith(b"\x1f\x8b") is (codec.lower() == "gzip") is is_gzipped(made.envelope.properties)
    assert read(data) == made
    assert not is_gzipped({})


def test_only_snapshots_that_refs_need_are_written_when_asked() -> None:
    raw = json.loads(write(golden_table(2), refs_only=True))
    assert [s["snapshot-id"] for s in raw["snapshots"]] == [1, 2, 3]
    made = commit(table(snapshots=5), point("t", 2, "tag"))
    raw = json.loads(write(made, refs_only=True))
    assert [s["snapshot-id"] for s in raw["snapshots"]] == [2, 5]
    assert len(raw["snapshot-log"]) == 5
    assert json.loads(write(table(), refs_only=True))["snapshots"] == []


# --- the foreign reader ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_pyiceberg_reads_what_we_write(version: int) -> None:
    made = golden_table(version)
    theirs = TableMetadataUtil.parse_raw(write(made).decode())
    assert theirs.format_version == version
    assert str(theirs.table_uuid) == UUID
    assert theirs.location == LOCATION
    assert theirs.current_snapshot_id == 3
    assert [s.snapshot_id for s in theirs.snapshots] == [1, 2, 3]
    assert [entry.snapshot_id for entry in theirs.snapshot_log] == [1, 2, 3]
    assert {name: ref.snapshot_id for name, ref in theirs.refs.items()} == {MAIN: 3, "audit": 1, "t": 2}
    assert theirs.schema().highest_field_id == (11 if version == 3 else 10)
    assert theirs.schema().identifier_field_ids == [1]
    assert [str(field.transform) for field in theirs.spec().fields] == ["identity", "bucket[4]", "day"]
    assert theirs.last_partition_id == 1002
    assert theirs.default_sort_order_id == 1
    assert theirs.properties["owner"] == 'a "b" \\ é'
    assert [entry.metadata_file for entry in theirs.metadata_log] == ["v1.metadata.json"]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_pyiceberg_reads_an_empty_table(version: int) -> None:
    theirs = TableMetadataUtil.parse_raw(write(table(version=version)).decode())
    assert theirs.current_snapshot_id is None
    assert theirs.snapshots == []


@pytest.mark.parametrize("version", [1, 2])  # PyIceberg does not write version 3 yet
def test_what_pyiceberg_writes_we_read(version: int) -> None:
    made = golden_table(version)
    theirs = TableMetadataUtil.parse_raw(write(made).decode()).model_dump_json(
        by_alias=True, exclude_none=True
    )
    again = read(theirs.encode())
    assert again.envelope.refs == made.envelope.refs
    assert again.envelope.partition_specs == made.envelope.partition_specs
    assert again.envelope.sort_orders == made.envelope.sort_orders
    assert again.envelope.current_snapshot_id == 3
    assert list(again.iter_history()) == list(made.iter_history())


def test_version_1_is_written_for_readers_that_know_one_schema_and_one_spec() -> None:
    raw = json.loads(write(golden_table(1)))
    assert raw["schema"] == raw["schemas"][1]
    assert raw["partition-spec"] == raw["partition-specs"][1]["fields"]
    assert raw["current-snapshot-id"] == 3
    assert json.loads(write(table(version=1)))["current-snapshot-id"] == -1
    assert "current-snapshot-id" not in json.loads(write(table(version=2)))
    assert "schema" not in json.loads(write(golden_table(2)))


# --- what older writers left out ------------------------------------------------------------------------

OLD_V1: dict[str, Any] = {
    "format-version": 1,
    "location": LOCATION,
    "last-updated-ms": 1_600_000_000_000,
    "last-column-id": 2,
    "schema": {
        "type": "struct",
        "fields": [
            {"id": 1, "name": "x", "required": True, "type": "long"},
            {"id": 2, "name": "y", "required": False, "type": "string", "doc": "why"},
        ],
    },
    "partition-spec": [
        {"name": "x", "transform": "identity", "source-id": 1},
        {"name": "y_trunc", "transform": "truncate[2]", "source-id": 2},
    ],
    "properties": {},
    "current-snapshot-id": -1,
    "snapshots": [],
}


def old(**changes: Any) -> bytes:
    raw = {**OLD_V1, **{name.replace("_", "-"): value for name, value in changes.items()}}
    return json.dumps({name: value for name, value in raw.items() if value is not ...}).encode()


def test_an_old_file_without_uuid_schemas_specs_and_orders_is_read() -> None:
    made = read(old())
    envelope = made.envelope
    assert envelope.table_uuid == OTHER_UUID
    assert (envelope.current_schema_id, len(envelope.schemas)) == (0, 1)
    assert [field.field_id for field in envelope.partition_specs[0].fields] == [1000, 1001]
    assert envelope.last_partition_id == 1001
    assert (envelope.default_spec_id, envelope.default_sort_order_id) == (0, 0)
    assert (envelope.current_snapshot_id, envelope.refs, envelope.last_sequence_number) == (None, {}, 0)
    TableMetadataUtil.parse_raw(write(made).decode())


def test_an_old_file_keeps_what_it_has() -> None:
    made = read(old(table_uuid=UUID, last_partition_id=1007, schema={**OLD_V1["schema"], "schema-id": 4}))
    assert made.envelope.table_uuid == UUID
    assert made.envelope.last_partition_id == 1007
    assert made.envelope.current_schema_id == 4


def test_an_old_file_with_a_current_snapshot_has_a_main_branch() -> None:
    snapshot = {"snapshot-id": 7, "timestamp-ms": 1_500_000_000_000, "manifests": ["m.avro"]}
    none: Any
    for none in (..., None, {}):
        made = read(old(current_snapshot_id=7, snapshots=[snapshot], refs=none, properties=...))
        assert made.envelope.refs[MAIN].snapshot_id == 7
        assert json.loads(write(made))["snapshots"] == [snapshot]


def test_a_sequence_number_in_a_version_1_file_is_taken_as_0() -> None:
    assert read(old(last_sequence_number=9)).envelope.last_sequence_number == 0


def test_an_unpartitioned_old_file_has_999_as_last_partition_id() -> None:
    assert read(old(partition_spec=[])).envelope.last_partition_id == 999


def test_null_lists_are_empty_lists() -> None:
    made = read(old(snapshots=None, snapshot_log=None, metadata_log=None, statistics=None))
    assert len(made.snapshots) == len(made.history) == len(made.envelope.metadata_log) == 0


# --- broken files ---------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "version 4": ({"format-version": 4}, "unsupported format-version 4"),
    "version as text": ({"format-version": "2"}, "unsupported format-version '2'"),
    "no version": ({"format-version": ...}, "unsupported format-version None"),
    "version true": ({"format-version": True}, "format-version"),
    "no uuid": ({"table-uuid": ...}, "table-uuid"),
    "no location": ({"location": ...}, "location"),
    "no sequence number": ({"last-sequence-number": ...}, "last-sequence-number"),
    "no schemas": ({"schemas": ...}, "schemas"),
    "no specs": ({"partition-specs": ...}, "partition-specs is missing"),
    "no orders": ({"sort-orders": ...}, "sort-orders"),
    "no last partition id": ({"last-partition-id": ...}, "last-partition-id"),
    "current schema": ({"current-schema-id": 9}, "unknown current-schema-id 9"),
    "default spec": ({"default-spec-id": 9}, "unknown default-spec-id 9"),
    "default order": ({"default-sort-order-id": 9}, "unknown default-sort-order-id 9"),
    "current snapshot": (
        {"current-snapshot-id": 2},
        "current-snapshot-id 2 is not what branch main points at",
    ),
    "no current snapshot": (
        {"current-snapshot-id": None},
        "current-snapshot-id None is not what branch main",
    ),
    "ref to nowhere": (
        {"refs": {"b": {"snapshot-id": 99, "type": "branch"}}},
        "ref b points at unknown snapshot",
    ),
    "snapshots missing": ({"snapshots": []}, "points at unknown snapshot"),
    "sequence numbers": ({"last-sequence-number": 2}, "snapshot 3 is beyond last-sequence-number"),
    "snapshots as object": ({"snapshots": {"a": 1}}, "invalid table metadata"),
    "specs as text": ({"partition-specs": "none"}, "invalid table metadata"),
    "specs as numbers": ({"partition-specs": [1]}, "invalid table metadata"),
    "schemas as object": ({"schemas": {}}, "invalid table metadata"),
    "refs as list": ({"refs": [1]}, "invalid table metadata"),
    "property as number": ({"properties": {"a": 1}}, "properties"),
    "huge snapshot id": ({"current-snapshot-id": 2**63 - 1}, "is not what branch main points at"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_bad_input_that_names_it(name: str) -> None:
    changes, message = BROKEN[name]
    raw = {**json.loads(write(golden_table(2))), **changes}
    error = refusal(json.dumps({k: v for k, v in raw.items() if v is not ...}).encode())
    assert message in error.message
    assert "s3://b/v1.metadata.json" in error.message
    assert error.field == "metadata-location"


def test_an_old_file_whose_schema_is_a_list_is_bad_input() -> None:
    assert "invalid table metadata" in refusal(old(schema=[])).message
    assert "invalid table metadata" in refusal(old(schema=...)).message
    assert "invalid table metadata" in refusal(old(partition_spec=[7])).message
    assert "invalid table metadata" in refusal(old(partition_spec=[{"field-id": "x"}, {}])).message


def test_a_snapshot_that_is_there_twice_is_bad_input() -> None:
    raw = json.loads(write(table(snapshots=2)))
    raw["snapshots"].append(raw["snapshots"][0])
    assert "snapshot 1 is there twice" in refusal(json.dumps(raw).encode()).message


def test_a_version_3_file_without_next_row_id_is_bad_input() -> None:
    raw = json.loads(write(golden_table(3)))
    for value in (..., None):
        raw["next-row-id"] = value
        text = json.dumps({k: v for k, v in raw.items() if v is not ...}).encode()
        assert "next-row-id is missing" in refusal(text).message


def test_a_schema_that_no_reader_could_use_is_bad_input() -> None:
    raw = json.loads(write(table()))
    raw["schemas"][0]["fields"][0]["type"] = "varchar"
    assert "varchar" in refusal(json.dumps(raw).encode()).message


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"7", b'"x"', b"{", b'{"a":1,"a":2}', b"\xff", b"NaN"])
def test_a_text_that_is_no_metadata_is_bad_input(text: bytes) -> None:
    refusal(text)


def test_a_truncated_file_is_bad_input_wherever_it_ends() -> None:
    data = write(golden_table(3))
    for end in range(0, len(data), 97):
        refusal(data[:end])


def test_a_truncated_gzip_file_is_bad_input_wherever_it_ends() -> None:
    data = gzip.compress(write(golden_table(3)))
    for end in range(2, len(data), 53):
        refusal(data[:end])


def test_a_damaged_gzip_file_is_bad_input() -> None:
    data = bytearray(gzip.compress(write(table())))
    data[-6] ^= 0xFF  # the checksum
    assert "not a gzip file" in refusal(bytes(data)).message


def test_what_follows_a_gzip_file_is_not_ignored() -> None:
    data = gzip.compress(write(table()))
    assert "something follows" in refusal(data + b"more").message
    assert "something follows" in refusal(data + data).message


def test_a_gzip_bomb_is_too_large() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(b"{") + packer.flush(zlib.Z_FULL_FLUSH)
    mebibyte = packer.compress(bytes(1 << 20)) + packer.flush(
        zlib.Z_FULL_FLUSH
    )  # may stand any number of times
    bomb = head + mebibyte * 256
    assert len(bomb) < METADATA_BYTES_MAX // 500
    with pytest.raises(TooLarge, match="inflates to over"):
        inflate(bomb, location="x")


def test_a_plain_file_over_the_limit_is_too_large() -> None:
    with pytest.raises(TooLarge, match="metadata is over"):
        inflate(bytes(METADATA_BYTES_MAX + 1), location="x")


def test_a_partition_field_whose_id_is_null_is_numbered_like_one_without_an_id() -> None:
    raw = json.loads((GOLDEN / "table_v3.json").read_bytes())
    wanted = read(json.dumps(raw).encode())
    raw["partition-specs"][1]["fields"][0]["field-id"] = None
    assert read(json.dumps(raw).encode()) == wanted
    del raw["partition-specs"][1]["fields"][0]["field-id"]
    assert read(json.dumps(raw).encode()) == wanted


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_no_damage_to_a_file_raises_anything_but_our_errors(data: st.DataObject) -> None:
    raw = json.loads((GOLDEN / "table_v3.json").read_bytes())
    values: st.SearchStrategy[Any] = st.sampled_from(
        [None, -1, 0, 2**40, 1.5, True, "", "x", [], {}, [1], [{}], {"a": {}}, [[]]]
    )
    where: Any = raw
    for _ in range(data.draw(st.integers(0, 4))):
        inner = [k for k, v in _items(where) if isinstance(v, dict | list) and v]
        if not inner:
            break
        where = where[data.draw(st.sampled_from(inner))]
    key = data.draw(st.sampled_from([k for k, _ in _items(where)]))
    if data.draw(st.booleans()):
        where[key] = data.draw(values)
    else:
        del where[key]
    try:
        made = read(json.dumps(raw).encode())
    except HeadgateError:
        return
    assert read(write(made)) == made


def _items(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items() if isinstance(value, dict) else enumerate(value))


def test_a_table_without_refs_is_read_back() -> None:
    made = commit(
        table(snapshots=2), RemoveSnapshotRef(ref_name=MAIN), SetStatistics(statistics=statistics(1))
    )
    assert read(write(made)) == made
