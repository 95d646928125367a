"""A fine-grained change on the wire: what a writer wants, the files it made, the validations it asks for.

Four updates (`append`, `overwrite`, `delete`, `replace`) and the alias `produce-snapshot` share these fields
(DESIGN.md, "Fine-grained commits on the wire"). Well-formed here; whether a change fits a table is decided in
`intake`, whether it may be committed in `conflicts`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from headgate.core.table import MAIN
from headgate.core.value import Count, Int, Long, Value


class Action(StrEnum):
    """What a change does; also the operation of the snapshot it makes."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    REPLACE = "replace"


class CountMap(Value):
    """Counts by field id, as two lists of one length."""

    keys: tuple[Int, ...]
    values: tuple[Count, ...]


class BoundMap(Value):
    """Bounds by field id: single-value serialization in hexadecimal."""

    keys: tuple[Int, ...]
    values: tuple[str, ...]


class WireFile(Value):
    """A data or delete file as the REST specification's content file."""

    content: str
    file_path: str
    file_format: str
    spec_id: Int
    partition: tuple[Any, ...]  # single-value JSON of each partition field, in the order of the spec
    file_size_in_bytes: Count
    record_count: Count
    key_metadata: str | None = None
    split_offsets: tuple[Count, ...] | None = None
    sort_order_id: Int | None = None
    first_row_id: Count | None = None
    column_sizes: CountMap | None = None
    value_counts: CountMap | None = None
    null_value_counts: CountMap | None = None
    nan_value_counts: CountMap | None = None
    lower_bounds: BoundMap | None = None
    upper_bounds: BoundMap | None = None
    content_offset: Count | None = None
    content_size_in_bytes: Count | None = None
    referenced_data_file: str | None = None
    equality_ids: tuple[Int, ...] | None = None


class RemovedFile(Value):
    """A file to remove: the path is enough, and for a deletion vector its offset."""

    file_path: str
    content_offset: Count | None = None


class PartitionKey(Value):
    """One partition: a spec and the values of its fields. No values: the whole unpartitioned table."""

    spec_id: Int
    partition: tuple[Any, ...]


# --- validations ----------------------------------------------------------------------------------------


class _Validation(Value, tag_field="type", forbid_unknown_fields=True):
    """A clause of a change; a misspelt field must not widen or narrow it."""


class NoAddedDataFiles(_Validation, tag="not-allowed-added-data-files"):
    """Nobody added data in scope since the base."""

    filter: Any = None
    partitions: tuple[PartitionKey, ...] | None = None


class NoRemovedDataFiles(_Validation, tag="not-allowed-removed-data-files"):
    """Nobody removed data in scope since the base."""

    filter: Any = None
    partitions: tuple[PartitionKey, ...] | None = None


class NoAddedDeleteFiles(_Validation, tag="not-allowed-added-delete-files"):
    """Nobody deleted rows in scope since the base."""

    filter: Any = None
    partitions: tuple[PartitionKey, ...] | None = None


class NoNewDeletesForDataFiles(_Validation, tag="not-allowed-new-deletes-for-data-files"):
    """Nobody deleted rows of these files since the base."""

    file_paths: tuple[str, ...]
    filter: Any = None
    ignore_equality_deletes: bool = False


class NoAddedDvs(_Validation, tag="not-allowed-added-dvs"):
    """Nobody wrote a deletion vector for these files since the base."""

    file_paths: tuple[str, ...]
    filter: Any = None


class RequiredDataFiles(_Validation, tag="required-data-files"):
    """These data files are still there: live at the head, or not removed since the base.

    `allowed-remove-operations` (or `ignore-delete-operations`) choose the second and say who may have removed them.
    """

    file_paths: tuple[str, ...] = ()
    filter: Any = None
    mode: str | None = None
    allowed_remove_operations: tuple[str, ...] | None = None
    ignore_delete_operations: bool = False


class RequiredDeleteFiles(_Validation, tag="required-delete-files"):
    """These delete files are live at the head."""

    file_paths: tuple[str, ...] = ()
    filter: Any = None
    mode: str | None = None


class BaseMustBeAncestor(_Validation, tag="base-snapshot-must-be-ancestor"):
    """The base is in the history of the branch."""


class MustNotRemoveAnyFile(_Validation, tag="must-not-remove-any-file"):
    """The change removes nothing."""


class AddedFilesMatchRowFilter(_Validation, tag="added-data-files-match-row-filter"):
    """Every row of the added files is inside `delete-row-filter`."""


class RemovedFilesNotReferenced(_Validation, tag="removed-data-files-must-not-be-referenced"):
    """No removed data file is the target of an added delete file."""

    file_paths: tuple[str, ...]


Validation = (
    NoAddedDataFiles
    | NoRemovedDataFiles
    | NoAddedDeleteFiles
    | NoNewDeletesForDataFiles
    | NoAddedDvs
    | RequiredDataFiles
    | RequiredDeleteFiles
    | BaseMustBeAncestor
    | MustNotRemoveAnyFile
    | AddedFilesMatchRowFilter
    | RemovedFilesNotReferenced
)


# --- the change -----------------------------------------------------------------------------------------


class _ChangeFields(Value, forbid_unknown_fields=True):
    """A misspelt field is refused: `commit-validation` must not mean "none"."""

    add_data_files: tuple[WireFile, ...] = ()
    add_delete_files: tuple[WireFile, ...] = ()
    remove_data_files: tuple[RemovedFile | str, ...] = ()
    remove_delete_files: tuple[RemovedFile | str, ...] = ()
    delete_row_filter: Any = None
    drop_partitions: tuple[PartitionKey, ...] | None = None
    add_data_files_sequence_number: Count | None = None
    add_delete_files_sequence_number: Count | None = None
    rewrite_manifests: bool = False
    stage_only: bool = False
    branch: str = MAIN
    create_branch: bool = False
    summary: dict[str, str] = msgspec.field(default_factory=dict)
    base_snapshot_id: Long | None = None
    schema_id: Int | None = None  # the schema whose names the filters use; None: the current one
    commit_validations: tuple[Validation, ...] = ()


class Append(_ChangeFields, tag_field="action", tag="append"):
    """Add data files."""


class Overwrite(_ChangeFields, tag_field="action", tag="overwrite"):
    """Add and remove: copy-on-write, merge-on-read, dynamic overwrite."""


class Delete(_ChangeFields, tag_field="action", tag="delete"):
    """Remove files, or add delete files."""


class Replace(_ChangeFields, tag_field="action", tag="replace"):
    """The same rows in other files: compaction."""


class ProduceSnapshot(_ChangeFields, tag_field="action", tag="produce-snapshot", kw_only=True):
    """Another spelling of the four."""

    snapshot_action: str


ChangeUpdate = Append | Overwrite | Delete | Replace | ProduceSnapshot


_ACTIONS: dict[object, Action] = {
    Append: Action.APPEND,
    Overwrite: Action.OVERWRITE,
    Delete: Action.DELETE,
    Replace: Action.REPLACE,
    **{str(action): action for action in Action},
}


def action_of(update: ChangeUpdate) -> Action | None:
    """What the update does; None when an alias names no action."""
    return _ACTIONS.get(update.snapshot_action if isinstance(update, ProduceSnapshot) else type(update))
