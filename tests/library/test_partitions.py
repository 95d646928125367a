"""The library on tables partitioned by every transform: each row in the file of its partition, whatever is done to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import parse_transform

from headgate.errors import BadInput, Unsupported
from headgate.format.manifests import decode_manifest, decode_manifest_list
from tests.library.lake import Lake, path_of

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "part", "required": False, "type": "string"},
        {"id": 3, "name": "at", "required": False, "type": "timestamptz"},
    ],
}
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)
COLUMNS = {1: "id", 2: "part", 3: "at"}
transforms = pytest.mark.parametrize(
    ("source", "transform"),
    [
        *[(1, "bucket[4]"), (1, "truncate[10]"), (2, "bucket[4]"), (2, "truncate[2]"), (2, "identity")],
        *[(3, "year"), (3, "month"), (3, "day"), (3, "hour"), (3, "bucket[4]")],
    ],
)


def spec_of(*fields: tuple[int, str]) -> dict[str, Any]:
    parts = [
        {"source-id": source, "field-id": 1000 + n, "name": f"p{n}", "transform": transform}
        for n, (source, transform) in enumerate(fields)
    ]
    return {"spec-id": 0, "fields": parts}


def row(id_: int, part: str | None, hours: int | None) -> dict[str, Any]:
    """A row some hours after an evening in February, or before it."""
    moment = None if hours is None else datetime.fromtimestamp(1_709_245_800 + hours * 3600, UTC)
    return {"id": id_, "part": part, "at": moment}


ROWS = [
    row(1, "anna", 0),
    row(2, "anno", 1),
    row(13, "bert", 9000),
    row(24, "äöü", -(1_709_245_800 // 3600) - 5),  # before 1970
    row(25, None, None),
    row(-7, "a", 30),
]


def arrow(*given: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(given), schema=ARROW)


def read(lake: Lake) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.find().scan().to_arrow().sort_by("id").to_pylist()
    return found


def by_id(*given: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(given, key=lambda one: int(one["id"]))


def check_places(lake: Lake, source: int, transform: str) -> int:
    """Every live file holds rows of the partition that it is listed under; how many there are."""
    metadata, table, files = lake.metadata(), lake.find(), 0
    compute = parse_transform(transform).transform(table.schema().find_type(source))
    convert = pa.int64() if source == 3 else ARROW.field(COLUMNS[source]).type
    (snapshot,) = (
        one for one in metadata["snapshots"] if one["snapshot-id"] == metadata["current-snapshot-id"]
    )
    for manifest in decode_manifest_list(path_of(snapshot["manifest-list"]).read_bytes(), location=""):
        for entry in decode_manifest(path_of(manifest.manifest_path).read_bytes(), manifest, location=""):
            if entry.is_live:
                files += 1
                values = pq.read_table(path_of(entry.file.file_path)).column(COLUMNS[source]).cast(convert)
                assert {compute(value) for value in values.to_pylist()} == {dict(entry.file.partition)[1000]}
    return files


@transforms
def test_rows_are_written_to_the_partitions_that_they_belong_to(
    lake: Lake, source: int, transform: str
) -> None:
    lake.create(schema=SCHEMA, spec=spec_of((source, transform)))
    table = lake.open()
    table.append(arrow(*ROWS))
    assert read(lake) == by_id(*ROWS)
    assert check_places(lake, source, transform) > 1
    table.delete("id = 13")
    moved, new = row(2, "zora", 20_000), row(40, "neu", 8)
    table.upsert(arrow(moved, new), ["id"])
    table.overwrite(arrow(row(50, None, 7)), "part = 'anna'")
    assert read(lake) == by_id(*ROWS[3:], moved, new, row(50, None, 7))
    check_places(lake, source, transform)
    lake.check()


@transforms
def test_a_dynamic_overwrite_replaces_just_the_partitions_of_its_rows(
    lake: Lake, source: int, transform: str
) -> None:
    lake.create(schema=SCHEMA, spec=spec_of((source, transform)))
    table = lake.open()
    table.append(arrow(*ROWS))
    compute = parse_transform(transform).transform(lake.find().schema().find_type(source))

    def place_of(one: dict[str, Any]) -> object:
        value = one[COLUMNS[source]]
        return compute(value if not isinstance(value, datetime) else round(value.timestamp() * 1_000_000))

    new = row(99, "anna", 0)
    table.replace_partitions(arrow(new))
    kept = [one for one in ROWS if place_of(one) != place_of(new)]
    assert read(lake) == by_id(*kept, new)
    check_places(lake, source, transform)
    lake.check()


@pytest.mark.parametrize("version", [1, 3])
def test_several_columns_in_the_first_and_the_newest_version(lake: Lake, version: int) -> None:
    lake.create(
        version=version, schema=SCHEMA, spec=spec_of((3, "day"), (1, "bucket[2]"), (2, "truncate[1]"))
    )
    table = lake.open()
    table.append(arrow(*ROWS[:3]))
    table.append(arrow(*ROWS[3:]))
    table.delete("at < '2000-01-01T00:00:00+00:00'")
    assert read(lake) == by_id(*ROWS[:3], *ROWS[4:])
    lake.check()


@pytest.mark.parametrize(
    ("source", "transform", "kind"),
    [
        *[(1, "bucket[4]", pa.int16()), (1, "truncate[10]", pa.int32())],
        *[(2, "bucket[4]", pa.dictionary(pa.int8(), pa.string())), (2, "truncate[2]", pa.string_view())],
        *[(3, "day", pa.timestamp("ms", tz="UTC")), (3, "bucket[4]", pa.timestamp("s", tz="UTC"))],
    ],
    ids=str,
)
def test_a_partition_column_of_another_arrow_type_that_fits_is_placed_as_the_table_s_own(
    lake: Lake, source: int, transform: str, kind: pa.DataType
) -> None:
    lake.create(schema=SCHEMA, spec=spec_of((source, transform)))
    given = arrow(*ROWS)
    field = ARROW.field(COLUMNS[source]).with_type(kind)
    column = given.column(source - 1)
    column = column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column.cast(kind)
    lake.open().append(given.set_column(source - 1, field, column))
    assert read(lake) == by_id(*ROWS)
    assert check_places(lake, source, transform) > 1
    lake.check()


def test_nanoseconds_that_the_version_does_not_know_are_refused_as_data_that_does_not_fit(lake: Lake) -> None:
    lake.create(schema=SCHEMA, spec=spec_of((3, "day")))
    given = arrow(*ROWS[:3])
    exact = given.set_column(2, "at", given.column(2).cast(pa.timestamp("ns", tz="UTC")))
    with pytest.raises(BadInput, match="does not fit") as caught:
        lake.open().append(exact)
    assert caught.value.field == "data"
    lake.check()


def test_rows_that_pyiceberg_cannot_place_are_refused_by_name_and_leave_nothing(lake: Lake) -> None:
    fields = [*SCHEMA["fields"], {"id": 4, "name": "x", "required": False, "type": "double"}]
    lake.create(schema={**SCHEMA, "fields": fields}, spec=spec_of((4, "identity")))
    given = arrow(ROWS[0]).append_column("x", pa.array([float("nan")]))
    with pytest.raises(Unsupported, match="PyIceberg cannot write these rows"):
        lake.open().append(given)
    assert lake.find().current_snapshot() is None
    lake.check()


def test_two_transforms_of_one_column_which_pyiceberg_cannot_write_are_named(lake: Lake) -> None:
    lake.create(schema=SCHEMA, spec=spec_of((2, "truncate[1]"), (2, "identity")))
    with pytest.raises(Unsupported, match=r"two partition fields of one column: p0, p1"):
        lake.open().append(arrow(*ROWS))
    assert lake.find().current_snapshot() is None
    lake.open().append(arrow())  # of no rows none has to be placed
    lake.check()
