"""Waiters: bounded, woken by one shared look at the outbox, and sent home when the service stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate.errors import Overloaded
from headgate.service.exchange import Hold, Reply, json_reply
from headgate.service.waiting import Waiters
from headgate.store.base import StoredEvent
from headgate.store.memory import MemoryStore
from tests.store.builders import Catalog, put_event

WAIT_MS = 30_000


class CountingStore(MemoryStore):
    """Counts how often the feed is read."""

    reads = 0

    def read_events(self, *, after: int, limit: int) -> list[StoredEvent]:
        self.reads += 1
        return super().read_events(after=after, limit=limit)


@pytest.fixture
def workers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def held(seen: int = 0, *, within_ms: int = WAIT_MS) -> Reply:
    """An empty reply whose next look has something to tell."""
    return Reply(200, (b"empty",), hold=Hold(within_ms, seen, lambda: json_reply("news")))


def test_a_reply_that_is_not_held_is_sent_as_it_is(workers: ThreadPoolExecutor) -> None:
    waiters = Waiters(MemoryStore(), workers, limit=0)
    reply = json_reply("now")
    assert asyncio.run(waiters.settle(reply)) is reply


def test_many_waiters_share_the_look_that_wakes_them(workers: ThreadPoolExecutor) -> None:
    store = CountingStore()
    waiters = Waiters(store, workers, limit=100)

    async def wait_all() -> list[Reply]:
        waiting = [asyncio.ensure_future(waiters.settle(held())) for _ in range(100)]
        while store.reads < 3:  # everybody has waited at least one round
            await asyncio.sleep(0)
        Catalog(store).must(put_event("e"))
        return await asyncio.gather(*waiting)

    replies = asyncio.run(wait_all())
    assert {reply.body for reply in replies} == {b'"news"'}
    assert store.reads < 50


def test_a_place_is_free_again_when_a_waiter_has_been_answered(workers: ThreadPoolExecutor) -> None:
    waiters = Waiters(MemoryStore(), workers, limit=1)

    async def one_after_the_other() -> None:
        first = asyncio.ensure_future(waiters.settle(held(within_ms=1)))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await waiters.settle(held())
        assert (await first).body == b"empty"
        assert (await waiters.settle(held(within_ms=1))).hold is None

    asyncio.run(one_after_the_other())


def test_waiters_of_a_stopping_service_answer_with_what_they_have(workers: ThreadPoolExecutor) -> None:
    waiters = Waiters(MemoryStore(), workers, limit=9)

    async def stop() -> Reply:
        waiting = asyncio.ensure_future(waiters.settle(held()))
        await asyncio.sleep(0)
        waiters.close()
        return await asyncio.wait_for(waiting, 20)

    assert asyncio.run(stop()).body == b"empty"
