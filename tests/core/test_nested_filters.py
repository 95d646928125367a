"""Filters on columns inside others: statistics rule files out by them, and prove nothing of all their rows."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from pyiceberg.expressions import And, EqualTo, In, LessThan, Not, NotNull, Or

from headgate.core.filters import RowFilter
from headgate.core.manifest import ContentFile, FileContent, Metrics
from headgate.core.partitioning import PartitionSpec
from headgate.core.schema import Schema

_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {
            "id": 2,
            "name": "deep",
            "required": False,
            "type": {
                "type": "struct",
                "fields": [{"id": 3, "name": "b", "required": False, "type": "long"}],
            },
        },
    ],
}
_FIVE = struct.pack("<q", 5)
# Every row has id = 5 and deep.b = 5.
_FILE = ContentFile(
    content=FileContent.DATA,
    file_path="a",
    file_format="PARQUET",
    spec_id=0,
    partition=(),
    record_count=10,
    file_size_in_bytes=10,
    metrics=Metrics(
        value_counts={1: 10, 3: 10},
        null_value_counts={1: 0, 3: 0},
        lower_bounds={1: _FIVE, 3: _FIVE},
        upper_bounds={1: _FIVE, 3: _FIVE},
    ),
)


def _of(kind: Any, *parts: Any) -> Any:
    return kind(*parts)


@pytest.mark.parametrize(
    ("expression", "some", "all_"),
    [
        (_of(EqualTo, "deep.b", 5), True, False),
        (_of(EqualTo, "deep.b", 6), False, False),
        (_of(In, "deep.b", {5, 6}), True, False),
        (_of(LessThan, "deep.b", 9), True, False),
        (_of(NotNull, "deep.b"), True, False),
        (Not(_of(EqualTo, "deep.b", 9)), True, False),
        (Or(_of(EqualTo, "id", 5), _of(EqualTo, "deep.b", 9)), True, True),
        (And(_of(EqualTo, "id", 5), _of(EqualTo, "deep.b", 5)), True, False),
    ],
)
def test_what_is_inside_another_column_is_never_proved_of_every_row(
    expression: Any, some: bool, all_: bool
) -> None:
    schema = msgspec.convert(_SCHEMA, Schema)
    spec = msgspec.convert({"spec-id": 0, "fields": []}, PartitionSpec)
    row_filter = RowFilter(expression, schema, {0: spec})
    assert (row_filter.some_rows_match(_FILE), row_filter.all_rows_match(_FILE)) == (some, all_)
