"""One commit of the library as a value, and its two roads: built here for any catalog, or sent to Headgate as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.client.connect import HeadgateClient
from headgate.client.results import Committed
from headgate.client.transaction import Transaction
from headgate.core.change import ChangeUpdate
from headgate.core.commit import Head, TableCommit, Target
from headgate.core.isolation import Wire
from headgate.core.table import MAIN
from headgate.core.updates import AssertTableUuid, TableRequirement, TableUpdate
from headgate.errors import BadInput
from headgate.library.proof import KEY

_CHANGES = frozenset(("append", "overwrite", "delete", "replace", "produce-snapshot"))


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be committed as one unit, as the wire has it.

    `reads` is a read set of the same table; `properties` are those that are changed, as they were read; `written` are
    data files that the library wrote for it.
    """

    updates: tuple[Mapping[str, Any], ...]
    requirements: tuple[Mapping[str, Any], ...] = ()
    reads: Wire | None = None
    properties: Mapping[str, str | None] = field(default_factory=dict)
    key: str | None = None
    written: tuple[str, ...] = ()

    def to_commit(self, target: Target, head: Head, key: str) -> TableCommit:
        """The commit for the core; every snapshot will say under which key it was made."""
        uuid = AssertTableUuid(uuid=head.metadata.envelope.table_uuid)
        try:
            updates = tuple(
                msgspec.convert(_with_key(update, key), TableUpdate | ChangeUpdate) for update in self.updates
            )
            requirements = tuple(msgspec.convert(r, TableRequirement) for r in self.requirements)
            reads = None if self.reads is None else msgspec.convert(self.reads, ChangeUpdate)
        except msgspec.ValidationError as error:
            raise BadInput(f"the change is not well made: {error}", field="updates") from error
        return TableCommit(target, (uuid, *requirements), updates, reads, properties=self.properties)


def _with_key(update: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    if update.get("action") not in _CHANGES:
        return update
    summary = update.get("summary") or {}
    if not isinstance(summary, Mapping):
        raise BadInput("summary: expected names and texts", field="summary")
    return {**update, "summary": {**summary, KEY: key}}


class Sender:
    """A table of a Headgate catalog: requests are sent, judged and built there."""

    def __init__(self, client: HeadgateClient, identifier: tuple[str, ...]) -> None:
        self._client, self._identifier = client, identifier
        self._table = client.table(identifier)

    def commit(self, request: Request, key: str) -> Committed:
        """One request, sent until its answer is known."""
        if request.reads is None:
            return self._table.commit(request.updates, requirements=request.requirements, key=key)
        return commit_all(((self, request),), key)

    def begin(self) -> Transaction:
        """A transaction of the catalog."""
        return self._client.transaction()

    def fill(self, transaction: Transaction, request: Request) -> None:
        """This table's part of a transaction."""
        table = transaction.table(self._identifier)
        if request.updates or request.requirements:
            table.update(request.updates, requirements=request.requirements)
        if request.reads is None:
            return
        base: Any = request.reads.get("base-snapshot-id")
        table.reads(
            base_snapshot_id=base,
            row_filter=_join_filters(request.reads["commit-validations"]),
            branch=str(request.reads.get("branch", MAIN)),
        )


def commit_all(parts: Sequence[tuple[Sender, Request]], key: str) -> Committed:
    """Requests of several tables of one catalog, all or none."""
    transaction = parts[0][0].begin()
    for sender, request in parts:
        sender.fill(transaction, request)
    return transaction.commit(key=key)


def _join_filters(clauses: Any) -> object:
    """What any of the clauses is about."""
    filters = {msgspec.json.encode(clause["filter"]): clause["filter"] for clause in clauses}
    joined: object = None
    for one in filters.values():
        joined = one if joined is None else {"type": "or", "left": joined, "right": one}
    return joined
