"""docs/conflicts.md is made from the code, and names every rule by which the core refuses."""

from __future__ import annotations

import re
from pathlib import Path

from tools.conflict_pages import HEAD_RULES, Verdict
from tools.make_docs import DOCS, conflicts_page

import headgate.core
from headgate.core.conflicts import RULES, Finding, to_error
from headgate.errors import BadInput, ConflictFound, Diverged

_CORE = Path(headgate.core.__file__).parent
_SLUG = re.compile(r"""(?:\bFinding\(|\brule=|_found\(check,)\s*"([a-z-]+)\"""")
_ERRORS = {Verdict.CONFLICT: ConflictFound, Verdict.DIVERGED: Diverged, Verdict.INVALID: BadInput}
# Raised as errors where a change is taken in; they are never findings.
_AT_INTAKE = ("malformed-operation", "format-version", "ref-is-a-tag")


def test_the_page_of_conflicts_is_up_to_date() -> None:
    assert (DOCS / "conflicts.md").read_text(encoding="utf-8") == conflicts_page()


def test_the_page_names_every_rule_of_the_core_and_no_other() -> None:
    found: set[str] = set()
    for file in _CORE.glob("*.py"):
        if not file.name.startswith("audit"):  # the auditor has findings of its own
            found |= set(_SLUG.findall(file.read_text(encoding="utf-8")))
    named = {rule.slug for rule in RULES.values()} | {rule.slug for rule in HEAD_RULES}
    assert found == named


def test_every_rule_is_answered_as_the_page_says() -> None:
    for rule in HEAD_RULES:
        if rule.slug not in _AT_INTAKE:
            error = to_error(Finding(rule.slug, "text"), "t", field="updates[0]")
            assert type(error) is _ERRORS[rule.verdict], rule.slug
    for window_rule in RULES.values():
        wanted = Diverged if window_rule.slug == "base-not-ancestor" else ConflictFound
        assert type(to_error(Finding(window_rule.slug, "text"), "t", field="updates[0]")) is wanted
