"""What `from headgate.spark import …` gives."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import headgate.spark
from headgate.spark.exports import EXPORTS


@pytest.mark.parametrize("name", EXPORTS)
def test_every_exported_name_can_be_imported_and_has_that_name(name: str) -> None:
    assert getattr(headgate.spark, name).__name__ == name


def test_a_name_that_is_not_exported_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match="upsert"):
        headgate.spark.upsert  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_loads_no_job_and_no_pyspark() -> None:
    code = (
        "import sys, headgate.spark; "
        "print([m for m in sys.modules if m == 'pyspark' or m.startswith('headgate.spark.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['headgate.spark.exports']"


def test_type_checkers_are_told_of_the_same_names() -> None:
    stub = Path(headgate.spark.__file__).with_suffix(".pyi").read_text()
    assert sorted(re.findall(r" as (\w+)$", stub, re.MULTILINE)) == EXPORTS
