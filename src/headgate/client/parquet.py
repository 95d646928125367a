"""A Parquet file as the content-file JSON that a change carries: made from its footer, no row is read unless asked.

What the footer does not say for certain is left out: readers then look into the file, which is never wrong.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from headgate.client.footers import (
    UNKNOWN,
    Column,
    Floats,
    TableColumns,
    describe_columns,
    read_columns,
    split_offsets,
)
from headgate.client.metrics_modes import leaves_of, modes_of
from headgate.errors import BadInput, NotFound

_NAME_MAPPING = "schema.name-mapping.default"


def describe_parquet(
    path: str | os.PathLike[str],
    table_metadata: Mapping[str, Any],
    *,
    location: str | None = None,
    partition: Mapping[str, object] | None = None,
    spec_id: int | None = None,
    sort_order_id: int | None = None,
    filesystem: Any = None,
    reads_nans: bool = False,
) -> dict[str, Any]:
    """The content-file JSON of a data file; BadInput when the file does not fit the table.

    `path` is a local path or `file://` location, or with `filesystem` (of PyArrow) a path in it. `location` is how the
    table will name the file, if not so. `partition` has values by the name of the partition field, in
    single-value JSON: needed for transforms other than identity and void; the others are checked. With `reads_nans`
    a column of floats is read when the footer does not tell whether it has NaNs: without, it has no bounds then.
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
            columns = read_columns(file.metadata, file.schema_arrow, table_columns(table_metadata))
            for column in columns:
                column.look_at(_counter(file) if reads_nans else None)
            footer = file.metadata
        size_bytes = os.path.getsize(place) if filesystem is None else filesystem.get_file_info(place).size
    except FileNotFoundError as error:
        raise NotFound(f"File does not exist: {text}", kind="file") from error
    except pa.ArrowInvalid as error:
        raise BadInput(f"not a Parquet file: {text}; {error}", field="path") from error
    by_id = {column.leaf.id: column for column in columns}
    schema = _current_schema(table_metadata)
    _check_required(schema, by_id, footer.num_rows)
    spec = _find_spec(table_metadata, spec_id)
    return {
        "content": "data",
        "file-path": location or text,
        "file-format": "parquet",
        "spec-id": spec["spec-id"],
        "partition": _partition(spec, by_id, dict(partition or {}), schema, rows=footer.num_rows),
        "file-size-in-bytes": size_bytes,
        "record-count": footer.num_rows,
        "split-offsets": split_offsets(footer),
        **describe_columns(columns),
        **({} if sort_order_id is None else {"sort-order-id": sort_order_id}),
    }


def table_columns(metadata: Mapping[str, Any]) -> TableColumns:
    """The columns of a table's current schema, and what is to be told of each."""
    schema = _current_schema(metadata)
    return TableColumns(
        leaves={leaf.id: leaf for leaf in leaves_of(schema)},
        modes=modes_of(metadata, schema),
        tops=frozenset(column["id"] for column in schema["fields"]),
        names=_ids_by_name(metadata),
    )


# --- columns ------------------------------------------------------------------------------------------------


def _counter(file: Any) -> Callable[[str], Floats]:
    """How the floats of one column of an open file are looked at."""
    import pyarrow.compute as pc  # optional extra

    def count(path: str) -> Floats:
        nans, low, high = 0, math.inf, -math.inf
        for batch in file.iter_batches(columns=[path]):
            values = batch.column(0)
            while values.type.num_fields:  # inside structs, which hold this one column only
                values = pc.struct_field(values, 0)
            is_nan = pc.is_nan(values)
            nans += pc.sum(is_nan).as_py() or 0
            found = pc.min_max(pc.filter(values, pc.invert(is_nan))).as_py()
            if found["min"] is not None:
                low, high = min(low, found["min"]), max(high, found["max"])
        if low > high:
            return Floats(nans, None, None)
        # Two zeros are one number in comparisons, and not in the order of bounds.
        return Floats(nans, -0.0 if low == 0 else low, 0.0 if high == 0 else high)

    return count


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


def _check_required(schema: Mapping[str, Any], columns: Mapping[int, Column], rows: int) -> None:
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
    columns: Mapping[int, Column],
    given: dict[str, object],
    schema: Mapping[str, Any],
    *,
    rows: int,
) -> list[object]:
    """The partition tuple in the order of the spec: computed, or given and not contradicted by any row."""
    names = {column["id"]: column["name"] for column in schema["fields"]}
    values = []
    for part in spec["fields"]:
        name = part["name"]
        found = _computed(part, columns, names) if rows or name not in given else UNKNOWN
        told = given.pop(name, UNKNOWN)
        if found is UNKNOWN and told is UNKNOWN:
            raise BadInput(
                f"partition {name} ({part['transform']}): the footer does not tell one value for the whole file; "
                "give it, or write one file for each value",
                field=f"partition.{name}",
            )
        if (
            found is not UNKNOWN
            and told is not UNKNOWN
            and not _are_same(found, told, columns.get(part["source-id"]))
        ):
            raise BadInput(
                f"partition {name}: the file holds {found!r}, not {told!r}", field=f"partition.{name}"
            )
        values.append(told if found is UNKNOWN else found)
    if given:
        names_left = ", ".join(sorted(given))
        raise BadInput(f"partition: spec {spec['spec-id']} has no field {names_left}", field="partition")
    return values


def _are_same(found: object, told: object, column: Column | None) -> bool:
    if column is not None and column.leaf.type.startswith(("binary", "fixed")):
        return str(found).lower() == str(told).lower()  # hexadecimal digits
    return found == told


def _computed(part: Mapping[str, Any], columns: Mapping[int, Column], names: Mapping[int, str]) -> object:
    if part["transform"] == "void":
        return None
    if part["transform"] != "identity":
        return UNKNOWN
    column = columns.get(part["source-id"])
    if column is not None:
        return column.only_value()
    # A column that the file does not have is null in every row; one inside another is not looked at.
    return None if part["source-id"] in names else UNKNOWN


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
