"""Is a value forgotten as soon as nobody holds it, or only when the collector of cycles comes by?"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """What is in a cycle stays in memory for as long as this lasts; what was there before has been collected."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def count_alive(kind: type[object]) -> int:
    """How many of a kind are in memory; of those that the collector sees."""
    return sum(isinstance(found, kind) for found in gc.get_objects())
