"""The operations of a write in runs: neighbours of one kind that one statement can apply together.

Pure: no SQL. A run keeps the order of its operations, so the first that does not hold is still the one named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from headgate.store.base import Operation, PutEvent, PutFile, PutFootprint, PutJob, PutKey

T = TypeVar("T")

_IN_RUNS = frozenset({PutKey, PutEvent, PutFile, PutFootprint, PutJob})


def runs_of(operations: Sequence[Operation]) -> Iterator[tuple[int, Sequence[Operation]]]:
    """Each run with the index of its first operation; kinds that are applied one by one are runs of one."""
    start = 0
    for kind, neighbours in groupby(operations, key=type):
        run = list(neighbours)
        if kind in _IN_RUNS:
            yield start, run
        else:
            for at, operation in enumerate(run, start):
                yield at, (operation,)
        start += len(run)


def only(run: Sequence[Operation], kind: type[T]) -> list[T]:
    """The operations of a run as what they all are."""
    return [one for one in run if isinstance(one, kind)]
