"""One run of a job: its id is in the names of all it writes, its key makes its commit happen once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from headgate.client.keys import new_key
from headgate.errors import BadInput

_ID = re.compile(r"[a-z0-9][a-z0-9-]{7,63}")


@dataclass(frozen=True, slots=True)
class Run:
    """A run. Two runs may share a key (a job started again), never an id: the files of one are not the other's."""

    id: str
    key: str

    def __post_init__(self) -> None:
        if _ID.fullmatch(self.id) is None:
            raise BadInput(f"run: expected 8 to 64 of a-z, 0-9 and -, got {self.id!r}", field="run")
        try:
            UUID(self.key)
        except ValueError as error:
            raise BadInput(f"key: expected a UUID, got {self.key!r}", field="key") from error


def new_run(key: str | None = None) -> Run:
    """A run that begins now, under a key of the caller's or a fresh one."""
    return Run(id=f"run-{new_key()}", key=key or new_key())
