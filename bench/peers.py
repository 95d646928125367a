"""Writers without a gate: processes that share a catalog and race for its table, each with a retry loop of its own.

1. PyIceberg 0.12 over its SqlCatalog on SQLite: a fresh handle and a fast append of a described file each time.
2. Our own core: every process is a whole service that only its own writer asks, so a lost swap is tried again by
   the process that lost it. No HTTP between writer and core, which flatters it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from tools.service_process import running_service, sqlite_url

from bench.common import NAMESPACE
from bench.described import describe_file
from bench.fine import describe_for_pyiceberg
from bench.points import Catalog, open_catalog, read_paths
from bench.race import Race, Step, Tried, run_race
from bench.slow_files import Latencies
from bench.slow_service import open_slow_services
from headgate.service.app import build_app
from headgate.service.logs import set_up_logs
from headgate.service.routes import all_routes
from headgate.service.settings import Settings

_RETRIES = "commit.retry.num-retries"
_TABLE = f"{NAMESPACE}.t"
_CATALOG = "catalog.db"


def race_pyiceberg(folder: Path, race: Race, *, retries: int | None) -> dict[str, Any]:
    """Figures of PyIceberg's writers; `retries` of None is its default."""
    folder.mkdir()
    catalog = _open_sql_catalog(folder)
    catalog.create_namespace(NAMESPACE)
    properties = {} if retries is None else {_RETRIES: str(retries)}
    catalog.create_table(
        _TABLE, Schema(NestedField(1, "id", LongType(), required=True)), properties=properties
    )
    found = run_race(race, make_pyiceberg_step, str(folder))
    return {**found, "present": len(catalog.load_table(_TABLE).metadata.snapshots)}


def race_own_core(folder: Path, race: Race, latencies: Latencies | None = None) -> dict[str, Any]:
    """Figures of writers that each drive our core themselves."""
    database = sqlite_url(folder / _CATALOG)
    with running_service(folder, database=database) as service:
        catalog = open_catalog(service, database=database, auth=False)
        table = catalog.create_table("chain")
        location = catalog.load_table(table)["location"]
    found = run_race(race, make_own_step, str(folder), table, location, latencies)
    with running_service(folder, database=database) as service:
        metadata = Catalog((service,)).load_table(table)
        return {**found, "present": len(set(read_paths(metadata)))}


def make_pyiceberg_step(folder: str) -> Step:
    """One writer of PyIceberg."""
    logging.disable(logging.WARNING)  # a line for every retry
    table = _open_sql_catalog(Path(folder)).load_table(_TABLE)

    def step() -> Tried:
        file = describe_for_pyiceberg(table.location())
        try:
            table.refresh()  # a stale handle would lose its first attempt for nothing
            with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
                append.append_data_file(file)
        except Exception as error:  # outermost edge: whatever it is, this commit is lost
            return Tried(type(error).__name__)
        return Tried()

    return step


def make_own_step(folder: str, table: str, location: str, latencies: Latencies | None) -> Step:
    """One writer with a service of its own in its process, reached without a network."""
    set_up_logs("error")
    settings = Settings(
        warehouse=str(Path(folder) / "warehouse"), database=sqlite_url(Path(folder) / _CATALOG)
    )
    app = build_app(open_slow_services(settings, latencies), settings, all_routes())
    runner = asyncio.Runner()
    path = f"/v1/namespaces/{NAMESPACE}/tables/{table}".encode()

    async def post(body: bytes) -> int:
        scope = {
            "type": "http",
            "method": "POST",
            "path": path.decode(),
            "raw_path": path,
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"prefer", b"return=minimal")],
            "client": ("127.0.0.1", 0),
        }
        parts = [{"type": "http.request", "body": body, "more_body": False}]
        status = 0

        async def receive() -> MutableMapping[str, Any]:
            return parts.pop() if parts else await asyncio.get_running_loop().create_future()

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)

        await app(scope, receive, send)
        return status

    def step() -> Tried:
        change = {"action": "append", "add-data-files": [describe_file(location)]}
        status = runner.run(post(json.dumps({"requirements": [], "updates": [change]}).encode()))
        return Tried("" if status == 200 else str(status))

    return step


def _open_sql_catalog(folder: Path) -> SqlCatalog:
    uri = f"sqlite:///{folder / _CATALOG}"
    return SqlCatalog(NAMESPACE, uri=uri, warehouse=f"file://{folder / 'warehouse'}")
