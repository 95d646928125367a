"""Two roads to a catalog: how a head is loaded and swapped. Each hears errors by the table of `adapters`, never decides.

`CatalogRoad` goes through PyIceberg's `load_table` and `commit_table`, so over any catalog. `SqlRoad` writes the metadata
file itself and makes the one UPDATE that a SqlCatalog's commit consists of: it knows the name of its file, so it can
prove what became of a swap and leaves nothing behind, and its work does not grow with the table's history as
PyIceberg's copies of the metadata do.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import msgspec
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.metadata import TableMetadata as IcebergMetadata
from pyiceberg.typedef import IcebergBaseModel, Identifier

from headgate.core.commit import Candidate, Head, TableCommit
from headgate.core.table import MetadataLogEntry, TableMetadata
from headgate.core.updates import AssertRefSnapshotId, AssertTableUuid, SetSnapshotRef, TableRequirement
from headgate.errors import BadInput, HeadgateError, NotFound, StorageFailed
from headgate.format.table_metadata import encode_file, is_gzipped, skim_metadata
from headgate.library.adapters import Heard, hear, to_error
from headgate.library.manifests import metadata_folder
from headgate.library.pending_files import delete_files, read_file, write_file

_KNOWN_MAX = 4
_VERSION = re.compile(r"(?:.*/)?v?(\d+)[-.][^/]*")
_DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"


@dataclass(frozen=True, slots=True)
class Sent:
    """A swap that was tried: `heard` is None when it landed, and `head` is what it made.

    `location` is the metadata file of the candidate where we named it; `error` says more about a refusal. `is_certain`:
    the transaction was ours, and it was not committed; elsewhere a client may have resent the request below us.
    """

    candidate: Candidate
    heard: Heard | None
    location: str | None = None
    head: Head | None = None
    error: HeadgateError | None = None
    is_certain: bool = False


class Road(Protocol):
    """One table of one catalog."""

    name: str
    io: FileIO
    is_of_one_thread: bool  # its catalog can be asked by the thread that made it alone

    def load(self) -> Head:
        """The head as it is now. Raises what the catalog says, unmapped."""

    def swap(self, candidate: Candidate, commit: TableCommit) -> Sent:
        """Publish the candidate of a commit, whose files are written, if its base is still the head."""

    def turn(self, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Take turns with other writers of the table; False where that cannot be. A courtesy: the swap decides."""


def _known_head(location: str, metadata: TableMetadata) -> Head:
    entry = MetadataLogEntry(metadata_file=location, timestamp_ms=metadata.envelope.last_updated_ms)
    return Head(location, 0, metadata, location, entry)


class _KnownHeads:
    """Heads by metadata location, which never means anything else. The newest few are remembered. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Head] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, location: str) -> Head | None:
        with self._lock:
            return self._kept.get(location)

    def keep(self, location: str, head: Head) -> Head:
        with self._lock:
            self._kept[location] = head
            while len(self._kept) > _KNOWN_MAX:
                self._kept.popitem(last=False)
        return head


class CatalogRoad:
    """Any catalog, by PyIceberg's own calls."""

    def __init__(self, catalog: Catalog, identifier: Identifier, io: FileIO) -> None:
        self.name = ".".join(identifier)
        self.io = io
        self.is_of_one_thread = False
        self._catalog, self._identifier = catalog, identifier
        self._table: Table | None = None
        self._known = _KnownHeads()

    def load(self) -> Head:
        table = self._catalog.load_table(self._identifier)
        self._table = table
        known = self._known.find(table.metadata_location)
        return known or self._take_in(table.metadata_location, _encode(table.metadata))

    def _take_in(self, location: str, text: bytes) -> Head:
        metadata = skim_metadata(text, location=location, uuid=str(uuid.uuid4()))
        # What our requirements protect, and nothing else, decides whether a request on its way may still land.
        envelope = metadata.envelope
        refs = sorted((name, ref.snapshot_id) for name, ref in envelope.refs.items())
        token = msgspec.json.encode(
            (
                envelope.table_uuid,
                refs,
                envelope.last_sequence_number,
                (envelope.current_schema_id, envelope.last_column_id),
                (envelope.default_spec_id, envelope.last_partition_id, envelope.default_sort_order_id),
            )
        ).decode()
        head = _known_head(location, metadata)
        return self._known.keep(location, Head(token, 0, metadata, location, head.checkpoint))

    def turn(self, *, timeout_s: float) -> AbstractContextManager[bool]:
        return nullcontext(False)

    def swap(self, candidate: Candidate, commit: TableCommit) -> Sent:
        table, base = self._table, candidate.base
        if table is None or base is None:
            raise BadInput("a table must be loaded before it is committed to", field="table")
        guarded = (*commit.requirements, *_guards(candidate, base, commit))
        body = {
            "identifier": {"namespace": list(self._identifier[:-1]), "name": self._identifier[-1]},
            "requirements": msgspec.to_builtins(guarded),
            "updates": msgspec.to_builtins(candidate.updates),
        }
        request = CommitTableRequest.model_validate_json(msgspec.json.encode(body))
        try:
            answer = self._catalog.commit_table(table, request.requirements, request.updates)
        except Exception as error:  # outermost edge: of foreign code; what is unknown stays unknown
            return Sent(candidate, hear(error, sent=True), error=to_error(error, self.name))
        try:
            head = self._take_in(answer.metadata_location, _encode(answer.metadata))
        except Exception as error:  # outermost edge: of foreign code; it was answered, a load finds out what
            return Sent(candidate, Heard.UNKNOWN, error=to_error(error, self.name))
        return Sent(candidate, None, head=head)


def _encode(metadata: IcebergMetadata) -> bytes:
    # By the base class: PyIceberg's own method refuses v3, since it does not write v3 tables.
    return IcebergBaseModel.model_dump_json(metadata, exclude_none=True).encode()


def _guards(candidate: Candidate, base: Head, commit: TableCommit) -> tuple[TableRequirement, ...]:
    """The table and the branches that are written or read must be as they were judged."""
    refs = base.metadata.envelope.refs
    judged = [update.ref_name for update in candidate.updates if isinstance(update, SetSnapshotRef)]
    judged.extend(() if commit.reads is None else (commit.reads.branch,))
    return (
        AssertTableUuid(uuid=base.metadata.envelope.table_uuid),
        *(
            AssertRefSnapshotId(ref=name, snapshot_id=refs[name].snapshot_id if name in refs else None)
            for name in dict.fromkeys(judged)
        ),
    )


Turner = Callable[[float], AbstractContextManager[bool]]  # waits so many seconds for a turn at most


class Row(Protocol):
    """The row of a table in a catalog of rows, and the only UPDATE of it."""

    def load(self) -> str | None:
        """The metadata location, or None when there is no such table."""

    def swap(self, *, new: str, old: str) -> Heard | None:
        """Put the new location where the old one stands; None when that is done. Raises before anything was sent.

        `LOST` when the old one does not stand there: then nothing was done, for certain.
        """


class SqlRoad:
    """A SqlCatalog's table, by its row."""

    def __init__(
        self,
        row: Row,
        identifier: Identifier,
        io: FileIO,
        turner: Turner | None = None,
        *,
        is_of_one_thread: bool = False,
    ) -> None:
        self.name = ".".join(identifier)
        self.io = io
        self.is_of_one_thread = is_of_one_thread
        self._row, self._turner = row, turner
        self._known = _KnownHeads()

    def turn(self, *, timeout_s: float) -> AbstractContextManager[bool]:
        return nullcontext(False) if self._turner is None else self._turner(timeout_s)

    def load(self) -> Head:
        location = self._row.load()
        if location is None:
            raise NotFound(f"Table does not exist: {self.name}", kind="table")
        known = self._known.find(location)
        if known is not None:
            return known
        text = read_file(self.io, location)
        metadata = skim_metadata(text, location=location, uuid=str(uuid.uuid4()))
        return self._known.keep(location, _known_head(location, metadata))

    def swap(self, candidate: Candidate, commit: TableCommit) -> Sent:
        base = candidate.base
        if base is None:
            raise BadInput("a table must be loaded before it is committed to", field="table")
        location = _next_location(base.metadata_location, candidate.metadata)
        try:
            write_file(self.io, location, b"".join(encode_file(candidate.metadata)))
        except StorageFailed:
            delete_files(self.io, (location,))  # half of it may be there; nobody knows its name
            raise
        try:
            heard = self._row.swap(new=location, old=base.metadata_location)
        except Exception as error:  # outermost edge: of foreign code; the UPDATE was not committed
            failed = to_error(error, self.name)
            return Sent(candidate, hear(error, sent=False), location, error=failed, is_certain=True)
        if heard is not None:
            return Sent(candidate, heard, location, is_certain=heard is Heard.LOST)
        head = self._known.keep(location, _known_head(location, candidate.metadata))
        self._forget_files(base, head)
        return Sent(candidate, None, location, head)

    def _forget_files(self, base: Head, head: Head) -> None:
        """Delete metadata files that fell off the log, for tables that ask for it, after the commit."""
        before, after = base.metadata.envelope, head.metadata.envelope
        if after.properties.get(_DELETE_AFTER_COMMIT, "").lower() != "true":
            return
        kept = {entry.metadata_file for entry in after.metadata_log}
        delete_files(self.io, [e.metadata_file for e in before.metadata_log if e.metadata_file not in kept])


def _next_location(base: str, metadata: TableMetadata) -> str:
    """The name of the next metadata file; unique for every attempt."""
    found = _VERSION.fullmatch(base)
    version = int(found[1]) + 1 if found is not None else 1
    folder = metadata_folder(metadata.envelope.location, metadata.envelope.properties)
    middle = ".gz" if is_gzipped(metadata.envelope.properties) else ""
    return f"{folder}/{version:05d}-{uuid.uuid4()}{middle}.metadata.json"


def identifier_of(table: Table | str | Sequence[str]) -> Identifier:
    """The levels of the namespace and the name."""
    if isinstance(table, Table):
        return table.name()
    parts = tuple(table.split(".")) if isinstance(table, str) else tuple(table)
    if len(parts) < 2 or not all(parts):
        raise BadInput(f"table: expected namespace and name, as in a.b.table, got {table!r}", field="table")
    return parts
