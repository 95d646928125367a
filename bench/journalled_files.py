"""What the new files of a group commit cost: `python -m bench.journalled_files [ROUNDS] [DIRECTORY]` (docs/adr/0007).

Each way writes two files of 4 KB a commit and one transaction a group to SQLite (WAL, synchronous=FULL). In turns in one
run on one disk, because a shared disk drifts. The journal's own background is at work while its groups are timed.

- floor: one durable transaction with the bytes of the files, and no files;
- fsync: every file by `write_new`, then the transaction;
- syncfs: every file softly, one sync of the disk, then the transaction;
- journal: every file softly, their bytes in the transaction; synced, and dropped from there, in the background.

Nothing is deleted before the end: ext4 looks past each inode that was freed in the last minutes, so a folder tree
removed just before makes creates up to fifty times slower.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

from headgate.core.locations import LocationPolicy
from headgate.files.allowed import AllowedFiles
from headgate.files.disk_sync import find_syncfs
from headgate.files.open import open_files
from headgate.service.journal import Journal
from headgate.service.services import wall_clock_ms
from headgate.store.base import Event, PutEvent
from headgate.store.sqlite import SqliteStore

GROUPS = (1, 16, 64)
FILES_A_COMMIT = 2
TURN_S = 0.4
BODY = os.urandom(4096)

Way = Callable[[Sequence[str]], None]


class Bench:
    """The ways over one warehouse and one database."""

    def __init__(self, directory: Path) -> None:
        opened, root = open_files(str(directory / "warehouse"))
        self._files = AllowedFiles(opened, LocationPolicy((root,)))
        self._store = SqliteStore(directory / "catalog.db")
        self.journal = Journal(self._files, self._store, wall_clock_ms)
        self.folder = f"{root}/db/table-{uuid4()}/metadata"
        self._warehouse = os.open(directory / "warehouse", os.O_RDONLY)
        self._event = PutEvent(Event("swap", ("db",), "t", None, "ann", None, 1, b"e" * 300))

    def close(self) -> None:
        """Stop the background."""
        self.journal.close()
        self._store.close()
        os.close(self._warehouse)

    def floor(self, names: Sequence[str]) -> None:
        """The bytes of the files in the transaction alone."""
        self._store.write([self._event, *(self.journal.entry(name, BODY) for name in names)])

    def fsync(self, names: Sequence[str]) -> None:
        """Every file durable by itself."""
        for name in names:
            self._files.write_new(name, (BODY,))
        self._store.write([self._event])

    def syncfs(self, names: Sequence[str]) -> None:
        """One sync of the disk for all."""
        self._files.write_soft_many([(name, (BODY,)) for name in names])
        if (call := find_syncfs()) is not None:
            call(self._warehouse)
        self._store.write([self._event])

    def journalled(self, names: Sequence[str]) -> None:
        """One durable write for all."""
        self._files.write_soft_many([(name, (BODY,)) for name in names])
        self._store.write([self._event, *(self.journal.entry(name, BODY) for name in names)])
        self.journal.settle(names)

    def soften(self, names: Sequence[str]) -> None:
        """The files of `journalled` alone: what they cost without the transaction."""
        self._files.write_soft_many([(name, (BODY,)) for name in names])

    def sweep(self, names: Sequence[str]) -> None:
        """Take rows away that no file stands behind."""
        self.journal.forget(names)


def run_turn(bench: Bench, way: Way, group: int) -> list[float]:
    """Seconds of each group in one turn."""
    times: list[float] = []
    used: list[str] = []
    while sum(times) < TURN_S:
        names = [f"{bench.folder}/{uuid4()}.avro" for _ in range(group * FILES_A_COMMIT)]
        started = time.perf_counter()
        way(names)
        times.append(time.perf_counter() - started)
        used += names
    if way == bench.floor:
        bench.sweep(used)
    return times


def show(group: int, name: str, times: Sequence[float]) -> None:
    """One line: what the median and the slow groups took, and commits a second over all."""
    ordered = sorted(times)
    p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    rate = group * len(ordered) / sum(ordered)
    print(f"{group:>6} {name:<8} {p50 * 1e3:>8.2f} {p99 * 1e3:>8.2f} {rate:>10,.0f}")


def main() -> None:
    """Measure in turns and print a line for each group and way."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as directory:
        bench = Bench(Path(directory))
        bench.journal.start()
        ways: dict[str, Way] = {
            "floor": bench.floor,
            "files": bench.soften,
            "fsync": bench.fsync,
            "syncfs": bench.syncfs,
            "journal": bench.journalled,
        }
        print(f"{'commits':>6} {'way':<8} {'p50 ms':>7} {'p99 ms':>8} {'commits/s':>10}")
        for group in GROUPS:
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(rounds):
                for name, way in ways.items():
                    times[name] += run_turn(bench, way, group)
            for name in ways:
                show(group, name, times[name])
            print(f"       files not settled yet: {bench.journal.depth}")
        bench.close()


if __name__ == "__main__":
    main()
