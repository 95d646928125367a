"""A change against its table, before any conflict is judged: is it well made? Pure.

Every file is checked (partition tuple fits its spec, bounds decode, counts are sane, format known, no path
twice) and every filter bound to the schema. What is wrong is a BadInput that names the field; nothing has been
read or written yet. Deletion vectors and position deletes are judged against the table's version *now*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from pyiceberg.types import PrimitiveType

from headgate.core.change import (
    Action,
    BoundMap,
    ChangeUpdate,
    CountMap,
    NoAddedDataFiles,
    NoAddedDeleteFiles,
    NoRemovedDataFiles,
    PartitionKey,
    RemovedFile,
    RequiredDataFiles,
    RequiredDeleteFiles,
    Validation,
    WireFile,
    action_of,
)
from headgate.core.filters import RowFilter, parse_filter
from headgate.core.iceberg import partition_schema
from headgate.core.locations import PATH_PROPERTIES, LocationPolicy
from headgate.core.manifest import ContentFile, FileContent, Metrics, PartitionValue
from headgate.core.partitioning import PartitionSpec
from headgate.core.schema import parse_primitive, walk_fields
from headgate.core.single_values import check_bound, decode_value
from headgate.core.table import TableMetadata
from headgate.errors import BadInput, LocationRefused

FILES_MAX = 100_000
# The path column of position delete files (spec, "Reserved Field IDs"); its bounds may name the one file they are for.
DELETE_PATH_ID = 2147483546
_RESERVED_ID_MIN = 2147483447
_CONTENTS = {
    "data": FileContent.DATA,
    "position-deletes": FileContent.POSITION_DELETES,
    "equality-deletes": FileContent.EQUALITY_DELETES,
}
NOT_REMOVED_SINCE_BASE = "not-removed-since-base"
LIVE_AT_HEAD = "live-at-head"
_MODES = (LIVE_AT_HEAD, NOT_REMOVED_SINCE_BASE)
_FORMATS = ("PARQUET", "AVRO", "ORC", "PUFFIN")

Partition = tuple[int, tuple[PartitionValue, ...]]  # spec id and values
Identity = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Check:
    """A validation with its scope made ready: a filter, a set of partitions, or neither."""

    validation: Validation
    filter: RowFilter | None = None
    partitions: frozenset[Partition] | None = None

    def in_scope(self, file: ContentFile) -> bool:
        """Whether the file is something this validation cares about."""
        if self.partitions is not None:
            return partition_of(file) in self.partitions
        return self.filter is None or self.filter.may_match(file)


@dataclass(frozen=True, slots=True)
class Change:
    """What a writer wants, checked against its table."""

    action: Action
    branch: str
    create_branch: bool
    stage_only: bool
    base_snapshot_id: int | None
    added_data: tuple[ContentFile, ...]
    added_deletes: tuple[ContentFile, ...]
    removed_data: frozenset[str]
    removed_deletes: frozenset[Identity]
    row_filter: RowFilter | None
    drop_partitions: frozenset[Partition]
    data_sequence_number: int | None
    delete_sequence_number: int | None
    summary: Mapping[str, str]
    checks: tuple[Check, ...]
    field: str = ""  # where it stands in its request


def partition_of(file: ContentFile) -> Partition:
    """Which partition a file is in."""
    return file.spec_id, tuple(value for _, value in file.partition)


def take_in(
    update: ChangeUpdate, table: TableMetadata, *, field: str, policy: LocationPolicy | None = None
) -> Change:
    """The change that an update asks for; BadInput when it is not well made.

    With a policy, added files must be inside the table's own folders.
    """
    action = action_of(update)
    if action is None:
        raise BadInput(
            "snapshot-action: expected append, overwrite, delete or replace", field=f"{field}.snapshot-action"
        )
    _check_size(update, field)
    prefix = f"{field}." if field else ""
    intake = _Intake(table, field)
    row_filter = None
    if update.delete_row_filter is not None:
        row_filter = intake.row_filter(update.delete_row_filter, f"{field}.delete-row-filter")
    change = Change(
        action=action,
        branch=update.branch,
        create_branch=update.create_branch,
        stage_only=update.stage_only,
        base_snapshot_id=update.base_snapshot_id,
        added_data=intake.files(update.add_data_files, "add-data-files", data=True),
        added_deletes=intake.files(update.add_delete_files, "add-delete-files", data=False),
        removed_data=frozenset(_removed(ref)[0] for ref in update.remove_data_files),
        removed_deletes=frozenset(_removed(ref) for ref in update.remove_delete_files),
        row_filter=row_filter,
        drop_partitions=intake.partitions(update.drop_partitions or (), f"{field}.drop-partitions"),
        data_sequence_number=update.add_data_files_sequence_number,
        delete_sequence_number=update.add_delete_files_sequence_number,
        summary=update.summary,
        checks=tuple(
            intake.check(validation, f"{prefix}commit-validations[{i}]")
            for i, validation in enumerate(update.commit_validations)
        ),
        field=field,
    )
    if policy is not None:
        _check_places(change, table, policy, field)
    _check_shape(change, update, prefix)
    _check_numbers(change, table, field)
    _check_versions(change, table.envelope.format_version, field)
    _check_unique(change, field)
    return change


def _check_size(update: ChangeUpdate, field: str) -> None:
    lists: tuple[Sequence[object], ...] = (
        update.add_data_files,
        update.add_delete_files,
        update.remove_data_files,
        update.remove_delete_files,
        update.drop_partitions or (),
    )
    if sum(map(len, lists)) > FILES_MAX:
        raise BadInput(f"a change takes at most {FILES_MAX} files", field=field)


def _removed(ref: RemovedFile | str) -> Identity:
    return (ref, None) if isinstance(ref, str) else (ref.file_path, ref.content_offset)


def _check_places(change: Change, table: TableMetadata, policy: LocationPolicy, field: str) -> None:
    properties = table.envelope.properties
    folders = (table.envelope.location, *(properties[name] for name in PATH_PROPERTIES if name in properties))
    inside = tuple(policy.allow(folder, field="location") + "/" for folder in folders)
    for name, files in (("add-data-files", change.added_data), ("add-delete-files", change.added_deletes)):
        for i, file in enumerate(files):
            where = f"{field}.{name}[{i}].file-path"
            if not policy.allow_file(file.file_path, field=where).startswith(inside):
                raise LocationRefused(
                    f"the file is not inside the table's folders: {file.file_path}", field=where
                )


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


def _check_numbers(change: Change, table: TableMetadata, field: str) -> None:
    """Rows may be said to be older than this commit, if they are: a rewrite keeps the age of what it rewrites."""
    last = table.envelope.last_sequence_number
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
        if number > last:
            raise BadInput(
                f"{name}: {number} is beyond the table's last sequence number, {last}", field=f"{field}.{name}"
            )


def _check_replace(change: Change, update: ChangeUpdate, refuse: Callable[[str, str], NoReturn]) -> None:
    if update.rewrite_manifests:
        if change.added_data or change.added_deletes or change.removed_data or change.removed_deletes:
            refuse("rewrite-manifests", "a rewrite of manifests changes no files")
        return
    if change.row_filter is not None:
        refuse("delete-row-filter", "a replace names the files that it removes")
    if update.drop_partitions is not None:
        refuse("drop-partitions", "a replace names the files that it removes")
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
    seen: set[Identity] = set()
    vectors: set[str | None] = set()
    for name, files in (("add-data-files", change.added_data), ("add-delete-files", change.added_deletes)):
        for i, file in enumerate(files):
            where = f"{field}.{name}[{i}]"
            if file.identity in seen:
                raise BadInput(f"the file is there twice: {file.file_path}", field=f"{where}.file-path")
            seen.add(file.identity)
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


class _Intake:
    """Makes values of wire values, for one table."""

    def __init__(self, table: TableMetadata, field: str) -> None:
        self._field = field
        self._schema = table.schema()
        self._specs: dict[int, PartitionSpec] = {s.spec_id: s for s in table.envelope.partition_specs}
        self._orders = {order.order_id for order in table.envelope.sort_orders} | {0}
        # A file may have been written under an older schema; the current one has the last word on a type.
        self._ids: set[int] = set()
        self._types: dict[int, PrimitiveType] = {}
        for schema in (*table.envelope.schemas, self._schema):
            for _, _, id_, type_ in walk_fields(schema):
                self._ids.add(id_)
                if isinstance(type_, str) and (primitive := parse_primitive(type_)) is not None:
                    self._types[id_] = primitive

    def row_filter(self, raw: object, field: str) -> RowFilter:
        return RowFilter(parse_filter(raw, self._schema, field=field), self._schema, self._specs)

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
            (key.spec_id, tuple(v for _, v in self._partition(key.spec_id, key.partition, f"{field}[{i}]")))
            for i, key in enumerate(keys)
        )

    def files(self, wires: tuple[WireFile, ...], name: str, *, data: bool) -> tuple[ContentFile, ...]:
        return tuple(
            self._file(wire, f"{self._field}.{name}[{i}]", data=data) for i, wire in enumerate(wires)
        )

    def _file(self, wire: WireFile, field: str, *, data: bool) -> ContentFile:
        content = _CONTENTS.get(wire.content)
        if content is None or (content is FileContent.DATA) is not data:
            wanted = "data" if data else "position-deletes or equality-deletes"
            raise BadInput(f"content: expected {wanted}, got {wire.content[:40]!r}", field=f"{field}.content")
        format_ = wire.file_format.upper()
        if format_ not in _FORMATS or (format_ == "PUFFIN") > (content is FileContent.POSITION_DELETES):
            raise BadInput(
                f"file-format: {wire.file_format[:40]!r} is not known for {wire.content}",
                field=f"{field}.file-format",
            )
        if not wire.file_path:
            raise BadInput("file-path: a file needs a path", field=f"{field}.file-path")
        if wire.sort_order_id is not None and wire.sort_order_id not in self._orders:
            raise BadInput(
                f"sort-order-id: {wire.sort_order_id} is not known", field=f"{field}.sort-order-id"
            )
        self._check_deletes(wire, content, format_, field)
        return ContentFile(
            content=content,
            file_path=wire.file_path,
            file_format=format_,
            spec_id=wire.spec_id,
            partition=self._partition(wire.spec_id, wire.partition, field),
            record_count=wire.record_count,
            file_size_in_bytes=wire.file_size_in_bytes,
            equality_ids=wire.equality_ids,
            sort_order_id=wire.sort_order_id,
            referenced_data_file=wire.referenced_data_file,
            content_offset=wire.content_offset,
            content_size_in_bytes=wire.content_size_in_bytes,
            key_metadata=None
            if wire.key_metadata is None
            else _hex(wire.key_metadata, f"{field}.key-metadata"),
            split_offsets=wire.split_offsets,
            metrics=self._metrics(wire, field),
        )

    def _check_deletes(self, wire: WireFile, content: FileContent, format_: str, field: str) -> None:
        if content is FileContent.EQUALITY_DELETES:
            if not wire.equality_ids:
                raise BadInput("equality-ids: equality deletes need columns", field=f"{field}.equality-ids")
            for id_ in wire.equality_ids:
                if id_ not in self._types:
                    raise BadInput(f"equality-ids: no column has id {id_}", field=f"{field}.equality-ids")
        elif wire.equality_ids:
            raise BadInput("equality-ids: only equality deletes have them", field=f"{field}.equality-ids")
        if format_ == "PUFFIN":
            for name in ("referenced_data_file", "content_offset", "content_size_in_bytes"):
                if getattr(wire, name) is None:
                    wanted = name.replace("_", "-")
                    raise BadInput(f"{wanted}: a deletion vector needs it", field=f"{field}.{wanted}")

    def _partition(
        self, spec_id: int, values: tuple[object, ...], field: str
    ) -> tuple[tuple[int, PartitionValue], ...]:
        spec = self._specs.get(spec_id)
        if spec is None:
            raise BadInput(f"spec-id: the table has no partition spec {spec_id}", field=f"{field}.spec-id")
        if len(values) != len(spec.fields):
            raise BadInput(
                f"partition: spec {spec_id} has {len(spec.fields)} fields, not {len(values)}",
                field=f"{field}.partition",
            )
        typed = partition_schema(spec, self._schema).fields
        return tuple(
            (column.field_id, decode_value(column.field_type, value, field=f"{field}.partition[{i}]"))
            for i, (column, value) in enumerate(zip(typed, values, strict=True))
        )

    def _metrics(self, wire: WireFile, field: str) -> Metrics:
        values = self._counts(wire.value_counts, field, "value-counts")
        nulls = self._counts(wire.null_value_counts, field, "null-value-counts")
        nans = self._counts(wire.nan_value_counts, field, "nan-value-counts")
        for name, what, counts in (("null-value-counts", "nulls", nulls), ("nan-value-counts", "NaNs", nans)):
            for id_, count in (counts or {}).items():
                if values is not None and count > values.get(id_, count):
                    raise BadInput(
                        f"{name}: column {id_} has more {what} ({count}) than values ({values[id_]})",
                        field=f"{field}.{name}",
                    )
        return Metrics(
            column_sizes=self._counts(wire.column_sizes, field, "column-sizes"),
            value_counts=values,
            null_value_counts=nulls,
            nan_value_counts=nans,
            lower_bounds=self._bounds(wire.lower_bounds, f"{field}.lower-bounds"),
            upper_bounds=self._bounds(wire.upper_bounds, f"{field}.upper-bounds"),
        )

    def _counts(self, wire: CountMap | None, field: str, name: str) -> dict[int, int] | None:
        if wire is None:
            return None
        if len(wire.keys) != len(wire.values) or len(set(wire.keys)) != len(wire.keys):
            raise BadInput(f"{name}: keys and values do not pair up", field=f"{field}.{name}")
        for id_ in wire.keys:
            if id_ not in self._ids and id_ < _RESERVED_ID_MIN:
                raise BadInput(f"{name}: no column has id {id_}", field=f"{field}.{name}")
        return dict(zip(wire.keys, wire.values, strict=True))

    def _bounds(self, wire: BoundMap | None, field: str) -> dict[int, bytes] | None:
        if wire is None:
            return None
        if len(wire.keys) != len(wire.values) or len(set(wire.keys)) != len(wire.keys):
            raise BadInput("keys and values do not pair up", field=field)
        found = {}
        for id_, text in zip(wire.keys, wire.values, strict=True):
            data = _hex(text, field)
            if id_ in self._types:
                check_bound(self._types[id_], data, field=field)
            elif id_ < _RESERVED_ID_MIN:
                raise BadInput(f"no primitive column has id {id_}", field=field)
            found[id_] = data
        return found


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


def _hex(text: str, field: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise BadInput("not hexadecimal", field=field) from error
