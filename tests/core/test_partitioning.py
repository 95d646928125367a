"""Partition specs and sort orders against a schema."""

from __future__ import annotations

import pytest

from headgate.core.partitioning import (
    PartitionField,
    PartitionSpec,
    SortOrder,
    check_order,
    check_spec,
    check_spec_names,
    check_spec_sources,
    highest_partition_id,
    remap_order,
    remap_spec,
    same_spec,
    with_field_ids,
)
from headgate.errors import BadInput
from tests.core.builders import column, list_of, map_of, order, part, schema, sort, spec, struct

WIDE = schema(
    column(1, "id"),
    column(2, "ts", "timestamptz"),
    column(3, "city", "string"),
    column(4, "d", "date"),
    column(5, "f", "double"),
    column(6, "place", struct(column(7, "zip", "string"))),
    column(8, "tags", list_of("string", 9)),
    column(10, "attributes", map_of("string", "long", key_id=11, value_id=12)),
    column(13, "v", "variant"),
    column(14, "b", "boolean"),
)

# Which transform takes which column: x is refused.
TRANSFORMS = """
transform    id  ts  city d   f   zip b
identity     .   .   .    .   .   .   .
void         .   .   .    .   .   .   .
bucket[16]   .   .   .    .   x   .   x
truncate[4]  .   x   .    x   x   .   x
year         x   .   x    .   x   x   x
month        x   .   x    .   x   x   x
day          x   .   x    .   x   x   x
hour         x   .   x    x   x   x   x
"""
IDS = {"id": 1, "ts": 2, "city": 3, "d": 4, "f": 5, "zip": 7, "b": 14}


def cells() -> list[tuple[str, int, bool]]:
    header, *rows = [line.split() for line in TRANSFORMS.strip().splitlines()]
    return [
        (row[0], IDS[name], cell == ".")
        for row in rows
        for name, cell in zip(header[1:], row[1:], strict=True)
    ]


def refusal(wanted: PartitionSpec | SortOrder, version: int = 2) -> BadInput:
    def check() -> None:
        if isinstance(wanted, PartitionSpec):
            check_spec(wanted, WIDE, format_version=version)
        else:
            check_order(wanted, WIDE)

    with pytest.raises(BadInput) as caught:
        check()
    return caught.value


@pytest.mark.parametrize(("transform", "source", "fits"), cells())
def test_a_transform_takes_the_types_it_can_compute(transform: str, source: int, fits: bool) -> None:
    wanted, sorted_by = spec(part(source, transform, "p")), order(sort(source, transform))
    if fits:
        check_spec(wanted, WIDE, format_version=2)
        check_order(sorted_by, WIDE)
    else:
        assert refusal(wanted).field == "spec.fields.transform"
        assert refusal(sorted_by).field == "sort-order.fields.transform"
        assert "Invalid source type" in refusal(wanted).message


REFUSED = {
    "no name": (part(1, name=""), "spec.fields.name", "Cannot use empty or null partition name"),
    "no source": (part(None, name="p"), "spec.fields.source-id", "a source column is missing"),
    "source-ids alone": (part(None, name="p", source_ids=(1,)), "spec.fields.source-id", "is missing"),
    "two sources": (part(1, source_ids=(1, 2)), "spec.fields.source-ids", "takes one source column"),
    "two meanings": (part(1, source_ids=(2,)), "spec.fields.source-ids", "takes one source column"),
    "unknown source": (part(99, name="p"), "spec.fields.source-id", "Cannot find source column"),
    "unknown transform": (part(1, "zorder", "p"), "spec.fields.transform", "Unknown transform: zorder"),
    "bucket without count": (part(1, "bucket", "p"), "spec.fields.transform", "Unknown transform: bucket"),
    "bucket of text": (part(1, "bucket[x]", "p"), "spec.fields.transform", "Unknown transform: bucket[x]"),
    "a struct": (part(6, name="p"), "spec.fields.source-id", "Cannot use a non-primitive source column"),
    "a list": (part(8, name="p"), "spec.fields.source-id", "Cannot use a non-primitive source column"),
    "an element": (part(9, name="p"), "spec.fields.source-id", "Invalid parent, a list or map"),
    "a map's value": (part(12, name="p"), "spec.fields.source-id", "Invalid parent, a list or map"),
    "a variant": (part(13, name="p"), "spec.fields.transform", "Invalid source type variant"),
    "name of a column": (part(1, "bucket[4]", "city"), "spec.fields.name", "that exists in schema: city"),
    "name of its own column": (part(1, "bucket[4]", "id"), "spec.fields.name", "that exists in schema: id"),
    "identity of another column": (part(1, name="city"), "spec.fields.name", "that exists in schema: city"),
    "name of a nested column": (part(1, name="place.zip"), "spec.fields.name", "exists in schema: place.zip"),
    "void of another column": (part(1, "void", "city"), "spec.fields.name", "that exists in schema: city"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_partition_field_that_does_not_fit_is_refused(name: str) -> None:
    field, where, message = REFUSED[name]
    error = refusal(spec(field))
    assert error.field == where
    assert message in error.message


@pytest.mark.parametrize(
    "transform",
    ["bucket[0]", "truncate[0]", "bucket[-4]", "bucket[2147483648]", "Bucket[4]", "bucket[4] ", "bucket[٤]"],
)
def test_a_transform_that_java_could_not_read_is_unknown(transform: str) -> None:
    assert refusal(spec(part(1, transform, "p"))).message.startswith(f"Unknown transform: {transform}")
    check_spec(spec(part(1, "bucket[2147483647]", "p")), WIDE, format_version=2)


def test_a_name_or_a_field_id_may_stand_only_once() -> None:
    assert (
        refusal(spec(part(1), part(1, name="id"))).message == "Cannot use partition name more than once: id"
    )
    twice = spec(part(1, field_id=1000), part(3, field_id=1000))
    assert refusal(twice).message == "Cannot use field id more than once: 1000"
    assert refusal(twice).field == "spec.fields.field-id"


def test_the_source_of_a_void_field_may_be_gone() -> None:
    check_spec(spec(part(99, "void", "city")), WIDE, format_version=2)


def test_source_ids_that_repeat_the_source_are_good() -> None:
    check_spec(spec(part(1, source_ids=(1,))), WIDE, format_version=3)


def test_field_ids_are_sequential_in_version_1() -> None:
    check_spec(spec(part(1, field_id=1000), part(3), part(2, field_id=1002)), WIDE, format_version=1)
    gap = spec(part(1, field_id=1000), part(3, field_id=1005))
    check_spec(gap, WIDE, format_version=2)
    assert "sequential IDs" in refusal(gap, version=1).message


def test_an_old_spec_whose_source_was_dropped_may_share_a_name_with_a_column() -> None:
    check_spec_names(spec(part(99, "bucket[4]", "city")), WIDE)
    check_spec_names(spec(part(1, "bucket[4]", "id")), WIDE)
    with pytest.raises(BadInput, match="exists in schema: city"):
        check_spec_names(spec(part(1, "bucket[4]", "city")), WIDE)


def test_a_spec_whose_source_changed_its_type_no_longer_fits() -> None:
    with pytest.raises(BadInput, match="Invalid source type string for transform: day"):
        check_spec_sources(spec(part(2, "day")), schema(column(2, "ts", "string")))


SORT_REFUSED = {
    "direction": (sort(1, direction="up"), "sort-order.fields.direction", "Invalid sort direction: up"),
    "nulls": (sort(1, null_order="first"), "sort-order.fields.null-order", "Invalid null order: first"),
    "no source": (sort(None), "sort-order.fields.source-id", "a source column is missing"),
    "unknown source": (
        sort(99, direction="desc", null_order="nulls-last"),
        "sort-order.fields.source-id",
        "Cannot find source column for sort field: identity(99) DESC NULLS LAST",
    ),
    "void of an unknown source": (
        sort(99, "void"),
        "sort-order.fields.source-id",
        "Cannot find source column",
    ),
    "transform": (sort(1, "zorder"), "sort-order.fields.transform", "Unknown transform: zorder"),
    "a struct": (sort(6), "sort-order.fields.source-id", "Cannot use a non-primitive source column"),
}


@pytest.mark.parametrize("name", SORT_REFUSED)
def test_a_sort_field_that_does_not_fit_is_refused(name: str) -> None:
    field, where, message = SORT_REFUSED[name]
    error = refusal(order(field))
    assert error.field == where
    assert message in error.message


def test_specs_are_the_same_whatever_their_ids() -> None:
    left = PartitionSpec(fields=(part(1, field_id=1000),), spec_id=1)
    assert same_spec(left, PartitionSpec(fields=(part(1, field_id=1007),), spec_id=2))
    assert same_spec(left, spec(part(None, name="id", source_ids=(1,))))
    assert not same_spec(left, spec(part(1, "bucket[4]", "id")))
    assert not same_spec(left, spec())


def field_ids(
    *fields: PartitionField, known: tuple[PartitionSpec, ...] = (), last: int = 1000, v: int = 2
) -> list[int | None]:
    numbered = with_field_ids(spec(*fields), known, last_id=last, format_version=v)
    return [field.field_id for field in numbered.fields]


def test_a_field_left_to_us_gets_the_next_id() -> None:
    assert field_ids(part(1), part(3)) == [1001, 1002]


def test_a_field_that_a_known_spec_has_gets_its_id_back() -> None:
    known = spec(part(1, field_id=1000), part(3, "bucket[4]", field_id=1004))
    assert field_ids(part(3, "bucket[4]", "renamed"), part(3), known=(known,), last=1004) == [1004, 1005]


def test_the_next_id_is_never_one_that_the_client_gave() -> None:
    assert field_ids(part(1, field_id=1001), part(3), last=1000) == [1001, 1002]
    assert field_ids(part(3), part(1, field_id=1001), last=1000) == [1002, 1001]


def test_a_lent_id_is_not_given_twice() -> None:
    known = spec(part(1, field_id=1000))
    assert field_ids(part(1), part(1, name="again"), known=(known,)) == [1000, 1001]


def test_ids_are_positions_in_version_1() -> None:
    known = spec(part(1, field_id=1000))
    assert field_ids(part(3), part(1), known=(known,), v=1) == [1000, 1001]


def test_ids_end_where_an_int_ends() -> None:
    with pytest.raises(BadInput, match="no partition field id is left"):
        field_ids(part(1), last=2**31 - 1)


def test_the_highest_field_id_is_at_least_999() -> None:
    assert highest_partition_id(spec()) == 999
    assert highest_partition_id(spec(part(1))) == 999
    assert highest_partition_id(spec(part(1, field_id=1000), part(2, field_id=1003))) == 1003


def test_a_new_tables_spec_and_order_follow_their_columns() -> None:
    renamed = {0: 1, 7: 2}
    assert remap_spec(spec(part(7, name="a", field_id=5), part(0, name="b")), renamed) == PartitionSpec(
        fields=(part(2, name="a", field_id=1000), part(1, name="b", field_id=1001)), spec_id=0
    )
    assert remap_order(order(sort(7)), renamed) == SortOrder(fields=(sort(2),), order_id=1)
    assert remap_order(order(), renamed) == SortOrder(fields=(), order_id=0)


def test_both_ways_to_name_a_source_follow_the_column() -> None:
    assert remap_spec(spec(part(7, name="a", source_ids=(7,))), {7: 2}).fields[0].sources() == (2,)
    assert remap_spec(spec(part(7, name="a", source_ids=(7,))), {7: 2}).fields[0].source_id == 2
    assert remap_order(order(sort(None, source_ids=(7,))), {7: 2}).fields[0].sources() == (2,)


def test_a_source_that_the_new_table_lacks_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        remap_spec(spec(part(9, name="a")), {1: 1})
    assert caught.value.field == "partition-spec.fields.source-id"
    with pytest.raises(BadInput) as caught:
        remap_order(order(sort(9)), {1: 1})
    assert caught.value.field == "write-order.fields.source-id"


def test_a_field_without_a_source_has_no_sources() -> None:
    assert part(None, name="p").sources() == ()
    assert sort(None).sources() == ()
