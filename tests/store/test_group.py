"""The queue of writes that share a transaction, with work that is no database's."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from headgate.errors import CommitUnknown, Overloaded, StorageFailed, WouldWait
from headgate.store.group import Group, Member, fail_all, tell_all
from tests.collector import without_collector

LONG_S = 30.0


class Bench:
    """A group whose first batch waits for `go`; each batch is noted, and each work gives itself back."""

    def __init__(self, *, members_max: int = 100, batches_max: int = 1, wait_max_s: float = LONG_S) -> None:
        self.batches: list[list[object]] = []
        self.started, self.go = threading.Event(), threading.Event()
        self.group: Group[object, object] = Group(
            self.run, members_max=members_max, batches_max=batches_max, wait_max_s=wait_max_s
        )
        self.pool = ThreadPoolExecutor(32)

    def run(self, members: Sequence[Member[object, object]]) -> None:
        self.batches.append([member.work for member in members])
        if len(self.batches) == 1:
            self.started.set()
            assert self.go.wait(LONG_S)
        for member in members:
            if isinstance(member.work, BaseException):
                raise member.work
            member.settle(member.work)

    def submit_behind(self, *works: object) -> list[Future[object]]:
        """One work that is under way, then these, each queued before the next is."""
        futures = [self.pool.submit(self.group.submit, "first")]
        assert self.started.wait(LONG_S)
        for count, work in enumerate(works, 1):
            futures.append(self.pool.submit(self.group.submit, work))
            wait_until_queued(self.group, count)
        return futures

    def close(self) -> None:
        self.go.set()
        self.pool.shutdown()


def wait_until_queued(group: Group[object, object], count: int) -> None:
    pause = threading.Event()
    for _ in range(30_000):
        if group.waiting >= count:
            return
        pause.wait(0.001)
    raise AssertionError(f"{group.waiting} of {count} wait")


def test_who_is_alone_runs_at_once_in_its_own_thread() -> None:
    threads: list[int] = []

    def run(members: Sequence[Member[str, str]]) -> None:
        threads.append(threading.get_ident())
        tell_all(members, [member.work for member in members])

    group: Group[str, str] = Group(run, members_max=9, batches_max=1, wait_max_s=LONG_S)
    assert [group.submit(work) for work in ("a", "b")] == ["a", "b"]
    assert threads == [threading.get_ident()] * 2


def test_those_who_arrive_meanwhile_share_the_next_batch_in_order() -> None:
    bench = Bench()
    futures = bench.submit_behind("a", "b", "c")
    bench.close()
    assert [future.result() for future in futures] == ["first", "a", "b", "c"]
    assert bench.batches == [["first"], ["a", "b", "c"]]


def test_a_batch_is_bounded_and_the_rest_comes_next() -> None:
    bench = Bench(members_max=2)
    futures = bench.submit_behind("a", "b", "c")
    bench.close()
    assert [future.result() for future in futures] == ["first", "a", "b", "c"]
    assert bench.batches == [["first"], ["a", "b"], ["c"]]


def test_a_second_place_is_taken_before_anyone_queues() -> None:
    bench = Bench(batches_max=2)
    bench.submit_behind()
    assert bench.group.submit("beside") == "beside"
    bench.close()
    assert bench.batches == [["first"], ["beside"]]


def test_who_waits_too_long_leaves_the_queue_and_has_not_written() -> None:
    bench = Bench(wait_max_s=0.01)
    bench.submit_behind()
    with pytest.raises(Overloaded):
        bench.group.submit("late")
    assert bench.group.waiting == 0
    bench.close()
    assert bench.group.submit("next") == "next"
    assert bench.batches == [["first"], ["next"]]


def test_an_interrupted_leader_leaves_the_others_unknown_and_the_place_free() -> None:
    bench = Bench()
    futures = bench.submit_behind(KeyboardInterrupt(), "a")
    bench.close()
    assert futures[0].result() == "first"
    with pytest.raises(KeyboardInterrupt):
        futures[1].result()
    with pytest.raises(CommitUnknown):
        futures[2].result()
    assert bench.group.submit("next") == "next"


def test_an_error_of_all_is_raised_in_each_as_its_own_with_evidence_and_cause() -> None:
    members = [Member[str, str]("a"), Member[str, str]("b")]
    cause = ValueError("disk")
    error = StorageFailed("gone", path="x")
    error.__cause__ = cause
    fail_all(members, error)
    raised: list[StorageFailed] = []
    for member in members:
        with pytest.raises(StorageFailed, match="gone") as caught:
            member.result()
        raised.append(caught.value)
    assert raised[0] is not raised[1]
    assert [(one.evidence, one.__cause__) for one in raised] == [({"path": "x"}, cause)] * 2


def test_an_error_is_forgotten_with_whoever_it_was_raised_for() -> None:
    """It holds the frames that it was raised through, and one of them the member that held it."""
    with without_collector():
        error = weakref.ref(fail_one())
        assert error() is None


def fail_one() -> StorageFailed:
    """The error of a work that failed as a transaction does, caught."""

    def fail(members: Sequence[Member[object, object]]) -> None:
        fail_all(members, StorageFailed("gone"))

    group: Group[object, object] = Group(fail, members_max=1, batches_max=1, wait_max_s=LONG_S)
    try:
        group.submit("work")
    except StorageFailed as error:
        return error
    raise AssertionError("it was not raised")


# --- who waits for nobody long ------------------------------------------------------------------------------


def test_who_finds_a_free_place_in_a_hurry_has_it_at_once() -> None:
    bench = Bench()
    bench.go.set()
    assert bench.group.submit("a", wait_max_s=0.0) == "a"
    bench.close()


def test_who_is_in_a_hurry_goes_without_having_written_when_the_place_stays_taken() -> None:
    bench = Bench()
    bench.submit_behind()
    with pytest.raises(WouldWait):
        bench.group.submit("hurried", wait_max_s=0.001)
    assert bench.group.waiting == 0
    bench.close()
    assert bench.batches == [["first"]]


def test_nobody_shares_a_place_with_one_in_a_hurry() -> None:
    bench = Bench()
    futures = bench.submit_behind("a", "b")
    futures.append(bench.pool.submit(bench.group.submit, "hurried", wait_max_s=LONG_S))
    wait_until_queued(bench.group, 3)
    for count, work in enumerate(("c", "d"), 4):
        futures.append(bench.pool.submit(bench.group.submit, work))
        wait_until_queued(bench.group, count)
    bench.go.set()
    assert [future.result(LONG_S) for future in futures] == ["first", "a", "b", "hurried", "c", "d"]
    bench.close()
    assert bench.batches == [["first"], ["a", "b"], ["hurried"], ["c", "d"]]


def test_who_enters_works_by_itself_while_others_wait_for_it_to_leave() -> None:
    bench = Bench(batches_max=1)
    bench.go.set()
    assert bench.group.enter()
    assert not bench.group.enter()
    waiting = bench.pool.submit(bench.group.submit, "behind")
    wait_until_queued(bench.group, 1)
    assert bench.batches == []
    bench.group.leave()
    assert waiting.result(LONG_S) == "behind"
    assert bench.group.enter()  # the place was left free
    bench.group.leave()
    bench.close()
