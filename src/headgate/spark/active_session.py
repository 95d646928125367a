"""One session as the active one of this thread: Spark and the jar look formats and catalogs up there, not in the
session that was asked. What PySpark calls active is another thing: the session that last made a DataFrame of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession


def find_active(session: SparkSession) -> SparkSession | None:
    """The session that is active in this thread, if any; `session` is one of the same Spark."""
    java: Any = session._jvm
    found = java.org.apache.spark.sql.classic.SparkSession.getActiveSession()
    return SparkSession(session.sparkContext, found.get()) if found.isDefined() else None


@contextmanager
def active_session(session: SparkSession) -> Iterator[SparkSession]:
    """Make a session the active one, and the one before it afterwards again."""
    java: Any = session._jvm
    sessions = java.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield session
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
