"""How to wait after a lost race: seed 004's experiment, run for real and in a simulator.

    ./dev bench backoff [--writers 30] [--seconds 15] [--simulated-seconds 300] [--only simulated]

Writers append to one partition of one table: each for itself, after a pause (`apart`), or all at the same tick, as
streams with a common trigger do (`together`). For real they are processes with the library over a SqlCatalog on SQLite;
in the simulator they are the same commit flow on a clock that never runs. All ways to wait have the same bounds.
Figures go to bench/results, table and plot to docs/contention.md; with `--file` the JSON goes there alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.backoff_model import Model, simulate
from bench.backoff_waits import ALL, WAIT_MAX_MS, WAIT_MIN_MS
from bench.backoff_writers import APART, THINK_MS, TICK_MS, TOGETHER, Commit, race_for_real
from bench.common import NAMESPACE, summarise, write_result
from bench.ground import fresh_folder
from bench.library_page import BACKOFF, write_pages
from bench.library_writers import new_place
from bench.race import Race

REAL, SIMULATED = "real", "simulated"
_SEED = 4
_TAIL = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_RETRIES_OF_ICEBERG = 4

# As seed 004 has them; it does not say more about its load.
PUBLISHED: tuple[dict[str, Any], ...] = (
    {"waits": "linear", "retried": 0.35, "retries": 4.1, "eight_or_more": None, "most": None},
    {"waits": "exponential", "retried": 0.22, "retries": None, "eight_or_more": 0.012, "most": None},
    {"waits": "exponential + jitter", "retried": 0.06, "retries": 1.04, "eight_or_more": 0.0, "most": 4},
)


# --- figures ------------------------------------------------------------------------------------------------


def figures(commits: Sequence[Commit], per_s: float) -> dict[str, Any]:
    """What the table shows of one run."""
    retries = [commit.retries for commit in commits]
    count, retried = max(1, len(retries)), [number for number in retries if number]
    times = summarise([commit.took_s for commit in commits if commit.committed])
    return {
        "commits": len(commits),
        "commits_per_s": per_s,
        "retried": len(retried) / count,
        "retries_per_commit": sum(retries) / count,
        "retries_per_retried": sum(retried) / max(1, len(retried)),
        "over_four": sum(number > _RETRIES_OF_ICEBERG for number in retries) / count,
        "eight_or_more": sum(number >= 8 for number in retries) / count,
        "most": max(retries, default=0),
        "given_up": sum(not commit.committed for commit in commits),
        **{name: times[name] for name in ("p50_ms", "p99_ms", "max_ms")},
        "tail": [[least, sum(number >= least for number in retries) / count] for least in _TAIL],
    }


def run_simulated(writers: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Every way to wait under both loads, in the simulator."""
    for load in (APART, TOGETHER):
        for waits in ALL:
            tick_ms = TICK_MS if load == TOGETHER else None
            model = Model(writers, seconds, THINK_MS, tick_ms)
            laps = simulate(model, waits, seed=_SEED).laps
            commits = [
                Commit(lap.attempts - 1, (lap.ended_ms - lap.began_ms) / 1000, lap.committed) for lap in laps
            ]
            yield {
                "waits": waits.name,
                "where": SIMULATED,
                "load": load,
                **figures(commits, len(commits) / seconds),
            }


def run_real(writers: int, seconds: float, warm_up_s: float) -> Iterator[dict[str, Any]]:
    """The same with processes."""
    with fresh_folder() as folder:
        uri, warehouse = f"sqlite:///{folder / 'catalog.db'}", folder / "warehouse"
        catalog = new_place(uri, warehouse).open()
        catalog.create_namespace(NAMESPACE)
        catalog.engine.dispose()
        for load in (APART, TOGETHER):
            for waits in ALL:
                race = Race(writers, seconds, warm_up_s)
                commits, per_s = race_for_real(uri, warehouse, waits, load, race)
                yield {"waits": waits.name, "where": REAL, "load": load, **figures(commits, per_s)}


def print_row(row: dict[str, Any]) -> None:
    """One line."""
    print(
        f"{row['waits']:30s}{row['load']:>10s}{row['where']:>11s}{row['commits']:9,d}{row['retried']:9.1%}"
        f"{row['retries_per_retried']:9.2f}{row['retries_per_commit']:9.2f}{row['over_four']:8.1%}"
        f"{row['eight_or_more']:8.1%}{row['most']:6d}{row['p50_ms']:9.0f}{row['p99_ms']:9,.0f}{row['max_ms']:9,.0f}"
        f"{row['given_up']:8d}{row['commits_per_s']:10.1f}",
        flush=True,
    )


def main() -> int:
    """Simulate, measure, print beside the seed's, keep."""
    parser = argparse.ArgumentParser(prog="bench backoff", description=__doc__.partition("\n")[0])
    parser.add_argument("--writers", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=15.0, help="how long a race is timed")
    parser.add_argument("--warm-up-s", type=float, default=3.0, help="how long it runs before")
    parser.add_argument("--simulated-seconds", type=float, default=300.0, help="how long a simulated race is")
    parser.add_argument("--only", choices=(REAL, SIMULATED), help="leave the other out")
    parser.add_argument("--file", type=Path, help="write the JSON here, and leave results and docs alone")
    parsed = parser.parse_args()
    print(
        f"{'':51s}{'commits':>9s}{'retried':>9s}{'of those':>9s}{'of all':>9s}{'> 4':>8s}{'>= 8':>8s}{'most':>6s}"
        f"{'p50 ms':>9s}{'p99 ms':>9s}{'max ms':>9s}{'given up':>8s}{'commits/s':>10s}"
    )
    for told in PUBLISHED:
        retries = "" if told["retries"] is None else f"{told['retries']:.2f}"
        eight = "" if told["eight_or_more"] is None else f"{told['eight_or_more']:.1%}"
        most = "" if told["most"] is None else str(told["most"])
        name = told["waits"]
        print(
            f"{name:40s}{'seed 004':>11s}{'':9s}{told['retried']:9.1%}{retries:>9s}{'':17s}{eight:>8s}{most:>6s}"
        )
    rows: list[dict[str, Any]] = []
    if parsed.only != REAL:
        for row in run_simulated(parsed.writers, parsed.simulated_seconds):
            rows.append(row)
            print_row(row)
    if parsed.only != SIMULATED:
        for row in run_real(parsed.writers, parsed.seconds, parsed.warm_up_s):
            rows.append(row)
            print_row(row)
    found = {
        "writers": parsed.writers,
        "seconds": parsed.seconds,
        "simulated_seconds": parsed.simulated_seconds,
        "wait_min_ms": WAIT_MIN_MS,
        "wait_max_ms": WAIT_MAX_MS,
        "think_ms": THINK_MS,
        "tick_ms": TICK_MS,
        "published": PUBLISHED,
        "points": rows,
    }
    write_result(BACKOFF, found, file=parsed.file)
    if parsed.file is None:
        write_pages()
    return 0


if __name__ == "__main__":
    sys.exit(main())
