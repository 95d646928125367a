"""Several writes of one table, with schema, spec and property changes, committed as one unit and rebuilt as one on retry.

Each write sees what the ones before it staged; nothing is visible to others before `commit`. Schema, spec, sort order
and refs are changed by PyIceberg's own builders, whose updates are collected here instead of being committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

import msgspec
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction as IcebergTransaction
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec

from headgate.client.results import Committed
from headgate.core.apply import apply
from headgate.core.change import Action
from headgate.core.isolation import Isolation, Producer, Scope, Wire, validations
from headgate.core.table import MAIN, TableMetadata
from headgate.core.updates import TableUpdate as PlainUpdate
from headgate.errors import BadInput, CommitUnknown, HeadgateError
from headgate.library.handle import Handle, is_certain
from headgate.library.pending_files import delete_files
from headgate.library.reading import Reading, to_iceberg, to_whole_iceberg
from headgate.library.requests import Request
from headgate.library.row_filters import Filter, to_expression, to_json
from headgate.library.staged import Staged, to_change
from headgate.library.steps import Step
from headgate.library.writes import Writes

# Requirement: the field that holds what it asserts, and where a table has that.
_ASSERTED: Mapping[str, tuple[str, str]] = {
    "assert-current-schema-id": ("current-schema-id", "current_schema_id"),
    "assert-last-assigned-field-id": ("last-assigned-field-id", "last_column_id"),
    "assert-default-spec-id": ("default-spec-id", "default_spec_id"),
    "assert-last-assigned-partition-id": ("last-assigned-partition-id", "last_partition_id"),
    "assert-default-sort-order-id": ("default-sort-order-id", "default_sort_order_id"),
}


class _Collector(IcebergTransaction):
    """PyIceberg's transaction, for its builders: what they stage is handed on, and nothing is committed."""

    def __init__(self, table: IcebergTable, owner: Transaction) -> None:
        super().__init__(table, autocommit=False)
        self._owner = owner

    def _stage(
        self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...] = ()
    ) -> IcebergTransaction:
        super()._stage(updates, requirements)
        self._owner.update(
            [msgspec.json.decode(update.model_dump_json(exclude_none=True)) for update in updates],
            requirements=[msgspec.json.decode(one.model_dump_json()) for one in requirements],
        )
        return self


class _Staging:
    """The table as the transaction has made it so far."""

    def __init__(self, handle: Handle, table: TableMetadata) -> None:
        self.handle, self.table = handle, table
        self.staged: dict[str, Staged] = {}

    def now(self, branch: str) -> Reading:
        """The branch as it was when the transaction began, with what is staged on it."""
        return Reading(self.table, self.handle.road.io, branch, self.find(branch))

    def find(self, branch: str) -> Staged:
        """What is staged on a branch; one that is to be made starts with what is staged on main."""
        if branch in self.staged or branch in self.table.envelope.refs:
            return self.staged.get(branch, Staged())
        return self.staged.get(MAIN, Staged())

    def opened(self, branch: str) -> Reading:
        """The same: a transaction reads at one point in time."""
        return self.now(branch)


class Transaction(Writes[None]):
    """Writes that are collected. A context manager: commits at its end, or gives up when something was raised."""

    def __init__(self, handle: Handle, *, key: str | None = None) -> None:
        self._handle, self._key = handle, key
        self._staging = _Staging(handle, handle.load().metadata)
        super().__init__(self._staging, self._stage)
        self._base = self._staging.table
        self._updates: list[Mapping[str, Any]] = []
        self._requirements: list[Mapping[str, Any]] = []
        self._reads: dict[str, list[Any]] = {}
        self._properties: dict[str, str | None] = {}
        self._written: list[str] = []
        self._was_sent = self._is_over = False
        self.committed: Committed | None = None

    def reads(self, filter: Filter, *, branch: str = MAIN) -> None:
        """The transaction rests on these rows: nothing may have been added to, removed or deleted from them since."""
        expression = to_expression(filter, self._staging.table)
        scope = Scope(conflict_filter=to_json(expression), row_filter=to_json(expression))
        clauses = validations(Producer.OVERWRITE, Isolation.SERIALIZABLE, scope)
        self._keep_reads(branch, {"commit-validations": clauses})

    # --- definitions -------------------------------------------------------------------------------------

    def update(
        self, updates: list[Mapping[str, Any]], *, requirements: list[Mapping[str, Any]] | None = None
    ) -> None:
        """Plain updates, as the specification has them."""
        values = msgspec.convert(updates, list[PlainUpdate])
        after = apply(self._staging.table, values, now_ms=self._staging.table.envelope.last_updated_ms)
        self._staging.table = self._staging.table if after is None else after
        self._updates.extend(updates)
        for one in requirements or ():
            # What an earlier part of this very transaction changed is no longer as the table has it.
            if one not in self._requirements and not self._is_of_ours(one):
                self._requirements.append(one)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties; somebody else's change of the same ones meanwhile is a conflict."""
        self._expect(properties)
        self.update([{"action": "set-properties", "updates": dict(properties)}])

    def remove_properties(self, *names: str) -> None:
        """Remove properties; somebody else's change of the same ones meanwhile is a conflict."""
        self._expect(names)
        self.update([{"action": "remove-properties", "removals": list(names)}])

    def update_schema(self, *, case_sensitive: bool = True) -> UpdateSchema:
        """PyIceberg's builder of a new schema; a context manager."""
        return UpdateSchema(self._collector(), case_sensitive=case_sensitive)

    def update_spec(self, *, case_sensitive: bool = True) -> UpdateSpec:
        """PyIceberg's builder of a new partition spec; a context manager."""
        return UpdateSpec(self._collector(), case_sensitive=case_sensitive)

    def update_sort_order(self, *, case_sensitive: bool = True) -> UpdateSortOrder:
        """PyIceberg's builder of a new sort order; a context manager."""
        return UpdateSortOrder(self._collector(), case_sensitive=case_sensitive)

    def manage_snapshots(self) -> ManageSnapshots:
        """PyIceberg's builder for branches and tags; a context manager."""
        return ManageSnapshots(self._collector(whole=True))

    # --- the end -----------------------------------------------------------------------------------------

    def commit(self) -> Committed:
        """Publish all of it, or raise why none of it is. After `CommitUnknown` it may be called again."""
        if self.committed is not None:
            raise BadInput("the transaction is committed already", field="transaction")
        if self._is_over:
            raise BadInput(
                "the transaction is over, and its files are gone; begin another", field="transaction"
            )
        if self._was_sent and self._key is None:
            raise BadInput(
                "nobody knows how the transaction ended: it was interrupted; load the table",
                field="transaction",
            )
        if not self._updates:
            self.committed = Committed(
                key=self._key or "", metadata_location=self._handle.head.metadata_location
            )
            return self.committed
        request = self.request()
        if self._was_sent:  # nothing that is heard now tells whether the first one landed
            request = replace(request, written=())
        was_sent, self._was_sent = self._was_sent, True
        try:
            self.committed = self._handle.commit(request)
        except CommitUnknown as error:
            self._key = str(error.evidence["key"]) if "key" in error.evidence else self._key
            raise
        except HeadgateError as error:
            # On the direct road the files are gone after every error that is not unknown.
            self._is_over = not was_sent and (self._handle.sender is None or is_certain(error))
            if was_sent and self._handle.sender is None and not self._makes_snapshots():
                # Only snapshots tell of their key: what is in the way now may be what the first one made.
                text = f"the outcome of this commit is not known: {error.message}"
                raise CommitUnknown(text, key=self._key or "") from error
            raise
        return self.committed

    def _makes_snapshots(self) -> bool:
        return any(update["action"] in tuple(Action) for update in self._updates)

    def request(self) -> Request:
        """All of it as one request."""
        return Request(
            tuple(self._updates),
            tuple(self._requirements),
            self._read_set(),
            self._properties,
            self._key,
            tuple(self._written),
        )

    def abort(self) -> None:
        """Forget all of it, and delete the data files that were written for it, unless it was sent: it may have landed."""
        if self._was_sent:
            return
        self._is_over = True
        written, self._written = self._written, []
        delete_files(self._handle.road.io, written)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()
        elif self.committed is None and not self._is_over:
            self.commit()

    # --- parts -------------------------------------------------------------------------------------------

    def _stage(self, step: Step) -> None:
        if step.key is not None:
            raise BadInput("a transaction has one key, given when it begins", field="key")
        branch = step.reading.branch
        if step.update is None:
            if step.reads is not None:
                self._keep_reads(branch, step.reads)
            return
        try:
            change = to_change(step.update, self._staging.table)
        except HeadgateError:
            delete_files(self._handle.road.io, step.written)
            raise
        self._updates.append(step.update)
        self._written.extend(step.written)
        if not change.stage_only:
            self._staging.staged[branch] = self._staging.find(branch).take(change, step.deletes)

    def _keep_reads(self, branch: str, reads: Wire) -> None:
        if self._reads and branch not in self._reads:
            raise BadInput("reads without a change may be of one branch in a transaction", field="branch")
        clauses: Any = reads["commit-validations"]
        self._reads.setdefault(branch, []).extend(clauses)

    def _read_set(self) -> Wire | None:
        for branch, clauses in self._reads.items():
            if clauses:
                base = Reading(self._base, self._handle.road.io, branch).base_snapshot_id
                return {
                    "action": "delete",
                    "base-snapshot-id": base,
                    "branch": branch,
                    "commit-validations": clauses,
                }
        return None

    def _expect(self, names: Mapping[str, str] | tuple[str, ...]) -> None:
        for name in names:
            self._properties.setdefault(name, self._base.envelope.properties.get(name))

    def _collector(self, *, whole: bool = False) -> _Collector:
        """For one of PyIceberg's builders; those of branches and tags look at all snapshots."""
        table, target = self._staging.table, self._handle.target
        metadata = to_whole_iceberg(table) if whole else to_iceberg(table, None)
        return _Collector(
            IcebergTable(
                (*target[0], target[1]),
                metadata,
                self._handle.head.metadata_location,
                self._handle.road.io,
                NoopCatalog("headgate"),
            ),
            self,
        )

    def _is_of_ours(self, requirement: Mapping[str, Any]) -> bool:
        """Whether it asserts something that this transaction itself has made."""
        type_ = str(requirement.get("type"))
        before, now = self._base.envelope, self._staging.table.envelope
        if type_ in _ASSERTED:
            name, attribute = _ASSERTED[type_]
            return bool(requirement[name] != getattr(before, attribute))
        if type_ == "assert-ref-snapshot-id" and requirement.get("snapshot-id") is not None:
            return requirement["ref"] in now.refs and requirement["ref"] not in before.refs
        return type_ == "assert-table-uuid"  # every commit has it
