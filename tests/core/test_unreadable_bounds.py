"""Bounds that no reader of their column can make sense of: whoever wrote them, they prove nothing and refuse nothing."""

from __future__ import annotations

import pytest
from pyiceberg.expressions import BooleanExpression

from headgate.core.filters import RowFilter, parse_filter
from headgate.core.manifest import (
    ContentFile,
    FieldSummary,
    FileContent,
    ManifestContent,
    ManifestFile,
    Metrics,
)
from headgate.core.partitioning import PartitionField, PartitionSpec
from headgate.core.schema import Field, Schema

_SCHEMA = Schema(
    fields=(
        Field(id=1, name="number", type="long", required=True),
        Field(id=2, name="ratio", type="double", required=True),
    ),
    schema_id=0,
)
_SPEC = PartitionSpec(
    spec_id=0, fields=(PartitionField(source_id=1, field_id=1000, name="number", transform="identity"),)
)
_UNREADABLE = b"\x01"
_FILTERS = (
    {"type": "eq", "term": "number", "value": 7},
    {"type": "in", "term": "number", "values": [7, 9]},
    {"type": "gt", "term": "ratio", "value": 0.5},
    {
        "type": "and",
        "left": {"type": "lt", "term": "number", "value": 9},
        "right": {"type": "not-eq", "term": "ratio", "value": 1.0},
    },
)


def _filter(raw: object) -> RowFilter:
    expression: BooleanExpression = parse_filter(raw, _SCHEMA, field="filter")
    return RowFilter(expression, _SCHEMA, {0: _SPEC}, raw=raw)


def _file() -> ContentFile:
    bounds = {1: _UNREADABLE, 2: _UNREADABLE}
    metrics = Metrics(
        value_counts={1: 5, 2: 5}, null_value_counts={1: 0, 2: 0}, lower_bounds=bounds, upper_bounds=bounds
    )
    return ContentFile(FileContent.DATA, "d.parquet", "PARQUET", 0, ((1000, 7),), 5, 100, metrics=metrics)


@pytest.mark.parametrize("raw", _FILTERS)
def test_a_file_with_such_bounds_may_match_and_is_not_known_to_match_whole(raw: object) -> None:
    wanted = _filter(raw)
    assert wanted.may_match(_file())
    assert wanted.some_rows_match(_file())
    if raw is not _FILTERS[0] and raw is not _FILTERS[1]:  # of those the partition tells
        assert not wanted.all_rows_match(_file())


@pytest.mark.parametrize("raw", _FILTERS)
def test_a_manifest_with_such_partition_bounds_may_hold_a_file_that_matches(raw: object) -> None:
    summary = FieldSummary(False, False, _UNREADABLE, _UNREADABLE)
    manifest = ManifestFile("m.avro", 100, 0, ManifestContent.DATA, 1, 1, 1, 1, 0, 0, 5, 0, 0, (summary,))
    assert _filter(raw).may_hold(manifest)
