"""Numbered forward migrations: which files there are, and which of them a database still needs.

Knows files and numbers only; each store runs the statements inside its own locked transaction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from headgate.errors import BadInput, invariant
from headgate.store.base import SCHEMA_VERSION_TABLE

# One shape in both dialects, and needed before the first numbered file can run.
CREATE_VERSIONS = f"CREATE TABLE IF NOT EXISTS {SCHEMA_VERSION_TABLE} (version INTEGER PRIMARY KEY)"
LOAD_VERSION = f"SELECT max(version) FROM {SCHEMA_VERSION_TABLE}"

_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_COMMENT = re.compile(r"--[^\n]*")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file: the statements that lead from version `number - 1` to `number`."""

    number: int
    statements: tuple[str, ...]


def load_migrations(dialect: str) -> tuple[Migration, ...]:
    """All migrations of `sqlite` or `postgres`, in order, without gaps."""
    found: list[Migration] = []
    for file in (resources.files("headgate.store") / "migrations" / dialect).iterdir():
        if match := _FILE_NAME.fullmatch(file.name):
            # No statement of ours has a semicolon or two dashes inside a literal.
            parts = _COMMENT.sub("", file.read_text(encoding="utf-8")).split(";")
            statements = tuple(part.strip() for part in parts if part.strip())
            found.append(Migration(int(match[1]), statements))
    found.sort(key=lambda migration: migration.number)
    numbers = [migration.number for migration in found]
    invariant(numbers == list(range(1, len(found) + 1)), f"migrations are numbered from 1: {numbers}")
    return tuple(found)


def plan_migrations(migrations: Sequence[Migration], *, at: int | None) -> Sequence[Migration]:
    """What a database at version `at` (None: empty) still needs; refuses one that a newer Headgate wrote."""
    version = at or 0
    if version > len(migrations):
        raise BadInput(
            f"the database has schema version {version}, this Headgate knows up to {len(migrations)}; "
            "run a newer Headgate against it",
            field="database",
            version=version,
        )
    return migrations[version:]
