"""The Avro schemas of manifests and manifest lists, v1 to v3: names, ids and order as Java writes them.

`manifest_encode` and `manifest_list_encode` write fields in this order; fastavro checks them against it in the tests.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.format.partition_values import Column, partition_record

VERSIONS = (1, 2, 3)
_Field = dict[str, object]


def _required(name: str, kind: object, field_id: int) -> _Field:
    return {"name": name, "type": kind, "field-id": field_id}


def _optional(name: str, kind: object, field_id: int) -> _Field:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}


def _record(name: str, fields: Iterable[_Field]) -> _Field:
    return {"type": "record", "name": name, "fields": list(fields)}


def _map(name: str, field_id: int, kind: str, *, key: int, value: int) -> _Field:
    # Avro's own maps have string keys, so Iceberg writes lists of pairs (spec, appendix A).
    pair = _record(f"k{key}_v{value}", (_required("key", "int", key), _required("value", kind, value)))
    return _optional(name, {"type": "array", "items": pair, "logicalType": "map"}, field_id)


def _list(name: str, field_id: int, items: object, *, element: int) -> _Field:
    return _optional(name, {"type": "array", "items": items, "element-id": element}, field_id)


_METRICS = (
    _map("column_sizes", 108, "long", key=117, value=118),
    _map("value_counts", 109, "long", key=119, value=120),
    _map("null_value_counts", 110, "long", key=121, value=122),
    _map("nan_value_counts", 137, "long", key=138, value=139),
    _map("lower_bounds", 125, "bytes", key=126, value=127),
    _map("upper_bounds", 128, "bytes", key=129, value=130),
)
_KEY_METADATA = _optional("key_metadata", "bytes", 131)
_SPLIT_OFFSETS = _list("split_offsets", 132, "long", element=133)
_SORT_ORDER_ID = _optional("sort_order_id", "int", 140)
_REFERENCED_DATA_FILE = _optional("referenced_data_file", "string", 143)


def entry_schema(columns: Iterable[Column], *, format_version: int) -> _Field:
    """The record of one manifest entry, with this partition tuple."""
    file = (
        _required("file_path", "string", 100),
        _required("file_format", "string", 101),
        _required("partition", partition_record(columns), 102),
        _required("record_count", "long", 103),
        _required("file_size_in_bytes", "long", 104),
    )
    status, snapshot_id = _required("status", "int", 0), _optional("snapshot_id", "long", 1)
    if format_version == 1:
        block_size = _required("block_size_in_bytes", "long", 105)
        v1 = (*file, block_size, *_METRICS, _KEY_METADATA, _SPLIT_OFFSETS, _SORT_ORDER_ID)
        return _record("manifest_entry", (status, snapshot_id, _required("data_file", _record("r2", v1), 2)))
    last: tuple[_Field, ...] = (_REFERENCED_DATA_FILE,)
    if format_version >= 3:
        last = (
            _optional("first_row_id", "long", 142),
            _REFERENCED_DATA_FILE,
            _optional("content_offset", "long", 144),
            _optional("content_size_in_bytes", "long", 145),
        )
    equality_ids = _list("equality_ids", 135, "int", element=136)
    content = _required("content", "int", 134)
    fields = (content, *file, *_METRICS, _KEY_METADATA, _SPLIT_OFFSETS, equality_ids, _SORT_ORDER_ID, *last)
    return _record(
        "manifest_entry",
        (
            status,
            snapshot_id,
            _optional("sequence_number", "long", 3),
            _optional("file_sequence_number", "long", 4),
            _required("data_file", _record("r2", fields), 2),
        ),
    )


_SUMMARY = _record(
    "r508",
    (
        _required("contains_null", "boolean", 509),
        _optional("contains_nan", "boolean", 518),
        _optional("lower_bound", "bytes", 510),
        _optional("upper_bound", "bytes", 511),
    ),
)


def list_schema(*, format_version: int) -> _Field:
    """The record of one manifest in a manifest list."""
    partitions = _list("partitions", 507, _SUMMARY, element=508)
    key_metadata = _optional("key_metadata", "bytes", 519)
    file = (
        _required("manifest_path", "string", 500),
        _required("manifest_length", "long", 501),
        _required("partition_spec_id", "int", 502),
    )
    snapshot_id = _required("added_snapshot_id", "long", 503)
    count = _optional if format_version == 1 else _required
    files = [count(f"{what}_files_count", "int", 504 + n) for n, what in enumerate(_COUNTED)]
    rows = [count(f"{what}_rows_count", "long", 512 + n) for n, what in enumerate(_COUNTED)]
    if format_version == 1:
        return _record("manifest_file", (*file, snapshot_id, *files, partitions, *rows, key_metadata))
    numbers = (
        _required("content", "int", 517),
        _required("sequence_number", "long", 515),
        _required("min_sequence_number", "long", 516),
        snapshot_id,
    )
    row_ids = (_optional("first_row_id", "long", 520),) if format_version >= 3 else ()
    return _record("manifest_file", (*file, *numbers, *files, *rows, partitions, key_metadata, *row_ids))


_COUNTED = ("added", "existing", "deleted")
