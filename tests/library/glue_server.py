"""A stand-in for AWS Glue's API: databases, tables, and updates that are refused when the version is not the expected one.

It speaks the protocol that botocore speaks, so errors are those that botocore makes. (moto, the usual stand-in, takes an
update of any version: a lost race would be a lost commit there.) Its next updates end as they are told to.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tools.service_process import HOST


@dataclass(frozen=True)
class Ending:
    """How an update ends: whether it is made, and what is answered; no answer at all when there is no code."""

    lands: bool
    status: int = 400
    code: str | None = None


class _RefusedError(Exception):
    """What Glue says instead of doing it."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Glue:
    """The tables by database and name, each with its version."""

    databases: set[str] = field(default_factory=set)
    tables: dict[tuple[str, str], tuple[int, dict[str, Any]]] = field(default_factory=dict)
    endings: list[Ending] = field(default_factory=list)
    updates: int = 0  # that were asked for
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reset(self) -> None:
        """Forget everything."""
        self.databases.clear()
        self.tables.clear()
        self.endings.clear()
        self.updates = 0

    def answer(self, operation: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request."""
        with self.lock:
            return {
                "CreateDatabase": self._create_database,
                "GetDatabase": self._get_database,
                "CreateTable": self._create_table,
                "GetTable": self._get_table,
                "UpdateTable": self._update_table,
            }[operation](asked)

    def _create_database(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.databases.add(asked["DatabaseInput"]["Name"])
        return {}

    def _get_database(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["Name"] not in self.databases:
            raise _RefusedError("EntityNotFoundException")
        return {"Database": {"Name": asked["Name"]}}

    def _create_table(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.tables[asked["DatabaseName"], asked["TableInput"]["Name"]] = 0, asked["TableInput"]
        return {}

    def _get_table(self, asked: dict[str, Any]) -> dict[str, Any]:
        version, table = self._find(asked["DatabaseName"], asked["Name"])
        return {"Table": {**table, "DatabaseName": asked["DatabaseName"], "VersionId": str(version)}}

    def _update_table(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked["TableInput"]["Name"]
        version, _ = self._find(asked["DatabaseName"], name)
        if asked["VersionId"] != str(version):
            raise _RefusedError("ConcurrentModificationException")
        self.tables[asked["DatabaseName"], name] = version + 1, asked["TableInput"]
        return {}

    def _find(self, database: str, name: str) -> tuple[int, dict[str, Any]]:
        if (database, name) not in self.tables:
            raise _RefusedError("EntityNotFoundException")
        return self.tables[database, name]


@contextmanager
def running_glue() -> Iterator[tuple[str, Glue]]:
    """The address of a Glue, and its state."""
    glue = Glue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            operation = self.headers["X-Amz-Target"].removeprefix("AWSGlue.")
            ending = Ending(lands=True)
            if operation == "UpdateTable":
                glue.updates += 1
                ending = glue.endings.pop(0) if glue.endings else ending
                if ending.lands and ending != Ending(lands=True):
                    glue.answer(operation, asked)
            if ending == Ending(lands=True):
                try:
                    self._say(200, glue.answer(operation, asked))
                except _RefusedError as refused:
                    self._say(400, {"__type": refused.code, "Message": refused.code})
            elif ending.code is not None:
                self._say(ending.status, {"__type": ending.code, "Message": ending.code})

        def _say(self, status: int, answer: dict[str, Any]) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}", glue
        finally:
            server.shutdown()
            thread.join()
