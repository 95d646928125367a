"""Late files: those of a swap that has landed, whose bytes are in its rows, and which are not at their places yet.

To create two files costs a tenth of a small commit, and nobody needs them before somebody reads the table. So they are
left to the journal's thread, which has them at their places a fraction of a second later, or to whoever comes first
with a head that refers to them. What must not be lost by that:

- *Nobody is handed a head, and no metadata file is written, before the files that it refers to stand* (`Journal.stand`).
  They are added before the swap, so whoever sees its head finds them here, or at their places.
- *They are written.* While a file could not be, or the disk has little room, or many wait, none is late: a commit
  writes its own then, and is refused when it cannot.
- *Nobody else reads them meanwhile.* A process is late only while the store says that it is the one (`Store.claim`).

Never deletes a file. Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager

from headgate.errors import AlreadyExists, HeadgateError, without_frames
from headgate.files.base import Files

Unwritten = dict[str, bytes]  # by location; from any thread

_BYTES_MAX = 16 << 20  # that wait; the list of a large table has a megabyte
_LOOK_S = 0.2  # between two looks at the room
_RETRY_S = 0.2  # before a file that could not be written is tried again


def never() -> bool:
    """There is no room to be late."""
    return False


class LateFiles:
    """The files that wait. Until they are written they are found in `unwritten` too, which others share."""

    def __init__(
        self,
        files: Files,
        unwritten: Unwritten | None = None,
        *,
        allow: Callable[[str], object] = str,
        has_room: Callable[[], bool] = never,
    ) -> None:
        self._files, self._allow, self._has_room = files, allow, has_room
        self._unwritten = {} if unwritten is None else unwritten
        self._lock = threading.Lock()  # of what waits
        self._writing = threading.Lock()  # held while files are written: who had it finds them there
        self._waiting: dict[str, bytes] = {}
        self._bytes = 0
        self._stuck: Mapping[str, HeadgateError] = {}  # those that could not be written the last time
        self._retry_at = float("-inf")
        self._look_at = float("-inf")
        self._is_room = False

    def takes(self, size_bytes: int) -> bool:
        """Whether files of so many bytes may be late."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._is_room = self._has_room()
        return self._is_room and not self._stuck and self._bytes + size_bytes <= _BYTES_MAX

    def add(self, files: Sequence[tuple[str, bytes]]) -> None:
        """A swap that brings these files is about to be sent. Raises LocationRefused for one that is not allowed."""
        late, allow = dict(files), self._allow
        for location in late:
            allow(location)
        with self._lock:
            self._unwritten.update(late)
            self._waiting.update(late)
            self._bytes += sum(map(len, late.values()))

    def recall(self, location: str) -> bool:
        """This file is not wanted. True: it was not written, and will not be."""
        if location not in self._waiting:
            return False
        with self._writing, self._lock:
            return self._remove(location)

    def recall_places(self, places: Collection[str]) -> None:
        """As `recall`, of those that wait for these places, however those are spelled."""
        with self._writing, self._lock:
            for location in [one for one in self._waiting if one in places or self._allow(one) in places]:
                self._remove(location)

    def write_out(self) -> Mapping[str, HeadgateError]:
        """Have all files that were added stand. Those that could not be written wait on, and are given back with why."""
        if not self._waiting:
            self._stuck = {}
            return {}
        with self._writing:
            with self._lock:
                waiting = list(self._waiting.items())
            now = time.monotonic()
            # A disk that fails slowly is not asked again by everybody.
            stuck = dict(self._stuck) if now < self._retry_at else {}
            if not self._stuck and self._write_all(waiting):
                return {}
            for location, data in waiting:
                if location in stuck:
                    continue
                try:
                    self._write(location, data)
                except HeadgateError as error:
                    stuck[location] = without_frames(error)
                    self._retry_at = time.monotonic() + _RETRY_S
                else:
                    with self._lock:
                        self._remove(location)
            self._stuck = {location: why for location, why in stuck.items() if location in self._waiting}
            return self._stuck

    def standing(self) -> AbstractContextManager[object]:
        """While it lasts no late file is written: for who restores files by their rows."""
        return self._writing

    def _write_all(self, waiting: Sequence[tuple[str, bytes]]) -> bool:
        """All in few system calls: after each this thread and those who commit contend for the interpreter.

        False: one could not be written. What was stays, or what others have restored meanwhile would be undone with it.
        """
        try:
            self._files.write_soft_many([(location, (data,)) for location, data in waiting], keeps=True)
        except HeadgateError:
            return False
        with self._lock:
            for location, _ in waiting:
                self._remove(location)
        return True

    def _write(self, location: str, data: bytes) -> None:
        try:
            self._files.write_soft(location, (data,))
        except AlreadyExists:
            # Written before, restored from its row, or torn by a write that could not be undone.
            if not self._stands(location, data):
                self._files.restore(location, data)

    def _stands(self, location: str, data: bytes) -> bool:
        try:
            return self._files.read(location, limit_bytes=len(data)) == data
        except HeadgateError:
            return False

    def _remove(self, location: str) -> bool:
        """With the lock held."""
        data = self._waiting.pop(location, None)
        if data is None:
            return False
        self._bytes -= len(data)
        self._unwritten.pop(location, None)
        return True
