"""The command line: exit codes, messages that name the option, principals."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate import __version__
from headgate.cli.main import main
from headgate.service.logs import LOGGER
from headgate.service.tokens import secret_matches
from headgate.store.sqlite import SqliteStore


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A folder of its own, no settings from outside, and the logging of the tests put back afterwards."""
    for name in [name for name in os.environ if name.startswith("HEADGATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    LOGGER.setLevel(logging.NOTSET)


def test_the_version_is_printed_by_the_module_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"
    run = subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "version"], capture_output=True, text=True, check=True
    )
    assert run.stdout == f"{__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["serve", "--port", "x"], "--port"),
        (["serve", "--port", "99999"], "--port"),
        (["serve", "--host", "0.0.0.0"], "--host"),
        (["serve", "--auth", "maybe"], "--auth"),
        (["serve", "--warehouse", "ftp://x"], "--warehouse"),
        (["serve", "--database", "oracle://x"], "database"),
        (["serve", "--config", "nowhere.toml"], "nowhere.toml"),
        (["principal", "create", "x", "--role", "root"], "role"),
        (["principal", "create", "a:b", "--role", "read"], "NAME"),
        (["principal", "create", "anonymous", "--role", "read"], "NAME"),
    ],
)
def test_a_wrong_option_ends_with_code_2_and_its_name(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert named in printed
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [[], ["nope"], ["serve", "--nope"], ["serve", "--s3-secret-access-key", "x"]]
)
def test_an_unknown_word_ends_with_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_an_unknown_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADGATE_WAREHUOSE", "x")
    assert main(["serve"]) == 2
    assert "HEADGATE_WAREHUOSE" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "port" in capsys.readouterr().err


def test_a_principal_is_made_listed_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = ["--database", f"sqlite:///{tmp_path}/catalog.db"]
    assert main(["principal", "create", "etl", "--role", "modify", *database]) == 0
    printed = capsys.readouterr().out
    found = re.search(r"client_secret=(\S+)", printed)
    assert found is not None
    store = SqliteStore(f"{tmp_path}/catalog.db")
    principal = store.load_principal("etl")
    store.close()
    assert principal is not None
    assert principal.role == "modify"
    assert secret_matches(found.group(1), principal.secret_hash)

    assert main(["principal", "create", "etl", "--role", "admin", *database]) == 1
    assert main(["principal", "list", *database]) == 0
    assert capsys.readouterr().out == "etl\tmodify\n"
    assert main(["principal", "delete", "etl", *database]) == 0
    assert main(["principal", "delete", "etl", *database]) == 1
