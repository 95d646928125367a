"""Pipelines against a service: every kind of source, transform and mode, once and as a stream."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate.client.keys import new_key
from headgate.errors import BadInput, HeadgateError, JobFailed
from headgate.spark.demo_source import Demo, payments
from headgate.spark.lake import Lake
from headgate.spark.pipeline import PipelineRun, run_pipeline
from headgate.spark.pipeline_file import read_pipeline
from headgate.spark.pipeline_spec import (
    MergeSpec,
    Pipeline,
    ScheduleSpec,
    SourceSpec,
    TableShape,
    TargetSpec,
    TransformSpec,
)
from tests.spark.tables import Tables, in_order

CSV = "id,name\n1,a\n2,b\n3,c\n"


@pytest.fixture
def csv(tmp_path: Path) -> SourceSpec:
    """A file of three rows."""
    (tmp_path / "rows.csv").write_text(CSV)
    return SourceSpec(format="csv", paths=(str(tmp_path / "rows.csv"),))


def pipeline_of(tables: Tables, source: SourceSpec, **target: object) -> Pipeline:
    wanted = TargetSpec(table=f"{tables.namespace}.t", create=TableShape(), **target)  # type: ignore[arg-type]
    return Pipeline("test", {"raw": source}, wanted)


def run(tables: Tables, pipeline: Pipeline, **options: object) -> PipelineRun:
    return run_pipeline(tables.spark, tables.lake, pipeline, **options)  # type: ignore[arg-type]


def test_a_csv_file_becomes_a_table_with_its_columns(tables_v2: Tables, csv: SourceSpec) -> None:
    said: list[str] = []
    done = run(tables_v2, pipeline_of(tables_v2, csv), say=said.append)
    assert (done.was_created, done.rows, done.files, done.mode) == (True, 3, 1, "append")
    assert done.size_bytes > 0
    assert tables_v2.rows("t") == [(1, "a"), (2, "b"), (3, "c")]
    assert said[0].startswith("test: raw → ")


def test_a_second_run_finds_the_table_and_appends(tables_v2: Tables, csv: SourceSpec) -> None:
    run(tables_v2, pipeline_of(tables_v2, csv))
    done = run(tables_v2, pipeline_of(tables_v2, csv))
    assert not done.was_created
    assert len(tables_v2.rows("t")) == 6


def test_a_made_table_has_the_partitions_order_and_properties_that_were_asked_for(
    tables_v2: Tables, csv: SourceSpec
) -> None:
    shape = TableShape(("bucket(4, id)", "name"), ("id desc",), {"format-version": "3", "owner": "shop"})
    pipeline = pipeline_of(tables_v2, csv)
    run(tables_v2, replace(pipeline, target=replace(pipeline.target, create=shape)))
    state = tables_v2.table("t").load()
    assert [str(field.transform) for field in state.spec.fields] == ["bucket[4]", "identity"]
    assert [str(field.direction) for field in state.sort_order.fields] == ["DESC"]
    assert (state.format_version, state.properties["owner"]) == (3, "shop")
    assert len(tables_v2.rows("t")) == 3


def test_sql_sees_every_source_and_a_table_of_the_lake_is_one(tables_v2: Tables, csv: SourceSpec) -> None:
    tables_v2.create("names", "name STRING, long_name STRING")
    tables_v2.sql(f"INSERT INTO {tables_v2.name('names')} VALUES ('a', 'Anna'), ('b', 'Bert')")
    pipeline = replace(
        pipeline_of(tables_v2, csv),
        sources={"raw": csv, "names": SourceSpec(table=f"{tables_v2.namespace}.names")},
        transform=TransformSpec(sql="SELECT id, long_name FROM raw JOIN names USING (name)"),
    )
    assert run(tables_v2, pipeline).rows == 2
    assert tables_v2.rows("t") == [(1, "Anna"), (2, "Bert")]


def test_a_function_gets_the_sources_that_its_parameters_name(tables_v2: Tables, csv: SourceSpec) -> None:
    def double(raw: DataFrame, spark: SparkSession, factor: int = 2) -> DataFrame:
        assert spark.version
        return raw.selectExpr(f"id * {factor} AS id", "name")

    run(tables_v2, replace(pipeline_of(tables_v2, csv), transform=TransformSpec(function=double)))
    assert tables_v2.rows("t") == [(2, "a"), (4, "b"), (6, "c")]


def test_a_python_file_runs_its_own_code_on_executors(tables_v2: Tables, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(CSV)
    file = tmp_path / "upper.py"
    file.write_text(
        "from pyspark.sql import functions as sf\n"
        f"pipeline = {{'sources': {{'raw': {{'path': 'rows.csv'}}}},\n"
        f"            'target': {{'table': '{tables_v2.namespace}.t', 'create': True}}}}\n"
        "def shout(text):\n    return text.upper() + '!'\n"
        "def transform(raw):\n    return raw.withColumn('name', sf.udf(shout)('name'))\n"
    )
    run(tables_v2, read_pipeline(file))
    assert tables_v2.rows("t") == [(1, "A!"), (2, "B!"), (3, "C!")]


def test_overwrite_replaces_what_its_filter_matches(tables_v2: Tables, csv: SourceSpec) -> None:
    tables_v2.create("t", "id INT, name STRING", partitioned="id")
    tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} VALUES (2, 'old'), (9, 'stays')")
    run(tables_v2, pipeline_of(tables_v2, csv, mode="overwrite", filter="id <= 3"))
    assert tables_v2.rows("t") == [(1, "a"), (2, "b"), (3, "c"), (9, "stays")]


def test_replace_partitions_replaces_the_partitions_of_the_rows(tables_v2: Tables, csv: SourceSpec) -> None:
    tables_v2.create("t", "id INT, name STRING", partitioned="id")
    tables_v2.sql(f"INSERT INTO {tables_v2.name('t')} VALUES (2, 'old'), (9, 'stays')")
    run(tables_v2, pipeline_of(tables_v2, csv, mode="replace_partitions"))
    assert tables_v2.rows("t") == [(1, "a"), (2, "b"), (3, "c"), (9, "stays")]


def test_merge_updates_deletes_and_inserts_by_one_commit(tables: Tables, csv: SourceSpec) -> None:
    tables.create("t", "id INT, name STRING")
    tables.sql(f"INSERT INTO {tables.name('t')} VALUES (1, 'old'), (2, 'old'), (9, 'stays')")
    wish = MergeSpec(("id",), "all", None, "source.name = 'b'", "all")
    done = run(tables, pipeline_of(tables, csv, mode="merge", merge=wish))
    assert (done.updated, done.deleted, done.rows) == (1, 1, 1)
    assert tables.rows("t") == [(1, "a"), (3, "c"), (9, "stays")]


def test_a_merge_with_attempts_may_be_repeated_under_its_key(tables_v2: Tables, csv: SourceSpec) -> None:
    tables_v2.create("t", "id INT, name STRING")
    key, wish = new_key(), MergeSpec(("id",), when_not_matched_insert="all", attempts=5)
    done = run(tables_v2, pipeline_of(tables_v2, csv, mode="merge", merge=wish), key=key)
    assert (done.key, done.rows) == (key, 3)


def test_a_run_with_a_key_that_has_landed_does_nothing_again(tables_v2: Tables, csv: SourceSpec) -> None:
    key, pipeline = new_key(), pipeline_of(tables_v2, csv)
    first = run(tables_v2, pipeline, key=key)
    again = run(tables_v2, pipeline, key=key)
    assert (first.key, first.was_done_before) == (key, False)
    assert (again.key, again.was_done_before, again.rows) == (key, True, 0)
    assert len(tables_v2.rows("t")) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": {"table": "nowhere.t", "create": None}}, "target.table: "),
        ({"target": {"create": TableShape(("day(at)",))}}, "partition-by: no column at in the rows"),
        ({"target": {"create": TableShape(("dai(id)",))}}, "partition-by: no transform dai.*did you mean day"),
        ({"target": {"create": TableShape(("bucket(id)",))}}, r"partition-by: expected bucket\(16, id\)"),
        ({"target": {"create": TableShape((), ("nam",))}}, "sort-by: no column nam in the rows; did you mean name"),
        ({"transform": TransformSpec(sql="SELECT nope FROM raw")}, "transform.sql: .*nope"),
        ({"transform": TransformSpec(sql="DROP TABLE raw")}, "transform.sql: expected a SELECT"),
        ({"transform": TransformSpec(sql="SELECT 1 AS id, NULL AS x FROM raw")}, "column x: has no type"),
        ({"transform": TransformSpec(function=lambda other: other)}, "parameter other of <lambda> is no source"),
        ({"transform": TransformSpec(function=lambda raw: 3)}, "gave int, not a DataFrame"),
        ({"transform": TransformSpec(function=lambda raw: 1 / 0)}, "<lambda> raised ZeroDivisionError"),
        ({"sources": {"raw": SourceSpec(format="csv", paths=("/no/such/file.csv",))}}, "sources.raw: .*no/such"),
        ({"sources": {"raw": SourceSpec(format="no-such-format")}}, "sources.raw: .*no-such-format"),
        ({"sources": {"raw": SourceSpec(format="headgate-demo")}}, "sources.raw: headgate-demo has no end"),
        ({"sources": {"raw": SourceSpec(table="no.where")}}, "no.where"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_name_and_leaves_no_table(
    tables_v2: Tables, csv: SourceSpec, changes: Mapping[str, object], said: str
) -> None:
    pipeline = pipeline_of(tables_v2, csv)
    others = {**changes, "target": replace(pipeline.target, **changes.get("target", {}))}  # type: ignore[arg-type]
    with pytest.raises(HeadgateError, match=said):
        run(tables_v2, replace(pipeline, **others))  # type: ignore[arg-type]
    assert tables_v2.lake.catalog().list_tables(tables_v2.namespace) == []


def test_a_line_that_cannot_be_read_stops_the_job_and_commits_nothing(
    tables_v2: Tables, tmp_path: Path
) -> None:
    tables_v2.create("t", "id INT, name STRING")
    (tmp_path / "bad.csv").write_text("id,name\n1,a\nx,b\n")
    bad = SourceSpec(format="csv", paths=(str(tmp_path / "bad.csv"),), schema="id INT, name STRING")
    with pytest.raises(JobFailed, match="the Spark job failed"):
        run(tables_v2, pipeline_of(tables_v2, bad))
    assert tables_v2.rows("t") == []


def stream_of(tables: Tables, source: SourceSpec, checkpoint: Path, **schedule: object) -> Pipeline:
    said = ScheduleSpec("stream", str(checkpoint), **schedule)  # type: ignore[arg-type]
    return replace(pipeline_of(tables, source), schedule=said)


def test_a_stream_of_files_brings_each_of_them_once_over_restarts(tables_v2: Tables, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    source = SourceSpec(format="csv", paths=(str(landing),), schema="id INT, name STRING")
    pipeline = stream_of(tables_v2, source, tmp_path / "checkpoint", trigger="available-now")
    (landing / "1.csv").write_text(CSV)
    first = run(tables_v2, pipeline)
    idle = run(tables_v2, pipeline)
    (landing / "2.csv").write_text("id,name\n4,d\n")
    second = run(tables_v2, pipeline)
    assert [(one.batches, one.rows) for one in (first, idle, second)] == [(1, 3), (0, 0), (1, 1)]
    assert tables_v2.rows("t") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_the_demo_source_streams_until_nothing_comes_any_more(tables_v2: Tables, tmp_path: Path) -> None:
    options = {"rows": "40", "rows-per-second": "1000", "rows-per-batch": "25", "seed": "7"}
    source = SourceSpec(format="headgate-demo", options=options)
    said: list[str] = []
    done = run(
        tables_v2, stream_of(tables_v2, source, tmp_path / "checkpoint", stop_when_idle_s=3), say=said.append
    )
    assert done.rows == 40
    assert sum("batch" in line for line in said) == done.batches
    assert tables_v2.rows("t") == in_order(payments(Demo(seed=7), 0, 40))


def test_a_stream_that_is_asked_to_stop_ends_in_order(tables_v2: Tables, tmp_path: Path) -> None:
    stop = threading.Event()
    source = SourceSpec(format="headgate-demo", options={"rows-per-second": "50"})
    pipeline = stream_of(tables_v2, source, tmp_path / "checkpoint")
    done = run(
        tables_v2, pipeline, stop=stop, say=lambda text: stop.set() if text.startswith("batch") else None
    )
    assert done.batches is not None
    assert done.batches >= 1
    found = tables_v2.rows("t")
    assert found == in_order(payments(Demo(), 0, len(found)))
    assert len(found) >= done.rows


def test_the_error_that_ends_a_stream_is_the_jobs_own(tables_v2: Tables, tmp_path: Path) -> None:
    tables_v2.create("t", "id STRING, other STRING")
    source = SourceSpec(format="headgate-demo")
    with pytest.raises(BadInput, match="column"):
        run(tables_v2, stream_of(tables_v2, source, tmp_path / "checkpoint"))


@pytest.mark.parametrize(
    ("source", "schedule", "said"),
    [
        (SourceSpec(format="csv", paths=("x",)), {}, "sources.raw.schema: needed"),
        (SourceSpec(format="csv", paths=("x", "y"), schema="id INT"), {}, "sources.raw.path: a stream has one"),
        (SourceSpec(format="headgate-demo", options={"row": "1"}), {}, "option row: not known"),
        (SourceSpec(format="headgate-demo"), {"trigger": "now and then"}, "schedule: .*now and then"),
    ],
)  # fmt: skip
def test_a_stream_that_cannot_begin_is_refused_by_name(
    tables_v2: Tables, tmp_path: Path, source: SourceSpec, schedule: Mapping[str, object], said: str
) -> None:
    with pytest.raises(HeadgateError, match=said):
        run(tables_v2, stream_of(tables_v2, source, tmp_path / "checkpoint", **schedule))


def test_a_stream_takes_no_key_of_the_callers(tables_v2: Tables, tmp_path: Path) -> None:
    pipeline = stream_of(tables_v2, SourceSpec(format="headgate-demo"), tmp_path)
    with pytest.raises(BadInput, match="key: a stream has a key for each of its batches"):
        run(tables_v2, pipeline, key=str(uuid4()))


def test_views_of_the_callers_session_are_left_alone(
    spark: SparkSession, lake: Lake, tables_v2: Tables, csv: SourceSpec
) -> None:
    spark.range(1).createOrReplaceTempView("raw")
    pipeline = replace(pipeline_of(tables_v2, csv), transform=TransformSpec(sql="SELECT * FROM raw"))
    run_pipeline(spark, lake, pipeline)
    assert spark.table("raw").columns == ["id"]
    spark.catalog.dropTempView("raw")
