"""Processes of tests that are forked from one in which everything is imported: they start in milliseconds, to be killed.

There is one such process for a whole run, and what it imports is settled when it starts: so all of it is named here.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

_IMPORTED = ["tests.chaos.crashing_service", "tests.library.killed_writer"]


def forked() -> ForkServerContext:
    """Where such processes come from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context
