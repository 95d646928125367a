"""Several tables in one commit: all of it or nothing, judged together. Sends nothing before `commit`.

A table that is read and not written belongs into the transaction too, as a read set: without it, two transactions
that each read what the other writes both pass (write skew).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from headgate.client.changes import Changes
from headgate.client.keys import new_key
from headgate.client.resend import Ask, Resender
from headgate.client.results import MAIN, Committed, minimal_headers
from headgate.client.table import Name, identifier_of
from headgate.core.isolation import Wire
from headgate.errors import BadInput

_READ_CLAUSES = (
    "not-allowed-added-data-files",
    "not-allowed-removed-data-files",
    "not-allowed-added-delete-files",
)


class TransactionTable(Changes[None]):
    """What a transaction does to one table."""

    def __init__(self, identifier: tuple[str, ...], properties: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(self._add, properties)
        self._identifier = identifier
        self._updates: list[Mapping[str, Any]] = []
        self._requirements: list[Mapping[str, Any]] = []
        self._reads: Wire = {}

    def update(
        self, updates: Sequence[Mapping[str, Any]], *, requirements: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Plain updates, as the specification has them."""
        self._updates.extend(updates)
        self._requirements.extend(requirements)

    def reads(self, *, base_snapshot_id: int | None, row_filter: object = True, branch: str = MAIN) -> None:
        """The transaction read these rows: nothing may have been added to, removed or deleted from them since."""
        if self._reads:
            raise BadInput("a table has one read set; join the filters with or", field="row_filter")
        clauses = [{"type": type_, "filter": row_filter} for type_ in _READ_CLAUSES]
        self._reads = {"commit-validations": clauses, "branch": branch}
        if base_snapshot_id is not None:
            self._reads["base-snapshot-id"] = base_snapshot_id

    def to_wire(self) -> Wire:
        """One entry of `table-changes`."""
        *levels, name = self._identifier
        return {
            "identifier": {"namespace": levels, "name": name},
            "requirements": self._requirements,
            "updates": self._updates,
            **self._reads,
        }

    def _add(self, update: Wire, key: str | None) -> None:
        if key is not None:
            raise BadInput("a transaction has one key, given to commit", field="key")
        self._updates.append(update)


class Transaction:
    """Changes and read sets of several tables, committed together."""

    def __init__(self, resender: Resender, properties_of: Callable[[Name], Mapping[str, str]]) -> None:
        self._resender, self._properties_of = resender, properties_of
        self._tables: dict[tuple[str, ...], TransactionTable] = {}

    def table(self, name: Name) -> TransactionTable:
        """A table of this transaction; the same one for the same name."""
        identifier = identifier_of(name)
        if identifier not in self._tables:
            self._tables[identifier] = TransactionTable(identifier, lambda: self._properties_of(identifier))
        return self._tables[identifier]

    def commit(self, *, key: str | None = None) -> Committed:
        """Publish all of it, or raise why none of it is. Refused transactions are not tried again: they have read."""
        key = key or new_key()
        body = {"table-changes": [table.to_wire() for table in self._tables.values()]}
        ask = Ask("POST", "/v1/transactions/commit", msgspec.json.encode(body), key, minimal_headers())
        return Committed(key=key, sent=self._resender.settle(ask).sent)
