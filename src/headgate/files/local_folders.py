"""Folders on a local disk: which one a location is in, and how it is opened so that no symlink below a root is followed.

A folder is opened anew each time, by one call that follows no symlink at all (`plain_open`). Where that fails, for
whatever reason (no such call, a missing folder, a symlink, also one above the root), the folder is walked to one
component at a time, each relative to its parent's descriptor, and the walk says what is wrong or makes what is
missing. Neither leaves a moment between a check and its use: no verdict about the disk is cached, and no descriptor.

What is remembered is how a location's folder reads, which is a matter of text, and that the entries leading to a folder
were synced, by the folder's inode, so that a folder which somebody removed and made again is synced again. (An inode
number reused at the same path goes unnoticed; at stake is then the entry of a folder that a foreign process made and
did not sync, at a power cut.)

Never follows a symlink below a root. (A root may itself be reached by one.)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from headgate.files.local_paths import FOLDER_FLAGS, Folder, Place, no_root, refused
from headgate.files.plain_open import PlainOpen

SCHEME = "file://"

_NO_NAMES = frozenset({"", ".", ".."})
_REMEMBERED_MAX = 10_000  # folders, by each of the two maps


class Folders:
    """The folders below the given roots, which must exist. From any thread."""

    def __init__(self, root_paths: Iterable[str | os.PathLike[str]], plain_open: PlainOpen) -> None:
        self.roots = {os.path.abspath(root): os.path.realpath(root) for root in root_paths}
        self._plain_open = plain_open
        self._lock = threading.Lock()
        self._parsed: dict[str, Folder] = {}
        self._synced: dict[bytes, tuple[int, int]] = {}

    def find_place(self, location: str) -> Place:
        """Where a location is; LocationRefused when it is not canonical or not inside a root."""
        above, _, name = location.rpartition("/")
        folder = self._parsed.get(above)
        if folder is None:
            folder = self._parse(above, location)
        if name in _NO_NAMES or "\0" in name:
            raise refused(location, "it is not canonical")
        return Place(location, folder, name)

    def find_place_below(self, location: str) -> Place:
        """Some place in the folder that the location is, which may be a root."""
        return Place(location, self._parse(location, location), "-")

    @contextmanager
    def opened(self, place: Place) -> Iterator[int]:
        """The folder that holds the place."""
        descriptor = self._plain_open(place.folder.path)
        if descriptor is None:
            descriptor = _last_of(_walk(place, _open))
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def open_or_make(self, place: Place) -> int:
        """The folder that holds the place, made when missing; a power cut may take what was made."""
        descriptor = self._plain_open(place.folder.path)
        return _last_of(_walk(place, _open_or_make)) if descriptor is None else descriptor

    def open_synced(self, place: Place, *, make: bool) -> int:
        """The folder that holds the place, its whole chain of entries synced at least once by us."""
        path = place.folder.path
        descriptor = self._plain_open(path)
        if descriptor is not None:
            if self._synced.get(path) == _find_identity(descriptor):
                return descriptor
            os.close(descriptor)
        chain = _walk(place, _open_or_make if make else _open)
        try:
            self._sync_chain_once(path, chain)
            return chain.pop()
        finally:
            _close(chain)

    def _parse(self, above: str, location: str) -> Folder:
        path = above.removeprefix(SCHEME)
        if path == above:
            raise refused(location, "it is not a file:// location")
        for lexical, real in self.roots.items():
            if path != lexical and not path.startswith(lexical + "/"):
                continue
            names = tuple(path[len(lexical) + 1 :].split("/")) if path != lexical else ()
            if not _NO_NAMES.isdisjoint(names) or "\0" in path:
                raise refused(location, "it is not canonical")
            folder = Folder(real, names, os.fsencode("/".join((real, *names))))
            with self._lock:
                if len(self._parsed) >= _REMEMBERED_MAX:
                    self._parsed.clear()
                self._parsed[above] = folder
            return folder
        raise refused(location, "it is not inside a root")

    def _sync_chain_once(self, path: bytes, chain: Sequence[int]) -> None:
        identity = _find_identity(chain[-1])
        if self._synced.get(path) == identity:
            return
        # Also when the folder stood already: who made it may not have synced it yet, or may never do so.
        for descriptor in chain[:-1]:
            os.fsync(descriptor)
        with self._lock:
            if len(self._synced) >= _REMEMBERED_MAX:
                self._synced.clear()
            self._synced[path] = identity


def _walk(place: Place, open_next: Callable[[str, int], int]) -> list[int]:
    """The root and all folders down to the one that holds the place."""
    chain = [_open_root(place)]
    try:
        for name in place.folder.names:
            chain.append(open_next(name, chain[-1]))
    except BaseException:
        _close(chain)
        raise
    return chain


def _last_of(chain: list[int]) -> int:
    last = chain.pop()
    _close(chain)
    return last


def _close(chain: Iterable[int]) -> None:
    for descriptor in chain:
        os.close(descriptor)


def _open_root(place: Place) -> int:
    """The root's folder; StorageFailed when it is gone."""
    try:
        return os.open(place.folder.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        # An unmounted disk: none of its files may be called missing.
        raise no_root(place) from error


def _open(name: str, parent: int) -> int:
    return os.open(name, FOLDER_FLAGS, dir_fd=parent)


def _open_or_make(name: str, parent: int) -> int:
    try:
        return _open(name, parent)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        return _open(name, parent)


def _find_identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
