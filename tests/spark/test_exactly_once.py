"""Exactly once under kill -9: streams whose driver is killed at random points and restarted give exactly the input.

`HEADGATE_KILL_SEED` repeats the draws of a run; every run prints its seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from headgate.spark.lake import Lake
from tests.spark.stream_driver import DriverPlan

STREAMS, KILLS = 5, 4  # a driver takes all its streams with it: twenty deaths of streams
FILES, ROWS_A_FILE = 60, 20
_BATCHES_MAX = 8  # a driver is killed after at most so many batches, of all its streams
_THEN_WITHIN_S = 1.0
_STARTS_MAX = 5
_SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_streams_killed_at_twenty_random_points_give_exactly_the_input(
    lake: Lake, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("HEADGATE_KILL_SEED", random.SystemRandom().randrange(2**32)))
    with capsys.disabled():
        sys.stdout.write(f"\nHEADGATE_KILL_SEED={seed} ")
    draw = random.Random(seed)
    lake.catalog().create_table((namespace, "t"), _SCHEMA)
    plan = DriverPlan(lake.uri, f"{namespace}.t", str(tmp_path), STREAMS)
    wanted = Counter(row for number in range(STREAMS) for row in _make_input(plan, number))
    inside = 0
    with ExitStack() as groups:
        for _ in range(KILLS):
            driver = _start(plan, groups, batches=draw.randrange(_BATCHES_MAX))
            with suppress(subprocess.TimeoutExpired):
                driver.wait(draw.uniform(0.0, _THEN_WITHIN_S))
            # Without its group, Java lives on for a while as a driver that nobody wants.
            (os.killpg if draw.random() < 0.5 else os.kill)(driver.pid, signal.SIGKILL)
            driver.wait()
            inside += sum(_is_inside_a_batch(plan.checkpoint(number)) for number in range(STREAMS))
        _run_to_the_end(plan, groups)
    with capsys.disabled():
        sys.stdout.write(f"{inside} of {STREAMS * KILLS} deaths were inside a batch ")
    found = lake.catalog().load_table((namespace, "t")).scan().to_arrow().to_pylist()
    rows = Counter((row["id"], row["name"]) for row in found)
    twice = sorted(row for row, count in rows.items() if count > 1)
    assert not twice, f"{len(twice)} rows are in twice: {twice[:10]}"
    lost = sorted((wanted - rows).keys())
    assert not lost, f"{len(lost)} rows are not in: {lost[:10]}"
    assert rows == wanted


def _make_input(plan: DriverPlan, number: int) -> list[tuple[int, str]]:
    """The files of a stream, and their rows."""
    folder = plan.source(number)
    folder.mkdir()
    made = []
    for file in range(FILES):
        first = (number * FILES + file) * ROWS_A_FILE
        rows = [(first + row, f"stream {number} file {file}") for row in range(ROWS_A_FILE)]
        lines = [json.dumps({"id": id_, "name": name}) for id_, name in rows]
        (folder / f"{file:05d}.json").write_text("\n".join(lines))
        made.extend(rows)
    return made


def _start(plan: DriverPlan, groups: ExitStack, *, batches: int) -> subprocess.Popen[str]:
    """A driver that has done so many batches, in a process group of which nothing outlives `groups`.

    One that ends by itself is started again: on a busy machine Spark may give up waiting for a process of its own.
    """
    for _ in range(_STARTS_MAX):
        driver = _spawn(plan, groups)
        lines = iter(driver.stdout or ())
        if all(next(lines, None) is not None for _ in range(batches)) and driver.poll() is None:
            return driver
    raise AssertionError(f"no driver did its batches:\n{_log_tail(plan)}")


def _run_to_the_end(plan: DriverPlan, groups: ExitStack) -> None:
    """Drivers until one has read all of the input: a Java that lives on may be in the first one's way."""
    for _ in range(_STARTS_MAX):
        driver = _spawn(replace(plan, to_the_end=True), groups)
        driver.communicate()
        if driver.returncode == 0:
            return
    raise AssertionError(f"no driver came to the end:\n{_log_tail(plan)}")


def _spawn(plan: DriverPlan, groups: ExitStack) -> subprocess.Popen[str]:
    log = groups.enter_context((Path(plan.folder) / "driver.log").open("ab"))
    command = [sys.executable, "-m", "tests.spark.stream_driver", plan.to_argument()]
    driver = groups.enter_context(
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    )
    groups.callback(_end_group, driver.pid)
    return driver


def _end_group(group: int) -> None:
    with suppress(ProcessLookupError):  # all of it has ended
        os.killpg(group, signal.SIGKILL)


def _log_tail(plan: DriverPlan) -> str:
    return (Path(plan.folder) / "driver.log").read_bytes()[-4_000:].decode(errors="replace")


def _is_inside_a_batch(checkpoint: Path) -> bool:
    """Whether Spark has planned a batch that it has not noted as done."""
    planned, done = (_last(checkpoint / name) for name in ("offsets", "commits"))
    return planned > done


def _last(folder: Path) -> int:
    return max((int(file.name) for file in folder.glob("*") if file.name.isdigit()), default=-1)
