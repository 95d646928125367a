"""Whom a leader waits for: those who were just answered, for a bounded time, and never when it is alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

from headgate.core.commit import Committed, TableCommit, Target, Verdict
from headgate.service.commit_records import Work
from headgate.service.company import Company
from headgate.service.gate import Gates
from headgate.service.metrics import Metrics
from headgate.service.roles import Caller, Role
from tests.service.group_runs import begin_by

WAIT_S = 20
TABLE = (("db",), "t")
LONG_S = 10.0  # what a group took: the bounds on waiting are the largest there are


def never_asked() -> int:
    raise AssertionError("nobody is to be waited for")


def test_before_the_first_group_nobody_is_waited_for() -> None:
    Company().wait(never_asked)


def test_who_was_alone_is_not_waited_with() -> None:
    company = Company()
    company.expect(1, took_s=LONG_S)
    company.wait(never_asked)


def test_when_all_are_back_nobody_is_waited_for() -> None:
    company = Company()
    company.expect(3, took_s=LONG_S)
    company.note(3)
    company.wait(never_asked)


def test_those_who_were_answered_are_waited_for_as_long_as_some_come() -> None:
    company = Company()
    company.expect(4, took_s=LONG_S)
    seen = iter((1, 2, 2, 3, 3, 4, 4))  # asked before and after each wait
    company.wait(lambda: next(seen))
    assert next(seen, None) is None


def test_when_nobody_comes_for_a_while_the_rest_is_not_waited_for() -> None:
    company = Company()
    company.expect(4, took_s=LONG_S)
    seen = iter((2, 2))
    company.wait(lambda: next(seen))
    assert next(seen, None) is None


def test_waiting_ends_with_its_time_though_more_would_come() -> None:
    time_s = [0.0]
    company = Company(clock=lambda: time_s[0])
    company.expect(1000, took_s=0.001)
    seen: list[int] = []

    def one_more() -> int:
        time_s[0] += 0.0002
        seen.append(len(seen))
        return len(seen)

    company.wait(one_more)
    assert len(seen) < 10


def test_one_expectation_is_waited_for_once() -> None:
    company = Company()
    company.expect(2, took_s=0.001)
    company.wait(lambda: 1)
    company.wait(never_asked)


class Turns:
    """Drives groups by noting them; each group, and each turn, can be made to wait."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.turns: list[Target] = []
        self.begun, self.asked = threading.Semaphore(0), threading.Semaphore(0)
        self.may_end, self.may_begin = threading.Event(), threading.Event()

    def run(self, works: Sequence[Work], answer: Callable[[int, Verdict], None], trusts_cache: bool) -> bool:
        self.groups.append([one.key for one in works])
        self.begun.release()
        assert self.may_end.wait(WAIT_S)
        for member in range(len(works)):
            answer(member, Committed(()))
        return True

    @contextmanager
    def take(self, target: Target) -> Iterator[None]:
        self.turns.append(target)
        self.asked.release()
        assert self.may_begin.wait(WAIT_S)
        yield

    def submit(self, gates: Gates, key: str) -> Future[Verdict]:
        caller = Caller("me", Role.ADMIN, "request")
        work = Work(caller, key, (TableCommit(TABLE, (), ()),), {}, 200, "commit-table")
        answered: Future[Verdict] = Future()
        gates.submit(work, answered.set_result, begin=begin_by(self.run))
        return answered


def open_gates(turns: Turns, *, seeks_company: bool = False) -> Gates:
    return Gates(
        leaders=2,
        queue_max=100,
        group_max=100,
        metrics=Metrics(),
        take_turn=turns.take,
        seeks_company=seeks_company,
    )


def test_each_group_has_a_turn_of_its_own() -> None:
    turns = Turns()
    turns.may_end.set()
    turns.may_begin.set()
    gates = open_gates(turns)
    turns.submit(gates, "a").result(WAIT_S)
    turns.submit(gates, "b").result(WAIT_S)
    assert turns.turns == [TABLE, TABLE]
    gates.close()


def test_who_comes_while_a_leader_waits_for_its_turn_is_in_its_group() -> None:
    turns = Turns()
    turns.may_end.set()
    gates = open_gates(turns)
    first = turns.submit(gates, "b")
    assert turns.asked.acquire(timeout=WAIT_S)
    second = turns.submit(gates, "c")
    turns.may_begin.set()
    first.result(WAIT_S)
    second.result(WAIT_S)
    assert turns.groups == [["b", "c"]]
    gates.close()


def test_a_gate_that_seeks_company_leads_everybody_who_comes() -> None:
    turns = Turns()
    turns.may_begin.set()
    gates = open_gates(turns, seeks_company=True)
    answers = [turns.submit(gates, "a")]
    assert turns.begun.acquire(timeout=WAIT_S)
    answers += [turns.submit(gates, key) for key in "bcd"]
    turns.may_end.set()
    answers += [turns.submit(gates, key) for key in "efg"]
    assert [answer.result(WAIT_S) for answer in answers] == [Committed(())] * 7
    assert [key for group in turns.groups for key in group] == list("abcdefg")
    gates.close()
