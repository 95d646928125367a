"""Histograms: what Prometheus is told is what its own client would tell it."""

from __future__ import annotations

import re
import threading

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest

from headgate.service.histogram import Histogram
from headgate.service.metrics import Metrics

BOUNDS = (0.5, 1, 2.5, 10)
VALUES = st.one_of(st.sampled_from(BOUNDS), st.floats(0, 100))


def text_of(made: Histogram | prometheus_client.Histogram) -> str:
    registry = prometheus_client.CollectorRegistry()
    registry.register(made)
    return re.sub(r"(_created\S*) .*", r"\1", generate_latest(registry).decode())


@given(st.lists(VALUES))
def test_without_labels_it_is_exported_as_the_library_exports_its_own(values: list[float]) -> None:
    ours = Histogram("h", "Text", bounds=BOUNDS)
    theirs = prometheus_client.Histogram("h", "Text", buckets=BOUNDS, registry=None)
    for value in values:
        ours.observe(value)
        theirs.observe(value)
    assert text_of(ours) == text_of(theirs)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), VALUES)))
def test_with_labels_it_is_exported_as_the_library_exports_its_own(
    values: list[tuple[str, str, float]],
) -> None:
    ours = Histogram("h", "Text", bounds=BOUNDS, labels=("l", "m"))
    theirs = prometheus_client.Histogram("h", "Text", ("l", "m"), buckets=BOUNDS, registry=None)
    for first, second, value in values:
        ours.find(first, second).observe(value)
        theirs.labels(first, second).observe(value)
    assert text_of(ours) == text_of(theirs)


def test_nothing_is_lost_between_threads() -> None:
    histogram = Histogram("h", "Text", bounds=BOUNDS, labels=("l",))

    def observe() -> None:
        for _ in range(5000):
            histogram.find("a").observe(1)

    threads = [threading.Thread(target=observe) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert histogram.find("a").look() == ([0, 20_000, 20_000, 20_000, 20_000], 20_000)


def test_what_fails_is_timed_too() -> None:
    metrics = Metrics()
    with pytest.raises(ValueError, match="x"), metrics.time_store("swap"):
        raise ValueError("x")
    with metrics.time_files("write-manifests"):
        pass
    text = metrics.print().decode()
    assert 'headgate_store_seconds_count{operation="swap"} 1.0' in text
    assert 'headgate_files_seconds_count{operation="write-manifests"} 1.0' in text
    assert "headgate_group_size_count 0.0" in text


def test_commits_are_exported_as_the_library_exports_a_counter() -> None:
    metrics, registry = Metrics(), prometheus_client.CollectorRegistry()
    theirs = prometheus_client.Counter(
        "headgate_commits", "Commits by verdict", ("verdict",), registry=registry
    )
    for verdict in ("committed", "conflict", "committed"):
        metrics.count_commit(verdict)
        theirs.labels(verdict).inc()
    ours = prometheus_client.CollectorRegistry()
    ours.register(metrics.commits)
    shown, expected = (generate_latest(one).decode().splitlines() for one in (ours, registry))
    assert [line.rpartition(" ")[0] for line in shown] == [line.rpartition(" ")[0] for line in expected]
    assert [line for line in shown if "_created" not in line] == [
        line for line in expected if "_created" not in line
    ]
