"""Opens a folder by its whole path in one call that follows no symlink: Linux's `openat2` with RESOLVE_NO_SYMLINKS.

The kernel looks at each component as a walk by descriptors does, and fails where one of them is a symlink, so nothing
has to be remembered or compared to make it cheap (2.6 µs with its close, a walk to the third folder 7.4). Python has no
function for it. It is there since Linux 5.6, unless a sandbox forbids it.

Never says why it failed: the caller walks then, as it does on other systems, and the walk says it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

PlainOpen = Callable[[bytes], int | None]

_OPENAT2 = 437  # on all architectures of Linux that have it, but Alpha
_AT_FDCWD = -100
_RESOLVE_NO_SYMLINKS = 0x04  # and so no magic link of /proc either


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def never(path: bytes) -> int | None:
    """Where there is no such call."""
    return None


def find_plain_open() -> PlainOpen:
    """A function that opens a folder, to sync it or to create in it; it returns None when that did not work."""
    if sys.platform != "linux" or os.uname().machine == "alpha":
        return never
    syscall = ctypes.CDLL(None).syscall
    syscall.restype = ctypes.c_long
    syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    how = _OpenHow(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)
    how_pointer, how_bytes = ctypes.byref(how), ctypes.sizeof(how)

    def plain_open(path: bytes) -> int | None:
        descriptor: int = syscall(_OPENAT2, _AT_FDCWD, path, how_pointer, how_bytes)
        return descriptor if descriptor >= 0 else None

    if (descriptor := plain_open(b"/")) is None:
        return never
    os.close(descriptor)
    return plain_open
