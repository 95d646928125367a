"""Writer processes that race for a table of a SqlCatalog with tiny appends: our library's, and PyIceberg's own.

Both append the same Arrow rows, so both write a data file, a manifest, a list and a metadata file each time, and both
begin on a fresh head. Afterwards the table is read back, and its folder is searched for files that nobody names.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from sqlalchemy.exc import OperationalError

import headgate
from bench.common import NAMESPACE
from bench.described import describe_file
from bench.race import Maker, Race, Step, Tried, run_race
from headgate.core.manifest import ManifestEntry
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.library import Counters, Policy

RETRIES = "commit.retry.num-retries"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("part", pa.string())])
_ROWS = 3
_CHANGES_MAX = 100  # of one commit
_CREATES_MAX = 20


@dataclass(frozen=True, slots=True)
class Place:
    """A catalog and a table of it, as a writer process is told of them."""

    uri: str
    warehouse: str
    table: str

    def open(self) -> CountingCatalog:
        """The catalog."""
        return CountingCatalog(NAMESPACE, uri=self.uri, warehouse=f"file://{self.warehouse}")


class CountingCatalog(SqlCatalog):
    """PyIceberg's catalog, which counts the commits that it is asked for."""

    asked = 0

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """One attempt."""
        self.asked += 1
        return super().commit_table(table, requirements, updates)


def some_rows(part: str = "a") -> pa.Table:
    """What one commit appends."""
    return pa.table({"id": list(range(_ROWS)), "part": [part] * _ROWS}, schema=SCHEMA)


def make_library_step(place: Place, policy: Policy | None = None) -> Step:
    """One writer of ours, with the library's defaults unless it is told otherwise."""
    counters = Counters()
    told = replace(Policy() if policy is None else policy, observer=counters)
    catalog, rows = place.open(), some_rows()
    headgate.open(warm_table(catalog), catalog).append(rows)
    table = headgate.open(place.table, catalog, policy=told)
    return _counted(lambda: table.append(rows), lambda: counters.attempts)


def make_pyiceberg_step(place: Place) -> Step:
    """One writer of PyIceberg, with the retries that the table's properties say."""
    logging.disable(logging.WARNING)  # a line for every retry
    catalog, rows = place.open(), some_rows()
    catalog.load_table(warm_table(catalog)).append(rows)
    table = catalog.load_table(place.table)

    def append() -> None:
        table.refresh()  # a stale handle would lose its first attempt for nothing
        table.append(rows)

    return _counted(append, lambda: catalog.asked)


def warm_table(catalog: SqlCatalog) -> str:
    """A table of the writer's own: the first commit of a process loads most of PyArrow and PyIceberg."""
    name = f"{NAMESPACE}.warm_{uuid4().hex}"
    for _ in range(_CREATES_MAX):
        try:
            catalog.create_table(name, SCHEMA)
        except OperationalError:  # SQLite is locked: all writers are at it
            continue
        break
    return name


def _counted(commit: Callable[[], object], attempts: Callable[[], int]) -> Step:
    def step() -> Tried:
        before, failure = attempts(), ""
        try:
            commit()
        except Exception as error:  # outermost edge: whatever it is, this commit is lost
            failure = type(error).__name__
        return Tried(failure, attempts() - before)

    return step


def race_for_table(
    place: Place, race: Race, make: Maker, *, properties: Mapping[str, str] | None = None, history: int = 0
) -> dict[str, Any]:
    """Figures of one race for a new table, which has a history of so many snapshots when it begins."""
    catalog = place.open()
    catalog.create_table(place.table, SCHEMA, properties=dict(properties or {}))
    add_history(place, history)
    found = run_race(race, make, place)
    left = read_back(place)
    catalog.engine.dispose()
    published = left["files"] - history
    return {
        **found,
        "history": history,
        "present": published,
        # Who was stopped in the middle may have published, so what he was at is no loss; it is "unfinished".
        "missing": max(0, found["acknowledged"] - published) + left["doubled"],
        "orphans": left["orphans"],
    }


def add_history(place: Place, snapshots: int) -> None:
    """Give a table so many snapshots, each of a described file."""
    catalog = place.open()
    location = catalog.load_table(place.table).location()
    table = headgate.open(place.table, catalog)
    for first in range(0, snapshots, _CHANGES_MAX):
        count = min(_CHANGES_MAX, snapshots - first)
        table.commit(
            [{"action": "append", "add-data-files": [describe_file(location)]} for _ in range(count)]
        )
    catalog.engine.dispose()


# --- what is left -------------------------------------------------------------------------------------------


def read_back(place: Place) -> dict[str, Any]:
    """How many live files the table has, how many twice, and how many of its folder nobody names, by kind."""
    catalog = place.open()
    found = catalog.load_table(place.table)
    newest, folder = found.metadata_location, _path_of(found.location())
    catalog.engine.dispose()
    metadata: dict[str, Any] = json.loads(_path_of(newest).read_bytes())
    named, seen = _published(newest), dict[str, list[ManifestEntry]]()
    live: list[str] = []
    for snapshot in metadata.get("snapshots", ()):
        named.add(path := _path_of(snapshot["manifest-list"]))
        manifests = decode_manifest_list(path.read_bytes(), location=str(path))
        for manifest in manifests:
            if manifest.manifest_path not in seen:
                named.add(file := _path_of(manifest.manifest_path))
                entries = list(decode_manifest(file.read_bytes(), manifest, location=str(file)))
                named.update(_path_of(entry.file.file_path) for entry in entries)
                seen[manifest.manifest_path] = entries
        if snapshot["snapshot-id"] == metadata["current-snapshot-id"]:
            listed = [entry for manifest in manifests for entry in seen[manifest.manifest_path]]
            live = [entry.file.file_path for entry in listed if entry.is_live]
    orphans = [path for path in folder.rglob("*") if path.is_file() and path not in named]
    return {"files": len(set(live)), "doubled": len(live) - len(set(live)), "orphans": _by_kind(orphans)}


def _published(newest: str) -> set[Path]:
    """Every metadata file that ever was the table's, also those that fell off the log since."""
    named: set[Path] = set()
    oldest = _path_of(newest)
    while oldest not in named:
        named.add(oldest)
        log = json.loads(oldest.read_bytes()).get("metadata-log", ())
        files = [_path_of(entry["metadata-file"]) for entry in log] or [oldest]
        oldest = files[0]
        named.update(files[1:])
    return named


def _by_kind(paths: list[Path]) -> dict[str, int]:
    counts = {"data": 0, "manifests": 0, "lists": 0, "metadata": 0}
    for path in paths:
        if path.name.endswith(".metadata.json"):
            kind = "metadata"
        elif path.suffix == ".avro":
            kind = "lists" if path.name.startswith("snap-") else "manifests"
        else:
            kind = "data"
        counts[kind] += 1
    return counts


def _path_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def new_place(uri: str, warehouse: Path) -> Place:
    """A place for a new table in the catalog at this address."""
    return Place(uri, str(warehouse), f"{NAMESPACE}.t{uuid4().hex[:8]}")
