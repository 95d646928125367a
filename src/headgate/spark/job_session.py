"""The session of one command: built for it and stopped after it, or one that runs already and is left running."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.errors import BadInput
from headgate.spark.active_session import active_session
from headgate.spark.lake import Lake
from headgate.spark.session import build_session, prepare_session
from headgate.spark.shipping import make_zip, ship_package
from headgate.spark.spark_errors import spark_errors_as_ours

_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_PYTHON_PATH = "PYTHONPATH"
_PYTHON, _PYTHON_VARIABLE = "spark.pyspark.python", "PYSPARK_PYTHON"
_QUIET = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


@dataclass(frozen=True)
class SessionOptions:
    """What a command line says of the session. Without a master, Spark's own defaults say where it runs."""

    master: str | None = None
    jar: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    py_files: tuple[str, ...] = ()
    verbose: bool = False


@contextmanager
def job_session(name: str, lake: Lake, options: SessionOptions) -> Iterator[SparkSession]:
    """A session for one command; what Spark raises inside is raised as our errors."""
    with spark_errors_as_ours():
        active = SparkSession.getActiveSession()
        if active is not None:
            with active_session(_beside(active, lake, options)) as session:
                yield session
            return
        folder = Path(tempfile.mkdtemp(prefix="headgate-job-"))
        try:
            package = make_zip(folder)
            spark = _build(name, lake, options, folder, package)
            try:
                for file in options.py_files:
                    spark.sparkContext.addPyFile(file)
                ship_package(spark, package)
                yield spark
            finally:
                spark.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _beside(active: SparkSession, lake: Lake, options: SessionOptions) -> SparkSession:
    """A session that shares what runs already. Where it runs was decided then."""
    if options.master not in (None, active.sparkContext.master):
        raise BadInput(
            f"--master: a session at {active.sparkContext.master} is running already", field="--master"
        )
    session = prepare_session(active.newSession(), lake, jar=options.jar is not None)
    for key, value in options.conf.items():
        session.conf.set(key, value)
    return session


def _build(name: str, lake: Lake, options: SessionOptions, folder: Path, package: Path) -> SparkSession:
    settings = {"spark.ui.showConsoleProgress": "false", **options.conf}
    if not options.verbose:
        quiet = folder / "log4j2.properties"
        quiet.write_text(_QUIET)
        said = f"{settings.get(_JVM_OPTIONS, '')} -Dlog4j2.configurationFile={quiet.as_uri()}"
        settings[_JVM_OPTIONS] = said.strip()
    master = options.master or settings.get("spark.master", "local")
    if _PYTHON in settings:
        os.environ[_PYTHON_VARIABLE] = settings[_PYTHON]
    elif not master.startswith("local"):
        # The path of our own Python says nothing about a machine of the cluster.
        os.environ.setdefault(_PYTHON_VARIABLE, "python3")
    with nullcontext() if master.startswith("local") else _on_python_path(package):
        return build_session(name, master=options.master, lake=lake, jar=options.jar, settings=settings)


@contextmanager
def _on_python_path(package: Path) -> Iterator[None]:
    """The Java that is started inside runs Python of the workers' kind here, too, to plan sources and sinks."""
    before = os.environ.get(_PYTHON_PATH)
    os.environ[_PYTHON_PATH] = os.pathsep.join(part for part in (str(package), before) if part)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PYTHON_PATH]
        else:
            os.environ[_PYTHON_PATH] = before
