"""The code of docs/library.md, run block by block."""

from __future__ import annotations

from pathlib import Path

from tests.docs.page_blocks import DOCS, read_outputs, run_page

PAGE = DOCS / "library.md"


def test_the_code_of_the_page_prints_what_it_says(tmp_path: Path) -> None:
    page = tmp_path / "library.md"
    place = tmp_path / "run"
    place.mkdir()
    page.write_text(PAGE.read_text(encoding="utf-8").replace("/tmp/headgate-docs-lake", f"{place}/lake"))
    with run_page(page, place) as folder:
        printed = [text.strip() for text in read_outputs(folder) if text.strip()]
    *results, audited = printed
    assert results == ["[2, 3, 4, 9]", "sales", "[1, 4]", "1 0 {'committed': 1}"]
    assert "orphans: 0 files, 0 B" in audited
    assert audited.endswith("\nsound")
