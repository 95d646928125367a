"""Groups that are led on the event loop (docs/adr/0011): as far as they need not wait, and then on in a thread.

The gates alone, with a loop that turns when it is told to; `test_led_service` has the service over a real one.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue

import pytest

from headgate.core.commit import Committed, Refused, TableCommit, Target, Unknown, Verdict
from headgate.errors import QueueFull
from headgate.service.commit_records import Work
from headgate.service.gate import Gates, Pause
from headgate.service.metrics import Metrics
from headgate.service.roles import Caller, Role

WAIT_S = 10
LEFT, RIGHT = (("db",), "left"), (("db",), "right")
LONG_AGO = 0.0  # by the monotonic clock
DONE = Committed(())
HERE = "here"
THREADS = "headgate-gate"


class Loop:
    """Stands for the event loop: what it is to call waits for its turn."""

    def __init__(self) -> None:
        self._callbacks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.asked_by: list[str] = []  # names of threads

    def soon(self, callback: Callable[[], None]) -> None:
        """As the event loop's."""
        self.asked_by.append(threading.current_thread().name)
        self._callbacks.put(callback)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to call."""
        return self._callbacks.empty()

    def turn(self, times: int = 1) -> None:
        """Call what was asked for first, here; wait until something is."""
        for _ in range(times):
            callback = self._callbacks.get(timeout=WAIT_S)
            assert callback is not None
            callback()

    def turn_if_asked(self) -> bool:
        """Call what was asked for first, if anything was."""
        if self.is_idle:
            return False
        self.turn()
        return True

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have a thread call everything, for as long as this lasts."""

        def run() -> None:
            while (callback := self._callbacks.get()) is not None:
                callback()

        thread = threading.Thread(target=run, name=HERE)
        thread.start()
        try:
            yield
        finally:
            self._callbacks.put(None)
            thread.join(WAIT_S)


class Monotonic:
    """Stands for the module `time` in the gates: a clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        """The time."""
        return self.now_s


@dataclass
class Drive:
    """One stretch of a group's way: how far it was driven by whom."""

    group: int
    keys: str
    by: str
    may_wait: bool


@dataclass
class Crew:
    """Drives groups by noting them. Some have to wait, some crash, and those in threads may not end while it is shut."""

    waits: str = ""  # keys of commits that cannot be made at once
    crashes: str = ""
    stretches: dict[str, int] = field(
        default_factory=dict
    )  # how often groups of these keys pause before they end
    drives: list[Drive] = field(default_factory=list)
    on_drive: Callable[[], None] = lambda: None
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))  # in threads
    may_end: threading.Event = field(default_factory=threading.Event)
    _groups: int = 0

    def begin(
        self, works: Sequence[Work], answer: Callable[[int, Verdict], None], trusts_cache: bool
    ) -> _Group:
        """A group that is under way."""
        self._groups += 1
        return _Group(self, self._groups, "".join(work.key for work in works), answer)

    @property
    def ways(self) -> list[tuple[str, str]]:
        """Which commits were driven where, in order."""
        return [(drive.keys, drive.by) for drive in self.drives]


@dataclass
class _Group:
    crew: Crew
    number: int
    keys: str
    answer: Callable[[int, Verdict], None]

    def go_on(self, *, may_wait: bool) -> bool | Pause:
        crew, thread = self.crew, threading.current_thread().name
        by = THREADS if thread.startswith(THREADS) else HERE
        crew.drives.append(Drive(self.number, self.keys, by, may_wait))
        crew.on_drive()
        if by == THREADS:
            crew.begun.release()
            assert crew.may_end.wait(WAIT_S)
        if not may_wait and set(self.keys) & set(crew.waits):
            return Pause.HAS_TO_WAIT
        if not may_wait and crew.stretches.get(self.keys, 0) > 0:
            crew.stretches[self.keys] -= 1
            return Pause.HAS_MORE
        for member, key in enumerate(self.keys):
            if key in crew.crashes:
                raise RuntimeError("a bug")
            self.answer(member, DONE)
        return True


class Desk:
    """Submits to gates, by keys of a letter each: capitals are not small. Keeps what it was told, however often."""

    def __init__(self, gates: Gates, crew: Crew, loop: Loop) -> None:
        self.gates, self.crew, self.loop = gates, crew, loop
        self.told: dict[str, list[Verdict]] = {}
        self._answers: dict[str, Future[Verdict]] = {}

    def submit(self, keys: str, *, target: Target = LEFT, deadline: float | None = None) -> None:
        """Queue commits, one after the other."""
        for key in keys:
            answer, told = Future[Verdict](), self.told.setdefault(key, [])
            self._answers[key] = answer

            def done(verdict: Verdict, told: list[Verdict] = told, answer: Future[Verdict] = answer) -> None:
                told.append(verdict)
                if not answer.done():
                    answer.set_result(verdict)

            caller = Caller("me", Role.ADMIN, "request")
            work = Work(caller, key, (TableCommit(target, (), ()),), {}, 200, "commit-table")
            self.gates.submit(work, done, begin=self.crew.begin, deadline=deadline, is_small=key.islower())

    def is_told(self, key: str) -> bool:
        """Whether a commit was answered."""
        return bool(self.told[key])

    def verdicts(self, keys: Iterable[str] = ()) -> list[Verdict]:
        """What each was told, as soon as all of them were."""
        return [self._answers[key].result(WAIT_S) for key in (keys or self._answers)]


@contextmanager
def opened(
    *, shut: bool = False, waits: str = "", crashes: str = "", leaders: int = 2, group_max: int = 100
) -> Iterator[Desk]:
    """Gates that are led by a loop that turns when it is told to; whatever happens, nobody is left waiting."""
    gates = Gates(leaders=leaders, queue_max=100, group_max=group_max, metrics=Metrics())
    crew, loop = Crew(waits=waits, crashes=crashes), Loop()
    gates.lead_by(loop.soon)
    if not shut:
        crew.may_end.set()
    try:
        yield Desk(gates, crew, loop)
    finally:
        crew.may_end.set()
        closing = threading.Thread(target=gates.close, daemon=True)
        with loop.running():
            closing.start()
            closing.join(WAIT_S)
        assert not closing.is_alive()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    """The time that the gates see. More than a second is slow, and is minded for ten."""
    monotonic = Monotonic()
    monkeypatch.setattr("headgate.service.gate.time", monotonic)
    monkeypatch.setattr("headgate.service.gate._SLOW_S", 1.0)
    monkeypatch.setattr("headgate.service.gate._SLOW_FOR_S", 10.0)
    return monotonic


# --- who leads --------------------------------------------------------------------------------------------


def test_a_small_commit_is_led_where_the_loop_calls_and_may_not_wait() -> None:
    with opened() as desk:
        desk.submit("ab")
        assert desk.crew.drives == []
        assert desk.gates.is_busy(LEFT)
        desk.loop.turn()
        assert desk.crew.drives == [Drive(1, "ab", HERE, may_wait=False)]
        assert desk.told == {"a": [DONE], "b": [DONE]}
        assert not desk.gates.is_busy(LEFT)
        assert desk.loop.is_idle


def test_a_small_commit_of_who_is_alone_is_led_where_it_is_submitted() -> None:
    with opened() as desk:
        desk.gates.lead_by(desk.loop.soon, lambda: True)
        for key in "ab":
            desk.submit(key)
            assert desk.told[key] == [DONE]
        assert desk.crew.ways == [("a", HERE), ("b", HERE)]
        assert not desk.gates.is_busy(LEFT)
        assert (desk.gates.depth, desk.loop.is_idle) == (0, True)
        desk.submit("C")
        assert desk.verdicts("C") == [DONE]
        assert desk.crew.ways[2:] == [("C", THREADS)]


def test_who_is_alone_comes_after_what_is_under_way() -> None:
    with opened(shut=True) as desk:
        desk.gates.lead_by(desk.loop.soon, lambda: True)
        desk.submit("A")
        assert desk.crew.begun.acquire(timeout=WAIT_S)
        desk.submit("b")
        assert not desk.is_told("b")
        desk.crew.may_end.set()
        desk.loop.turn()
        assert desk.verdicts() == [DONE] * 2
        with desk.gates.hold([RIGHT]):
            desk.submit("c", target=RIGHT)
            assert not desk.is_told("c")
        desk.loop.turn()
        assert desk.crew.ways == [("A", THREADS), ("b", HERE), ("c", HERE)]


def test_who_is_alone_and_has_to_wait_goes_on_in_a_thread_or_in_the_loop_s_turn() -> None:
    with opened(waits="a") as desk:
        desk.gates.lead_by(desk.loop.soon, lambda: True)
        desk.crew.stretches["b"] = 2
        desk.submit("a")
        assert desk.verdicts("a") == [DONE]
        assert desk.crew.ways == [("a", HERE), ("a", THREADS)]
        desk.submit("b")
        assert not desk.is_told("b")
        desk.loop.turn(2)
        assert desk.verdicts("b") == [DONE]


def test_a_crash_of_who_is_alone_is_told_as_unknown_and_the_gate_goes_on() -> None:
    with opened(crashes="a") as desk:
        desk.gates.lead_by(desk.loop.soon, lambda: True)
        desk.submit("ab")
        assert isinstance(desk.told["a"][0], Unknown)
        assert desk.told["b"] == [DONE]


def test_a_commit_that_is_not_small_is_led_in_a_thread() -> None:
    with opened() as desk:
        desk.submit("A")
        assert desk.verdicts() == [DONE]
        assert desk.crew.drives == [Drive(1, "A", THREADS, may_wait=True)]
        assert desk.loop.asked_by == []


def test_without_a_loop_small_commits_are_led_in_threads() -> None:
    with opened() as desk:
        desk.gates.lead_by(None)
        desk.submit("a")
        assert desk.verdicts() == [DONE]
        assert desk.crew.ways == [("a", THREADS)]


def test_a_group_stops_before_one_that_is_not_small_and_the_rest_comes_after_in_order() -> None:
    with opened() as desk:
        desk.submit("abCdE")
        desk.loop.turn()
        assert desk.crew.drives[0] == Drive(1, "ab", HERE, may_wait=False)
        assert desk.verdicts() == [DONE] * 5
        assert desk.crew.drives[1:] == [Drive(2, "CdE", THREADS, may_wait=True)]


def test_late_ones_before_one_that_is_not_small_are_told_so_and_it_is_led_in_a_thread() -> None:
    with opened() as desk:
        desk.submit("a", deadline=LONG_AGO)
        desk.submit("B")
        desk.loop.turn()
        late, made = desk.verdicts()
        assert isinstance(late, Refused)
        assert isinstance(late.error, QueueFull)
        assert made == DONE
        assert desk.crew.ways == [("B", THREADS)]


def test_after_a_group_in_a_thread_its_leader_asks_the_loop_for_the_next_small_one() -> None:
    with opened(shut=True) as desk:
        desk.submit("A")
        assert desk.crew.begun.acquire(timeout=WAIT_S)
        desk.submit("bc")
        assert desk.loop.is_idle  # the table has a leader
        desk.crew.may_end.set()
        desk.loop.turn()
        assert desk.crew.ways == [("A", THREADS), ("bc", HERE)]
        assert desk.verdicts() == [DONE] * 3
        assert len(desk.loop.asked_by) == 1
        assert desk.loop.asked_by[0].startswith(THREADS)


def test_a_group_here_is_bounded_and_the_rest_is_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.service.gate._HERE_MAX", 3)
    with opened() as desk:
        desk.submit("abcdefg")
        desk.loop.turn(times=3)
        assert desk.crew.ways == [("abc", HERE), ("def", HERE), ("g", HERE)]
        assert desk.loop.is_idle
    with opened(group_max=2) as desk:
        desk.submit("abc")
        desk.loop.turn(times=2)
        assert desk.crew.ways == [("ab", HERE), ("c", HERE)]


def test_two_tables_take_turns_on_the_loop() -> None:
    with opened(group_max=1) as desk:
        desk.submit("ab", target=LEFT)
        desk.submit("xy", target=RIGHT)
        desk.loop.turn(times=4)
        assert desk.crew.ways == [("a", HERE), ("x", HERE), ("b", HERE), ("y", HERE)]


def test_between_two_groups_of_one_table_the_loop_has_time_for_others() -> None:
    with opened(group_max=1) as desk:
        desk.submit("ab")
        desk.loop.soon(lambda: desk.crew.drives.append(Drive(0, "?", HERE, may_wait=False)))
        desk.loop.turn(times=3)
        assert [keys for keys, _ in desk.crew.ways] == ["a", "?", "b"]


# --- who has to wait --------------------------------------------------------------------------------------


def test_a_group_with_more_to_do_goes_on_here_after_others_had_their_turn() -> None:
    with opened() as desk:
        desk.crew.stretches["ab"] = 2
        desk.submit("ab")
        desk.submit("x", target=RIGHT)
        desk.loop.turn(4)
        assert desk.crew.ways == [("ab", HERE), ("x", HERE), ("ab", HERE), ("ab", HERE)]
        assert len({drive.group for drive in desk.crew.drives}) == 2  # the same group goes on
        assert desk.verdicts("abx") == [DONE] * 3


def test_what_comes_between_two_stretches_of_a_group_is_the_next_one() -> None:
    with opened() as desk:
        desk.crew.stretches["a"] = 1
        desk.submit("a")
        desk.loop.turn()
        desk.submit("b")
        assert not desk.is_told("a")
        desk.loop.turn(2)
        assert desk.crew.ways == [("a", HERE), ("a", HERE), ("b", HERE)]


def test_a_group_with_more_to_do_goes_on_in_a_thread_when_the_loop_has_ended() -> None:
    with opened() as desk:
        desk.crew.stretches["a"] = 5
        desk.submit("a")
        desk.gates.lead_by(None)
        desk.loop.turn()
        assert desk.verdicts("a") == [DONE]
        assert desk.crew.ways == [("a", HERE), ("a", THREADS)]


def test_a_group_that_has_ended_leaves_nothing_to_the_garbage_collector() -> None:
    with opened() as desk:
        begin, begun = desk.crew.begin, list[weakref.ref[_Group]]()

        def watched(
            works: Sequence[Work], answer: Callable[[int, Verdict], None], trusts_cache: bool
        ) -> _Group:
            group = begin(works, answer, trusts_cache)
            begun.append(weakref.ref(group))
            return group

        desk.crew.begin = watched  # type: ignore[method-assign]
        gc.disable()
        try:
            desk.submit("a")
            desk.loop.turn()
            assert desk.verdicts("a") == [DONE]
            assert [one() for one in begun] == [None]
        finally:
            gc.enable()


def test_a_group_that_has_to_wait_goes_on_in_a_thread_from_where_it_was() -> None:
    with opened(waits="b") as desk:
        desk.submit("abc")
        desk.loop.turn()
        assert desk.verdicts() == [DONE] * 3
        assert desk.crew.drives == [
            Drive(1, "abc", HERE, may_wait=False),
            Drive(1, "abc", THREADS, may_wait=True),
        ]
    assert desk.told == {"a": [DONE], "b": [DONE], "c": [DONE]}  # once each, and the gates are closed


def test_what_comes_while_a_group_goes_on_in_a_thread_is_led_here_when_that_has_ended() -> None:
    with opened(shut=True, waits="a") as desk:
        desk.submit("a")
        desk.loop.turn()
        assert desk.crew.begun.acquire(timeout=WAIT_S)
        assert not desk.is_told("a")
        desk.submit("bc")
        assert desk.loop.is_idle  # one group at a time
        assert desk.gates.is_busy(LEFT)
        desk.crew.may_end.set()
        desk.loop.turn()
        assert desk.crew.ways == [("a", HERE), ("a", THREADS), ("bc", HERE)]
        assert desk.verdicts() == [DONE] * 3
        assert desk.loop.asked_by[1].startswith(THREADS)
    assert not desk.gates.is_busy(LEFT)


def test_other_tables_are_led_here_while_a_group_waits_in_a_thread() -> None:
    with opened(shut=True, waits="a") as desk:
        desk.submit("a", target=LEFT)
        desk.submit("x", target=RIGHT)
        desk.loop.turn(times=2)
        assert desk.is_told("x")
        assert not desk.is_told("a")


def test_a_group_that_goes_on_in_a_thread_is_not_starved_by_a_busy_table() -> None:
    with opened(shut=True, waits="x", leaders=1, group_max=1) as desk:
        desk.submit("A", target=LEFT)
        assert desk.crew.begun.acquire(timeout=WAIT_S)
        desk.submit("x", target=RIGHT)
        desk.loop.turn()  # it has to wait, and the only leader is busy
        desk.submit("BCD", target=LEFT)
        desk.crew.may_end.set()
        assert desk.verdicts() == [DONE] * 5
        order = [drive.keys for drive in desk.crew.drives if drive.by == THREADS]
        assert order.index("x") == 1


# --- who is slow ------------------------------------------------------------------------------------------


def test_after_a_slow_group_groups_are_led_in_threads_for_a_while(clock: Monotonic) -> None:
    with opened() as desk:

        def be_slow() -> None:
            clock.now_s += 1.5

        desk.crew.on_drive = be_slow
        desk.submit("a")
        desk.loop.turn()
        desk.crew.on_drive = lambda: None
        desk.submit("b")
        desk.submit("x", target=RIGHT)
        assert desk.verdicts("bx") == [DONE] * 2
        assert {desk.crew.ways[1], desk.crew.ways[2]} == {("b", THREADS), ("x", THREADS)}
        clock.now_s += 9.5
        desk.submit("c")
        assert desk.verdicts("c") == [DONE]
        clock.now_s += 1
        desk.submit("d")
        desk.loop.turn()
        assert desk.crew.ways[3:] == [("c", THREADS), ("d", HERE)]


def test_a_group_that_was_not_slow_changes_nothing(clock: Monotonic) -> None:
    with opened() as desk:

        def take_its_time() -> None:
            clock.now_s += 0.9

        desk.crew.on_drive = take_its_time
        desk.submit("a")
        desk.loop.turn()
        desk.submit("b")
        desk.loop.turn()
        assert desk.crew.ways == [("a", HERE), ("b", HERE)]


def test_a_group_that_was_slow_only_in_its_thread_changes_nothing(clock: Monotonic) -> None:
    with opened(waits="a") as desk:

        def be_slow_elsewhere() -> None:
            if threading.current_thread().name.startswith(THREADS):
                clock.now_s += 100

        desk.crew.on_drive = be_slow_elsewhere
        desk.submit("a")
        desk.loop.turn()
        assert desk.verdicts() == [DONE]
        desk.submit("b")
        desk.loop.turn()
        assert desk.crew.ways == [("a", HERE), ("a", THREADS), ("b", HERE)]


def test_a_group_that_was_slow_here_before_it_had_to_wait_was_slow_too(clock: Monotonic) -> None:
    with opened(waits="a") as desk:

        def be_slow_here() -> None:
            if not threading.current_thread().name.startswith(THREADS):
                clock.now_s += 1.5

        desk.crew.on_drive = be_slow_here
        desk.submit("a")
        desk.loop.turn()
        assert desk.verdicts() == [DONE]
        desk.submit("b")
        assert desk.verdicts("b") == [DONE]
        assert desk.crew.ways == [("a", HERE), ("a", THREADS), ("b", THREADS)]


# --- when something breaks --------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", ["", "a"], ids=["here", "in its thread"])
def test_a_group_that_crashes_leaves_the_outcome_unknown_to_all_whom_it_had_not_told(waits: str) -> None:
    with opened(crashes="b", waits=waits) as desk:
        desk.submit("abc")
        desk.loop.turn()
        told, *unknown = desk.verdicts()
        assert told == DONE
        assert [type(verdict) for verdict in unknown] == [Unknown, Unknown]
        desk.submit("d")  # the table's gate goes on
        desk.loop.turn()
        assert desk.verdicts("d") == [DONE]
    assert [len(verdicts) for verdicts in desk.told.values()] == [1] * 4


def test_a_group_that_cannot_even_begin_is_unknown_and_the_gate_goes_on() -> None:
    with opened() as desk:
        answer: Future[Verdict] = Future()

        def crashes(*_: object) -> _Group:
            raise RuntimeError("a bug")

        caller = Caller("me", Role.ADMIN, "request")
        work = Work(caller, "a", (TableCommit(LEFT, (), ()),), {}, 200, "commit-table")
        desk.gates.submit(work, answer.set_result, begin=crashes, is_small=True)
        desk.loop.turn()
        assert isinstance(answer.result(WAIT_S), Unknown)
        desk.submit("b")
        desk.loop.turn()
        assert desk.verdicts("b") == [DONE]


def test_a_loop_that_has_ended_keeps_no_commit_waiting() -> None:
    with opened(shut=True, waits="a") as desk:
        desk.submit("a")
        desk.loop.turn()
        assert desk.crew.begun.acquire(timeout=WAIT_S)
        desk.submit("b")

        def is_closed(callback: Callable[[], None]) -> None:
            raise RuntimeError("Event loop is closed")  # as asyncio's does after a second Ctrl-C

        desk.gates.lead_by(is_closed)
        desk.crew.may_end.set()
        try:
            assert desk.verdicts("ab") == [DONE] * 2
        finally:
            desk.gates.lead_by(None)


# --- holding and closing ----------------------------------------------------------------------------------


def test_a_hold_waits_for_the_group_that_is_to_be_led_here() -> None:
    with ThreadPoolExecutor(1) as pool, opened() as desk:
        desk.submit("a")
        held = pool.submit(_hold, desk, "a")
        assert not wait([held], timeout=0.05).done
        desk.loop.turn()
        assert held.result(WAIT_S)


def test_a_hold_waits_for_the_group_that_goes_on_in_a_thread() -> None:
    with ThreadPoolExecutor(1) as pool, opened(shut=True, waits="a") as desk:
        desk.submit("a")
        desk.loop.turn()
        assert desk.crew.begun.acquire(timeout=WAIT_S)
        held = pool.submit(_hold, desk, "a")
        assert not wait([held], timeout=0.05).done
        desk.crew.may_end.set()
        assert held.result(WAIT_S)


def _hold(desk: Desk, key: str) -> bool:
    with desk.gates.hold([LEFT]):
        return desk.is_told(key)


@pytest.mark.parametrize("waits", ["", "a"], ids=["here", "in threads"])
def test_a_hold_gets_its_turn_however_many_commits_come(waits: str) -> None:
    turns_max = 20_000
    with ThreadPoolExecutor(1) as pool, opened(group_max=1, waits=waits) as desk:
        desk.submit("a" * 10)
        held = pool.submit(_hold, desk, "a")
        for _ in range(turns_max):
            if held.done():
                break
            if desk.gates.depth < 10:
                desk.submit("a")  # so there is always a next group
            if not desk.loop.turn_if_asked():
                wait([held], timeout=0.01)
        assert held.done()
        assert held.result()
        with desk.loop.running():
            assert set(desk.verdicts()) == {DONE}


def test_what_comes_while_a_table_is_held_is_led_here_when_it_is_let_go() -> None:
    with opened() as desk:
        with desk.gates.hold([LEFT]):
            desk.submit("a")
            assert desk.loop.is_idle
        desk.loop.turn()
        assert desk.crew.ways == [("a", HERE)]


def test_closing_finishes_what_is_queued_here_and_takes_nothing_more() -> None:
    with ThreadPoolExecutor(1) as pool, opened(group_max=2, waits="d") as desk:
        desk.submit("abcdeFg")
        desk.submit("x", target=RIGHT)
        closing = pool.submit(desk.gates.close)
        while not desk.gates.is_closing:
            assert not closing.done()
        with pytest.raises(QueueFull):
            desk.submit("z")
        assert not closing.done()
        with desk.loop.running():
            closing.result(WAIT_S)
        assert {key: len(verdicts) for key, verdicts in desk.told.items()} == {
            **dict.fromkeys("abcdeFgx", 1),
            "z": 0,
        }
        assert [keys for keys, _ in desk.crew.ways if keys != "x"] == ["ab", "cd", "cd", "e", "Fg"]


def test_a_commit_of_who_is_alone_whose_time_is_over_is_not_made() -> None:
    with opened() as desk:
        desk.gates.lead_by(desk.loop.soon, lambda: True)
        desk.submit("a", deadline=LONG_AGO)
        desk.loop.turn()
        (verdict,) = desk.verdicts("a")
        assert isinstance(verdict, Refused)
        assert desk.crew.drives == []
