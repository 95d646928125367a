"""Every rule holds for every file it is meant for; test_rules_can_fail proves that each one can fail."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.tidy import source_rules
from tests.tidy.repository import ROOT, find_unwanted_names, python_modules, repository_files
from tests.tidy.source_rules import Rule


def refuse(findings: Iterable[str]) -> None:
    """Fail with every finding on a line of its own."""
    lines = sorted(set(findings))
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def _name(rule: Rule) -> str:
    return rule.__name__


@pytest.mark.parametrize("rule", source_rules.SOURCE, ids=_name)
def test_every_source_module_keeps_the_rule(rule: Rule) -> None:
    modules = [module for module in python_modules() if module.path.is_relative_to("src/headgate")]
    assert modules
    refuse(finding for module in modules for finding in rule(module))


@pytest.mark.parametrize("rule", source_rules.TESTS, ids=_name)
def test_every_test_module_keeps_the_rule(rule: Rule) -> None:
    modules = [module for module in python_modules() if module.path.is_relative_to("tests")]
    assert modules
    refuse(finding for module in modules for finding in rule(module))


@pytest.mark.parametrize("rule", source_rules.EVERYWHERE, ids=_name)
def test_every_python_file_keeps_the_rule(rule: Rule) -> None:
    refuse(finding for module in python_modules() for finding in rule(module))


def test_no_file_names_a_registry_or_this_machine() -> None:
    files = repository_files()
    assert files
    refuse(found for path in files for found in find_unwanted_names(path, (ROOT / path).read_bytes()))


def test_every_allowed_sleep_is_still_there() -> None:
    sleeping = {str(module.path) for module in python_modules() if "time.sleep" in module.source}
    assert set(source_rules.SLEEPS_ALLOWED) <= sleeping
