"""A table as its caller opened it: the road to it, its base, and how a request becomes a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headgate.client.keys import new_key
from headgate.client.results import Committed
from headgate.core.commit import Head
from headgate.errors import BadInput, HeadgateError
from headgate.library.driver import Done, Driver, Work, drive, drive_async, load_head
from headgate.library.manifests import Manifests
from headgate.library.pending_files import delete_files
from headgate.library.policy import Attempted, Ended, Event, Policy, word_of
from headgate.library.reading import Reading
from headgate.library.requests import Request, Sender
from headgate.library.roads import Road

_T = TypeVar("_T")


class Handle:
    """A table as its caller opened it, and how to reach it."""

    def __init__(self, road: Road, policy: Policy, sender: Sender | None = None) -> None:
        self.road, self.policy, self.sender = road, policy, sender
        self.manifests = Manifests()
        self.head = load_head(road, policy)

    def load(self) -> Head:
        """The head of now; it must be of the same table."""
        head = load_head(self.road, self.policy)
        was, found = self.head.metadata.envelope.table_uuid, head.metadata.envelope.table_uuid
        if was != found:
            raise BadInput(
                f"another table has this name now: {self.road.name}; was={was} is={found}", field="table"
            )
        return head

    def now(self, branch: str) -> Reading:
        """The branch at its head of now."""
        return Reading(self.load().metadata, self.road.io, branch)

    def opened(self, branch: str) -> Reading:
        """The branch as it was when the table was opened or refreshed."""
        return Reading(self.head.metadata, self.road.io, branch)

    def commit(self, request: Request) -> Committed:
        """Commit, and wait for the verdict; raises the error of a refusal."""
        key = request.key or new_key()
        if self.sender is None:
            return to_committed(drive(self._driver(request, key)), key)
        self._tell(Attempted(self.road.name, key, 1))
        started_s, word = self.policy.clock.now_s(), "committed"
        try:
            return self.sender.commit(request, key)
        except HeadgateError as error:
            word = word_of(error)
            if is_certain(error):
                delete_files(self.road.io, request.written)
            raise
        finally:
            elapsed_ms = int((self.policy.clock.now_s() - started_s) * 1000)
            self._tell(Ended(self.road.name, key, word, 1, 0, elapsed_ms))

    def _tell(self, event: Event) -> None:
        if self.policy.observer is not None:
            self.policy.observer(event)

    async def commit_async(self, request: Request) -> Committed:
        """The same, without holding up the event loop."""
        if self.sender is not None:
            return await asyncio.to_thread(self.commit, request)
        key = request.key or new_key()
        return to_committed(await drive_async(self._driver(request, key), self.aside), key)

    async def aside(self, work: Callable[[], _T]) -> _T:
        """Do it without holding up the event loop, unless the catalog can be asked by one thread alone."""
        return work() if self.road.is_of_one_thread else await asyncio.to_thread(work)

    def _driver(self, request: Request, key: str) -> Driver:
        given = request.key is not None
        work = Work(request.to_commit(self.target, self.head, key), key, given, request.written)
        return Driver(self.road, self.manifests, self.policy, work, self.head)

    @property
    def target(self) -> tuple[tuple[str, ...], str]:
        """The namespace and the name."""
        *levels, name = self.road.name.split(".")
        return tuple(levels), name


def to_committed(done: Done, key: str) -> Committed:
    """What the caller is told."""
    snapshot = done.snapshot
    return Committed(
        key=key,
        metadata_location=done.head.metadata_location,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        sequence_number=None if snapshot is None else snapshot.sequence_number,
        sent=done.attempts,
    )


def is_certain(error: HeadgateError) -> bool:
    """Whether an error says for certain that nothing was committed.

    Files that are live already may be the very ones: the commit landed before, and its key is forgotten.
    """
    return error.retry.value in ("never", "refresh") and error.evidence.get("rule") != "already-live"
