"""The row of a table in PyIceberg's SqlCatalog, by the catalog's own engine. Only an error of COMMIT leaves a doubt."""

from __future__ import annotations

from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.typedef import Identifier
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import SingletonThreadPool

from headgate.library.adapters import Heard

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
        # A database in memory has one connection a thread, and each of them is a database of its own.
        self.is_of_one_thread = isinstance(catalog.engine.pool, SingletonThreadPool)
        self._is_sqlite = catalog.engine.dialect.name == "sqlite"
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
            if self._is_sqlite and _JOURNAL not in connection.info:
                keep_journal(connection)
            done = connection.execute(_SWAP, {**self._key, "new": new, "old": old})
            if done.rowcount == 0:
                return Heard.LOST
            try:
                connection.commit()
            except Exception:  # outermost edge: of foreign code; it may have been made durable
                return Heard.UNKNOWN
        return None


_JOURNAL = "headgate.journal"  # in the notes of a connection: its journal mode has been looked at


def keep_journal(connection: Connection) -> None:
    """Have SQLite overwrite its rollback journal after a commit instead of deleting it.

    To sync a file that is new, a journalling file system first writes out all that is new, our manifests and metadata
    included. Each connection may choose for itself, and no less is synced (`journal_mode=PERSIST`). A database in any
    other mode, such as WAL, is left as it is.
    """
    connection.info[_JOURNAL] = True
    with suppress(SQLAlchemyError):  # locked, perhaps
        if connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "delete":
            connection.exec_driver_sql("PRAGMA journal_mode = PERSIST").scalar_one()
