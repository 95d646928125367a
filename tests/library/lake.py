"""Tables in a SqlCatalog for tests of the library: made in any format version, read back, audited to the last file."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionSpec as IcebergSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.typedef import IcebergBaseModel
from sqlalchemy import Engine

import headgate
from headgate.cli.main import main
from headgate.client.parquet import describe_parquet
from headgate.core.create import TableDefinition, build_table
from headgate.core.manifest import ManifestContent
from headgate.core.partitioning import PartitionSpec
from headgate.core.schema import Schema
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.format.table_metadata import encode_file
from headgate.library import Attempted, Clock, Policy, RetryBudget
from headgate.library.handle import Handle
from headgate.library.policy import Event, Observer
from headgate.library.roads import CatalogRoad
from headgate.library.table import Table

SCHEMA: Mapping[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "part", "required": False, "type": "string"},
        {"id": 3, "name": "value", "required": False, "type": "double"},
    ],
}
BY_PART: Mapping[str, Any] = {
    "spec-id": 0,
    "fields": [{"source-id": 2, "field-id": 1000, "name": "part", "transform": "identity"}],
}
UNPARTITIONED: Mapping[str, Any] = {"spec-id": 0, "fields": []}
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.string()),
        pa.field("value", pa.float64()),
    ]
)
NAME = "db.t"
KEY = "0190a8c0-0000-7000-8000-000000000001"


def rows(*ids: int, part: str | None = "a", value: float = 0.0) -> pa.Table:
    """Rows of one partition."""
    return pa.table({"id": list(ids), "part": [part] * len(ids), "value": [value] * len(ids)}, schema=ARROW)


class Lake:
    """One catalog and its warehouse on disk: SQL by its address, or the REST catalog of a service."""

    def __init__(self, folder: Path, uri: str | None = None, *, namespace: str = "db") -> None:
        self.folder = folder
        self.uri = uri or f"sqlite:///{folder}/catalog.db"
        self.is_rest = self.uri.startswith("http")
        self.namespace = namespace
        self._engines: list[Engine] = []
        self.catalog = self.connect()
        self.catalog.create_namespace_if_not_exists(namespace)

    def connect(self, uri: str | None = None) -> Catalog:
        """Another connection to the same catalog, as another process would have; by another address, if so told."""
        if self.is_rest:
            return RestCatalog("lake", uri=uri or self.uri)
        return self.connect_sql(uri)

    def connect_sql(self, uri: str | None = None) -> SqlCatalog:
        """The same, of a SQL catalog."""
        uri = uri or self.uri
        catalog = SqlCatalog("lake", uri=uri, warehouse=f"file://{self.folder}/warehouse")
        self._engines.append(catalog.engine)
        return catalog

    def close(self) -> None:
        """Close all connections; whoever goes on gets new ones."""
        for engine in self._engines:
            engine.dispose()

    def find(self, name: str = NAME) -> IcebergTable:
        """PyIceberg's table."""
        return self.connect().load_table(self.full_name(name))

    def full_name(self, name: str) -> str:
        """The name in this lake's own namespace."""
        return f"{self.namespace}.{name.removeprefix('db.')}"

    def create(
        self,
        name: str = NAME,
        *,
        version: int = 2,
        schema: Mapping[str, Any] = SCHEMA,
        spec: Mapping[str, Any] = BY_PART,
        properties: Mapping[str, str] | None = None,
    ) -> IcebergTable:
        """Make a table; PyIceberg makes none of v3, so its metadata file is ours and is registered."""
        told = {"format-version": str(version), **(properties or {})}
        if self.is_rest:
            return self.catalog.create_table(
                self.full_name(name),
                IcebergSchema.model_validate(schema),
                partition_spec=IcebergSpec.model_validate(spec),
                properties=told,
            )
        place = f"{self.folder}/warehouse/{name.replace('.', '/')}-{uuid4().hex[:8]}"
        definition = TableDefinition(
            schema=msgspec.convert(schema, Schema),
            location=f"file://{place}",
            uuid=str(uuid4()),
            spec=msgspec.convert(spec, PartitionSpec),
            properties=told,
        )
        metadata = build_table(definition, now_ms=1_700_000_000_000)
        file = Path(place, "metadata", f"00000-{uuid4()}.metadata.json")
        file.parent.mkdir(parents=True)
        file.write_bytes(b"".join(encode_file(metadata)))
        return self.catalog.register_table(self.full_name(name), f"file://{file}")

    def open(
        self,
        name: str = NAME,
        *,
        policy: Policy | None = None,
        road: str = "sql",
        uri: str | None = None,
    ) -> Table:
        """The library's table, over a connection of its own; by the road that all catalogs have, if so told."""
        catalog, full_name = self.connect(uri), self.full_name(name)
        if road != "catalog":
            send = {"sent": True, "reference": None}.get(road, False) if self.is_rest else None
            return headgate.open(full_name, catalog, policy=policy or quick(), send=send)
        identifier = tuple(full_name.split("."))
        io = catalog.load_table(identifier).io
        return Table(Handle(CatalogRoad(catalog, identifier, io), policy or quick()))

    def spec_ids(self, name: str = NAME) -> set[int]:
        """The specs of the live manifests."""
        metadata = self.metadata(name)
        (location,) = (
            one["manifest-list"]
            for one in metadata["snapshots"]
            if one["snapshot-id"] == metadata["current-snapshot-id"]
        )
        listed = decode_manifest_list(path_of(location).read_bytes(), location=location)
        return {manifest.partition_spec_id for manifest in listed}

    def read(self, name: str = NAME, branch: str | None = None) -> list[dict[str, Any]]:
        """All rows as PyIceberg reads them, by id."""
        scan = self.find(name).scan()
        found = (scan if branch is None else scan.use_ref(branch)).to_arrow()
        rows: list[dict[str, Any]] = found.sort_by([("id", "ascending"), ("part", "ascending")]).to_pylist()
        return rows

    def ids(self, name: str = NAME, branch: str | None = None) -> list[int]:
        """The ids of all rows."""
        return [row["id"] for row in self.read(name, branch)]

    def metadata(self, name: str = NAME) -> dict[str, Any]:
        """The metadata file that the catalog names, or what the catalog answers where there may be none."""
        table = self.find(name)
        text: bytes | str = IcebergBaseModel.model_dump_json(table.metadata, exclude_none=True)
        if not self.is_rest:
            text = path_of(table.metadata_location).read_bytes()
        found: dict[str, Any] = json.loads(text)
        return found

    def check(self, name: str = NAME, *, ignore_metadata: bool = False) -> None:
        """The table is sound, and nothing lies in its folders that it does not need.

        PyIceberg leaves a metadata file for every swap that is lost; by its road they are not ours to find.
        """
        self.audit(name)
        left = self.find_orphans(name)
        kept = ".json" if ignore_metadata or self.is_rest else " "
        assert {path for path in left if not path.endswith(kept)} == set()

    def audit(self, name: str = NAME) -> None:
        """The table is sound, and every file that it names is there."""
        source = ["--uri", self.uri] if self.is_rest else ["--metadata", self.find(name).metadata_location]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = main(["audit", self.full_name(name), *source, "--files", "--all-snapshots", "--json"])
        assert code == 0, out.getvalue()

    def find_orphans(self, name: str = NAME) -> set[str]:
        """Files in the table's folder that no snapshot, log or manifest names; hidden ones are Hadoop's checksums."""
        metadata, location = self.metadata(name), self.find(name).metadata_location
        named = {str(path_of(location))}
        named |= {str(path_of(entry["metadata-file"])) for entry in metadata.get("metadata-log", ())}
        for snapshot in metadata.get("snapshots", ()):
            named |= _files_of(snapshot["manifest-list"])
        place = path_of(metadata["location"])
        return {str(file) for file in place.rglob("[!.]*") if file.is_file()} - named


def path_of(location: str) -> Path:
    """Where a location is on disk."""
    return Path(location.removeprefix("file://"))


def _files_of(manifest_list: str) -> set[str]:
    found = {str(path_of(manifest_list))}
    for manifest in decode_manifest_list(path_of(manifest_list).read_bytes(), location=manifest_list):
        path = path_of(manifest.manifest_path)
        found.add(str(path))
        for entry in decode_manifest(path.read_bytes(), manifest, location=str(path)):
            found.add(str(path_of(entry.file.file_path)))
    return found


def live_files(lake: Lake, name: str = NAME, branch: str = "main") -> dict[str, ManifestContent]:
    """Paths of the live files of a branch, data and deletes."""
    metadata = lake.metadata(name)
    wanted = metadata["refs"][branch]["snapshot-id"]
    (snapshot,) = (one for one in metadata["snapshots"] if one["snapshot-id"] == wanted)
    found = {}
    for manifest in decode_manifest_list(path_of(snapshot["manifest-list"]).read_bytes(), location=""):
        content = path_of(manifest.manifest_path).read_bytes()
        for entry in decode_manifest(content, manifest, location=""):
            if entry.is_live:
                found[entry.file.file_path] = manifest.content
    return found


def written_file(lake: Lake, stem: str, table: pa.Table, name: str = NAME) -> dict[str, Any]:
    """A data file that somebody else wrote, with field ids, as a content file."""
    metadata = lake.metadata(name)
    ids = {column["name"]: column["id"] for column in metadata["schemas"][-1]["fields"]}
    schema = pa.schema(
        [one.with_metadata({b"PARQUET:field_id": str(ids[one.name]).encode()}) for one in table.schema]
    )
    location = f"{metadata['location']}/data/{stem}.parquet"
    path_of(location).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.cast(schema), path_of(location))
    return describe_parquet(location, metadata)


def quick(**parts: Any) -> Policy:
    """A policy that never sleeps and has a budget of its own."""
    clock = Clock(sleep_s=lambda _: None)
    return Policy(**{"clock": clock, "budget": RetryBudget(), **parts})


_JUMPS_MS = (0, 90_000, -90_000, 5, -3_600_000, 3_600_000)
_START_MS = 1_800_000_000_000
# The reference server and Headgate refuse snapshots that are more than a minute ahead of their own clock.
_AHEAD_MAX_MS = 50_000


def jumping_clock(road: str = "sql") -> Clock:
    """A wall clock that jumps with every look, forwards and backwards; nobody sleeps by it."""
    looks = [0]

    def now_ms() -> int:
        looks[0] += 1
        jump_ms = _JUMPS_MS[looks[0] % len(_JUMPS_MS)]
        if road in ("reference", "rest", "sent"):
            return time.time_ns() // 1_000_000 + min(jump_ms, _AHEAD_MAX_MS)
        return _START_MS + jump_ms

    return Clock(now_ms=now_ms, sleep_s=lambda _: None)


def append(table: Table, key: str | None = KEY) -> None:
    """One write of rows."""
    table.append(rows(2), key=key)


def delete(table: Table) -> None:
    """One copy-on-write."""
    table.delete("part = 'a' and id = 1", key=KEY)


def transact(table: Table, key: str | None = KEY) -> None:
    """Several writes as a unit."""
    with table.transaction(key=key) as transaction:
        transaction.append(rows(2))
        transaction.delete("part = 'a' and id = 1")
        transaction.set_properties({"done": "yes"})


def rivals(*moves: Any) -> Observer:
    """An observer that makes one rival move after each of the first loads: the swap that follows is lost."""
    waiting = list(moves)

    def observe(event: Event) -> None:
        if isinstance(event, Attempted) and waiting:
            waiting.pop(0)()

    return observe


def operations(lake: Lake, name: str = NAME) -> list[str]:
    """The operations of all snapshots, oldest first."""
    return [snapshot["summary"]["operation"] for snapshot in lake.metadata(name).get("snapshots", ())]


def parts(found: Iterable[Mapping[str, Any]]) -> set[str | None]:
    """The partitions of rows."""
    return {row["part"] for row in found}
