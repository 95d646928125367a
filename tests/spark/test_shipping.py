"""The package as it is sent to workers."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.spark.shipping import NEEDED, find_missing, is_local, make_zip, ship_package


def test_the_package_is_imported_from_the_zip_alone(tmp_path: Path) -> None:
    package = make_zip(tmp_path)
    code = f"import {', '.join(NEEDED)}; print(headgate.__file__)"
    # Without `site` no path file is read: the checkout itself cannot be found.
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": f"{package}:{sysconfig.get_paths()['purelib']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{package}/headgate/__init__.py")


def test_local_workers_lack_nothing_and_are_sent_nothing(spark: SparkSession, tmp_path: Path) -> None:
    assert is_local(spark)
    assert find_missing(spark) == ()
    ship_package(spark, tmp_path / "there is no such zip")
