"""Views as values: metadata, versions, and the updates and requirements of the REST specification for them.

View metadata is small and holds no growing logs, so unlike a table's it is one parsed value. Holds no rules;
those are in `view_apply`.
"""

from __future__ import annotations

from typing import get_args

import msgspec

from headgate.core.schema import Schema
from headgate.core.updates import (
    AddSchema,
    AssignUuid,
    RemoveProperties,
    SetLocation,
    SetProperties,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersion,
)
from headgate.core.value import Int, Long, Value

VIEW_FORMAT_VERSION = 1


class SqlRepresentation(Value, frozen=True, tag_field="type", tag="sql"):
    """The view's query in one SQL dialect; the only kind of representation that the specification has."""

    sql: str
    dialect: str


class ViewVersion(Value, frozen=True):
    """One definition of a view. Never changed once it is added."""

    version_id: Int
    timestamp_ms: Long
    schema_id: Int  # -1 in a request: the schema added last
    summary: dict[str, str]
    representations: tuple[SqlRepresentation, ...]
    default_namespace: tuple[str, ...]
    default_catalog: str | None = None


class ViewHistoryEntry(Value, frozen=True):
    """When a version became current."""

    version_id: Int
    timestamp_ms: Long


class ViewMetadata(Value, frozen=True):
    """Everything about a view; the same JSON is its metadata file and its envelope in the store."""

    view_uuid: str
    format_version: Int
    location: str
    schemas: tuple[Schema, ...]
    current_version_id: Int
    versions: tuple[ViewVersion, ...]
    version_log: tuple[ViewHistoryEntry, ...]
    properties: dict[str, str] = msgspec.field(default_factory=dict)

    def find_version(self, version_id: int) -> ViewVersion | None:
        """One version, or None when there is none of that id."""
        return next((version for version in self.versions if version.version_id == version_id), None)

    def current_version(self) -> ViewVersion:
        """The current version; whole metadata has one."""
        return next(v for v in self.versions if v.version_id == self.current_version_id)


class AddViewVersion(Value, frozen=True, tag_field="action", tag="add-view-version"):
    """The id is reassigned when it is taken; an equal version is reused."""

    view_version: ViewVersion


class SetCurrentViewVersion(Value, frozen=True, tag_field="action", tag="set-current-view-version"):
    """-1 is the version added last in this request."""

    view_version_id: Int


ViewUpdate = (
    AssignUuid
    | UpgradeFormatVersion
    | AddSchema
    | SetLocation
    | SetProperties
    | RemoveProperties
    | AddViewVersion
    | SetCurrentViewVersion
)


class AssertViewUuid(Value, frozen=True, tag_field="type", tag="assert-view-uuid"):
    """The view must still be the one the client loaded."""

    uuid: str


ViewRequirement = AssertViewUuid


def _tags(kinds: tuple[type[msgspec.Struct], ...]) -> frozenset[str]:
    return frozenset(str(kind.__struct_config__.tag) for kind in kinds)


# What a client may send for a table, and never for a view: refused by name, not as an unknown word.
TABLE_ONLY_ACTIONS = _tags(get_args(TableUpdate)) - _tags(get_args(ViewUpdate))
TABLE_ONLY_REQUIREMENTS = _tags(get_args(TableRequirement))
