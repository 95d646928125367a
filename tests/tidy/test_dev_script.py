"""`./dev` is the first thing a newcomer runs: its help is complete and its answers are plain."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT

DEV = ROOT / "dev"


def run(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run ./dev as a person would."""
    return subprocess.run([DEV, *words], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [(), ("help",), ("--help",)])
def test_help_is_printed_from_any_folder(words: tuple[str, ...], tmp_path: Path) -> None:
    answer = run(*words, cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("usage: ./dev COMMAND")


def test_help_names_every_command_and_no_other() -> None:
    named = set(re.findall(r"^  ([a-z]+) ", run("help").stdout, flags=re.MULTILINE))
    taken = re.findall(r"^  ([a-z]+)(?: \|[^)]*)?\)\n", DEV.read_text(), flags=re.MULTILINE)
    assert named == set(taken)


def test_an_unknown_command_is_refused_by_name() -> None:
    answer = run("tset")
    assert answer.returncode == 2
    assert "'tset'" in answer.stderr


def test_a_bench_that_is_not_there_is_named() -> None:
    answer = run("bench", "no-such-bench")
    assert answer.returncode == 2
    assert "bench/no-such-bench.py" in answer.stderr


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-java.lock", "requirements-uv.lock"])
def test_every_locked_package_is_pinned_by_hash(lock: str) -> None:
    text = (ROOT / lock).read_text()
    requirements = re.findall(r"^[a-z0-9].*(?:\n    --hash.*)*", text, flags=re.MULTILINE)
    assert requirements
    assert [one for one in requirements if "==" not in one or "--hash=sha256:" not in one] == []


@pytest.fixture
def bare_checkout(tmp_path: Path) -> Path:
    """A checkout that was never set up, with a uv on PATH that writes down what it was told."""
    checkout, tools = tmp_path / "checkout", tmp_path / "bin"
    checkout.mkdir()
    tools.mkdir()
    for name in ("dev", "pyproject.toml", "requirements.lock", "requirements-java.lock"):
        shutil.copy(ROOT / name, checkout / name)
    uv = tools / "uv"
    uv.write_text(
        f"""#!/bin/sh
echo "$*" >>'{tmp_path}/told'
[ "$1" != venv ] || {{ mkdir -p .venv/bin; ln -s '{sys.executable}' .venv/bin/python; }}
"""
    )
    uv.chmod(0o755)
    put_df(checkout, "/dev/a 9 9 9000000 1% /")
    return checkout


def put_df(checkout: Path, line: str) -> None:
    """Have df say this."""
    df = checkout.parent / "bin" / "df"
    df.write_text(f"#!/bin/sh\nprintf 'Filesystem 1024-blocks Used Available\\n%s\\n' '{line}'\n")
    df.chmod(0o755)


def run_bare(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a checkout's ./dev with the tools beside it first on PATH."""
    path = f"{checkout.parent / 'bin'}:{os.environ['PATH']}"
    command = [str(checkout / "dev"), *words]
    return subprocess.run(
        command, cwd=checkout, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )


def test_the_set_up_takes_the_lock_as_it_is_and_asks_for_no_dependencies(bare_checkout: Path) -> None:
    run_bare(bare_checkout, "docs")
    told = (bare_checkout.parent / "told").read_text().splitlines()
    installs = [line for line in told if line.startswith("pip install")]
    assert len(installs) == 2
    assert [line for line in installs if "--no-deps" not in line] == []
    assert "--require-hashes" in installs[0]


def test_a_disk_without_room_is_named_before_anything_is_installed(bare_checkout: Path) -> None:
    put_df(bare_checkout, "/dev/a 9 9 109568 99% /")
    answer = run_bare(bare_checkout, "docs")
    assert answer.returncode == 1
    assert "only 107 MB are free" in answer.stderr
    assert not (bare_checkout.parent / "told").exists()


@pytest.mark.parametrize("line", ["none 0 0 0 - /", "none - - - - /", "", "//server/a b 9 9 9 99% /"])
def test_a_disk_of_unknown_size_stops_nobody(bare_checkout: Path, line: str) -> None:
    put_df(bare_checkout, line)
    assert "are free" not in run_bare(bare_checkout, "docs").stderr
    assert (bare_checkout.parent / "told").exists()
