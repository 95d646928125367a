"""Pipeline files: what a sound one says, and that every wrong one is refused with the file and the key at fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import BadInput
from headgate.spark.pipeline_file import read_pipeline
from headgate.spark.pipeline_spec import MergeSpec, Pipeline, ScheduleSpec, TableShape

MINIMAL = """
[sources.raw]
path = "landing/*.parquet"
[target]
table = "shop.payments"
"""
STREAM = """
[sources.demo]
format = "headgate-demo"
[target]
table = "shop.payments"
[schedule]
run = "stream"
checkpoint = "checkpoint"
"""


def read(tmp_path: Path, text: str, name: str = "payments.toml") -> Pipeline:
    file = tmp_path / name
    file.write_text(text)
    return read_pipeline(file)


def refusal(tmp_path: Path, text: str, name: str = "payments.toml") -> str:
    with pytest.raises(BadInput) as refused:
        read(tmp_path, text, name)
    assert refused.value.message.startswith(str(tmp_path / name.rpartition(":")[2]))
    return refused.value.message


def test_a_file_with_a_source_and_a_target_is_a_pipeline(tmp_path: Path) -> None:
    found = read(tmp_path, MINIMAL)
    assert (found.name, found.target.table, found.target.mode) == ("payments", "shop.payments", "append")
    source = found.sources["raw"]
    assert (source.format, source.paths) == ("parquet", (str(tmp_path / "landing/*.parquet"),))


def test_everything_that_a_file_can_say_is_in_the_value(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        name = "nightly"
        [lake]
        uri = "http://lake:8181"
        storage = { "s3.endpoint" = "http://minio:9000", "s3.path-style-access" = true }
        [spark]
        master = "spark://cluster:7077"
        conf = { "spark.executor.cores" = 2 }
        py-files = ["rules.zip", "s3://lib/more.zip"]
        [sources.fresh]
        format = "csv"
        path = ["s3://landing/a", "b.csv"]
        schema = "id BIGINT"
        options = { sep = ";", header = false }
        [sources.old]
        table = "shop.payments"
        snapshot-id = 17
        [transform]
        sql = "SELECT fresh.* FROM fresh LEFT ANTI JOIN old USING (id)"
        [target]
        table = "shop.payments"
        isolation = "none"
        create = true
        partition-by = ["day(at)", "bucket(4, id)"]
        sort-by = "id"
        properties = { "format-version" = 3 }
        summary = { "job" = "nightly" }
        [target.merge]
        on = ["id"]
        when-matched-update = { amount = "source.amount" }
        when-matched-delete = "source.gone"
        when-not-matched-insert = "all"
        mode = "merge-on-read"
        """,
    )
    assert (found.name, found.uri, found.master) == ("nightly", "http://lake:8181", "spark://cluster:7077")
    assert found.storage == {"s3.endpoint": "http://minio:9000", "s3.path-style-access": "true"}
    assert found.conf == {"spark.executor.cores": "2"}
    assert found.py_files == (str(tmp_path / "rules.zip"), "s3://lib/more.zip")
    assert found.sources["fresh"].options == {"sep": ";", "header": "false"}
    assert found.sources["fresh"].paths == ("s3://landing/a", str(tmp_path / "b.csv"))
    assert (found.sources["old"].table, found.sources["old"].snapshot_id) == ("shop.payments", 17)
    assert (found.target.mode, found.target.isolation) == ("merge", None)
    assert found.target.create == TableShape(("day(at)", "bucket(4, id)"), ("id",), {"format-version": "3"})
    assert found.target.merge == MergeSpec(
        on=("id",),
        when_matched_update={"amount": "source.amount"},
        when_matched_delete="source.gone",
        when_not_matched_insert="all",
        mode="merge-on-read",
    )


def test_a_stream_has_its_checkpoint_beside_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, STREAM + 'trigger = "5 seconds"\nfold = true\nstop-when-idle-seconds = 3\n')
    assert found.schedule == ScheduleSpec("stream", str(tmp_path / "checkpoint"), "5 seconds", True, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MINIMAL.replace("table", "tabel"), "target.table: needed"),
        (MINIMAL + 'mood = "append"', "target.mood: no such key; did you mean mode?"),
        (MINIMAL + 'xyz = "append"', "target.xyz: no such key; known are branch, create, filter"),
        (MINIMAL + 'mode = "apend"', "target.mode: expected one of append, overwrite"),
        (MINIMAL + 'mode = "apend"', "did you mean append?"),
        (MINIMAL + "mode = 3", "target.mode: expected text, got '3'"),
        (MINIMAL + 'create = "yes"', "target.create: expected true or false, got 'yes'"),
        (MINIMAL + 'partition-by = "x"', "target.partition-by: only goes with create = true"),
        (MINIMAL + 'filter = "id = 1"', "target.filter: only mode = 'overwrite' takes one"),
        (MINIMAL + 'mode = "merge"', "target.merge: needed for mode = 'merge'"),
        (MINIMAL + '[target.merge]\nwhen-matched-update = "all"', "target.merge.on: needed"),
        (MINIMAL + '[target.merge]\non = "id"', "target.merge.when-matched-update: needed"),
        (MINIMAL + '[target.merge]\non = "id"\nwhen-matched-update = "x"', 'expected "all" or a table'),
        (MINIMAL + "[target.merge]\non = 'id'\nattempts = 0", "target.merge.attempts: expected a number from 1 on"),
        (MINIMAL + "[targets]", "targets: no such key; did you mean target?"),
        (MINIMAL + '[schedule]\ntrigger = "1 second"', "schedule.trigger: only goes with run = 'stream'"),
        (MINIMAL + "[schedule]\nfold = true", "schedule.fold: only goes with run = 'stream'"),
        (MINIMAL + '[transform]\nsql = "SELECT 1"\nsql-file = "x"', "transform.sql-file: does not go with sql"),
        (MINIMAL + '[transform]\nsql-file = "x.sql"', "transform.sql-file: cannot read x.sql"),
        (MINIMAL + '[transform]\npython = "rules"', "transform.python: expected module:function"),
        (MINIMAL + '[transform]\npython = "no_such:f"', "transform.python: no module no_such"),
        (MINIMAL + '[transform]\npython = "json:no_such"', "module json has no function no_such"),
        (MINIMAL + '[lake.storage]\n"s3.secret-access-key" = "x"', "a secret does not belong here"),
        (MINIMAL.replace('"shop.payments"', '"payments"'), "target.table: expected namespace and name"),
        (MINIMAL.replace(".parquet", ""), "sources.raw.format: needed"),
        (MINIMAL.replace("path", 'table = "shop.a"\npath'), "sources.raw.format: does not go with table"),
        (MINIMAL.replace("path", "branch = 'b'\npath"), "sources.raw.branch: only goes with table"),
        (MINIMAL.replace("path", "pathh"), "sources.raw.pathh: no such key; did you mean path?"),
        (MINIMAL.replace("sources.raw", 'sources."a b"'), "sources.a b: a source is named by a plain word"),
        (MINIMAL.replace("[sources.raw]", "[sources.raw]\nformat = 'csv'\noptions.x = [1]"), "options.x: expected text"),
        (MINIMAL + '[sources.more]\npath = "x.csv"', "transform: needed: there are 2 sources"),
        ("[target]\ntable = 'a.b'", "sources: needed"),
        ("sources = 3", "sources: expected a table, got '3'"),
        ("[sources", "not valid TOML"),
        (STREAM.replace('checkpoint = "checkpoint"', ""), "schedule.checkpoint: a stream needs one"),
        (STREAM.replace("[schedule]", 'mode = "overwrite"\n[schedule]'), "target.mode: a stream appends"),
        (STREAM.replace("format", "static = true\nformat"), "sources: a stream needs one that is neither"),
        (STREAM + "stop-when-idle-seconds = -1", "schedule.stop-when-idle-seconds: expected a whole number"),
    ],
)  # fmt: skip
def test_a_wrong_key_or_value_is_refused_by_its_name(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text)


def test_a_file_of_another_kind_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"a\.yaml: expected a file that ends in \.toml or \.py"):
        read(tmp_path, "", "a.yaml")
    with pytest.raises(BadInput, match="cannot be read"):
        read_pipeline(tmp_path / "nothing.toml")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(BadInput, match="not UTF-8"):
        read_pipeline(tmp_path / "latin.toml")


PYTHON = """
pipeline = {"sources": {"raw": {"path": "x.csv"}}, "target": {"table": "shop.payments"}}

def transform(raw):
    return raw
"""


def test_a_python_file_brings_its_own_transform(tmp_path: Path) -> None:
    found = read(tmp_path, PYTHON, "payments.py")
    assert found.transform.function is not None
    assert found.transform.function("rows") == "rows"
    assert found.sources["raw"].paths == (str(tmp_path / "x.csv"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "has no pipeline"),
        ("pipeline = 3", "expected a table, got '3'"),
        (PYTHON.replace("def transform(raw):", "transform = 3\ndef other(raw):"), "transform: expected a function"),
        (PYTHON + "\n1 / 0\n", "payments.py:7: ZeroDivisionError"),
        (PYTHON + "\nthis is no Python\n", "payments.py: SyntaxError"),
        (PYTHON.replace('"target"', '"transform": {"sql": "SELECT 1"}, "target"'), "does not go with the function"),
    ],
)  # fmt: skip
def test_a_wrong_python_file_is_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text, "payments.py")


def test_a_function_is_found_in_a_module_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "beside_the_file.py").write_text("def clean(raw):\n    return raw\n")
    found = read(tmp_path, MINIMAL + '[transform]\npython = "beside_the_file:clean"')
    assert found.transform.function is not None
    assert found.transform.function.__name__ == "clean"


def test_a_module_that_cannot_be_loaded_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken_rules.py").write_text("x = 1\nraise RuntimeError('broken')\n")
    said = refusal(tmp_path, MINIMAL + '[transform]\npython = "broken_rules:clean"')
    assert "transform.python: broken_rules.py:2: RuntimeError: broken" in said
