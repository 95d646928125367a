"""Counters that are added up when asked for: every count is told, with its labels, once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from headgate.service.metrics import Metrics


def test_counts_of_many_threads_are_all_told() -> None:
    metrics = Metrics()

    def count(status: int) -> None:
        for _ in range(2500):
            metrics.count_request(method="GET", route="/x", status=status, elapsed_s=0.1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, (200, 200, 404, 200)))
    for _ in range(2):  # to look changes nothing
        text = metrics.print().decode()
        assert 'headgate_http_requests_total{method="GET",route="/x",status="200"} 7500.0' in text
        assert 'headgate_http_requests_total{method="GET",route="/x",status="404"} 2500.0' in text
        assert 'headgate_http_requests_created{method="GET",route="/x",status="404"}' in text
        assert 'headgate_http_request_seconds_count{method="GET",route="/x"} 10000.0' in text
