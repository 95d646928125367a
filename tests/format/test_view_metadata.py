"""View metadata files and commits as JSON."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from headgate.core.view import SetCurrentViewVersion
from headgate.errors import BadInput, TooLarge
from headgate.format.view_metadata import (
    VIEW_BYTES_MAX,
    decode_commit,
    decode_stored,
    decode_view,
    encode_file,
    encode_view,
)

# As Java writes it (the example of the view specification, appendix A).
GOLDEN: dict[str, Any] = {
    "view-uuid": "fa6506c3-7681-40c8-86dc-e36561f83385",
    "format-version": 1,
    "location": "s3://bucket/warehouse/default.db/event_agg",
    "current-version-id": 1,
    "properties": {"comment": "Daily event counts"},
    "versions": [
        {
            "version-id": 1,
            "timestamp-ms": 1573518431292,
            "schema-id": 1,
            "default-catalog": "prod",
            "default-namespace": ["default"],
            "summary": {"engine-name": "Spark", "engine-version": "3.3.2"},
            "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
        }
    ],
    "schemas": [
        {
            "schema-id": 1,
            "type": "struct",
            "fields": [
                {"id": 1, "name": "event_count", "required": False, "type": "int", "doc": "Count of events"},
                {"id": 2, "name": "event_date", "required": False, "type": "date"},
            ],
        }
    ],
    "version-log": [{"timestamp-ms": 1573518431292, "version-id": 1}],
}


def file_of(**changes: Any) -> bytes:
    return json.dumps({**GOLDEN, **changes}).encode()


def version_of(**changes: Any) -> list[dict[str, Any]]:
    return [{**GOLDEN["versions"][0], **changes}]


def test_a_file_of_the_specification_survives_the_round_trip() -> None:
    view = decode_view(file_of(), location="s3://b/m.json")
    assert json.loads(encode_view(view)) == GOLDEN
    assert decode_stored(encode_view(view)) == view


def test_what_readers_need_is_written_even_when_it_is_empty() -> None:
    view = decode_view(file_of(versions=version_of(summary={}), properties={}), location="x")
    written = json.loads(encode_view(view))
    assert written["versions"][0]["summary"] == {}
    assert written["versions"][0]["default-namespace"] == ["default"]


def test_a_gzipped_file_is_read_and_written_when_the_view_asks() -> None:
    asked = {"write.metadata.compression-codec": "gzip"}
    view = decode_view(gzip.compress(file_of(properties=asked)), location="x.gz.metadata.json")
    assert gzip.decompress(encode_file(view)) == encode_view(view)
    assert encode_file(decode_view(file_of(), location="x")) == encode_view(
        decode_view(file_of(), location="x")
    )


BAD_FILES: list[tuple[bytes, str]] = [
    (b"", "not valid JSON"),
    (b"[]", "expected `object`"),
    (b'{"view-uuid": "a", "view-uuid": "b"}', "a key twice"),
    (b"\x1f\x8bgarbage", "gzip"),
    (gzip.compress(file_of())[:-9], "truncated"),
    (file_of(**{"view-uuid": ""}), "view-uuid is empty"),
    (file_of(**{"view-uuid": None}), "view-uuid"),
    (file_of(**{"format-version": 2}), "Unsupported format version: 2"),
    (file_of(**{"current-version-id": 5}), "Cannot find current version 5"),
    (file_of(versions=[]), "Cannot find current version 1"),
    (file_of(versions=version_of() * 2), "two versions have one id"),
    (file_of(schemas=GOLDEN["schemas"] * 2), "two schemas have one id"),
    (file_of(schemas=[{**GOLDEN["schemas"][0], "schema-id": -1}]), "a schema has a negative id"),
    (file_of(versions=version_of(**{"schema-id": 7})), "unknown schema: 7"),
    (file_of(versions=version_of(representations=[])), "no query"),
    (
        file_of(versions=version_of(representations=[{"type": "graphql", "sql": "", "dialect": "x"}])),
        "graphql",
    ),
    (file_of(versions=version_of(**{"version-id": 2**31})), "version-id"),
    (
        file_of(schemas=[{**GOLDEN["schemas"][0], "fields": [{"id": 1, "name": "a", "type": "blob"}]}]),
        "required",
    ),
    (b'{"a":' * 200 + b"1" + b"}" * 200, "deeper"),
]


@pytest.mark.parametrize(("data", "message"), BAD_FILES, ids=[message for _, message in BAD_FILES])
def test_a_bad_file_is_refused_with_its_field_and_reason(data: bytes, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        decode_view(data, location="s3://b/m.json")
    assert refused.value.field == "metadata-location"
    assert message in refused.value.message


def test_a_file_that_inflates_beyond_the_limit_is_refused() -> None:
    with pytest.raises(TooLarge) as refused:
        decode_view(gzip.compress(b" " * (VIEW_BYTES_MAX + 1)), location="x")
    assert refused.value.field == "metadata-location"


def test_a_view_that_grew_beyond_the_limit_is_not_encoded() -> None:
    large = "x" * VIEW_BYTES_MAX
    view = decode_view(file_of(), location="x")
    view.properties["comment"] = large
    with pytest.raises(TooLarge):
        encode_view(view)


def test_a_commit_is_decoded_with_or_without_requirements() -> None:
    commit = decode_commit({"updates": [{"action": "set-current-view-version", "view-version-id": 1}]})
    assert commit.updates == (SetCurrentViewVersion(view_version_id=1),)
    assert commit.requirements == ()


BAD_COMMITS: list[tuple[Any, str, str]] = [
    ({}, "updates", "missing required field"),
    (
        {"updates": [{"action": "add-snapshot", "snapshot": {}}]},
        "updates[0].action",
        "add-snapshot is for tables",
    ),
    (
        {"updates": [], "requirements": [{"type": "assert-table-uuid", "uuid": "x"}]},
        "requirements[0].type",
        "assert-table-uuid is for tables",
    ),
    ({"updates": [{"action": "explode"}]}, "updates[0].action", "explode"),
    ({"updates": [{}]}, "updates[0].action", "action"),
    ({"updates": ["add-snapshot"]}, "updates[0]", "expected `object`"),
    ({"updates": {"action": "add-snapshot"}}, "updates", "expected `array`"),
    ({"updates": [{"action": "set-current-view-version"}]}, "updates[0].view-version-id", "missing"),
    (
        {"updates": [{"action": "set-properties", "updates": {"a": 1}}]},
        "updates[0].updates[...]",
        "expected `str`",
    ),
]


@pytest.mark.parametrize(
    ("body", "field", "message"), BAD_COMMITS, ids=[field for _, field, _ in BAD_COMMITS]
)
def test_a_bad_commit_is_refused_with_its_field(body: Any, field: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        decode_commit(body)
    assert refused.value.field == field
    assert message in refused.value.message
