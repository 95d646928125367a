"""Record batches to the data files of a table: cut by partition, of the target size, described by their footers.

Pure PyArrow, for executors: no Spark, no JVM, no Hadoop. Files reach local disks and S3 by `pyarrow.fs`. The names
have the run and the attempt in them, so that whatever an attempt leaves behind is known as its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.client.changes import File
from headgate.errors import BadInput, StorageFailed
from headgate.spark.arrow_columns import check_columns, conform, file_schema, stored_schema
from headgate.spark.arrow_metrics import MetricsPlan, count_nans, describe, plan_metrics
from headgate.spark.arrow_partitions import Values, split, to_wire
from headgate.spark.lake import TableState, filesystem_of
from headgate.spark.lineage import with_lineage

ROW_GROUP_ROWS = 250_000
BUFFERED_BYTES_MAX = 256 * 1024 * 1024  # of all partitions of an attempt; past it the largest is written out
OPEN_FILES_MAX = 128
_TARGET_SIZE = ("write.target-file-size-bytes", 512 * 1024 * 1024)
_ROW_GROUP_SIZE = ("write.parquet.row-group-size-bytes", 128 * 1024 * 1024)
_PAGE_SIZE = ("write.parquet.page-size-bytes", 1024 * 1024)
_PAGE_ROWS = ("write.parquet.page-row-limit", 20_000)
_DICTIONARY_SIZE = ("write.parquet.dict-size-bytes", 2 * 1024 * 1024)
_CODEC, _LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
_CODECS = {
    "uncompressed": "none",
    "lz4": "lz4",
    "zstd": "zstd",
    "gzip": "gzip",
    "snappy": "snappy",
    "brotli": "brotli",
}
_BLOOM = "write.parquet.bloom-filter-enabled.column."
_BLOOM_FPP = "write.parquet.bloom-filter-fpp.column."
_BLOOM_FPP_DEFAULT = 0.01


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where one attempt of one task writes, and how it names its files."""

    folder: str  # a location: below the table's data, with the run's id in it
    stem: str  # the task and its attempt

    def location(self, number: int) -> str:
        """The place of the attempt's so-manieth file."""
        return f"{self.folder}/{quote(self.stem)}-{number:05d}.parquet"


@dataclass(slots=True)
class _Open:
    """A file that is being written, with the rows that wait to be a row group of it."""

    location: str
    values: Values
    sink: Any
    writer: Any
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    nans: dict[int, int] = field(default_factory=dict)

    def wait(self, rows: pa.Table) -> None:
        """Take rows in."""
        self.waiting.append(rows)
        self.waiting_rows += rows.num_rows
        self.waiting_bytes += rows.nbytes

    def flush(self, plan: MetricsPlan) -> int:
        """Write what waits as one row group; how large the file is now."""
        if self.waiting_rows:
            rows = pa.concat_tables(self.waiting)
            for id_, count in count_nans(rows, plan).items():
                self.nans[id_] = self.nans.get(id_, 0) + count
            self.writer.write_table(rows, row_group_size=rows.num_rows)
            self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0
        return int(self.sink.tell())


class ArrowFiles:
    """The files of one attempt: `add` batches, then `close` for their descriptions, or `discard` them all."""

    def __init__(
        self,
        state: TableState,
        attempt: Attempt,
        *,
        spec_id: int | None = None,
        sort_order_id: int | None = None,
        extra: Sequence[str] = (),
    ) -> None:
        self._schema, self._spec = with_lineage(state.schema, extra), state.spec_by_id(spec_id)
        self._attempt, self._sort_order_id = attempt, sort_order_id
        self._storage = state.storage
        stored = stored_schema(self._schema)
        self._arrow = file_schema(self._schema)
        self._metrics = plan_metrics(stored, state.raw)
        self._options = writer_options(state.properties)
        self._target_bytes = _number(state.properties, _TARGET_SIZE)
        self._group_bytes = _number(state.properties, _ROW_GROUP_SIZE)
        self._checked: pa.Schema | None = None
        self._has_folder = False
        self._open: dict[Values, _Open] = {}
        self._begun: list[str] = []
        self._done: list[File] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in; files are written as they fill."""
        if batch.schema != self._checked:
            check_columns(batch.schema, self._schema)
            self._checked = batch.schema
        if not batch.num_rows:
            return
        rows = pa.Table.from_batches([conform(batch, self._schema, self._arrow)])
        for values, part in split(rows, self._spec, self._schema):
            for start in range(0, part.num_rows, ROW_GROUP_ROWS):
                file = self._open.get(values) or self._begin(values)
                file.wait(part.slice(start, ROW_GROUP_ROWS))
                if file.waiting_rows >= ROW_GROUP_ROWS or file.waiting_bytes >= self._group_bytes:
                    self._flush(file)
        while sum(file.waiting_bytes for file in self._open.values()) > BUFFERED_BYTES_MAX:
            self._flush(max(self._open.values(), key=lambda one: one.waiting_bytes))

    def close(self) -> tuple[File, ...]:
        """Finish all files; their content-file JSON."""
        for file in tuple(self._open.values()):
            self._finish(file)
        return tuple(self._done)

    def discard(self) -> None:
        """Remove everything this attempt has written: nobody was told of it."""
        for file in self._open.values():
            file.writer.close()
            file.sink.close()
        discard_locations(self._begun, self._storage)

    def _begin(self, values: Values) -> _Open:
        if len(self._open) >= OPEN_FILES_MAX:
            self._finish(max(self._open.values(), key=lambda one: one.sink.tell() + one.waiting_bytes))
        location = self._attempt.location(len(self._begun))
        filesystem, path = filesystem_of(location, self._storage)
        try:
            if not self._has_folder and filesystem.type_name == "local":
                filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
                self._has_folder = True
            self._begun.append(location)
            sink = filesystem.open_output_stream(path)
        except OSError as error:
            raise StorageFailed(f"{location}: {error}") from error
        writer = pq.ParquetWriter(sink, self._arrow, **self._options)
        file = self._open[values] = _Open(location, values, sink, writer)
        return file

    def _flush(self, file: _Open) -> None:
        """Write a row group; a file that has its size then is finished."""
        if file.flush(self._metrics) >= self._target_bytes:
            self._finish(file)

    def _finish(self, file: _Open) -> None:
        del self._open[file.values]
        file.flush(self._metrics)
        file.writer.close()
        size_bytes = int(file.sink.tell())
        file.sink.close()
        self._done.append(
            {
                "content": "data",
                "file-path": file.location,
                "file-format": "parquet",
                "spec-id": self._spec.spec_id,
                "partition": to_wire(self._spec, self._schema, file.values),
                "file-size-in-bytes": size_bytes,
                **describe(file.writer.writer.metadata, self._metrics, file.nans),
                **({} if self._sort_order_id is None else {"sort-order-id": self._sort_order_id}),
            }
        )


def write_batches(
    batches: Iterable[pa.RecordBatch],
    state: TableState,
    attempt: Attempt,
    *,
    spec_id: int | None = None,
    sort_order_id: int | None = None,
    extra: Sequence[str] = (),
) -> tuple[File, ...]:
    """All batches as data files. If that fails, the files of this attempt are removed: nobody was told of them."""
    files = ArrowFiles(state, attempt, spec_id=spec_id, sort_order_id=sort_order_id, extra=extra)
    try:
        for batch in batches:
            files.add(batch)
        return files.close()
    except BaseException:
        files.discard()
        raise


def discard_locations(locations: Iterable[str], storage: Mapping[str, str]) -> None:
    """Remove files; one that is not there is no error."""
    for location in locations:
        filesystem, path = filesystem_of(location, storage)
        with suppress(FileNotFoundError):
            filesystem.delete_file(path)


def writer_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """What `write.parquet.*` says, in PyArrow's words."""
    codec = properties.get(_CODEC, "zstd").lower()
    if codec not in _CODECS:
        raise BadInput(f"{_CODEC}: expected one of {', '.join(sorted(_CODECS))}, got {codec!r}", field=_CODEC)
    return {
        "compression": _CODECS[codec],
        "compression_level": _number(properties, (_LEVEL, 0)) if properties.get(_LEVEL) else None,
        "data_page_size": _number(properties, _PAGE_SIZE),
        "max_rows_per_page": _number(properties, _PAGE_ROWS),
        "dictionary_pagesize_limit": _number(properties, _DICTIONARY_SIZE),
        "bloom_filter_options": _bloom_filters(properties) or None,
        "store_decimal_as_integer": True,
        "store_schema": False,  # readers go by field ids and Parquet's own types
    }


def _bloom_filters(properties: Mapping[str, str]) -> dict[str, dict[str, float]]:
    return {
        name.removeprefix(_BLOOM): {
            "ndv": ROW_GROUP_ROWS,
            "fpp": float(properties.get(f"{_BLOOM_FPP}{name.removeprefix(_BLOOM)}", _BLOOM_FPP_DEFAULT)),
        }
        for name, value in properties.items()
        if name.startswith(_BLOOM) and value.lower() == "true"
    }


def _number(properties: Mapping[str, str], said: tuple[str, int]) -> int:
    name, default = said
    text = properties.get(name, str(default))
    if not re.fullmatch("-?[0-9]{1,18}", text):
        raise BadInput(f"{name}: expected a whole number, got {text[:40]!r}", field=name)
    return int(text)
