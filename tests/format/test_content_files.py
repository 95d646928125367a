"""Content-file JSON: what `core.intake` reads is what `format.content_files` writes."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.change import Append, Overwrite
from headgate.core.create import TableDefinition, build_table
from headgate.core.intake import take_in
from headgate.core.manifest import ContentFile, FileContent, Metrics, PartitionValue
from headgate.core.partitioning import PartitionField, PartitionSpec
from headgate.core.schema import Field, Schema
from headgate.core.table import TableMetadata
from headgate.format.content_files import encode_content_file, partition_types
from headgate.format.strict_json import decode_into

_DAY_US = 86_400_000_000
_YEARS_US = st.integers(-60_000_000_000_000_000, 250_000_000_000_000_000)  # years 69 to 9891
TYPES: dict[str, st.SearchStrategy[PartitionValue]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal(10, 2)": st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    "date": st.integers(-(2**31), 2**31 - 1),
    "time": st.integers(0, _DAY_US - 1),
    "timestamp": _YEARS_US,
    "timestamptz": _YEARS_US,
    "timestamp_ns": st.integers(-(2**63), 2**63 - 1),
    "timestamptz_ns": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(st.characters(codec="utf-8"), max_size=5),
    "uuid": st.uuids(),
    "fixed[3]": st.binary(min_size=3, max_size=3),
    "binary": st.binary(max_size=5),
}


def table_of(*types: str, transform: str = "identity") -> TableMetadata:
    """A v3 table partitioned by one column of each type."""
    columns = tuple(Field(id=n, name=f"c{n}", type=type_, required=False) for n, type_ in enumerate(types, 1))
    fields = tuple(
        PartitionField(name=f"p{n}", transform=transform, source_id=n, field_id=999 + n)
        for n in range(1, len(types) + 1)
    )
    definition = TableDefinition(
        schema=Schema(fields=columns),
        location="s3://lake/t",
        uuid="6b1c6f3e-0000-4000-8000-000000000000",
        spec=PartitionSpec(fields=fields),
        order=None,
        properties={"format-version": "3"},
    )
    return build_table(definition, now_ms=1)


def through_the_wire(file: ContentFile, table: TableMetadata) -> ContentFile:
    shown = encode_content_file(file, partition_types(table, file.spec_id))
    name = "add-data-files" if file.content is FileContent.DATA else "add-delete-files"
    kind: Any = Append if file.content is FileContent.DATA else Overwrite
    action = "append" if file.content is FileContent.DATA else "overwrite"
    body = msgspec.json.encode({"action": action, name: [shown]})
    change = take_in(decode_into(kind, body), table, field="update")
    (back,) = (*change.added_data, *change.added_deletes)
    return back


def data_file(*partition: PartitionValue, **facts: Any) -> ContentFile:
    return ContentFile(
        **{
            "content": FileContent.DATA,
            "file_path": "s3://lake/t/data/ü 1.parquet",
            "file_format": "PARQUET",
            "spec_id": 0,
            "partition": tuple((1000 + n, value) for n, value in enumerate(partition)),
            "record_count": 5,
            "file_size_in_bytes": 500,
            "metrics": Metrics(),
            **facts,
        }
    )


def same(one: PartitionValue, other: PartitionValue) -> bool:
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return both_nan or (type(one) is type(other) and one == other)


@pytest.mark.parametrize("type_", TYPES)
@given(data=st.data())
def test_a_partition_value_comes_back_as_it_was(type_: str, data: st.DataObject) -> None:
    table = table_of(type_)
    value = data.draw(st.none() | TYPES[type_])
    ((_, back),) = through_the_wire(data_file(value), table).partition
    assert same(value, back)


COUNTS = st.none() | st.dictionaries(st.sampled_from((1, 2)), st.integers(0, 2**63 - 1))


@given(
    metrics=st.builds(
        Metrics,
        column_sizes=COUNTS,
        value_counts=st.none(),
        null_value_counts=COUNTS,
        nan_value_counts=COUNTS,
        lower_bounds=st.none() | st.dictionaries(st.just(2), st.binary(max_size=4)),
        upper_bounds=st.none() | st.dictionaries(st.just(2), st.binary(max_size=4)),
    ),
    offsets=st.none() | st.lists(st.integers(0, 2**62), max_size=3).map(tuple),
    key=st.none() | st.binary(max_size=4),
    order=st.sampled_from((None, 0)),
)
def test_the_facts_of_a_data_file_come_back_as_they_were(
    metrics: Metrics, offsets: tuple[int, ...] | None, key: bytes | None, order: int | None
) -> None:
    table = table_of("long", "binary")
    file = data_file(7, b"", metrics=metrics, split_offsets=offsets, key_metadata=key, sort_order_id=order)
    assert through_the_wire(file, table) == file


@pytest.mark.parametrize(
    "facts",
    [
        {
            "content": FileContent.POSITION_DELETES,
            "file_format": "PUFFIN",
            "referenced_data_file": "s3://lake/t/d.parquet",
            "content_offset": 4,
            "content_size_in_bytes": 40,
        },
        {"content": FileContent.EQUALITY_DELETES, "equality_ids": (1,)},
    ],
)
def test_a_delete_file_comes_back_as_it_was(facts: dict[str, Any]) -> None:
    file = data_file(1, **facts)
    assert through_the_wire(file, table_of("long")) == file


def test_what_a_file_does_not_have_is_left_out_and_what_it_has_is_spelled_as_java_does() -> None:
    table = table_of("date", "decimal(10, 2)", "uuid", "fixed[3]", "float", "timestamptz", "timestamp_ns")
    values = (19_000, Decimal("-1.50"), UUID(int=5), b"\x00\xab\xff", math.inf, -1, 1)
    shown = encode_content_file(data_file(*values, first_row_id=9), partition_types(table, 0))
    assert shown == {
        "content": "data",
        "file-path": "s3://lake/t/data/ü 1.parquet",
        "file-format": "parquet",
        "spec-id": 0,
        "partition": [
            "2022-01-08",
            "-1.50",
            "00000000-0000-0000-0000-000000000005",
            "00abff",
            "Infinity",
            "1969-12-31T23:59:59.999999+00:00",
            "1970-01-01T00:00:00.000000001",
        ],
        "record-count": 5,
        "file-size-in-bytes": 500,
        "first-row-id": 9,
    }


def test_a_transformed_value_has_the_type_of_its_result() -> None:
    days = encode_content_file(data_file(19_000), partition_types(table_of("timestamp", transform="day"), 0))
    years = encode_content_file(data_file(52), partition_types(table_of("timestamp", transform="year"), 0))
    assert (days["partition"], years["partition"]) == (["2022-01-08"], [52])


def test_the_type_of_a_dropped_column_comes_from_an_older_schema() -> None:
    table = table_of("date")
    envelope = table.envelope
    newer = Schema(fields=(Field(id=2, name="x", type="long", required=False),), schema_id=1)
    changed = msgspec.structs.replace(envelope, schemas=(*envelope.schemas, newer), current_schema_id=1)
    dropped = TableMetadata(changed, table.snapshots, table.history)
    shown = encode_content_file(data_file(19_000), partition_types(dropped, 0))
    assert shown["partition"] == ["2022-01-08"]
