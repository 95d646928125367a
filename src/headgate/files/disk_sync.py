"""One sync for a whole disk: far cheaper than one for each file, where its word can be trusted.

`syncfs` costs 11 to 17 µs a file in batches of a hundred and more, `fsync` 240 to 320 µs (docs/adr/0007), so it is what
keeps up with a busy service. Its answer counts only under these conditions, and `sync` says False under others:

- Linux 5.8 or later: before, it said nothing of pages that could not be written.
- ext4 or xfs: their `syncfs` commits the journal and flushes the device. FUSE and overlays may do less.
- The descriptor asked was opened before the writes in question. Each descriptor is told of each error once, so one
  of ours hears also of errors that another process has heard of.
- No error so far. One error is told once for all files of the disk, also for those of a batch that has not been
  asked for yet; so after an error each file is asked by itself, for as long as this process lives.

Never says that a disk is synced when it may not be.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

_KERNEL_MIN = (5, 8)
_TRUSTED_TYPES = frozenset({"ext4", "xfs"})
_MOUNTS = Path("/proc/self/mountinfo")

Syncfs = Callable[[int], None]
FindType = Callable[[int], str | None]


def find_type(device: int) -> str | None:
    """The type of a file system, as the kernel lists it beside the numbers of its device."""
    numbers = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        mount, _, filesystem = line.partition(" - ")
        if mount.split(" ")[2] == numbers:
            return filesystem.split(" ")[0]
    return None


def find_syncfs() -> Syncfs | None:
    """The system's call, where it tells of errors; it raises OSError."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or release is None or (int(release[1]), int(release[2])) < _KERNEL_MIN:
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        return None

    def syncfs(descriptor: int) -> None:
        if call(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return syncfs


class Disks:
    """The disks below some roots. The arguments are the seams where tests break or change a disk."""

    def __init__(self, *, syncfs: Syncfs | None = None, find_type: FindType = find_type) -> None:
        self._syncfs = syncfs or find_syncfs()
        self._find_type = find_type
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._held: dict[int, int] = {}  # device → a descriptor of it, while it is trusted
        weakref.finalize(self, _close_all, self._held)

    def hold(self, folder_path: str) -> None:
        """Trust the disk of this folder, if it can be, for what is written from now on."""
        if folder_path in self._known or self._syncfs is None:
            return
        with self._lock:
            if folder_path in self._known:
                return
            descriptor = os.open(folder_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            device = os.fstat(descriptor).st_dev
            if device in self._held or self._find_type(device) not in _TRUSTED_TYPES:
                os.close(descriptor)
            else:
                self._held[device] = descriptor
            self._known.add(folder_path)

    def sync(self, device: int) -> bool:
        """Make all of a disk durable; False when its files must be synced one by one. OSError when it failed."""
        descriptor = self._held.get(device)
        if descriptor is None or self._syncfs is None:
            return False
        try:
            self._syncfs(descriptor)
        except OSError:
            with self._lock:
                # Not closed: another thread may be about to use it. It stays known, so it is not held again.
                self._held.pop(device, None)
            raise
        return True


def _close_all(held: dict[int, int]) -> None:
    for descriptor in held.values():
        os.close(descriptor)
