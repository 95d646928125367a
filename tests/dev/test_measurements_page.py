"""The page of measurements is what the kept results say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from bench.contention_page import DOCS, RESULTS
from bench.measurements_page import PARTS, write_page


def _copy(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    shutil.copy(DOCS / "measurements.md", tmp_path)
    return tmp_path / "measurements.md"


def test_the_page_and_its_plot_are_made_from_the_kept_results(tmp_path: Path) -> None:
    page = _copy(tmp_path)
    write_page(results=RESULTS, docs=tmp_path)
    assert page.read_text() == (DOCS / "measurements.md").read_text()
    assert (tmp_path / "images/growth.svg").read_text() == (DOCS / "images/growth.svg").read_text()


def test_a_goal_that_is_missed_is_shown_as_missed(tmp_path: Path) -> None:
    page, results = _copy(tmp_path), tmp_path / "results"
    results.mkdir()
    growth = json.loads((RESULTS / "growth.json").read_text())
    growth["files"] |= {"last_to_first": 3.5, "reached": False}
    (results / "growth.json").write_text(json.dumps(growth))
    write_page(results=results, docs=tmp_path)
    assert "| live files: last / first | 3.50 × | ≤ 2 × | **no** |" in page.read_text()


def test_a_bench_that_was_not_run_says_how_to_run_it(tmp_path: Path) -> None:
    page = _copy(tmp_path)
    write_page(results=tmp_path, docs=tmp_path)
    for name in PARTS:
        assert f"Not measured yet: `./dev bench {name}`." in page.read_text()
