"""Have the C library give back what was freed. Where it is another one than glibc's, nothing is done.

A block that is mapped by itself goes back to the system when it is freed. By default glibc maps fewer and fewer: each freed
one raises the bound, to 32 MiB, and the next of its size come from the heap, of which each thread may have its own.
There the answer to a load, an array of the index of paths and a merged block of a table's log leave holes between what
lives long: after 45,000 mixed changes 61 of 133 MiB. A bound that is set stays, and costs a commit a dozen page faults.
"""

from __future__ import annotations

import ctypes
import os
import sys

# Numbers of <malloc.h>.
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
_MAPPED_BYTES_MIN = 256 << 10
_HEAPS_MAX = 2  # one thread at a time has the interpreter; the others are in the database or compress


def tune_allocator() -> None:
    """Before the first thread: a heap that is there stays. What the operator has set is left as it is."""
    if sys.platform != "linux" or any(
        name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ
    ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES_MIN)
        mallopt(_ARENA_MAX, _HEAPS_MAX)
