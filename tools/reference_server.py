"""The Iceberg reference REST server as a process of its own: Java's JdbcCatalog behind HTTP, on SQLite and local disk.

Its jars are those of the compatibility kit. Ends only the process it started.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.run_rck import ROOT, prepare_kit
from tools.service_process import Service, find_free_port, start_process

_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
# A small heap and no second compiler: it serves a few requests, and shares the machine with what it is tested by.
_JAVA = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


@contextmanager
def running_reference_server(folder: Path) -> Iterator[Service]:
    """A server with warehouse, SQLite file and log in `folder`; CannotRunError says what is missing."""
    kit = prepare_kit(ROOT / ".cache" / "rck")
    jars = Path(os.environ.get("RCK_LIB", kit / "target" / "lib"))
    warehouse = folder / "warehouse"
    warehouse.mkdir(parents=True, exist_ok=True)
    port = find_free_port()
    settings = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_URI": f"jdbc:sqlite:file:{folder / 'catalog.db'}",
        "CATALOG_WAREHOUSE": str(warehouse),
    }
    command = ["java", *_JAVA, "-cp", f"{jars}/*", _MAIN]
    server = start_process(
        lambda _: command, log=folder / "server.log", port=port, ready_path="/v1/config", env=settings
    )
    try:
        yield server
    finally:
        server.stop()
