"""Run `headgate serve` as a process of its own: for tests, demo, benches and the compatibility kit.

Ends only the process it started, by its own handle. Never assumes a port, a clock or a folder of the machine.
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
READY_WAIT_S = 60.0
STOP_WAIT_S = 20.0
_POLL_S = 0.05
_LOG_TAIL_BYTES = 4_000


class ServiceStartError(RuntimeError):
    """The process ended, or did not answer in time. The message ends with its log's last lines."""


@dataclass(frozen=True, slots=True)
class Service:
    """A running process and where it answers."""

    uri: str
    port: int
    log: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> int:
        """Ask it to end, insist after a while, return its exit code. To have ended already is no error."""
        self.process.terminate()
        try:
            return self.process.wait(timeout=STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """End it as a power cut would (SIGKILL)."""
        self.process.kill()
        return self.process.wait()

    def log_tail(self) -> str:
        """The last lines it wrote."""
        return self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")


def find_free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def start_process(
    command: Callable[[int], Sequence[str]],
    *,
    log: Path,
    port: int | None = None,
    ready_path: str = "/readyz",
    env: Mapping[str, str] | None = None,
) -> Service:
    """Start what `command` names for a port, and return when `ready_path` answers 200."""
    port = find_free_port() if port is None else port
    log.parent.mkdir(parents=True, exist_ok=True)
    # What a developer has set for a service of their own must not reach this one.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command(port),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**inherited, **(env or {})},
        )
    service = Service(uri=f"http://{HOST}:{port}", port=port, log=log, process=process)
    try:
        _wait_until_ready(service, ready_path)
    except BaseException:
        service.kill()
        raise
    return service


def start_service(
    *,
    warehouse: Path,
    database: str,
    log: Path,
    port: int | None = None,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Service:
    """Start `headgate serve` with this interpreter; `options` are further words of its command line."""

    def command(on: int) -> list[str]:
        serve = [sys.executable, "-m", "headgate.cli.main", "serve", "--host", HOST, "--port", str(on)]
        return [*serve, "--warehouse", str(warehouse), "--database", database, *options]

    return start_process(command, log=log, port=port, env=env)


@contextmanager
def running_service(
    folder: Path,
    *,
    database: str | None = None,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[Service]:
    """A service with warehouse, SQLite file (unless told otherwise) and log in `folder`."""
    warehouse = folder / "warehouse"
    warehouse.mkdir(parents=True, exist_ok=True)
    service = start_service(
        warehouse=warehouse,
        database=sqlite_url(folder / "catalog.db") if database is None else database,
        log=folder / "service.log",
        options=options,
        env=env,
    )
    try:
        yield service
    finally:
        service.stop()


def sqlite_url(file: Path) -> str:
    """How `--database` spells a SQLite file."""
    return f"sqlite:///{file.absolute()}"


def _wait_until_ready(service: Service, path: str) -> None:
    deadline = time.monotonic() + READY_WAIT_S
    while time.monotonic() < deadline:
        if (code := service.process.poll()) is not None:
            raise ServiceStartError(f"the service ended with code {code} too early:\n{service.log_tail()}")
        if _answers(service.port, path):
            return
        time.sleep(_POLL_S)
    raise ServiceStartError(
        f"{service.uri}{path} was not ready in {READY_WAIT_S:.0f} s:\n{service.log_tail()}"
    )


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False  # not listening yet
    finally:
        connection.close()
