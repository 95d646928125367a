"""Bodies of table requests as values. Decoding is strict JSON, then typed; what is wrong is named by its path."""

from __future__ import annotations

import msgspec

from headgate.core.change import ChangeUpdate, Validation, WireFile
from headgate.core.partitioning import PartitionSpec, SortOrder
from headgate.core.schema import Schema
from headgate.core.table import MAIN
from headgate.core.updates import TableRequirement, TableUpdate
from headgate.core.value import Long, Value


class Identifier(Value):
    """A table or view by name."""

    namespace: tuple[str, ...]
    name: str


class CreateTableRequest(Value):
    """POST …/tables."""

    name: str
    schema: Schema
    location: str | None = None
    partition_spec: PartitionSpec | None = None
    write_order: SortOrder | None = None
    stage_create: bool | None = False
    properties: dict[str, str] | None = None


class RegisterTableRequest(Value):
    """POST …/register."""

    name: str
    metadata_location: str
    overwrite: bool | None = False


class CommitTableRequest(Value):
    """POST …/tables/{table}, and one change of a transaction."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate | ChangeUpdate, ...]
    identifier: Identifier | None = None
    # A read set: validations without a change, judged from `base-snapshot-id` on `branch`.
    commit_validations: tuple[Validation, ...] = ()
    base_snapshot_id: Long | None = None
    branch: str = MAIN


class CommitTransactionRequest(Value):
    """POST /v1/transactions/commit."""

    table_changes: tuple[CommitTableRequest, ...]


class AppendRequest(Value, forbid_unknown_fields=True):
    """POST …/tables/{table}/append: files to be added soon, together with those of others."""

    files: tuple[WireFile, ...]
    branch: str = MAIN
    summary: dict[str, str] = msgspec.field(default_factory=dict)


class RenameRequest(Value):
    """POST /v1/tables/rename and /v1/views/rename."""

    source: Identifier
    destination: Identifier
