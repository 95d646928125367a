"""An object store's latencies over local files: what a PUT, a GET and a HEAD cost on S3, without S3.

The files below are written without a sync where that is possible: the latency stands for the durability of the
store, and the disk of this machine is not to be measured twice. Never makes an object visible before its PUT is over.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headgate.files.base import FileInfo, Files

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds of each request to the store."""

    put_ms: float
    put_ms_per_mib: float
    get_ms: float

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Let a command line name them."""
        parser.add_argument("--put-ms", type=float, default=0.0, help="latency of a PUT; 0 is local disk")
        parser.add_argument("--put-ms-per-mib", type=float, default=20.0, help="and of each MiB of it")
        parser.add_argument("--get-ms", type=float, default=15.0, help="latency of every other request")

    @classmethod
    def read(cls, parsed: argparse.Namespace) -> Latencies | None:
        """The latencies that were named; None is local disk as it is."""
        given = cls(parsed.put_ms, parsed.put_ms_per_mib, parsed.get_ms)
        return given if given.put_ms > 0 else None

    def words(self) -> list[str]:
        """The same as options."""
        pairs = (("put-ms", self.put_ms), ("put-ms-per-mib", self.put_ms_per_mib), ("get-ms", self.get_ms))
        return [word for name, value in pairs for word in (f"--{name}", str(value))]


class SlowFiles:
    """`Files` that answer like an object store."""

    is_soft = False  # a PUT is durable, and there is nothing cheaper

    def __init__(self, files: Files, latencies: Latencies) -> None:
        self._files, self._latencies = files, latencies

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files`."""
        held = self._put(parts)
        if self._files.is_soft:
            self._files.write_soft(location, held)
        else:
            self._files.write_new(location, held)

    def write_soft(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files`."""
        self.write_new(location, parts)

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]], *, keeps: bool = False) -> None:
        """See `Files`: one PUT after the other, as `S3Files` does it."""
        for location, parts in files:
            self.write_new(location, parts)

    def sync(self, locations: Iterable[str]) -> None:
        """See `Files`: a PUT has done it."""

    def restore(self, location: str, data: bytes) -> None:
        """See `Files`."""
        self._put((data,))
        self._files.restore(location, data)

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        """See `Files`."""
        self._get()
        return self._files.read(location, limit_bytes=limit_bytes)

    def exists(self, location: str) -> bool:
        """See `Files`."""
        self._get()
        return self._files.exists(location)

    def delete(self, locations: Iterable[str]) -> int:
        """See `Files`: one request deletes many."""
        self._get()
        return self._files.delete(locations)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """See `Files`."""
        self._get()
        return self._files.list(prefix)

    def check(self) -> None:
        """See `Files`."""
        self._files.check()

    def _put(self, parts: Iterable[bytes]) -> tuple[bytes, ...]:
        held = tuple(parts)
        size_mib = sum(map(len, held)) / _MIB
        time.sleep((self._latencies.put_ms + self._latencies.put_ms_per_mib * size_mib) / 1000)
        return held

    def _get(self) -> None:
        time.sleep(self._latencies.get_ms / 1000)
