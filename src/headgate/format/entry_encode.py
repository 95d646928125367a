"""Entries of manifests: values to Avro bytes, v1 to v3, in the order of `manifest_schemas`. No I/O.

Counts, null and the branches of unions are all numbers in Avro, so what stands between two texts is encoded in one go:
a call for each of them took longer than the rest of a small manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from headgate.core.manifest import ContentFile, EntryStatus, Metrics
from headgate.format.avro_write import (
    NULL,
    encode_list,
    encode_long,
    encode_longs,
    encode_optional_bytes,
    encode_optional_long,
    encode_optional_text,
    encode_sized,
)

Numbers = tuple[EntryStatus, int, int | None, int | None]  # status, snapshot id, sequence numbers

_NO_METRICS = Metrics()
# v1 requires a block size that nobody reads; this is what Java writes.
_BLOCK_SIZE = 64 * 1024 * 1024
_ABSENT, _PRESENT = 0, 1  # the branches of a union with null
_NULLS = NULL * 3  # neither split offsets nor equality ids nor a sort order
_END = 0  # of a list or map


@lru_cache(maxsize=1 << 15)  # a manifest that is written anew begins its entries as it did before
def begin_entry(numbers: Numbers, format_version: int) -> bytes:
    """What stands before the file."""
    status, snapshot_id, *sequence_numbers = numbers
    written = [status, _PRESENT, snapshot_id]
    for number in sequence_numbers if format_version > 1 else ():
        written += (_ABSENT,) if number is None else (_PRESENT, number)
    return encode_longs(written)


def _file_v1(file: ContentFile, partition: bytes) -> tuple[bytes, bytes]:
    metrics = file.metrics or _NO_METRICS
    last = _list_or_null(file.split_offsets)
    last += (_ABSENT,) if file.sort_order_id is None else (_PRESENT, file.sort_order_id)
    parts = (
        *_begin_file(file, partition),
        encode_longs([file.record_count, file.file_size_in_bytes, _BLOCK_SIZE, *_counts(metrics)]),
        _bounds_or_null(metrics.lower_bounds),
        _bounds_or_null(metrics.upper_bounds),
        encode_optional_bytes(file.key_metadata),
        encode_longs(last),
    )
    return b"".join(parts), b""


def _file_v2(file: ContentFile, partition: bytes) -> tuple[bytes, bytes]:
    metrics, last = file.metrics or _NO_METRICS, _NULLS
    if not (file.split_offsets is None and file.equality_ids is None and file.sort_order_id is None):
        numbers = _list_or_null(file.split_offsets)
        numbers += _list_or_null(file.equality_ids)
        numbers += (_ABSENT,) if file.sort_order_id is None else (_PRESENT, file.sort_order_id)
        last = encode_longs(numbers)
    parts = (
        encode_long(file.content),
        *_begin_file(file, partition),
        encode_longs([file.record_count, file.file_size_in_bytes, *_counts(metrics)]),
        _bounds_or_null(metrics.lower_bounds),
        _bounds_or_null(metrics.upper_bounds),
        NULL if file.key_metadata is None else encode_optional_bytes(file.key_metadata),
        last,
    )
    text = file.referenced_data_file
    return b"".join(parts), NULL if text is None else encode_optional_text(text)


def _file_v3(file: ContentFile, partition: bytes) -> tuple[bytes, bytes]:
    begin, end = _file_v2(file, partition)
    blob = (file.content_offset, file.content_size_in_bytes)
    return begin, b"".join((end, *map(encode_optional_long, blob)))


FILES = {1: _file_v1, 2: _file_v2, 3: _file_v3}


def _begin_file(file: ContentFile, partition: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    path = file.file_path.encode()
    return encode_long(len(path)), path, _encode_format(file.file_format), partition


@lru_cache(maxsize=16)
def _encode_format(name: str) -> bytes:
    return encode_sized(name.encode())


def _counts(metrics: Metrics) -> list[int]:
    """The four maps of counts."""
    numbers: list[int] = []
    of = (metrics.column_sizes, metrics.value_counts, metrics.null_value_counts, metrics.nan_value_counts)
    for counts in of:
        if counts is None:
            numbers.append(_ABSENT)
            continue
        numbers.append(_PRESENT)
        if counts:
            numbers.append(len(counts))
            for pair in counts.items():
                numbers += pair
        numbers.append(_END)
    return numbers


def _list_or_null(items: Sequence[int] | None) -> list[int]:
    if not items:
        return [_ABSENT] if items is None else [_PRESENT, _END]
    return [_PRESENT, len(items), *items, _END]


def _bounds_or_null(bounds: Mapping[int, bytes] | None) -> bytes:
    if bounds is None:
        return NULL
    items: list[bytes] = []
    for key, bound in bounds.items():
        items += (encode_long(key), encode_long(len(bound)), bound)
    return encode_list(len(bounds), items)
