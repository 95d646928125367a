"""Unmodified engines on one table: 16 PyIceberg processes and 4 Spark writers, with server-side rebase and without.

    ./dev bench rebase [--pyiceberg 16] [--spark 4] [--commits 25] [--file FILE]

Every writer appends small batches with its library's default retries; with the table property headgate.rebase the service
puts an append that lost its race on the moved head, without it the client has to. Lost is a commit that the library gave
up on; 409s are counted by the service. At the end the rows that were acknowledged must be in the table, once, by the
count of both engines, and the structural audit must be clean. PyIceberg writers are processes, Spark writers are
threads with a session each in one JVM.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.rest import RestCatalog
from tools.service_process import Service, running_service

from bench.common import (
    NAMESPACE,
    Json,
    Shape,
    audit,
    count_commit_answers,
    create_namespace,
    create_table,
    open_table,
    read_metrics,
    says,
    summarise,
    write_result,
)
from bench.ground import fresh_folder
from bench.measurements_page import write_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_COMMIT = 10
_IDS_PER_WRITER = 1_000_000
_START_WAIT_S = 600.0
_REBASE = {"headgate.rebase": "append,replace"}
_SCHEMA: Json = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "writer", "required": False, "type": "string"},
    ],
}


def ids_of(writer: int, commit: int) -> list[int]:
    """The ids of one commit, which no other commit has."""
    first = writer * _IDS_PER_WRITER + commit * ROWS_PER_COMMIT
    return list(range(first, first + ROWS_PER_COMMIT))


def make_outcome(kind: str, times: list[float], errors: list[str], acknowledged: list[int]) -> Json:
    """What one writer has to say."""
    return {"kind": kind, "times": times, "errors": errors, "acknowledged": acknowledged}


def write_pyiceberg(
    uri: str, table: str, writer: int, commits: int, barrier: Barrier, results: multiprocessing.Queue[Json]
) -> None:
    """In a process of its own: append, with PyIceberg's defaults."""
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("writer", pa.string())])
    loaded = RestCatalog(NAMESPACE, uri=uri).load_table((NAMESPACE, table))
    times: list[float] = []
    errors: list[str] = []
    acknowledged: list[int] = []
    barrier.wait(_START_WAIT_S)
    for commit in range(commits):
        ids = ids_of(writer, commit)
        batch = pa.table([ids, [f"pyiceberg-{writer}"] * len(ids)], schema=schema)
        started = time.perf_counter()
        try:
            loaded.append(batch)
        except Exception as error:  # a bench counts every way to lose a commit
            errors.append(f"{type(error).__name__}: {str(error)[:200]}")
            loaded = RestCatalog(NAMESPACE, uri=uri).load_table((NAMESPACE, table))
        else:
            acknowledged.extend(ids)
        times.append(time.perf_counter() - started)
    results.put(make_outcome("pyiceberg", times, errors, acknowledged))


def write_spark(session: SparkSession, name: str, writer: int, commits: int, outcomes: list[Json]) -> None:
    """In a thread of its own: INSERT, with Spark's defaults."""
    times: list[float] = []
    errors: list[str] = []
    acknowledged: list[int] = []
    for commit in range(commits):
        ids = ids_of(writer, commit)
        rows = ", ".join(f"({one}, 'spark-{writer}')" for one in ids)
        started = time.perf_counter()
        try:
            session.sql(f"INSERT INTO {name} VALUES {rows}")
        except Exception as error:  # a bench counts every way to lose a commit
            errors.append(f"{type(error).__name__}: {str(error)[:200]}")
        else:
            acknowledged.extend(ids)
        times.append(time.perf_counter() - started)
    outcomes.append(make_outcome("spark", times, errors, acknowledged))


def open_sessions(spark: SparkSession | None, service: Service, count: int) -> list[SparkSession]:
    """A session for each writer, with a catalog of its own."""
    if spark is None:
        return []
    from tools.spark_local import use_catalog  # Spark is imported only by a run that asks for it

    sessions = [spark.newSession() for _ in range(count)]
    for session in sessions:
        use_catalog(session, "lake", service.uri)
        session.sql(f"SELECT count(*) FROM lake.{NAMESPACE}.warm_up").collect()
    return sessions


def race(service: Service, table: str, spark: SparkSession | None, asked: argparse.Namespace) -> list[Json]:
    """All writers at once; what each says."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(asked.pyiceberg + 1), context.Queue()
    processes = [
        context.Process(
            target=write_pyiceberg, args=(service.uri, table, writer, asked.commits, barrier, results)
        )
        for writer in range(asked.pyiceberg)
    ]
    for process in processes:
        process.start()
    sessions = open_sessions(spark, service, asked.spark)
    outcomes: list[Json] = []
    threads = [
        threading.Thread(
            target=write_spark,
            args=(session, f"lake.{NAMESPACE}.{table}", asked.pyiceberg + number, asked.commits, outcomes),
        )
        for number, session in enumerate(sessions)
    ]
    barrier.wait(_START_WAIT_S)
    for thread in threads:
        thread.start()
    found = [results.get(timeout=_START_WAIT_S) for _ in processes]
    for process in processes:
        process.join()
    for thread in threads:
        thread.join()
    return found + outcomes


def verify(service: Service, table: str, spark: SparkSession | None, acknowledged: list[int]) -> Json:
    """Rows by both engines, against what was acknowledged."""
    ids = open_table(service, table).scan(selected_fields=("id",)).to_arrow()["id"]
    there = set(ids.to_pylist())
    found: Json = {
        "expected_rows": len(acknowledged),
        "pyiceberg_rows": len(ids),
        "pyiceberg_distinct": pc.count_distinct(ids).as_py(),
        "missing": len(set(acknowledged) - there),
        "not_acknowledged": len(there - set(acknowledged)),
    }
    counts = [found["pyiceberg_rows"], found["pyiceberg_distinct"]]
    if spark is not None:
        session = open_sessions(spark, service, 1)[0]
        query = f"SELECT count(*), count(DISTINCT id) FROM lake.{NAMESPACE}.{table}"
        found["spark_rows"], found["spark_distinct"] = session.sql(query).collect()[0]
        counts += [found["spark_rows"], found["spark_distinct"]]
    found["exact"] = all(count == len(acknowledged) for count in counts) and not found["missing"]
    return found


def measure(service: Service, name: str, spark: SparkSession | None, asked: argparse.Namespace) -> Json:
    """One race on a new table, verified."""
    rebased = name == "rebased"
    create_table(service.port, name, Shape(schema=_SCHEMA, properties=_REBASE if rebased else {}))
    before = read_metrics(service.port)
    started = time.perf_counter()
    outcomes = race(service, name, spark, asked)
    elapsed = time.perf_counter() - started
    after = read_metrics(service.port)
    refused, landed = (count_commit_answers(after, s) - count_commit_answers(before, s) for s in (409, 200))
    errors = [error for outcome in outcomes for error in outcome["errors"]]
    answered = sum(len(outcome["acknowledged"]) for outcome in outcomes) // ROWS_PER_COMMIT
    if landed < answered:  # else no 409 could be seen either, and its absence would prove nothing
        raise RuntimeError(f"the service counted {landed} commits where writers saw {answered}")
    found: Json = {
        "seconds_with_start": elapsed,
        "commits": sum(len(outcome["times"]) for outcome in outcomes),
        "lost": len(errors),
        "first_errors": errors[:5],
        "answers_409": refused,
        **{
            kind: {
                "lost": sum(len(o["errors"]) for o in outcomes if o["kind"] == kind),
                **summarise([t for o in outcomes if o["kind"] == kind for t in o["times"]]),
            }
            for kind in ("pyiceberg", "spark")
        },
        **verify(service, name, spark, [one for outcome in outcomes for one in outcome["acknowledged"]]),
        "audit": audit(service, name),
    }
    exact = "exact" if found["exact"] else "WRONG"
    print(
        f"{'with headgate.rebase' if rebased else 'without':22s}{found['commits']:5d} commits   lost {found['lost']:4d}"
        f"   409s {refused:5d}   rows {found['pyiceberg_rows']} ({exact})"
        f"   audit {'clean' if found['audit']['sound'] else 'NOT CLEAN'}"
    )
    for kind in ("pyiceberg", "spark"):
        row = found[kind]
        print(
            f"    {kind:12s}{row['count']:5d} commits   lost {row['lost']:4d}   p50 {row['p50_ms']:8.0f} ms"
            f"   p99 {row['p99_ms']:8.0f} ms",
            flush=True,
        )
    if rebased:
        clean = not found["lost"] and not refused and found["exact"] and found["audit"]["sound"]
        found["reached"] = clean
        print(f"    goal: lost 0, 409s 0, rows exact, audit clean: {says(clean)}", flush=True)
    return found


def run(asked: argparse.Namespace) -> Json:
    """Without, then with; one service and one JVM for both."""
    with fresh_folder() as folder, running_service(folder / "service") as service:
        create_namespace(service.port)
        create_table(service.port, "warm_up", Shape(schema=_SCHEMA))
        spark = None
        if asked.spark:
            from tools.iceberg_jar import load_iceberg_jar  # Spark is imported only by a run that asks for it
            from tools.spark_local import open_spark

            spark = open_spark("headgate-bench", jar=load_iceberg_jar(), folder=folder / "spark")
        try:
            return {name: measure(service, name, spark, asked) for name in ("plain", "rebased")}
        finally:
            if spark is not None:
                spark.stop()


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, keep the figures; 1 when rows or structure are not as they should be."""
    parser = argparse.ArgumentParser(prog="bench rebase", description=__doc__)
    parser.add_argument("--pyiceberg", type=int, default=16, help="PyIceberg writers")
    parser.add_argument("--spark", type=int, default=4, help="Spark writers; 0 needs no Java")
    parser.add_argument("--commits", type=int, default=25, help="commits of each writer")
    parser.add_argument(
        "--file", type=Path, help="where the figures go, instead of bench/results/rebase.json"
    )
    asked = parser.parse_args(words)
    found = run(asked)
    write_result("rebase", found, file=asked.file)
    if asked.file is None:
        write_page()
    return 0 if all(row["exact"] and row["audit"]["sound"] for row in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
