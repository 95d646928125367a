"""A writer in a process of its own, which is killed at one of its steps, by the signal that nothing outlives."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headgate.library.table import Table
from tests.forked import forked
from tests.library.lake import Lake, append, rivals, rows, transact
from tests.library.stepped import Steps, kill_process, open_stepped

WRITES: dict[str, Callable[[Table], None]] = {
    "append": append,
    "transact": transact,
}
_WAIT_S = 120


@dataclass(frozen=True)
class Writer:
    """One write to one table, on its road; somebody else appends after its first load."""

    lake: tuple[str, str, str]  # folder, address, namespace
    name: str
    road: str
    write: str

    def run(self, fatal: int) -> None:
        """Write, and die after this step."""
        folder, uri, namespace = self.lake
        lake = Lake(Path(folder), uri, namespace=namespace)
        rival = lake.open(self.name)
        steps = Steps(fatal, before=False, die=kill_process)
        observer = rivals(lambda: rival.append(rows(9, part="b")))
        WRITES[self.write](open_stepped(lake, steps, observer, self.name, self.road))
        lake.close()


def dies_at(writer: Writer, step: int) -> bool:
    """Whether a process that writes so was killed, rather than having come to its end."""
    process = forked().Process(target=writer.run, args=(step,))
    process.start()
    process.join(_WAIT_S)
    if process.exitcode not in (0, -signal.SIGKILL):
        process.kill()
        raise AssertionError(f"step {step}: the writer ended with {process.exitcode}")
    return process.exitcode != 0
