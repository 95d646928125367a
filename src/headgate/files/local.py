"""Files on a local disk: exclusive durable creates by hard link, and no way out of the roots by symlink.

A create writes a hidden temporary name in the target's folder, syncs it, links it to the final name (which
fails if that name stands, whoever made it) and syncs the folder. So a final name holds all its bytes or does
not exist, at any kill or power cut. A kill can leave a temporary name, which listings show to the sweeper.

Folders are opened one component at a time, each relative to its parent's descriptor and never through a
symlink. That costs about two microseconds a component, where the syncs cost hundreds, and leaves no moment
between a check and its use: no verdict about a path is ever cached. What is remembered is only that the
entries leading to a folder were synced, by the folder's inode, so that a folder which somebody removed and
made again is synced again. (An inode number reused at the same path goes unnoticed; at stake is then the
entry of a folder that a foreign process made and did not sync, at a power cut.)

Never overwrites a file, never removes a folder, never follows a symlink below a root.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from secrets import token_hex

from headgate.errors import AlreadyExists, HeadgateError, LocationRefused, NotFound, StorageFailed, TooLarge
from headgate.files.base import FileInfo

TEMPORARY_PREFIX = ".headgate-tmp-"

_SCHEME = "file://"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block the opening
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_CHUNK_BYTES = 1 << 20
_SYNCED_FOLDERS_MAX = 10_000

# Every other error number is a StorageFailed. ENOENT means a missing file on reads only: writes make folders.
_ERRORS: dict[int, Callable[[str], HeadgateError]] = {
    errno.ENOENT: lambda location: NotFound(f"no such file; location={location!r}", kind="file"),
    errno.EEXIST: lambda location: AlreadyExists(f"the file exists; location={location!r}", kind="file"),
    errno.ELOOP: lambda location: _refused(location, "a symlink is in its path"),
    errno.ENOTDIR: lambda location: _refused(location, "a symlink or file stands where a folder must be"),
    errno.EISDIR: lambda location: _refused(location, "it is a folder"),
    errno.ENAMETOOLONG: lambda location: _refused(location, "a name in it is too long"),
}


@dataclass(frozen=True, slots=True)
class _Place:
    """A location taken apart: the root's real path, the folders below it, and the last name."""

    location: str
    root: str
    folders: tuple[str, ...]
    name: str


class LocalFiles:
    """`Files` below the given root folders, which must exist. A root may itself be reached by a symlink."""

    def __init__(self, root_paths: Iterable[str | os.PathLike[str]]) -> None:
        self._roots = {os.path.abspath(root): os.path.realpath(root) for root in root_paths}
        self._synced: dict[tuple[str, ...], tuple[int, int]] = {}
        self._synced_lock = threading.Lock()

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """Create the file, all or nothing, durable when this returns."""
        place = self._place(location)
        with _naming(location, missing=_no_folder):
            folder = self._open_folder_to_write(place)
            try:
                _create(folder, place.name, parts)
            finally:
                os.close(folder)

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        """The whole file, read no further than the limit."""
        place = self._place(location)
        with _naming(location), _opened(place) as folder:
            descriptor = os.open(place.name, _READ_FLAGS, dir_fd=folder)
            try:
                return _read_bounded(descriptor, location, limit_bytes)
            finally:
                os.close(descriptor)

    def exists(self, location: str) -> bool:
        """Whether a regular file is there."""
        place = self._place(location)
        try:
            with _naming(location), _opened(place) as folder:
                return stat.S_ISREG(os.stat(place.name, dir_fd=folder, follow_symlinks=False).st_mode)
        except NotFound:
            return False

    def delete(self, locations: Iterable[str]) -> int:
        """Delete files; a missing one is no error. All locations are checked before the first is deleted."""
        return sum(self._delete_one(place) for place in [self._place(location) for location in locations])

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """Regular files below a folder, leftover temporary ones too; symlinks are not shown or followed."""
        bare = prefix.removesuffix("/")
        root = self._roots.get(bare.removeprefix(_SCHEME))
        # A name below the prefix makes the prefix itself a folder of the place, to be opened safely.
        place = self._place(f"{bare}/-") if root is None else _Place(bare, root, (), "-")
        try:
            with _naming(bare), _opened(place) as folder:
                yield from _walk(folder, bare)
        except NotFound:
            return

    def check(self) -> None:
        """Prove at start that each root is writable and creates are exclusive; StorageFailed otherwise."""
        for root in self._roots:
            location = f"{_SCHEME}{root}/{TEMPORARY_PREFIX}check-{token_hex(8)}"
            self.write_new(location, (b"first",))
            try:
                self._check_exclusive(location)
            finally:
                self.delete((location,))

    def _check_exclusive(self, location: str) -> None:
        try:
            self.write_new(location, (b"second",))
        except AlreadyExists:
            if self.read(location, limit_bytes=64) == b"first":
                return
        raise StorageFailed(f"creates are not exclusive here; location={location!r}; use another disk")

    def _place(self, location: str) -> _Place:
        path = location.removeprefix(_SCHEME)
        if path == location:
            raise _refused(location, "it is not a file:// location")
        for lexical, real in self._roots.items():
            if path.startswith(lexical + "/"):
                segments = path[len(lexical) + 1 :].split("/")
                if not {"", ".", ".."}.isdisjoint(segments) or "\0" in path:
                    raise _refused(location, "it is not canonical")
                return _Place(location, real, tuple(segments[:-1]), segments[-1])
        raise _refused(location, "it is not inside a root")

    def _delete_one(self, place: _Place) -> int:
        with _naming(place.location):
            try:
                with _opened(place) as folder:
                    os.unlink(place.name, dir_fd=folder)
            except (FileNotFoundError, IsADirectoryError):  # a folder is no object
                return 0
        return 1

    def _open_folder_to_write(self, place: _Place) -> int:
        """The target's folder, made when missing, its whole chain of entries synced at least once by us."""
        chain = [_open_root(place)]
        try:
            for name in place.folders:
                chain.append(_open_or_make(name, chain[-1]))
            self._sync_chain_once((place.root, *place.folders), chain)
            return chain.pop()
        finally:
            for descriptor in chain:
                os.close(descriptor)

    def _sync_chain_once(self, path: tuple[str, ...], chain: Sequence[int]) -> None:
        status = os.fstat(chain[-1])
        identity = (status.st_dev, status.st_ino)
        if self._synced.get(path) == identity:
            return
        # Also when the folder stood already: who made it may not have synced it yet, or may never do so.
        for descriptor in chain[:-1]:
            os.fsync(descriptor)
        with self._synced_lock:
            if len(self._synced) >= _SYNCED_FOLDERS_MAX:
                self._synced.clear()
            self._synced[path] = identity


def make_root(path: str) -> None:
    """Make a root folder with its parents, and sync the entry of each new one."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        with _naming(_SCHEME + folder, missing=_no_folder):
            with suppress(FileExistsError):
                os.mkdir(folder)
            parent = os.open(os.path.dirname(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)


def _create(folder: int, name: str, parts: Iterable[bytes]) -> None:
    temporary = TEMPORARY_PREFIX + token_hex(12)
    descriptor = os.open(temporary, _CREATE_FLAGS, 0o666, dir_fd=folder)
    try:
        with open(descriptor, "wb", buffering=1 << 16) as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(descriptor)
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
    os.fsync(folder)


def _read_bounded(descriptor: int, location: str, limit_bytes: int) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise _refused(location, "it is not a regular file")
    chunks: list[bytes] = []
    left = limit_bytes + 1 if status.st_size <= limit_bytes else 0
    while left > 0 and (chunk := os.read(descriptor, min(left, _READ_CHUNK_BYTES))):
        chunks.append(chunk)
        left -= len(chunk)
    if left == 0:
        raise TooLarge(
            f"the file is over its limit; location={location!r} size_bytes={status.st_size} "
            f"limit_bytes={limit_bytes}",
            location=location,
        )
    return b"".join(chunks)


def _open_root(place: _Place) -> int:
    try:
        return os.open(place.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        # An unmounted disk: none of its files may be called missing.
        raise StorageFailed(
            f"the root folder is gone; root={place.root!r} location={place.location!r}; mount it and retry",
            location=place.location,
        ) from error


def _open_or_make(name: str, parent: int) -> int:
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)


@contextmanager
def _opened(place: _Place) -> Iterator[int]:
    """The folder that holds the place, opened without following a symlink."""
    folder = _open_root(place)
    try:
        for name in place.folders:
            inner = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _walk(folder: int, location: str) -> Iterator[FileInfo]:
    """Files below an open folder. The walk by descriptors cannot be led away by a symlink swapped in."""
    for path, _, names, descriptor in os.fwalk(".", onerror=_raise, follow_symlinks=False, dir_fd=folder):
        below = location + path[1:]
        for name in names:
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode) and _is_utf8(found := f"{below}/{name}"):
                yield FileInfo(found, status.st_size, status.st_mtime_ns // 1_000_000)


def _is_utf8(location: str) -> bool:
    """Whether JSON can say it. No writer of ours or of an engine makes another name, so none is lost."""
    return location.isascii() or not any("\ud800" <= char <= "\udfff" for char in location)


def _raise(error: OSError) -> None:
    if error.errno != errno.ENOENT:  # a folder that vanished during the walk holds nothing
        raise error


@contextmanager
def _naming(location: str, *, missing: Callable[[str], HeadgateError] | None = None) -> Iterator[None]:
    """Turn the system's errors into ours, with the location in them."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        make = missing if missing is not None and number == errno.ENOENT else _ERRORS.get(number)
        raise (make(location) if make is not None else _failed(location, error)) from error


def _no_folder(location: str) -> HeadgateError:
    return StorageFailed(f"the folder cannot be made or went away; location={location!r}", location=location)


def _failed(location: str, error: OSError) -> HeadgateError:
    name = errno.errorcode.get(error.errno or 0, "unknown")
    return StorageFailed(
        f"the disk refused; location={location!r} error={name} {error.strerror}; see the disk and retry",
        location=location,
    )


def _refused(location: str, fault: str) -> LocationRefused:
    return LocationRefused(f"location refused: {fault}; location={location!r}", location=location)
