"""Spark jobs that write data files and commit them through the service: the only package that imports pyspark.

What a job needs is imported from here, `from headgate.spark import Lake, write`; a module is loaded when its name is
first asked for, so that executors load what they run and no more.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.spark.compaction import compact
    from headgate.spark.create_table import create_if_missing
    from headgate.spark.data_source import register
    from headgate.spark.deletes import delete
    from headgate.spark.lake import Lake, LakeTable
    from headgate.spark.maintain import expire, remove_orphans
    from headgate.spark.merges import merge
    from headgate.spark.pipeline import run_pipeline
    from headgate.spark.pipeline_file import read_pipeline
    from headgate.spark.pipeline_spec import TableShape
    from headgate.spark.session import build_session, prepare_session
    from headgate.spark.streams import stream
    from headgate.spark.updates import update
    from headgate.spark.views import create_view_job, refresh
    from headgate.spark.writes import write

__all__ = [
    "Lake",
    "LakeTable",
    "TableShape",
    "build_session",
    "compact",
    "create_if_missing",
    "create_view_job",
    "delete",
    "expire",
    "merge",
    "prepare_session",
    "read_pipeline",
    "refresh",
    "register",
    "remove_orphans",
    "run_pipeline",
    "stream",
    "update",
    "write",
]

_HOMES = {
    "compaction": ("compact",),
    "create_table": ("create_if_missing",),
    "data_source": ("register",),
    "deletes": ("delete",),
    "lake": ("Lake", "LakeTable"),
    "maintain": ("expire", "remove_orphans"),
    "merges": ("merge",),
    "pipeline": ("run_pipeline",),
    "pipeline_file": ("read_pipeline",),
    "pipeline_spec": ("TableShape",),
    "session": ("build_session", "prepare_session"),
    "streams": ("stream",),
    "updates": ("update",),
    "views": ("create_view_job", "refresh"),
    "writes": ("write",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """The job or value of this name, from the module that it lives in."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
