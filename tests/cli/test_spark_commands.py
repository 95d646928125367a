"""The commands that run Spark, as far as they go without it: help, options, and what is refused before a session starts."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from headgate.cli.compact import read_size
from headgate.cli.expire import read_age
from headgate.cli.main import build_parser, main
from headgate.cli.summary import print_summary, shown_size
from headgate.errors import BadInput

SPARK_COMMANDS = ("compact", "delete", "ingest", "merge", "refresh", "run", "update")
COMMANDS = (*SPARK_COMMANDS, "expire", "remove-orphans")
KEY = "01a1e597-7184-70b2-800b-dfb190d8d283"
# For each, the words without which it says nothing wrong.
SOUND: dict[str, list[str]] = {
    "compact": ["shop.payments"],
    "delete": ["shop.payments", "--where", "id = 1"],
    "expire": ["shop.payments"],
    "ingest": ["rows.parquet", "--into", "shop.payments"],
    "merge": ["rows.parquet", "--into", "shop.payments", "--on", "id", "--update", "all"],
    "refresh": ["shop.view"],
    "remove-orphans": ["shop.payments"],
    "run": ["pipeline.toml"],
    "update": ["shop.payments", "--set", "a = 1", "--where", "id = 1"],
}


@pytest.fixture(autouse=True)
def _as_if_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of its own, and no settings from outside."""
    for name in [name for name in os.environ if name.startswith(("HEADGATE_", "AWS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_the_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(command, capsys)
    assert f"\n  headgate {command} " in text
    for code in range(4):
        assert f"\n  {code}  " in text
    for named in ("$HEADGATE_URI", "$HEADGATE_CREDENTIAL", "--token-file"):
        assert named in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_in_help_says_what_it_does(command: str) -> None:
    (subparsers,) = (
        action for action in build_parser()._actions if hasattr(action, "choices") and action.choices
    )
    parser = subparsers.choices[command]  # type: ignore[index]  # a mapping, in argparse's own words
    silent = [action.dest for action in parser._actions if not action.help]
    assert silent == []


@pytest.mark.parametrize("command", COMMANDS)
def test_no_secret_can_be_given_by_a_flag(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--token", "--credential", "--password"):
        with pytest.raises(SystemExit) as ended:
            main([command, *SOUND[command], flag, "x"])
        assert ended.value.code == 2
    assert "unrecognized arguments: --password x" in capsys.readouterr().err


def test_building_the_parser_imports_neither_spark_nor_our_jobs() -> None:
    code = (
        "import sys; from headgate.cli.main import build_parser; build_parser(); "
        "sys.exit(any(name == 'pyspark' or name.startswith('headgate.spark') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_commands_work_without_the_packages_of_the_service() -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; from headgate.cli.main import main; "
        "assert main(['delete', 'x', '--where', 'true']) == 2; sys.exit(main(['serve', '--port', '1']))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "TABLE: expected namespace.table" in done.stderr
    assert "serve needs uvicorn, which is not installed: pip install 'headgate[service]'" in done.stderr


@pytest.mark.parametrize("command", SPARK_COMMANDS)
def test_without_spark_the_way_to_get_it_is_told(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert main([command, *SOUND[command]]) == 2
    assert "pip install 'headgate[spark]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["delete", "payments", "--where", "true"], "TABLE: expected namespace.table, got 'payments'"),
        (["delete", *SOUND["delete"], "--key", "17"], "--key: expected a UUID"),
        (["delete", *SOUND["delete"], "--conf", "spark.x"], "--conf: expected KEY=VALUE, got 'spark.x'"),
        (["delete", *SOUND["delete"], "--jar", "no.jar"], "--jar: no such file: no.jar"),
        (["delete", *SOUND["delete"], "--token-file", "none"], "--token-file: cannot read none"),
        (["delete", *SOUND["delete"], "--storage", "s3.secret-access-key=x"], "AWS_SECRET_ACCESS_KEY"),
        (["delete", *SOUND["delete"], "--summary", "=x"], "--summary: expected KEY=VALUE"),
        (["update", "a.b", "--set", "amount", "--where", "true"], "--set: expected KEY=VALUE, got 'amount'"),
        (["update", "a.b", "--set", "x=1", "--set", "x=2", "--where", "true"], "--set: x is given twice"),
        (["ingest", "--into", "a.b"], "PATH: give files"),
        (["ingest", "rows.xml", "--into", "a.b"], "--format: needed"),
        (["ingest", "rows.csv", "--from-table", "a.c", "--into", "a.b"], "PATH: give files, or a table"),
        (["ingest", "--from-table", "c", "--into", "a.b"], "--from-table: expected namespace.table"),
        (["ingest", "rows.csv", "--into", "b"], "--into: expected namespace.table, got 'b'"),
        (["ingest", "rows.csv", "--into", "a.b", "--option", "x"], "--option: expected KEY=VALUE"),
        (["ingest", "rows.csv", "--into", "a.b", "--filter", "x = 1"], "--filter: only"),
        (
            ["ingest", "rows.csv", "--into", "a.b", "--partition-by", "x"],
            "--partition-by: only goes with --create",
        ),
        (["merge", "rows.csv", "--into", "a.b", "--on", "id"], "--update: needed"),
        (["compact", "a.b", "--target-size", "big"], "--target-size: expected a size"),
        (["delete", "a.b", "--where", "true", "--attempts", "0"], "--attempts: expected a number from 1 on"),
        (
            [
                "update",
                "a.b",
                "--set",
                "x=1",
                "--where",
                "true",
                "--attempts",
                "2",
                "--key",
                KEY,
            ],
            "--attempts: a key",
        ),
        (["compact", "a.b", "--older-than", "soon"], "--older-than: expected an age"),
        (["compact", "a.b", "--sort-by", "id"], "--sort-by: only goes with --strategy sort"),
        (["expire", "a.b", "--older-than", "yesterday"], "--older-than: expected an age"),
        (["remove-orphans", "a.b", "--older-than", "3"], "--older-than: expected an age"),
        (["remove-orphans", "b"], "TABLE: expected namespace.table"),
        (["refresh", "view"], "VIEW: expected namespace.table"),
        (["refresh", "a.view", "--query", "SELECT 1"], "--query: goes with --source"),
        (
            ["refresh", "a.view", "--query", "SELECT 1", "--source", "a.x", "--source", "b.x"],
            "two are called x",
        ),
        (["run", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["run", "pipeline.yaml"], "pipeline.yaml: cannot be read"),
    ],
)
def test_bad_input_ends_with_code_2_and_names_what_is_wrong_before_spark_starts(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert named in printed
    assert len(printed.splitlines()) == 1


def test_two_ways_to_say_who_asks_are_one_too_many(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADGATE_TOKEN", "t")
    (tmp_path / "secret").write_text("etl:s3cret\n")
    assert main(["delete", *SOUND["delete"], "--credential-file", "secret"]) == 2
    printed = capsys.readouterr().err
    assert "a token and a credential are given" in printed
    assert "s3cret" not in printed


@pytest.mark.parametrize("text", ["etl", ":secret", "etl:"])
def test_a_credential_that_is_no_pair_is_refused_without_being_shown(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADGATE_CREDENTIAL", text)
    assert main(["delete", *SOUND["delete"]]) == 2
    assert capsys.readouterr().err == "headgate: credential: expected id:secret\n"


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("1", 1), ("128MB", 128_000_000), ("10 GB", 10_000_000_000), ("5k", 5_000)]
)
def test_a_size_is_read_with_its_unit(text: str, size_bytes: int) -> None:
    assert read_size("--target-size", text) == size_bytes


@pytest.mark.parametrize("text", ["0", "-1", "1.5MB", "MB", "1PB"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--target-size"):
        read_size("--target-size", text)


def test_an_age_is_read_with_its_unit() -> None:
    assert read_age("--older-than", "36h") == timedelta(hours=36)
    assert read_age("--older-than", None) is None
    with pytest.raises(BadInput, match="--older-than: expected an age"):
        read_age("--older-than", "9999999999d")


def test_a_summary_shows_no_escape_code_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary("refresh of a.b", {"reason": "red \x1b[31m", "rows": 12_000, "none": None}, as_json=False)
    assert (
        capsys.readouterr().out
        == "refresh of a.b\n  reason  red \N{REPLACEMENT CHARACTER}[31m\n  rows    12,000\n"
    )


def test_a_summary_in_json_is_one_line_with_everything(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary("run", {"rows updated": 2, "key": None}, as_json=True)
    assert capsys.readouterr().out == '{"command":"run","rows-updated":2,"key":null}\n'


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2 * 10**15, "2000.0 TB")]
)
def test_sizes_are_shown_for_people(size_bytes: int, text: str) -> None:
    assert shown_size(size_bytes) == text
