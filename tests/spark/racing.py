"""A table whose commits come late: something else happens to it after a job has read and written, before it commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headgate.client import TableClient
from headgate.spark.catalog_table import CatalogTable
from headgate.spark.lake import LakeTable


class LateClient:
    """A client that lets somebody else go first, once for each commit."""

    def __init__(self, client: TableClient | CatalogTable, first: Callable[[], None]) -> None:
        self._client, self._first = client, first

    def overwrite(self, **said: Any) -> Any:
        self._first()
        return self._client.overwrite(**said)

    def row_delta(self, **said: Any) -> Any:
        self._first()
        return self._client.row_delta(**said)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@dataclass(frozen=True)
class LateTable(LakeTable):
    """One of our tables; `first` is what happens before each commit."""

    first: Callable[[], None] = lambda: None

    @cached_property
    def client(self) -> Any:
        return LateClient(self.lake.table(self.identifier).client, self.first)


def late(table: LakeTable, first: Callable[[], None]) -> LateTable:
    """The table, with somebody else going first."""
    return LateTable(table.lake, table.identifier, first)
