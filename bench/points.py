"""One point of a curve: clients on a fresh table, and the table read back to see that nothing was lost.

The table is read by fastavro, file by file, not by our own code and not by its summary: what was acknowledged must
be live exactly once, and what was refused must not be there.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
from tools.service_process import HOST, Service

from bench.common import NAMESPACE, UNPARTITIONED
from bench.load import Load, Outcome, Target, run_load
from bench.stolen import measure

GROUP_PROPERTY = "headgate.group"

_DELETED = 2  # of a manifest entry's status
_UNKNOWN = frozenset({"closed", "silent"})
_PRINCIPAL = "bench"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Catalog:
    """Replicas of one service, and a token for them unless they ask for none."""

    services: tuple[Service, ...]
    token: str = ""

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """One request to the first replica, with its JSON answer."""
        text = None if body is None else json.dumps(body)
        answer = _ask(self.services[0].port, method, path, text, self._headers())
        return json.loads(answer) if answer else {}

    def create_table(self, mode: str) -> str:
        """The name of a new table of the group mode."""
        name = f"t_{uuid.uuid4().hex[:12]}"
        wanted = {"name": name, "schema": UNPARTITIONED, "properties": {GROUP_PROPERTY: mode}}
        self.call("POST", f"/v1/namespaces/{NAMESPACE}/tables", wanted)
        return name

    def load_table(self, table: str) -> dict[str, Any]:
        """The whole metadata."""
        metadata: dict[str, Any] = self.call("GET", f"/v1/namespaces/{NAMESPACE}/tables/{table}")["metadata"]
        return metadata

    def read_metrics(self) -> dict[str, float]:
        """The numbers of /metrics, summed over the replicas."""
        found: dict[str, float] = {}
        for service in self.services:
            for line in _ask(service.port, "GET", "/metrics", None, self._headers()).splitlines():
                if not line.startswith("#"):
                    name, _, value = line.rpartition(" ")
                    found[name] = found.get(name, 0.0) + float(value)
        return found

    def cpu_seconds(self) -> float:
        """CPU time of the processes."""
        ticks = 0
        for service in self.services:
            stat = Path(f"/proc/{service.process.pid}/stat").read_text()
            user, system = stat.rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
        return ticks / _TICKS_PER_S

    def _headers(self) -> dict[str, str]:
        token = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Content-Type": "application/json", **token}


def open_catalog(*services: Service, database: str, auth: bool) -> Catalog:
    """The catalog of running services, with a namespace to work in."""
    catalog = Catalog(services, _make_token(services[0].port, database) if auth else "")
    catalog.call("POST", "/v1/namespaces", {"namespace": [NAMESPACE]})
    return catalog


def measure_point(catalog: Catalog, *, mode: str, load: Load, keys: bool = False) -> dict[str, Any]:
    """The figures of one load on a fresh table, proved against the table."""
    table = catalog.create_table(mode)
    location = catalog.load_table(table)["location"]
    ports = tuple(service.port for service in catalog.services)
    target = Target(ports, NAMESPACE, table, location, catalog.token, keys)
    cpu_before, before = catalog.cpu_seconds(), catalog.read_metrics()
    taken = measure(lambda: run_load(target, load))
    outcome = taken.found
    after, cpu_after = catalog.read_metrics(), catalog.cpu_seconds()
    swaps = _grown(before, after, 'headgate_store_seconds_count{operation="swap"}')
    retries = _grown(before, after, "headgate_swap_retries_total")
    commits = max(1, outcome.acknowledged)
    metadata = catalog.load_table(table)
    return {
        "clients": outcome.clients,
        "mode": mode,
        "commits_per_s": outcome.commits_per_s,
        "p50_ms": outcome.p50_ms,
        "p99_ms": outcome.p99_ms,
        "max_ms": outcome.max_ms,
        "acknowledged": outcome.acknowledged,
        "failed": outcome.failed,
        "examples": outcome.examples,
        "attempts_per_commit": 1 + retries / commits,
        "commits_per_swap": outcome.acknowledged / swaps if swaps else 0.0,
        "service_cpu_us": (cpu_after - cpu_before) * 1e6 / commits,
        "client_cpu_us": outcome.client_cpu_us,
        "stolen": taken.stolen,
        "bytes_per_commit": count_bytes(metadata) // commits,
        **check_table(metadata, outcome, mode=mode),
    }


def check_table(metadata: dict[str, Any], outcome: Outcome, *, mode: str) -> dict[str, int]:
    """What the table holds beside what was acknowledged; `lost` is everything that is not as it should be."""
    held = Counter(read_paths(metadata))
    refused = set(outcome.not_acknowledged)
    issued = outcome.acknowledged + len(refused)
    wanted = [n for n in range(1, issued + 1) if n not in refused]
    paths = {f"{outcome.file_prefix}{number:012d}.parquet" for number in wanted}
    in_doubt = sum(count for status, count in outcome.failed.items() if status in _UNKNOWN)
    missing = len(paths - held.keys())
    # A request whose answer never came may have landed; one that was refused may not.
    strange = max(0, len(held.keys() - paths) - in_doubt)
    doubled = sum(count - 1 for count in held.values())
    # The service merges manifests by snapshots of its own, which bring no file.
    snapshots = sum(one["summary"]["operation"] == "append" for one in metadata.get("snapshots", ()))
    miscounted = abs(snapshots - len(held)) if mode == "chain" else 0
    return {
        "snapshots": snapshots,
        "files": len(held),
        "missing": missing,
        "strange": strange,
        "doubled": doubled,
        "miscounted": miscounted,
        "lost": sum(outcome.failed.values()) + missing + strange + doubled + miscounted,
    }


def count_bytes(metadata: dict[str, Any]) -> int:
    """What the commits of a table left behind: manifests, lists, and the rows of the database.

    The rows are counted as the JSON they hold: each snapshot and history item, and the rest of the metadata each time.
    """
    folder = Path(metadata["location"].removeprefix("file://")) / "metadata"
    files = sum(file.stat().st_size for file in folder.glob("*.avro"))
    logs = ("snapshots", "snapshot-log")
    rows = sum(len(json.dumps(item)) for log in logs for item in metadata.get(log, ()))
    envelope = {name: value for name, value in metadata.items() if name not in (*logs, "metadata-log")}
    return files + rows + len(json.dumps(envelope)) * len(metadata.get("snapshots", ()))


def read_paths(metadata: dict[str, Any]) -> Iterator[str]:
    """The live data files of the current snapshot, from the files on disk."""
    head = metadata.get("current-snapshot-id")
    snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", ())}
    if head in snapshots:
        for manifest in _read_avro(snapshots[head]["manifest-list"]):
            for entry in _read_avro(manifest["manifest_path"]):
                if entry["status"] != _DELETED:
                    yield entry["data_file"]["file_path"]


def _read_avro(location: str) -> Iterator[dict[str, Any]]:
    with Path(location.removeprefix("file://")).open("rb") as file:
        records: Any = fastavro.reader(file)
        yield from records


def _grown(before: dict[str, float], after: dict[str, float], name: str) -> float:
    return after.get(name, 0.0) - before.get(name, 0.0)


def _make_token(port: int, database: str) -> str:
    """A principal of the catalog, made by the command line, and a token of its own."""
    words = ["principal", "create", _PRINCIPAL, "--role", "admin", "--database", database]
    command = [sys.executable, "-m", "headgate.cli.main", *words]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    given = dict(line.split("=", 1) for line in made.splitlines())
    pair = base64.b64encode(f"{_PRINCIPAL}:{given['client_secret']}".encode()).decode()
    headers = {"Authorization": f"Basic {pair}", "Content-Type": "application/x-www-form-urlencoded"}
    granted = json.loads(_ask(port, "POST", "/v1/oauth/tokens", "grant_type=client_credentials", headers))
    token: str = granted["access_token"]
    return token


def _ask(port: int, method: str, path: str, body: str | None, headers: dict[str, str]) -> str:
    connection = http.client.HTTPConnection(HOST, port)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status}: {text[:500]}")
    return text
