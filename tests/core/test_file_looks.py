"""A data file that looks like one before it is read as any other is: same values, same refusals, in the same words."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import StringType

from headgate.core.change import Append, BoundMap, CountMap, ProduceSnapshot, WireFile
from headgate.core.create import TableDefinition, build_table
from headgate.core.intake import take_in
from headgate.core.locations import LocationPolicy
from headgate.core.manifest import DELETE_PATH_ID, ContentFile
from headgate.core.partitioning import PartitionField, PartitionSpec
from headgate.core.schema import Field, Schema, parse_primitive
from headgate.core.single_values import UNREADABLE, BoundReader
from headgate.core.table import TableMetadata
from headgate.core.wire_files import WireFiles
from headgate.errors import BadInput

PLACE = "file:///lake/t"
RESERVED = 2147483540  # a column of the format, whose bounds nobody here can read
TYPES = (
    "long",
    "int",
    "string",
    "double",
    "float",
    "date",
    "timestamp",
    "timestamptz_ns",
    "time",
    "binary",
    "boolean",
    "uuid",
    "fixed[3]",
    "decimal(9, 2)",
)
# A bound of each type that is no longer than any other of it, and reads as something.
ZEROS = {"int": 4, "string": 0, "float": 4, "date": 4, "binary": 0, "boolean": 1, "fixed[3]": 3, "uuid": 16}
IDS = tuple(range(1, len(TYPES) + 1))
COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
BOUNDS = ("lower_bounds", "upper_bounds")


def make_table(*, partitioned: bool = False, location: str = PLACE) -> TableMetadata:
    """A table with a column of each type; by the second one, if asked for."""
    columns = tuple(Field(id=n, name=f"c{n}", type=type_, required=False) for n, type_ in enumerate(TYPES, 1))
    by_int = PartitionField(name="p", transform="identity", source_id=2, field_id=1000)
    definition = TableDefinition(
        schema=Schema(fields=columns),
        location=location,
        uuid="6b1c6f3e-0000-4000-8000-000000000000",
        spec=PartitionSpec(fields=(by_int,) if partitioned else ()),
        order=None,
        properties={"format-version": "3"},
    )
    return build_table(definition, now_ms=1)


PLAIN, BY_INT = make_table(), make_table(partitioned=True)
ELSEWHERE = make_table(location="file:///elsewhere/t")
MANY_ROWS = TableMetadata(
    msgspec.structs.replace(PLAIN.envelope, next_row_id=2**62), PLAIN.snapshots, PLAIN.history
)


def wire_file(**facts: Any) -> WireFile:
    return WireFile(
        **{
            "content": "data",
            "file_path": f"{PLACE}/data/1.parquet",
            "file_format": "parquet",
            "spec_id": 0,
            "partition": (),
            "file_size_in_bytes": 500,
            "record_count": 5,
            **facts,
        }
    )


def read(files: WireFiles, wire: WireFile) -> ContentFile | tuple[str, object]:
    """The file, or what is said to be wrong with it."""
    try:
        (file,) = files.read((wire,), "f", data=True)
    except BadInput as error:
        return error.message, error.field
    return file


def zero(id_: int) -> str:
    return "00" * ZEROS.get(TYPES[id_ - 1], 8) if id_ in IDS else "00"


ids = st.lists(st.sampled_from(IDS), unique=True, max_size=5).map(tuple)
some_bytes = st.binary(max_size=9) | st.integers(-2, 2).map(lambda n: struct.pack("<q", n))
hexed = some_bytes.map(bytes.hex) | st.sampled_from(["zz", "0", "", "01000000", "000000000000f87f"])


@st.composite
def lookalikes(draw: st.DrawFn) -> tuple[WireFile, WireFile]:
    """A file with nothing wrong, and one with the same columns whose values are whatever they are."""
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    shared = draw(ids)
    for name in (*COUNTS, *BOUNDS):
        keys = draw(st.none() | st.just(shared) | ids)
        if keys is None:
            continue
        kind: Any = CountMap if name in COUNTS else BoundMap
        values = st.integers(0, 3) if name in COUNTS else hexed
        length = len(keys) + draw(st.sampled_from((0, 0, 0, 0, 1, -1)))
        plain = tuple(0 if name in COUNTS else zero(id_) for id_ in keys)
        drawn = draw(st.lists(values, min_size=max(0, length), max_size=max(0, length)))
        first[name] = kind(keys=keys, values=plain)
        second[name] = kind(keys=keys, values=draw(st.sampled_from((plain, tuple(drawn)))))
    second["file_path"] = draw(st.sampled_from(("", "a", f"{PLACE}/data/2.parquet")))
    second["split_offsets"] = draw(st.sampled_from((None, (4,))))
    return wire_file(**first), wire_file(**second)


@given(both=lookalikes(), partition=st.sampled_from(((), (7,), ("x",), (1, 2))), partitioned=st.booleans())
def test_a_file_that_looks_like_the_one_before_is_read_as_any_other_is(
    both: tuple[WireFile, WireFile], partition: tuple[object, ...], partitioned: bool
) -> None:
    table = BY_INT if partitioned else PLAIN
    first = msgspec.structs.replace(both[0], partition=(1,) if partitioned else ())
    second = msgspec.structs.replace(both[1], partition=partition)
    files = WireFiles(table)
    for wire in (first, second, first, second):
        assert read(files, wire) == read(WireFiles(table), wire)


@pytest.mark.parametrize(
    "facts",
    [
        {"file_format": "PARQUET"},
        {"file_format": "puffin"},
        {"content": "position-deletes"},
        {"spec_id": 9},
        {"sort_order_id": 0},
        {"sort_order_id": 9},
        {"equality_ids": (1,)},
        {"equality_ids": ()},
        {"key_metadata": "00"},
        {"key_metadata": "zz"},
        {"column_sizes": CountMap(keys=(99,), values=(1,))},
        {"column_sizes": CountMap(keys=(1, 1), values=(1, 1))},
        {"lower_bounds": BoundMap(keys=(RESERVED,), values=("00",))},
        {"upper_bounds": BoundMap(keys=(DELETE_PATH_ID,), values=("ff",))},
        {"upper_bounds": BoundMap(keys=(99,), values=("00",))},
        {"upper_bounds": BoundMap(keys=(1, 1), values=("00" * 8,) * 2)},
    ],
)
def test_a_file_that_looks_different_is_looked_at_anew(facts: dict[str, Any]) -> None:
    files = WireFiles(PLAIN)
    for wire in (wire_file(), wire_file(**facts), wire_file(), wire_file(**facts)):
        assert read(files, wire) == read(WireFiles(PLAIN), wire)


def test_looks_are_forgotten_when_there_are_too_many_and_nothing_is_read_otherwise() -> None:
    files = WireFiles(PLAIN)
    for n in range(300):
        keys = tuple(id_ for id_ in IDS if n >> (id_ - 1) & 1)
        wire = wire_file(value_counts=CountMap(keys=keys, values=(n,) * len(keys)))
        assert read(files, wire) == read(WireFiles(PLAIN), wire)
    keys = tuple(range(RESERVED, RESERVED + 40_000))
    for _ in range(3):
        for name in ("column_sizes", "value_counts"):
            wide = wire_file(**{name: CountMap(keys=keys, values=keys)})
            assert read(files, wide) == read(WireFiles(PLAIN), wide)


@pytest.mark.parametrize("type_", TYPES)
@given(one=some_bytes, other=some_bytes)
def test_a_bound_that_is_read_quickly_stands_where_it_stands_when_it_is_read(
    type_: str, one: bytes, other: bytes
) -> None:
    primitive = parse_primitive(type_)
    reader = BoundReader(StringType() if primitive is None else primitive)
    try:
        quick = reader.read_quickly(one), reader.read_quickly(other)
    except UNREADABLE:
        return  # it may refuse what `read` reads, and that is asked then
    slow = reader.read(one), reader.read(other)
    assert reader.is_ordered == (type_ not in ("string", "binary", "boolean", "uuid", "fixed[3]"))
    if reader.is_ordered:
        assert (quick[0] > quick[1]) == (slow[0] > slow[1])


POLICY = LocationPolicy(("file:///lake",))
PATHS = (
    f"{PLACE}/data/1.parquet",
    f"{PLACE}/data/2.parquet",
    f"{PLACE}/data/a%2Fb",
    f"file:{PLACE[7:]}/data/1.parquet",
    f"{PLACE}/../u/1",
    f"{PLACE}-of-others/1",
    "file:///lake/u/1",
    "file:///elsewhere/1",
    f"{PLACE}/{'a' * 200}/{'b' * 200}/{'c' * 200}/{'d' * 200}/{'e' * 200}/{'f' * 200}",
    "",
)


@given(
    paths=st.lists(st.sampled_from(PATHS[:3]) | st.sampled_from(PATHS), max_size=3),
    policy=st.sampled_from((None, POLICY)),
    counts=st.lists(st.sampled_from((0, 5, 2**62, 2**63 - 1)), min_size=3, max_size=3),
    summary=st.sampled_from(({}, {"who": "me"}, {"added-records": "1"}, {"operation": "append"})),
    branch=st.sampled_from(("main", "audit", "")),
    table=st.sampled_from((PLAIN, MANY_ROWS, ELSEWHERE)),
    name=st.sampled_from(("updates[0]", "")),
)
def test_an_append_by_either_name_is_taken_in_alike(
    paths: list[str],
    policy: LocationPolicy | None,
    counts: list[int],
    summary: dict[str, str],
    branch: str,
    table: TableMetadata,
    name: str,
) -> None:
    files = tuple(
        wire_file(file_path=path, record_count=n, file_size_in_bytes=n)
        for path, n in zip(paths, counts, strict=False)
    )
    facts: dict[str, Any] = {"add_data_files": files, "summary": summary, "branch": branch}
    taken = []
    for update in (Append(**facts), ProduceSnapshot(snapshot_action="append", **facts)):
        try:
            taken.append(take_in(update, table, field=name, policy=policy))
        except BadInput as error:
            taken.append((type(error), error.message, error.field, error.evidence))
    assert taken[0] == taken[1]
