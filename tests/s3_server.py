"""A real S3 server for a whole test run: versitygw over a temporary folder, stopped by its own process id.

Skips, with the reason, where the server is not installed and Go cannot build it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.files.s3_config import S3Config

_MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_CACHE = Path(__file__).resolve().parent.parent / ".cache" / "bin"
_BUILD_TIMEOUT_S = 900
_START_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where the server is and how to enter it."""

    endpoint: str
    access_key_id: str
    secret_access_key: str
    bucket: str

    def config(self, *, endpoint: str | None = None, retries_max: int = 2) -> S3Config:
        """The settings of a client, directly or through a proxy."""
        return S3Config(
            endpoint=endpoint or self.endpoint,
            region="us-east-1",
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            allow_http=True,
            timeout_s=10,
            retries_max=retries_max,
        )


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server, with one empty bucket."""
    program = _find_program()
    if isinstance(program, str):
        pytest.skip(program)
    folder = tmp_path_factory.mktemp("s3")
    (folder / "lake").mkdir()
    port = _free_port()
    environment = {**os.environ, "ROOT_ACCESS_KEY": "headgate", "ROOT_SECRET_KEY": "headgate-secret"}
    with (folder.parent / "versitygw.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(folder)],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        _wait_until_open(port, process)
        yield S3Server(f"http://127.0.0.1:{port}", "headgate", "headgate-secret", "lake")
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)


def _find_program() -> Path | str:
    """The server's program, built into the cache if need be, by one process at a time; or why there is none."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "versitygw.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _find_or_build()


def _find_or_build() -> Path | str:
    found = shutil.which("versitygw")
    for place in (
        _CACHE / "versitygw",
        Path.home() / "go" / "bin" / "versitygw",
        Path(found) if found else None,
    ):
        if place is not None and place.is_file():
            return place
    if (go := shutil.which("go")) is None:
        return "no S3 server: versitygw is not installed and there is no Go to build it"
    try:
        built = subprocess.run(
            [go, "install", _MODULE],
            env={**os.environ, "GOBIN": str(_CACHE)},
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no S3 server: go install {_MODULE} took over {_BUILD_TIMEOUT_S} s"
    if built.returncode != 0:
        return f"no S3 server: go install {_MODULE} failed: {built.stderr[-300:]}"
    return _CACHE / "versitygw"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"versitygw ended at start, exit code {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)  # a process gives no signal that it listens
        else:
            return
    raise RuntimeError("versitygw did not listen in time")
