"""From a database URL to a store. Names the setting, never the URL: it may hold a password."""

from __future__ import annotations

from headgate.errors import BadInput
from headgate.store.base import Store
from headgate.store.memory import MemoryStore
from headgate.store.sqlite import SqliteStore

_FORMS = "sqlite:///FILE, sqlite:////ABSOLUTE/FILE, postgresql://…, or memory://"
_MEMORY = frozenset({"sqlite:", "sqlite://", "sqlite:///:memory:", "memory:", "memory://"})


def open_store(url: str) -> Store:
    """Open the store behind a URL, migrated to this version's schema."""
    scheme, _, rest = url.partition("://")
    if url in _MEMORY:
        return MemoryStore()
    if scheme == "sqlite":
        return SqliteStore(_sqlite_path(rest))
    if scheme in ("postgresql", "postgres"):
        return _open_postgres(url)
    raise BadInput(f"not a database that Headgate knows: scheme={scheme!r}; use {_FORMS}", field="database")


def _sqlite_path(rest: str) -> str:
    """The file of `sqlite:///FILE`: what follows the third slash."""
    if not rest.startswith("/"):
        raise BadInput("a SQLite URL names no host; use sqlite:///FILE", field="database")
    path = rest[1:]
    if not path or path.endswith("/") or "?" in path or "#" in path or "\0" in path:
        raise BadInput("a SQLite URL ends in the name of a file and has no options", field="database")
    return path


def _open_postgres(url: str) -> Store:
    try:
        from headgate.store.postgres import PostgresStore  # optional extra
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("psycopg"):
            raise
        raise BadInput("PostgreSQL needs its driver; install headgate[postgres]", field="database") from error
    return PostgresStore(url)
