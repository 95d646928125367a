"""Jobs on a standalone cluster: a master and two workers, whose Python has our dependencies, but not our package.

The commands run on local files and SQLite; every kind of job, by one driver each, on a bucket of a real S3 server and
PostgreSQL, with Hadoop's S3 file system and without it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.catalog.rest import RestCatalog
from tools.hadoop_s3_jars import load_s3_jars
from tools.iceberg_jar import JarError, find_java, load_iceberg_jar
from tools.service_process import Service
from tools.spark_cluster import Cluster, running_cluster
from tools.spark_local import UNCOMPILED

from headgate.spark.data_files import NATIVE, PYTHON
from headgate.spark.lake import Lake
from tests.compat.lake import audit_namespace, audit_table
from tests.s3_server import S3Server
from tests.spark.cluster_jobs import JobsPlan
from tests.spark.s3_lake import environment_of, running_s3_lake
from tests.spark.speculative_job import ROWS

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800)]

RUN_WAIT_S = 600  # a driver, two executors and their Pythons start for every command

PIPELINE = """
from pyspark.sql import functions as sf
from pyspark.sql import types

pipeline = {
    "sources": {"raw": {"path": "rows.csv"}},
    "target": {"table": "cluster.numbers", "create": True, "partition-by": ["bucket(4, id)"]},
}


@sf.udf(returnType=types.StringType())
def package_of(number):
    import headgate

    return headgate.__file__


def transform(raw):
    return raw.repartition(4).select("id", package_of("id").alias("package"))
"""


@dataclass(frozen=True)
class Place:
    """Where the jobs run, and the Python of the workers."""

    folder: Path
    cluster: Cluster
    service: Service

    def run(self, *words: str, python: Path | None = None) -> subprocess.CompletedProcess[str]:
        """One command, sent to the cluster."""
        settings = {
            **UNCOMPILED,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "600m",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        confs = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
        return subprocess.run(
            [sys.executable, "-m", "headgate.cli.main", *words, "--master", self.cluster.master, *confs],
            cwd=self.folder,
            env={
                **inherited,
                "PYSPARK_PYTHON": str(python or self.folder / "python"),
                "HEADGATE_URI": self.service.uri,
            },
            capture_output=True,
            text=True,
            timeout=RUN_WAIT_S,
            check=False,
        )


@pytest.fixture(scope="module")
def place(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A cluster whose workers find packages, but none that is installed by a path file, as ours is here."""
    if find_java() is None:
        pytest.skip("no Java was found; run through ./dev test, which gets one")
    folder = tmp_path_factory.mktemp("cluster")
    packages = sysconfig.get_paths()["purelib"]
    _write_python(folder / "python", f'PYTHONPATH="$PYTHONPATH:{packages}"')
    _write_python(folder / "bare-python", "NOTHING=1")
    with running_cluster(folder / "spark") as cluster:
        yield Place(folder, cluster, service)


def _write_python(file: Path, setting: str) -> None:
    file.write_text(f'#!/bin/sh\nexec env {setting} {sys.executable} -S "$@"\n')
    file.chmod(0o755)


def _summary(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_pipeline_runs_on_both_workers_with_the_package_that_was_sent(place: Place) -> None:
    (place.folder / "rows.csv").write_text("id\n" + "".join(f"{number}\n" for number in range(100)))
    (place.folder / "package_job.py").write_text(PIPELINE)
    done = _summary(place.run("run", "package_job.py", "--json"))
    assert (done["rows"], done["table-was-made"]) == (100, True)
    catalog = RestCatalog("cluster", uri=place.service.uri)
    rows = catalog.load_table("cluster.numbers").scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(range(100))
    packages = set(rows["package"].to_pylist())
    assert packages
    assert {
        one for one in packages if not re.search(r"/headgate-[^/]+\.zip/headgate/__init__\.pyc?$", one)
    } == set()
    assert [bool(list(worker.glob("app-*"))) for worker in place.cluster.workers] == [True, True]
    audit_namespace(catalog, place.service.uri, "cluster")


def test_a_stream_on_the_cluster_brings_every_row_once(place: Place) -> None:
    (place.folder / "stream.toml").write_text(
        """
        [sources.demo]
        format = "headgate-demo"
        options = { rows = 60, rows-per-second = 1000, rows-per-batch = 25 }
        [target]
        table = "cluster.payments"
        create = true
        [schedule]
        run = "stream"
        checkpoint = "checkpoint"
        stop-when-idle-seconds = 4
        """
    )
    done = _summary(place.run("run", "stream.toml", "--json"))
    assert done["rows"] == 60
    found = RestCatalog("cluster", uri=place.service.uri).load_table("cluster.payments").scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(60))


def test_a_task_that_spark_runs_twice_brings_its_rows_once(place: Place, tmp_path: Path) -> None:
    namespace = f"twice_{uuid4().hex[:8]}"
    catalog = RestCatalog("cluster", uri=place.service.uri)
    catalog.create_namespace(namespace)
    plan = JobsPlan(place.cluster.master, place.service.uri, namespace, str(tmp_path), road="", version=2)
    assert _run_jobs(place, plan, "speculative_job") == dict.fromkeys((NATIVE, PYTHON), ROWS)
    for road in (NATIVE, PYTHON):
        assert {"0.0", "0.1"} <= {mark.name for mark in (tmp_path / road).iterdir()}
        found = catalog.load_table((namespace, road)).scan().to_arrow()["id"].to_pylist()
        assert sorted(found) == list(range(ROWS))
    audit_namespace(catalog, place.service.uri, namespace)


def test_workers_without_our_dependencies_are_named_before_any_work(place: Place) -> None:
    (place.folder / "rows.csv").write_text("id\n1\n")
    words = ["ingest", "rows.csv", "--into", "cluster.none", "--create"]
    done = place.run(*words, python=place.folder / "bare-python")
    assert done.returncode == 2, done.stderr[-4000:]
    assert "workers lack what our code needs" in done.stderr
    assert "No module named 'msgspec'" in done.stderr
    assert "install headgate[spark] there" in done.stderr


@pytest.fixture(scope="module")
def bucket(
    postgres_url: str, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    """A service on PostgreSQL whose tables are in a bucket."""
    folder = tmp_path_factory.mktemp("s3-service")
    with running_s3_lake(s3_server, folder, database=postgres_url) as lake:
        yield lake


def _run_jobs(place: Place, plan: JobsPlan, module: str = "cluster_jobs") -> dict[str, object]:
    """All jobs of a plan by one driver on the cluster."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    return _summary(
        subprocess.run(
            [sys.executable, "-m", f"tests.spark.{module}", plan.to_argument()],
            env={**inherited, "PYSPARK_PYTHON": str(place.folder / "python")},
            capture_output=True,
            text=True,
            timeout=RUN_WAIT_S,
            check=False,
        )
    )


def _find_jars() -> tuple[str, ...]:
    """The Iceberg jar, and Hadoop's file system for S3, which Spark's own writer and the jar go through."""
    try:
        return tuple(map(str, (load_iceberg_jar(), *load_s3_jars())))
    except JarError as error:
        pytest.skip(str(error))


def _expected() -> dict[int, tuple[str, str]]:
    """Kind and amount of every row that the jobs leave, by its id."""
    rows = {id_: (f"k{id_ % 3}", f"{id_}.00") for id_ in (*range(60), *range(100, 120))}
    gone = [id_ for id_ in rows if id_ % 10 == 3] + [4, 115, 7]
    rows |= {id_: ("raised", f"{id_ + 1000}.00") for id_ in (5, 6, 105)}
    rows |= {id_: ("merged", f"{id_}.00") for id_ in range(58, 62)}
    rows |= {id_: ("late", f"{id_}.00") for id_ in (200, 201)}
    return {id_: row for id_, row in rows.items() if id_ not in gone}


@pytest.mark.s3
@pytest.mark.parametrize(("road", "version"), [(NATIVE, 2), (PYTHON, 3)])
def test_every_kind_of_job_runs_on_postgresql_and_a_bucket(
    place: Place,
    bucket: Lake,
    s3_server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    road: str,
    version: int,
) -> None:
    jars = _find_jars() if road == NATIVE else ()  # the other road needs none, neither to write nor to read
    namespace = f"jobs_{uuid4().hex[:8]}"
    done = _run_jobs(
        place,
        JobsPlan(
            master=place.cluster.master,
            uri=bucket.uri,
            namespace=namespace,
            folder=str(tmp_path),
            road=road,
            version=version,
            storage=dict(bucket.storage),
            iceberg_jar=jars[0] if jars else None,
            jars=jars,
        ),
    )
    by_jar = done.pop("read_by_jar", None)
    assert done == {
        "write": 60,
        "stream": 20,
        "delete": [8, 2],
        "update": 3,
        "merge": [2, 2],
        "compact": [True, 0],
        "refresh": ["rebuilt", "incremental"],
        "upkeep": [True, True, []],
    }
    catalog = bucket.catalog()
    found = catalog.load_table((namespace, "payments")).scan().to_arrow().to_pylist()
    rows = {row["id"]: (row["kind"], str(row["amount"])) for row in found}
    assert rows == _expected()
    assert len(found) == len(rows)
    if jars:
        assert by_jar == sorted([id_, kind, amount] for id_, (kind, amount) in rows.items())
    view = catalog.load_table((namespace, "by_kind")).scan().to_arrow().to_pylist()
    assert {row["kind"]: row["payments"] for row in view} == {
        kind: [row[0] for row in rows.values()].count(kind) for kind, _ in rows.values()
    }
    for name, value in environment_of(s3_server).items():
        monkeypatch.setenv(name, value)
    for table in ("payments", "by_kind"):
        audit_table(bucket.uri, f"{namespace}.{table}")
