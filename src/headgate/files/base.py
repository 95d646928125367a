"""What the service asks of object storage: exclusive durable creates, bounded reads, deletes, listings.

Locations are canonical URIs (`file:///…`, `s3://bucket/key`) that `core.locations` has already allowed; an
implementation still refuses what would leave its root (a symlink, say). Never overwrites.
All methods are synchronous and may be called from many threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One object of a listing."""

    location: str
    size_bytes: int
    modified_at_ms: int


class Files(Protocol):
    """Objects by location."""

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """Create the object, all or nothing, durable when this returns. AlreadyExists(kind="file") if there."""

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        """The whole object. NotFound(kind="file") when missing, TooLarge when over the limit."""

    def exists(self, location: str) -> bool:
        """Whether the object is there."""

    def delete(self, locations: Iterable[str]) -> int:
        """Delete objects; a missing one is no error. Returns how many were there (best knowledge)."""

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """Objects below a folder-like prefix, in no order."""

    def check(self) -> None:
        """Prove at start that creates are exclusive and the root is writable; StorageFailed otherwise."""
