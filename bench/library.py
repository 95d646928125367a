"""The commit library beside PyIceberg 0.12: writer processes race for one table of a SqlCatalog with tiny appends.

    ./dev bench library [--writers 1,4,16] [--databases sqlite,postgres] [--seconds 5] [--history 1000]

Both append the same rows to a catalog and a warehouse of the same kind, on a durable database. Ours has its defaults;
PyIceberg has its own, and 100 retries. At the largest number of writers a table with a history is raced for as well.
After every race the table is read back: what was acknowledged is there, and its folder is searched for files that
nobody names. Figures go to bench/results, table and plot to docs/contention.md; with `--file` the JSON goes there alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.postgres_process import running_postgres

from bench.common import NAMESPACE, write_result
from bench.ground import fresh_folder
from bench.library_page import LIBRARY, count_orphans, write_pages
from bench.library_writers import (
    RETRIES,
    make_library_step,
    make_pyiceberg_step,
    new_place,
    race_for_table,
)
from bench.race import Maker, Race
from bench.report import Goal, find_row, print_goals

OURS, PLAIN, MANY = "library", "PyIceberg", "PyIceberg, 100 retries"
RATIO_MIN, RATIO_HISTORY_MIN = 10, 20


@dataclass(frozen=True, slots=True)
class Contender:
    """Who races, and the retries that its table says; none for the defaults."""

    label: str
    make: Maker
    retries: str | None = None

    @property
    def properties(self) -> dict[str, str]:
        """Of its table."""
        return {} if self.retries is None else {RETRIES: self.retries}


CONTENDERS = (
    Contender(OURS, make_library_step),
    Contender(PLAIN, make_pyiceberg_step),
    Contender(MANY, make_pyiceberg_step, "100"),
)


class Bench:
    """The rows of one run, printed as they come."""

    def __init__(self, parsed: argparse.Namespace, folder: Path) -> None:
        self._parsed, self._folder = parsed, folder
        self.writers = [int(word) for word in parsed.writers.split(",")]
        self.rows: list[dict[str, Any]] = []

    def run(self) -> None:
        """Every database, every number of writers, every contender."""
        print(
            f"{'':34s}{'writers':>7s}{'history':>9s}{'commits/s':>11s}{'p50 ms':>10s}{'p99 ms':>11s}{'lost':>7s}"
            f"{'attempts':>10s}{'orphans':>9s}",
            flush=True,
        )
        points = [(writers, 0) for writers in self.writers]
        if self._parsed.history:
            points.append((max(self.writers), self._parsed.history))
        for database in self._parsed.databases.split(","):
            with self._running(database) as uri:
                for writers, history in points:
                    for contender in CONTENDERS:
                        self._race(database, uri, contender, writers, history)

    def _race(self, database: str, uri: str, contender: Contender, writers: int, history: int) -> None:
        row = race_for_table(
            new_place(uri, self._folder / database / "warehouse"),
            Race(writers, self._parsed.seconds, self._parsed.warm_up_s),
            contender.make,
            properties=contender.properties,
            history=history,
        )
        self.rows.append({"who": contender.label, "database": database, **row})
        print(
            f"{f'{contender.label}, {database}':34s}{writers:7d}{history:9,d}{row['commits_per_s']:11,.1f}"
            f"{row['p50_ms']:10.1f}{row['p99_ms']:11,.1f}{row['lost_share']:7.0%}{row['attempts_per_commit']:10.2f}"
            f"{count_orphans(row):9d}",
            flush=True,
        )
        if row["missing"] or row["unfinished"]:
            print(f"    missing: {row['missing']}; stopped while trying: {row['unfinished']}", flush=True)

    @contextmanager
    def _running(self, database: str) -> Iterator[str]:
        folder = self._folder / database
        (folder / "warehouse").mkdir(parents=True)
        if database == "postgres":
            with running_postgres(folder / "server") as url:
                uri = url.replace("postgresql://", "postgresql+psycopg://", 1)
                yield self._prepare(uri, folder)
        else:
            yield self._prepare(f"sqlite:///{folder / 'catalog.db'}", folder)

    def _prepare(self, uri: str, folder: Path) -> str:
        catalog = new_place(uri, folder / "warehouse").open()
        catalog.create_namespace(NAMESPACE)
        catalog.engine.dispose()
        return uri


def judge(rows: list[dict[str, Any]], *, writers: int, history: int, seconds: float) -> Iterator[Goal]:
    """The goals of issue 7 that such a run can judge, for each database."""
    bounds = {0: RATIO_MIN, history: RATIO_HISTORY_MIN} if history else {0: RATIO_MIN}
    for database in dict.fromkeys(row["database"] for row in rows):
        for snapshots, bound in bounds.items():
            point = {"database": database, "clients": writers, "history": snapshots}
            ours = find_row(rows, who=OURS, **point)
            for label in (PLAIN, MANY):
                peer = find_row(rows, who=label, **point)
                if ours is None or peer is None:
                    continue
                said = f"{snapshots:,} snapshots" if snapshots else "a new table"
                # Who made none in the time may have been about to make one.
                ratio = ours["commits_per_s"] / max(peer["commits_per_s"], 1 / seconds)
                text = f"library / {label} at {writers}, {said}, {database}, commits/s"
                yield Goal(text, ratio, bound, unit=" ×")
    own = [row for row in rows if row["who"] == OURS]
    lost = sum(sum(row["failed"].values()) + row["missing"] + row["unfinished"] for row in own)
    yield Goal("commits that the library lost, all points", lost, 0, at_least=False)
    orphans = sum(map(count_orphans, own))
    yield Goal("files that the library left to nobody, all points", orphans, 0, at_least=False)


def main() -> int:
    """Measure, print, judge, keep."""
    parser = argparse.ArgumentParser(prog="bench library", description=__doc__.partition("\n")[0])
    parser.add_argument("--writers", default="1,4,16", help="how many processes, separated by commas")
    parser.add_argument("--databases", default="sqlite,postgres", help="separated by commas")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a race is timed")
    parser.add_argument("--warm-up-s", type=float, default=1.0, help="how long it runs before")
    parser.add_argument("--history", type=int, default=1000, help="snapshots of the older table; 0 for none")
    parser.add_argument("--file", type=Path, help="write the JSON here, and leave results and docs alone")
    parsed = parser.parse_args()
    with fresh_folder() as folder:
        bench = Bench(parsed, folder)
        bench.run()
    goals = list(
        judge(bench.rows, writers=max(bench.writers), history=parsed.history, seconds=parsed.seconds)
    )
    print_goals(goals)
    found = {
        "seconds": parsed.seconds,
        "history": parsed.history,
        "points": bench.rows,
        "goals": [goal.record() for goal in goals],
    }
    write_result(LIBRARY, found, file=parsed.file)
    if parsed.file is None:
        write_pages()
    return 0


if __name__ == "__main__":
    sys.exit(main())
