"""Every link from one page of the repository to another leads to a file that is there."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def test_every_link_between_the_pages_leads_somewhere() -> None:
    pages = [_ROOT / "README.md", _ROOT / "CHANGELOG.md", *(_ROOT / "docs").rglob("*.md")]
    links = [(page, link) for page in pages for link in _LINK.findall(page.read_text(encoding="utf-8"))]
    assert links
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_every_page_of_the_docs_can_be_found_from_the_readme() -> None:
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    pages = {f"docs/{page.name}" for page in (_ROOT / "docs").glob("*.md")}
    assert pages - set(_LINK.findall(readme)) == set()
