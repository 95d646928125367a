"""`./dev bench spark` holds our jobs against the jar's on tables that come out alike."""

from __future__ import annotations

import pytest
from bench.common import NAMESPACE
from bench.spark import Bench, Case, run_case
from bench.spark_meter import Meter
from pyspark.sql import SparkSession
from tools.service_process import Service

from headgate.spark.lake import Lake

ROWS = 3_000


@pytest.fixture(scope="module")
def bench(spark: SparkSession, service: Service, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A bench with few rows in the session of the tests."""
    lake = Lake(service.uri)
    lake.catalog().create_namespace_if_not_exists(NAMESPACE)
    made = Bench(spark, lake, Meter(spark), tmp_path_factory.mktemp("bench"), ROWS, 2)
    made.prepare()
    return made


@pytest.mark.parametrize(
    ("operation", "mode", "rows"),
    [("append", None, ROWS), ("merge", "merge-on-read", ROWS + ROWS // 100), ("compact", None, ROWS)],
)
def test_both_sides_do_the_same_work(bench: Bench, operation: str, mode: str | None, rows: int) -> None:
    found = run_case(bench, Case("day", operation, mode), warm_ups=0, rounds=1)
    for side in ("ours", "jar"):
        assert found[side]["output"]["rows"][0] == str(rows)
        assert 0 < found[side]["jobs_s"] <= found[side]["wall_s"]
        assert found[side]["cpu_s"] > 0
        assert found[side]["stages"]
    assert found["ours"]["output"]["data_files"] == found["jar"]["output"]["data_files"]
