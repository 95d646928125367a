"""A histogram for Prometheus that is counted by one addition and described when asked for.

The client library's own looks its labels up and tries one bucket after the other with every observation; a commit has
several. What is exported is the same.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from time import perf_counter, time

import msgspec
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_NEW_MAX = 1000


class Series:
    """What was observed under one set of labels. Thread-safe."""

    __slots__ = ("_bounds", "_counts", "_lock", "_new", "_note", "_sum", "created_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._lock = threading.Lock()
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # the last is for what is above all bounds
        self._sum = 0.0
        self._new: list[float] = []  # observed and not counted yet
        self._note = self._new.append
        self.created_s = time()

    def observe(self, value: float) -> None:
        """Count one; on a bound it is below it."""
        self._note(value)
        if len(self._new) >= _NEW_MAX:
            with self._lock:
                self._count()

    def time(self) -> Timing:
        """Observe how many seconds something takes, also when it fails."""
        return Timing(self)

    def look(self) -> tuple[list[float], float]:
        """How many were at most each bound, and in all; their sum."""
        with self._lock:
            self._count()
            return list(accumulate(map(float, self._counts))), self._sum

    def _count(self) -> None:
        """With the lock held. Others may observe meanwhile, at the end of the same list."""
        new = self._new[:]
        del self._new[: len(new)]
        for value in new:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += value


class _Labelled(dict[tuple[str, ...], Series]):
    """Series by the values of their labels; one that is asked for is made."""

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__()
        self._bounds = bounds

    def __missing__(self, values: tuple[str, ...]) -> Series:
        return self.setdefault(values, Series(self._bounds))  # of two threads, both get the first one's


class Timing(msgspec.Struct):
    """From its beginning to its end; used once."""

    series: Series
    started: float = 0.0

    def __enter__(self) -> None:
        self.started = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.series.observe(perf_counter() - self.started)


class Histogram(Collector):
    """All series of one name. The values of its labels are a closed set."""

    def __init__(
        self, name: str, text: str, *, bounds: Sequence[float], labels: tuple[str, ...] = ()
    ) -> None:
        self._name, self._text, self._bounds, self._labels = name, text, tuple(bounds), labels
        self._series = _Labelled(self._bounds)
        if not labels:
            self.find()

    def find(self, *values: str) -> Series:
        """The series of these values of the labels."""
        return self._series[values]

    def observe(self, value: float) -> None:
        """Count one, where there are no labels."""
        self._series[()].observe(value)

    def collect(self) -> Iterable[Metric]:
        """As a histogram of Prometheus."""
        metric = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, series in list(self._series.items()):
            counts, sum_ = series.look()
            metric.add_metric(values, list(zip(names, counts, strict=True)), sum_)
            labels = dict(zip(self._labels, values, strict=True))
            metric.add_sample(f"{self._name}_created", labels, series.created_s)
        return (metric,)
