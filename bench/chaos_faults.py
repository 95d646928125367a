"""What goes wrong in a chaos run: tasks that raise, tasks that are killed, and a service that dies.

tasks that raise     `flaky` puts a step into the rows that a job writes; on a task's first attempt it may raise, at its
                     beginning (nothing is written) or after its last row (what stands behind it has seen them all)
tasks that are       `TaskKiller` ends running tasks of every job, reads and footers and compactions too: half of the
killed               time one whose data file is on disk already, else any
a dead service       `Mortal` ends the service by SIGKILL and starts it again on the same port and database
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from tools.service_process import Service, sqlite_url, start_service

from bench.chaos_story import Clock

_TICK_S = 0.02
_LOOK_MAX = 200  # tasks of a stage


def flaky(rows: DataFrame, share: float, log: Path) -> DataFrame:
    """The same rows; a share of first attempts raises at its beginning, as many at its end, each noted in `log`."""
    place = str(log)

    def stumble(chance: float, where: str) -> None:
        context = TaskContext.get()
        if context is None or context.attemptNumber() or random.SystemRandom().random() >= chance:
            return
        descriptor = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, b"%s\n" % where.encode())
        os.close(descriptor)
        raise RuntimeError(f"chaos: this task fails, {where} its rows")

    # Inside a function it travels as code: workers need not find this module.
    def walk(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stumble(share, "before")
        yield from batches
        stumble(share, "after")

    return rows.mapInArrow(walk, rows.schema)


@dataclass
class TaskKiller:
    """Ends running tasks, until the clock says so. `find_writing` names tasks whose data files are on disk."""

    spark: SparkSession
    clock: Clock
    find_writing: Callable[[], set[int]]
    every_s: float
    luck: random.Random
    _struck: list[tuple[int, int, int, bool]] = field(default_factory=list)

    def run(self) -> None:
        """Strike again and again."""
        while not self.clock.is_over:
            self.clock.pause(self.luck.expovariate(1 / self.every_s))
            wants_files = self.luck.random() < 0.5
            until = time.monotonic() + self.every_s
            while not self.clock.is_over and time.monotonic() < until and not self._strike(wants_files):
                time.sleep(_TICK_S)

    def _strike(self, wants_files: bool) -> bool:
        writing = self.find_writing() if wants_files else set()
        if wants_files and not writing:
            return False
        running = [task for task in self._running() if not wants_files or task[2] in writing]
        if not running:
            return False
        stage, attempt, task_id = self.luck.choice(running)
        if not self._context().killTaskAttempt(task_id, True, "chaos"):
            return False
        self._struck.append((stage, attempt, task_id, wants_files))
        return True

    def _running(self) -> list[tuple[int, int, int]]:
        found = []
        for stage in _each(self._store().activeStages()):
            for task in self._tasks(stage.stageId(), stage.attemptId()):
                if task.status() == "RUNNING":
                    found.append((stage.stageId(), stage.attemptId(), task.taskId()))
        return found

    def count(self) -> dict[str, int]:
        """How many tasks really ended so: with a file on disk, and any."""
        counts = {"with_files": 0, "any": 0, "too_late": 0}
        for stage, attempt, task_id, had_files in self._struck:
            status = {task.taskId(): task.status() for task in self._tasks(stage, attempt)}.get(task_id)
            name = "with_files" if had_files else "any"
            counts[name if status in ("KILLED", "FAILED") else "too_late"] += 1
        return counts

    def _tasks(self, stage: int, attempt: int) -> Iterator[Any]:
        return _each(self._store().taskList(stage, attempt, _LOOK_MAX))

    def _store(self) -> Any:
        return self._context().statusStore()

    def _context(self) -> Any:
        java: Any = self.spark.sparkContext._jsc
        return java.sc()


def _each(sequence: Any) -> Iterator[Any]:
    for number in range(sequence.size()):
        yield sequence.apply(number)


@dataclass
class Mortal:
    """A service that may die, and comes back with the same port and database."""

    folder: Path
    service: Service | None = None
    deaths: int = 0

    def start(self) -> Service:
        """Start it, or start it again."""
        warehouse = self.folder / "warehouse"
        warehouse.mkdir(parents=True, exist_ok=True)
        self.service = start_service(
            warehouse=warehouse,
            database=sqlite_url(self.folder / "catalog.db"),
            log=self.folder / "service.log",
            port=None if self.service is None else self.service.port,
        )
        return self.service

    def die(self, down_s: float) -> None:
        """SIGKILL, a while of nothing, and a start on the same port and database."""
        if self.service is None:
            return
        self.service.kill()
        self.deaths += 1
        time.sleep(down_s)
        self.start()

    def die_often(self, clock: Clock, *, times: int, down_s: float) -> None:
        """Die so many times, evenly spread over the time that there is."""
        for number in range(times):
            clock.pause(clock.seconds * ((number + 1) / (times + 1) - clock.passed()))
            self.die(down_s)

    def stop(self) -> None:
        """End it in peace."""
        if self.service is not None:
            self.service.stop()


def count_raised(log: Path) -> dict[str, int]:
    """How many tasks raised, by where."""
    lines = log.read_text().split() if log.exists() else []
    return {where: lines.count(where) for where in ("before", "after")}


def start_thread(name: str, act: Callable[[], None]) -> threading.Thread:
    """A thread that runs already."""
    thread = threading.Thread(target=act, name=name)
    thread.start()
    return thread
