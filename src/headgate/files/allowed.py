"""Files behind the allow-list: every location is brought to its one form and allowed before it is touched.

Metadata keeps a client's spelling of a location (`file:/a`, `s3a://b`), because engines compare strings; here
is where the spelling ends. The last gate, whatever a caller forgot to check.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headgate.core.locations import LocationPolicy
from headgate.files.base import FileInfo, Files


class AllowedFiles:
    """`Files` that refuse what the policy refuses."""

    def __init__(self, files: Files, policy: LocationPolicy) -> None:
        self._files = files
        self._policy = policy

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files.write_new`."""
        self._files.write_new(self._allow(location), parts)

    @property
    def is_soft(self) -> bool:
        """See `Files.is_soft`."""
        return self._files.is_soft

    def write_soft(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files.write_soft`."""
        self._files.write_soft(self._allow(location), parts)

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]], *, keeps: bool = False) -> None:
        """See `Files.write_soft_many`."""
        allow = self._policy.allow_file
        self._files.write_soft_many(
            [(allow(location, field="location"), parts) for location, parts in files], keeps=keeps
        )

    def sync(self, locations: Iterable[str]) -> None:
        """See `Files.sync`."""
        self._files.sync([self._allow(location) for location in locations])

    def restore(self, location: str, data: bytes) -> None:
        """See `Files.restore`."""
        self._files.restore(self._allow(location), data)

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        """See `Files.read`."""
        return self._files.read(self._allow(location), limit_bytes=limit_bytes)

    def exists(self, location: str) -> bool:
        """See `Files.exists`."""
        return self._files.exists(self._allow(location))

    def delete(self, locations: Iterable[str]) -> int:
        """See `Files.delete`."""
        return self._files.delete(self._allow(location) for location in locations)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """See `Files.list`."""
        return self._files.list(self._allow(prefix))

    def check(self) -> None:
        """See `Files.check`."""
        self._files.check()

    def _allow(self, location: str) -> str:
        return self._policy.allow_file(location, field="location")
