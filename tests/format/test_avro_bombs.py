"""Hostile Avro: whatever the bytes say, the answer is an error that names the file, in little memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
import zstandard

from headgate.core.manifest import ManifestContent, ManifestFile
from headgate.errors import BadInput, TooLarge, Unsupported
from headgate.format.avro import Limits
from headgate.format.manifests import decode_manifest, decode_manifest_list
from tests.format.avro_files import (
    MANIFEST_LIST_SCHEMA,
    SYNC,
    block,
    deflate,
    deflate_bomb,
    header,
    long,
    manifest_record,
    sized,
)

LOCATION = "s3://lake/t/metadata/snap-1.avro"
MIB = 1024 * 1024
MANIFEST = ManifestFile("m.avro", 1, 0, ManifestContent.DATA, 1, 1, 7)


def refused(data: bytes, error: type[BadInput] = BadInput, limits: Limits | None = None) -> BadInput:
    with pytest.raises(error) as caught:
        decode_manifest_list(data, location=LOCATION, limits=limits or Limits())
    assert LOCATION in caught.value.message
    return caught.value


def peak_bytes(act: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_sound_file_is_read() -> None:
    for codec, body in (
        ("null", manifest_record()),
        ("deflate", deflate(manifest_record())),
        ("zstandard", zstandard.compress(manifest_record())),
    ):
        (manifest,) = decode_manifest_list(header(codec=codec) + block(body), location=LOCATION)
        assert (manifest.manifest_path, manifest.added_snapshot_id) == ("m.avro", 7)


def test_a_file_without_blocks_is_an_empty_list() -> None:
    assert decode_manifest_list(header(), location=LOCATION) == ()


def test_a_megabyte_that_inflates_to_a_gibibyte_is_refused_in_little_memory() -> None:
    bomb = deflate_bomb(segments=64, segment_bytes=16 * MIB)
    assert len(bomb) < 1.2 * MIB
    data = header(codec="deflate") + block(bomb)
    assert peak_bytes(lambda: refused(data, TooLarge)) < 64 * MIB


def test_a_zstandard_bomb_is_refused_in_little_memory() -> None:
    data = header(codec="zstandard") + block(zstandard.compress(bytes(128 * MIB)))
    assert peak_bytes(lambda: refused(data, TooLarge)) < 64 * MIB


def test_many_blocks_that_are_each_small_enough_are_refused_together() -> None:
    bomb = deflate(manifest_record("x" * (MIB - 100)))
    data = header(codec="deflate") + block(bomb) * 10
    refused(data, TooLarge, Limits(file_bytes_max=4 * MIB))


def test_a_block_over_the_limit_is_refused_without_a_codec_too() -> None:
    refused(header() + block(bytes(2000)), TooLarge, Limits(block_bytes_max=1000))


def test_more_records_than_the_limit_are_refused() -> None:
    data = header() + block(manifest_record() * 11, count=11)
    refused(data, TooLarge, Limits(records_max=10))


def test_every_truncation_of_a_file_is_refused_or_ends_between_blocks() -> None:
    first = header(codec="deflate")
    blocks = [block(deflate(manifest_record(str(n)))) for n in range(2)]
    data = first + b"".join(blocks)
    ends = {len(first): 0, len(first) + len(blocks[0]): 1}
    for length in range(len(data)):
        if (sound := ends.get(length)) is not None:
            assert len(decode_manifest_list(data[:length], location=LOCATION)) == sound
        else:
            refused(data[:length])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"Obj\x02" + header()[4:], id="bad magic"),
        pytest.param(b"PAR1" + bytes(100), id="parquet"),
        pytest.param(header() + block(manifest_record(), sync=SYNC[::-1]), id="bad sync"),
        pytest.param(header() + block(manifest_record(), count=-1), id="negative count"),
        pytest.param(header() + block(manifest_record(), size=-10), id="negative size"),
        pytest.param(header() + block(manifest_record(), size=2**62), id="huge block size"),
        pytest.param(header() + block(manifest_record(), count=2), id="too few records"),
        pytest.param(header() + block(manifest_record() * 2), id="too many bytes"),
        pytest.param(header() + block(long(2**62) + b"x"), id="huge string"),
        pytest.param(header() + block(long(-5) + manifest_record()), id="negative string"),
        pytest.param(header() + block(b"\xff" * 20), id="endless number"),
        pytest.param(header() + block(sized(b"\xff\xfe") + long(1) + long(0) + long(7)), id="not UTF-8"),
        pytest.param(header(codec="deflate") + block(b"not deflate"), id="not deflate"),
        pytest.param(header(codec="deflate") + block(deflate(manifest_record())[:-2]), id="deflate cut off"),
        pytest.param(header(codec="zstandard") + block(b"not zstandard"), id="not zstandard"),
        pytest.param(
            header(codec="zstandard") + block(zstandard.compress(b"x" * 99)[:-4]), id="zstd cut off"
        ),
        pytest.param(header(codec="rot13") + block(manifest_record()), id="unknown codec"),
        pytest.param(b"Obj\x01" + long(2**62), id="huge header count"),
        pytest.param(b"Obj\x01" + long(-(2**63)) + long(1), id="most negative header count"),
        pytest.param(b"Obj\x01" + long(1) + long(2**62), id="huge header key"),
        pytest.param(b"Obj\x01" + long(1) + long(-3), id="negative header key"),
        pytest.param(b"Obj\x01" + long(0) + SYNC, id="no schema"),
    ],
)
def test_corrupt_bytes_are_bad_input_that_names_the_file(data: bytes) -> None:
    refused(data)


def test_a_codec_that_we_lack_is_named() -> None:
    with pytest.raises(Unsupported, match="snappy"):
        decode_manifest_list(header(codec="snappy") + block(manifest_record()), location=LOCATION)


# --- schemas ---------------------------------------------------------------------------------------------


def with_field(kind: object, *, field_id: int | None = None) -> dict[str, object]:
    field: dict[str, object] = {"name": "extra", "type": kind}
    if field_id is not None:
        field["field-id"] = field_id
    fields = MANIFEST_LIST_SCHEMA["fields"]
    assert isinstance(fields, list)
    return {**MANIFEST_LIST_SCHEMA, "fields": [*fields, field]}


def nested_arrays(depth: int) -> object:
    kind: object = "int"
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return kind


def record(name: str, *kinds: object) -> dict[str, object]:
    fields = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(with_field(nested_arrays(100)), id="deep"),
        pytest.param(with_field(record("r", ["null", "r"])), id="recursive"),
        pytest.param(with_field(record("r", "manifest_file")), id="recursive through the top"),
        pytest.param(record("a", record("b", "int"), "b"), id="record by name"),
        pytest.param(with_field({"type": "array", "items": "null"}), id="list of nothing"),
        pytest.param(with_field({"type": "array", "items": record("e")}), id="list of empty records"),
        pytest.param(
            with_field({"type": "array", "items": {"type": "fixed", "name": "z", "size": 0}}), id="fixed 0"
        ),
        pytest.param(with_field({"type": "fixed", "name": "z", "size": -1}), id="negative fixed"),
        pytest.param(with_field({"type": "fixed", "name": "z", "size": 2**60}), id="huge fixed"),
        pytest.param(with_field({"type": "fixed", "name": "z"}), id="fixed without size"),
        pytest.param(with_field({"type": "array"}), id="list of unknown"),
        pytest.param(with_field("no-such-type"), id="unknown name"),
        pytest.param(with_field({"type": {"type": {"type": "int"}}}), id="types in types"),
        pytest.param(with_field("long", field_id=500), id="field id twice"),
        pytest.param(with_field([["null"] * 30_000]), id="wide"),
        pytest.param(record("empty"), id="empty record"),
        pytest.param({"type": "record", "name": "x"}, id="record without fields"),
        pytest.param({"type": "record", "name": "x", "fields": ["f"]}, id="fields that are none"),
        pytest.param("string", id="not a record"),
        pytest.param(7, id="a number"),
        pytest.param([], id="an empty union"),
        pytest.param(None, id="null"),
    ],
)
def test_hostile_schemas_are_bad_input(schema: object) -> None:
    refused(header(schema) + block(manifest_record() + bytes(50)))


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b'{"type":' * 100_000])
def test_schemas_that_are_no_json_are_bad_input(text: bytes) -> None:
    refused(header(schema_text=text))


def test_a_schema_over_its_limit_is_refused() -> None:
    refused(header(schema_text=b" " * 2000), TooLarge, Limits(schema_bytes_max=1000))


@pytest.mark.parametrize(
    "kind", ["boolean", "int", "string", "double", {"type": "fixed", "name": "x", "size": 3}]
)
def test_a_skipped_list_with_a_huge_count_ends_at_the_end_of_the_bytes(kind: object) -> None:
    schema = with_field({"type": "array", "items": kind})
    refused(header(schema) + block(manifest_record() + long(2**62) + bytes(100)))


def test_a_wanted_list_with_a_huge_count_is_refused_before_it_is_made() -> None:
    summary = record("s", "boolean")
    schema = with_field({"type": "array", "items": summary}, field_id=507)
    data = header(schema) + block(manifest_record() + long(10_000_000) + bytes(10_000_000))
    assert peak_bytes(lambda: refused(data, TooLarge)) < 48 * MIB


def test_a_skipped_run_with_a_negative_size_does_not_go_back() -> None:
    schema = with_field({"type": "array", "items": "int"})
    refused(header(schema) + block(manifest_record() + long(-1) + long(-2) + long(0)))


def test_a_union_branch_beyond_the_last_is_bad_input() -> None:
    for branch in (-1, 2, 2**40):
        for field_id in (None, 520):
            schema = with_field(["null", "long"], field_id=field_id)
            refused(header(schema) + block(manifest_record() + long(branch)))


def test_a_field_of_another_type_than_the_specification_gives_is_bad_input() -> None:
    for kind in ("string", "bytes", nested_arrays(1), record("r", "int")):
        refused(header(with_field(kind, field_id=520)))


def test_a_manifest_without_its_required_fields_is_bad_input() -> None:
    with pytest.raises(BadInput, match=LOCATION):
        list(decode_manifest(header() + block(manifest_record()), MANIFEST, location=LOCATION))
