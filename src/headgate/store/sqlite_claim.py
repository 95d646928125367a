"""The lock beside a SQLite file that one process holds: the one that may be late (see `Store.claim`)."""

from __future__ import annotations

import fcntl
import os
import threading

_SUFFIX = "-claim"


class Claim:
    """Ends with the process at the latest. Thread-safe."""

    def __init__(self, database: str) -> None:
        self._path = f"{os.path.realpath(database)}{_SUFFIX}"
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._is_over = False

    def take(self) -> bool:
        """Whether it is held here. Where no file can be locked, nobody holds it."""
        with self._lock:
            if self._descriptor is None and not self._is_over:
                self._descriptor = _lock_file(self._path)
            return self._descriptor is not None

    def end(self) -> None:
        """Let go of it for good. Safe to call twice."""
        with self._lock:
            self._is_over = True
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None


def _lock_file(path: str) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)  # another has it, or somebody has put another file there
    return None
