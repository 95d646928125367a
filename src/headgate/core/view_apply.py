"""Apply updates to a view's metadata, and check the requirements of a commit to it. Pure.

Semantics and texts follow the Java reference. On purpose we differ: -1 also means a schema or version that
was reused instead of added (Java fails there, which a client sees only after losing a race), and the version
log never goes backwards in time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from headgate.core.schema import Schema, check_schema, same_schema
from headgate.core.updates import (
    LAST_ADDED,
    AddSchema,
    AssignUuid,
    RemoveProperties,
    SetLocation,
    SetProperties,
    UpgradeFormatVersion,
)
from headgate.core.view import (
    VIEW_FORMAT_VERSION,
    AddViewVersion,
    SetCurrentViewVersion,
    ViewHistoryEntry,
    ViewMetadata,
    ViewRequirement,
    ViewUpdate,
    ViewVersion,
)
from headgate.errors import BadInput, RequirementFailed

HISTORY_SIZE = "version.history.num-entries"
HISTORY_SIZE_DEFAULT = 10
DROP_DIALECT_ALLOWED = "replace.drop-dialect.allowed"

_VERSION_ID_MAX = 2_000_000_000  # a client's number above this would leave no room for ours
_ID_MAX = 2**31 - 1
_LOG_ENTRIES_MAX = 1000  # going back and forth between two versions adds entries and expires none
_CLOCK_AHEAD_MAX_MS = 24 * 3600 * 1000  # as for snapshots
_TYPES_OF_FORMAT = 3  # a view may show any type that a table can have

_EMPTY = ViewMetadata(
    view_uuid="",
    format_version=VIEW_FORMAT_VERSION,
    location="",
    schemas=(),
    current_version_id=-1,
    versions=(),
    version_log=(),
)


def find_failed(requirements: Iterable[ViewRequirement], head: ViewMetadata) -> RequirementFailed | None:
    """The first requirement that does not hold at this head, or None."""
    for requirement in requirements:
        if requirement.uuid.lower() != head.view_uuid.lower():
            return RequirementFailed(
                "Requirement failed: view UUID does not match: "
                f"expected {head.view_uuid} != {requirement.uuid}"
            )
    return None


def apply(base: ViewMetadata | None, updates: Iterable[ViewUpdate], *, now_ms: int) -> ViewMetadata | None:
    """The metadata after the updates, or None when they change nothing."""
    draft = _Draft(base, now_ms=now_ms)
    for update in updates:
        _apply_one(draft, update)
    candidate = draft.view
    if not candidate.location:
        raise BadInput("a view needs a location", field="updates.location")
    if not candidate.view_uuid:
        raise BadInput("a view needs a uuid", field="updates.uuid")
    if candidate.find_version(candidate.current_version_id) is None:
        raise BadInput("Invalid view: no current version is set", field="updates.view-version-id")
    if candidate == base:
        return None
    if base is not None and not _is_true(candidate.properties.get(DROP_DIALECT_ALLOWED)):
        _check_dialects_kept(base, candidate)
    return _trim(draft, _log_of(draft, base))


class _Draft:
    """The working copy of one `apply`, and what was added so far."""

    def __init__(self, base: ViewMetadata | None, *, now_ms: int) -> None:
        self.creating = base is None
        self.view = _EMPTY if base is None else base
        self.now_ms = now_ms
        self.added_versions: set[int] = set()
        self.last_schema_id: int | None = None
        self.last_version_id: int | None = None

    def set(self, **fields: object) -> None:
        self.view = msgspec.structs.replace(self.view, **fields)


def _apply_one(draft: _Draft, update: ViewUpdate) -> None:
    match update:
        case AssignUuid():
            _assign_uuid(draft, update.uuid)
        case UpgradeFormatVersion():
            _upgrade(draft, update.format_version)
        case AddSchema():
            _add_schema(draft, update.schema)
        case SetLocation():
            draft.set(location=update.location)
        case SetProperties():
            draft.set(properties={**draft.view.properties, **update.updates})
        case RemoveProperties():
            removals = frozenset(update.removals)
            draft.set(properties={k: v for k, v in draft.view.properties.items() if k not in removals})
        case AddViewVersion():
            _add_version(draft, update.view_version)
        case SetCurrentViewVersion():
            _set_current(draft, update.view_version_id)
        case _:
            assert_never(update)


def _assign_uuid(draft: _Draft, uuid: str) -> None:
    current = draft.view.view_uuid
    if current.lower() == uuid.lower():
        return
    if not draft.creating:
        raise BadInput(f"Cannot reassign uuid: {current} to {uuid}", field="updates.uuid")
    draft.set(view_uuid=uuid)


def _upgrade(draft: _Draft, version: int) -> None:
    current = draft.view.format_version
    if version < current:
        raise BadInput(f"Cannot downgrade v{current} view to v{version}", field="updates.format-version")
    if version != VIEW_FORMAT_VERSION:
        raise BadInput(f"Unsupported format version: {version}", field="updates.format-version")


def _add_schema(draft: _Draft, schema: Schema) -> None:
    check_schema(schema, format_version=_TYPES_OF_FORMAT)
    known = next((s for s in draft.view.schemas if same_schema(s, schema)), None)
    if known is not None:
        draft.last_schema_id = known.schema_id
        return
    schema_id = max((s.schema_id for s in draft.view.schemas), default=-1) + 1
    if schema_id > _ID_MAX:
        raise BadInput("the view has no schema id left", field="updates.schema.schema-id")
    draft.set(schemas=(*draft.view.schemas, msgspec.structs.replace(schema, schema_id=schema_id)))
    draft.last_schema_id = schema_id


def _add_version(draft: _Draft, sent: ViewVersion) -> None:
    version = msgspec.structs.replace(sent, schema_id=_schema_id_of(draft, sent))
    known = next((v for v in draft.view.versions if _same_version(v, version)), None)
    if known is not None:
        draft.last_version_id = known.version_id
        return
    _check_version(draft, version)
    highest = max((v.version_id for v in draft.view.versions), default=0)
    version_id = max(version.version_id, highest + 1)
    if version_id > _ID_MAX:
        raise BadInput("the view has no version id left", field="updates.view-version.version-id")
    draft.set(versions=(*draft.view.versions, msgspec.structs.replace(version, version_id=version_id)))
    draft.added_versions.add(version_id)
    draft.last_version_id = version_id


def _schema_id_of(draft: _Draft, version: ViewVersion) -> int:
    where = "updates.view-version.schema-id"
    if version.schema_id == LAST_ADDED:
        if draft.last_schema_id is None:
            raise BadInput("Cannot set last added schema: no schema has been added", field=where)
        return draft.last_schema_id
    if all(schema.schema_id != version.schema_id for schema in draft.view.schemas):
        raise BadInput(f"Cannot add version with unknown schema: {version.schema_id}", field=where)
    return version.schema_id


def _same_version(left: ViewVersion, right: ViewVersion) -> bool:
    """Whether two versions behave the same: equal but for id and time."""
    return msgspec.structs.replace(left, version_id=0, timestamp_ms=0) == msgspec.structs.replace(
        right, version_id=0, timestamp_ms=0
    )


def _check_version(draft: _Draft, version: ViewVersion) -> None:
    if version.version_id > _VERSION_ID_MAX:
        raise BadInput(
            f"Invalid view version: id {version.version_id} is above {_VERSION_ID_MAX}",
            field="updates.view-version.version-id",
        )
    if not 0 <= version.timestamp_ms <= draft.now_ms + _CLOCK_AHEAD_MAX_MS:
        raise BadInput(
            f"Invalid view version: timestamp {version.timestamp_ms} is negative, "
            "or more than a day ahead of the service's clock",
            field="updates.view-version.timestamp-ms",
        )
    check_representations(version, field="updates.view-version.representations")


def check_representations(version: ViewVersion, *, field: str) -> None:
    """Refuse a version that no engine could read, or that one dialect would read in two ways."""
    if not version.representations:
        raise BadInput("Invalid view version: it has no query", field=field)
    seen: set[str] = set()
    for representation in version.representations:
        dialect = representation.dialect.lower()
        if not dialect:
            raise BadInput("Invalid view version: a query has no dialect", field=f"{field}.dialect")
        if dialect in seen:
            raise BadInput(
                f"Invalid view version: Cannot add multiple queries for dialect {dialect}",
                field=f"{field}.dialect",
            )
        seen.add(dialect)


def _set_current(draft: _Draft, version_id: int) -> None:
    where = "updates.view-version-id"
    if version_id == LAST_ADDED:
        if draft.last_version_id is None:
            raise BadInput("Cannot set last version id: no current version id has been set", field=where)
        version_id = draft.last_version_id
    if draft.view.find_version(version_id) is None:
        raise BadInput(f"Cannot set current version to unknown version: {version_id}", field=where)
    draft.set(current_version_id=version_id)


def _dialects(version: ViewVersion) -> frozenset[str]:
    return frozenset(representation.dialect.lower() for representation in version.representations)


def _check_dialects_kept(base: ViewMetadata, candidate: ViewMetadata) -> None:
    before, after = _dialects(base.current_version()), _dialects(candidate.current_version())
    if not before <= after:
        raise BadInput(
            f"Cannot replace view due to loss of view dialects ({DROP_DIALECT_ALLOWED}=false):\n"
            f"Previous dialects: [{', '.join(sorted(before))}]\nNew dialects: [{', '.join(sorted(after))}]",
            field="updates.view-version.representations",
        )


def _log_of(draft: _Draft, base: ViewMetadata | None) -> tuple[ViewHistoryEntry, ...]:
    """The version log, with an entry more if another version is current than before."""
    view = draft.view
    if base is not None and base.current_version_id == view.current_version_id:
        return view.version_log
    current = view.current_version()
    # A version that was current before becomes current again now, not when it was made.
    at_ms = current.timestamp_ms if current.version_id in draft.added_versions else draft.now_ms
    at_ms = max((at_ms, *(entry.timestamp_ms for entry in view.version_log[-1:])))
    entry = ViewHistoryEntry(version_id=current.version_id, timestamp_ms=at_ms)
    return (*view.version_log, entry)[-_LOG_ENTRIES_MAX:]


def _trim(draft: _Draft, log: tuple[ViewHistoryEntry, ...]) -> ViewMetadata:
    """Expire old versions, but none that is current or was added now; the log stays without gaps."""
    view = draft.view
    keep = max(len(draft.added_versions | {view.current_version_id}), _history_size(view.properties))
    if len(view.versions) <= keep:
        return msgspec.structs.replace(view, version_log=log)
    others = sorted(
        (v.version_id for v in view.versions if v.version_id != view.current_version_id), reverse=True
    )
    kept = {view.current_version_id, *others[: keep - 1]}
    last_gap = max((at for at, entry in enumerate(log) if entry.version_id not in kept), default=-1)
    return msgspec.structs.replace(
        view,
        versions=tuple(version for version in view.versions if version.version_id in kept),
        version_log=log[last_gap + 1 :],
    )


def _history_size(properties: dict[str, str]) -> int:
    text = properties.get(HISTORY_SIZE)
    if text is None:
        return HISTORY_SIZE_DEFAULT
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        raise BadInput(
            f"{HISTORY_SIZE} must be an integer but was {text[:40]!r}", field=f"properties.{HISTORY_SIZE}"
        )
    if int(text) <= 0:
        raise BadInput(f"{HISTORY_SIZE} must be positive but was {text}", field=f"properties.{HISTORY_SIZE}")
    return int(text)


def _is_true(text: str | None) -> bool:
    return text is not None and text.lower() == "true"
