"""Places on a local disk as values, and the system's errors as ours. Touches no disk (`local_folders` does)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headgate.core.value import Record
from headgate.errors import AlreadyExists, HeadgateError, LocationRefused, NotFound, StorageFailed

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# Every other error number is a StorageFailed. ENOENT means a missing file on reads only: writes make folders.
_ERRORS: dict[int, Callable[[str], HeadgateError]] = {
    errno.ENOENT: lambda location: NotFound(f"no such file; location={location!r}", kind="file"),
    errno.EEXIST: lambda location: AlreadyExists(f"the file exists; location={location!r}", kind="file"),
    errno.ELOOP: lambda location: refused(location, "a symlink is in its path"),
    errno.ENOTDIR: lambda location: refused(location, "a symlink or file stands where a folder must be"),
    errno.EISDIR: lambda location: refused(location, "it is a folder"),
    errno.ENAMETOOLONG: lambda location: refused(location, "a name in it is too long"),
}


class Folder(Record):
    """A folder taken apart: the root's real path, the names below it, and all of it as the system reads it."""

    root: str
    names: tuple[str, ...]
    path: bytes


class Place(Record):
    """A location taken apart: the folder it is in, and its last name."""

    location: str
    folder: Folder
    name: str


@contextmanager
def naming(location: str, *, missing: Callable[[str], HeadgateError] | None = None) -> Iterator[None]:
    """Turn the system's errors into ours, with the location in them."""
    try:
        yield
    except OSError as error:
        raise translate(error, location, missing=missing) from error


def translate(
    error: OSError, location: str, *, missing: Callable[[str], HeadgateError] | None
) -> HeadgateError:
    """The system's error as ours; `missing` is what ENOENT means here, when it is not a missing file."""
    number = error.errno or 0
    make = missing if missing is not None and number == errno.ENOENT else _ERRORS.get(number)
    return make(location) if make is not None else _failed(location, error)


def no_folder(location: str) -> HeadgateError:
    """What ENOENT means to a write, which makes the folders it misses."""
    return StorageFailed(f"the folder cannot be made or went away; location={location!r}", location=location)


def no_root(place: Place) -> HeadgateError:
    """What ENOENT means when a root is opened."""
    return StorageFailed(
        f"the root folder is gone; root={place.folder.root!r} location={place.location!r}; mount it and retry",
        location=place.location,
    )


def _failed(location: str, error: OSError) -> HeadgateError:
    name = errno.errorcode.get(error.errno or 0, "unknown")
    return StorageFailed(
        f"the disk refused; location={location!r} error={name} {error.strerror}; see the disk and retry",
        location=location,
    )


def refused(location: str, fault: str) -> LocationRefused:
    """A location that may not be touched."""
    return LocationRefused(f"location refused: {fault}; location={location!r}", location=location)
