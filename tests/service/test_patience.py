"""Patience: everybody is given up in time, by one timer, and nobody who was answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from headgate.service.patience import Patience

TIMEOUT_S = 0.02


def play(story: Callable[[Patience[str], list[str]], Coroutine[None, None, None]]) -> list[str]:
    """Who was given up, in order."""
    given_up: list[str] = []

    def give_up(waiter: str) -> None:
        if patience.end(waiter):
            given_up.append(waiter)

    patience = Patience[str](TIMEOUT_S, give_up)
    asyncio.run(story(patience, given_up))
    return given_up


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.001)


def test_who_waits_too_long_is_given_up_in_order() -> None:
    async def story(patience: Patience[str], given_up: list[str]) -> None:
        patience.begin("a")
        patience.begin("b")
        await until(lambda: "b" in given_up)
        patience.begin("c")  # when no timer was left
        await until(lambda: "c" in given_up)

    assert play(story) == ["a", "b", "c"]


def test_who_came_later_is_given_its_whole_time() -> None:
    async def story(patience: Patience[str], given_up: list[str]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        patience.begin("a")
        await until(lambda: loop.time() > began + TIMEOUT_S / 2)
        patience.begin("b")
        since = loop.time()
        await until(lambda: "b" in given_up)
        assert loop.time() - since >= TIMEOUT_S * 0.9

    assert play(story) == ["a", "b"]


def test_who_was_answered_is_not_given_up() -> None:
    async def story(patience: Patience[str], given_up: list[str]) -> None:
        patience.begin("a")
        patience.begin("b")
        assert patience.end("a")
        assert not patience.end("a")
        await until(lambda: "b" in given_up)

    assert play(story) == ["b"]
