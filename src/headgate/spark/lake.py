"""A lake: the service by its address, or another catalog; how its storage is reached; its tables at one moment.

`Lake` and `LakeTable` are plain values that travel to executors; they hold no connection. Changes are sent to the
service. Where the catalog is not ours, the driver judges and builds them by the commit library, with the same verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyarrow.fs import FileSystem
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.sorting import SortOrder
from pyiceberg.utils.config import Config

from headgate.client import HeadgateClient, LoadedTable, TableClient
from headgate.client.table import Name, identifier_of
from headgate.errors import BadInput
from headgate.spark.catalog_table import CatalogTable, open_catalog, open_in, storage_in

CATALOG = "headgate"  # what PyIceberg calls the service in its messages


@dataclass(frozen=True)
class Lake:
    """A service and who asks. `storage` has PyIceberg's names: `s3.endpoint`, `s3.access-key-id`, `s3.region`…

    `Lake.over` makes one of a catalog that is not Headgate; `other` is its name then, and `properties` are PyIceberg's.
    """

    uri: str
    token: str | None = field(default=None, repr=False)
    credential: tuple[str, str] | None = field(default=None, repr=False)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    other: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def over(cls, name: str, properties: Mapping[str, str] | None = None) -> Lake:
        """Any catalog that PyIceberg knows, by its name and properties: `{"type": "sql", "uri": …, "warehouse": …}`.

        What PyIceberg's configuration (`.pyiceberg.yaml`, `PYICEBERG_CATALOG__…`) has of the name is taken in here.
        """
        if not name:
            raise BadInput("catalog: expected the name of a catalog", field="catalog")
        known = {key: str(value) for key, value in (Config().get_catalog_config(name) or {}).items()}
        said = {**known, **(properties or {})}
        if not said:
            raise BadInput(
                f"catalog: PyIceberg's configuration knows no catalog {name}, and no properties are given",
                field="catalog",
            )
        return cls("", storage=storage_in(said), other=name, properties=said)

    def client(self) -> HeadgateClient:
        """A client of the service, for fine-grained commits."""
        if self.other is not None:
            raise BadInput(f"the catalog {self.other} is not Headgate", field="catalog")
        return HeadgateClient(self.uri, token=self.token, credential=self.credential)

    def catalog(self) -> Catalog:
        """PyIceberg's client of the same catalog."""
        if self.other is not None:
            return open_catalog(self.other, tuple(sorted(self.properties.items())))
        return RestCatalog(CATALOG, uri=self.uri, **self.identity(), **self.storage)

    def table(self, name: Name) -> LakeTable:
        """A table by its name; nothing is asked of the service yet."""
        return LakeTable(self, identifier_of(name))

    def identity(self) -> dict[str, str]:
        """Who asks, as the Iceberg clients of Python and Java want to be told."""
        if self.credential is not None:
            return {
                "credential": ":".join(self.credential),
                "oauth2-server-uri": f"{self.uri.rstrip('/').removesuffix('/v1')}/v1/oauth/tokens",
            }
        return {} if self.token is None else {"token": self.token}


@dataclass(frozen=True)
class LakeTable:
    """One table of a lake."""

    lake: Lake
    identifier: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name with its namespace, as messages have it."""
        return ".".join(self.identifier)

    @cached_property
    def client(self) -> TableClient | CatalogTable:
        """The table for fine-grained commits: sent to the service, or made here."""
        if self.lake.other is not None:
            return CatalogTable(self.identifier, lambda: open_in(self.lake.catalog(), self.identifier))
        return self.lake.client().table(self.identifier)

    def load(self, *, all_snapshots: bool = False) -> TableState:
        """The table as it is now; unless all are wanted, with the snapshots that refs point at only."""
        return TableState(self, self.client.load(all_snapshots=all_snapshots))

    def __getstate__(self) -> tuple[Lake, tuple[str, ...]]:
        return self.lake, self.identifier  # a connection does not travel

    def __setstate__(self, state: tuple[Lake, tuple[str, ...]]) -> None:
        self.__dict__["lake"], self.__dict__["identifier"] = state


@dataclass(frozen=True)
class TableState:
    """A table as it was when it was loaded: what a job that begins now has read."""

    table: LakeTable
    loaded: LoadedTable

    @cached_property
    def metadata(self) -> TableMetadata:
        """The table metadata as PyIceberg's values."""
        return TableMetadataUtil.parse_obj(dict(self.loaded.metadata))

    @property
    def raw(self) -> Mapping[str, Any]:
        """The table metadata as the service sent it."""
        return self.loaded.metadata

    @property
    def schema(self) -> Schema:
        """The current schema."""
        return self.metadata.schema()

    @property
    def spec(self) -> PartitionSpec:
        """The default partition spec."""
        return self.metadata.spec()

    def spec_by_id(self, spec_id: int | None) -> PartitionSpec:
        """One of the table's partition specs; the default one when none is named."""
        found = self.metadata.specs().get(self.metadata.default_spec_id if spec_id is None else spec_id)
        if found is None:
            raise BadInput(f"spec-id: the table has no partition spec {spec_id}", field="spec_id")
        return found

    @property
    def sort_order(self) -> SortOrder:
        """The default sort order; one without fields when the table has none."""
        found = self.metadata.sort_order_by_id(self.metadata.default_sort_order_id)
        return SortOrder() if found is None else found

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.loaded.properties

    @property
    def location(self) -> str:
        """Where the table is."""
        return self.loaded.location.rstrip("/")

    @property
    def data_location(self) -> str:
        """Where its data files go: `write.data.path`, or `data` below the table."""
        return self.properties.get("write.data.path", f"{self.location}/data").rstrip("/")

    @property
    def format_version(self) -> int:
        """The version of the table format."""
        return int(self.loaded.metadata["format-version"])

    def snapshot_id(self, branch: str = "main") -> int | None:
        """The head of a branch: the base of work that begins now."""
        return self.loaded.snapshot_id(branch)

    @property
    def storage(self) -> dict[str, str]:
        """How the table's files are reached: what the lake says, and what the service hands out for this table."""
        return {**self.table.lake.storage, **self.loaded.config}

    def file_io(self) -> FileIO:
        """PyIceberg's way to the table's files."""
        return load_file_io(self.storage, self.location)

    def filesystem(self, location: str | None = None) -> tuple[FileSystem, str]:
        """PyArrow's way to a location (the table's own when none is given), and its path there."""
        return filesystem_of(location or self.location, self.storage)

    def pyiceberg(self) -> StaticTable:
        """The same state as a table of PyIceberg, for planning scans. Cannot be written through."""
        return StaticTable(
            identifier=self.table.identifier,
            metadata=self.metadata,
            metadata_location=self.loaded.metadata_location,
            io=self.file_io(),
            catalog=NoopCatalog(CATALOG),
        )


def filesystem_of(location: str, storage: Mapping[str, str]) -> tuple[FileSystem, str]:
    """PyArrow's file system for a location, by PyIceberg's `s3.*` settings, and the path in it."""
    properties = dict(storage)
    scheme, authority, path = PyArrowFileIO.parse_location(location, properties)
    if scheme not in ("file", "s3", "s3a", "s3n"):
        raise BadInput(f"location: expected file:// or s3://, got {location[:200]!r}", field="location")
    return PyArrowFileIO(properties).fs_by_scheme(scheme, authority), path
