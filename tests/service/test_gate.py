"""The gates' queues alone: order, bounds, fairness between tables, and who is told what when something breaks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from headgate.core.commit import Committed, Refused, TableCommit, Target, Unknown, Verdict
from headgate.errors import QueueFull
from headgate.service.commit_records import Work
from headgate.service.gate import Gates
from headgate.service.metrics import Metrics
from headgate.service.roles import Caller, Role
from tests.service.group_runs import begin_by

WAIT_S = 20
LEFT, RIGHT = (("db",), "left"), (("db",), "right")
LONG_AGO = 0.0  # by the monotonic clock
DONE = Committed(())


def work(key: str, target: Target = LEFT, principal: str = "me") -> Work:
    """A commit that says nothing but its key."""
    caller = Caller(principal, Role.ADMIN, "request")
    return Work(caller, key, (TableCommit(target, (), ()),), {}, 200, "commit-table")


class Runner:
    """Drives groups by noting them; while it is shut, a group that has begun waits."""

    def __init__(self, *, shut: bool = False) -> None:
        self.groups: list[list[str]] = []
        self.trusted: list[bool] = []
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.is_calm = True
        if not shut:
            self.may_end.set()

    def __call__(
        self, works: Sequence[Work], answer: Callable[[int, Verdict], None], trusts_cache: bool
    ) -> bool:
        self.groups.append([one.key for one in works])
        self.trusted.append(trusts_cache)
        self.begun.release()
        assert self.may_end.wait(WAIT_S)
        for member in range(len(works)):
            answer(member, DONE)
        return self.is_calm

    def wait_for_group(self) -> None:
        """Until one more group has begun."""
        assert self.begun.acquire(timeout=WAIT_S)


class Desk:
    """Submits to gates and keeps what they answer."""

    def __init__(self, gates: Gates, runner: Runner) -> None:
        self.gates, self.runner = gates, runner
        self.answers: dict[str, Future[Verdict]] = {}

    def submit(self, *keys: str, target: Target = LEFT, deadline: float | None = None) -> None:
        """Queue commits, one after the other."""
        for key in keys:
            self.answers[key] = Future()
            self.gates.submit(
                work(key, target),
                self.answers[key].set_result,
                begin=begin_by(self.runner),
                deadline=deadline,
            )

    def verdict(self, key: str) -> Verdict:
        """What a commit was answered."""
        return self.answers[key].result(WAIT_S)

    def verdicts(self) -> list[Verdict]:
        """What everybody was answered."""
        return [self.verdict(key) for key in self.answers]


@contextmanager
def opened(
    *, shut: bool = False, leaders: int = 2, queue_max: int = 100, group_max: int = 100, idle_max: int = 100
) -> Iterator[Desk]:
    """Gates and a runner; whatever happens, nobody is left waiting."""
    metrics = Metrics()
    gates = Gates(
        leaders=leaders, queue_max=queue_max, group_max=group_max, metrics=metrics, idle_max=idle_max
    )
    runner = Runner(shut=shut)
    try:
        yield Desk(gates, runner)
    finally:
        runner.may_end.set()
        gates.close()


# --- groups -----------------------------------------------------------------------------------------------


def test_what_comes_while_a_group_runs_is_the_next_group_in_the_order_of_arrival() -> None:
    with opened(shut=True) as desk:
        desk.submit("a")
        desk.runner.wait_for_group()
        desk.submit("b", "c", "d")
        assert desk.gates.depth == 3
        desk.runner.may_end.set()
        assert desk.verdicts() == [DONE] * 4
        assert desk.runner.groups == [["a"], ["b", "c", "d"]]
        assert desk.gates.depth == 0


def test_a_group_is_bounded_and_the_rest_is_the_next_one() -> None:
    with opened(shut=True, group_max=2) as desk:
        desk.submit("a")
        desk.runner.wait_for_group()
        desk.submit("b", "c", "d", "e", "f")
        desk.runner.may_end.set()
        assert desk.verdicts() == [DONE] * 6
        assert desk.runner.groups == [["a"], ["b", "c"], ["d", "e"], ["f"]]


def test_a_table_has_one_leader_at_a_time() -> None:
    with opened(shut=True, leaders=4) as desk:
        desk.submit("a")
        desk.runner.wait_for_group()
        desk.submit("b")
        assert not desk.runner.begun.acquire(timeout=0.05)
        assert desk.runner.groups == [["a"]]
        assert desk.gates.is_busy(LEFT)
        desk.runner.may_end.set()
        desk.verdicts()
    assert not desk.gates.is_busy(LEFT)


def test_two_tables_are_led_at_the_same_time() -> None:
    with opened(shut=True) as desk:
        desk.submit("a", target=LEFT)
        desk.submit("b", target=RIGHT)
        desk.runner.wait_for_group()
        desk.runner.wait_for_group()  # the first has not ended
        assert sorted(desk.runner.groups) == [["a"], ["b"]]


def test_a_busy_table_goes_to_the_back_of_the_line_after_each_group() -> None:
    with opened(shut=True, leaders=1) as desk:
        desk.submit("a")
        desk.runner.wait_for_group()
        desk.submit("x", target=RIGHT)
        desk.submit("b")
        desk.runner.may_end.set()
        desk.verdicts()
        assert desk.runner.groups == [["a"], ["x"], ["b"]]


def test_one_key_that_comes_twice_is_in_two_groups_and_order_is_kept() -> None:
    with opened(shut=True) as desk:
        desk.submit("a")
        desk.runner.wait_for_group()
        desk.submit("b", "c")
        again: Future[Verdict] = Future()
        desk.gates.submit(work("b"), again.set_result, begin=begin_by(desk.runner))
        desk.submit("d")
        desk.runner.may_end.set()
        assert again.result(WAIT_S) == DONE
        desk.verdicts()
        assert desk.runner.groups == [["a"], ["b", "c"], ["b", "d"]]


def test_one_key_of_two_principals_is_two_keys() -> None:
    with opened(shut=True) as desk:
        desk.submit("a")
        desk.runner.wait_for_group()
        desk.submit("b")
        other: Future[Verdict] = Future()
        desk.gates.submit(work("b", principal="you"), other.set_result, begin=begin_by(desk.runner))
        desk.runner.may_end.set()
        assert other.result(WAIT_S) == DONE
        assert desk.runner.groups == [["a"], ["b", "b"]]


def test_remembered_heads_are_not_trusted_right_after_a_swap_was_lost() -> None:
    with opened() as desk:
        desk.runner.is_calm = False
        desk.submit("a")
        desk.verdict("a")
        desk.runner.is_calm = True
        desk.submit("x", target=RIGHT)
        desk.verdict("x")
        desk.submit("b")
        desk.verdict("b")
        assert desk.runner.trusted == [True, True, False]


# --- bounds -----------------------------------------------------------------------------------------------


def test_a_full_queue_refuses_and_has_room_again_when_it_was_drained() -> None:
    with opened(shut=True, queue_max=2) as desk:
        desk.submit("a")
        desk.runner.wait_for_group()
        desk.submit("b", "c")
        with pytest.raises(QueueFull):
            desk.submit("d")
        desk.submit("x", target=RIGHT)  # another table's queue is its own
        desk.runner.may_end.set()
        assert [desk.verdict(key) for key in "abcx"] == [DONE] * 4
        desk.submit("e")
        assert desk.verdict("e") == DONE
        assert "d" not in [key for group in desk.runner.groups for key in group]


def test_a_commit_whose_time_is_over_in_the_queue_is_refused_and_never_run() -> None:
    with opened(shut=True) as desk:
        desk.submit("a")
        desk.runner.wait_for_group()
        desk.submit("late", deadline=LONG_AGO)
        desk.submit("b")
        desk.runner.may_end.set()
        refused = desk.verdict("late")
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, QueueFull)
        assert desk.verdict("b") == DONE
        assert desk.runner.groups == [["a"], ["b"]]


def test_a_queue_of_nobody_but_late_ones_runs_nothing() -> None:
    with opened() as desk:
        desk.submit("late", deadline=LONG_AGO)
        assert isinstance(desk.verdict("late"), Refused)
        assert desk.runner.groups == []


# --- holding ----------------------------------------------------------------------------------------------


def test_a_held_table_waits_and_goes_on_when_it_is_let_go() -> None:
    with opened() as desk:
        with desk.gates.hold([LEFT]):
            assert desk.gates.is_busy(LEFT)
            desk.submit("a")
            desk.submit("x", target=RIGHT)
            assert desk.verdict("x") == DONE
            assert not desk.answers["a"].done()
        assert desk.verdict("a") == DONE


def test_held_tables_take_no_leader_away_from_the_others() -> None:
    with opened(leaders=1) as desk, desk.gates.hold([LEFT]):
        desk.submit("a")
        desk.submit("x", target=RIGHT)
        assert desk.verdict("x") == DONE


def test_a_hold_waits_for_the_group_that_runs() -> None:
    with opened(shut=True) as desk, ThreadPoolExecutor(1) as pool:
        desk.submit("a")
        desk.runner.wait_for_group()
        held = pool.submit(_hold, desk.gates, [LEFT])
        assert not held.done()
        desk.runner.may_end.set()
        held.result(WAIT_S)
        assert desk.verdict("a") == DONE


def _hold(gates: Gates, targets: list[Target]) -> None:
    with gates.hold(targets):
        pass


def test_holds_of_the_same_tables_in_opposite_order_do_not_wait_for_each_other_for_ever() -> None:
    with opened() as desk, ThreadPoolExecutor(4) as pool:
        holds = [
            pool.submit(_hold, desk.gates, [LEFT, RIGHT] if n % 2 else [RIGHT, LEFT, RIGHT])
            for n in range(200)
        ]
        desk.submit(*(f"a{n}" for n in range(20)))
        desk.submit(*(f"x{n}" for n in range(20)), target=RIGHT)
        for hold in holds:
            hold.result(WAIT_S)
        assert desk.verdicts() == [DONE] * 40


def test_between_two_holds_the_queue_has_its_turn() -> None:
    with opened() as desk, ThreadPoolExecutor(1) as pool:
        order: list[str] = []

        def second() -> None:
            with desk.gates.hold([LEFT]):
                order.extend(key for group in desk.runner.groups for key in group)

        with desk.gates.hold([LEFT]):
            desk.submit("a")
            waiting = pool.submit(second)
        waiting.result(WAIT_S)
        desk.verdicts()
        assert order in (
            ["a"],
            [],
        )  # it may have come too late to wait; it never came before and kept "a" out
        assert desk.verdict("a") == DONE


def test_many_tables_that_were_idle_are_forgotten_but_never_one_that_is_held() -> None:
    with opened(idle_max=3) as desk:
        with desk.gates.hold([LEFT, RIGHT]):
            desk.submit("a")
            for n in range(10):
                desk.submit(f"t{n}", target=(("db",), f"t{n}"))
                desk.verdict(f"t{n}")
            assert not desk.answers["a"].done()
            desk.submit("b", target=RIGHT)
            assert not desk.answers["b"].done()
        assert desk.verdict("a") == desk.verdict("b") == DONE


# --- when something breaks --------------------------------------------------------------------------------


def test_a_runner_that_crashes_leaves_the_outcome_unknown_to_all_whom_it_had_not_told() -> None:
    with opened(shut=True) as desk:
        desk.submit("a")
        desk.runner.wait_for_group()
        answers = {key: Future[Verdict]() for key in ("b", "c", "d")}

        def crashes(
            works: Sequence[Work], answer: Callable[[int, Verdict], None], trusts_cache: bool
        ) -> bool:
            answer(1, DONE)
            raise RuntimeError("a bug")

        for key, future in answers.items():
            desk.gates.submit(work(key), future.set_result, begin=begin_by(crashes))
        desk.runner.may_end.set()
        found = {key: future.result(WAIT_S) for key, future in answers.items()}
        assert isinstance(found["b"], Unknown)
        assert found["c"] == DONE
        assert isinstance(found["d"], Unknown)
        desk.submit("e")  # the table's gate goes on
        assert desk.verdict("e") == DONE


def test_a_runner_that_forgets_somebody_leaves_nobody_waiting() -> None:
    with opened() as desk:
        future: Future[Verdict] = Future()
        desk.gates.submit(work("a"), future.set_result, begin=begin_by(lambda works, answer, trusts: True))
        assert isinstance(future.result(WAIT_S), Unknown)


def test_one_who_cannot_be_told_keeps_nobody_else_from_being_told() -> None:
    with opened(shut=True) as desk:

        def is_gone(verdict: Verdict) -> None:
            raise RuntimeError("Event loop is closed")

        desk.gates.submit(work("a"), is_gone, begin=begin_by(desk.runner))
        desk.runner.wait_for_group()
        desk.gates.submit(work("late"), is_gone, begin=begin_by(desk.runner), deadline=LONG_AGO)
        desk.gates.submit(work("b"), is_gone, begin=begin_by(desk.runner))
        desk.submit("c")
        desk.runner.may_end.set()
        assert desk.verdict("c") == DONE
        desk.submit("d")
        assert desk.verdict("d") == DONE


def test_closing_finishes_what_is_queued_and_takes_nothing_more() -> None:
    with opened(shut=True, leaders=1, group_max=2) as desk, ThreadPoolExecutor(1) as pool:
        desk.submit("a")
        desk.runner.wait_for_group()
        desk.submit("b", "c", "d", "e")
        desk.submit("x", target=RIGHT)
        closing = pool.submit(desk.gates.close)
        while not desk.gates.is_closing:
            pass
        with pytest.raises(QueueFull):
            desk.gates.submit(work("late"), lambda _: None, begin=begin_by(desk.runner))
        desk.runner.may_end.set()
        closing.result(WAIT_S)
        assert all(answer.done() for answer in desk.answers.values())
        assert desk.verdicts() == [DONE] * 6
        desk.gates.close()  # a second time does nothing
