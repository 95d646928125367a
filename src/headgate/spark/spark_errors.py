"""Errors of Spark as ours: what was asked wrongly is BadInput, a job that failed is JobFailed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkAttributeError,
    PySparkException,
    PySparkTypeError,
    PySparkValueError,
)

from headgate.errors import BadInput, HeadgateError, JobFailed

# Whose request was wrong, before a job ran.
_ASKED_WRONGLY = (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkAttributeError,
    PySparkTypeError,
    PySparkValueError,
)
_LENGTH_MAX = 400
_WRAPPED = re.compile(r"^\s*(?:Caused by: )?(?:[a-z]\w*\.)+(\w+(?:Exception|Error)): (.+)$", re.MULTILINE)
_UNKNOWN_FORMAT = re.compile(r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: ([^\s]+?)\.? ")
_REFUSED = re.compile(r"^\s*headgate\.errors\.BadInput: (.+)$", re.MULTILINE)
_NO_JAVA = "JAVA_GATEWAY_EXITED"


@contextmanager
def spark_errors_as_ours(name: str = "") -> Iterator[None]:
    """Whatever Spark raises inside is raised as ours. `name` is the key or option that it was about."""
    try:
        yield
    except _ASKED_WRONGLY as error:
        raise BadInput(f"{name}: {shortened(error)}" if name else shortened(error), field=name) from error
    except PySparkException as error:
        if error.getCondition() == _NO_JAVA:
            raise JobFailed(
                "Spark did not start: is there a Java of 17 or newer, on PATH or as JAVA_HOME?"
            ) from error
        raise _failure(error, name) from error
    except (Py4JJavaError, Py4JNetworkError) as error:
        raise _failure(error, name) from error


def _failure(error: BaseException, name: str) -> HeadgateError:
    """A job that failed; what a worker of ours refused, or a format that is not there, was asked wrongly."""
    if found := _UNKNOWN_FORMAT.search(str(error)):
        text = f"no format {found[1]} is known here; is its package among spark.jars.packages?"
    elif found := _REFUSED.search(str(error)):  # of another process: its text is all there is of it
        text = found[1][:_LENGTH_MAX]
    else:
        return JobFailed(f"the Spark job failed: {root_cause(error)}")
    return BadInput(f"{name}: {text}" if name else text, field=name)


def shortened(error: BaseException) -> str:
    """What an error says before it shows plans and traces."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:_LENGTH_MAX] if lines else type(error).__name__


def root_cause(error: BaseException) -> str:
    """The last cause that a trace of Java names, else the first line."""
    found = _WRAPPED.findall(str(error))
    return f"{found[-1][0]}: {found[-1][1]}"[:_LENGTH_MAX] if found else shortened(error)
