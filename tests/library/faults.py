"""Faults on the way to a catalog, at the request that is named: HTTP through a proxy, PostgreSQL through another."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pyiceberg.exceptions import CommitStateUnknownException
from tools.service_process import HOST

from headgate.library import Waited
from headgate.library.policy import Event
from headgate.library.table import Table
from tests.chaos.unsafe_proxy import Fate, unsafe_proxy
from tests.library.lake import Lake, quick
from tests.library.unsure import (
    landed_unheard,
    lands_then,
    open_unsure,
    open_unsure_catalog,
)

_CHUNK_BYTES = 1 << 16


class Faults:
    """Lets requests pass until it is armed; then the request of that number has its fate, and the others pass."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = 0
        self._fate = Fate.PASS
        self._only = b""
        self.met = False

    def arm(self, number: int, fate: Fate, *, only: bytes = b"") -> None:
        """The request of this number, counted from now, of those that begin so."""
        self._left, self._fate, self._only, self.met = number, fate, only, False

    def __call__(self, request: bytes) -> Fate:
        with self._lock:
            if not self._left or not request.startswith(self._only):
                return Fate.PASS
            self._left -= 1
            self.met = self.met or not self._left
            return Fate.PASS if self._left else self._fate


@contextmanager
def faulty_http(lake: Lake, faults: Faults) -> Iterator[str]:
    """The address of a REST catalog, by way of a proxy that has faults."""
    port = urlsplit(lake.uri).port
    assert port is not None
    with unsafe_proxy(port, faults) as own:
        yield f"http://{HOST}:{own}"


# --- PostgreSQL ---------------------------------------------------------------------------------------------


class Cuts:
    """Passes messages on until it is armed; then the connection is cut at the message of that number.

    A message is what a client sends at once: a statement, a BEGIN, a COMMIT. `before`: the server never gets it; else
    the server has answered, and the client never hears.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = 0
        self.before = True
        self.met = False

    def arm(self, number: int, *, before: bool) -> None:
        """The message of this number, counted from now."""
        self._left, self.before, self.met = number, before, False

    def is_now(self) -> bool:
        """Whether this message is the one."""
        with self._lock:
            if not self._left:
                return False
            self._left -= 1
            self.met = not self._left
            return self.met


@contextmanager
def cut_postgres(lake: Lake, cuts: Cuts) -> Iterator[str]:
    """The address of the lake's PostgreSQL, by way of a proxy that cuts connections."""
    told = conninfo_to_dict(lake.uri.replace("postgresql+psycopg://", "postgresql://", 1))
    place, port = str(told["host"]), int(told.get("port") or 5432)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with _connect(place, port) as server, contextlib.suppress(OSError):
                _pass_on(self.request, server, cuts)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server((HOST, 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            own = proxy.server_address[1]
            yield f"postgresql+psycopg://{told['user']}:@{HOST}:{own}/{told['dbname']}?sslmode=disable"
        finally:
            proxy.shutdown()
            thread.join()


def _connect(place: str, port: int) -> socket.socket:
    if not place.startswith("/"):
        return socket.create_connection((place, port))
    made = socket.socket(socket.AF_UNIX)
    made.connect(f"{place}/.s.PGSQL.{port}")
    return made


def _pass_on(client: socket.socket, server: socket.socket, cuts: Cuts) -> None:
    while True:
        ready, _, _ = select.select([client, server], [], [])
        for one in ready:
            data = one.recv(_CHUNK_BYTES)
            if not data:
                return
            if one is server:
                client.sendall(data)
                continue
            is_cut = cuts.is_now()
            if not (is_cut and cuts.before):
                server.sendall(data)
            if is_cut:
                if not cuts.before:
                    server.recv(_CHUNK_BYTES)
                return


# --- one fault, by any road ---------------------------------------------------------------------------------


@contextmanager
def losing_a_reply(lake: Lake, road: str) -> Iterator[Table]:
    """A table whose next commit lands, and the reply to it is lost."""
    if road in ("sql", "postgres"):
        yield open_unsure(lake, landed_unheard)[0]
    elif road == "catalog":
        yield open_unsure_catalog(lake, lands_then(CommitStateUnknownException("500")))[0]
    else:
        faults = Faults()
        with faulty_http(lake, faults) as uri:
            table = lake.open(road=road, uri=uri)
            faults.arm(1, Fate.LOSE_ANSWER, only=b"POST")
            yield table
        assert faults.met


@contextmanager
def busy_at_first(lake: Lake, road: str) -> Iterator[Table]:
    """A table whose catalog cannot commit at first: its database is locked, or it answers 503."""
    if lake.is_rest:
        faults = Faults()
        with faulty_http(lake, faults) as uri:
            table = lake.open(road=road, uri=uri)
            faults.arm(1, Fate.REFUSE, only=b"POST")
            yield table
        assert faults.met
        return
    lock = _lock_row if road == "postgres" else _lock_database
    with contextlib.ExitStack() as held:
        held.enter_context(lock(lake))

        def observe(event: Event) -> None:
            if isinstance(event, Waited):
                held.close()

        # Neither waits for the lock: what we do when a catalog gives up waiting is what is asked here.
        options = "?timeout=0" if road != "postgres" else "&options=-c%20lock_timeout%3D1"
        policy = quick(observer=observe, turns=False)
        yield lake.open(road=road, uri=f"{lake.uri}{options}", policy=policy)


@contextmanager
def _lock_database(lake: Lake) -> Iterator[None]:
    holder = sqlite3.connect(lake.folder / "catalog.db", isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        yield
    finally:
        holder.close()


@contextmanager
def _lock_row(lake: Lake) -> Iterator[None]:
    uri = lake.uri.replace("postgresql+psycopg://", "postgresql://", 1)
    with psycopg.connect(uri) as holder:
        holder.execute("SELECT 1 FROM iceberg_tables FOR UPDATE")
        yield
        holder.rollback()
