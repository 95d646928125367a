"""A standalone Spark cluster on this machine: a master and workers, each a process of its own, from PySpark's classes.

Ends only the processes it started, by their own handles.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tools.service_process import HOST, find_free_port

READY_WAIT_S = 120.0
STOP_WAIT_S = 20.0
_POLL_S = 0.2
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


class ClusterStartError(RuntimeError):
    """A process ended, or the workers did not register in time. The message ends with a log's last lines."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster: what `--master` is told, and a folder for each worker."""

    master: str
    workers: tuple[Path, ...]


@contextmanager
def running_cluster(
    folder: Path, *, workers: int = 2, memory: str = "1g", env: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A master and workers of one core each, which keep everything in `folder` and listen on loopback only.

    Each worker has an address of its own, as on machines of their own: Spark runs no second copy of a slow task on the
    host of the first.
    """
    port, page = find_free_port(), find_free_port()
    master = f"spark://{HOST}:{port}"
    places = tuple(folder / f"worker-{number}" for number in range(workers))
    with ExitStack() as ends:
        words = ["--host", HOST, "--port", str(port), "--webui-port", str(page)]
        log = folder / "master.log"
        processes = [_start([_MASTER, *words], log, HOST, env)]
        ends.callback(_stop, processes[0])
        for number, place in enumerate(places, start=1):
            host = f"127.0.0.{number}" if sys.platform == "linux" else HOST  # others have one only
            words = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", memory]
            process = _start(
                [_WORKER, *words, "--work-dir", str(place), master], folder / f"{place.name}.log", host, env
            )
            ends.callback(_stop, process)
            processes.append(process)
        _wait_for_workers(page, workers, processes, log)
        yield Cluster(master, places)


def _start(words: list[str], log: Path, host: str, env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    own = {"SPARK_LOCAL_IP": host, "SPARK_NO_DAEMONIZE": "1", **(env or {})}
    with log.open("ab") as output:
        return subprocess.Popen(
            [str(launcher), *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **own},
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for_workers(page: int, wanted: int, processes: list[subprocess.Popen[bytes]], log: Path) -> None:
    deadline_s = time.monotonic() + READY_WAIT_S
    while time.monotonic() < deadline_s:
        if any(process.poll() is not None for process in processes):
            break
        if _alive_workers(page) == wanted:
            return
        time.sleep(_POLL_S)
    raise ClusterStartError(f"the cluster did not start:\n{log.read_text(errors='replace')[-4000:]}")


def _alive_workers(page: int) -> int:
    connection = http.client.HTTPConnection(HOST, page, timeout=5)
    try:
        connection.request("GET", "/json/")
        return int(json.loads(connection.getresponse().read()).get("aliveworkers", 0))
    except (OSError, ValueError, http.client.HTTPException):
        return 0  # not yet
    finally:
        connection.close()
