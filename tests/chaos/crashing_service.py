"""A service that kills itself at a named step: the real one, over a store and files that watch their calls.

`Cradle` starts services quickly: they are forked from a process in which everything is imported already. An
ordinary service is `headgate serve` itself. A crashing one differs in its store and files only, and ends by
SIGKILL, so nothing of it gets to clean up.
"""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

import psycopg
from tools.service_process import HOST, find_free_port

from headgate.cli.main import main
from headgate.cli.options import add_settings, read_settings
from headgate.core.commit import Target
from headgate.files.base import Files
from headgate.files.open import open_files
from headgate.service import jobs
from headgate.service.app import build_app
from headgate.service.gate import Gates
from headgate.service.routes import all_routes
from headgate.service.server import open_socket, serve
from headgate.service.services import build_services
from headgate.store.base import Job, Operation, Refused, Store
from headgate.store.postgres import PostgresStore
from headgate.store.sqlite import SqliteStore
from tests.forked import forked

_READY_WAIT_S = 30.0
_POLL_S = 0.02
# Of an ordinary service, whose files are waited for; in a crashing one checkpoints would be steps, too.
_QUICK = ("--checkpoint-interval-s", "0.05")


@dataclass(frozen=True)
class Crash:
    """Die before or after the nth call of a step.

    Of the files: `write_new` (any create), `write_soft` (one that is not synced), `sync`. Of the store: `write`, its
    COMMIT, `claimed`, `drop_files`. `gather`: the gate of this table is shut until so many commits wait for it.
    """

    step: str
    when: str
    nth: int
    gather: tuple[Target, int] | None = None

    @classmethod
    def parse(cls, text: str) -> Crash:
        """From `write_new.before.1`."""
        step, when, nth = text.split(".")
        return cls(step, when, int(nth))


class Trap:
    """Counts the calls of steps in this process, and springs at one of them."""

    def __init__(self, crash: Crash) -> None:
        self._crash = crash
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], int] = {}
        self.armed = threading.local()  # set while this thread is inside `Store.write`

    def pass_by(self, step: str, when: str) -> None:
        """Come to a step."""
        with self._lock:
            count = self._counts[step, when] = self._counts.get((step, when), 0) + 1
        if (step, when, count) == (self._crash.step, self._crash.when, self._crash.nth):
            os.kill(os.getpid(), signal.SIGKILL)

    def at_statement(self, sql: object, when: str) -> None:
        """Come to a statement of a connection."""
        if sql == "COMMIT" and getattr(self.armed, "on", False):
            self.pass_by("COMMIT", when)


class TrappedFiles:
    """`Files` with a trap at each create."""

    def __init__(self, files: Files, trap: Trap) -> None:
        self._files, self._trap = files, trap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files`."""
        self._trap.pass_by("write_new", "before")
        self._files.write_new(location, parts)
        self._trap.pass_by("write_new", "after")

    def write_soft(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files`. A create is a create, synced or not, so the trap counts it twice."""
        self._trap.pass_by("write_new", "before")
        self._trap.pass_by("write_soft", "before")
        self._files.write_soft(location, parts)
        self._trap.pass_by("write_soft", "after")
        self._trap.pass_by("write_new", "after")

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]], *, keeps: bool = False) -> None:
        """See `Files`: one after the other, so that the trap can spring between two."""
        for location, parts in files:
            self.write_soft(location, parts)

    def sync(self, locations: Sequence[str]) -> None:
        """See `Files`."""
        self._trap.pass_by("sync", "before")
        self._files.sync(locations)
        self._trap.pass_by("sync", "after")


class TrappedStore:
    """`Store` with a trap at each write, and at the COMMIT inside it."""

    def __init__(self, store: Store, trap: Trap) -> None:
        self._store, self._trap = store, trap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        """See `Store`."""
        self._trap.pass_by("write", "before")
        self._trap.armed.on = True
        try:
            outcome = self._store.write(operations)
        finally:
            self._trap.armed.on = False
        self._trap.pass_by("write", "after")
        return outcome

    def claim_jobs(self, *, owner: str, now_ms: int, lease_ms: int, limit: int) -> list[Job]:
        """See `Store`. A claim that brings nothing is no step."""
        claimed = self._store.claim_jobs(owner=owner, now_ms=now_ms, lease_ms=lease_ms, limit=limit)
        if claimed:
            self._trap.pass_by("claimed", "after")
        return claimed

    def drop_files(self, locations: Sequence[str]) -> None:
        """See `Store`."""
        self._trap.pass_by("drop_files", "before")
        self._store.drop_files(locations)
        self._trap.pass_by("drop_files", "after")


def open_trapped_store(url: str, trap: Trap) -> Store:
    """The store of a URL, with the trap in its connections and around it."""

    class TrappedSqlite(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            trap.at_statement(sql, "before")
            cursor = super().execute(sql, *parameters)
            trap.at_statement(sql, "after")
            return cursor

    class TrappedPostgres(psycopg.Connection[tuple[Any, ...]]):
        def execute(self, query: Any, *parameters: Any, **options: Any) -> Any:
            trap.at_statement(query, "before")
            cursor = super().execute(query, *parameters, **options)
            trap.at_statement(query, "after")
            return cursor

    def connect(path: str) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=TrappedSqlite)

    if url.startswith("postgresql"):
        store: Any = PostgresStore(url, connection_class=TrappedPostgres)
    else:
        store = SqliteStore(url.removeprefix("sqlite:///"), connect=connect)
    return cast("Store", TrappedStore(store, trap))


# --- processes -------------------------------------------------------------------------------------------


def _run_ordinary(options: Sequence[str], log: str) -> None:
    _write_to(log)
    sys.exit(main(["serve", *options]))


def _run_crashing(options: Sequence[str], log: str, crash: Crash) -> None:
    _write_to(log)
    parser = argparse.ArgumentParser()
    add_settings(parser)
    settings = read_settings(parser.parse_args(options))
    trap = Trap(crash)
    with open_socket(settings) as listener:
        files, _ = open_files(settings.warehouse_location)
        trapped: Any = TrappedFiles(files, trap)
        services = build_services(
            settings, store=open_trapped_store(settings.database_url, trap), files=trapped
        )
        services.housekeeper.start()
        jobs.start(services)
        if crash.gather is not None:
            _gather(services.gates, *crash.gather)
        serve(build_app(services, settings, all_routes()), settings, listener)


def _gather(gates: Gates, target: Target, count: int) -> None:
    """Shut a table's gate until so many commits wait for it: they are one group then."""
    held = ExitStack()
    held.enter_context(gates.hold([target]))

    def let_go() -> None:
        with held:
            while gates.depth < count:
                time.sleep(_POLL_S)

    threading.Thread(target=let_go, daemon=True).start()


def _write_to(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


@dataclass(frozen=True)
class Child:
    """A running service."""

    port: int
    process: BaseProcess
    log: Path

    @property
    def uri(self) -> str:
        """Where it answers."""
        return f"http://{HOST}:{self.port}"

    def stop(self) -> None:
        """End it kindly."""
        self.process.terminate()
        self.process.join(20)
        if self.process.is_alive():
            self.kill()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.join()

    def wait_for_crash(self) -> None:
        """It killed itself, and soon."""
        self.process.join(20)
        if self.process.exitcode != -signal.SIGKILL:
            self.kill()
            raise AssertionError(
                f"no crash; exit code {self.process.exitcode}\n{self.log.read_text()[-4000:]}"
            )


class Cradle:
    """Starts services over one database and one warehouse, on one port."""

    def __init__(self, folder: Path, database: str, options: Sequence[str] = ()) -> None:
        self._context = forked()
        self._port = find_free_port()
        self._log = folder / "service.log"
        self.database = database
        self._options = [
            *("--host", HOST, "--port", str(self._port), "--database", database),
            *("--warehouse", str(folder / "warehouse"), *options),
        ]

    def start(self, crash: Crash | None = None) -> Child:
        """A service that answers."""
        if crash is None:
            quick = ([*self._options, *_QUICK], str(self._log))
            process = self._context.Process(target=_run_ordinary, args=quick, daemon=True)
        else:
            watched = (self._options, str(self._log), crash)
            process = self._context.Process(target=_run_crashing, args=watched, daemon=True)
        process.start()
        child = Child(self._port, process, self._log)
        deadline = time.monotonic() + _READY_WAIT_S
        while not _is_ready(self._port):
            if not process.is_alive() or time.monotonic() > deadline:
                child.kill()
                raise AssertionError(
                    f"the service did not start; exit code {process.exitcode}:\n{self._log.read_text()[-4000:]}"
                )
            time.sleep(_POLL_S)
        return child


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
