"""The names that `headgate.spark` exports, each loaded with its module when it is first asked for.

Executors load what they run and no more. `__init__.pyi` says the same to type checkers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

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
EXPORTS = sorted(_HOME)


def load_export(name: str) -> Any:
    """The job or value of this name, from the module that it lives in."""
    if name not in _HOME:
        raise AttributeError(f"module 'headgate.spark' has no attribute {name!r}")
    return getattr(import_module(f"headgate.spark.{_HOME[name]}"), name)
