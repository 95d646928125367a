"""Files as the service sees them: those too that commits have not written yet (`outbox`, `late_files`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headgate.errors import NotFound
from headgate.files.base import FileInfo, Files
from headgate.service.journal import Journal
from headgate.service.late_files import Unwritten


class WholeFiles:
    """`Files` of which none is missing because it is late."""

    def __init__(self, files: Files, unwritten: Unwritten, journal: Journal) -> None:
        self._files, self._unwritten, self._journal = files, unwritten, journal

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files.write_new`."""
        self._files.write_new(location, parts)

    @property
    def is_soft(self) -> bool:
        """See `Files.is_soft`."""
        return self._files.is_soft

    def write_soft(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files.write_soft`."""
        self._files.write_soft(location, parts)

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]], *, keeps: bool = False) -> None:
        """See `Files.write_soft_many`."""
        self._files.write_soft_many(files, keeps=keeps)

    def sync(self, locations: Iterable[str]) -> None:
        """See `Files.sync`."""
        self._files.sync(locations)

    def restore(self, location: str, data: bytes) -> None:
        """See `Files.restore`."""
        self._files.restore(location, data)

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        """See `Files.read`; one that a commit under way has not written is read too."""
        if (data := self._unwritten.get(location)) is not None:
            return data
        try:
            return self._files.read(location, limit_bytes=limit_bytes)
        except NotFound:
            self._journal.write_late()  # spelled in another way, or another process's
            return self._files.read(location, limit_bytes=limit_bytes)

    def exists(self, location: str) -> bool:
        """See `Files.exists`."""
        return location in self._unwritten or self._files.exists(location)

    def delete(self, locations: Iterable[str]) -> int:
        """See `Files.delete`; one that is late does not come afterwards."""
        wanted = list(locations)
        self._journal.let_go(wanted)
        return self._files.delete(wanted)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """See `Files.list`."""
        self._journal.write_late()
        return self._files.list(prefix)

    def check(self) -> None:
        """See `Files.check`."""
        self._files.check()
