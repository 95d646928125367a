"""What a service frees goes back to the system, as far as the C library is one that can be told so."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another library's allocator")

# A large buffer is freed, which raises glibc's own bound; then 64 of a mebibyte each, with what lives on in between.
_HOLES = """
from headgate.service.allocator import tune_allocator

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

tune_allocator()
bytearray(24 << 20)
before = held()
large, small = [], []
for _ in range(64):
    large.append(b"x" * (1 << 20))
    small.append(b"x" * 50_000)
large.clear()
print(held() - before)
"""


def keep_after_holes(**settings: str) -> int:
    """The bytes that a process keeps of 64 MiB that it has freed."""
    unset = {name: text for name, text in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    found = subprocess.run(
        [sys.executable, "-c", _HOLES], env={**unset, **settings}, capture_output=True, check=True
    )
    return int(found.stdout)


def test_large_buffers_leave_no_holes_between_what_lives_on() -> None:
    assert keep_after_holes() < 8 << 20


def test_what_the_operator_has_set_is_left_as_it_is() -> None:
    assert keep_after_holes(MALLOC_MMAP_THRESHOLD_=str(16 << 20)) > 32 << 20
