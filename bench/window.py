"""Judging a change whose window holds 1,000 commits, warm and right after a restart, beside PyIceberg.

    ./dev bench window [--window 1000] [--samples 30] [--restarts 5] [--peer-samples 3] [--file FILE]

A table by identity of `part`. The base has one file in each of many partitions below zero; then come the commits of the
window, one file each, into partitions 1 to 100. The judged change deletes, from the base, one partition that nobody
touched, and asks that nobody added data or deletes there. Two filters: `part = -k` (the partition), and `value = -k`
(a column whose bounds in the window's files do not hold it).

PyIceberg 0.12 does the same on a table of the same shape in its SqlCatalog: `delete` on a handle loaded at the base,
serializable, which is its default. That table has a manifest for every commit, as PyIceberg's own appends leave it; the
service writes it, because PyIceberg takes minutes to. Two figures: `commit` is its commit_transaction (lost swap, wait of
100 ms, refresh, validation, swap); `validation` is its validation alone, without wait, reload and writing. So are ours:
the whole commit as the client sees it, and the same validations as a read set without a change, with HTTP and all. A
restart is SIGKILL and a new process; its first request is the judged one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.update.snapshot import _SnapshotProducer
from tools.service_process import Service, running_service, sqlite_url, start_service

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
    create_namespace,
    create_table,
    describe_file,
    list_manifests,
    load_metadata,
    read_rss_bytes,
    says,
    summarise,
    write_result,
)
from bench.ground import fresh_folder
from bench.measurements_page import write_page

FASTER_MIN = 500.0
FILTERS = ("part", "value")
_TABLE = "window"
_PEER = "bench.window"
_PARTITIONS = 100
_BATCH = 50  # appends of one request: a snapshot each, one swap for all
_SHAPE = Shape(
    schema={
        "type": "struct",
        "fields": [
            {"id": 1, "name": "value", "required": True, "type": "long"},
            {"id": 2, "name": "part", "required": True, "type": "int"},
        ],
    },
    spec={"fields": [{"source-id": 2, "field-id": 1000, "name": "part", "transform": "identity"}]},
)


def bounds_of(part: int) -> Bounds:
    """In a file of the base every row has its partition's number as value; in the window 1 to 1,000."""
    low, high = (part, part) if part < 0 else (1, ROWS)
    return {1: (LONG.pack(low), LONG.pack(high)), 2: (INT.pack(part), INT.pack(part))}


def fill_base(port: int, table: str, location: str, judged: int) -> int:
    """A partition for each change to be judged, with a file in it; the snapshot."""
    link = Link(port)
    files = [describe_file(location, partition=[p], bounds=bounds_of(p)) for p in range(-judged, 0)]
    base: int = link.commit(table, [append_of(*files)]).json()["snapshot-id"]
    link.close()
    return base


def fill_window(port: int, table: str, location: str, commits: int) -> None:
    """The commits after the base, one file each."""
    link = Link(port)
    parts = [number % _PARTITIONS + 1 for number in range(commits)]
    for start in range(0, commits, _BATCH):
        batch = parts[start : start + _BATCH]
        files = (describe_file(location, partition=[part], bounds=bounds_of(part)) for part in batch)
        link.commit(table, [append_of(file) for file in files])
    link.close()


@dataclass(slots=True)
class Ours:
    """A service that can be killed and started again on what it left, and the base that is judged from."""

    folder: Path
    service: Service
    base: int = 0
    next_part: int = -1

    def restart(self) -> float:
        """Kill it, start another one; the seconds until that is ready."""
        self.service.kill()
        started = time.perf_counter()
        self.service = open_service(self.folder)
        return time.perf_counter() - started

    def fill(self, judged: int, window: int) -> None:
        """The table that is judged."""
        location = create_table(self.service.port, _TABLE, _SHAPE)
        self.base = fill_base(self.service.port, _TABLE, location, judged)
        fill_window(self.service.port, _TABLE, location, window)

    def judge(self, column: str, link: Link | None = None) -> float:
        """Seconds of one commit that must look at the whole window; with the connection opened unless given."""
        wanted, asked = self._validations(column)
        self.next_part -= 1
        change = {"action": "delete", "delete-row-filter": wanted, **asked}
        own = link or Link(self.service.port)
        answer = own.commit(_TABLE, [change])
        if link is None:
            own.close()
        removed = answer.json()["snapshots"][-1]["summary"].get("deleted-data-files")
        if removed != "1":
            raise RuntimeError(f"the judged change removed {removed} files, not one")
        return answer.seconds

    def validate(self, column: str, link: Link | None = None) -> float:
        """Seconds of the same validations alone: a read set of a transaction that changes nothing."""
        _, asked = self._validations(column)
        identifier = {"namespace": [NAMESPACE], "name": _TABLE}
        table = {"identifier": identifier, "requirements": [], "updates": [], **asked}
        own = link or Link(self.service.port)
        started = time.perf_counter()
        own.call("POST", "/v1/transactions/commit", {"table-changes": [table]})
        seconds = time.perf_counter() - started
        if link is None:
            own.close()
        return seconds

    def _validations(self, column: str) -> tuple[Json, Json]:
        """The filter of the next partition, and what must hold for it since the base."""
        wanted = {"type": "eq", "term": column, "value": self.next_part}
        kinds = (
            "not-allowed-added-data-files",
            "not-allowed-added-delete-files",
            "not-allowed-removed-data-files",
        )
        checks = [{"type": kind, "filter": wanted} for kind in kinds]
        return wanted, {"base-snapshot-id": self.base, "commit-validations": checks}


def open_service(folder: Path) -> Service:
    """A service on what is in the folder."""
    return start_service(
        warehouse=folder / "warehouse", database=sqlite_url(folder / "catalog.db"), log=folder / "service.log"
    )


def measure_ours(folder: Path, window: int, samples: int, restarts: int) -> Json:
    """Warm and after restarts, by filter."""
    (folder / "warehouse").mkdir(parents=True)
    ours = Ours(folder, open_service(folder))
    try:
        create_namespace(ours.service.port)
        started = time.perf_counter()
        ours.fill(judged=len(FILTERS) * (samples + restarts + 2), window=window)
        print(
            f"ours: base and window of {window:,} commits in {time.perf_counter() - started:.1f} s",
            flush=True,
        )
        found: Json = {}
        starts: list[float] = []
        for column in FILTERS:
            link = Link(ours.service.port)
            ours.judge(column, link)
            warm = [ours.judge(column, link) for _ in range(samples)]
            seen = [ours.validate(column, link) for _ in range(samples)]
            link.close()
            cold, seen_cold = [], []
            for _ in range(restarts):
                starts.append(ours.restart())
                cold.append(ours.judge(column))
                starts.append(ours.restart())
                seen_cold.append(ours.validate(column))
            found[column] = {
                "commit": {"warm": summarise(warm), "cold": summarise(cold)},
                "validation": {"warm": summarise(seen), "cold": summarise(seen_cold)},
            }
        found["start_s"] = statistics.median(starts) if starts else None
        found["rss_bytes"] = read_rss_bytes(ours.service.process.pid)
        return found
    finally:
        ours.service.stop()


def fill_peer(folder: Path, judged: int, window: int) -> tuple[SqlCatalog, list[Table]]:
    """The same table in PyIceberg's catalog; one handle for each change to be judged, loaded at the base."""
    folder.mkdir(parents=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder / 'pyiceberg.db'}", warehouse=folder.as_uri())
    catalog.create_namespace("bench")
    shape = replace(_SHAPE, properties={"commit.manifest-merge.enabled": "false"})
    with running_service(folder / "writer") as service:
        create_namespace(service.port)
        location = create_table(service.port, _TABLE, shape)
        fill_base(service.port, _TABLE, location, judged)
        register(catalog, folder / "base.metadata.json", load_metadata(service.port, _TABLE))
        handles = [catalog.load_table(_PEER) for _ in range(judged)]
        fill_window(service.port, _TABLE, location, window)
        catalog.drop_table(_PEER)
        register(catalog, folder / "window.metadata.json", load_metadata(service.port, _TABLE))
    manifests = len(list_manifests(catalog.load_table(_PEER)))
    if manifests != window + 1:
        raise RuntimeError(f"PyIceberg's table has {manifests} manifests, not one for each commit")
    return catalog, handles


def register(catalog: SqlCatalog, file: Path, metadata: Json) -> None:
    """Put a table into PyIceberg's catalog as it is in the service."""
    file.write_text(json.dumps(metadata))
    catalog.register_table(_PEER, file.as_uri())


class ValidationClock:
    """Adds up the time in PyIceberg's validation while it is entered."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._real = _SnapshotProducer._validate_concurrency

    def __enter__(self) -> ValidationClock:
        real = self._real

        def timed(producer: Any) -> None:
            started = time.perf_counter()
            try:
                real(producer)
            finally:
                self.seconds += time.perf_counter() - started

        _SnapshotProducer._validate_concurrency = timed  # type: ignore[method-assign, assignment]  # a clock round it
        return self

    def __exit__(self, *_: object) -> None:
        _SnapshotProducer._validate_concurrency = self._real  # type: ignore[method-assign]  # as it was


def measure_peer(folder: Path, window: int, samples: int) -> Json:
    """PyIceberg's figures, by filter."""
    catalog, handles = fill_peer(folder, judged=len(FILTERS) * samples, window=window)
    found: Json = {}
    part = -1
    for column in FILTERS:
        commits, validations = [], []
        for _ in range(samples):
            transaction = handles.pop().transaction()
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "error"
                )  # a delete that matches nothing warns: it must not pass for one
                transaction.delete(f"{column} = {part}")
            part -= 1
            with ValidationClock() as clock:
                started = time.perf_counter()
                transaction.commit_transaction()
                commits.append(time.perf_counter() - started)
            validations.append(clock.seconds)
        found[column] = {"commit": summarise(commits), "validation": summarise(validations)}
    catalog.close()
    return found


def compare(ours: Json, peer: Json) -> Json:
    """Print both with their ratios."""
    found: Json = {}
    for column in FILTERS:
        theirs = peer[column]
        print(
            f"filter on {column}: PyIceberg 0.12 commit {theirs['commit']['p50_ms']:9.1f} ms,"
            f" of it validation {theirs['validation']['p50_ms']:9.1f} ms"
        )
        for part in ("validation", "commit"):
            for state in ("warm", "cold"):
                row = ours[column][part][state]
                ratio = theirs[part]["p50_ms"] / row["p50_ms"]
                reached = ratio >= FASTER_MIN
                found[f"{column}_{part}_{state}"] = {"ratio": ratio, "goal": FASTER_MIN, "reached": reached}
                label = f"{part}, {'warm' if state == 'warm' else 'after a restart'}"
                print(
                    f"  ours {label:28s} p50 {row['p50_ms']:8.2f} ms   max {row['max_ms']:8.2f} ms"
                    f"   {ratio:7.0f} x faster, goal {FASTER_MIN:.0f} x: {says(reached)}"
                )
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Measure both, print, keep the figures."""
    parser = argparse.ArgumentParser(prog="bench window", description=__doc__)
    parser.add_argument("--window", type=int, default=1_000, help="commits in the window")
    parser.add_argument(
        "--samples", type=int, default=30, help="judged changes on a warm service, for each filter"
    )
    parser.add_argument(
        "--restarts", type=int, default=5, help="restarts with a judged change each, for each filter"
    )
    parser.add_argument(
        "--peer-samples", type=int, default=3, help="judged changes of PyIceberg, for each filter"
    )
    parser.add_argument(
        "--file", type=Path, help="where the figures go, instead of bench/results/window.json"
    )
    asked = parser.parse_args(words)
    with fresh_folder() as folder:
        ours = measure_ours(folder / "ours", asked.window, asked.samples, asked.restarts)
        peer = measure_peer(folder / "peer", asked.window, asked.peer_samples)
    ratios = compare(ours, peer)
    print(f"  start of the service {ours['start_s'] or 0:.2f} s, memory {ours['rss_bytes'] / 2**20:.0f} MiB")
    write_result(
        "window", {"window": asked.window, "ours": ours, "pyiceberg": peer, "ratios": ratios}, file=asked.file
    )
    if asked.file is None:
        write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
