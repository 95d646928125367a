"""A folder for a bench where nobody has just deleted anything.

ext4 gives out no inode that was freed in the last minutes: to make a file it steps over all of them, one by one, near the
folder. A bench that follows the clean-up of another one then measures that: a commit of two files took 1.5 ms of kernel
time instead of 0.2 ms. Folders below one that is marked as a top of the tree are spread over the disk instead.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

_TOP_OF_TREE = 0x00020000  # FS_TOPDIR_FL of <linux/fs.h>; `chattr +T` sets the same
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602


@contextmanager
def fresh_folder(prefix: str = "headgate-bench-") -> Iterator[Path]:
    """An empty folder, away from where files were deleted if the disk can do that; gone at the end."""
    with tempfile.TemporaryDirectory(prefix=prefix) as top:
        with suppress(OSError):  # only ext4 knows the mark, and nothing but speed depends on it
            _spread(top)
        folder = Path(top) / token_hex(
            8
        )  # ext4 looks for a place on the disk from the name on: one name, one place
        folder.mkdir()
        yield folder


def _spread(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(descriptor, _GET_FLAGS, struct.pack("l", 0)))
        fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("l", flags | _TOP_OF_TREE))
    finally:
        os.close(descriptor)
