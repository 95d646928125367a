"""One table behind two gates: the commit conversation driven in memory, and the service over HTTP. Both speak JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from headgate.core.change import ChangeUpdate, WireFile
from headgate.core.commit import (
    Answer,
    Committed,
    Discard,
    Head,
    Load,
    Loaded,
    Swap,
    SwapLost,
    Swapped,
    TableCommit,
    Verdict,
    Wait,
)
from headgate.core.flow import commit_flow
from headgate.core.updates import TableRequirement, TableUpdate
from headgate.store.sqlite import SqliteStore
from tests.properties.lake import Lake, Variant, new_lake
from tests.service.app_client import AppClient, app_client

Wire = dict[str, Any]


class Gate(Protocol):
    """A table that takes commits."""

    place: str

    def commit(self, *updates: Wire, requirements: tuple[Wire, ...] = ()) -> Wire | None:
        """Commit; the evidence of a refusal, or None."""

    def head(self) -> int | None:
        """The snapshot of main."""

    def schema_id(self) -> int:
        """The current schema."""


class MemoryGate:
    """The generator, and a store that is one variable."""

    place = "mem://bucket/t"

    def __init__(self) -> None:
        self.lake = new_lake(Variant(2, "unpartitioned"))
        self.version = 1
        self.commits = 0

    def commit(self, *updates: Wire, requirements: tuple[Wire, ...] = ()) -> Wire | None:
        self.commits += 1
        commit = TableCommit(
            (("db",), "t"),
            msgspec.convert(requirements, tuple[TableRequirement, ...]),
            msgspec.convert(updates, tuple[TableUpdate | ChangeUpdate, ...]),
        )
        verdict = self._drive(commit)
        return None if isinstance(verdict, Committed) else dict(verdict.error.evidence)

    def _drive(self, commit: TableCommit) -> Verdict:
        conversation = commit_flow((commit,), key=f"key {self.commits}")
        reply: Any = None
        while True:
            try:
                effect = conversation.send(reply)
            except StopIteration as stop:
                verdict: Verdict = stop.value
                return verdict
            match effect:
                case Load():
                    head = Head("t", self.version, self.lake.table, f"v{self.version}", None)
                    reply = Loaded((head,), frozenset(), self.lake.table.envelope.last_updated_ms + 1)
                case Swap():
                    reply = self._swap(effect)
                case Discard() | Wait() | Answer():
                    reply = None
                case _:
                    reply = self.lake.world.answer(effect)

    def _swap(self, swap: Swap) -> Swapped | SwapLost:
        (candidate,) = swap.candidates
        if candidate.base is None or candidate.base.version != self.version:
            return SwapLost()
        self.version += 1
        self.lake.table = candidate.metadata
        return Swapped((Head("t", self.version, candidate.metadata, f"v{self.version}", None),))

    def head(self) -> int | None:
        return self.lake.head

    def schema_id(self) -> int:
        return self.lake.table.envelope.current_schema_id


class ServiceGate:
    """The service in process, with SQLite and files on disk."""

    def __init__(self, client: AppClient) -> None:
        self._client = client
        self._path = "/v1/namespaces/db/tables/t"
        assert client.post("/v1/namespaces", {"namespace": ["db"]}).status_code == 200
        table = new_lake(Variant(2, "unpartitioned")).table
        body = {"name": "t", "schema": json.loads(msgspec.json.encode(table.schema()))}
        made = client.post("/v1/namespaces/db/tables", body)
        assert made.status_code == 200, made.text
        self.place = made.json()["metadata"]["location"]

    def commit(self, *updates: Wire, requirements: tuple[Wire, ...] = ()) -> Wire | None:
        answer = self._client.post(self._path, {"requirements": list(requirements), "updates": list(updates)})
        if answer.status_code == 200:
            return None
        assert answer.status_code == 409, answer.text
        error = answer.json()["error"]
        found: Wire = error.get("conflict") or error["headgate"]
        return found

    def _metadata(self) -> Wire:
        found: Wire = self._client.get(self._path).json()["metadata"]
        return found

    def head(self) -> int | None:
        return self._metadata().get("current-snapshot-id")

    def schema_id(self) -> int:
        found: int = self._metadata()["current-schema-id"]
        return found


@contextmanager
def open_gate(kind: str, tmp_path: Path) -> Iterator[Gate]:
    """A gate by name."""
    if kind == "memory":
        yield MemoryGate()
        return
    with app_client(tmp_path, store=SqliteStore(tmp_path / "catalog.db")) as client:
        yield ServiceGate(client)


def files_below(place: str, files: tuple[WireFile, ...]) -> list[Wire]:
    """Files of a lake as JSON, in the folder of a gate's table."""
    text = msgspec.json.encode(files).decode().replace("mem://", f"{place}/")
    found: list[Wire] = json.loads(text)
    return found


def scratch() -> Lake:
    """Makes files and their statistics; its own table is not used."""
    return new_lake(Variant(2, "unpartitioned"))
