"""Files on a local disk: exclusive durable creates by hard link, and no way out of the roots by symlink.

A create writes a hidden temporary name in the target's folder, syncs it, links it to the final name (which
fails if that name stands, whoever made it) and syncs the folder. So a final name holds all its bytes or does
not exist, at any kill or power cut. A kill can leave a temporary name, which listings show to the sweeper.

A soft create writes the final name itself, exclusively, and syncs nothing. A kill or power cut may tear it; who uses
it keeps the bytes elsewhere until `sync` and lets nothing refer to it before (docs/adr/0007). `restore` replaces what
was torn by a rename. It writes anew also when the bytes that it would read are right: after a failed sync the page
cache may hold bytes that the disk does not, and a second sync would not say so.

Folders are opened anew each time, component by component (`local_paths`). What is remembered is only that the
entries leading to a folder were synced, by the folder's inode, so that a folder which somebody removed and
made again is synced again. (An inode number reused at the same path goes unnoticed; at stake is then the
entry of a folder that a foreign process made and did not sync, at a power cut.)

Never overwrites a file but by `restore`, never removes a folder, never follows a symlink below a root.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import TypeVar

from headgate.errors import AlreadyExists, HeadgateError, NotFound, StorageFailed, TooLarge
from headgate.files.base import FileInfo
from headgate.files.disk_sync import Disks
from headgate.files.local_paths import (
    Place,
    naming,
    no_folder,
    open_or_make,
    open_root,
    opened,
    refused,
    translate,
)

T = TypeVar("T")

TEMPORARY_PREFIX = ".headgate-tmp-"

_SCHEME = "file://"
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block the opening
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_CHUNK_BYTES = 1 << 20
_SYNCED_FOLDERS_MAX = 10_000
_DISK_SYNC_FROM = 8  # files; below, a sync of each costs less than waiting for what others wrote to the disk


class LocalFiles:
    """`Files` below the given root folders, which must exist. A root may itself be reached by a symlink."""

    def __init__(self, root_paths: Iterable[str | os.PathLike[str]], *, disks: Disks | None = None) -> None:
        self._roots = {os.path.abspath(root): os.path.realpath(root) for root in root_paths}
        self._synced: dict[tuple[str, ...], tuple[int, int]] = {}
        self._synced_lock = threading.Lock()
        self._disks = disks or Disks()

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """Create the file, all or nothing, durable when this returns."""
        place = self._place(location)
        with naming(location, missing=no_folder):
            folder = self._open_folder_to_write(place)
            try:
                _create(folder, place.name, parts)
            finally:
                os.close(folder)

    @property
    def is_soft(self) -> bool:
        """There is a page cache, so not waiting for the disk pays."""
        return True

    def write_soft(self, location: str, parts: Iterable[bytes]) -> None:
        """Create the file at its final name, without a sync."""
        self.write_soft_many(((location, tuple(parts)),))

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]]) -> None:
        """Create files at their final names, without a sync, opening each folder once. If one fails, none is left."""
        made: list[Place] = []
        try:
            for places in _by_folder((self._place(location), parts) for location, parts in files):
                self._create_soft(places, made)
        except BaseException:
            for place in made:
                with suppress(
                    HeadgateError
                ):  # what stays is a file too many; the first error is what matters
                    self._delete_one(place)
            raise

    def sync(self, locations: Iterable[str]) -> None:
        """Sync files, then each of their folders once; or the whole disk, when there are many."""
        places = [(self._place(location), None) for location in locations]
        folders = [[place for place, _ in group] for group in _by_folder(places)]
        for group in self._sync_disks(folders) if len(places) >= _DISK_SYNC_FROM else folders:
            _sync_folder(group)

    def restore(self, location: str, data: bytes) -> None:
        """Write the file anew beside its name, sync it, and rename it over whatever stands there."""
        place = self._place(location)
        with naming(location, missing=no_folder):
            folder = self._open_folder_to_write(place)
            try:
                _replace(folder, place.name, data)
            finally:
                os.close(folder)

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        """The whole file, read no further than the limit."""
        place = self._place(location)
        with naming(location), opened(place) as folder:
            descriptor = os.open(place.name, _READ_FLAGS, dir_fd=folder)
            try:
                return _read_bounded(descriptor, location, limit_bytes)
            finally:
                os.close(descriptor)

    def exists(self, location: str) -> bool:
        """Whether a regular file is there."""
        place = self._place(location)
        try:
            with naming(location), opened(place) as folder:
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
        place = self._place(f"{bare}/-") if root is None else Place(bare, root, (), "-")
        try:
            with naming(bare), opened(place) as folder:
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

    def _place(self, location: str) -> Place:
        path = location.removeprefix(_SCHEME)
        if path == location:
            raise refused(location, "it is not a file:// location")
        for lexical, real in self._roots.items():
            if path.startswith(lexical + "/"):
                segments = path[len(lexical) + 1 :].split("/")
                if not {"", ".", ".."}.isdisjoint(segments) or "\0" in path:
                    raise refused(location, "it is not canonical")
                return Place(location, real, tuple(segments[:-1]), segments[-1])
        raise refused(location, "it is not inside a root")

    def _create_soft(
        self, files: Sequence[tuple[Place, Sequence[bytes]]], made: MutableSequence[Place]
    ) -> None:
        """Create files in one folder, noting each that is there."""
        place = files[0][0]
        try:
            folder = self._open_folder_to_write(place)
            try:
                self._disks.hold(place.root)
                for place, parts in files:  # the handler below names the one that failed
                    _write_exclusively(folder, place.name, b"".join(parts))
                    made.append(place)
            finally:
                os.close(folder)
        except OSError as error:
            raise translate(error, place.location, missing=no_folder) from error

    def _sync_disks(self, folders: Sequence[Sequence[Place]]) -> Sequence[Sequence[Place]]:
        """Sync each disk that can be synced whole; returns the folders of the others."""
        devices = [_find_device(group[0]) for group in folders]
        first = {device: group[0].location for device, group in zip(devices, folders, strict=True)}
        whole: set[int | None] = {None}  # a folder that is gone holds nothing to sync
        for device in {device for device in devices if device is not None}:
            with naming(first[device]):
                if self._disks.sync(device):
                    whole.add(device)
        return [group for device, group in zip(devices, folders, strict=True) if device not in whole]

    def _delete_one(self, place: Place) -> int:
        with naming(place.location):
            try:
                with opened(place) as folder:
                    os.unlink(place.name, dir_fd=folder)
            except (FileNotFoundError, IsADirectoryError):  # a folder is no object
                return 0
        return 1

    def _open_folder_to_write(self, place: Place) -> int:
        """The target's folder, made when missing, its whole chain of entries synced at least once by us."""
        chain = [open_root(place)]
        try:
            for name in place.folders:
                chain.append(open_or_make(name, chain[-1]))
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
        with naming(_SCHEME + folder, missing=no_folder):
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


def _write_exclusively(folder: int, name: str, data: bytes) -> None:
    descriptor = os.open(name, _CREATE_FLAGS, 0o666, dir_fd=folder)
    try:
        written = os.write(descriptor, data)
        while written < len(data):  # a signal, or a disk that fills up: then the next write says so
            written += os.write(descriptor, data[written:])
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)


def _replace(folder: int, name: str, data: bytes) -> None:
    temporary = TEMPORARY_PREFIX + token_hex(12)
    try:
        _write_exclusively(folder, temporary, data)
        _sync_file(folder, temporary)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _sync_folder(places: Sequence[Place]) -> None:
    """Sync files of one folder, then the folder; what is gone is no error."""
    for_whom = places[0]
    with suppress(NotFound), naming(for_whom.location), opened(for_whom) as folder:
        for place in places:
            with suppress(FileNotFoundError):
                _sync_file(folder, place.name)
        os.fsync(folder)


def _sync_file(folder: int, name: str) -> None:
    descriptor = os.open(name, _READ_FLAGS, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _find_device(place: Place) -> int | None:
    """The disk that holds the place's folder, if there is one."""
    with suppress(NotFound), naming(place.location), opened(place) as folder:
        return os.fstat(folder).st_dev
    return None


def _by_folder(places: Iterable[tuple[Place, T]]) -> list[list[tuple[Place, T]]]:
    """The places, those of one folder together, each folder at its first place."""
    groups: dict[tuple[str, tuple[str, ...]], list[tuple[Place, T]]] = {}
    for place, item in places:
        groups.setdefault((place.root, place.folders), []).append((place, item))
    return list(groups.values())


def _read_bounded(descriptor: int, location: str, limit_bytes: int) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise refused(location, "it is not a regular file")
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
