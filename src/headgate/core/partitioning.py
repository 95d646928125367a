"""Partition specs and sort orders: values, checks against a schema, field ids.

PyIceberg parses the transforms and knows which fits which type. Raises BadInput that names the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
from pyiceberg.transforms import Transform, VoidTransform, parse_transform

from headgate.core.schema import Schema, Type, parse_primitive, struct_fields, walk_fields
from headgate.core.value import INT_MAX, Int, Value
from headgate.errors import BadInput

PARTITION_ID_START = 1000
_TRANSFORM = re.compile(r"identity|void|year|month|day|hour|(bucket|truncate)\[(?P<width>[1-9][0-9]{0,9})\]")


class PartitionField(Value):
    """One field of a partition spec. Clients may leave the field id to us."""

    name: str
    transform: str
    source_id: Int | None = None
    source_ids: tuple[Int, ...] = ()
    field_id: Int | None = None

    def sources(self) -> tuple[int, ...]:
        """The columns it is computed from."""
        return self.source_ids or (() if self.source_id is None else (self.source_id,))


class PartitionSpec(Value):
    """How a table's files are divided."""

    fields: tuple[PartitionField, ...]
    spec_id: Int = -1  # -1: not assigned yet


class SortField(Value):
    """One field of a sort order."""

    transform: str
    direction: str
    null_order: str
    source_id: Int | None = None
    source_ids: tuple[Int, ...] = ()

    def sources(self) -> tuple[int, ...]:
        """The columns it is computed from."""
        return self.source_ids or (() if self.source_id is None else (self.source_id,))


class SortOrder(Value):
    """How rows are ordered within files."""

    fields: tuple[SortField, ...]
    order_id: Int = -1  # -1: not assigned yet


UNPARTITIONED = PartitionSpec(fields=(), spec_id=0)
UNSORTED = SortOrder(fields=(), order_id=0)


@lru_cache(maxsize=1024)
def _transform(text: str) -> Transform[Any, Any] | None:
    # PyIceberg also takes text around a transform, no width at all and widths that Java cannot read.
    if (shape := _TRANSFORM.fullmatch(text)) is None or int(shape["width"] or 1) > INT_MAX:
        return None
    return parse_transform(text)


def check_spec(spec: PartitionSpec, schema: Schema, *, format_version: int) -> None:
    """Refuse a new spec whose sources, transforms, names or field ids do not fit."""
    check_spec_sources(spec, schema)
    columns = {name: id_ for name, _, id_, _ in walk_fields(schema)}
    names: set[str] = set()
    ids: set[int] = set()
    for i, field in enumerate(spec.fields):
        where = "spec.fields.name"
        if not field.name:
            raise BadInput("Cannot use empty or null partition name", field=where)
        if field.name in names:
            raise BadInput(f"Cannot use partition name more than once: {field.name}", field=where)
        names.add(field.name)
        if field.name in columns and field.transform not in ("identity", "void"):
            raise BadInput(
                f"Cannot create partition from name that exists in schema: {field.name}", field=where
            )
        _check_field_id(field, ids, expected=PARTITION_ID_START + i if format_version == 1 else None)
    check_spec_names(spec, schema)


def _check_field_id(field: PartitionField, taken: set[int], *, expected: int | None) -> None:
    if field.field_id is None:
        return
    if field.field_id in taken:
        raise BadInput(f"Cannot use field id more than once: {field.field_id}", field="spec.fields.field-id")
    taken.add(field.field_id)
    if expected is not None and field.field_id != expected:
        raise BadInput(
            f"Spec does not use sequential IDs that are required in v1: {field.name}={field.field_id}",
            field="spec.fields.field-id",
        )


def check_spec_sources(spec: PartitionSpec, schema: Schema) -> None:
    """Refuse a spec whose sources or transforms do not fit the schema."""
    types = {id_: type_ for _, _, id_, type_ in walk_fields(schema)}
    outside_lists = struct_fields(schema)
    for field in spec.fields:
        what = f"partition field {field.name}"
        transform = _check_sources(field, what=what, where="spec.fields")
        if isinstance(transform, VoidTransform):
            continue  # the source of a void field may have been dropped
        _check_transform(field, transform, types, what=what, where="spec.fields")
        if not outside_lists.keys() >= set(field.sources()):
            raise BadInput(f"Invalid parent, a list or map, of {what}", field="spec.fields.source-id")


def check_spec_names(spec: PartitionSpec, schema: Schema) -> None:
    """Refuse a spec with the name of a column it does not come from: Java could not read the table."""
    columns = {name: id_ for name, _, id_, _ in walk_fields(schema)}
    present = frozenset(columns.values())
    for field in spec.fields:
        clash = columns.get(field.name)
        if clash is not None and clash not in field.sources() and present & set(field.sources()):
            raise BadInput(
                f"Cannot create partition from name that exists in schema: {field.name}",
                field="spec.fields.name",
            )


def check_order(order: SortOrder, schema: Schema) -> None:
    """Refuse a sort order whose sources or transforms do not fit the schema."""
    types = {id_: type_ for _, _, id_, type_ in walk_fields(schema)}
    for field in order.fields:
        if field.direction not in ("asc", "desc"):
            raise BadInput(f"Invalid sort direction: {field.direction}", field="sort-order.fields.direction")
        if field.null_order not in ("nulls-first", "nulls-last"):
            raise BadInput(f"Invalid null order: {field.null_order}", field="sort-order.fields.null-order")
        direction, nulls = field.direction.upper(), field.null_order.upper().replace("-", " ")
        what = f"sort field: {field.transform}({','.join(map(str, field.sources()))}) {direction} {nulls}"
        transform = _check_sources(field, what=what, where="sort-order.fields")
        _check_transform(field, transform, types, what=what, where="sort-order.fields")


def _check_sources(field: PartitionField | SortField, *, what: str, where: str) -> Transform[Any, Any]:
    transform = _transform(field.transform)
    if transform is None:
        raise BadInput(f"Unknown transform: {field.transform} ({what})", field=f"{where}.transform")
    # All transforms known today have one argument, whose column readers expect in source-id (spec, v3).
    if field.source_id is None:
        raise BadInput(f"a source column is missing: {what}", field=f"{where}.source-id")
    if field.source_ids not in ((), (field.source_id,)):
        raise BadInput(f"{field.transform} takes one source column: {what}", field=f"{where}.source-ids")
    return transform


def _check_transform(
    field: PartitionField | SortField,
    transform: Transform[Any, Any],
    types: dict[int, Type],
    *,
    what: str,
    where: str,
) -> None:
    for source in field.sources():
        if source not in types:
            raise BadInput(f"Cannot find source column for {what}", field=f"{where}.source-id")
        type_ = types[source]
        if not isinstance(type_, str):
            raise BadInput(f"Cannot use a non-primitive source column for {what}", field=f"{where}.source-id")
        primitive = parse_primitive(type_)
        if primitive is None or not transform.can_transform(primitive):
            raise BadInput(
                f"Invalid source type {type_} for transform: {field.transform} ({what})",
                field=f"{where}.transform",
            )


def same_spec(left: PartitionSpec, right: PartitionSpec) -> bool:
    """Compatible: the same sources, transforms and names in the same order; field ids do not count."""
    return [(f.sources(), f.transform, f.name) for f in left.fields] == [
        (f.sources(), f.transform, f.name) for f in right.fields
    ]


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether the spec divides nothing: no fields, or only fields that were dropped (`void`)."""
    return all(field.transform == "void" for field in spec.fields)


def highest_partition_id(spec: PartitionSpec) -> int:
    """The largest partition field id, at least 999."""
    return max((PARTITION_ID_START - 1, *(f.field_id for f in spec.fields if f.field_id is not None)))


def with_field_ids(
    spec: PartitionSpec, known: Iterable[PartitionSpec], *, last_id: int, format_version: int
) -> PartitionSpec:
    """Fill in field ids left to us: an equal field of a known spec lends its id, else the next one.

    In v1 an id is nothing but a position (spec, "Partition Evolution").
    """
    lent = {(f.sources(), f.transform): f.field_id for other in known for f in other.fields}
    fields = []
    taken = {f.field_id for f in spec.fields}
    next_id = max(last_id, highest_partition_id(spec)) + 1
    for i, field in enumerate(spec.fields):
        if field.field_id is None:
            id_ = (
                PARTITION_ID_START + i
                if format_version == 1
                else lent.get((field.sources(), field.transform))
            )
            if id_ is None or id_ in taken:
                id_, next_id = next_id, next_id + 1
            if id_ > INT_MAX:
                raise BadInput("no partition field id is left", field="spec.fields.field-id")
            taken.add(id_)
            field = msgspec.structs.replace(field, field_id=id_)
        fields.append(field)
    return msgspec.structs.replace(spec, fields=tuple(fields))


def remap_spec(spec: PartitionSpec, renamed: dict[int, int]) -> PartitionSpec:
    """The spec of a new table on fresh column ids, with field ids from 1000 on."""
    fields = tuple(
        msgspec.structs.replace(
            field, field_id=PARTITION_ID_START + i, **_remap_sources(field, renamed, "partition-spec")
        )
        for i, field in enumerate(spec.fields)
    )
    return PartitionSpec(fields=fields, spec_id=0)


def remap_order(order: SortOrder, renamed: dict[int, int]) -> SortOrder:
    """The sort order of a new table on fresh column ids."""
    fields = tuple(
        msgspec.structs.replace(field, **_remap_sources(field, renamed, "write-order"))
        for field in order.fields
    )
    return SortOrder(fields=fields, order_id=1 if fields else 0)


def _remap_sources(field: PartitionField | SortField, renamed: dict[int, int], where: str) -> dict[str, Any]:
    sources = field.source_ids if field.source_id is None else (field.source_id, *field.source_ids)
    for source in sources:
        if source not in renamed:
            raise BadInput(f"Cannot find source column: {source}", field=f"{where}.fields.source-id")
    remapped: dict[str, Any] = {"source_ids": tuple(renamed[source] for source in field.source_ids)}
    if field.source_id is not None:
        remapped["source_id"] = renamed[field.source_id]
    return remapped
