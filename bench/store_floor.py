"""How far SqliteStore is from what SQLite itself can do: `python bench/store_floor.py [SECONDS] [DIRECTORY]`.

The floor is a bare UPDATE of one row and its COMMIT (WAL, synchronous=FULL): the cheapest durable swap there
is. Beside it, in turns in the same run on the same disk, `SqliteStore.write` of a swap with one snapshot and
one history item, its idempotency key and its event. Short turns, because a shared disk drifts.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from headgate.core.encoded_log import LogDelta, LogItem
from headgate.store.base import (
    CreateEntry,
    CreateNamespace,
    EntryId,
    Event,
    KeyRecord,
    Kind,
    PutEvent,
    PutKey,
    Stream,
    SwapEntry,
)
from headgate.store.sqlite import SqliteStore

ENVELOPE = b"e" * 3000
SNAPSHOT = b"s" * 700
HISTORY = b"h" * 60
TURN_S = 0.25

Step = Callable[[], None]


def make_floor(path: Path) -> Step:
    """A durable compare-and-set of one small row."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE heads (id TEXT PRIMARY KEY, version INTEGER)")
    db.execute("INSERT INTO heads VALUES ('t', 1)")
    version = 1

    def step() -> None:
        nonlocal version
        cursor = db.execute(
            "UPDATE heads SET version = version + 1 WHERE id = 't' AND version = ?", (version,)
        )
        assert cursor.rowcount == 1
        version += 1

    return step


def make_store(path: Path) -> Step:
    """The store's whole commit: swap, key and event."""
    store = SqliteStore(path)
    id = EntryId("0b6a3a86-5dcb-4f6c-9c53-1d9f3a7d7f00")
    create = CreateEntry(id, ("db",), "t", Kind.TABLE, "uuid", "s3://lake/t", "m", True, ENVELOPE)
    assert store.write([CreateNamespace(("db",), {}), create]) is None
    version = 1

    def step() -> None:
        nonlocal version
        at, key = version - 1, f"01890a5d-ac96-774b-bcce-{version:012d}"
        logs = {
            Stream.SNAPSHOTS: LogDelta(added=(LogItem(at, at, SNAPSHOT, at),)),
            Stream.HISTORY: LogDelta(added=(LogItem(at, at, HISTORY),)),
        }
        swap = SwapEntry(id, version, "uuid", "s3://lake/t", f"m{version}", False, ENVELOPE, logs)
        record = KeyRecord(key, "ann", "f" * 64, 200, b'{"snapshot-id":1}', 1_700_000_000_000 + version)
        event = Event("table-changed", ("db",), "t", id, "ann", key, 1_700_000_000_000, b"p" * 200)
        assert store.write([swap, PutKey(record), PutEvent(event)]) is None
        version += 1

    return step


def run_turn(step: Step) -> float:
    """Seconds a step, over one turn."""
    started, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < TURN_S:
        step()
        count += 1
    return elapsed / count


def main() -> None:
    """Measure in turns and print the two rates and the median of their ratios."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as directory:
        floor, store = make_floor(Path(directory) / "floor.db"), make_store(Path(directory) / "store.db")
        pairs = [(run_turn(floor), run_turn(store)) for _ in range(max(3, int(seconds / TURN_S / 2)))]
    floors, stores = zip(*pairs, strict=True)
    ratio = statistics.median(ours / raw for raw, ours in pairs)
    print(f"raw swap       {1 / statistics.median(floors):8.0f} /s")
    print(f"SqliteStore    {1 / statistics.median(stores):8.0f} /s")
    print(f"ratio (median) {ratio:8.2f} x")


if __name__ == "__main__":
    main()
