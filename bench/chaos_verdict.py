"""Is the table what was acknowledged? Reads it back by PyIceberg and by Spark SQL, and counts every way to be wrong.

The snapshots of the table say which job landed, in which order; the book says which were acknowledged. The acknowledged
ones are played again in the order of their sequence numbers, and the table must hold the result, to the row.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tools.demo_story import Row, Rows, adds

from bench.chaos_story import ACKNOWLEDGED, STAMP, Source
from bench.chaos_world import Peer, Snapshot, World
from headgate.spark.maintain import remove_orphans
from headgate.spark.session import JAR_CATALOG

_NAMES = ("id", "customer", "region", "amount")
_SHOWN_MAX = 5


@dataclass
class Verdict:
    """How a table differs from what was acknowledged; all zero and no errors when it does not."""

    rows: int = 0
    lost: int = 0
    resurrected: int = 0
    duplicates: int = 0
    unacknowledged: int = 0  # rows that are there though nobody was told so
    wrong: int = 0  # rows with another amount than the last correction that was acknowledged
    landed_twice: int = 0
    landed_untold: int = 0  # jobs and batches that failed for their driver, and landed
    readers_differ: int = 0
    audit_errors: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        found = {k: v for k, v in asdict(self).items() if k not in ("rows", "shown")}
        return not any(found.values())


@dataclass
class Played:
    """What the acknowledged deeds say must be there."""

    deeds: list[tuple[int, Callable[[Rows], None]]] = field(default_factory=list)
    brought: set[int] = field(default_factory=set)  # ids that were ever acknowledged

    def rows(self) -> Rows:
        """All deeds, one after the other."""
        rows: Rows = {}
        for _, play in sorted(self.deeds, key=lambda deed: deed[0]):
            play(rows)
        return rows


def judge(world: World, peer: Peer) -> Verdict:
    """Compare the table with the book."""
    verdict, played = Verdict(), Played()
    snapshots = load_snapshots(peer)
    _play_jobs(world, snapshots, played, verdict)
    for source in world.streams:
        _play_stream(world, peer, source, snapshots, played, verdict)
    first, second = read_by_pyiceberg(world, peer), read_by_spark(world, peer)
    verdict.readers_differ = sum(
        ((Counter(first) - Counter(second)) + (Counter(second) - Counter(first))).values()
    )
    compare(first, played, verdict)
    verdict.audit_errors = audit(world, peer)
    return verdict


def load_snapshots(peer: Peer) -> list[Snapshot]:
    """All snapshots, oldest first."""
    raw: Sequence[Any] = peer.table.load(all_snapshots=True).raw["snapshots"]
    found = [Snapshot(one["snapshot-id"], one["sequence-number"], one["summary"]) for one in raw]
    return sorted(found, key=lambda one: one.sequence_number)


def _play_jobs(world: World, snapshots: Sequence[Snapshot], played: Played, verdict: Verdict) -> None:
    stamped: dict[str, list[Snapshot]] = {}
    for snapshot in snapshots:
        if STAMP in snapshot.summary:
            stamped.setdefault(snapshot.summary[STAMP], []).append(snapshot)
    for job in world.book.jobs:
        landed = stamped.get(job.id, [])
        verdict.landed_twice += len(landed) > 1
        if job.outcome != ACKNOWLEDGED:
            _show(verdict, bool(landed), f"{job.id} was {job.outcome}, and landed")
            verdict.landed_untold += bool(landed)
            continue
        is_told = job.snapshot_id is None or job.snapshot_id in {one.id for one in landed}
        _show(verdict, not is_told, f"{job.id} was told snapshot {job.snapshot_id}, which is not its own")
        if landed:
            played.deeds.append((landed[0].sequence_number, job.play))
        if job.kind == "append" or not is_told:
            # Without a snapshot it must be there all the same: it is counted as lost.
            made: Rows = {}
            job.play(made)
            played.brought.update(made)
            if not landed:
                played.deeds.append((0, job.play))


def _play_stream(
    world: World,
    peer: Peer,
    source: Source,
    snapshots: Sequence[Snapshot],
    played: Played,
    verdict: Verdict,
) -> None:
    batches = world.read_batches(source)
    done = world.done_batches(source)
    landed = peer.find_batches(source, sorted(batches), snapshots)
    fed = {name.stem for name in world.feed_folder(source).glob("*.json")}
    missing = fed - {name for names in batches.values() for name in names}
    _show(verdict, bool(missing), f"stream {source.number} never read {sorted(missing)[:_SHOWN_MAX]}")
    for batch, names in batches.items():
        rows = [row for name in names for row in source.rows(*map(int, name.split("-")))]
        found = landed.get(batch, [])
        verdict.landed_twice += len(found) > 1
        if batch not in done:
            verdict.landed_untold += bool(found)
            continue
        played.brought.update(row[0] for row in rows)
        played.deeds.append((found[0].sequence_number if found else 0, adds(rows)))
        if found and found[0].summary.get("added-records") != str(len(rows)):
            _show(verdict, True, f"stream {source.number} batch {batch} has other rows than were read")
    verdict.lost += sum(len(list(_numbers(name))) for name in missing)


def read_by_pyiceberg(world: World, peer: Peer) -> list[Row]:
    """All rows, without any code of ours."""
    arrow = world.lake.catalog().load_table(peer.table.identifier).scan(selected_fields=_NAMES).to_arrow()
    return [tuple(row[name] for name in _NAMES) for row in arrow.to_pylist()]


def read_by_spark(world: World, peer: Peer) -> list[Row]:
    """The same through the Iceberg jar."""
    frame = world.spark.table(f"{JAR_CATALOG}.{peer.table.name}").select(*_NAMES)
    return [tuple(row) for row in frame.collect()]


def compare(actual: Sequence[Row], played: Played, verdict: Verdict) -> None:
    """Count how the rows differ from those that must be there."""
    expected, counts = played.rows(), Counter(row[0] for row in actual)
    verdict.rows = len(actual)
    verdict.duplicates = sum(count - 1 for count in counts.values())
    lost = expected.keys() - counts.keys()
    verdict.lost += len(lost)
    more = counts.keys() - expected.keys()
    verdict.resurrected = len(more & played.brought)
    verdict.unacknowledged = len(more - played.brought)
    wrong = [row for row in actual if row[0] in expected and expected[row[0]] != row]
    verdict.wrong = len(wrong)
    for what, ids in (("lost", lost), ("too many", more), ("wrong", {row[0] for row in wrong})):
        _show(verdict, bool(ids), f"{what}: {sorted(ids)[:_SHOWN_MAX]}")


def audit(world: World, peer: Peer) -> list[str]:
    """The errors that `headgate audit` finds, every snapshot and file looked at."""
    command = [sys.executable, "-m", "headgate.cli.main", "audit", peer.table.name, "--uri", world.lake.uri]
    done = subprocess.run(
        [*command, "--files", "--all-snapshots", "--json"], capture_output=True, text=True, check=False
    )
    if not done.stdout:
        return [f"audit: exit={done.returncode} {done.stderr[-600:]}"]
    found = json.loads(done.stdout)["findings"]
    return [f"{one['rule']}: {one['detail']}" for one in found if one["severity"] == "error"]


def find_orphans(peer: Peer) -> list[str]:
    """Files below the table that nothing reaches, as they would be found in two days.

    Checksums that Hadoop lays beside files on a local disk are left out: object stores and clusters have none.
    """
    later = datetime.now(UTC) + timedelta(days=2)
    found = remove_orphans(peer.table, older_than=timedelta(days=1), dry_run=True, now=later).files
    return [file for file in found if not file.endswith(".crc")]


def _numbers(name: str) -> Iterable[int]:
    start, end = map(int, name.split("-"))
    return range(start, end)


def _show(verdict: Verdict, is_so: bool, text: str) -> None:
    if is_so and len(verdict.shown) < 4 * _SHOWN_MAX:
        verdict.shown.append(text)
