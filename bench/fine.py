"""Fine-grained appends of one file, one client, one table: commits/s and latency beside what they are measured by.

    ./dev bench fine [--commits 400] [--json FILE]

In turns in the same run, because a shared disk drifts:
1. the floor: one durable write of as many bytes as such a commit leaves behind (SQLite, WAL, synchronous=FULL);
2. the plain REST commit of `bench serve`, whose manifest list somebody else has written;
3. the fine-grained append: the service writes manifest, list and metadata;
4. PyIceberg 0.12: the same append (a fast append of a described file) through its SqlCatalog on SQLite.

Then the fine-grained append on a table with 10 and 1,000 manifests and one snapshot.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sqlite3
import statistics
import struct
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField
from tools.service_process import Service, running_service

from bench.described import ROWS, describe_file
from bench.ground import fresh_folder
from bench.serve import Client, call, create

_TURNS = 4
_LOG_PAGES, _PAGE_BYTES = 1000, 4096
_SLOWER = 8  # PyIceberg gets a part of the turns: it needs far longer for each

Step = Callable[[], float]  # one commit; its seconds


class FineClient:
    """One connection that appends described files to one table."""

    def __init__(self, port: int, table: str) -> None:
        self.location: str = create(port, table)["location"]
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._path = f"/v1/namespaces/bench/tables/{table}"

    def post(self, *updates: dict[str, Any]) -> tuple[float, bytes]:
        """Seconds of one commit with its answer read whole, and the answer."""
        body = json.dumps({"requirements": [], "updates": updates}).encode()
        started = time.perf_counter()
        self._connection.request("POST", self._path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        elapsed = time.perf_counter() - started
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {text[:500]!r}")
        return elapsed, text

    def append(self) -> float:
        """Append one file."""
        return self.post({"action": "append", "add-data-files": [describe_file(self.location)]})[0]

    def grow(self, manifests: int) -> None:
        """Bring the table to this many manifests and one snapshot."""
        for _ in range(manifests):
            self.append()
        metadata = json.loads(self.post()[1])["metadata"]
        old = [s["snapshot-id"] for s in metadata["snapshots"]]
        old.remove(metadata["current-snapshot-id"])
        self.post({"action": "remove-snapshots", "snapshot-ids": old})

    def count_bytes(self) -> int:
        """The size of the table's metadata folder."""
        folder = Path(self.location.removeprefix("file://")) / "metadata"
        return sum(file.stat().st_size for file in folder.iterdir())


def make_floor(folder: Path, size: int) -> Step:
    """A durable insert of one blob, into a log that was begun anew: the sync of one that grows takes twice as long."""
    database = sqlite3.connect(folder / "floor.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE written (id INTEGER PRIMARY KEY, body BLOB)")
    body = b"x" * size

    def step() -> float:
        started = time.perf_counter()
        database.execute("INSERT INTO written (body) VALUES (?)", (body,))
        return time.perf_counter() - started

    # SQLite begins its log anew after a thousand pages; a blob takes one at least.
    for _ in range(_LOG_PAGES // (1 + size // _PAGE_BYTES) + 1):
        step()
    return step


def make_plain(port: int, commits: int) -> Step:
    """The plain commit, manifest lists made before."""
    client = Client(port, "plain", create(port, "plain"))
    client.prepare(commits)
    return lambda: client.commit()[0]


def describe_for_pyiceberg(location: str) -> DataFile:
    """The same file as PyIceberg describes it."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location}/data/{uuid.uuid4()}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=ROWS,
        file_size_in_bytes=10_000,
        column_sizes={1: ROWS},
        value_counts={1: ROWS},
        null_value_counts={1: 0},
        nan_value_counts={},
        lower_bounds={1: struct.pack("<q", 1)},
        upper_bounds={1: struct.pack("<q", ROWS)},
    )
    file.spec_id = 0
    return file


def make_pyiceberg(folder: Path) -> Step:
    """PyIceberg's fast append of a described file."""
    warehouse = folder / "pyiceberg"
    warehouse.mkdir()
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder / 'pyiceberg.db'}", warehouse=f"file://{warehouse}")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.t", Schema(NestedField(1, "id", LongType(), required=True)))

    def step() -> float:
        file = describe_for_pyiceberg(table.location())
        started = time.perf_counter()
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            append.append_data_file(file)
        return time.perf_counter() - started

    return step


def summarise(times: list[float]) -> dict[str, float]:
    """Commits a second of one client, and its latency."""
    times = sorted(times)
    return {
        "commits_per_s": len(times) / sum(times),
        "p50_ms": statistics.median(times) * 1000,
        "p99_ms": times[int(len(times) * 0.99)] * 1000,
    }


def run(service: Service, folder: Path, commits: int) -> dict[str, Any]:
    """All figures."""
    port = service.port
    call(port, "POST", "/v1/namespaces", {"namespace": ["bench"]})
    probe = FineClient(port, "probe")
    for _ in range(20):
        probe.append()
    before = probe.count_bytes()
    for _ in range(20):
        probe.append()
    size = max(1000, (probe.count_bytes() - before) // 20)
    steps: dict[str, tuple[Step, int]] = {
        "floor": (make_floor(folder, size), commits),
        "plain": (make_plain(port, commits + _TURNS), commits),
        "fine": (FineClient(port, "fine").append, commits),
        "pyiceberg": (make_pyiceberg(folder), max(_TURNS, commits // _SLOWER)),
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(_TURNS):
        for name, (step, wanted) in steps.items():
            step()  # a warm-up of each turn
            times[name].extend(step() for _ in range(wanted // _TURNS))
    found: dict[str, Any] = {name: summarise(seconds) for name, seconds in times.items()}
    found["bytes_per_commit"] = size
    fine = found["fine"]["p50_ms"]
    for name, label in (
        ("floor", f"floor: {size} bytes into SQLite FULL"),
        ("plain", "plain REST commit"),
        ("fine", "fine-grained append of one file"),
        ("pyiceberg", "PyIceberg 0.12, SqlCatalog, fast append"),
    ):
        row = found[name]
        print(
            f"{label:42s}{row['commits_per_s']:8.0f} commits/s   p50 {row['p50_ms']:7.2f} ms"
            f"   p99 {row['p99_ms']:7.2f} ms   fine/this {fine / row['p50_ms']:6.2f} x"
        )
    found["manifests"] = {}
    for manifests in (10, 1_000):
        client = FineClient(port, f"grown_{manifests}")
        client.grow(manifests)
        row = summarise([client.append() for _ in range(max(20, commits // 4))])
        found["manifests"][manifests] = row
        ratio = row["p50_ms"] / found["manifests"][10]["p50_ms"]
        print(
            f"{manifests:6d} manifests{'':26s}{row['commits_per_s']:8.0f} commits/s   p50 {row['p50_ms']:7.2f} ms"
            f"   p99 {row['p99_ms']:7.2f} ms   {ratio:.2f} x of 10"
        )
    return found


def main() -> int:
    """Start a service, measure, print, and write the figures if asked."""
    parser = argparse.ArgumentParser(prog="bench fine", description=__doc__)
    parser.add_argument("--commits", type=int, default=400, help="commits of each kind but PyIceberg's")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    with fresh_folder() as folder, running_service(folder) as service:
        found = run(service, folder, arguments.commits)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
