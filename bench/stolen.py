"""How much of the machine's time its host gave to others while something was measured.

On a shared host that is nothing in one minute and a third in the next, and ratios suffer with the figures: work that needs
the processor waits for it, and a disk's sync, which a floor is made of, does not. So what is compared is measured again
when much was stolen, and the share is told beside the figure. Where the system does not tell (`/proc/stat` of Linux), it
is 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

QUIET_MAX = 0.03
_PAUSE_S = 5.0
_STOLEN_COLUMN = (
    7  # user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of the first two
)
_STAT = Path("/proc/stat")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Measured(Generic[T]):
    """What was found, and the share of all processors' time that others had meanwhile."""

    found: T
    stolen: float


def read_ticks(stat: Path = _STAT) -> tuple[int, int]:
    """Stolen, and all there were, since the machine started; both 0 where nobody knows."""
    try:
        words = stat.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    except OSError:
        return 0, 0
    ticks = [int(word) for word in words[: _STOLEN_COLUMN + 1]]
    return (ticks[_STOLEN_COLUMN] if len(ticks) > _STOLEN_COLUMN else 0), sum(ticks)


def measure(step: Callable[[], T], *, read: Callable[[], tuple[int, int]] = read_ticks) -> Measured[T]:
    """One measurement, and what was stolen from it."""
    stolen, ticks = read()
    found = step()
    stolen_after, ticks_after = read()
    return Measured(found, (stolen_after - stolen) / max(1, ticks_after - ticks))


def measure_quietly(
    step: Callable[[], T],
    *,
    wanted: int = 1,
    tries_max: int = 4,
    pause_s: float = _PAUSE_S,
    read: Callable[[], tuple[int, int]] = read_ticks,
) -> list[Measured[T]]:
    """So many quiet measurements; the quietest there were when too few of the tries were quiet."""
    taken: list[Measured[T]] = []
    for _ in range(max(wanted, tries_max)):
        taken.append(measure(step, read=read))
        if sum(one.stolen <= QUIET_MAX for one in taken) >= wanted:
            break
        if taken[-1].stolen > QUIET_MAX:
            time.sleep(pause_s)
    return sorted(taken, key=lambda one: one.stolen)[:wanted]
