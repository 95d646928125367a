"""What `from headgate.spark import …` gives."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headgate.spark


@pytest.mark.parametrize("name", headgate.spark.__all__)
def test_every_exported_name_can_be_imported_and_has_that_name(name: str) -> None:
    assert getattr(headgate.spark, name).__name__ == name


def test_a_name_that_is_not_exported_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match="upsert"):
        headgate.spark.upsert  # noqa: B018


def test_importing_the_package_loads_no_job_and_no_pyspark() -> None:
    code = (
        "import sys, headgate.spark; "
        "print([m for m in sys.modules if m == 'pyspark' or m.startswith('headgate.spark.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
