"""The commands of the command line end to end, in the session of the tests: what they print, and how they end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tools.iceberg_jar import load_iceberg_jar

from headgate.cli.main import main
from headgate.client.keys import new_key
from headgate.spark.lake import Lake
from tests.spark.tables import Tables

CSV = "id,name\n1,a\n2,b\n3,c\n"


@pytest.fixture(autouse=True)
def _as_if_alone(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of its own, and a service that is found by its variable."""
    for name in [name for name in os.environ if name.startswith(("HEADGATE_", "AWS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADGATE_URI", lake.uri)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(CSV)


@pytest.fixture
def name(tables_v2: Tables) -> str:
    """A table of three rows, made by `ingest`."""
    full = f"{tables_v2.namespace}.t"
    assert main(["ingest", "rows.csv", "--into", full, "--create"]) == 0
    return full


def summary(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """The summary that the last command printed as JSON."""
    found: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_ingest_prints_a_table_of_what_it_did(tables_v2: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{tables_v2.namespace}.t"
    assert main(["ingest", "rows.csv", "--into", name, "--create"]) == 0
    printed = capsys.readouterr()
    title, *lines = printed.out.splitlines()
    facts = dict(line.strip().rsplit("  ", 1) for line in lines)
    found = {key.strip(): value for key, value in facts.items()}
    assert title == f"headgate ingest {name}"
    assert (found["table"], found["rows"], found["files"], found["table was made"]) == (name, "3", "1", "yes")
    assert f"input → {name}" in printed.err
    assert tables_v2.rows("t") == [(1, "a"), (2, "b"), (3, "c")]


def test_delete_update_and_merge_change_rows_and_say_how_many(
    name: str, tables_v2: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["delete", name, "--where", "id = 1", "--json"]) == 0
    assert summary(capsys)["rows-deleted"] == 1
    assert main(["update", name, "--set", "name = upper(name)", "--where", "id = 2", "--json"]) == 0
    assert summary(capsys)["rows-updated"] == 1
    (tmp_path / "more.csv").write_text("id,name\n3,new\n4,d\n")
    words = ["more.csv", "--into", name, "--on", "id", "--update", "all", "--insert", "all", "--json"]
    assert main(["merge", *words]) == 0
    done = summary(capsys)
    assert (done["rows-updated"], done["rows-inserted"], done["rows-deleted"]) == (1, 1, 0)
    assert tables_v2.rows("t") == [(2, "B"), (3, "new"), (4, "d")]


def test_a_table_that_needs_the_jar_is_read_with_it_only(
    tables_v2: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{tables_v2.namespace}.t"
    mapping = [{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["name"]}]
    by_name = f"schema.name-mapping.default={json.dumps(mapping)}"
    assert main(["ingest", "rows.csv", "--into", name, "--create", "--property", by_name]) == 0
    words = ["--from-table", name, "--into", f"{name}_copy", "--create"]
    assert main(["ingest", *words]) == 2
    assert "--jar" in capsys.readouterr().err
    assert main(["ingest", *words, "--jar", str(load_iceberg_jar())]) == 0
    assert tables_v2.rows("t_copy") == [(1, "a"), (2, "b"), (3, "c")]


def test_small_files_are_compacted_and_old_snapshots_expire(
    name: str, tables_v2: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", "rows.csv", "--into", name]) == 0
    assert main(["compact", name, "--min-files", "2", "--json"]) == 0
    done = summary(capsys)
    assert (done["groups"], done["files-before"], done["files-after"]) == (1, 2, 1)
    assert main(["expire", name, "--older-than", "0s", "--keep", "1", "--json"]) == 0
    done = summary(capsys)
    assert done["snapshots-expired"] == 2
    assert main(["remove-orphans", name, "--dry-run", "--json"]) == 0
    assert summary(capsys)["files-found"] == 0
    assert len(tables_v2.rows("t")) == 6


def test_a_view_is_made_once_and_followed_afterwards(
    name: str, tables_v2: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    view = f"{tables_v2.namespace}.totals"
    words = [view, "--source", f"rows={name}", "--query", "SELECT count(*) AS rows FROM rows", "--json"]
    assert main(["refresh", *words]) == 0
    made = summary(capsys)
    assert (made["view-was-made"], made["refresh"]) == (True, "rebuilt")
    assert main(["ingest", "rows.csv", "--into", name]) == 0
    capsys.readouterr()
    assert main(["refresh", *words]) == 0
    again = summary(capsys)
    assert (again["view-was-made"], again["refresh"]) == (None, "incremental")


def test_a_pipeline_file_is_run_from_where_it_is(
    tables_v2: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "rows.csv").write_text(CSV)
    (folder / "job.toml").write_text(
        f'[sources.raw]\npath = "rows.csv"\n[target]\ntable = "{tables_v2.namespace}.t"\ncreate = true\n'
    )
    assert main(["run", "jobs/job.toml", "--check"]) == 0
    assert "no faults found" in capsys.readouterr().out
    assert main(["run", "jobs/job.toml", "--json"]) == 0
    done = summary(capsys)
    assert (done["command"], done["rows"], done["table-was-made"]) == ("job", 3, True)


def test_a_key_that_has_landed_is_not_committed_again(
    name: str, tables_v2: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    key = new_key()
    for words in (["ingest", "rows.csv", "--into", name], ["delete", name, "--where", "id = 2"]):
        assert main([*words, "--key", key]) == 0
    assert "landed before, under the same key" in capsys.readouterr().out
    assert len(tables_v2.rows("t")) == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["delete", "{name}", "--where", "nope = 1"], "nope"),
        (["delete", "{name}", "--where", "id ="], "filter: "),
        (["update", "{name}", "--set", "nope = 1", "--where", "true"], "nope"),
        (["merge", "rows.csv", "--into", "{name}", "--on", "nope", "--update", "all"], "nope"),
        (["ingest", "rows.csv", "--into", "{name}", "--sql", "SELECT id, name, 1 AS nope FROM input"], "nope"),
        (["ingest", "rows.csv", "--into", "{name}", "--sql", "SELECT nope FROM input"], "transform.sql: "),
        (["ingest", "rows.csv", "--into", "{name}_none"], "create = true (--create) makes it"),
        (["ingest", "none.csv", "--into", "{name}"], "none.csv"),
        (["compact", "{name}", "--where", "nope = 1"], "nope"),
        (["refresh", "{name}"], "is no view"),
    ],
)  # fmt: skip
def test_bad_input_ends_with_code_2_and_names_the_column_or_file(
    name: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main([word.format(name=name) for word in words]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        ("CommitUnknown('nobody knows', key='k-17')", 3, "commit-unknown: nobody knows; key=k-17"),
        ("ConflictFound('files already removed', rule='x')", 1, "conflict-found: files already removed"),
        ("JobFailed('it broke')", 1, "job-failed: it broke"),
        ("BadInput('column x: what is it')", 2, "column x: what is it"),
        ("KeyboardInterrupt", 130, "interrupted"),
    ],
)
def test_the_exit_code_says_how_a_run_ended(
    tables_v2: Tables,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    raised: str,
    code: int,
    said: str,
) -> None:
    (tmp_path / "job.py").write_text(
        "from headgate.errors import *\n"
        f"pipeline = {{'sources': {{'raw': {{'path': 'rows.csv'}}}}, 'target': {{'table': '{tables_v2.namespace}.t'}}}}\n"
        f"def transform(raw):\n    raise {raised}\n"
    )
    assert main(["run", "job.py"]) == code
    assert capsys.readouterr().err.splitlines()[-1] == f"headgate: {said}"


def test_a_table_that_is_not_there_ends_with_code_1(
    tables_v2: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["delete", f"{tables_v2.namespace}.none", "--where", "true"]) == 1
    assert "not-found" in capsys.readouterr().err


def test_another_master_than_that_of_the_running_session_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["delete", name, "--where", "true", "--master", "spark://elsewhere:7077"]) == 2
    assert "--master: a session at local[2] is running already" in capsys.readouterr().err
