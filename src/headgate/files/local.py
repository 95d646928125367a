"""Files on a local disk: exclusive durable creates by hard link, and no way out of the roots by symlink.

A create writes a hidden temporary name in the target's folder, syncs it, links it to the final name (which
fails if that name stands, whoever made it) and syncs the folder. So a final name holds all its bytes or does
not exist, at any kill or power cut. A kill can leave a temporary name, which listings show to the sweeper.

A soft create writes the final name itself, exclusively, and syncs nothing. A kill or power cut may tear it; who uses
it keeps the bytes elsewhere until `sync` and lets nothing refer to it before (docs/adr/0007). The folders made for it
may be lost too; `sync` syncs the entries that lead to them. `restore` replaces what was torn by a rename. It writes
anew also when the bytes that it would read are right: after a failed sync the page cache may hold bytes that the disk
does not, and a second sync would not say so.

Folders are opened anew each time, by one call or component by component (`local_folders`).

Never overwrites a file but by `restore`, never removes a folder, never follows a symlink below a root.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import suppress
from secrets import token_hex

from headgate.errors import AlreadyExists, HeadgateError, NotFound, StorageFailed, TooLarge
from headgate.files.base import FileInfo
from headgate.files.disk_sync import Disks
from headgate.files.local_folders import SCHEME, Folders
from headgate.files.local_paths import Place, naming, no_folder, refused, translate
from headgate.files.plain_open import PlainOpen, find_plain_open

TEMPORARY_PREFIX = ".headgate-tmp-"

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block the opening
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_CHUNK_BYTES = 1 << 20
_DISK_SYNC_FROM = 8  # files; below, a sync of each costs less than waiting for what others wrote to the disk


class LocalFiles:
    """`Files` below the given root folders, which must exist. A root may itself be reached by a symlink."""

    def __init__(
        self,
        root_paths: Iterable[str | os.PathLike[str]],
        *,
        disks: Disks | None = None,
        plain_open: PlainOpen | None = None,
    ) -> None:
        self._folders = Folders(root_paths, plain_open or find_plain_open())
        self._disks = disks or Disks()

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """Create the file, all or nothing, durable when this returns."""
        place = self._folders.find_place(location)
        with naming(location, missing=no_folder):
            folder = self._folders.open_synced(place, make=True)
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

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]], *, keeps: bool = False) -> None:
        """Create files at their final names, without a sync, opening each folder once. See `Files` for one that fails."""
        folders: dict[bytes, list[tuple[Place, Sequence[bytes]]]] = {}
        for location, parts in files:
            place = self._folders.find_place(location)
            group = folders.get(place.folder.path)
            if group is None:
                folders[place.folder.path] = [(place, parts)]
            else:
                group.append((place, parts))
        made: list[Place] = []
        try:
            for group in folders.values():
                self._create_soft(group, made)
        except BaseException:
            for place in () if keeps else made:
                # What stays is a file too many; the first error is what matters.
                with suppress(HeadgateError):
                    self._delete_one(place)
            raise

    def sync(self, locations: Iterable[str]) -> None:
        """Sync the entries above new folders, then files and their folders, or the whole disk if they are many."""
        folders: dict[bytes, list[Place]] = {}
        for place in map(self._folders.find_place, locations):
            folders.setdefault(place.folder.path, []).append(place)
        groups = list(folders.values())
        devices = [self._sync_above(group[0]) for group in groups]
        whole: set[int | None] = {None}  # a folder that is gone holds nothing to sync
        if sum(map(len, groups)) >= _DISK_SYNC_FROM:
            whole |= self._sync_disks(
                {device: group[0] for device, group in zip(devices, groups, strict=True)}
            )
        for device, group in zip(devices, groups, strict=True):
            if device not in whole:
                self._sync_folder(group)

    def restore(self, location: str, data: bytes) -> None:
        """Write the file anew beside its name, sync it, and rename it over whatever stands there."""
        place = self._folders.find_place(location)
        with naming(location, missing=no_folder):
            folder = self._folders.open_synced(place, make=True)
            try:
                _replace(folder, place.name, data)
            finally:
                os.close(folder)

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        """The whole file, read no further than the limit."""
        place = self._folders.find_place(location)
        with naming(location), self._folders.opened(place) as folder:
            descriptor = os.open(place.name, _READ_FLAGS, dir_fd=folder)
            try:
                return _read_bounded(descriptor, location, limit_bytes)
            finally:
                os.close(descriptor)

    def exists(self, location: str) -> bool:
        """Whether a regular file is there."""
        place = self._folders.find_place(location)
        try:
            with naming(location), self._folders.opened(place) as folder:
                return stat.S_ISREG(os.stat(place.name, dir_fd=folder, follow_symlinks=False).st_mode)
        except NotFound:
            return False

    def delete(self, locations: Iterable[str]) -> int:
        """Delete files; a missing one is no error. All locations are checked before the first is deleted."""
        return sum(
            self._delete_one(place)
            for place in [self._folders.find_place(location) for location in locations]
        )

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """Regular files below a folder, leftover temporary ones too; symlinks are not shown or followed."""
        bare = prefix.removesuffix("/")
        place = self._folders.find_place_below(bare)
        try:
            with naming(bare), self._folders.opened(place) as folder:
                yield from _walk(folder, bare)
        except NotFound:
            return

    def check(self) -> None:
        """Prove at start that each root is writable and creates are exclusive; StorageFailed otherwise."""
        for root in self._folders.roots:
            location = f"{SCHEME}{root}/{TEMPORARY_PREFIX}check-{token_hex(8)}"
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

    def _create_soft(
        self, files: Sequence[tuple[Place, Sequence[bytes]]], made: MutableSequence[Place]
    ) -> None:
        """Create files in one folder, noting each that is there."""
        place = files[0][0]
        try:
            folder = self._folders.open_or_make(place)
            try:
                self._disks.hold(place.folder.root)
                for place, parts in files:  # the handler below names the one that failed
                    _write_exclusively(folder, place.name, b"".join(parts))
                    made.append(place)
            finally:
                os.close(folder)
        except OSError as error:
            raise translate(error, place.location, missing=no_folder) from error

    def _sync_above(self, place: Place) -> int | None:
        """Sync the entries that lead to the place's folder, once; the disk that holds the folder, if it is there."""
        with suppress(NotFound), naming(place.location):
            folder = self._folders.open_synced(place, make=False)
            try:
                return os.fstat(folder).st_dev
            finally:
                os.close(folder)
        return None

    def _sync_disks(self, places: Mapping[int | None, Place]) -> set[int | None]:
        """Sync each disk that can be synced whole, with a place on it that an error may name; returns them."""
        whole: set[int | None] = set()
        for device, place in places.items():
            with naming(place.location):
                if device is not None and self._disks.sync(device):
                    whole.add(device)
        return whole

    def _sync_folder(self, places: Sequence[Place]) -> None:
        """Sync files of one folder, then the folder; what is gone is no error."""
        for_whom = places[0]
        with suppress(NotFound), naming(for_whom.location), self._folders.opened(for_whom) as folder:
            for place in places:
                with suppress(FileNotFoundError):
                    _sync_file(folder, place.name)
            os.fsync(folder)

    def _delete_one(self, place: Place) -> int:
        with naming(place.location):
            try:
                with self._folders.opened(place) as folder:
                    os.unlink(place.name, dir_fd=folder)
            except (FileNotFoundError, IsADirectoryError):  # a folder is no object
                return 0
        return 1


def make_root(path: str) -> None:
    """Make a root folder with its parents, and sync the entry of each new one."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        with naming(SCHEME + folder, missing=no_folder):
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


def _sync_file(folder: int, name: str) -> None:
    descriptor = os.open(name, _READ_FLAGS, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
