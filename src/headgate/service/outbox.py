"""Files that a group has to write before its swap: soft and journalled on a disk, by parallel PUTs on an object store.

On a disk nothing is written before `flush`, which writes the files without a sync, or leaves that to `late_files`, and
returns what belongs in the journal, in the swap's own transaction. A large file would cost more there than a sync of its
own, unless it ends as another one does (the list of thousands of manifests). It, and each PUT on an object store, begins
at once, while the group is still being judged, and `flush` waits for all of them.

A member of the group may have to read what one before it wrote, when memory no longer holds it. So until a file is written
or recalled, it is found in `unwritten`, which all outboxes share.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Protocol

from headgate.errors import HeadgateError
from headgate.files.base import Files
from headgate.service.journal import FILE_BYTES_MAX, Journal, Tail
from headgate.service.late_files import Unwritten
from headgate.store.base import PutFile

_Waiting = tuple[bytes, Tail | None, int]  # with the size of its row

_SOFT_BYTES_MAX = 96 << 10  # in the journal, of one file; more costs more there than a sync of its own
_JOURNAL_BYTES_MAX = 4 << 20  # of one group; what is beyond is written durably at once


def is_small(size_bytes: int, row_bytes: int) -> bool:
    """Whether a file of this size, of which its row would hold so many bytes, is better journalled than synced by itself."""
    return row_bytes <= _SOFT_BYTES_MAX and size_bytes <= FILE_BYTES_MAX


def are_small(files: Iterable[PutFile], size_bytes: int) -> bool:
    """Whether each of these files, which have so many bytes together, is small."""
    if size_bytes <= min(_SOFT_BYTES_MAX, FILE_BYTES_MAX):
        return True
    return all(is_small(put.file.size_bytes, len(put.file.data)) for put in files)


class Write(Protocol):
    """Has a file written, now or before the swap."""

    def __call__(self, location: str, data: bytes, tail: Tail | None = None, /) -> None: ...


class Outbox:
    """The files of one conversation. Used by one thread."""

    def __init__(
        self, files: Files, journal: Journal, writers: ThreadPoolExecutor, unwritten: Unwritten
    ) -> None:
        self._files, self._journal, self._writers, self._unwritten = files, journal, writers, unwritten
        self._waiting: dict[str, _Waiting] = {}
        self._begun: dict[str, Future[None]] = {}
        self._put: list[str] = []

    def put(self, location: str, data: bytes, tail: Tail | None = None) -> None:
        """Have a file written by the time of the next `flush`."""
        self._unwritten[location] = data
        self._put.append(location)
        row_bytes = len(data) if tail is None else len(data) - tail.size_bytes
        if is_small(len(data), row_bytes) and self._journal.is_soft:
            self._waiting[location] = data, tail, row_bytes
        else:
            self._begun[location] = self._begin(location, data)

    @property
    def waits(self) -> bool:
        """Whether `flush` would wait for files to be durable: those that are being written, or that the journal refuses."""
        if self._begun or not self._journal.takes(0):
            return True
        return sum([row_bytes for _, _, row_bytes in self._waiting.values()]) > _JOURNAL_BYTES_MAX

    def flush(self, *, may_be_late: bool = False) -> list[PutFile]:
        """Have everything written; for what is not durable yet, the rows of the journal. Soft files may be late."""
        waiting, self._waiting = self._waiting, {}
        soft: list[tuple[str, bytes, Tail | None]] = []
        room = _JOURNAL_BYTES_MAX if self._journal.takes(0) else -1
        for location, (data, tail, row_bytes) in waiting.items():
            room -= row_bytes
            if room >= 0:
                soft.append((location, data, tail))
            else:
                self._begun[location] = self._begin(location, data)
        late: list[tuple[str, bytes]] = []
        if may_be_late and soft and self._journal.takes_late(sum([len(data) for _, data, _ in soft])):
            late = [(location, data) for location, data, _ in soft]
        elif soft:
            self._files.write_soft_many([(location, (data,)) for location, data, _ in soft])
        if self._begun:
            begun, self._begun = self._begun, {}
            wait(begun.values())  # all of them: one that is late would outlive its deletion
            for future in begun.values():
                future.result()
        self.close()
        self._journal.late.add(late)
        return [self._journal.entry(*file) for file in soft]

    def recall(self, locations: Iterable[str]) -> list[str]:
        """Files that are not wanted: those among them that are or may be written, and must be deleted."""
        written = []
        for location in locations:
            self._unwritten.pop(location, None)
            if self._waiting.pop(location, None) is None and not self._journal.late.recall(location):
                written.append(location)
            if (future := self._begun.pop(location, None)) is not None:
                with suppress(HeadgateError):
                    future.result()
        return written

    def close(self) -> None:
        """What it was given is read from where it was written, or nobody reads it any more."""
        for location in self._put:
            self._unwritten.pop(location, None)
        self._put.clear()

    def _begin(self, location: str, data: bytes) -> Future[None]:
        return self._writers.submit(self._files.write_new, location, (data,))
