"""What the service asks of object storage: exclusive durable creates, bounded reads, deletes, listings.

Locations are canonical URIs (`file:///…`, `s3://bucket/key`) that `core.locations` has already allowed; an
implementation still refuses what would leave its root (a symlink, say). Never overwrites,
but for `restore`, which only journal recovery calls, with the bytes the object had.
All methods are synchronous and may be called from many threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

    @property
    def is_soft(self) -> bool:
        """Whether `write_soft` is cheaper than `write_new`: true of disks with a page cache, false of object stores.

        It never changes.
        """

    def write_soft(self, location: str, parts: Iterable[bytes]) -> None:
        """Create the object, visible at once, but torn by a kill before this returns, or lost at a power cut before `sync`.

        So nothing may refer to it before this returned, and its name must be used only once.
        """

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]], *, keeps: bool = False) -> None:
        """As `write_soft`, of several objects; cheaper where they share folders. If one fails, none is left.

        With `keeps`, those that were created before it stay.
        """

    def sync(self, locations: Iterable[str]) -> None:
        """Make objects of `write_soft` durable; one that is gone meanwhile is no error.

        After a failure, no later `sync` proves anything about these objects: `restore` them.
        """

    def restore(self, location: str, data: bytes) -> None:
        """Have the object there with these bytes, durable; what a power cut tore is replaced, all or nothing."""

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
