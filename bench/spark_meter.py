"""What an operation costs in a local Spark session: wall time, CPU time of all processes, and what Spark's jobs took."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SETTLE_S = 0.3


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of Spark's, or the time between jobs, when only the driver works; from the operation's beginning."""

    name: str
    begin_s: float
    end_s: float
    tasks: int = 0
    cpu_s: float = 0.0  # of its tasks, without that of Python workers

    def described(self) -> str:
        """One line."""
        work = f", {self.tasks} tasks, CPU {self.cpu_s:.2f} s" if self.tasks else ""
        return f"{self.begin_s:6.2f} - {self.end_s:6.2f} s  {self.name}{work}"


@dataclass(frozen=True, slots=True)
class Taken:
    """The cost of one operation."""

    wall_s: float
    cpu_s: float
    jobs_s: float  # in which at least one job ran
    stages: tuple[Stage, ...]


class Meter:
    """Measures operations of one session, which nobody else uses meanwhile."""

    def __init__(self, spark: SparkSession) -> None:
        java: Any = spark._jvm
        self._java = java.java.lang
        self._context: Any = spark._jsc.sc()
        self._pid = int(self._java.ProcessHandle.current().pid())

    def measure(self, operation: Callable[[], None]) -> Taken:
        """Run it once, with the garbage of earlier ones taken away first."""
        gc.collect()
        self._java.System.gc()
        time.sleep(_SETTLE_S)
        known = {int(job.jobId()) for job in self._jobs()}
        cpu_s, began, began_at_s = self._cpu_s(), time.perf_counter(), time.time()
        operation()
        wall_s, cpu_s = time.perf_counter() - began, self._cpu_s() - cpu_s
        self._context.listenerBus().waitUntilEmpty()
        jobs = [job for job in self._jobs() if int(job.jobId()) not in known]
        spans = sorted(_span(job, began_at_s) for job in jobs)
        stages = sorted(
            (*self._stages(jobs, began_at_s), *_gaps(spans, wall_s)), key=lambda stage: stage.begin_s
        )
        return Taken(wall_s, cpu_s, sum(end - begin for begin, end in _merged(spans)), tuple(stages))

    def _jobs(self) -> list[Any]:
        return list(_each(self._context.statusStore().jobsList(None)))

    def _stages(self, jobs: list[Any], began_at_s: float) -> Iterator[Stage]:
        store = self._context.statusStore()
        for job in jobs:
            for id_ in _each(job.stageIds()):
                try:
                    stage = store.lastStageAttempt(int(id_))
                except Exception:  # Py4J's error for a stage that was skipped, and so is not known
                    continue
                if stage.submissionTime().isEmpty() or stage.completionTime().isEmpty():
                    continue
                begin, end = _span(stage, began_at_s)
                cpu_s = stage.executorCpuTime() / 1e9
                name = str(stage.name()).split(" at ")[0] + f" (job {job.jobId()}, stage {id_})"
                yield Stage(name, begin, end, int(stage.numCompleteTasks()), cpu_s)

    def _cpu_s(self) -> float:
        """Of this process, and of the JVM with all that it has started."""
        own = os.times()
        return own.user + own.system + _tree_cpu_s(self._pid)


def _each(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _span(timed: Any, began_at_s: float) -> tuple[float, float]:
    """When a job or a stage ran, from the operation's beginning."""
    times = (timed.submissionTime().get().getTime(), timed.completionTime().get().getTime())
    begin, end = (milliseconds / 1000 - began_at_s for milliseconds in times)
    return max(0.0, begin), max(0.0, end)


def _merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans in order, those that overlap as one."""
    found: list[tuple[float, float]] = []
    for begin, end in spans:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _gaps(spans: list[tuple[float, float]], wall_s: float) -> Iterator[Stage]:
    ends = [0.0]
    for begin, end in _merged(spans):
        yield Stage("driver", ends[-1], begin)
        ends.append(end)
    yield Stage("driver", ends[-1], wall_s)


def _tree_cpu_s(root: int) -> float:
    """The CPU time of a process and its descendants, those that have ended among them."""
    fields: dict[int, list[str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields[int(folder.name)] = (folder / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue  # it has ended
    found, ticks = {root}, 0
    for _ in range(len(fields)):
        more = {pid for pid, one in fields.items() if int(one[1]) in found} - found
        if not more:
            break
        found |= more
    for pid in found & fields.keys():
        ticks += sum(map(int, fields[pid][11:15]))  # its own, and of children that it has waited for
    return ticks / _TICKS_PER_S
