"""A table of any PyIceberg catalog, with commits that are judged, retried and cleaned up. Made by `headgate.open`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyiceberg.table import DataScan, StaticTable

from headgate.client.keys import new_key
from headgate.client.results import Committed
from headgate.core.isolation import Wire
from headgate.core.table import MAIN
from headgate.library.handle import Handle
from headgate.library.requests import Request
from headgate.library.row_filters import Filter, to_expression
from headgate.library.steps import Step
from headgate.library.transaction import Transaction
from headgate.library.writes import Writes

Prepare = Callable[[Writes[Step]], Step]


class Table(Writes[Committed]):
    """A table. May be shared by threads; each write reads, judges and commits for itself."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle, self._commit)
        self.handle = handle

    @property
    def name(self) -> str:
        """The table's name with its namespace."""
        return self.handle.road.name

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties as of the last refresh."""
        return self.handle.head.metadata.envelope.properties

    @property
    def metadata_location(self) -> str:
        """The metadata file as of the last refresh."""
        return self.handle.head.metadata_location

    def refresh(self) -> Table:
        """Load the head of now: the base of what the caller reads from here on."""
        self.handle.head = self.handle.load()
        return self

    def snapshot_id(self, branch: str = MAIN) -> int | None:
        """The head of a branch as of the last refresh: the base of work that begins now."""
        return self.handle.opened(branch).base_snapshot_id

    def scan(self, row_filter: Filter | None = None, *, branch: str = MAIN) -> DataScan:
        """A scan of PyIceberg's over the table as of the last refresh; give it to the write that it was made for."""
        reading = self.handle.opened(branch)
        table = StaticTable(
            identifier=(*self.handle.target[0], self.handle.target[1]),
            metadata=reading.metadata,
            metadata_location=self.handle.head.metadata_location,
            io=reading.io,
            catalog=None,  # type: ignore[arg-type] # a static table has none
        )
        if row_filter is None:
            return table.scan()
        return table.scan(row_filter=to_expression(row_filter, reading.table))

    def transaction(self, *, key: str | None = None) -> Transaction:
        """Several writes and definitions as one unit: `with table.transaction() as t: …`."""
        return Transaction(self.handle, key=key)

    def commit(
        self,
        updates: Sequence[Mapping[str, Any]],
        *,
        requirements: Sequence[Mapping[str, Any]] = (),
        key: str | None = None,
    ) -> Committed:
        """Updates as the wire has them, plain ones and changes, all or none."""
        return self.handle.commit(Request(tuple(updates), tuple(requirements), key=key))

    async def commit_async(self, prepare: Prepare) -> Committed:
        """One write without holding up the event loop: `await table.commit_async(lambda t: t.append(rows))`."""
        step = await self.handle.aside(lambda: prepare(Writes(self.handle, lambda step: step)))
        if step.update is None:
            return self._nothing(step)
        return await self.handle.commit_async(_request(step.update, step))

    def _commit(self, step: Step) -> Committed:
        if step.update is None:
            return self._nothing(step)
        return self.handle.commit(_request(step.update, step))

    def _nothing(self, step: Step) -> Committed:
        """Nothing to change, and a read alone conflicts with nobody."""
        return Committed(key=step.key or new_key(), metadata_location=self.metadata_location)


def _request(update: Wire, step: Step) -> Request:
    return Request((update,), key=step.key, written=step.written)
