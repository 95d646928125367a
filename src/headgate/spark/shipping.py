"""Our package on the workers of a cluster: sent as a zip with the job, so that driver and workers run the same code.

What is not pure Python (PyArrow, msgspec) and what brings such (PyIceberg) must be on the workers already; who lacks it
is named before any work begins.
"""

from __future__ import annotations

import importlib
import socket
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from importlib.util import cache_from_source
from pathlib import Path

from pyspark.sql import SparkSession

import headgate
from headgate.errors import BadInput

NEEDED = ("msgspec", "pyarrow", "pyiceberg", "headgate.spark.data_files")
_PROBES_MAX = 64


def is_local(spark: SparkSession) -> bool:
    """Whether the workers are threads of this process's own Java, with this process's packages."""
    master = str(spark.sparkContext.master)
    return master == "local" or master.startswith("local[")


def ship_package(spark: SparkSession, package: Path) -> None:
    """Send the zip to the workers, and make sure that they can run it; BadInput names what they lack."""
    if is_local(spark):
        return
    spark.sparkContext.addPyFile(str(package))
    if missing := find_missing(spark):
        raise BadInput(
            f"workers lack what our code needs: {'; '.join(missing)}; install headgate[spark] there, send it by "
            "spark.archives, or set PYSPARK_PYTHON to a Python of theirs that has it",
            field="--master",
        )


def make_zip(folder: Path) -> Path:
    """The modules of this package as a zip that Python imports from."""
    root = Path(headgate.__file__).parent
    with tempfile.NamedTemporaryFile(dir=folder, prefix="headgate-", suffix=".zip", delete=False) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for module in sorted(root.rglob("*.py")):
                name = module.relative_to(root.parent)
                archive.write(module, name)
                # Workers import anew for many a task; compiled beside its source, a module need not be compiled there.
                compiled = Path(cache_from_source(str(module)))
                if compiled.is_file():
                    archive.write(compiled, name.with_suffix(".pyc"))
        return Path(file.name)


def find_missing(spark: SparkSession) -> tuple[str, ...]:
    """What workers cannot import, each with the worker and the reason."""
    context = spark.sparkContext
    tasks = min(context.defaultParallelism, _PROBES_MAX)
    found = context.parallelize(range(tasks), tasks).mapPartitions(_probe()).distinct().collect()
    return tuple(sorted(found))


def _probe() -> Callable[[Iterable[int]], Iterator[str]]:
    # A function inside a function travels as code: this module itself may be what a worker cannot import.
    needed = NEEDED

    def probe(_: Iterable[int]) -> Iterator[str]:
        for name in needed:
            try:
                importlib.import_module(name)
            except ImportError as error:
                yield f"{socket.gethostname()}: {error}"
                return

    return probe
