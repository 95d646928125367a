"""What the benches share: described files, one connection of raw HTTP, figures of a process, and where results go.

Nothing here asserts anything. Files are described and not written: the service never reads them.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from tools.service_process import HOST, Service

from headgate.client.keys import new_key

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
NAMESPACE = "bench"
ROWS = 1000
LONG, INT = struct.Struct("<q"), struct.Struct("<i")
_TIMEOUT_S = 300.0
_RESENDS_MAX = 20
_RESEND_WAIT_S = 0.05
_AUDIT_WAIT_S = 1800.0
_COMMIT_ROUTE = "/tables/{table}"

Json = dict[str, Any]
Bounds = Mapping[int, tuple[bytes, bytes]]  # by field id; lower and upper, single-value serialization

UNPARTITIONED: Json = {
    "type": "struct",
    "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}],
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, and how long it took with the answer read whole."""

    status: int
    body: bytes
    seconds: float

    def json(self) -> Json:
        """The body as an object."""
        found: Json = json.loads(self.body) if self.body else {}
        return found


class Link:
    """One connection to the service. Not for several threads."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection = http.client.HTTPConnection(HOST, port, timeout=_TIMEOUT_S)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request; every status is an answer. Raises what the network raises."""
        started = time.perf_counter()
        self._connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        answer = self._connection.getresponse()
        text = answer.read()
        return Answer(answer.status, text, time.perf_counter() - started)

    def call(self, method: str, path: str, body: object = None) -> Json:
        """One request that must succeed, with its JSON answer."""
        answer = self.ask(method, path, None if body is None else json.dumps(body).encode())
        return self._sure(answer, f"{method} {path}").json()

    def commit(self, table: str, updates: Sequence[Json], *, requirements: Sequence[Json] = ()) -> Answer:
        """One commit that must succeed, answered in short."""
        body = json.dumps({"requirements": list(requirements), "updates": list(updates)}).encode()
        answer = self.ask("POST", table_path(table), body, {"Prefer": "return=minimal"})
        return self._sure(answer, f"commit to {table}")

    def settle(self, table: str, updates: Sequence[Json]) -> Answer:
        """One commit under a key, sent again while its outcome is open: 2xx, or a refusal that is certain.

        Its seconds are from the first sending to the last answer.
        """
        body = json.dumps({"requirements": [], "updates": list(updates)}).encode()
        headers = {"Prefer": "return=minimal", "Idempotency-Key": new_key()}
        started = time.perf_counter()
        last: Answer | None = None
        for _ in range(_RESENDS_MAX):
            try:
                last = self.ask("POST", table_path(table), body, headers)
            except (OSError, http.client.HTTPException):
                self._connection.close()
            else:
                if last.status < 500 and last.status != 429:
                    return Answer(last.status, last.body, time.perf_counter() - started)
            time.sleep(_RESEND_WAIT_S)
        raise RuntimeError(f"no certain answer after {_RESENDS_MAX} sendings; last={last}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @staticmethod
    def _sure(answer: Answer, what: str) -> Answer:
        if answer.status >= 300:
            raise RuntimeError(f"{what}: {answer.status}: {answer.body[:600]!r}")
        return answer


def table_path(table: str) -> str:
    """Where a table of the benches' namespace is."""
    return f"/v1/namespaces/{NAMESPACE}/tables/{table}"


def create_namespace(port: int) -> None:
    """Make the benches' namespace."""
    link = Link(port)
    link.call("POST", "/v1/namespaces", {"namespace": [NAMESPACE]})
    link.close()


@dataclass(frozen=True, slots=True)
class Shape:
    """What a table is made with."""

    schema: Json = field(default_factory=lambda: UNPARTITIONED)
    spec: Json | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def create_table(port: int, table: str, shape: Shape | None = None) -> str:
    """Make a table; its location."""
    shape = shape or Shape()
    body: Json = {"name": table, "schema": shape.schema, "properties": dict(shape.properties)}
    if shape.spec is not None:
        body["partition-spec"] = shape.spec
    link = Link(port)
    made = link.call("POST", f"/v1/namespaces/{NAMESPACE}/tables", body)
    link.close()
    location: str = made["metadata"]["location"]
    return location


def load_metadata(port: int, table: str, *, all_snapshots: bool = True) -> Json:
    """The table's metadata."""
    link = Link(port)
    query = "" if all_snapshots else "?snapshots=refs"
    metadata: Json = link.call("GET", table_path(table) + query)["metadata"]
    link.close()
    return metadata


def expire_all_but_head(port: int, table: str) -> int:
    """Remove every snapshot that no ref points at, by one commit; how many."""
    metadata = load_metadata(port, table)
    kept = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    old = [s["snapshot-id"] for s in metadata.get("snapshots", []) if s["snapshot-id"] not in kept]
    if old:
        link = Link(port)
        link.commit(table, [{"action": "remove-snapshots", "snapshot-ids": old}])
        link.close()
    return len(old)


def describe_file(
    location: str,
    *,
    partition: Sequence[object] = (),
    bounds: Bounds | None = None,
    records: int = ROWS,
    path: str | None = None,
) -> Json:
    """The content-file JSON of a data file that need not be there: nobody reads it."""
    limits = {1: (LONG.pack(1), LONG.pack(records))} if bounds is None else bounds
    ids = list(limits)
    counts = {"keys": ids, "values": [records] * len(ids)}
    return {
        "content": "data",
        "file-path": path or f"{location}/data/{uuid.uuid4()}.parquet",
        "file-format": "parquet",
        "spec-id": 0,
        "partition": list(partition),
        "file-size-in-bytes": 10_000,
        "record-count": records,
        "column-sizes": counts,
        "value-counts": counts,
        "null-value-counts": {"keys": ids, "values": [0] * len(ids)},
        "lower-bounds": {"keys": ids, "values": [low.hex() for low, _ in limits.values()]},
        "upper-bounds": {"keys": ids, "values": [high.hex() for _, high in limits.values()]},
    }


def append_of(*files: Json) -> Json:
    """The update that appends these files."""
    return {"action": "append", "add-data-files": list(files)}


def run_clients(port: int, clients: int, commits: int, step: Callable[[Link, int], float]) -> list[float]:
    """Let threads with a connection each do `commits` steps together; their results, in no order.

    `step` gets the connection and the number of the commit. The first error ends the run.
    """
    numbers = itertools.count()
    stop = threading.Event()

    def work() -> list[float]:
        link, times = Link(port), []
        try:
            while not stop.is_set() and (number := next(numbers)) < commits:
                times.append(step(link, number))
        except BaseException:
            stop.set()
            raise
        finally:
            link.close()
        return times

    with ThreadPoolExecutor(clients) as pool:
        futures = [pool.submit(work) for _ in range(clients)]
        return [seconds for future in futures for seconds in future.result()]


def summarise(times: Sequence[float]) -> dict[str, float]:
    """Latency of commits, and how many there were."""
    ordered = sorted(times)
    if not ordered:
        return {"count": 0, "p50_ms": 0.0, "p99_ms": 0.0, "max_ms": 0.0}
    return {
        "count": len(ordered),
        "p50_ms": statistics.median(ordered) * 1000,
        "p99_ms": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000,
        "max_ms": ordered[-1] * 1000,
    }


def read_rss_bytes(pid: int) -> int:
    """Memory that a process holds now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no VmRSS for process {pid}")


def read_metrics(port: int) -> list[Sample]:
    """All samples of /metrics."""
    link = Link(port)
    answer = link.ask("GET", "/metrics")
    link.close()
    if answer.status != 200:
        raise RuntimeError(f"/metrics: {answer.status}")
    families = text_string_to_metric_families(answer.body.decode())
    return [sample for family in families for sample in family.samples]


def pick_cache_metrics(metrics: Sequence[Sample]) -> dict[str, float]:
    """Those that speak of caches, by name and labels."""
    return {
        " ".join((one.name, *(f"{label}={text}" for label, text in sorted(one.labels.items())))): one.value
        for one in metrics
        if "cache" in one.name and not one.name.endswith(("_created", "_bucket"))
    }


def count_commit_answers(metrics: Sequence[Sample], status: int) -> int:
    """How many commits to one table were answered with this status."""
    return int(
        sum(
            one.value
            for one in metrics
            if one.name == "headgate_http_requests_total"
            and one.labels["method"] == "POST"
            and one.labels["route"].endswith(_COMMIT_ROUTE)
            and one.labels["status"] == str(status)
        )
    )


def audit(service: Service, table: str) -> Json:
    """The report of `headgate audit`, with `exit_code`; bounded in its number of findings."""
    command = [sys.executable, "-m", "headgate.cli.main", "audit", f"{NAMESPACE}.{table}"]
    done = subprocess.run(
        [*command, "--uri", service.uri, "--json"],
        capture_output=True,
        timeout=_AUDIT_WAIT_S,
        check=False,
    )
    if not done.stdout:
        raise RuntimeError(f"audit of {table}: exit={done.returncode} {done.stderr[-600:]!r}")
    report: Json = json.loads(done.stdout)
    errors = [f"{f['rule']}: {f['detail']}" for f in report["findings"] if f["severity"] == "error"]
    return {
        "exit_code": done.returncode,
        "sound": report["sound"],
        "errors": len(errors),
        "first_errors": errors[:5],
    }


def open_table(service: Service, table: str) -> Table:
    """The table in PyIceberg, from the service."""
    loaded: Table = RestCatalog(NAMESPACE, uri=service.uri).load_table((NAMESPACE, table))
    return loaded


def list_manifests(table: Table) -> list[ManifestFile]:
    """The manifests of the head, as PyIceberg reads them."""
    head = table.current_snapshot()
    return [] if head is None else head.manifests(table.io)


def count_parts(service: Service, table: str) -> dict[str, int]:
    """How many snapshots, manifests and live files a table has, found by a reader that is not ours."""
    loaded = open_table(service, table)
    manifests = list_manifests(loaded)
    return {
        "snapshots": len(loaded.metadata.snapshots),
        "manifests": len(manifests),
        "files": sum((m.added_files_count or 0) + (m.existing_files_count or 0) for m in manifests),
    }


def count_manifest_bytes(location: str) -> int:
    """The size of a local table's manifests and manifest lists."""
    folder = Path(location.removeprefix("file://")) / "metadata"
    return sum(file.stat().st_size for file in folder.glob("*.avro"))


def machine() -> Json:
    """What the figures were measured on, in general words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def write_result(name: str, found: Json, *, file: Path | None = None) -> Path:
    """Keep the figures beside the others, or where told."""
    file = file or RESULTS / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"bench": name, "machine": machine(), **found}, indent=2) + "\n")
    return file


def says(holds: bool) -> str:
    """How a goal is printed."""
    return "reached" if holds else "MISSED"
