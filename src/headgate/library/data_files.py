"""Data files of the library: Arrow data written by PyIceberg, and PyIceberg's files as the wire has them.

Writes below the table's own folders only; a file that nobody committed is deleted by whoever had it written.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    UnsupportedPyArrowTypeException,
    _check_pyarrow_schema_compatible,  # what PyIceberg's own append does has no public name
    _dataframe_to_data_files,
    bin_pack_record_batches,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata as IcebergMetadata
from pyiceberg.typedef import Record
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros
from pyiceberg.utils.properties import property_as_int

from headgate.client.changes import File
from headgate.core.manifest import ContentFile, FileContent, Metrics, PartitionValue
from headgate.core.table import TableMetadata
from headgate.errors import BadInput, Unsupported
from headgate.format.content_files import encode_content_file, partition_types

Rows: TypeAlias = Any  # pa.Table, pa.RecordBatch or pa.RecordBatchReader: PyArrow has no types
Files = Sequence[File | DataFile]


def is_rows(given: object) -> bool:
    """Whether this is Arrow data, rather than files."""
    return isinstance(given, pa.Table | pa.RecordBatchReader | pa.RecordBatch)


def write_rows(rows: Rows, metadata: IcebergMetadata, io: FileIO) -> Iterator[DataFile]:
    """Write Arrow data as Parquet files of the table's current schema and spec; BadInput when it does not fit."""
    rows = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    _check_schema(rows.schema, metadata)
    write_uuid, counter = uuid.uuid4(), itertools.count()
    try:
        for part in _split(rows, metadata):
            _check_spec(metadata.spec())
            df = _cast_sources(part, metadata) if isinstance(part, pa.Table) else part
            for file in _dataframe_to_data_files(
                table_metadata=metadata, df=df, io=io, write_uuid=write_uuid, counter=counter
            ):
                # PyIceberg leaves this to its producers, which take the spec of the moment they commit at.
                file.spec_id = metadata.default_spec_id
                yield file
    except NotInstalledError as error:
        raise Unsupported(f"the table's partition spec needs more of PyIceberg: {error}") from error
    except _NOT_WRITTEN as error:
        kind = type(error).__name__
        raise Unsupported(f"PyIceberg cannot write these rows to the table: {kind}: {error}") from error


# What computing a partition and converting a column may end with: NaN under `identity` divides by zero.
_NOT_WRITTEN = (ValueError, TypeError, ArithmeticError, AttributeError)


def _cast_sources(rows: pa.Table, metadata: IcebergMetadata) -> pa.Table:
    """Rows whose partition columns have the table's own types: transforms know no others."""
    spec, schema = metadata.spec(), metadata.schema()
    if spec.is_unpartitioned():
        return rows
    wanted = schema_to_pyarrow(schema, include_field_ids=False)
    for field in spec.fields:
        name = schema.find_column_name(field.source_id)
        at = -1 if name is None else rows.schema.get_field_index(name)
        if at >= 0 and rows.schema.field(at).type != (kind := wanted.field(name).type):
            rows = rows.set_column(at, rows.schema.field(at).with_type(kind), rows.column(at).cast(kind))
    return rows


# What was found to fit lately: a writer sends the same schema again and again.
_FITS: list[tuple[pa.Schema, IcebergMetadata]] = []
_FITS_MAX = 8


def _check_schema(schema: pa.Schema, metadata: IcebergMetadata) -> None:
    if any(known is metadata and found.equals(schema, check_metadata=True) for found, known in tuple(_FITS)):
        return
    try:
        _check_pyarrow_schema_compatible(
            metadata.schema(), provided_schema=schema, format_version=metadata.format_version
        )
    except (ValueError, TypeError, UnsupportedPyArrowTypeException) as error:
        raise BadInput(f"the data does not fit the table: {error}", field="data") from error
    _FITS[:] = [(schema, metadata), *_FITS[: _FITS_MAX - 1]]


def _check_spec(spec: PartitionSpec) -> None:
    for fields in spec.source_id_to_fields_map.values():
        if len(fields) > 1:
            names = ", ".join(field.name for field in fields)
            raise Unsupported(f"PyIceberg writes no rows under two partition fields of one column: {names}")


def _split(rows: pa.Table | pa.RecordBatchReader, metadata: IcebergMetadata) -> Iterator[Any]:
    """Readers of a partitioned table go in pieces of a file's size, since PyIceberg cannot stream into partitions."""
    if isinstance(rows, pa.RecordBatchReader) and not metadata.spec().is_unpartitioned():
        size_bytes = property_as_int(
            metadata.properties,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
        )
        for batches in bin_pack_record_batches(rows, int(size_bytes or 0)):
            yield pa.Table.from_batches(batches)
    elif not isinstance(rows, pa.Table) or rows.num_rows:
        yield rows


# --- files as values and on the wire ------------------------------------------------------------------------


def to_wire(files: Iterable[File | DataFile], table: TableMetadata) -> list[File]:
    """Files as content-file JSON; those that are so already stay as they are."""
    return [_to_wire(file, table) if isinstance(file, DataFile) else _checked(file) for file in files]


def _to_wire(file: DataFile, table: TableMetadata) -> File:
    content = to_content_file(file, table)
    return encode_content_file(content, partition_types(table, content.spec_id))


def to_content_file(file: DataFile, table: TableMetadata) -> ContentFile:
    """PyIceberg's file as a value of ours."""
    spec = table.find_spec(file.spec_id)
    values = [file.partition[i] for i in range(len(spec.fields))]
    ids = [part.field_id or 0 for part in spec.fields]
    return ContentFile(
        content=FileContent(int(file.content)),
        file_path=file.file_path,
        file_format=str(getattr(file.file_format, "value", file.file_format)).upper(),
        spec_id=file.spec_id,
        partition=tuple(zip(ids, map(_partition_value, values), strict=True)),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        equality_ids=None if not file.equality_ids else tuple(file.equality_ids),
        sort_order_id=file.sort_order_id,
        split_offsets=None if file.split_offsets is None else tuple(file.split_offsets),
        metrics=Metrics(
            _mapping(file.column_sizes),
            _mapping(file.value_counts),
            _mapping(file.null_value_counts),
            _mapping(file.nan_value_counts),
            _mapping(file.lower_bounds),
            _mapping(file.upper_bounds),
        ),
    )


def to_data_file(file: ContentFile) -> DataFile:
    """The same the other way round."""
    metrics = file.metrics or Metrics()
    made = DataFile.from_args(
        content=DataFileContent(file.content),
        file_path=file.file_path,
        file_format=FileFormat(file.file_format),
        partition=Record(*(value for _, value in file.partition)),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        column_sizes=_mapping(metrics.column_sizes),
        value_counts=_mapping(metrics.value_counts),
        null_value_counts=_mapping(metrics.null_value_counts),
        nan_value_counts=_mapping(metrics.nan_value_counts),
        lower_bounds=_mapping(metrics.lower_bounds),
        upper_bounds=_mapping(metrics.upper_bounds),
        split_offsets=None if file.split_offsets is None else list(file.split_offsets),
        sort_order_id=file.sort_order_id,
    )
    made.spec_id = file.spec_id
    return made


def _mapping(found: Mapping[int, Any] | None) -> dict[int, Any] | None:
    return None if found is None else dict(found)


def _checked(file: File | DataFile) -> File:
    if not isinstance(file, Mapping) or "file-path" not in file:
        raise BadInput(
            f"expected Arrow data, or files as describe_parquet makes them, got {type(file).__name__}",
            field="data",
        )
    return file


def _partition_value(value: Any) -> PartitionValue:
    """A partition value as manifests store it: dates and times are numbers."""
    match value:
        case datetime():
            return datetime_to_micros(value)
        case date():
            return date_to_days(value)
        case time():
            return time_to_micros(value)
        case bool() | int() | float() | str() | bytes() | Decimal() | uuid.UUID() | None:
            return value
    raise BadInput(f"a partition value of type {type(value).__name__} is not known", field="partition")
