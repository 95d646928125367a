"""What a commit costs as a table grows: p50 of one-file appends by one client, first point beside last.

    ./dev bench growth [--commits 200] [--sustain-s 5] [--snapshots 10,1000,10000,50000] [--manifests 10,1000,10000]
                       [--files 100,1000000] [--file FILE]

Three families, each with a service of its own on SQLite and local disk:
1. snapshots kept, manifests merged as by default;
2. manifests, never merged, with one snapshot kept;
3. live files, in equally many appends of ever more files.

All tables of a family are built first and then measured in turns, with the floor (one durable write of as many bytes
as a commit leaves behind) in every turn, because a shared disk drifts. A small point has several tables, so that
measuring does not multiply its size; between turns the service may finish what it does after commits (checkpoints,
merges). The last point is then held under load for some seconds, with all that work inside. Memory is read when a
point has been built: the service holds the points before it too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.service_process import Service, running_service

from bench.common import (
    Json,
    Link,
    Shape,
    append_of,
    count_manifest_bytes,
    count_parts,
    create_namespace,
    create_table,
    describe_file,
    expire_all_but_head,
    pick_cache_metrics,
    read_metrics,
    read_rss_bytes,
    says,
    summarise,
    table_path,
    write_result,
)
from bench.fine import make_floor
from bench.ground import fresh_folder
from bench.measurements_page import write_page

RATIO_MAX = 2.0
_TURNS = 2
_WARM_UPS = 3
_COPIES_MAX = 20
_BATCH = 100  # appends of one growing request: a snapshot each, one swap for all
_EXPIRE_EVERY = 1000
_FILES_APPENDS = 100
_FILES_PER_BODY_MAX = 20_000  # below the service's limit of a body
_PROBES = 20
_NOT_MERGED = {"commit.manifest-merge.enabled": "false"}


@dataclass(slots=True)
class Point:
    """Tables of one size, and what was measured on them."""

    size: int
    tables: list[tuple[str, str]]  # names and locations
    built: Json
    times: list[float] = field(default_factory=list)

    def measure(self, link: Link, commits: int) -> None:
        """So many commits, shared by the tables."""
        for table, location in self.tables:
            for number in range(-_WARM_UPS, max(1, commits // len(self.tables))):
                seconds = link.commit(table, [append_of(describe_file(location))]).seconds
                if number >= 0:
                    self.times.append(seconds)

    def sustain(self, link: Link, seconds: float) -> list[float]:
        """As many commits to one table as there is time for."""
        table, location = self.tables[0]
        times: list[float] = []
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            times.append(link.commit(table, [append_of(describe_file(location))]).seconds)
        return times


Grow = Callable[[Link, str, str, int], None]  # connection, table, location, size


def grow_snapshots(link: Link, table: str, location: str, size: int) -> None:
    """Append one file at a time, many appends in a request."""
    for start in range(0, size, _BATCH):
        count = min(_BATCH, size - start)
        link.commit(table, [append_of(describe_file(location)) for _ in range(count)])


def make_manifest_growth(port: int) -> Grow:
    """As `grow_snapshots`, forgetting old snapshots on the way."""

    def grow(link: Link, table: str, location: str, size: int) -> None:
        for start in range(0, size, _EXPIRE_EVERY):
            grow_snapshots(link, table, location, min(_EXPIRE_EVERY, size - start))
            expire_all_but_head(port, table)

    return grow


def grow_files(link: Link, table: str, location: str, size: int) -> None:
    """Append so many files by a fixed number of appends."""
    appends = min(_FILES_APPENDS, size)
    done = 0
    for number in range(1, appends + 1):
        wanted = size * number // appends - done
        done += wanted
        for start in range(0, wanted, _FILES_PER_BODY_MAX):
            count = min(_FILES_PER_BODY_MAX, wanted - start)
            link.commit(table, [append_of(*(describe_file(location) for _ in range(count)))])


def build(service: Service, link: Link, name: str, shape: Shape, wanted: tuple[int, int]) -> Point:
    """Tables of this size, for this many commits, with what the service holds once they are there."""
    size, commits = wanted
    grow = {
        "snapshots": grow_snapshots,
        "manifests": make_manifest_growth(service.port),
        "files": grow_files,
    }[name]
    tables = []
    started = time.perf_counter()
    for copy in range(min(_COPIES_MAX, max(1, commits // size))):
        table = f"{name}_{size}_{copy}"
        location = create_table(service.port, table, shape)
        grow(link, table, location, size)
        tables.append((table, location))
    elapsed = time.perf_counter() - started
    built: Json = {
        "tables": len(tables),
        "build_s": elapsed,
        **count_parts(service, tables[0][0]),
        "rss_bytes": read_rss_bytes(service.process.pid),
        "cache": pick_cache_metrics(read_metrics(service.port)),
    }
    print(
        f"  built {size:9,d} {name:10s} x {len(tables):2d} tables {elapsed:8.1f} s"
        f"   memory {built['rss_bytes'] / 2**20:7.0f} MiB"
        f"   ({built['snapshots']:,} snapshots, {built['manifests']:,} manifests, {built['files']:,} files)",
        flush=True,
    )
    for metric, value in built["cache"].items():
        print(f"      {metric} {value:,.0f}")
    return Point(size, tables, built)


def probe_bytes(link: Link, port: int) -> int:
    """How many bytes of files a commit to a small table leaves behind."""
    location = create_table(port, "probe")
    grow_snapshots(link, "probe", location, _PROBES)
    before = _count_bytes(link, location)
    for _ in range(_PROBES):
        link.commit("probe", [append_of(describe_file(location))])
    return (_count_bytes(link, location) - before) // _PROBES


def _count_bytes(link: Link, location: str) -> int:
    """Of manifests and their lists, which may be late until somebody loads the table."""
    link.call("GET", table_path("probe"))
    return count_manifest_bytes(location)


def run_family(name: str, shape: Shape, sizes: Sequence[int], asked: argparse.Namespace) -> Json:
    """One family: build, measure in turns, print."""
    print(f"{name}:", flush=True)
    with fresh_folder() as folder, running_service(folder) as service:
        create_namespace(service.port)
        link = Link(service.port)
        commits = asked.commits
        floor_bytes = probe_bytes(link, service.port)
        floor_step = make_floor(folder, floor_bytes)
        points = [build(service, link, name, shape, (size, commits)) for size in sizes]
        floor: list[float] = []
        for _ in range(_TURNS):
            floor += [floor_step() for _ in range(max(1, commits // _TURNS))]
            for point in points:
                time.sleep(asked.settle_s)  # a checkpoint comes within a second
                point.measure(link, commits // _TURNS)
        found: Json = {
            "floor": {"bytes": floor_bytes, **summarise(floor)},
            "points": [{"size": point.size, **point.built, **summarise(point.times)} for point in points],
            "last_sustained": summarise(points[-1].sustain(link, asked.sustain_s)),
            "rss_at_end_bytes": read_rss_bytes(service.process.pid),
            "cache_at_end": pick_cache_metrics(read_metrics(service.port)),
        }
        link.close()
    _print_family(name, found)
    return found


def _print_family(name: str, found: Json) -> None:
    first, floor = found["points"][0]["p50_ms"], found["floor"]["p50_ms"]
    print(f"  floor: {found['floor']['bytes']} bytes into SQLite FULL  p50 {floor:7.2f} ms")
    for row in found["points"]:
        row["ratio_to_first"], row["ratio_to_floor"] = row["p50_ms"] / first, row["p50_ms"] / floor
        print(
            f"  {row['size']:9,d} {name:10s} p50 {row['p50_ms']:7.2f} ms   p99 {row['p99_ms']:7.2f} ms"
            f"   {row['ratio_to_first']:5.2f} x of the first   {row['ratio_to_floor']:5.1f} x of the floor"
        )
    held = found["last_sustained"]
    held["ratio_to_first"] = held["p50_ms"] / first
    print(
        f"  the last, {held['count']:5d} in a row  p50 {held['p50_ms']:7.2f} ms   p99 {held['p99_ms']:7.2f} ms"
        f"   {held['ratio_to_first']:5.2f} x of the first"
    )
    found["last_to_first"] = found["points"][-1]["ratio_to_first"]
    found["goal"] = RATIO_MAX
    found["reached"] = found["last_to_first"] <= RATIO_MAX
    print(
        f"  last/first {found['last_to_first']:.2f}, goal at most {RATIO_MAX:.0f}: {says(found['reached'])}"
        f"   memory at the end {found['rss_at_end_bytes'] / 2**20:.0f} MiB",
        flush=True,
    )


def sizes_of(text: str) -> tuple[int, ...]:
    """Numbers with commas between; nothing leaves a family out."""
    return tuple(int(part) for part in text.split(",") if part)


def main(words: Sequence[str] | None = None) -> int:
    """Measure the families that are asked for, print, keep the figures."""
    parser = argparse.ArgumentParser(prog="bench growth", description=__doc__)
    parser.add_argument("--commits", type=int, default=200, help="commits measured at each point")
    parser.add_argument("--settle-s", type=float, default=1.5, help="pause between turns")
    parser.add_argument("--sustain-s", type=float, default=5.0, help="seconds of load on the last point")
    parser.add_argument("--snapshots", type=sizes_of, default=(10, 1_000, 10_000, 50_000))
    parser.add_argument("--manifests", type=sizes_of, default=(10, 1_000, 10_000))
    parser.add_argument("--files", type=sizes_of, default=(100, 1_000_000))
    parser.add_argument(
        "--file", type=Path, help="where the figures go, instead of bench/results/growth.json"
    )
    asked = parser.parse_args(words)
    families = {
        "snapshots": (Shape(), asked.snapshots),
        "manifests": (Shape(properties=_NOT_MERGED), asked.manifests),
        "files": (Shape(), asked.files),
    }
    found: Json = {
        name: run_family(name, shape, sizes, asked) for name, (shape, sizes) in families.items() if sizes
    }
    write_result("growth", found, file=asked.file)
    if asked.file is None:
        write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
