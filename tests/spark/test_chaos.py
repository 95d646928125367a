"""Everything at once on one table while tasks are killed and the service dies: `./dev bench chaos`, in short."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from bench.chaos_actors import act
from bench.chaos_faults import Mortal, TaskKiller
from bench.chaos_ours import Ours
from bench.chaos_story import ACKNOWLEDGED, Clock, Plan
from bench.chaos_verdict import Played, Verdict, compare, judge
from bench.chaos_world import World, make_table
from pyspark.sql import SparkSession
from tools.demo_story import Row, adds, corrects, removes

from headgate.spark.lake import Lake
from headgate.spark.session import prepare_session

_PATIENCE_S = 240.0  # of a machine that does nothing for us; it ends as soon as everybody has done enough
_ENOUGH_S = 60.0  # after the death; by then whoever was refused all the time is taken as done
_LOOK_S = 0.1


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Mortal]:
    """A service of this test's own, because it dies."""
    service = Mortal(tmp_path)
    service.start()
    yield service
    service.stop()


def count_landed(world: World) -> dict[str, int]:
    """How often every kind of job was acknowledged."""
    done = Counter(job.kind for job in list(world.book.jobs) if job.outcome == ACKNOWLEDGED)
    kinds = {kind: done[kind] for kind in ("append", "delete", "merge")}
    batches = len(world.done_batches(world.streams[0]))
    return {**kinds, "batch": batches, "compaction": world.book.compacted}


def count_told(world: World) -> dict[str, int]:
    """How often every kind of job was acknowledged or refused: who always loses the race was served, too."""
    told = Counter(count_landed(world))
    for refusal, count in list(world.book.refusals.items()):
        told[refusal.split(":")[0]] += count
    return told


def kill_once(world: World, mortal: Mortal) -> None:
    """The service dies in the midst of it; the run ends when everybody has done something, writers after it."""
    while not world.clock.is_over and not (count_landed(world)["append"] and count_landed(world)["batch"]):
        world.clock.pause(_LOOK_S)
    mortal.die(down_s=0.5)
    before, died = count_landed(world), time.monotonic()
    while not world.clock.is_over:
        done = count_landed(world) if time.monotonic() < died + _ENOUGH_S else count_told(world)
        if min(done.values()) and all(done[kind] > before[kind] for kind in ("append", "batch")):
            break
        world.clock.pause(_LOOK_S)
    world.clock.end()


@pytest.mark.timeout(900)  # its own patience ends it before
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # PyIceberg's REST catalog keeps its session
@pytest.mark.filterwarnings("ignore:Spark session is not provided:UserWarning")  # PySpark's own, in threads
def test_what_was_acknowledged_is_there_once_though_tasks_and_the_service_die(
    spark: SparkSession, mortal: Mortal, version: int, tmp_path: Path
) -> None:
    assert mortal.service is not None
    lake = Lake(mortal.service.uri)
    session = prepare_session(spark.newSession(), lake, jar=True)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    plan = Plan(format_version=version, streams=1, writers=1, task_failures=0.01, pause_s=0.2)
    world = World(session, lake, plan, tmp_path / "run", Clock(_PATIENCE_S))
    peer = Ours(world)
    make_table(session, peer.table, plan)
    killer = TaskKiller(session, world.clock, peer.find_writing, 3.0, random.Random(1))
    act(world, peer, ("task killer", killer.run), ("death", lambda: kill_once(world, mortal)))
    verdict = judge(world, peer)
    assert (world.book.broken, mortal.deaths) == ([], 1)
    assert min(count_told(world).values()) > 0, (count_told(world), world.book.refusals, world.book.retries)
    assert verdict.is_clean, verdict
    assert verdict.rows > 0


def row(id_: int, customer: int = 1, amount: int = 1) -> Row:
    """A payment."""
    return id_, customer, "asia", Decimal(amount)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([row(2, 2), row(3, 2, 9)], Verdict(rows=2)),
        ([row(3, 2, 9)], Verdict(rows=1, lost=1)),
        ([row(1), row(2, 2), row(3, 2, 9)], Verdict(rows=3, resurrected=1)),
        ([row(2, 2), row(2, 2), row(3, 2, 9)], Verdict(rows=3, duplicates=1)),
        ([row(2, 2), row(3, 2, 9), row(4)], Verdict(rows=3, unacknowledged=1)),
        ([row(2, 2), row(3, 2)], Verdict(rows=2, wrong=1)),
    ],
    ids=["as acknowledged", "lost", "resurrected", "twice", "not acknowledged", "correction lost"],
)
def test_every_way_to_differ_from_what_was_acknowledged_is_counted(
    actual: list[Row], expected: Verdict
) -> None:
    played = Played(brought={1, 2, 3})
    played.deeds += [
        (3, corrects({3: Decimal(9)})),
        (1, adds([row(1), row(2, 2), row(3, 2)])),
        (2, removes(1)),
    ]
    verdict = Verdict()
    compare(actual, played, verdict)
    verdict.shown.clear()
    assert verdict == expected
    assert verdict.is_clean == (verdict == Verdict(rows=2))
