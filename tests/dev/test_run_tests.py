"""`./dev test` runs every test, in two halves, and fails when one of them does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tools.run_tests import is_whole, run_halves


@pytest.mark.parametrize("words", [[], ["-q"], ["--durations=10"], ["-x", "--maxfail=3"]])
def test_arguments_that_choose_no_tests_mean_the_whole_suite(words: list[str]) -> None:
    assert is_whole(words)


@pytest.mark.parametrize(
    "words", [["tests/core"], ["tests/conftest.py::test_x"], ["-k", "window"], ["-m", "slow"], ["--lf"]]
)
def test_arguments_that_choose_tests_run_in_one_process(words: list[str]) -> None:
    assert not is_whole(words)


@pytest.mark.parametrize(
    ("one", "other", "wanted"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (5, 0, 0), (0, 2, 2), (3, 1, 1)]
)
def test_one_failing_half_fails_the_run_and_both_are_heard(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], one: int, other: int, wanted: int
) -> None:
    half = tmp_path / "half.py"
    half.write_text(
        "import sys\n"
        "marks = sys.argv[sys.argv.index('-m') + 1]\n"
        "print('half:', marks, sys.argv[-1])\n"
        f"sys.exit({{'spark': {one}, 'not spark': {other}}}[marks])\n"
    )
    assert run_halves(["-q"], pytest=[sys.executable, str(half)]) == wanted
    told = capfdbinary.readouterr().out
    assert b"half: spark -q" in told
    assert b"half: not spark -q" in told
