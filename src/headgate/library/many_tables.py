"""Several tables in one commit, where the catalog offers that: Headgate does. All of it or nothing, judged together."""

from __future__ import annotations

from types import TracebackType

from headgate.client.keys import new_key
from headgate.client.results import Committed
from headgate.errors import BadInput, HeadgateError, Unsupported
from headgate.library.handle import Handle, is_certain
from headgate.library.requests import Request, Sender, commit_all
from headgate.library.table import Table
from headgate.library.transaction import Transaction


class MultiTableTransaction:
    """Transactions of several tables that are committed together. A context manager, like each of them.

    A table that is read and not written belongs into it too, by `reads`: without that, two transactions that each read
    what the other writes both pass (write skew).
    """

    def __init__(self, tables: tuple[Table, ...], *, key: str | None = None) -> None:
        if not tables:
            raise BadInput("a transaction of several tables needs some", field="tables")
        self._key = key or new_key()
        self._was_sent = self._is_over = False
        self.committed: Committed | None = None
        self._parts: dict[str, tuple[Handle, Sender, Transaction]] = {}
        for table in tables:
            handle = table.handle
            if handle.sender is None:
                raise Unsupported(f"{table.name}: its catalog has no commits of several tables")
            self._parts[table.name] = handle, handle.sender, Transaction(handle)

    def __getitem__(self, name: str) -> Transaction:
        """The part of one table, by its name."""
        if name not in self._parts:
            raise BadInput(f"the transaction has no table {name}", field="table")
        return self._parts[name][2]

    def commit(self) -> Committed:
        """Publish all of it, or raise why none of it is. After `CommitUnknown` it may be called again."""
        if self.committed is not None:
            raise BadInput("the transaction is committed already", field="transaction")
        if self._is_over:
            raise BadInput(
                "the transaction is over, and its files are gone; begin another", field="transaction"
            )
        parts: list[tuple[Sender, Request]] = []
        for _, sender, transaction in self._parts.values():
            request = transaction.request()
            if request.updates or request.reads is not None:
                parts.append((sender, request))
        if not parts:
            self.committed = Committed(key=self._key)
            return self.committed
        was_sent, self._was_sent = self._was_sent, True
        try:
            self.committed = commit_all(parts, self._key)
        except HeadgateError as error:
            if is_certain(error) and not was_sent:  # later it tells nothing of the first one
                self._forget()
            raise
        return self.committed

    def abort(self) -> None:
        """Forget all of it, and delete the data files that were written for it, unless it was sent: it may have landed."""
        if not self._was_sent:
            self._forget()

    def _forget(self) -> None:
        self._is_over = True
        for _, _, transaction in self._parts.values():
            transaction.abort()

    def __enter__(self) -> MultiTableTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()
        elif self.committed is None and not self._is_over:
            self.commit()


def multi_table_transaction(*tables: Table, key: str | None = None) -> MultiTableTransaction:
    """A commit of several tables of one catalog; Unsupported where the catalog does not offer it."""
    return MultiTableTransaction(tables, key=key)
