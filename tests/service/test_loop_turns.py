"""Long work on the event loop in turns: one stretch at a time, with rounds of the loop for others between long ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headgate.service.loop_turns import Turns


class Rounds:
    """Stands for the event loop: each round calls what was asked for before it began."""

    def __init__(self) -> None:
        self._asked: list[Callable[[], object]] = []
        self.newcomers = 0
        self.turns = Turns(self, self._has_newcomers)  # type: ignore[arg-type]

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """As the event loop's."""
        self._asked.append(lambda: callback(*args))

    def go_round(self) -> None:
        """Accept a connection, and call what is to be called."""
        self.newcomers = max(0, self.newcomers - 1)
        asked, self._asked = self._asked, []
        for callback in asked:
            callback()

    def _has_newcomers(self) -> bool:
        return self.newcomers > 0


@pytest.fixture
def loop() -> Rounds:
    return Rounds()


def add(loop: Rounds, done: list[str], *names: str) -> None:
    """Stretches that note themselves."""
    for name in names:
        loop.turns.add(lambda name=name: done.append(name))  # type: ignore[misc]


def test_the_first_has_its_turn_at_once_and_the_others_one_in_each_round(loop: Rounds) -> None:
    done: list[str] = []
    loop.turns.add(lambda: add(loop, done, "a", "b", "c"))
    assert done == []
    for count in (1, 2, 3):
        loop.go_round()
        assert len(done) == count
    assert done == ["a", "b", "c"]


def test_after_a_long_one_others_have_a_few_rounds(loop: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.service.loop_turns._LONG_S", -1.0)
    done: list[str] = []
    add(loop, done, "a", "b", "c")
    assert done == ["a"]
    waited = []
    for _ in range(2):
        before, rounds = len(done), 0
        while len(done) == before:
            loop.go_round()
            rounds += 1
        waited.append(rounds)
    assert waited == [4, 5]


def test_who_comes_in_is_let_in_first_but_not_for_ever(loop: Rounds) -> None:
    done: list[str] = []
    loop.newcomers = 10
    add(loop, done, "a")
    for _ in range(9):
        loop.go_round()
        assert done == []
    loop.go_round()
    assert done == ["a"]
    loop.newcomers = 10_000
    add(loop, done, "b")
    for _ in range(64):
        loop.go_round()
    assert done == ["a", "b"]


def test_a_stretch_that_fails_keeps_no_other_from_its_turn(loop: Rounds) -> None:
    done: list[str] = []

    def fails() -> None:
        add(loop, done, "b")
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        loop.turns.add(fails)
    loop.go_round()
    add(loop, done, "c")
    assert done == ["b", "c"]


def test_on_a_real_loop_all_have_their_turn() -> None:
    done: list[int] = []

    async def run() -> None:
        turns = Turns(asyncio.get_running_loop(), lambda: False)
        for number in range(100):
            turns.add(lambda number=number: done.append(number))  # type: ignore[misc]
        while len(done) < 100:
            await asyncio.sleep(0)

    asyncio.run(run())
    assert done == list(range(100))
