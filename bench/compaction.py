"""Manifest merging inside the commit: manifests left, scan planning by PyIceberg, and what the commits pay for it.

    ./dev bench compaction [--commits 5000] [--writers 1,8] [--plans 5] [--file FILE]

Single-file appends to an unpartitioned table and to one by day (30 days), with merging on, which is the default, for each
number of writers, and off. Ideal is the sum of the manifests' bytes over commit.manifest.target-size-bytes (8 MB),
rounded up, for each spec and content. Iceberg's rule leaves up to commit.manifest.min-count-to-merge (100) small
manifests besides, so both are printed: the strict ratio, and the bound of 2 x (ideal + min-count). Manifests are counted
when the last commit is answered, and again after a pause in which the service may merge in the background.

A load from which the host of the machine took much of its time is run again on a fresh table, and the quietest counts
(`bench.stolen`). Beside the p99 stands that of the floor: durable writes of a commit's size into SQLite, right after it.

Planning is `scan().plan_files()` of a table loaded from the service by a fresh process, so nothing is cached but by the
kernel; median of several.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import ManifestFile
from tools.service_process import Service, running_service

from bench.common import (
    INT,
    LONG,
    NAMESPACE,
    ROWS,
    Bounds,
    Json,
    Link,
    Shape,
    append_of,
    audit,
    create_namespace,
    create_table,
    describe_file,
    list_manifests,
    open_table,
    run_clients,
    says,
    summarise,
    write_result,
)
from bench.fine import make_floor
from bench.ground import fresh_folder
from bench.measurements_page import write_page
from bench.stolen import measure_quietly

TARGET_BYTES = 8 * 2**20  # commit.manifest.target-size-bytes
MIN_COUNT = 100  # commit.manifest.min-count-to-merge
MANIFESTS_MAX = 2.0
PLANNING_MIN = 5.0
TAIL_MAX = 5.0
_DAYS = 30
_FIRST_DAY = 20_000
_REFUSALS_MAX = 200
_FLOOR_BYTES = 8_000  # what a commit of one file leaves behind, roughly
_FLOOR_WRITES = 2_000
_OFF = {"commit.manifest-merge.enabled": "false"}
_DAY_SCHEMA: Json = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "day", "required": True, "type": "date"},
    ],
}
_DAY_SPEC: Json = {"fields": [{"source-id": 2, "field-id": 1000, "name": "day_day", "transform": "day"}]}


@dataclass(frozen=True, slots=True)
class Case:
    """One table and its load."""

    shape: str  # flat, or day
    merging: bool
    writers: int

    @property
    def name(self) -> str:
        """What it is called in the results."""
        return f"{self.shape}_{'on' if self.merging else 'off'}_w{self.writers}"

    def shape_of(self) -> Shape:
        """What the table is made with."""
        properties = {} if self.merging else _OFF
        if self.shape == "flat":
            return Shape(properties=properties)
        return Shape(schema=_DAY_SCHEMA, spec=_DAY_SPEC, properties=properties)

    def file_of(self, location: str, number: int) -> Json:
        """The file of one commit."""
        if self.shape == "flat":
            return describe_file(location)
        day = _FIRST_DAY + number % _DAYS
        bounds: Bounds = {1: (LONG.pack(1), LONG.pack(ROWS)), 2: (INT.pack(day), INT.pack(day))}
        return describe_file(location, partition=[_iso(day)], bounds=bounds)


def _iso(day: int) -> str:
    # A day partition value is a date in the REST specification's single values.
    return time.strftime("%Y-%m-%d", time.gmtime(day * 86_400))


def load(service: Service, case: Case, table: str, commits: int) -> Json:
    """Commit, and time each; refusals that ask for another try are counted and tried again."""
    location = create_table(service.port, table, case.shape_of())
    refusals = Counter[str]()

    def step(link: Link, number: int) -> float:
        update, seconds = append_of(case.file_of(location, number)), 0.0
        for _ in range(_REFUSALS_MAX):
            answer = link.settle(table, [update])
            seconds += answer.seconds
            if answer.status == 200:
                return seconds
            error = answer.json()["error"]
            if error.get("headgate", {}).get("retry") != "refresh":
                raise RuntimeError(f"{answer.status}: {answer.body[:400]!r}")
            refusals[error["headgate"]["code"]] += 1
        raise RuntimeError(f"refused {_REFUSALS_MAX} times")

    started = time.perf_counter()
    times = run_clients(service.port, case.writers, commits, step)
    elapsed = time.perf_counter() - started
    return {
        "table": table,
        "commits_per_s": commits / elapsed,
        "refusals": dict(refusals),
        **summarise(times),
    }


def load_quietly(service: Service, case: Case, commits: int) -> Json:
    """The load that was disturbed least, of a few if need be, with the table it was on and what was stolen from it."""
    tables = (f"{case.name}_{number}" for number in itertools.count())
    (taken,) = measure_quietly(lambda: load(service, case, next(tables), commits))
    return {**taken.found, "stolen": taken.stolen}


def measure_floor(folder: Path) -> dict[str, float]:
    """What the disk alone makes of p99 and median, in this minute."""
    place = Path(tempfile.mkdtemp(prefix="floor-", dir=folder))
    step = make_floor(place, _FLOOR_BYTES)
    found = summarise([step() for _ in range(_FLOOR_WRITES)])
    return {"floor_p50_ms": found["p50_ms"], "floor_tail": found["p99_ms"] / found["p50_ms"]}


def count_manifests(manifests: Sequence[ManifestFile]) -> dict[str, float]:
    """How many there are, and how many would do."""
    sizes = Counter[tuple[int, str]]()
    for manifest in manifests:
        sizes[manifest.partition_spec_id, manifest.content.name] += manifest.manifest_length
    ideal = sum(math.ceil(size / TARGET_BYTES) for size in sizes.values())
    files = sum((m.added_files_count or 0) + (m.existing_files_count or 0) for m in manifests)
    return {"manifests": len(manifests), "ideal": ideal, "bytes": sum(sizes.values()), "files": files}


def plan(uri: str, table: str, results: multiprocessing.Queue[tuple[float, int]]) -> None:
    """In a process of its own: plan a scan of the whole table."""
    loaded = RestCatalog(NAMESPACE, uri=uri).load_table((NAMESPACE, table))
    started = time.perf_counter()
    tasks = list(loaded.scan().plan_files())
    results.put((time.perf_counter() - started, len(tasks)))


def measure_planning(service: Service, table: str, plans: int, expected: int) -> dict[str, float]:
    """Median of the planning of fresh processes; all files must be found."""
    context = multiprocessing.get_context("spawn")
    seconds = []
    for _ in range(plans):
        results: multiprocessing.Queue[tuple[float, int]] = context.Queue()
        process = context.Process(target=plan, args=(service.uri, table, results))
        process.start()
        taken, files = results.get(timeout=600)
        process.join()
        if files != expected:
            raise RuntimeError(f"{table}: {files} files were planned, not {expected}")
        seconds.append(taken)
    return {"plan_ms": statistics.median(seconds) * 1000}


def run_case(service: Service, case: Case, folder: Path, asked: argparse.Namespace) -> Json:
    """Load, count, plan, audit."""
    commits: int = asked.commits
    row = load_quietly(service, case, commits)
    row |= measure_floor(folder)
    table = row.pop("table")
    at_once = count_manifests(list_manifests(open_table(service, table)))
    time.sleep(asked.settle_s)
    row |= count_manifests(list_manifests(open_table(service, table)))
    row["manifests_at_once"] = at_once["manifests"]
    if row["files"] != commits:
        raise RuntimeError(f"{table}: {row['files']} live files, not {commits}")
    row |= measure_planning(service, table, asked.plans, commits)
    row["sound"] = audit(service, table)["sound"]
    row["to_ideal"] = row["manifests"] / row["ideal"]
    row["allowed"] = MANIFESTS_MAX * (row["ideal"] + MIN_COUNT)
    row["tail"] = row["p99_ms"] / row["p50_ms"]
    print(
        f"{case.shape:5s}merging {'on ' if case.merging else 'off'} W={case.writers:2d}"
        f"{row['commits_per_s']:7.0f} commits/s   p50 {row['p50_ms']:7.2f} ms   p99 {row['p99_ms']:7.2f} ms"
        f" ({row['tail']:4.1f} x; floor {row['floor_tail']:4.1f} x; {row['stolen']:.0%} stolen)"
        f"   manifests {row['manifests_at_once']:5.0f}, later {row['manifests']:5.0f}"
        f" (ideal {row['ideal']:.0f})   plan {row['plan_ms']:8.1f} ms   {'sound' if row['sound'] else 'NOT SOUND'}",
        flush=True,
    )
    return row


def judge(shape: str, off: Json, on: dict[int, Json]) -> Json:
    """The goals of one shape of table, printed."""
    found: Json = {}
    for writers, row in on.items():
        faster = off["plan_ms"] / row["plan_ms"]
        verdict = {
            "manifests_to_ideal": row["to_ideal"],
            "manifests_strict_reached": row["to_ideal"] <= MANIFESTS_MAX,
            "manifests_with_min_count_reached": row["manifests"] <= row["allowed"],
            "planning_ratio": faster,
            "planning_reached": faster >= PLANNING_MIN,
            "tail_ratio": row["tail"],
            "tail_reached": row["tail"] <= TAIL_MAX,
        }
        found[f"w{writers}"] = verdict
        print(
            f"{shape:5s}W={writers}: manifests {row['manifests']:.0f} = {row['to_ideal']:.1f} x ideal, goal"
            f" {MANIFESTS_MAX:.0f} x: {says(verdict['manifests_strict_reached'])}"
            f" (at most {row['allowed']:.0f} with min-count: {says(verdict['manifests_with_min_count_reached'])});"
            f" planning {faster:.1f} x faster, goal {PLANNING_MIN:.0f} x: {says(verdict['planning_reached'])};"
            f" p99/p50 {row['tail']:.1f}, goal {TAIL_MAX:.0f}: {says(verdict['tail_reached'])}"
        )
    return found


def run(asked: argparse.Namespace) -> Json:
    """All cases, off first."""
    found: Json = {"commits": asked.commits, "cases": {}, "goals": {}}
    for shape in asked.shapes:
        with fresh_folder() as folder, running_service(folder) as service:
            create_namespace(service.port)
            rows: dict[Case, Json] = {}
            for case in (
                Case(shape, False, asked.writers[-1]),
                *(Case(shape, True, w) for w in asked.writers),
            ):
                rows[case] = run_case(service, case, folder, asked)
                found["cases"][case.name] = rows[case]
        off = next(row for case, row in rows.items() if not case.merging)
        found["goals"][shape] = judge(shape, off, {c.writers: row for c, row in rows.items() if c.merging})
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, keep the figures."""
    parser = argparse.ArgumentParser(prog="bench compaction", description=__doc__)
    parser.add_argument("--commits", type=int, default=5_000, help="appends to each table")
    parser.add_argument("--writers", type=_numbers, default=(1, 8), help="clients at once, for each run")
    parser.add_argument("--shapes", type=lambda text: text.split(","), default=("flat", "day"))
    parser.add_argument("--plans", type=int, default=5, help="planning processes for each table")
    parser.add_argument("--settle-s", type=float, default=5.0, help="pause before the second count")
    parser.add_argument(
        "--file", type=Path, help="where the figures go, instead of bench/results/compaction.json"
    )
    asked = parser.parse_args(words)
    write_result("compaction", run(asked), file=asked.file)
    if asked.file is None:
        write_page()
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
