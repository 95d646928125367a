"""`./dev` is the first thing a newcomer runs: its help is complete and its answers are plain."""

from __future__ import annotations

import re
import subprocess
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
