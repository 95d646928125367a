"""A change against its table, before any conflict is judged: is it well made? Pure.

Every file is checked (partition tuple fits its spec, bounds decode, counts are sane, format known, no path
twice) and every filter bound to the schema. What is wrong is a BadInput that names the field; nothing has been
read or written yet. Deletion vectors and position deletes are judged against the table's version *now*.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

import msgspec

from headgate.core.change import (
    Action,
    Append,
    ChangeUpdate,
    NoAddedDataFiles,
    NoAddedDeleteFiles,
    NoRemovedDataFiles,
    PartitionKey,
    RemovedFile,
    RequiredDataFiles,
    RequiredDeleteFiles,
    Validation,
    action_of,
)
from headgate.core.desk import check_places, desk_of
from headgate.core.filters import RowFilter, check_size, parse_filter, rename_terms
from headgate.core.locations import LocationPolicy, find_plain_file, find_spellings
from headgate.core.manifest import FileContent
from headgate.core.schema import Schema
from headgate.core.table import TableMetadata
from headgate.core.taken import Change, Check, Identity, Partition, partition_key
from headgate.core.value import LONG_MAX
from headgate.core.wire_files import WireFiles
from headgate.errors import BadInput

FILES_MAX = 100_000
NOT_REMOVED_SINCE_BASE = "not-removed-since-base"
LIVE_AT_HEAD = "live-at-head"
_MODES = (LIVE_AT_HEAD, NOT_REMOVED_SINCE_BASE)
# Names in a summary that are ours to count; what else a client writes there is its own.
COUNTED = re.compile(
    "changed-partition-count"
    "|(added|deleted|removed|total)-(records|files-size|data-files|delete-files|dvs"
    "|(position|equality)-deletes|(position|equality)-delete-files)"
)


def take_in(
    update: ChangeUpdate, table: TableMetadata, *, field: str, policy: LocationPolicy | None = None
) -> Change:
    """The change that an update asks for; BadInput when it is not well made.

    With a policy, added files must be inside the table's own folders.
    """
    if is_plain_append(update):
        return _take_in_append(update, table, field, policy)
    action = action_of(update)
    if action is None:
        raise BadInput(
            "snapshot-action: expected append, overwrite, delete or replace", field=f"{field}.snapshot-action"
        )
    _check_size(update, field)
    prefix = f"{field}." if field else ""
    files = desk_of(table, policy).files
    scopes = _Scopes(table, files, _find_names(update, table, f"{prefix}schema-id"))
    row_filter = None
    if update.delete_row_filter is not None:
        row_filter = scopes.row_filter(update.delete_row_filter, f"{field}.delete-row-filter")
    change = Change(
        action=action,
        branch=update.branch,
        create_branch=update.create_branch,
        stage_only=update.stage_only,
        base_snapshot_id=update.base_snapshot_id,
        added_data=files.read(update.add_data_files, f"{field}.add-data-files", data=True),
        added_deletes=files.read(update.add_delete_files, f"{field}.add-delete-files", data=False),
        removed_data=frozenset([_removed(ref)[0] for ref in update.remove_data_files]),
        removed_deletes=frozenset([_removed(ref) for ref in update.remove_delete_files]),
        row_filter=row_filter,
        drop_partitions=scopes.partitions(update.drop_partitions or (), f"{field}.drop-partitions"),
        data_sequence_number=update.add_data_files_sequence_number,
        delete_sequence_number=update.add_delete_files_sequence_number,
        summary=update.summary,
        checks=tuple(
            [
                scopes.check(validation, f"{prefix}commit-validations[{i}]")
                for i, validation in enumerate(update.commit_validations)
            ]
        ),
        field=field,
        rewrites_manifests=update.rewrite_manifests,
    )
    if policy is not None:
        check_places(change, table, policy, field)
    _check_shape(change, update, prefix)
    check_files(change, table, field=field)
    return change


def is_plain_append(update: ChangeUpdate) -> bool:
    """Whether an update adds data files and says nothing else that would have to be looked at."""
    return type(update) is Append and not (
        update.commit_validations
        or update.add_delete_files
        or update.remove_data_files
        or update.remove_delete_files
        or update.delete_row_filter is not None
        or update.drop_partitions is not None
        or update.rewrite_manifests
        or update.schema_id is not None
        or update.add_data_files_sequence_number is not None
        or update.add_delete_files_sequence_number is not None
    )


_APPEND = Action.APPEND  # an attribute of an enum takes longer than a call
_NO_PATHS: frozenset[str] = frozenset()
_NO_FILES: frozenset[Identity] = frozenset()
_NO_PARTITIONS: frozenset[Partition] = frozenset()


def _take_in_append(
    update: ChangeUpdate, table: TableMetadata, field: str, policy: LocationPolicy | None
) -> Change:
    """As `take_in`, of an update that is nothing but an append."""
    if len(update.add_data_files) > FILES_MAX:
        _check_size(update, field)
    desk, envelope = desk_of(table, policy), table.envelope
    files = desk.files.read(update.add_data_files, f"{field}.add-data-files", data=True)
    change = Change(
        _APPEND,
        update.branch,
        update.create_branch,
        update.stage_only,
        update.base_snapshot_id,
        files,
        (),
        _NO_PATHS,
        _NO_FILES,
        None,
        _NO_PARTITIONS,
        None,
        None,
        update.summary,
        (),
        field,
    )
    rows = size_bytes = 0
    inside = desk.folders
    is_strange = not inside
    for file in files:
        rows += file.record_count
        size_bytes += file.file_size_in_bytes
        path = file.file_path
        if not path.startswith(inside) or find_plain_file(path) is None:
            is_strange = True
    # The checks that every change goes through name what is wrong; each is skipped only if it would find nothing.
    if is_strange and policy is not None:
        check_places(change, table, policy, field)
    if not update.branch or update.summary:
        _check_shape(change, update, f"{field}." if field else "")
    if rows + (envelope.next_row_id or 0) > LONG_MAX or size_bytes > LONG_MAX:
        _check_numbers(change, table, field)
    if len(files) > 1:
        _check_unique(change, field)
    return change


def _find_names(update: ChangeUpdate, table: TableMetadata, field: str) -> Schema | None:
    """The schema whose names the filters use, if that is not the current one."""
    wanted = update.schema_id
    if wanted is None or wanted == table.envelope.current_schema_id:
        return None
    for schema in table.envelope.schemas:
        if schema.schema_id == wanted:
            return schema
    raise BadInput(f"schema-id: the table has no schema {wanted}", field=field)


def check_files(change: Change, table: TableMetadata, *, field: str) -> None:
    """What the files of a change must be, whoever made it: countable, of the table's version, there once."""
    _check_numbers(change, table, field)
    _check_versions(change, table.envelope.format_version, field)
    _check_unique(change, field)


def _check_size(update: ChangeUpdate, field: str) -> None:
    size = (
        len(update.add_data_files)
        + len(update.add_delete_files)
        + len(update.remove_data_files)
        + len(update.remove_delete_files)
        + len(update.drop_partitions or ())
    )
    if size > FILES_MAX:
        raise BadInput(f"a change takes at most {FILES_MAX} files", field=field)


def _removed(ref: RemovedFile | str) -> Identity:
    return (ref, None) if isinstance(ref, str) else (ref.file_path, ref.content_offset)


def _check_shape(change: Change, update: ChangeUpdate, prefix: str) -> None:
    """What each action may hold; the field at fault is named."""

    def refuse(part: str, why: str) -> NoReturn:
        raise BadInput(why, field=f"{prefix}{part}", rule="malformed-operation")

    if not change.branch:
        refuse("branch", "a branch needs a name")
    if update.rewrite_manifests and change.action is not Action.REPLACE:
        refuse("rewrite-manifests", "only a replace rewrites manifests")
    match change.action:
        case Action.APPEND:
            if change.added_deletes:
                refuse("add-delete-files", "an append adds data files only")
            for part, removes in (
                ("remove-data-files", change.removed_data),
                ("remove-delete-files", change.removed_deletes),
                ("delete-row-filter", change.row_filter is not None),
                ("drop-partitions", update.drop_partitions is not None),
            ):
                if removes:
                    refuse(part, "an append removes nothing")
        case Action.DELETE:
            if change.added_data:
                refuse("add-data-files", "a delete adds no data files; use overwrite")
        case Action.REPLACE:
            _check_replace(change, update, refuse)
        case Action.OVERWRITE:
            pass
    if "operation" in change.summary:
        refuse("summary", "the summary's operation is the action; leave it out")
    for name in change.summary:
        if COUNTED.fullmatch(name) is not None:
            refuse("summary", f"{name[:40]} is counted by the service; leave it out")


def _check_numbers(change: Change, table: TableMetadata, field: str) -> None:
    """Rows may be said to be older than this commit, if they are: a rewrite keeps the age of what it rewrites."""
    next_row_id = table.envelope.next_row_id or 0
    for name, files in (("add-data-files", change.added_data), ("add-delete-files", change.added_deletes)):
        rows, size_bytes = 0, 0
        for file in files:
            rows += file.record_count
            size_bytes += file.file_size_in_bytes
        if rows + next_row_id > LONG_MAX or size_bytes > LONG_MAX:
            raise BadInput(
                f"{name}: the files have more rows or bytes than can be counted", field=f"{field}.{name}"
            )
    if change.data_sequence_number is None and change.delete_sequence_number is None:
        return
    # Rows that look younger than the base would hide from deletes that landed since.
    base = None if change.base_snapshot_id is None else table.find_snapshot(change.base_snapshot_id)
    last = table.envelope.last_sequence_number if base is None else base.sequence_number
    for name, number in (
        ("add-data-files-sequence-number", change.data_sequence_number),
        ("add-delete-files-sequence-number", change.delete_sequence_number),
    ):
        if number is None:
            continue
        if change.action is not Action.REPLACE:
            raise BadInput(
                f"{name}: only a replace keeps the sequence number of what it replaces",
                field=f"{field}.{name}",
                rule="malformed-operation",
            )
        if number > last and table.envelope.format_version > 1:  # v1 has no sequence numbers to keep
            raise BadInput(
                f"{name}: {number} is beyond the last sequence number that the writer saw, {last}",
                field=f"{field}.{name}",
            )


def _check_replace(change: Change, update: ChangeUpdate, refuse: Callable[[str, str], NoReturn]) -> None:
    if change.row_filter is not None:
        refuse("delete-row-filter", "a replace names the files that it removes")
    if update.drop_partitions is not None:
        refuse("drop-partitions", "a replace names the files that it removes")
    if update.rewrite_manifests:
        if change.added_data or change.added_deletes or change.removed_data or change.removed_deletes:
            refuse("rewrite-manifests", "a rewrite of manifests changes no files")
        return
    if not change.removed_data and not change.removed_deletes:
        refuse("remove-data-files", "Files to delete cannot be empty")
    if not change.removed_data and change.added_data:
        refuse(
            "add-data-files", "Data files to add must be empty because there's no data file to be rewritten"
        )
    if not change.removed_deletes and change.added_deletes:
        refuse(
            "add-delete-files",
            "Delete files to add must be empty because there's no delete file to be rewritten",
        )


def _check_versions(change: Change, version: int, field: str) -> None:
    for i, file in enumerate(change.added_deletes):
        why = None
        if version < 2:
            why = f"Deletes are supported in V2 and above: {file.file_path}"
        elif version == 2 and file.is_dv:
            why = f"Must not use DVs for position deletes in V2: {file.file_path}"
        elif version >= 3 and file.content is FileContent.POSITION_DELETES and not file.is_dv:
            why = f"Must use DVs for position deletes in V{version}: {file.file_path}"
        if why is not None:
            raise BadInput(why, field=f"{field}.add-delete-files[{i}]", rule="format-version")


def _check_unique(change: Change, field: str) -> None:
    if len(change.added_data) + len(change.added_deletes) <= 1 and not (
        change.removed_data or change.removed_deletes
    ):
        return  # there is nothing that it could be twice with
    seen: set[Identity] = set()
    vectors: set[str | None] = set()
    for name, files in (("add-data-files", change.added_data), ("add-delete-files", change.added_deletes)):
        for i, file in enumerate(files):
            where = f"{field}.{name}[{i}]"
            path, offset = file.identity
            spellings = {(spelling, offset) for spelling in find_spellings(path)}
            if not seen.isdisjoint(spellings):
                raise BadInput(f"the file is there twice: {file.file_path}", field=f"{where}.file-path")
            seen.update(spellings)
            if file.is_dv:
                if file.referenced_data_file in vectors:
                    raise BadInput(
                        f"two deletion vectors for one data file: {file.referenced_data_file}",
                        field=f"{where}.referenced-data-file",
                    )
                vectors.add(file.referenced_data_file)
    for name, both in (
        ("remove-data-files", {path for path, _ in seen} & change.removed_data),
        ("remove-delete-files", {path for path, _ in seen & change.removed_deletes}),
    ):
        if both:
            raise BadInput(f"the file is added and removed: {min(both)}", field=f"{field}.{name}")


class _Scopes:
    """Makes ready what changes and validations are about: filters and partitions of one table."""

    def __init__(self, table: TableMetadata, files: WireFiles, names: Schema | None) -> None:
        self._table, self._files, self._names = table, files, names
        self._filters: dict[bytes, RowFilter] = {}

    def row_filter(self, raw: object, field: str) -> RowFilter:
        """A filter; the same one for those that are written alike, as a change and its validations mostly are."""
        written = msgspec.json.encode(raw)
        found = self._filters.get(written)
        if found is None:
            schema = self._table.schema()
            specs = {spec.spec_id: spec for spec in self._table.envelope.partition_specs}
            named = raw
            if self._names is not None:
                check_size(raw, field=field)
                named = rename_terms(raw, old=self._names, new=schema, field=field)
            found = RowFilter(parse_filter(named, schema, field=field), schema, specs, raw=raw)
            self._filters[written] = found
        return found

    def check(self, validation: Validation, field: str) -> Check:
        scope = None
        raw = getattr(validation, "filter", None)
        if raw is not None:
            scope = self.row_filter(raw, f"{field}.filter")
        partitions = None
        keys: tuple[PartitionKey, ...] | None = None
        if isinstance(validation, NoAddedDataFiles | NoRemovedDataFiles | NoAddedDeleteFiles):
            keys = validation.partitions
        if keys is not None:
            if raw is not None:
                raise BadInput("a filter and partitions exclude each other", field=field)
            partitions = self.partitions(keys, f"{field}.partitions")
        _check_mode(validation, field)
        return Check(validation, scope, partitions)

    def partitions(self, keys: tuple[PartitionKey, ...], field: str) -> frozenset[Partition]:
        return frozenset(
            [
                partition_key(key.spec_id, self._files.partition(key.spec_id, key.partition, f"{field}[{i}]"))
                for i, key in enumerate(keys)
            ]
        )


def _check_mode(validation: Validation, field: str) -> None:
    """A word that we do not know must not turn a validation off."""
    if isinstance(validation, RequiredDataFiles | RequiredDeleteFiles):
        modes = (LIVE_AT_HEAD,) if isinstance(validation, RequiredDeleteFiles) else _MODES
        if validation.mode is not None and validation.mode not in modes:
            raise BadInput(
                f"mode: expected {' or '.join(modes)}, got {validation.mode[:40]!r}", field=f"{field}.mode"
            )
    if isinstance(validation, RequiredDataFiles):
        for operation in validation.allowed_remove_operations or ():
            if operation.lower() not in tuple(Action):
                raise BadInput(
                    f"allowed-remove-operations: {operation[:40]!r} is no operation",
                    field=f"{field}.allowed-remove-operations",
                )
