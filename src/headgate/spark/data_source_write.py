"""The writers of `format("headgate")`: executors write files by PyArrow, the driver commits them once.

Spark runs `writer`, `write` and `commit` in processes of their own, and a stream's `commit` even has another writer:
what one knows, another learns from the pickled writer or from messages alone. After any failure Spark calls `abort`,
also when the commit landed and its answer was lost: nothing is deleted before `fates` has proved that it is in no
commit, and never will be. What stays behind then has the run and the attempt in its name, for `headgate audit`.

A catalog that is not ours has no keys to prove that by. There `commit` leaves a note in the run's folder before it sends
anything: without the note nothing was sent, and with it nothing is deleted by `abort`. Of a batch that landed the note
stays, an empty file that no clean-up counts: the answer may still be lost. Of a stream it goes, since the table tells.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyarrow.fs import FileSelector, FileType
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from headgate.client.changes import File
from headgate.errors import BadInput, HeadgateError
from headgate.spark.arrow_files import discard_locations, write_batches
from headgate.spark.arrow_road import attempt_in
from headgate.spark.catalog_table import CatalogTable
from headgate.spark.epochs import Epoch, Sink, There, commit_epoch, is_in_table, is_lost
from headgate.spark.fates import Fate, fence
from headgate.spark.lake import TableState, filesystem_of
from headgate.spark.landing import CERTAIN, leaves_no_doubt
from headgate.spark.runs import Run
from headgate.spark.source_options import SourceOptions

BEGUN = "_commit-begun"  # the note that a commit may be on its way
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"  # what Spark calls them on executors


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """What one task tells the driver."""

    files: tuple[File, ...]
    folder: str
    query_id: str | None = None


Messages = Sequence[WriterCommitMessage | None]  # None where a task failed


class BatchWriter(DataSourceArrowWriter):
    """One `df.write`: append, overwrite of everything, or of the partitions that the rows are in."""

    def __init__(self, state: TableState, run: Run, options: SourceOptions, *, overwrite: bool) -> None:
        self._state, self._run, self._options, self._overwrite = state, run, options, overwrite
        self._began_at_s = time.time()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """On an executor: the rows of one task as files."""
        return _write_task(iterator, self._state, f"{self._state.data_location}/{self._run.id}")

    def commit(self, messages: Messages) -> None:
        """On the driver: all tasks are done; say so to the catalog, once."""
        files = files_of(messages)
        with _told(self._state, messages):
            self._commit(files)
        _tidy(folders_of(messages), files, self._state.storage, keep_note=True)

    def _commit(self, files: list[File]) -> None:
        table, key = self._options.table.client, self._run.key
        said = {"branch": self._options.branch, "summary": self._options.summary, "key": key}
        base = self._state.snapshot_id(self._options.branch)
        if self._options.replace_partitions:
            if files:
                table.replace_partitions(files, base_snapshot_id=base, **said)  # type: ignore[arg-type] # branch, summary, key
        elif self._overwrite:
            table.overwrite(add=files, row_filter=True, base_snapshot_id=base, **said)  # type: ignore[arg-type] # branch, summary, key
        elif files:
            table.append(files, **said)  # type: ignore[arg-type] # branch, summary, key

    def abort(self, messages: Messages) -> None:
        """On the driver: something failed. Remove the files if the commit did not land and cannot any more."""
        if isinstance(self._options.table.client, CatalogTable):
            if not _is_begun(messages, self._state.storage):
                sweep(folders_of(messages), (), self._state.storage)
            return
        with self._options.table.lake.client() as client:
            lifetime_s = client.key_lifetime_s()
        fate = fence(self._options.table, self._run.key)
        if fate is Fate.LANDED or time.time() - self._began_at_s > lifetime_s:
            return  # it is in, or it may have been in for so long that its key is forgotten
        sweep(folders_of(messages), (), self._state.storage)


class StreamWriter(DataSourceStreamArrowWriter):
    """One `df.writeStream`: every batch exactly once."""

    def __init__(self, state: TableState, run: Run, sink: Sink) -> None:
        self._state, self._run, self._sink = state, run, sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """On an executor: the rows of one task as files."""
        batch_id = _local_property(BATCH_ID)
        return _write_task(iterator, self._state, f"{self._state.data_location}/{self._run.id}/{batch_id}")

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 — Spark passes it by this name
        """On the driver: the batch is written; add it, if it is not in the table."""
        files = files_of(messages)
        if not files:
            return
        loaded = self._sink.table.client.load()
        epoch = epoch_of(messages, batchId, loaded.metadata["table-uuid"])
        # What is in the table already was written by an attempt before: these files are in no commit.
        is_others = is_in_table(loaded.properties, epoch)
        if not is_others:
            with _told(self._state, messages):
                is_others = commit_epoch(self._sink, epoch, files) is There.OTHERS
        _tidy(folders_of(messages), () if is_others else files, self._state.storage)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 — Spark passes it by this name
        """On the driver: the batch failed. Remove its files if it did not land and cannot any more."""
        if not folders_of(messages) or _is_begun(messages, self._state.storage):
            return
        epoch = epoch_of(messages, batchId, self._state.raw["table-uuid"])
        if is_lost(self._sink, epoch):
            sweep(folders_of(messages), (), self._state.storage)


@contextmanager
def _told(state: TableState, messages: Messages) -> Iterator[None]:
    """Around the commit to a catalog that keeps no keys: the note, and the files removed if it is certainly refused."""
    if not isinstance(state.table.client, CatalogTable):
        yield
        return
    for folder in folders_of(messages):
        filesystem, path = filesystem_of(f"{folder}/{BEGUN}", state.storage)
        with filesystem.open_output_stream(path):
            pass
    try:
        yield
    except CERTAIN as error:
        if leaves_no_doubt(error):
            _tidy(folders_of(messages), (), state.storage)  # the refusal matters more
        raise


def _is_begun(messages: Messages, storage: Mapping[str, str]) -> bool:
    """Whether a commit of these files may have been sent to a catalog that keeps no keys."""
    places = [filesystem_of(f"{folder}/{BEGUN}", storage) for folder in folders_of(messages)]
    return any(filesystem.get_file_info(path).type is FileType.File for filesystem, path in places)


def files_of(messages: Messages) -> list[File]:
    """All files that the tasks tell of."""
    return [file for message in messages if isinstance(message, FilesWritten) for file in message.files]


def folders_of(messages: Messages) -> list[str]:
    """Where the tasks wrote: folders that belong to this run alone."""
    return sorted({message.folder for message in messages if isinstance(message, FilesWritten)})


def epoch_of(messages: Messages, number: int, table_uuid: str) -> Epoch:
    """Which batch of which stream; the driver is told the number alone."""
    found = {message.query_id for message in messages if isinstance(message, FilesWritten)}
    if len(found) != 1 or None in found:
        raise BadInput(f"the tasks do not say of which stream they are: {found}", field=QUERY_ID)
    return Epoch(str(found.pop()), number, table_uuid)


def sweep(
    folders: Sequence[str], keep: Sequence[File], storage: Mapping[str, str], *, keep_note: bool = False
) -> None:
    """Remove from a run's own folders what is not to be kept: files of tasks that failed or ran twice."""
    kept = {str(file["file-path"]).rsplit("/", 1)[1] for file in keep}
    if keep and keep_note:
        kept.add(BEGUN)
    for folder in folders:
        filesystem, path = filesystem_of(folder, storage)
        found = filesystem.get_file_info(FileSelector(path, allow_not_found=True))
        unwanted = (info.base_name for info in found if info.is_file and info.base_name not in kept)
        discard_locations((f"{folder}/{name}" for name in unwanted), storage)


def _tidy(
    folders: Sequence[str], keep: Sequence[File], storage: Mapping[str, str], *, keep_note: bool = False
) -> None:
    """Sweep if that can be done: the verdict is there, and stays what it is."""
    try:
        sweep(folders, keep, storage, keep_note=keep_note)
    except (OSError, pa.ArrowException, HeadgateError):
        return  # what is left has the run in its name, for `headgate audit`


def _write_task(batches: Iterator[pa.RecordBatch], state: TableState, folder: str) -> FilesWritten:
    files = write_batches(batches, state, attempt_in(folder))
    return FilesWritten(files, folder, _local_property(QUERY_ID))


def _local_property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)
