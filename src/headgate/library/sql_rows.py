"""The row of a table in PyIceberg's SqlCatalog, by the catalog's own engine. Only an error of COMMIT leaves a doubt."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.typedef import Identifier
from sqlalchemy import text

from headgate.library.adapters import Heard, hear

_WHERE = "WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name"
_LOAD = text(f"SELECT metadata_location FROM iceberg_tables {_WHERE}")
_SWAP = text(
    "UPDATE iceberg_tables SET metadata_location = :new, previous_metadata_location = :old "
    f"{_WHERE} AND metadata_location = :old"
)


class SqlRow:
    """One row of `iceberg_tables`."""

    def __init__(self, catalog: SqlCatalog, identifier: Identifier) -> None:
        self._engine = catalog.engine
        self._key = {
            "catalog": catalog.name,
            "namespace": Catalog.namespace_to_string(identifier[:-1]),
            "name": identifier[-1],
        }

    def load(self) -> str | None:
        """The metadata location, or None when there is no such table."""
        with self._engine.connect() as connection:
            found = connection.execute(_LOAD, self._key).scalar_one_or_none()
        return None if found is None else str(found)

    def swap(self, *, new: str, old: str) -> Heard | None:
        """Put the new location where the old one stands."""
        with self._engine.connect() as connection:
            done = connection.execute(_SWAP, {**self._key, "new": new, "old": old})
            if done.rowcount == 0:
                return Heard.LOST
            try:
                connection.commit()
            except Exception as error:  # outermost edge: of foreign code; it may have been made durable
                return hear(error, sent=True)
        return None
