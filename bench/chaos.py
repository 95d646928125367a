"""Everything at once on one table while tasks fail and the service dies: is every acknowledged row there, once?

    ./dev bench chaos [--minutes 5] [--format-version 2|3] [--peer jar,ours] [--peer-minutes 2.5] [--seed 1]

Four streams and two batch writers append, customers are deleted one after the other, merges correct amounts, and small
files are compacted, all at the same time and by one Spark session. Meanwhile tasks raise or are killed, before and after
their files are written (`chaos_faults` says how), and the service is ended by SIGKILL and started again on the same port
and database. Version 2 is copy-on-write, version 3 merge-on-read. A job that fails is run again, ours under its key; one
that is refused is done anew from the new head. At the end the table is read by PyIceberg and by Spark SQL and compared
with what was acknowledged, row by row; the audit must find no error. Then the same by the Iceberg jar: Spark SQL, its
procedure and its sink, against the same service. Exit code 1 when ours is not right.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tools.iceberg_jar import JarError, find_java

from bench.chaos_actors import act
from bench.chaos_faults import Mortal, TaskKiller, count_raised
from bench.chaos_jar import Jar
from bench.chaos_ours import Ours
from bench.chaos_story import ACKNOWLEDGED, FAILED, REFUSED, Clock, Plan
from bench.chaos_verdict import find_orphans, judge, load_snapshots
from bench.chaos_world import MakePeer, World, luck_of, make_table, open_session
from bench.common import RESULTS, Json, write_result
from headgate.spark.lake import Lake

_PEERS: dict[str, MakePeer] = {"ours": Ours, "jar": Jar}
_ROWS = (
    ("minutes", "minutes"),
    ("jobs and batches acknowledged", "acknowledged"),
    ("snapshots", "snapshots"),
    ("rows at the end", "rows"),
    ("refused, with evidence", "refused_with_evidence"),
    ("refused, without", "refused_without"),
    ("runs repeated after a failure", "retries"),
    ("jobs refused to the last", "given_up_refused"),
    ("jobs failed to the last", "given_up_failed"),
    ("rows lost", "lost"),
    ("rows resurrected", "resurrected"),
    ("rows twice", "duplicates"),
    ("rows nobody was told of", "unacknowledged"),
    ("rows with a wrong amount", "wrong"),
    ("jobs that landed twice", "landed_twice"),
    ("failed jobs that landed", "landed_untold"),
    ("orphans: data", "orphans_data"),
    ("orphans: metadata", "orphans_metadata"),
    ("errors of the audit", "audit"),
    ("rows that readers differ in", "readers_differ"),
    ("tasks that raised", "tasks_raised"),
    ("tasks killed, any", "tasks_killed"),
    ("tasks killed with files on disk", "tasks_killed_with_files"),
    ("deaths of the service", "deaths"),
)


def run_peer(spark: SparkSession, mortal: Mortal, lake: Lake, plan: Plan, name: str) -> Json:
    """One of the two, with everything that goes wrong; its figures."""
    world = World(spark, lake, plan, mortal.folder / name, Clock(plan.minutes * 60))
    peer = _PEERS[name](world)
    make_table(spark, peer.table, plan)
    luck = luck_of(plan, "faults")
    killer = TaskKiller(spark, world.clock, peer.find_writing, plan.task_kills_every_s, luck)
    deaths = mortal.deaths
    world.clock.began = time.monotonic()
    act(
        world,
        peer,
        ("task killer", killer.run),
        ("death", partial(mortal.die_often, world.clock, times=plan.service_kills, down_s=plan.down_s)),
    )
    seconds = time.monotonic() - world.clock.began
    book, verdict, orphans, killed = world.book, judge(world, peer), find_orphans(peer), killer.count()
    snapshots = load_snapshots(peer)
    batches = sum(len(world.done_batches(source)) for source in world.streams)
    return {
        "minutes": round(plan.minutes, 2),
        "seconds_to_the_end": round(seconds, 1),
        "acknowledged": book.count(ACKNOWLEDGED) + batches + book.compacted,
        "snapshots": len(snapshots),
        "acknowledged_by_kind": {
            **Counter(job.kind for job in book.jobs if job.outcome == ACKNOWLEDGED),
            "batch of a stream": batches,
            "compaction": book.compacted,
        },
        "rows": verdict.rows,
        "refused_with_evidence": book.refusals.total() - book.without_evidence,
        "refused_without": book.without_evidence,
        "refusals": dict(book.refusals.most_common()),
        "retries": book.retries.total(),
        "failures": dict(book.retries.most_common()),
        "given_up_refused": book.count(REFUSED),
        "given_up_failed": book.count(FAILED),
        "given_up": [
            f"{job.id}: {job.outcome} {job.tries} times"
            for job in book.jobs
            if job.outcome in (REFUSED, FAILED)
        ],
        **{k: v for k, v in asdict(verdict).items() if k not in ("rows", "audit_errors")},
        "audit": len(verdict.audit_errors),
        "audit_errors": verdict.audit_errors[:5],
        "orphans_data": sum("/metadata/" not in file for file in orphans),
        "orphans_metadata": sum("/metadata/" in file for file in orphans),
        "orphans_by_kind": dict(Counter(_kind_of_file(file) for file in orphans)),
        "tasks_raised": sum(count_raised(world.task_log).values()),
        "tasks_raised_where": count_raised(world.task_log),
        "tasks_killed": killed["any"] + killed["with_files"],
        "tasks_killed_with_files": killed["with_files"],
        "deaths": mortal.deaths - deaths,
        "broken": book.broken,
        "is_clean": verdict.is_clean and not book.broken and not book.count(FAILED),
    }


def _kind_of_file(file: str) -> str:
    name = file.rsplit("/", 1)[1]
    if name.endswith(".metadata.json"):
        return "metadata.json"
    if name.endswith(".avro"):
        return "manifest list" if name.startswith("snap-") else "manifest"
    return "data"


def run(plan: Plan, peers: Sequence[str], peer_minutes: float, folder: Path) -> dict[str, Json]:
    """All that was asked for, by one service and one session."""
    mortal = Mortal(folder / "service")
    found: dict[str, Json] = {}
    lake = Lake(mortal.start().uri)
    try:
        spark = open_session(lake, folder / "spark")
        for name in peers:
            minutes = plan.minutes if name == "ours" else peer_minutes
            print(f"{name}: {minutes:g} minutes, format version {plan.format_version} …", flush=True)
            found[name] = run_peer(spark, mortal, lake, replace(plan, minutes=minutes), name)
        spark.stop()
    finally:
        mortal.stop()
    return found


def print_table(found: dict[str, Json]) -> None:
    """Ours beside the jar, and what went wrong by kind."""
    print(f"\n{'':34s}" + "".join(f"{name:>12s}" for name in found))
    for label, key in _ROWS:
        print(f"{label:34s}" + "".join(f"{one[key]:>12,}" for one in found.values()))
    for name, one in found.items():
        print()
        for kind, count in one["acknowledged_by_kind"].items():
            print(f"  {name:6s}{'done':10s}{count:6d} × {kind}")
        for title, kinds in (("refused", one["refusals"]), ("failed", one["failures"])):
            for kind, count in kinds.items():
                print(f"  {name:6s}{title:10s}{count:6d} × {kind}")
        for kind, count in one["orphans_by_kind"].items():
            print(f"  {name:6s}{'orphans':10s}{count:6d} × {kind}")
        for text in (*one["shown"], *one["audit_errors"], *one["broken"]):
            print(f"  {name:6s}NOT RIGHT {text}")


def make_parser() -> argparse.ArgumentParser:
    """The words of the command line."""
    parser = argparse.ArgumentParser(
        prog="bench chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--peer", default="ours,jar", help="who: ours, jar, or both with a comma between")
    parser.add_argument("--peer-minutes", type=float, default=2.5, help="of the jar's part")
    parser.add_argument("--format-version", type=int, choices=(2, 3), default=2)
    parser.add_argument("--seed", type=int, default=1, help="of rows and draws; the order is the machine's")
    parser.add_argument("--file", type=Path, help="where the figures go, instead of bench/results/chaos.json")
    return parser


def keep(found: dict[str, Json], version: int, file: Path | None) -> None:
    """Write the figures, beside those of the other format version."""
    place = file or RESULTS / "chaos.json"
    kept: dict[str, Any] = json.loads(place.read_text())["runs"] if place.exists() else {}
    write_result("chaos", {"runs": {**kept, f"v{version}": found}}, file=place)


def main(words: Sequence[str] | None = None) -> int:
    """Run, print, keep the figures; 1 when ours is not what was acknowledged."""
    asked = make_parser().parse_args(words)
    peers = asked.peer.split(",")
    if unknown := sorted(set(peers) - set(_PEERS)):
        print(f"--peer: expected {' or '.join(_PEERS)}, got {unknown[0]!r}", file=sys.stderr)
        return 2
    if find_java() is None:
        print("no Java was found, and Spark needs one (17 to 23)", file=sys.stderr)
        return 3
    plan = Plan(minutes=asked.minutes, format_version=asked.format_version, seed=asked.seed)
    with tempfile.TemporaryDirectory(prefix="headgate-chaos-") as folder:
        try:
            found = run(plan, peers, asked.peer_minutes, Path(folder))
        except JarError as error:
            print(f"the Iceberg jar cannot be had: {error}", file=sys.stderr)
            return 3
    print_table(found)
    keep(found, asked.format_version, asked.file)
    good = found.get("ours", {}).get("is_clean", True)
    print(f"\n{'all good' if good else 'NOT GOOD'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
