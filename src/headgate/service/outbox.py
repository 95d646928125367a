"""Files that a group has to write before its swap: soft and journalled on a disk, by parallel PUTs on an object store.

On a disk nothing is written before `flush`, which writes the files without a sync and returns what belongs in the
journal, in the swap's own transaction. A large file (the list of thousands of manifests) would cost more there than a
sync of its own. It, and each PUT on an object store, begins at once, while the group is still being judged, and
`flush` waits for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress

from headgate.errors import HeadgateError
from headgate.files.base import Files
from headgate.service.journal import Journal
from headgate.store.base import PutFile

_SOFT_BYTES_MAX = 96 << 10  # of one file; a larger one costs more in the journal than a sync of its own
_JOURNAL_BYTES_MAX = 4 << 20  # of one group; what is beyond is written durably at once


class Outbox:
    """The files of one conversation. Used by one thread."""

    def __init__(self, files: Files, journal: Journal, writers: ThreadPoolExecutor) -> None:
        self._files, self._journal, self._writers = files, journal, writers
        self._waiting: dict[str, bytes] = {}
        self._begun: dict[str, Future[None]] = {}

    def put(self, location: str, data: bytes) -> None:
        """Have a file written by the time of the next `flush`."""
        if self._files.is_soft and len(data) <= _SOFT_BYTES_MAX:
            self._waiting[location] = data
        else:
            self._begun[location] = self._begin(location, data)

    def flush(self) -> list[PutFile]:
        """Have everything written; for what is not durable yet, the rows of the journal."""
        waiting, self._waiting = self._waiting, {}
        soft: list[tuple[str, bytes]] = []
        room = _JOURNAL_BYTES_MAX
        for location, data in waiting.items():
            room -= len(data)
            if room >= 0 and self._journal.takes(len(data)):
                soft.append((location, data))
            else:
                self._begun[location] = self._begin(location, data)
        self._files.write_soft_many([(location, (data,)) for location, data in soft])
        begun, self._begun = self._begun, {}
        wait(begun.values())  # all of them: one that is late would outlive its deletion
        for future in begun.values():
            future.result()
        return [self._journal.entry(location, data) for location, data in soft]

    def recall(self, locations: Iterable[str]) -> list[str]:
        """Files that are not wanted: those among them that are or may be written, and must be deleted."""
        written = []
        for location in locations:
            if self._waiting.pop(location, None) is None:
                written.append(location)
            if (future := self._begun.pop(location, None)) is not None:
                with suppress(HeadgateError):
                    future.result()
        return written

    def _begin(self, location: str, data: bytes) -> Future[None]:
        return self._writers.submit(self._files.write_new, location, (data,))
