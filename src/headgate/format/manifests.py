"""Manifest lists and manifests: Avro bytes to values, v1 to v3, with inheritance applied. No I/O.

Fields are found by field id, so files of Java, PyIceberg and others read alike. What a version lacks gets the
value that the specification gives it: content "data" and sequence number 0 in v1, no row ids before v3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast

from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    FieldSummary,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    Metrics,
    PartitionValue,
)
from headgate.errors import BadInput
from headgate.format.avro import LIMITS, Limits, read_records
from headgate.format.avro_records import BOOLEAN, BYTES, LONG, STRING, Items, Pairs, Struct, Want
from headgate.format.avro_values import Fields

_T = TypeVar("_T")

_SUMMARY = Struct({509: BOOLEAN, 518: BOOLEAN, 510: BYTES, 511: BYTES})
_MANIFEST_FILE = Struct(
    {
        500: STRING,
        **dict.fromkeys((501, 502, 517, 515, 516, 503, 504, 505, 506, 512, 513, 514, 520), LONG),
        507: Items(_SUMMARY),
        519: BYTES,
    }
)
_FILE: dict[int, Want] = {
    **dict.fromkeys((134, 103, 104, 140, 142, 144, 145), LONG),
    **dict.fromkeys((100, 101, 143), STRING),
    102: Struct(None),
    131: BYTES,
    132: Items(LONG),
    135: Items(LONG),
}
_METRICS: dict[int, Want] = {
    **dict.fromkeys((108, 109, 110, 137), Pairs(LONG, LONG)),
    **dict.fromkeys((125, 128), Pairs(LONG, BYTES)),
}


def _entry(file: dict[int, Want]) -> Struct:
    return Struct({0: LONG, 1: LONG, 3: LONG, 4: LONG, 2: Struct(file)})


_ENTRY = _entry(_FILE)
_ENTRY_WITH_METRICS = _entry({**_FILE, **_METRICS})


def decode_manifest_list(data: bytes, *, location: str, limits: Limits = LIMITS) -> tuple[ManifestFile, ...]:
    """The manifests of a snapshot. BadInput or TooLarge names the location."""
    records = read_records(data, _MANIFEST_FILE, location=location, limits=limits)
    return tuple(_manifest_file(record, location) for record in records)


def decode_manifest(
    data: bytes, manifest: ManifestFile, *, location: str, metrics: bool = False, limits: Limits = LIMITS
) -> Iterator[ManifestEntry]:
    """The entries of a manifest, in order, deleted ones too; lazily, so errors also come while iterating.

    Column statistics are most of a manifest's bytes: they are skipped unless `metrics` asks for them.
    """
    want = _ENTRY_WITH_METRICS if metrics else _ENTRY
    next_row_id = manifest.first_row_id if manifest.content is ManifestContent.DATA else None
    for record in read_records(data, want, location=location, limits=limits):
        entry = _manifest_entry(record, manifest, next_row_id, metrics, location)
        # Row ids are given out in order to live files that have none of their own (spec v3, "First Row ID
        # Inheritance"); a file that kept its id does not move the next one.
        inherited = entry.is_live and cast(Fields, record[2]).get(142) is None
        if next_row_id is not None and inherited:
            next_row_id += entry.file.record_count
        yield entry


def _manifest_file(record: Fields, location: str) -> ManifestFile:
    partitions = cast("tuple[Fields, ...] | None", record.get(507))
    return ManifestFile(
        manifest_path=_text(record, 500, location),
        manifest_length=_count(record, 501, location),
        partition_spec_id=_number(record, 502, location),
        content=_member(ManifestContent, record.get(517), 517, location),
        sequence_number=_number_or(record, 515, 0),
        min_sequence_number=_number_or(record, 516, 0),
        added_snapshot_id=_number(record, 503, location),
        added_files_count=_number_or(record, 504, None),
        existing_files_count=_number_or(record, 505, None),
        deleted_files_count=_number_or(record, 506, None),
        added_rows_count=_number_or(record, 512, None),
        existing_rows_count=_number_or(record, 513, None),
        deleted_rows_count=_number_or(record, 514, None),
        partitions=None if partitions is None else tuple(_summary(item, location) for item in partitions),
        key_metadata=cast("bytes | None", record.get(519)),
        first_row_id=_number_or(record, 520, None),
    )


def _summary(record: Fields, location: str) -> FieldSummary:
    return FieldSummary(
        contains_null=bool(_required(record, 509, location)),
        contains_nan=cast("bool | None", record.get(518)),
        lower_bound=cast("bytes | None", record.get(510)),
        upper_bound=cast("bytes | None", record.get(511)),
    )


def _manifest_entry(
    record: Fields, manifest: ManifestFile, next_row_id: int | None, metrics: bool, location: str
) -> ManifestEntry:
    status = _member(EntryStatus, _required(record, 0, location), 0, location)
    # A null number is inherited by added files only; v1 manifests, which have none, read as 0.
    inherits = status is EntryStatus.ADDED or manifest.sequence_number == 0
    inherited = manifest.sequence_number if inherits else None
    data_sequence_number = _number_or(record, 3, inherited)
    if data_sequence_number is None:
        raise _broken(location, "an entry that was not added has no sequence number", 3)
    return ManifestEntry(
        status=status,
        snapshot_id=_number_or(record, 1, manifest.added_snapshot_id),
        data_sequence_number=data_sequence_number,
        file_sequence_number=_number_or(record, 4, inherited),
        file=_content_file(
            cast(Fields, _required(record, 2, location)),
            manifest,
            next_row_id if status is not EntryStatus.DELETED else None,
            metrics,
            location,
        ),
    )


def _content_file(
    record: Fields, manifest: ManifestFile, next_row_id: int | None, metrics: bool, location: str
) -> ContentFile:
    content = _member(FileContent, record.get(134), 134, location)
    if (content is FileContent.DATA) != (manifest.content is ManifestContent.DATA):
        raise _broken(
            location, f"a file of content {content.value} in a manifest of {manifest.content.name}", 134
        )
    partition = cast("dict[int, PartitionValue]", _required(record, 102, location))
    return ContentFile(
        content=content,
        file_path=_text(record, 100, location),
        file_format=_text(record, 101, location).upper(),
        spec_id=manifest.partition_spec_id,
        partition=tuple(partition.items()),
        record_count=_count(record, 103, location),
        file_size_in_bytes=_count(record, 104, location),
        equality_ids=cast("tuple[int, ...] | None", record.get(135)),
        sort_order_id=_number_or(record, 140, None),
        # A manifest without row ids takes them from its files too: only a v3 list can hand them out.
        first_row_id=None if manifest.first_row_id is None else _number_or(record, 142, next_row_id),
        referenced_data_file=cast("str | None", record.get(143)),
        content_offset=_number_or(record, 144, None),
        content_size_in_bytes=_number_or(record, 145, None),
        key_metadata=cast("bytes | None", record.get(131)),
        split_offsets=cast("tuple[int, ...] | None", record.get(132)),
        metrics=_metrics(record) if metrics else None,
    )


def _metrics(record: Fields) -> Metrics:
    return Metrics(
        column_sizes=cast("dict[int, int] | None", record.get(108)),
        value_counts=cast("dict[int, int] | None", record.get(109)),
        null_value_counts=cast("dict[int, int] | None", record.get(110)),
        nan_value_counts=cast("dict[int, int] | None", record.get(137)),
        lower_bounds=cast("dict[int, bytes] | None", record.get(125)),
        upper_bounds=cast("dict[int, bytes] | None", record.get(128)),
    )


# Types were checked once, against the file's schema; what is left to check of a value is null and range.


def _required(record: Fields, field_id: int, location: str) -> object:
    value = record.get(field_id)
    if value is None:
        raise _broken(location, "a required field is missing", field_id)
    return value


def _text(record: Fields, field_id: int, location: str) -> str:
    return cast(str, _required(record, field_id, location))


def _number(record: Fields, field_id: int, location: str) -> int:
    return cast(int, _required(record, field_id, location))


def _count(record: Fields, field_id: int, location: str) -> int:
    number = _number(record, field_id, location)
    if number < 0:
        raise _broken(location, f"a count is negative ({number})", field_id)
    return number


def _number_or(record: Fields, field_id: int, default: _T) -> int | _T:
    value = record.get(field_id)
    return default if value is None else cast(int, value)


_Code = TypeVar("_Code", ManifestContent, FileContent, EntryStatus)


def _member(codes: type[_Code], value: object, field_id: int, location: str) -> _Code:
    try:
        return codes(0 if value is None else cast(int, value))
    except ValueError as error:
        raise _broken(location, f"code {value} is unknown", field_id) from error


def _broken(location: str, what: str, field_id: int) -> BadInput:
    return BadInput(f"{location}: not a valid manifest: {what}; field-id={field_id}", location=location)
