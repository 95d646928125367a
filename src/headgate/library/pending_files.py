"""Files of one commit over PyIceberg's FileIO: kept back until the swap, then written at once. Never overwrites.

What is discarded before it was written was never there; names are unique, so a file is either ours or nobody's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyiceberg.io import FileIO, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO

from headgate.errors import HeadgateError, NotFound, StorageFailed, TooLarge

LOGGER = logging.getLogger("headgate.library")
BYTES_MAX = 256 * 1024 * 1024
_WRITERS = 8


def read_file(io: FileIO, location: str, *, limit_bytes: int = BYTES_MAX) -> bytes:
    """The whole file. NotFound, TooLarge or StorageFailed otherwise."""
    try:
        found = _read(io, location, limit_bytes + 1)
    except FileNotFoundError as error:
        raise NotFound(f"File does not exist: {location}", kind="file") from error
    except OSError as error:
        raise StorageFailed(f"a file could not be read: {location}; {error}") from error
    if len(found) > limit_bytes:
        raise TooLarge(f"the file is over {limit_bytes} bytes: {location}")
    return bytes(found)


def write_file(io: FileIO, location: str, content: bytes) -> None:
    """Write a file under a name that nobody else uses. StorageFailed otherwise."""
    try:
        with _open_output(io, location) as stream:
            stream.write(content)
    except OSError as error:
        raise StorageFailed(f"a file could not be written: {location}; {error}") from error


def _read(io: FileIO, location: str, bytes_max: int) -> bytes:
    local = _find_local(io, location)
    if local is None:
        with io.new_input(location).open() as stream:
            return stream.read(bytes_max)
    with local.open("rb") as file:
        # Asked for so many bytes, Python makes room for all of them first.
        return file.read() if os.fstat(file.fileno()).st_size < bytes_max else file.read(bytes_max)


def _open_output(io: FileIO, location: str) -> OutputStream:
    local = _find_local(io, location)
    if local is None:
        return io.new_output(location).create(overwrite=True)  # which spares a look whether it is there
    try:
        return local.open("wb")
    except FileNotFoundError:
        local.parent.mkdir(parents=True, exist_ok=True)
        return local.open("wb")


def _find_local(io: FileIO, location: str) -> Path | None:
    """The path of a file that PyIceberg would open by PyArrow on the local disk: the system does it in a tenth of the time.

    What a URL might spell otherwise (a host, a query, a fragment) is left to PyIceberg.
    """
    path = location.removeprefix("file://")
    is_plain = path.startswith("/") and not any(mark in path for mark in "?#;")
    return Path(path) if is_plain and type(io) is PyArrowFileIO else None


def delete_files(io: FileIO, locations: Iterable[str]) -> None:
    """Delete what nobody needs; what cannot be deleted is logged: a file too many does no harm."""
    for location in locations:
        try:
            io.delete(location)
        except FileNotFoundError:
            continue
        except OSError as error:
            LOGGER.warning("a discarded file was not deleted: %s; %s", location, error)


class PendingFiles:
    """The metadata files of one commit."""

    def __init__(self, io: FileIO) -> None:
        self.io = io
        self._pending: dict[str, bytes] = {}

    @property
    def waiting(self) -> Set[str]:
        """Files that are still to be written."""
        return self._pending.keys()

    def put(self, location: str, content: bytes) -> None:
        """Have a file written before the next swap."""
        self._pending[location] = content

    def read(self, location: str) -> bytes:
        """A file, written or not."""
        found = self._pending.get(location)
        return read_file(self.io, location) if found is None else found

    def flush(self) -> None:
        """Write what waits. When one fails the others stay: they are discarded with their candidate."""
        waiting = list(self._pending.items())
        if len(waiting) <= 1 or all(location.startswith(("/", "file:")) for location, _ in waiting):
            for location, content in waiting:
                write_file(self.io, location, content)
        else:
            with ThreadPoolExecutor(min(_WRITERS, len(waiting))) as pool:
                failed = [
                    done.exception()
                    for done in [pool.submit(write_file, self.io, *one) for one in waiting]
                    if done.exception() is not None
                ]
            for error in failed:
                raise error if isinstance(error, HeadgateError) else StorageFailed(str(error))
        self._pending.clear()

    def discard(self, locations: Iterable[str]) -> None:
        """Forget files that wait, delete those that were written."""
        delete_files(
            self.io, [location for location in locations if self._pending.pop(location, None) is None]
        )
