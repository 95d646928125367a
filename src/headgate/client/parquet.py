"""A Parquet file as the content-file JSON that a change carries: made from its footer, no row is read.

What the footer does not say for certain is left out: readers then look into the file, which is never wrong.
Floats have no bounds, because a footer does not tell whether there are NaNs; nor have columns inside others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from headgate.client.bounds import ParquetType, Raw, encode_bound, holds, reader_of, to_json_value
from headgate.errors import BadInput, NotFound

_ID = b"PARQUET:field_id"
_NAME_MAPPING = "schema.name-mapping.default"
_UNKNOWN = object()  # a partition value that the footer does not tell


@dataclass(slots=True)
class _Column:
    """What the row groups say of one leaf column."""

    id: int
    name: str
    type: str  # of the table; empty for a column inside another
    stored: ParquetType
    size_bytes: int = 0
    values: int = 0
    nulls: int | None = 0
    bounded: bool = True
    low: list[Raw] = field(default_factory=list)
    high: list[Raw] = field(default_factory=list)

    def add(self, chunk: Any) -> None:
        """Take one row group's part in."""
        self.size_bytes += chunk.total_compressed_size
        self.values += chunk.num_values
        found = chunk.statistics if chunk.is_stats_set else None
        if found is None or not found.has_null_count:
            self.nulls = None
        elif self.nulls is not None:
            self.nulls += found.null_count
        if found is not None and found.has_min_max:
            self.low.append(found.min_raw)
            self.high.append(found.max_raw)
        elif found is None or not found.has_null_count or found.null_count < chunk.num_values:
            self.bounded = False  # it has values of which nothing is known

    def bound(self, *, upper: bool) -> bytes | None:
        """A bound in single-value serialization."""
        read = reader_of(self.type, self.stored) if self.type else None
        if read is None or not self.bounded or not self.low:
            return None
        try:
            values = [read(raw) for raw in (self.high if upper else self.low)]
        except UnicodeDecodeError:
            return None  # a statistic that was cut in the middle of a character
        extreme: Any = (max if upper else min)(values)  # all of one type
        return encode_bound(self.type, extreme, upper=upper)

    def only_value(self) -> object:
        """The one value that all rows have, as JSON; `_UNKNOWN` when the footer does not say that they do."""
        if self.nulls == self.values:
            return None
        read = reader_of(self.type, self.stored)
        if read is None or not self.bounded or self.nulls != 0:
            return _UNKNOWN
        try:
            found = {read(raw) for raw in (*self.low, *self.high)}
        except UnicodeDecodeError:
            return _UNKNOWN
        return to_json_value(self.type, found.pop()) if len(found) == 1 else _UNKNOWN


def describe_parquet(
    path: str | os.PathLike[str],
    table_metadata: Mapping[str, Any],
    *,
    location: str | None = None,
    partition: Mapping[str, object] | None = None,
    spec_id: int | None = None,
    sort_order_id: int | None = None,
    filesystem: Any = None,
) -> dict[str, Any]:
    """The content-file JSON of a data file; BadInput when the file does not fit the table.

    `path` is a local path or `file://` location, or with `filesystem` (of PyArrow) a path in it. `location` is how the
    table will name the file, if not so. `partition` has values by the name of the partition field, in
    single-value JSON: needed for transforms other than identity and void; the others are checked.
    """
    try:
        import pyarrow as pa  # optional extra
        import pyarrow.parquet as pq  # optional extra
    except ImportError as error:
        raise BadInput(
            "describe_parquet needs PyArrow: pip install 'headgate[parquet]'", field="path"
        ) from error
    text = os.fspath(path)
    place = unquote(urlsplit(text).path) if text.startswith("file:") else text
    try:
        with pq.ParquetFile(place, filesystem=filesystem) as file:
            footer, arrow = file.metadata, file.schema_arrow
        size_bytes = os.path.getsize(place) if filesystem is None else filesystem.get_file_info(place).size
    except FileNotFoundError as error:
        raise NotFound(f"File does not exist: {text}", kind="file") from error
    except pa.ArrowInvalid as error:
        raise BadInput(f"not a Parquet file: {text}; {error}", field="path") from error
    columns = _read_columns(footer, arrow, table_metadata)
    by_id = {column.id: column for column in columns}
    _check_required(_current_schema(table_metadata), by_id, footer.num_rows)
    spec = _find_spec(table_metadata, spec_id)
    described: dict[str, Any] = {
        "content": "data",
        "file-path": location or text,
        "file-format": "parquet",
        "spec-id": spec["spec-id"],
        "partition": _partition(spec, by_id, dict(partition or {}), _current_schema(table_metadata)),
        "file-size-in-bytes": size_bytes,
        "record-count": footer.num_rows,
        "split-offsets": _split_offsets(footer),
        "column-sizes": _counts({c.id: c.size_bytes for c in columns}),
    }
    flat = [column for column in columns if column.type]
    described["value-counts"] = _counts({c.id: c.values for c in flat})
    described["null-value-counts"] = _counts({c.id: c.nulls for c in flat if c.nulls is not None})
    for name, upper in (("lower-bounds", False), ("upper-bounds", True)):
        bounds = {c.id: bound.hex() for c in flat if (bound := c.bound(upper=upper)) is not None}
        described[name] = {"keys": list(bounds), "values": list(bounds.values())}
    if sort_order_id is not None:
        described["sort-order-id"] = sort_order_id
    return described


# --- columns ------------------------------------------------------------------------------------------------


def _read_columns(footer: Any, arrow: Any, metadata: Mapping[str, Any]) -> list[_Column]:
    """The leaf columns that the table knows, with what all row groups say of them."""
    fields = {column["id"]: column for column in _current_schema(metadata)["fields"]}
    ids = None if any(_field_id(column) is not None for column in arrow) else _ids_by_name(metadata)
    inner = {id_ for column in fields.values() for id_ in _inner_ids(column["type"])}
    found: list[_Column] = []
    for at, (leaf, top) in enumerate(leaf for column in arrow for leaf in _leaves(column, top=True)):
        id_ = _field_id(leaf) if ids is None else ids.get(leaf.name) if top else None
        schema = footer.schema.column(at)
        stored = ParquetType(schema.physical_type, json.loads(schema.logical_type.to_json()))
        type_ = ""
        if top and id_ in fields:
            type_ = fields[id_]["type"]
            if not isinstance(type_, str) or not holds(type_, stored):
                raise BadInput(
                    f"column {leaf.name}: the file holds {stored}, the table {type_}", field=leaf.name
                )
        elif id_ not in inner:
            continue  # no reader of the table looks at it
        column = _Column(int(id_ or 0), leaf.name, type_, stored)
        for group in range(footer.num_row_groups):
            column.add(footer.row_group(group).column(at))
        found.append(column)
    return found


def _leaves(column: Any, *, top: bool) -> Iterator[tuple[Any, bool]]:
    """Leaf fields in the order of Parquet's columns, and whether each stands at the top."""
    type_ = getattr(column.type, "storage_type", column.type)  # of an extension type, how it is stored
    if type_.num_fields == 0 or hasattr(type_, "index_type"):  # a dictionary is one column
        yield column, top
        return
    for i in range(type_.num_fields):
        yield from _leaves(type_.field(i), top=False)


def _field_id(column: Any) -> int | None:
    text = (column.metadata or {}).get(_ID)
    return None if text is None or int(text) < 0 else int(text)


def _ids_by_name(metadata: Mapping[str, Any]) -> dict[str, int]:
    """For files without field ids: the table's name mapping, or else its columns by name."""
    mapping = metadata.get("properties", {}).get(_NAME_MAPPING)
    if mapping is None:
        return {column["name"]: column["id"] for column in _current_schema(metadata)["fields"]}
    return {
        name: column["field-id"]
        for column in json.loads(mapping)
        if "field-id" in column
        for name in column["names"]
    }


def _inner_ids(type_: Any) -> Iterator[int]:
    """The ids below a nested type."""
    if not isinstance(type_, dict):
        return
    for column in type_.get("fields", ()):
        yield column["id"]
        yield from _inner_ids(column["type"])
    for part in ("element", "key", "value"):
        if f"{part}-id" in type_:
            yield type_[f"{part}-id"]
            yield from _inner_ids(type_[part])


def _check_required(schema: Mapping[str, Any], columns: Mapping[int, _Column], rows: int) -> None:
    for wanted in schema["fields"]:
        if not wanted["required"] or not isinstance(wanted["type"], str) or not rows:
            continue
        column = columns.get(wanted["id"])
        if column is None and "initial-default" not in wanted:
            raise BadInput(
                f"column {wanted['name']} is required, and the file has none", field=wanted["name"]
            )
        if column is not None and column.nulls:
            raise BadInput(
                f"column {wanted['name']} is required, and {column.nulls} rows have no value",
                field=wanted["name"],
            )


# --- partition ----------------------------------------------------------------------------------------------


def _partition(
    spec: Mapping[str, Any],
    columns: Mapping[int, _Column],
    given: dict[str, object],
    schema: Mapping[str, Any],
) -> list[object]:
    """The partition tuple in the order of the spec: computed, or given and not contradicted."""
    names = {column["id"]: column["name"] for column in schema["fields"]}
    values = []
    for part in spec["fields"]:
        name = part["name"]
        found = _computed(part, columns, names)
        told = given.pop(name, _UNKNOWN)
        if found is _UNKNOWN and told is _UNKNOWN:
            raise BadInput(
                f"partition {name} ({part['transform']}): the footer does not tell one value for the whole file; "
                "give it, or write one file for each value",
                field=f"partition.{name}",
            )
        if found is not _UNKNOWN and told is not _UNKNOWN and found != told:
            raise BadInput(
                f"partition {name}: the file holds {found!r}, not {told!r}", field=f"partition.{name}"
            )
        values.append(told if found is _UNKNOWN else found)
    if given:
        names_left = ", ".join(sorted(given))
        raise BadInput(f"partition: spec {spec['spec-id']} has no field {names_left}", field="partition")
    return values


def _computed(part: Mapping[str, Any], columns: Mapping[int, _Column], names: Mapping[int, str]) -> object:
    if part["transform"] == "void":
        return None
    if part["transform"] != "identity":
        return _UNKNOWN
    column = columns.get(part["source-id"])
    if column is not None:
        return column.only_value() if column.type else _UNKNOWN
    # A column that the file does not have is null in every row; one inside another is not looked at.
    return None if part["source-id"] in names else _UNKNOWN


# --- the table ----------------------------------------------------------------------------------------------


def _current_schema(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    wanted = metadata["current-schema-id"]
    found: Mapping[str, Any] = next(one for one in metadata["schemas"] if one["schema-id"] == wanted)
    return found


def _find_spec(metadata: Mapping[str, Any], spec_id: int | None) -> Mapping[str, Any]:
    wanted = metadata["default-spec-id"] if spec_id is None else spec_id
    for spec in metadata["partition-specs"]:
        if spec["spec-id"] == wanted:
            found: Mapping[str, Any] = spec
            return found
    raise BadInput(f"spec-id: the table has no partition spec {wanted}", field="spec_id")


def _split_offsets(footer: Any) -> list[int]:
    """Where each row group starts: at its first column's dictionary, if there is one."""
    offsets = []
    for group in range(footer.num_row_groups):
        if footer.num_columns == 0:
            return []
        first = footer.row_group(group).column(0)
        starts = [first.data_page_offset]
        if first.has_dictionary_page and first.dictionary_page_offset is not None:
            starts.append(first.dictionary_page_offset)
        offsets.append(min(starts))
    return sorted(offsets)


def _counts(found: Mapping[int, int | None]) -> dict[str, list[int]]:
    return {"keys": list(found), "values": [count for count in found.values() if count is not None]}
