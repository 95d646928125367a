"""Numbers for Prometheus, in a registry of their own. Labels are closed sets: never a name or a path."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from headgate.service.histogram import Histogram
from headgate.service.logs import count_dropped

CONTENT_TYPE = CONTENT_TYPE_LATEST
_NEW_MAX = 1000
_LATENCIES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _Tally(Collector):
    """A counter that every commit counts: by an addition, and described when asked for."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._lock = threading.Lock()
        self._counts: collections.Counter[tuple[str | int, ...]] = collections.Counter()
        self._created_s: dict[tuple[str | int, ...], float] = {}
        self._new: list[tuple[str | int, ...]] = []  # told of and not counted yet

    def count(self, *values: str | int) -> None:
        """One more with these values of the labels, which are a closed set."""
        if values not in self._created_s:
            self._created_s.setdefault(values, time.time())
        new = self._new
        new.append(values)
        if len(new) >= _NEW_MAX:
            with self._lock:
                self._add_up()

    def collect(self) -> Iterable[Metric]:
        """As a counter of Prometheus."""
        metric = CounterMetricFamily(self._name, self._text, labels=self._labels)
        with self._lock:
            self._add_up()
            for values, count in self._counts.items():
                metric.add_metric([str(value) for value in values], count, self._created_s[values])
        return (metric,)

    def _add_up(self) -> None:
        """With the lock held. Others may count meanwhile, at the end of the same list."""
        new = self._new[:]
        del self._new[: len(new)]
        self._counts.update(new)


class _DroppedLines(Collector):
    """Of the log, which all services of a process share."""

    def collect(self) -> Iterable[Metric]:
        """As a counter of Prometheus."""
        text = "Log lines that nobody read in time"
        return (CounterMetricFamily("headgate_log_lines_dropped", text, value=count_dropped()),)


class Metrics:
    """All metrics of one service. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._make_tally(
            "headgate_http_requests", "Requests answered", ("method", "route", "status")
        )
        self.answer_seconds = self._make_histogram(
            "headgate_http_request_seconds", "Time to answer", bounds=_LATENCIES_S, labels=("method", "route")
        )
        self.registry.register(_DroppedLines())
        self.in_flight = Gauge(
            "headgate_http_in_flight", "Requests in the service now", registry=self.registry
        )
        self.refused_overload = Counter(
            "headgate_http_overload_refusals",
            "Requests refused because too many were in flight",
            registry=self.registry,
        )
        self.replays = Counter(
            "headgate_idempotent_replays",
            "Requests answered from their idempotency key",
            registry=self.registry,
        )
        self.commits = self._make_tally("headgate_commits", "Commits by verdict", ("verdict",))
        self.swap_retries = Counter(
            "headgate_swap_retries", "Swaps lost to another commit and tried again", registry=self.registry
        )
        self.group_size = self._make_histogram(
            "headgate_group_size", "Commits published by one swap", bounds=(1, 2, 4, 8, 16, 32, 64, 128)
        )
        self.gate_refusals = Counter(
            "headgate_gate_refusals",
            "Commits refused because too many waited for their table",
            registry=self.registry,
        )
        self.gate_depth = Gauge(
            "headgate_gate_depth", "Commits waiting for their table", registry=self.registry
        )
        self.cache_bytes = Gauge(
            "headgate_cache_bytes", "Memory of caches, roughly", ("cache",), registry=self.registry
        )
        self.jobs_pending = Gauge(
            "headgate_jobs_pending",
            "Requests acknowledged and not carried out yet, of all replicas, as last counted",
            registry=self.registry,
        )
        self.jobs_done = Counter(
            "headgate_jobs_done", "Acknowledged requests by verdict", ("verdict",), registry=self.registry
        )
        self.job_retries = Counter(
            "headgate_job_retries",
            "Acknowledged requests that failed for now and are tried again",
            registry=self.registry,
        )
        self.expired_snapshots = Counter(
            "headgate_expired_snapshots", "Snapshots expired by the service", registry=self.registry
        )
        self.expired_files = Counter(
            "headgate_expired_files", "Files of expired snapshots deleted", registry=self.registry
        )
        self.store_seconds = self._make_histogram(
            "headgate_store_seconds", "Time in the database", bounds=_LATENCIES_S, labels=("operation",)
        )
        self.files_seconds = self._make_histogram(
            "headgate_files_seconds", "Time in object storage", bounds=_LATENCIES_S, labels=("operation",)
        )
        self.client_reports = Counter(
            "headgate_client_reports",
            "Metrics reports received from engines",
            ("kind",),
            registry=self.registry,
        )

    def _make_tally(self, name: str, text: str, labels: tuple[str, ...]) -> _Tally:
        made = _Tally(name, text, labels)
        self.registry.register(made)
        return made

    def _make_histogram(
        self, name: str, text: str, *, bounds: Sequence[float], labels: tuple[str, ...] = ()
    ) -> Histogram:
        made = Histogram(name, text, bounds=bounds, labels=labels)
        self.registry.register(made)
        return made

    def count_request(self, *, method: str, route: str, status: int, elapsed_s: float) -> None:
        """One request answered."""
        self.requests.count(method, route, int(status))
        self.answer_seconds.find(method, route).observe(elapsed_s)

    def count_commit(self, verdict: str) -> None:
        """One commit judged."""
        self.commits.count(verdict)

    def time_store(self, operation: str) -> AbstractContextManager[None]:
        """Measure a call of the database."""
        return self.store_seconds.find(operation).time()

    def time_files(self, operation: str) -> AbstractContextManager[None]:
        """Measure a call of object storage."""
        return self.files_seconds.find(operation).time()

    def print(self) -> bytes:
        """The text that /metrics answers."""
        return generate_latest(self.registry)
