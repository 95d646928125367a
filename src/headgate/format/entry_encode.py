"""Entries of manifests: values to Avro bytes, v1 to v3, in the order of `manifest_schemas`. No I/O.

Counts, null and the branches of unions are all numbers in Avro, so what stands between two texts is encoded in one go:
a call for each of them took longer than the rest of a small manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from headgate.core.manifest import ContentFile, EntryStatus, Metrics
from headgate.format.avro_write import (
    NULL,
    SOME,
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
_END = (0,)  # of a list or map
_NO_NUMBER, _NO_NUMBERS = (_ABSENT,), (_PRESENT, *_END)  # null, and a list or map of nothing
_EMPTY = encode_longs(_NO_NUMBERS)
_BEGIN_ADDED = encode_longs((EntryStatus.ADDED, _PRESENT))  # the snapshot's id follows
_INHERITED = {1: b"", 2: NULL * 2, 3: NULL * 2}  # the sequence numbers, which v1 does not have


@lru_cache(maxsize=1 << 15)  # a manifest that is written anew begins its entries as it did before
def begin_entry(numbers: Numbers, format_version: int) -> bytes:
    """What stands before the file."""
    status, snapshot_id, *sequence_numbers = numbers
    written = [status, _PRESENT, snapshot_id]
    for number in sequence_numbers if format_version > 1 else ():
        written += _NO_NUMBER if number is None else (_PRESENT, number)
    return encode_longs(written)


def begin_added(snapshot_id: int, format_version: int) -> bytes:
    """As `begin_entry` of a file that is added and inherits its numbers; not remembered, as no other append has its id."""
    return b"".join((_BEGIN_ADDED, encode_long(snapshot_id), _INHERITED[format_version]))


def _file_v1(file: ContentFile, partition: bytes) -> tuple[bytes, bytes]:
    last = _list_or_null(file.split_offsets)
    last += _NO_NUMBER if file.sort_order_id is None else (_PRESENT, file.sort_order_id)
    parts = (
        encode_sized(file.file_path.encode()),
        _encode_format(file.file_format),
        partition,
        *_statistics([file.record_count, file.file_size_in_bytes, _BLOCK_SIZE], file.metrics or _NO_METRICS),
        encode_optional_bytes(file.key_metadata),
        encode_longs(last),
    )
    return b"".join(parts), b""


def _file_v2(file: ContentFile, partition: bytes) -> tuple[bytes, bytes]:
    last, path, text = _NULLS, file.file_path.encode(), file.referenced_data_file
    if not (file.split_offsets is None and file.equality_ids is None and file.sort_order_id is None):
        numbers = _list_or_null(file.split_offsets)
        numbers += _list_or_null(file.equality_ids)
        numbers += _NO_NUMBER if file.sort_order_id is None else (_PRESENT, file.sort_order_id)
        last = encode_longs(numbers)
    parts = (
        encode_long(file.content),
        encode_long(len(path)),
        path,
        _encode_format(file.file_format),
        partition,
        *_statistics([file.record_count, file.file_size_in_bytes], file.metrics or _NO_METRICS),
        NULL if file.key_metadata is None else encode_optional_bytes(file.key_metadata),
        last,
    )
    return b"".join(parts), NULL if text is None else encode_optional_text(text)


def _file_v3(file: ContentFile, partition: bytes) -> tuple[bytes, bytes]:
    begin, end = _file_v2(file, partition)
    blob = (file.content_offset, file.content_size_in_bytes)
    return begin, b"".join((end, *map(encode_optional_long, blob)))


FILES = {1: _file_v1, 2: _file_v2, 3: _file_v3}


@lru_cache(maxsize=16)
def _encode_format(name: str) -> bytes:
    return encode_sized(name.encode())


def _statistics(numbers: list[int], metrics: Metrics) -> list[bytes]:
    """What follows these numbers: the four maps of counts, and the two of bounds."""
    of = (metrics.column_sizes, metrics.value_counts, metrics.null_value_counts, metrics.nan_value_counts)
    for counts in of:
        if counts:
            numbers += (_PRESENT, len(counts))
            for pair in counts.items():
                numbers += pair
            numbers += _END
        else:
            numbers += _NO_NUMBER if counts is None else _NO_NUMBERS
    parts = [*map(encode_long, numbers)]
    for bounds in (metrics.lower_bounds, metrics.upper_bounds):
        if bounds:
            parts += (SOME, encode_long(len(bounds)))
            for key, bound in bounds.items():
                parts += (encode_long(key), encode_long(len(bound)), bound)
            parts.append(NULL)
        else:
            parts.append(NULL if bounds is None else _EMPTY)
    return parts


def _list_or_null(items: Sequence[int] | None) -> list[int]:
    if not items:
        return [*(_NO_NUMBER if items is None else _NO_NUMBERS)]
    return [_PRESENT, len(items), *items, *_END]
